"""`memlane trace` and `memlane count` on scripts, .cu files and .ptx files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memlane.chip import load as load_chip
from memlane.cli import main
from memlane.cli.programs import arch_of
from memlane.emulate import Emulator
from memlane.record import load
from tests.cli.conftest import EXAMPLES, Command

CUDA, PTX = EXAMPLES / "transpose.cu", EXAMPLES / "ptx" / "transpose.ptx"
NAIVE = ("--kernel", "naive", "--grid", "2,2", "--block", "32,32")
TILED = ("--kernel", "tiled", "--grid", "2,2", "--block", "32,32")
ARGUMENTS = ("--arg", "out:f4[64,64]", "--arg", "in:f4[64,64]=random:7", "--arg", "64:i4")
TEMPLATE = """\
#ifndef STEP
#error no step
#endif
#include "scale.h"
template <int N> __global__ void scaled(float* x) {
    x[threadIdx.x * STEP] = SCALE(x[threadIdx.x * STEP]) * N;
}
"""
THREE_LAUNCHES = """\
import sys
import memlane as ml

target = ml.target()
fill = target.load(ml.parse('''.version 8.0
.target sm_90
.address_size 64
.visible .entry fill(.param .u64 out)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
'''))["fill"]
out = target.zeros(64, "u4")
for threads in (32, 64, 33):
    fill[1, threads](out)
