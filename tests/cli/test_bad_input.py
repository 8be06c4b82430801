"""Bad input, through the command line: a clear error, and nothing lost.

Each error is one line on standard error (below it, where there is one, the source line that it points to), an exit code that is not 0,
and no traceback.
"""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memlane.cli import main
from memlane.driver import Probe
from memlane.record import load
from tests.cli.conftest import EXAMPLES, Answer, Command

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
FILL = f"""{HEAD}
.visible .entry fill(.param .u64 out, .param .u32 value)
{{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mad.wide.u32 %rd2, %r2, 4, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}}
"""
WRONG_KERNELS = """\
__global__ void beyond(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i + n] = 1.0f;
}
__global__ void askew(float* out) {
    *reinterpret_cast<float*>(reinterpret_cast<char*>(out) + threadIdx.x) = 1.0f;
}
__global__ void stuck(int* out) {
    __shared__ int seen[64];
    seen[threadIdx.x] = threadIdx.x;
    if (threadIdx.x < 32) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
    }
    out[threadIdx.x] = seen[threadIdx.x ^ 1];
}
"""
TWO_STREAMS_AND_A_GRAPH = f"""
import numpy as np
import memlane as ml

target = ml.target()
kernels = target.load(ml.cuda({str(EXAMPLES / "transpose.cu")!r}))
n = 64
host = np.arange(n * n, dtype="f4").reshape(n, n)
a = target.array(host)
outs = [target.zeros((n, n)) for _ in range(3)]
one, other = target.stream(), target.stream()
small, large = (1, 1), (2, 2)
block = (32, 32)

kernels["naive"][small, block, one](outs[0], a, 32)
kernels["padded"][large, block, other](outs[1], a, n)
kernels["naive"][large, block, one](outs[0], a, n)
graph = target.graph([
    kernels["tiled"][small, block].bind(outs[2], a, 32),
    kernels["naive"][small, block].bind(outs[2], a, 32),
])
graph.replay()
graph.replay()
kernels["padded"][small, block, other](outs[1], a, 32)
target.sync()
assert np.array_equal(outs[0].numpy(), host.T)
"""
TRANSPOSE, CUDA = EXAMPLES / "ptx" / "transpose.ptx", EXAMPLES / "transpose.cu"
NAIVE_LINE = next(n for n, line in enumerate(CUDA.read_text().splitlines(), 1) if "out[x * n + y]" in line)
NAIVE = ("--kernel", "naive", "--grid", "2,2", "--block", "32,32")
ARGUMENTS = ("--arg", "out:f4[64,64]", "--arg", "in:f4[64,64]=random:7", "--arg", "64:i4")
RUN_MAIN = "import sys; from memlane.cli import main; sys.exit(main(sys.argv[1:]))"
ONE_WARP = ("--grid", 1, "--block", 32)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record file, made once."""
    path = tmp_path_factory.mktemp("record") / "made.parquet"
    assert main(["trace", str(TRANSPOSE), "--target", "emulator", *NAIVE, *ARGUMENTS, "--output", str(path)]) == 0
    return path


@pytest.fixture
def record(memlane: Command, recorded: Path) -> Path:
    """A copy of it in the working directory."""
    return Path(shutil.copy(recorded, "made.parquet"))


def refused(answer: Answer, *parts: str, code: int = 1, quoted: bool = False, kept: bool = False) -> None:
    """The command failed with one line that holds each of `parts`; `quoted`: and below it the lines of the source that it points to;
    `kept`: although it wrote what it knew until then."""
    assert answer.code == code, answer
    assert answer.err.startswith("memlane: ")
    assert "Traceback" not in answer.err
    assert quoted or answer.err.count("\n") == 1, answer.err
    for part in parts:
        assert part in answer.err
    assert ("Wrote" in answer.out) == kept


def without_notes(answer: Answer) -> Answer:
    """What is noted before a launch is not what went wrong with it."""
    lines = [line for line in answer.err.splitlines(keepends=True) if not line.startswith("memlane: note: ")]
    return replace(answer, err="".join(lines))


@pytest.fixture
def written(memlane: Command) -> Callable[[str, str], Path]:
    """`written(name, text)` writes a file into the working directory."""

    def write(name: str, text: str) -> Path:
        path = Path(name)
        path.write_text(text)
        return path

    return write


Write = Callable[[str, str], Path]


# -- what cannot be read ---------------------------------------------------------------------------------------------------------


def test_malformed_ptx(memlane: Command, written: Write) -> None:
    path = written("broken.ptx", f"{HEAD}.entry k() {{\n    mov.b32 %r1 @\n    ret;\n}}\n")
    refused(memlane("trace", path), "broken.ptx:5:17: expected `,` or `;`", "    mov.b32 %r1 @\n", "^", quoted=True)


def test_unsupported_instruction(memlane: Command, written: Write) -> None:
    path = written("strange.ptx", f"{HEAD}.entry k() {{\n    frobnicate.b32 %r1;\n    ret;\n}}\n")
    refused(memlane("count", path), "strange.ptx:5:5: the instruction `frobnicate.b32` is not supported", quoted=True)


def test_instruction_that_the_emulator_does_not_model(memlane: Command, written: Write) -> None:
    path = written("tensor.ptx", f"{HEAD}.entry k() {{\n    .reg .f32 %f<2>;\n    redux.sync.min.f32 %f1, %f1, -1;\n    ret;\n}}\n")
    answer = memlane("trace", path, "--grid", 1, "--block", 32)
    refused(answer, "tensor.ptx:6:5: the emulator does not model redux.sync.min.f32", quoted=True)


def test_file_that_is_no_text(memlane: Command) -> None:
    Path("noise.ptx").write_bytes(b"\xff\xfe\x00\x7f")
    refused(memlane("trace", "noise.ptx"), "noise.ptx is not a text file, so it cannot be PTX", code=2)


@pytest.mark.parametrize("command", ["trace", "count"])
@pytest.mark.parametrize("start", [b"\x7fELF\x02\x01", b"\x50\xed\x55\xba\x01\x00"])
def test_file_that_holds_only_assembled_code(memlane: Command, start: bytes, command: str) -> None:
    Path("kernel.cubin").write_bytes(start + bytes(64))
    answer = memlane(command, "kernel.cubin", *ONE_WARP)
    refused(answer, "kernel.cubin holds assembled code (SASS), and memlane needs PTX: name the .cu file, or the .ptx file", code=2)


@pytest.mark.parametrize("command", ["trace", "count", "check", "fix"])
def test_record_file_in_the_place_of_a_program(memlane: Command, record: Path, command: str) -> None:
    options = ("--output", "other.parquet") if command == "trace" else ()
    answer = memlane(command, record, *options)
    refused(answer, f"{record} is a record file, not a program: name the script, .cu or .ptx file that it was recorded from", code=2)


def test_script_that_is_no_text(memlane: Command) -> None:
    Path("noise.parquet").write_bytes(bytes(range(256)) * 4)
    answer = memlane("show", "a.cu:3", "noise.parquet")
    refused(answer, "noise.parquet is not a text file; name a Python script, or a .cu or .ptx file", code=2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("k.cpp", "k.cpp is not compiled as CUDA C++, because its name does not end in .cu or .cuh; copy it to k.cu"),
        ("counts.json", "counts.json is not a program; name a Python script, or a .cu or .ptx file"),
        ("notes.TXT", "notes.TXT is not a program; name a Python script, or a .cu or .ptx file"),
    ],
)
def test_a_file_that_no_one_runs_is_not_run_as_python(memlane: Command, name: str, said: str) -> None:
    Path(name).write_text("raise SystemExit(3)\n")
    refused(memlane("explain", name, *ONE_WARP), said, code=2)
    Path("script").write_text("raise SystemExit(3)\n")
    assert memlane("explain", "script").code == 3


def test_ptx_without_line_information_is_its_own_source_text(memlane: Command, written: Write) -> None:
    answer = memlane("trace", written("fill.ptx", FILL), *ONE_WARP, "--arg", "u4[32]", "--arg", "7:u4")
    assert any(line.split(maxsplit=1)[1:] == ["st.global.u32 [%rd2], %r1;"] for line in answer.lines)
    assert load("fill.parquet").sources == {"fill.ptx": FILL}


def test_sites_of_ptx_without_line_information_are_its_own_lines(memlane: Command, written: Write) -> None:
    path = written("fill.ptx", FILL)
    assert memlane("trace", path, *ONE_WARP, "--arg", "u4[32]", "--arg", "7:u4").code == 0
    (row,) = load("fill.parquet").table.to_pylist()
    assert (row["file"], FILL.splitlines()[row["line"] - 1].strip()) == ("fill.ptx", "st.global.u32 [%rd2], %r1;")


def test_trace_without_a_single_access(memlane: Command, written: Write) -> None:
    """All threads are beyond the end: the site is there, and no record of it."""
    text = "__global__ void beyond(int* data, int n) {\n    if (threadIdx.x >= n) data[threadIdx.x] = 1;\n}\n"
    answer = memlane("trace", written("empty.cu", text), *ONE_WARP, "--arg", "i4[32]", "--arg", "32:i4")
    assert (answer.code, answer.err) == (0, "")
    assert "0 records kept, none lost" in answer.out
    assert load("empty.parquet").table.num_rows == 0
    for name in ("csv", "clog2", "perfetto"):
        answer = memlane("export", "empty.parquet", "--to", name)
        assert (answer.code, answer.err) == (0, "")
    assert len(Path("empty.csv").read_text().splitlines()) == 1
    answer = memlane("explain", "empty.parquet")
    refused(answer, "has no accesses, because none of its memory instructions was executed, so there is nothing to explain")


def test_file_that_does_not_exist(memlane: Command) -> None:
    for name in ("nowhere.py", "nowhere.cu", "nowhere.ptx"):
        refused(memlane("trace", name), f"no file {name}", code=2)
    refused(memlane("trace", "."), ". is a directory; name a file", code=2)


def test_cu_file_that_does_not_compile(memlane: Command, written: Write) -> None:
    path = written("wrong.cu", "__global__ void k(float* x) {\n    x[0] = y;\n}\n")
    refused(memlane("trace", path), "wrong.cu does not compile", 'wrong.cu(2): error: identifier "y" is undefined', quoted=True)


def test_header_that_is_not_there(memlane: Command, written: Write) -> None:
    """The folders of other tests are neighbours, and a header of the same name there would be suggested."""
    header = "only_in_the_test_of_missing_headers.h"
    path = written("k.cu", f'#include "{header}"\n__global__ void k(int* p) {{ p[threadIdx.x] = 1; }}\n')
    one = (*ONE_WARP, "--arg", "i4[32]")
    refused(memlane("trace", path, *one), f'k.cu:1: the header "{header}" was not found; name its directory with -I DIR')
    refused(memlane("trace", path, *one, "-I", "inc"), "there is no directory inc to search for headers; correct -I")
    Path("inc").mkdir()
    Path("inc", header).write_text("")
    assert memlane("trace", path, *one, "-I", "inc").code == 0


@pytest.mark.parametrize("command", ["trace", "count"])
def test_what_was_left_out_of_a_program_is_told(memlane: Command, written: Write, command: str) -> None:
    kernel = written("k.cu", "#include <nowhere.h>\ntypedef std::deque<int> D;\n__global__ void k(int* p) { p[threadIdx.x] = 1; }\n")
    notes = [
        "memlane: note: header nowhere.h was not found and was left out",
        "memlane: note: left out because it does not compile for the device: k.cu(2): error: qualified name is not allowed",
    ]
    answer = memlane(command, kernel, *ONE_WARP, "--arg", "i4[32]")
    assert (answer.code, answer.err.splitlines()) == (0, notes)
    script = written(
        "k.py",
        "import memlane as ml\ntarget = ml.target()\nfor _ in range(2):\n    kernel = target.load(ml.cuda('k.cu'))['k']\n"
        "kernel[1, 32](target.zeros(32, 'i4'))\n",
    )
    answer = memlane(command, script, *(["--force"] if command == "trace" else []))
    assert (answer.code, answer.err.splitlines()) == (0, notes)


# -- what cannot be launched -----------------------------------------------------------------------------------------------------


def test_kernel_name_that_does_not_exist(memlane: Command) -> None:
    answer = memlane("trace", TRANSPOSE, "--kernel", "naif", "--grid", 1, "--block", 32)
    refused(answer, "no kernel 'naif'", "it has: naive, tiled, padded", code=2)


@pytest.mark.parametrize("option", ["--grid", "--block"])
def test_launch_without_its_shape(memlane: Command, written: Write, option: str) -> None:
    given = {"--grid": ("--block", 32), "--block": ("--grid", 1)}[option]
    refused(memlane("trace", written("fill.ptx", FILL), *given), f"{option} is missing: write {option} X[,Y[,Z]]", code=2)


def test_wrong_argument_count(memlane: Command, written: Write) -> None:
    answer = memlane("trace", written("fill.ptx", FILL), *ONE_WARP, "--arg", "u4[32]")
    refused(answer, "kernel fill takes 2 arguments (u64, u32), got 1", code=2)


def test_wrong_argument_type(memlane: Command, written: Write) -> None:
    path = written("fill.ptx", FILL)
    refused(
        memlane("trace", path, *ONE_WARP, "--arg", "u4[32]", "--arg", "u4[32]"), "argument 2 of fill is an array", "u32, a number", code=2
    )
    refused(
        memlane("trace", path, *ONE_WARP, "--arg", "u4[32]", "--arg", "1.5:f4"),
        "argument 2 of fill is the float 1.5",
        "pass an integer",
        code=2,
    )


def test_wrong_argument_size(memlane: Command, written: Write) -> None:
    answer = memlane("trace", written("fill.ptx", FILL), *ONE_WARP, "--arg", "u4[32]", "--arg", "7:u8")
    refused(answer, "argument 2 of fill is uint64, 8 bytes, but the parameter is u32, 4 bytes", code=2)


def test_argument_that_says_nothing(memlane: Command, written: Write) -> None:
    path = written("fill.ptx", FILL)
    refused(memlane("trace", path, *ONE_WARP, "--arg", "32"), "--arg 32: write [NAME:]DTYPE[SHAPE]", code=2)
    refused(
        memlane("trace", path, *ONE_WARP, "--arg", "f4[99999999,9999999]"), "bytes does not fit into the memory of this machine", code=2
    )


def test_block_larger_than_the_chip_allows(memlane: Command) -> None:
    answer = memlane("trace", TRANSPOSE, "--kernel", "naive", "--grid", 1, "--block", "64,32", *ARGUMENTS)
    refused(answer, "a block of 64x32x1 has 2,048 threads; h200 allows at most 1024", code=2)
    answer = memlane("trace", TRANSPOSE, "--kernel", "naive", "--grid", 1, "--block", "1,1,128", *ARGUMENTS)
    refused(answer, "block.z is 128; h200 allows at most 64", code=2)


def test_more_shared_memory_than_the_chip_has(memlane: Command) -> None:
    answer = memlane("trace", TRANSPOSE, *NAIVE, *ARGUMENTS, "--shared", 1 << 20)
    refused(answer, "requests 1,048,576 bytes of dynamic shared memory; h200 has 232,448 left", code=2)


# -- what goes wrong while it runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["trace", "count"])
def test_out_of_bounds_access_on_the_emulator(memlane: Command, written: Write, command: str) -> None:
    path = written("wrong.cu", WRONG_KERNELS)
    answer = memlane(command, path, "--kernel", "beyond", "--grid", 2, "--block", 64, "--arg", "f4[128]", "--arg", "32:i4")
    kept = command == "trace"
    refused(answer, "kernel beyond(float*, int), wrong.cu:3: block (1, 0, 0), thread (32, 0, 0) wrote 4 bytes at 0x", kept=kept)
    refused(answer, "just past the end of the 512-byte allocation at 0x7", kept=kept)


@pytest.mark.parametrize("command", ["trace", "count"])
def test_access_far_behind_an_array_is_told_of_that_array(memlane: Command, written: Write, command: str) -> None:
    """And not of the buffer that a trace has behind it."""
    path = written("wrong.cu", WRONG_KERNELS)
    answer = memlane(command, path, "--kernel", "beyond", "--grid", 1, "--block", 32, "--arg", "f4[128]", "--arg", "100_000_000:i4")
    refused(answer, "399,999,488 bytes past the end of the 512-byte allocation at 0x7", kept=command == "trace")


def test_misaligned_access_on_the_emulator(memlane: Command, written: Write) -> None:
    path = written("wrong.cu", WRONG_KERNELS)
    answer = memlane("trace", path, "--kernel", "askew", "--grid", 1, "--block", 32, "--arg", "f4[128]")
    refused(answer, "wrong.cu:6: block (0, 0, 0), thread (1, 0, 0) wrote 4 bytes at 0x", "which is not a multiple of 4", kept=True)
    refused(answer, "1 byte into the 512-byte allocation at 0x7", kept=True)


@pytest.mark.parametrize("command", ["trace", "count"])
def test_barrier_that_not_all_threads_reach(memlane: Command, written: Write, command: str) -> None:
    path = written("wrong.cu", WRONG_KERNELS)
    answer = memlane(command, path, "--kernel", "stuck", "--grid", 1, "--block", 64, "--arg", "i4[64]")
    kept = command == "trace"
    waiting = "32 threads, the first (0, 0, 0), wait at barrier 1 (wrong.cu:12)"
    refused(answer, "kernel stuck(int*): block (0, 0, 0) cannot continue", waiting, kept=kept)
    refused(answer, "32 threads, the first (32, 0, 0), have exited", kept=kept)


def test_records_until_a_trap_are_kept_and_the_file_says_so(memlane: Command, written: Write) -> None:
    text = """\
    __global__ void half(int* data, int n) {
        for (int i = 0; i < n; i++) {
            if (data[i] == 7) asm volatile("trap;");
            data[i] = i + 100;
        }
    }
    """
    values = np.zeros(64, np.int32)
    values[40] = 7
    np.save("values.npy", values)
    answer = memlane("trace", written("half.cu", text), "--grid", 1, "--block", 1, "--arg", "i4[64]=values.npy", "--arg", "64:i4")
    refused(without_notes(answer), "kernel half(int*, int), half.cu:3: block (0, 0, 0), thread (0, 0, 0) executed trap", kept=True)
    trace = load("half.parquet")
    (launch,) = trace.launches
    assert "executed trap" in launch.failed
    operations = [row["op"].partition(".")[0] for row in trace.table.to_pylist()]
    assert (operations.count("ld"), operations.count("st")) == (41, 40)
    refused(memlane("explain", "half.parquet"), "has no transaction counts, because no launch completed: kernel half(int*, int)")
    for name in ("csv", "clog2", "perfetto"):
        assert memlane("export", "half.parquet", "--to", name).code == 0
    assert len(Path("half.csv").read_text().splitlines()) == 1 + 81


@pytest.mark.slow
def test_threads_that_wait_for_ever_leave_their_records(memlane: Command, written: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "__global__ void waits(volatile int* flag) {\n    int seen = flag[1];\n    while (flag[0] == 0) { }\n    flag[2] = seen;\n}\n"
    monkeypatch.setattr("memlane.emulate.emulator.Emulator.__init__.__kwdefaults__", {"patience": 1, "threads": None})
    answer = memlane("trace", written("waits.cu", text), "--grid", 1, "--block", 1, "--arg", "i4[3]")
    refused(without_notes(answer), "kernel waits(int volatile*)", kept=True)
    trace = load("waits.parquet")
    assert trace.launches[0].failed
    assert trace.table.num_rows > 100
    assert trace.table["line"].to_pylist()[:3] == [2, 3, 3]


# -- scripts ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["trace", "count"])
def test_script_that_launches_nothing(memlane: Command, written: Write, command: str) -> None:
    answer = memlane(command, written("idle.py", "print('working')\n"))
    refused(answer, f"idle.py launched no kernel through memlane, so there is nothing to {command}")
    assert answer.out == "working\n"
    assert not Path("idle.parquet").exists()


@pytest.mark.parametrize("command", ["trace", "count"])
def test_launch_number_that_does_not_exist(memlane: Command, command: str) -> None:
    answer = memlane(command, EXAMPLES / "matmul.py", "--launch", 7, "--", 16)
    refused(answer, "made one launch, number 0; there is no launch 7")


def test_launch_that_cannot_be_is_told_with_the_line_of_the_script(memlane: Command, written: Write) -> None:
    written("fill.ptx", FILL)
    lines = (
        "import pathlib, memlane as ml",
        "fill = ml.target().load(ml.parse(pathlib.Path('fill.ptx').read_text()))['fill']",
        "fill[1, 32](5)",
    )
    answer = memlane("trace", written("wrong.py", "\n".join(lines)))
    refused(answer, "memlane: kernel fill takes 2 arguments (u64, u32), got 1\n  reached from wrong.py:3: fill[1, 32](5)\n", quoted=True)


def test_script_that_fails(memlane: Command, written: Write) -> None:
    answer = memlane("trace", written("failing.py", "def f():\n    assert 1 > 2, 'no'\n\nf()\n"))
    assert answer.code == 1
    file = Path("failing.py").absolute()
    assert answer.err.startswith(f'memlane: failing.py failed\nTraceback (most recent call last):\n  File "{file}", line 4')
    assert answer.err.endswith("AssertionError: no\n")
    assert "runpy" not in answer.err


def test_script_that_stops(memlane: Command, written: Write) -> None:
    refused(memlane("trace", written("stopping.py", "raise SystemExit(3)\n")), "stopping.py stopped with exit code 3", code=3)
    refused(memlane("trace", written("stopping.py", "raise SystemExit('no data')\n")), "stopping.py stopped: no data")


@pytest.mark.parametrize("command", ["trace", "count", "check"])
def test_script_that_is_interrupted(memlane: Command, written: Write, command: str) -> None:
    answer = memlane(command, written("waiting.py", "raise KeyboardInterrupt\n"))
    assert (answer.code, answer.out, answer.err) == (130, "", "memlane: interrupted\n")
    assert not Path("waiting.parquet").exists()


def test_signal_that_interrupts_a_script_that_sleeps(memlane: Command, written: Write) -> None:
    script = written("sleeping.py", "import time\nprint('asleep', flush=True)\ntime.sleep(600)\n")
    command = [
        sys.executable,
        "-c",
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + RUN_MAIN,
        "trace",
        script,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asleep\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, "memlane: interrupted\n")


def test_options_that_a_script_or_a_kernel_has_no_use_for(memlane: Command, written: Write) -> None:
    script = written("idle.py", "")
    refused(memlane("trace", script, "--grid", 4), "--grid is for .cu and .ptx files; idle.py is a Python script", code=2)
    refused(memlane("count", script, "--arg", "1:i4"), "--arg is for .cu and .ptx files", code=2)
    refused(memlane("trace", script, "-DN=4"), "--define is for .cu and .ptx files", code=2)
    refused(memlane("trace", TRANSPOSE, *NAIVE, "--", "64"), "give the arguments of its kernel with --arg, not '64'", code=2)


# -- options ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [
        ("--scheme", "slow", "unknown scheme 'slow'; choose from dependent, exposed, consume, simple, paper"),
        (
            "--space",
            "far",
            "unknown space of accesses: 'far'; choose from global, shared, shared::cluster, local, const, tex, surf, generic",
        ),
        ("--kind", "peek", "unknown kind of accesses: 'peek'; choose from load, store, atomic, reduction"),
        ("--target", "gpu", "no target 'gpu'; this machine has emulator:a100, emulator:b200, emulator:gtx480, "),
        ("--target", "emulator:z80", "no chip 'z80' to emulate"),
        ("--arch", "sm_1", "sm_1"),
        ("--std", "c++3", "invalid value for --std"),
    ],
)
def test_unknown_value_names_the_choices(memlane: Command, option: str, value: str, choices: str) -> None:
    answer = memlane("trace", CUDA, *NAIVE, *ARGUMENTS, option, value)
    compiled = option in ("--arch", "--std")
    refused(answer, choices, quoted=compiled, code=1 if compiled else 2)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("--line", 999, "--line", 3), "--line 3 or --line 999"),
        (("--space", "shared"), "--space shared"),
        (("--line", 17, "--kind", "atomic"), "--line 17 and --kind atomic"),
    ],
)
def test_selection_that_matches_nothing_names_what_there_is(memlane: Command, options: tuple[object, ...], asked: str) -> None:
    answer = memlane("trace", CUDA, *NAIVE, *ARGUMENTS, *options)
    refused(answer, f"no access of naive is {asked}; its accesses are: transpose.cu:{NAIVE_LINE} (global load, global store)\n")
    assert not Path("transpose.parquet").exists()


def test_selection_may_match_in_one_of_several_kernels(memlane: Command) -> None:
    assert memlane("trace", EXAMPLES / "transpose.py", "--space", "shared").code == 0
    refused(memlane("trace", EXAMPLES / "transpose.py", "-f", "--space", "shared", "--launch", 0), "no access of naive is --space shared")


def test_unknown_format_names_those_that_exist(memlane: Command, record: Path) -> None:
    refused(memlane("export", record, "--to", "xml"), "unknown export format 'xml'; choose from: clog2, csv, otf2, perfetto", code=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trace",), "missing argument 'INPUT'; memlane trace --help lists the options"),
        (("paint",), "no such command 'paint'"),
        (("lab", "paint"), "no such command 'paint'; memlane lab --help lists the commands"),
        (("trace", "x.py", "--launch", "first"), "invalid value for '--launch': "),
        (("trace", "x.py", "--launch", "-1"), "invalid value for '--launch': "),
        (("export", "x.parquet"), "missing option '--to'; memlane export --help lists the options"),
        (("count", "x.py", "--colour"), "no such option: --colour"),
        (("layout", "search", "--columns"), "option '--columns' requires an argument; memlane layout search --help lists the options"),
    ],
)
def test_a_wrong_command_line_is_one_line(memlane: Command, words: tuple[str, ...], said: str) -> None:
    refused(memlane(*words), said, code=2)


def test_patience_is_an_option_and_an_endless_loop_names_its_line(memlane: Command, record: str) -> None:
    Path("spin.ptx").write_text(FILL.replace("    ret;", "AGAIN:\n    bra AGAIN;"))
    answer = memlane("count", "spin.ptx", "--grid", 1, "--block", 32, "--arg", "u4[32]", "--arg", "1:u4", "--patience", 2)
    line = 1 + Path("spin.ptx").read_text().splitlines().index("    bra AGAIN;")
    refused(answer, f"kernel fill, spin.ptx:{line}", "looping here for 2 iterations", "wait longer with --patience 20")
    refused(memlane("explain", record, "--patience", 2), f"--patience is for programs; {record} is a record file", code=2)


def test_without_a_command_there_is_the_help(memlane: Command) -> None:
    for words in ((), ("lab",), ("layout",)):
        answer = memlane(*words)
        assert answer.code == 2
        assert (answer.err + answer.out).startswith(" ".join(["Usage: memlane", *words]))


def test_no_gpu_where_one_was_asked_for(memlane: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "memlane.driver.device.probe", lambda: Probe(True, library=False, problem="there is no CUDA driver on this machine")
    )
    for number in ("cuda", "cuda:1"):
        answer = memlane("trace", EXAMPLES / "matmul.py", "--target", number)
        refused(answer, f"no {number if ':' in number else 'cuda:0'}: there is no CUDA driver on this machine; ml.target('emulator')")


# -- files -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["explain", "export"])
def test_truncated_record_file(memlane: Command, record: Path, command: str) -> None:
    whole = record.read_bytes()
    record.write_bytes(whole[: len(whole) // 2])
    refused(memlane(command, record, *(("--to", "csv") if command == "export" else ())), "is truncated", "record it again")
    assert not Path("made.csv").exists()


@pytest.mark.parametrize("command", ["explain", "export"])
def test_foreign_record_file(memlane: Command, command: str) -> None:
    options = ("--to", "csv") if command == "export" else ()
    Path("notes.parquet").write_text("no Parquet at all, but long enough to be")
    refused(memlane(command, "notes.parquet", *options), "notes.parquet is not a Parquet file, so it is not a memlane record")
    pq.write_table(pa.table({"x": [1]}), "other.parquet")
    refused(memlane(command, "other.parquet", *options), "other.parquet is a Parquet file, but not a memlane record")
    refused(memlane(command, "missing.parquet", *options), "missing.parquet: there is no such file", code=2)


@pytest.mark.parametrize("command", ["explain", "export"])
def test_record_file_of_another_version(memlane: Command, record: Path, command: str) -> None:
    parquet = pq.read_table(record)
    pq.write_table(parquet.replace_schema_metadata({**(parquet.schema.metadata or {}), b"memlane_format": b"7"}), record)
    options = ("--to", "csv") if command == "export" else ()
    refused(
        memlane(command, record, *options), "made.parquet has record format 7, but this memlane reads only up to 3; install a newer memlane"
    )


def test_output_file_that_exists(memlane: Command, record: Path) -> None:
    before = record.read_bytes()
    refused(memlane("trace", TRANSPOSE, *NAIVE, *ARGUMENTS, "-o", record), "exists; pass --force", code=2)
    Path("made.csv").write_text("mine")
    refused(memlane("export", record, "--to", "csv"), "made.csv exists; pass --force", code=2)
    assert record.read_bytes() == before
    assert Path("made.csv").read_text() == "mine"


def test_output_that_is_the_input(memlane: Command, record: Path, written: Write) -> None:
    before = record.read_bytes()
    for output in (record, record.absolute()):
        refused(memlane("export", record, "--to", "csv", "-o", output, "-f"), f"{output} is the input; name another file", code=2)
    Path("link").symlink_to(record)
    refused(memlane("export", record, "--to", "csv", "-o", "link", "--force"), "link is the input", code=2)
    assert record.read_bytes() == before
    kernel = written("fill.ptx", FILL)
    answer = memlane("trace", kernel, *ONE_WARP, "--arg", "u4[32]", "--arg", "7:u4", "-o", kernel, "--force")
    refused(answer, "fill.ptx is the input; name another file with --output", code=2)
    assert kernel.read_text() == FILL


def test_input_that_is_missing_is_told_before_an_output_that_exists(memlane: Command) -> None:
    Path("nowhere.parquet").write_text("old")
    Path("gone.csv").write_text("old")
    refused(memlane("trace", "nowhere.ptx"), "no file nowhere.ptx", code=2)
    refused(memlane("export", "gone.parquet", "--to", "csv"), "gone.parquet: there is no such file", code=2)


def test_output_file_that_exists_is_found_before_anything_runs(memlane: Command, written: Write) -> None:
    written("slow.parquet", "old")
    answer = memlane("trace", written("slow.py", "print('ran')\n"))
    refused(answer, "slow.parquet exists; pass --force", code=2)
    assert answer.out == ""


def test_output_directory_that_does_not_exist(memlane: Command) -> None:
    answer = memlane("trace", TRANSPOSE, *NAIVE, *ARGUMENTS, "-o", "nowhere/out.parquet")
    refused(answer, "nowhere/out.parquet cannot be written: there is no directory nowhere", code=2)


@pytest.mark.parametrize("command", ["trace", "export"])
def test_no_space_left_keeps_the_old_file(memlane: Command, record: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up when the data is to be made durable, as it does where space is given out late."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("memlane.record.output.os.fsync", full)
    old = Path("old.out")
    old.write_text("old")
    words = ("trace", TRANSPOSE, *NAIVE, *ARGUMENTS) if command == "trace" else ("export", record, "--to", "csv")
    refused(
        memlane(*words, "-o", old, "--force"), "old.out cannot be written: No space left on device; the file that was there is unchanged"
    )
    assert old.read_text() == "old"
    assert sorted(path.name for path in Path().iterdir()) == ["made.parquet", "old.out"]


# -- several launches at once ----------------------------------------------------------------------------------------------------


def test_two_streams_and_a_replayed_graph_tracing_at_once(memlane: Command, written: Write) -> None:
    """The launches keep apart: each has its own grid, stream and number of accesses, and a graph that runs twice counts twice."""
    path = written("mixed.py", TWO_STREAMS_AND_A_GRAPH)
    answer = memlane("trace", path)
    assert answer.code == 0, answer.err
    trace = load("mixed.parquet")
    rows = np.bincount(trace.table["launch"].to_numpy(), minlength=len(trace.launches))
    launches = [
        (one.kernel.partition("(")[0], one.grid[0], one.stream, int(count)) for one, count in zip(trace.launches, rows, strict=True)
    ]
    first, second = trace.launches[0].stream, trace.launches[1].stream
    assert len({0, first, second}) == 3
    warps = 32
    assert launches == [
        ("naive", 1, first, 1 * warps * 2),
        ("padded", 2, second, 2 * 2 * warps * 4),
        ("naive", 2, first, 2 * 2 * warps * 2),
        *[("tiled", 1, 0, 1 * warps * 4), ("naive", 1, 0, 1 * warps * 2)] * 2,
        ("padded", 1, second, 1 * warps * 4),
    ]
    assert sum(one.lost for one in trace.launches) == 0


def test_two_formats_at_once(memlane: Command, written: Write) -> None:
    refused(
        memlane("count", written("mixed.py", TWO_STREAMS_AND_A_GRAPH), "--json", "--csv"),
        "--json and --csv cannot be combined; pass one of them",
        code=2,
    )


def test_counting_two_streams_and_a_replayed_graph(memlane: Command, written: Write) -> None:
    answer = memlane("count", written("mixed.py", TWO_STREAMS_AND_A_GRAPH), "--json")
    assert answer.code == 0, answer.err
    counted = json.loads(answer.out)
    assert [one["grid"][0] for one in counted["launches"]] == [1, 2, 2, 1, 1, 1, 1, 1]
