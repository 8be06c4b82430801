"""What commands print into files and pipes, in encodings that lack characters, and where nothing more can be written."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from memlane.cli.terminal import columns, on_terminal, show, show_json
from memlane.record import load
from tests.cli.conftest import EXAMPLES, Command
from tests.synthetic import transpose

COUNT = ("count", EXAMPLES / "transpose.cu", "--kernel", "naive", "--grid", "2,2", "--block", "32,32")
ARGUMENTS = ("--arg", "f4[64,64]", "--arg", "f4[64,64]=random:7", "--arg", "64:i4")
MEMLANE = (sys.executable, "-c", "import sys; from memlane.cli import main; sys.exit(main())")


def test_a_pipe_gets_no_blanks_at_line_ends_and_no_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    show(Text("red", style="red"), Text("words " * 10))
    out = capsys.readouterr().out
    assert not on_terminal()
    assert columns() == 44
    assert out == "red\nwords words words words words words words\nwords words words\n"


@pytest.mark.parametrize(("variable", "coloured"), [("NO_COLOR", False), ("COLORTERM", True)])
def test_colours_are_for_terminals_and_for_who_wants_them(
    variable: str, coloured: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes any stream a terminal
    monkeypatch.setenv(variable, "1")
    show(Text("red", style="red"))
    assert ("\x1b[31m" in capsys.readouterr().out) == coloured


def test_no_command_pads_its_lines(memlane: Command) -> None:
    transpose().save("a.parquet")
    for words in (("explain", "a.parquet"), ("banks", "--patterns", "row", "--draws", "1"), (*COUNT, *ARGUMENTS)):
        answer = memlane(*words)
        assert answer.code == 0
        assert [line for line in answer.lines if line != line.rstrip()] == []
        assert "\x1b" not in answer.out


def test_json_has_escapes_where_the_encoding_lacks_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    show_json({"file": "mäßig.cu"})
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")
    assert json.loads(text) == {"file": "mäßig.cu"}
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")


def test_a_terminal_without_the_characters_of_a_picture_gets_its_shape() -> None:
    code = "import sys; from memlane.cli import stream; stream.replace_what_has_no_code(); print('█a')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "?a\n", "")


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*MEMLANE, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, f"memlane: standard output cannot be written: {os.strerror(errno.ENOSPC)}\n")


def test_a_reader_that_goes_away_is_no_error_to_talk_of() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*MEMLANE, "--help"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.stderr == ""


# -- count --output --------------------------------------------------------------------------------------------------------------


def test_counts_go_into_a_file_in_the_form_of_its_name(memlane: Command) -> None:
    table = memlane(*COUNT, *ARGUMENTS).out
    for name in ("counts.txt", "counts.json", "counts.csv"):
        answer = memlane(*COUNT, *ARGUMENTS, "--output", name)
        assert (answer.code, answer.out, answer.err) == (0, f"Wrote {name}\n", "")
    assert Path("counts.txt").read_text() == table
    document = json.loads(Path("counts.json").read_text())
    assert (document["kind"], document["launches"][0]["total"]["sectors"]) == ("counts", 4096 * 4 // 32 + 4096)
    assert Path("counts.csv").read_text().startswith("launch,chip,how,kernel,file,line,")
    assert memlane("compare", "counts.json", "counts.json").code == 0


def test_counts_are_not_written_over_what_is_there(memlane: Command, tmp_path: Path) -> None:
    Path("counts.json").write_text("mine")
    answer = memlane(*COUNT, *ARGUMENTS, "-o", "counts.json")
    assert (answer.code, answer.err) == (2, "memlane: counts.json exists; pass --force (force=True in Python) to replace it\n")
    assert Path("counts.json").read_text() == "mine"
    assert memlane(*COUNT, *ARGUMENTS, "-o", "counts.json", "--csv", "-f").code == 0
    assert Path("counts.json").read_text().startswith("launch,")
    source = tmp_path / "transpose.cu"
    source.write_text((EXAMPLES / "transpose.cu").read_text())
    answer = memlane("count", source, *COUNT[2:], *ARGUMENTS, "-o", source, "-f")
    assert (answer.code, "is the input" in answer.err) == (2, True)


def test_a_device_is_written_to_and_told_of_on_standard_error(memlane: Command) -> None:
    transpose().save("a.parquet")
    answer = memlane("export", "a.parquet", "--to", "csv", "-o", "/dev/null")
    assert (answer.code, answer.out, answer.err) == (0, "", "Wrote /dev/null\n")


def test_a_dash_is_no_file(memlane: Command) -> None:
    transpose().save("a.parquet")
    for words in ((*COUNT, *ARGUMENTS, "-o", "-"), ("export", "a.parquet", "--to", "csv", "-o", "-"), ("report", "a.parquet", "-o", "-")):
        answer = memlane(*words)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err == "memlane: --output - does not mean standard output; name a file, such as out.csv or /dev/stdout\n"
    assert not Path("-").exists()


# -- file names ------------------------------------------------------------------------------------------------------------------


def test_names_beyond_ascii(memlane: Command) -> None:
    transpose().save("größe π.parquet")
    assert memlane("export", "größe π.parquet", "--to", "csv").lines == ["Wrote größe π.csv"]
    assert memlane("report", "größe π.parquet").code == 0
    assert memlane("explain", "größe π.parquet").lines[-1] == "Next: memlane report 'größe π.parquet'"


def test_a_name_that_is_no_unicode(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet"))
    transpose().save(path)
    assert load(path).table.num_rows == transpose().table.num_rows


def test_a_directory_that_takes_no_files_is_refused_before_anything_runs(
    memlane: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs this may write anywhere, so the question is answered in the operating system's place."""
    transpose().save("a.parquet")
    Path("script.py").write_text("raise SystemExit('it ran')")
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path / "closed" and access(path, mode))
    (tmp_path / "closed").mkdir()
    for words in (
        ("trace", "script.py", "--output", "closed/x"),
        ("count", "script.py", "--output", "closed/x"),
        ("report", "a.parquet", "--output", "closed/x"),
        ("export", "a.parquet", "--to", "csv", "--output", "closed/x"),
        ("export", "a.parquet", "--to", "otf2", "--output", "closed/x"),
        ("lab", "shift", "--quick", "--out", "closed/x"),
    ):
        answer = memlane(*words)
        assert answer.code == 2, answer
        assert answer.err.startswith("memlane: closed/x cannot be written: you have no permission to create files in the directory "), (
            answer
        )
        assert answer.err.count("\n") == 1
    answer = memlane("lab", "shift", "--quick", "--out", "a.parquet")
    assert answer.err == "memlane: a.parquet is a file, but several files will be written to a.parquet; name a directory with --out\n"