print(sys.argv, out.numpy()[:3])
"""


def lines_of(path: str) -> set[int]:
    return set(load(path).table["line"].to_pylist())


# -- .cu and .ptx files ----------------------------------------------------------------------------------------------------------


def test_cu_file_is_traced_and_the_last_lines_say_where_and_what_next(memlane: Command) -> None:
    answer = memlane("trace", CUDA, *NAIVE, *ARGUMENTS)
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[0] == "naive(float*, float const*, int)"
    assert answer.lines[-2:] == ["Wrote transpose.parquet", "Next: memlane explain transpose.parquet"]
    trace = load("transpose.parquet")
    assert [launch.arguments for launch in trace.launches] == [("f4[64, 64]", "f4[64, 64]", "64")]
    assert trace.table.num_rows == 4 * 32 * 2
    assert lines_of("transpose.parquet") == {18}


def test_table_says_what_each_line_costs(memlane: Command) -> None:
    answer = memlane("trace", CUDA, *TILED, *ARGUMENTS)
    rows = [line.split() for line in answer.lines if line.startswith(("  ld.", "  st."))]
    source = [line.strip() for line in answer.lines if line.startswith(("  27 ", "  33 "))]
    assert source == ["27  tile[threadIdx.y][threadIdx.x] = in[y * n + x];", "33  out[y * n + x] = tile[threadIdx.x][threadIdx.y];"]
    # Operation, accesses, sectors or wavefronts a request with the ideal, and when the end was read.
    assert [(row[0], row[1], " ".join(cell for cell in row[2:5] if cell != "-")) for row in rows] == [
        ("ld.global.f32", "128", "4 (4)"),
        ("st.shared.f32", "128", "1 (1)"),
        ("ld.shared.f32", "128", "32 (1)"),
        ("st.global.f32", "128", "4 (4)"),
    ]
    assert [row[8] for row in rows] == ["complete", "issued", "complete", "issued"]
    assert any(line.startswith("Target emulator:h200; 512 records kept, none lost.") for line in answer.lines)
    assert "modelled for h200 (no GPU was measured)" in " ".join(answer.lines)


def test_ptx_file_is_traced_by_plain_kernel_names(memlane: Command) -> None:
    answer = memlane("trace", PTX, *NAIVE, *ARGUMENTS)
    assert answer.code == 0, answer.err
    assert load("transpose.parquet").launches[0].kernel == "naive(float*, float const*, int)"


def test_only_kernel_needs_no_name(memlane: Command) -> None:
    words = (
        "--grid",
        1,
        "--block",
        "16,16",
        "--arg",
        "c:f4[16,16]",
        "--arg",
        "f4[16,16]=arange",
        "--arg",
        "f4[16,16]=arange",
        "--arg",
        "16:i4",
    )
    answer = memlane("trace", EXAMPLES / "matmul.cu", *words)
    assert answer.code == 0, answer.err


def test_several_kernels_without_a_choice_are_listed(memlane: Command) -> None:
    answer = memlane("trace", CUDA)
    assert answer.code == 2
    for name in ("several kernels: naive, tiled, padded; ", "choose one with --kernel"):
        assert name in answer.err


def test_compiler_options_reach_the_compiler(memlane: Command) -> None:
    Path("include").mkdir()
    Path("include/scale.h").write_text("#define SCALE(x) ((x) * 3)\n")
    Path("scaled.cu").write_text(TEMPLATE)
    np.save("in.npy", np.arange(64, dtype=np.float32))
    words = ("scaled.cu", "--grid", 1, "--block", 32, "--arg", "x:f4[64]=in.npy", "-I", "include", "--instantiate", "scaled<5>")
    answer = memlane("count", *words, "--define", "STEP=2", "--std", "c++20", "--arch", "sm_80", "--json")
    assert answer.code == 0, answer.err
    (counts,) = json.loads(answer.out)["launches"]
    assert counts["kernel"] == "void scaled<5>(float*)"
    assert [(site["op"], site["counts"]["sectors"]) for site in counts["sites"]] == [("ld.global.f32", 8), ("st.global.f32", 8)]
    assert "no step" in memlane("count", *words).err


@pytest.mark.parametrize(("chip", "arch"), [("v100", "sm_75"), ("a100", "sm_80"), ("h200", "sm_90")])
def test_code_for_a_chip_that_the_compiler_no_longer_knows(chip: str, arch: str) -> None:
    assert arch_of(Emulator(load_chip(chip))) == arch


def test_old_chips_are_emulated_from_source(memlane: Command) -> None:
    answer = memlane("trace", CUDA, *NAIVE, *ARGUMENTS, "--target", "emulator:v100")
    assert answer.code == 0, answer.err
    assert load("transpose.parquet").target == "emulator:v100"


# -- scripts ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def script(memlane: Command) -> Path:
    path = Path("three.py")
    path.write_text(THREE_LAUNCHES)
    return path


def test_script_sees_its_arguments_and_all_its_launches_are_traced(memlane: Command, script: Path) -> None:
    answer = memlane("trace", script, "--", "--fast", "7")
    assert answer.lines[0] == "['three.py', '--fast', '7'] [0 1 2]"
    assert answer.lines[-2:] == ["Wrote three.parquet", "Next: memlane explain three.parquet"]
    trace = load("three.parquet")
    assert [launch.block[0] for launch in trace.launches] == [32, 64, 33]
    assert trace.table["launch"].to_pylist() == [0, 1, 1, 2, 2]
    assert trace.table["active_mask"].to_pylist() == [0xFFFFFFFF] * 4 + [1]


@pytest.mark.parametrize("command", ["trace", "count"])
def test_one_launch_of_a_script(memlane: Command, script: Path, command: str) -> None:
    answer = memlane(command, script, "--launch", 1, *(["--json"] if command == "count" else []))
    assert answer.code == 0, answer.err
    if command == "trace":
        (launch,) = load("three.parquet").launches
        assert launch.block == (64, 1, 1)
    else:
        (counted,) = json.loads(answer.out)["launches"]
        assert counted["sites"][0]["counts"]["requests"] == 2


def test_target_option_overrides_what_a_script_asks_for(memlane: Command, script: Path) -> None:
    script.write_text(THREE_LAUNCHES.replace("ml.target()", "ml.target('emulator:h200')"))
    assert memlane("trace", script, "--target", "emulator:a100").code == 0
    assert load("three.parquet").target == "emulator:a100"


def test_launches_of_threads_are_traced_on_the_target_asked_for(memlane: Command, script: Path) -> None:
    indented = "".join(f"    {line}\n" for line in THREE_LAUNCHES.splitlines())
    script.write_text(f"import threading\n\ndef work():\n{indented}\nthreading.Thread(target=work).start()\n")
    answer = memlane("trace", script, "--target", "emulator:a100")
    assert answer.code == 0, answer.err
    trace = load("three.parquet")
    assert (trace.target, len(trace.launches)) == ("emulator:a100", 3)


def test_result_stays_where_the_command_was_given(memlane: Command, script: Path) -> None:
    script.write_text(f"import os\nos.mkdir('below')\nos.chdir('below')\n{THREE_LAUNCHES}")
    here = Path.cwd()
    assert memlane("trace", script).lines[-2] == "Wrote three.parquet"
    assert (here / "three.parquet").is_file()


def test_result_is_replaced_only_with_force(memlane: Command, script: Path) -> None:
    assert memlane("trace", script, "-o", "out.parquet").lines[-2] == "Wrote out.parquet"
    first = Path("out.parquet").read_bytes()
    assert memlane("trace", script, "-o", "out.parquet", "--launch", 0).code == 2
    assert Path("out.parquet").read_bytes() == first
    assert memlane("trace", script, "-o", "out.parquet", "--launch", 0, "--force").code == 0
    assert load("out.parquet").table.num_rows == 1


# -- what is traced --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["dependent", "exposed", "consume", "simple", "paper"])
def test_scheme_is_what_the_record_says(memlane: Command, scheme: str) -> None:
    answer = memlane("trace", PTX, *NAIVE, *ARGUMENTS, "--scheme", scheme)
    assert answer.code == 0, answer.err
    trace = load("transpose.parquet")
    assert trace.launches[0].scheme == scheme
    stores = "dependent" if scheme == "exposed" else scheme  # A store has no consumer.
    assert {(site.kind, site.scheme) for site in trace.sites} == {("load", scheme), ("store", stores)}
    exposed = [row["exposed"] for row in trace.table.to_pylist() if row["op"].startswith("ld")]
    assert all((one is not None) == (scheme == "exposed") for one in exposed)
    assert trace.table["exposed"].null_count >= trace.table.num_rows - len(exposed), "none of the stores"
    assert f"probe scheme {scheme}" in " ".join(answer.lines)


@pytest.mark.parametrize(
    ("options", "operations"),
    [
        (("--space", "shared"), {"ld.shared.f32", "st.shared.f32"}),
        (("--kind", "load"), {"ld.global.f32", "ld.shared.f32"}),
        (("--kind", "load", "--space", "shared"), {"ld.shared.f32"}),
        (("--space", "shared", "--space", "global"), {"ld.global.f32", "st.global.f32", "ld.shared.f32", "st.shared.f32"}),
        (("--line", 27), {"ld.global.f32", "st.shared.f32"}),
        (("--line", 27, "--line", 33, "--kind", "store"), {"st.shared.f32", "st.global.f32"}),
    ],
)
def test_only_chosen_accesses_are_traced(memlane: Command, options: tuple[object, ...], operations: set[str]) -> None:
    assert memlane("trace", PTX, *TILED, *ARGUMENTS, *options).code == 0
    rows = load("transpose.parquet").table["op"].value_counts().to_pylist()
    assert {row["values"]: row["counts"] for row in rows} == dict.fromkeys(operations, 4 * 32)


def test_sources_travel_with_the_record(memlane: Command) -> None:
    memlane("trace", CUDA, *NAIVE, *ARGUMENTS)
    (text,) = load("transpose.parquet").sources.values()
    assert text == CUDA.read_text()


# -- count -----------------------------------------------------------------------------------------------------------------------


def test_counts_as_a_table(memlane: Command, golden: Callable[[str, str], None]) -> None:
    answer = memlane("count", CUDA, *TILED, *ARGUMENTS)
    assert answer.code == 0, answer.err
    golden("count.txt", "".join(f"{line.rstrip()}\n" for line in answer.lines))


def test_counts_as_json_are_those_of_the_trace(memlane: Command) -> None:
    answer = memlane("count", PTX, *TILED, *ARGUMENTS, "--json")
    memlane("trace", PTX, *TILED, *ARGUMENTS)
    (counted,) = json.loads(answer.out)["launches"]
    of_trace = load("transpose.parquet").launches[0].counts
    for name in ("requests", "lanes", "bytes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts"):
        assert [site["counts"][name] for site in counted["sites"]] == [getattr(site, name) for site in of_trace], name
    assert not list(Path().glob("*.json"))


def test_what_was_traced_before_a_script_fails_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, example = tmp_path / "fails.py", EXAMPLES / "copies.py"
    script.write_text(example.read_text().replace("__file__", repr(str(example))) + "\nraise KeyError('late')\n")
    monkeypatch.chdir(tmp_path)
    assert main(["trace", str(script), "--target", "emulator:h200", "--", "1024"]) == 1
    streams = capsys.readouterr()
    assert "Wrote fails.parquet" in streams.out
    assert "KeyError: 'late'" in streams.err
    assert len(load("fails.parquet").launches) == 4


@pytest.mark.parametrize("command", ["trace", "count", "check"])
def test_a_deterministic_run_is_on_emulators_of_one_core(memlane: Command, script: Path, command: str) -> None:
    script.write_text(THREE_LAUNCHES + "print('threads', target.threads)\n")
    assert "threads None" in memlane(command, script).lines
    Path("three.parquet").unlink(missing_ok=True)
    assert "threads 1" in memlane(command, script, "--deterministic").lines
