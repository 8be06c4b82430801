"""Programs that break off: what was collected until then is reported, and the failure is passed on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from memlane.record import is_broken_off, load
from memlane.report import summary_document
from tests.cli.conftest import Answer, Command

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry fill(.param .u64 out)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
"""
START = f"""import sys, threading
import memlane as ml
target = ml.target()
fill = target.load(ml.parse('''{PTX}''', "fill.ptx"))["fill"]
out = target.zeros(32, "u4")
fill[1, 32](out)
"""
LAST = START.count("\n") + 1
"""The line of a script behind that."""
SECTORS = 32 * 4 // 32
ENDS = {
    "assertion": ("assert out.numpy().sum() == 0, 'wrong result'", 1, f":{LAST}: AssertionError: wrong result"),
    "code": ("sys.exit(3)", 3, " stopped with exit code 3"),
    "text": ("sys.exit('no data')", 1, " stopped: no data"),
    "object": ("sys.exit((1, 2))", 1, " stopped: (1, 2)"),
    "base": ("class Cancelled(BaseException): pass\nraise Cancelled('late')", 1, f":{LAST + 1}: Cancelled: late"),
    "interrupt": ("raise KeyboardInterrupt", 130, "interrupted"),
    "bad access": ("fill[1, 1024](out)", 1, "kernel fill, fill.ptx:11"),
}
"""The end of a script, its exit code, and the reason as documents give it."""


@pytest.fixture
def script(memlane: Command) -> Callable[[str], Path]:
    """`script(end)` writes a script that launches a kernel and goes on with `end`."""

    def write(end: str) -> Path:
        path = Path("job.py")
        path.write_text(f"{START}{end}\n")
        return path

    return write


Script = Callable[[str], Path]


def flowing(text: str) -> str:
    return " ".join(text.split())


# -- what is reported, and what is passed on ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_counts_are_shown_and_the_failure_is_passed_on(memlane: Command, script: Script, end: str) -> None:
    text, code, why = ENDS[end]
    answer = memlane("count", script(text))
    assert answer.code == code
    assert f"128 moved ({SECTORS} sectors" in answer.out
    assert f"The program failed: {'' if why[0] in 'ki' else 'job.py'}{why}" in flowing(answer.out)
    assert answer.err.startswith("memlane: ")
    document = json.loads((again := memlane("count", script(text), "--json")).out)
    assert (again.code, again.err.splitlines()[-1]) == (code, answer.err.splitlines()[-1])
    assert [launch["total"]["sectors"] for launch in document["launches"]] == [SECTORS]
    assert why in document["failed"]
    assert "\n" not in document["failed"]


def test_an_exception_is_the_traceback_of_the_script(memlane: Command, script: Script) -> None:
    answer = memlane("check", script(f"def f():\n    {ENDS['assertion'][0]}\nf()"))
    frames = [line for line in answer.err.splitlines() if line.startswith("  File ")]
    file = Path("job.py").absolute()
    assert frames == [f'  File "{file}", line {LAST + 2}, in <module>', f'  File "{file}", line {LAST + 1}, in f']
    assert answer.err.startswith("memlane: job.py failed\nTraceback (most recent call last):\n")
    assert answer.err.endswith("AssertionError: wrong result\n")
    assert "Checked 1 launch of fill: nothing found." in answer.out


def test_an_error_of_ours_is_one_sentence(memlane: Command, script: Script) -> None:
    lines = memlane("count", script("fill[1, 1024](out)")).err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["memlane", "  reached from job.py"]


@pytest.mark.parametrize("end", ["", "sys.exit()", "sys.exit(0)", "sys.exit(False)", "sys.exit(None)"])
def test_an_exit_that_means_success_is_one(memlane: Command, script: Script, end: str) -> None:
    answer = memlane("count", script(end), "--json")
    assert (answer.code, answer.err, json.loads(answer.out)["failed"]) == (0, "", None)


FINDING = START.replace("fill[1, 32]", "fill[1, 40]")