def test_a_trace_that_goes_nowhere_has_no_next_step(memlane: Command) -> None:
    answer = memlane("trace", *COUNT[1:], *ARGUMENTS, "--output", "/dev/null")
    assert (answer.code, answer.lines[-1]) == (0, "Wrote /dev/null")


SPEAKING = """
import pathlib, memlane as ml
print("a script that talks")
target = ml.target()
target.load(ml.cuda(pathlib.Path("k.cu")))["k"][1, 32](target.zeros(32))
"""


def test_what_a_script_prints_is_no_part_of_a_document(memlane: Command) -> None:
    Path("k.cu").write_text("__global__ void k(float* x) { x[threadIdx.x] = 1.0f; }\n")
    Path("talks.py").write_text(SPEAKING)
    for command, kind in (("count", "counts"), ("check", "reports"), ("fix", "fix")):
        answer = memlane(command, "talks.py", "--json")
        assert (answer.code, json.loads(answer.out)["kind"], "a script that talks\n" in answer.err) == (0, kind, True)
        spoken = memlane(command, "talks.py")
        assert spoken.lines[0] == "a script that talks"
    assert memlane("count", "talks.py", "--csv").lines[0].startswith("launch,")
    assert memlane("count", "talks.py", "-o", "x.json").lines == ["a script that talks", "Wrote x.json"]