@pytest.mark.parametrize("end", ["assertion", "code", "text", "interrupt"])
def test_findings_are_reported(memlane: Command, end: str) -> None:
    text, code, why = ENDS[end]
    Path("job.py").write_text(f"{FINDING}{text}\n")
    answer = memlane("check", "job.py")
    assert answer.code == code
    assert "out of bounds, fill" in answer.out
    assert "Checked 1 launch of fill: 1 finding." in answer.out
    document = json.loads((again := memlane("check", "job.py", "--json")).out)
    assert (again.code, again.err, document["launches"]) == (code, answer.err, 1)
    assert [report["count"] for report in document["reports"]] == [8]
    assert why in document["failed"]


@pytest.mark.parametrize(("command", "kind"), [("count", "counts"), ("check", "reports"), ("fix", "fix")])
@pytest.mark.parametrize("text", ["1 / 0", ""])
def test_a_document_is_one_also_without_a_launch(memlane: Command, command: str, kind: str, text: str) -> None:
    Path("job.py").write_text(text)
    answer = memlane(command, "job.py", "--json")
    document = json.loads(answer.out)
    assert (answer.code, document["kind"]) == (1, kind)
    assert document["failed"].startswith("job.py:1: ZeroDivisionError" if text else "job.py launched no kernel through memlane")
    assert memlane(command, "job.py").out == ""


def test_layouts_that_were_tried_are_reported(memlane: Command, script: Script) -> None:
    answer = memlane("fix", script("sys.exit(3)"))
    assert (answer.code, answer.lines[0]) == (3, "No bank conflicts in fill: nothing to fix in shared memory.")
    document = json.loads(memlane("fix", "job.py", "--json").out)
    assert (document["kernels"], document["failed"]) == (["fill"], "job.py stopped with exit code 3")


def test_an_access_that_was_made_is_drawn(memlane: Command, script: Script) -> None:
    answer = memlane("show", "fill.ptx:11", script("sys.exit(3)"), "--svg", "access.svg")
    assert (answer.code, answer.err) == (3, "memlane: job.py stopped with exit code 3\n")
    assert "32 lanes x 4 B touch 4 sectors" in answer.out
    assert "access.svg was not written." in answer.lines
    assert not Path("access.svg").exists()
    answer = memlane("show", "fill.ptx:99", "job.py")
    assert (answer.code, answer.out, answer.err) == (3, "", "memlane: job.py stopped with exit code 3\n")


def test_a_script_that_redirects_its_output_leaves_ours_alone(memlane: Command, script: Script) -> None:
    answer = memlane("count", script("sys.stdout = log = open('log', 'w')\nprint('mine')\nlog.close()\nsys.exit(3)"))
    assert "sectors" in answer.out
    assert Path("log").read_text() == "mine\n"


# -- threads, and launches whose error the program catches -------------------------------------------------------------------------


def test_what_ends_a_thread_does_not_end_the_program(memlane: Command, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)  # pytest has one of its own
    answer = memlane("count", script("threading.Thread(target=lambda: sys.exit(5)).start()"))
    assert (answer.code, answer.err) == (0, "")
    answer = memlane("count", script("threading.Thread(target=lambda: fill[1, 1024](out)).start()"))
    assert answer.code == 0
    assert [line.partition(":")[0] for line in answer.err.splitlines()] == ["memlane", "  reached from job.py"]
    assert "Launch 1 (fill) failed: kernel fill" in answer.out


CAUGHT = "try:\n    fill[1, 1024](out)\nexcept ml.MemlaneError:\n    pass\nfill[1, 32](out)"
STUCK = """
text = '''.version 8.0
.target sm_90
.address_size 64
.visible .entry stuck(.param .u64 out) {
    .reg .b32 %r1;
    .reg .pred %p1;
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 32;
    @%p1 bar.sync 1, 64;
    @!%p1 bar.sync 2, 64;
    ret;
}
'''
stuck = target.load(ml.parse(text, "stuck.ptx"))["stuck"]
try:
    stuck[1, 64](out)
except ml.MemlaneError:
    pass
"""


def test_a_launch_that_broke_off_is_not_counted_and_told(memlane: Command, script: Script) -> None:
    answer = memlane("count", script(CAUGHT))
    assert (answer.code, answer.err) == (0, "")
    assert flowing(answer.out).count("It is not counted.") == 1
    document = json.loads(memlane("count", script(CAUGHT), "--json").out)
    assert [launch["block"][0] for launch in document["launches"]] == [32, 32]
    (failed,) = document["failed_launches"]
    assert (failed["id"], failed["kernel"], document["failed"]) == (1, "fill", None)


def test_a_checked_launch_that_broke_off_is_no_clean_one(memlane: Command, script: Script) -> None:
    answer = memlane("check", script(STUCK))
    assert (answer.code, answer.err) == (1, "")
    assert "Checked 1 launch of fill: nothing found." in answer.out
    assert "Launch 1 (stuck) failed: kernel stuck: block (0, 0, 0) cannot continue" in flowing(answer.out)
    Path("job.py").write_text(START.replace("fill[1, 32](out)\n", "") + STUCK)
    answer = memlane("check", "job.py", "--json")
    document = json.loads(answer.out)
    assert (answer.code, document["launches"], [one["kernel"] for one in document["failed_launches"]]) == (1, 0, ["stuck"])


def test_a_part_of_a_launch_does_not_pass_for_its_counts(memlane: Command) -> None:
    """The launch breaks off at the deadlock, after the checker found something in it."""
    text = STUCK.replace("    ret;", "    ld.param.u64 %rd1, [out];\n    st.global.u32 [%rd1 + 4096], %r1;\n    ret;", 1)
    text = text.replace(
        "    mov.u32 %r1", "    .reg .b64 %rd1;\n    ld.param.u64 %rd1, [out];\n    st.global.u32 [%rd1 + 252], %r1;\n    mov.u32 %r1", 1
    )
    Path("job.py").write_text(START + text)
    document = json.loads((answer := memlane("count", "job.py", "--check", "--json")).out)
    assert [launch["kernel"] for launch in document["launches"]] == ["fill"], answer.err


def test_an_executor_that_nobody_shut_down_is_waited_for_and_ends(memlane: Command, script: Script) -> None:
    """Its threads wait for work, and here a module keeps it alive."""
    Path("keeper.py").write_text("from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n")
    work = "import time, keeper\nkeeper.pool.submit(lambda: (time.sleep(0.2), fill[1, 32](out)))"
    answer = memlane("count", script(work), "--json")
    assert (answer.code, answer.err, len(json.loads(answer.out)["launches"])) == (0, "", 2)


def test_a_script_finds_its_file_after_it_changed_the_directory(memlane: Command, script: Script) -> None:
    """And its own name as it was typed."""
    text = "import os, pathlib\nos.mkdir('below')\nos.chdir('below')\nprint(pathlib.Path(__file__).is_file(), __name__, sys.argv)"
    answer = memlane("check", script(text), "--", "-x")
    assert (answer.code, answer.lines[0]) == (0, "True __main__ ['job.py', '-x']")


# -- record files ------------------------------------------------------------------------------------------------------------------


def test_records_are_kept_under_a_label_and_replaced_without_force(memlane: Command, script: Script) -> None:
    answer = memlane("trace", script("assert False, 'wrong'"))
    assert answer.code == 1
    assert answer.lines[-1] == (
        "Wrote job.parquet: the records up to the failure of the program. Another trace may replace it without --force."
    )
    trace = load("job.parquet")
    assert (trace.failed, trace.table.num_rows) == (f"job.py:{LAST}: AssertionError: wrong", 1)
    assert is_broken_off("job.parquet")
    answer = memlane("trace", script(""))
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[-2:] == ["Wrote job.parquet, replacing an incomplete recording", "Next: memlane explain job.parquet"]
    assert (load("job.parquet").failed, is_broken_off("job.parquet")) == ("", False)
    answer = memlane("trace", script(""))
    assert (answer.code, answer.err) == (2, "memlane: job.parquet exists; pass --force (force=True in Python) to replace it\n")


@pytest.mark.parametrize("end", [end for end in ENDS if end != "bad access"])
def test_the_label_says_why(memlane: Command, script: Script, end: str) -> None:
    text, code, why = ENDS[end]
    assert memlane("trace", script(text)).code == code
    assert load("job.parquet").failed.endswith(why)


def test_all_that_read_the_file_say_so(memlane: Command, script: Script) -> None:
    memlane("trace", script("sys.exit(3)"))
    memlane("trace", script(""), "-o", "whole.parquet")
    said = "job.py stopped with exit code 3"
    assert f"The program failed: {said}." in flowing(memlane("explain", "job.parquet").out)
    assert json.loads(memlane("explain", "job.parquet", "--json").out)["failed"] == said
    assert json.loads(memlane("explain", "whole.parquet", "--json").out)["failed"] is None
    compared = flowing(memlane("compare", "whole.parquet", "job.parquet").out)
    assert f"job.parquet ends where its program failed: {said}." in compared
    assert "whole.parquet lacks" not in compared
    assert memlane("report", "job.parquet").code == 0
    assert f"The program failed: {said}." in Path("job.html").read_text()
    assert summary_document(load("job.parquet"))["failed"] == said
    Path("broken.json").write_text(memlane("count", script("sys.exit(3)"), "--json").out)
    Path("whole.json").write_text(memlane("count", script(""), "--json").out)
    assert f"broken.json ends where its program failed: {said}." in flowing(memlane("compare", "broken.json", "whole.json").out)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"mine"])
def test_what_is_no_record_is_never_replaced(memlane: Command, script: Script, content: bytes) -> None:
    Path("job.parquet").write_bytes(content)
    assert not is_broken_off("job.parquet")
    assert memlane("trace", script("")).code == 2
    assert Path("job.parquet").read_bytes() == content


def test_a_file_of_counts_is_of_a_whole_program(memlane: Command, script: Script) -> None:
    answer = memlane("count", script("sys.exit(3)"), "-o", "counts.json")
    assert (answer.code, Path("counts.json").exists()) == (3, False)
    assert f"128 moved ({SECTORS} sectors" in answer.out
    assert answer.lines[-1] == "counts.json was not written, because the program failed."
    assert memlane("count", script(""), "-o", "counts.json").out == "Wrote counts.json\n"
    before = Path("counts.json").read_text()
    assert memlane("count", script("sys.exit(3)"), "-o", "counts.json", "--force").code == 3
    assert Path("counts.json").read_text() == before


@pytest.mark.parametrize("command", ["trace", "count"])
@pytest.mark.parametrize("end", ["", "sys.exit(3)"])
def test_a_full_disk_leaves_the_table(memlane: Command, script: Script, command: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("memlane.record.output.os.fsync", full)
    answer = memlane(command, script(end), "-o", "out")
    assert "st.global.u32" in answer.out
    assert os.listdir() == ["job.py"]
    lines = answer.err.splitlines()
    if command == "trace" or not end:
        assert lines.pop(0).endswith("out cannot be written: No space left on device; no incomplete file was left")
    assert lines == (["memlane: job.py stopped with exit code 3"] if end else [])
    assert answer.code == (3 if end else 1)


# -- standard output that takes no more --------------------------------------------------------------------------------------------

RUN = "import sys; from memlane.cli import main; sys.exit(main(sys.argv[1:]))"


def test_a_reader_that_goes_away_keeps_neither_file_nor_failure_from_us(memlane: Command, script: Script) -> None:
    path = script("sys.exit(3)")
    command = [sys.executable, "-c", RUN, "trace", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        assert (process.wait(60), err) == (3, "memlane: job.py stopped with exit code 3\n")
    assert is_broken_off("job.parquet")


def test_a_full_standard_output_does_not_hide_the_failure(memlane: Command, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*parts: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("memlane.cli.check.show", full)
    answer: Answer = memlane("check", script("sys.exit(3)"))
    assert answer.code == 3
    assert answer.err.splitlines() == [
        "memlane: standard output cannot be written: No space left on device",
        "memlane: job.py stopped with exit code 3",
    ]


def test_a_script_that_closes_its_output_leaves_ours_open(memlane: Command, script: Script) -> None:
    """Where a document is wanted, its standard output is our standard error."""
    path = script("sys.stdout.close()\nsys.exit(3)")
    done = subprocess.run([sys.executable, "-c", RUN, "check", str(path), "--json"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "memlane: job.py stopped with exit code 3\n")
    assert json.loads(done.stdout)["launches"] == 1


def test_without_a_standard_output_there_is_the_failure(memlane: Command, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script("sys.exit(3)")
    monkeypatch.setattr(sys, "stdout", None)
    answer = memlane("check", path)
    assert (answer.code, answer.out, answer.err) == (3, "", "memlane: job.py stopped with exit code 3\n")
