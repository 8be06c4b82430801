"""`memlane explain` and `memlane report` of programs, and what a person sees first."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from memlane.cli.failure import unseen_launches
from tests.cli.conftest import EXAMPLES, Command

NAIVE = (EXAMPLES / "ptx" / "transpose.ptx", "--kernel", "naive", "--grid", "2,2", "--block", "32,32")
ARGUMENTS = ("--arg", "f4[64,64]", "--arg", "f4[64,64]=random:7", "--arg", "64:i4")
SCRIPT = EXAMPLES / "transpose.py"


def test_a_script_is_traced_counted_and_explained_in_one_go(memlane: Command, tmp_path) -> None:
    assert memlane("trace", SCRIPT, "-o", "t.parquet", "--", "64").code == 0
    of_file = json.loads(memlane("explain", "t.parquet", "--json").out)
    of_program = json.loads(memlane("explain", SCRIPT, "--json", "--", "64").out)
    keys = ("rule", "kernel", "line", "transactions", "ideal_transactions", "remedy")
    # In another order: what launches would take without each is predicted while the program runs, and a file does not have it.
    assert sorted([one[key] for key in keys] for one in of_program["findings"]) == sorted(
        [one[key] for key in keys] for one in of_file["findings"]
    )
    assert of_program["clean_kernels"] == of_file["clean_kernels"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]  # nothing was written beside it


def test_a_ptx_file_with_its_launch(memlane: Command) -> None:
    answer = memlane("explain", *NAIVE, *ARGUMENTS)
    assert (answer.code, answer.err) == (0, "")
    assert re.fullmatch(r"1\. uncoalesced global access, naive: \d+ % of the kernel's predicted time", answer.lines[0])
    assert answer.lines[1].strip() == "transpose.cu:18 (argument 1)"
    assert answer.lines[-1].startswith("Next: memlane report ")
    words = shlex.split(answer.lines[-1])[3:]
    page = memlane("report", *words, "-o", "page.html")
    assert page.code == 0
    assert page.out.startswith("Wrote page.html (")


def test_the_next_command_compiles_as_this_one_did(memlane: Command) -> None:
    Path("parts").mkdir()
    Path("parts/size.h").write_text("#define ROW 64\n")
    Path("k.cu").write_text('#include "size.h"\ntemplate <int N> __global__ void k(float* p) { p[threadIdx.x * STEP * N] = ROW; }\n')
    compiled = ("-I", "parts", "-D", "STEP=8", "--instantiate", "k<2>", "--std", "c++20")
    answer = memlane("explain", "k.cu", "-k", "k<2>", "--grid", "1", "--block", "32", "--arg", "f4[1024]", *compiled)
    assert answer.code == 0
    words = shlex.split(answer.lines[-1])
    assert words[:3] == ["Next:", "memlane", "report"]
    assert memlane("report", *words[3:], "-o", "page.html").code == 0


def test_a_finding_takes_five_lines_of_100_columns_or_fewer(memlane: Command, record: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    first, second, *_ = memlane("explain", record).out.split("\n\n")
    lengths = sorted(len(one.splitlines()) for one in (first, second))
    assert lengths[0] <= 5
    assert lengths[1] <= 6
    for one in (first, second):
        assert "Cause: " in one
        assert "Fix: " in one


def test_top_brief_and_kernel_choose_what_is_shown(memlane: Command, record: str) -> None:
    one = memlane("explain", record, "--top", "1").out
    assert "1. shared-memory bank conflict" in one
    assert "2. uncoalesced" not in one
    assert "1 of 2 findings; --top 2 shows all, --why how each cost was found." in one
    brief = memlane("explain", record, "--brief").lines
    assert brief[0].startswith("1. transpose.cu:33 (tile)  shared-memory bank conflict, tiled: ")
    assert brief[1].startswith("2. transpose.cu:18 (out)  uncoalesced global access, naive: ")
    of_naive = memlane("explain", record, "--kernel", "naive").out
    assert "tiled" not in of_naive
    assert "uncoalesced global access, naive" in of_naive
    other = memlane("explain", record, "--kernel", "other")
    assert (other.code, other.err) == (2, "memlane: --kernel other: no such kernel was launched; launched kernels: naive, tiled, padded\n")


def test_options_that_do_not_fit_the_input(memlane: Command, record: str) -> None:
    refused = memlane("explain", record, "--grid", "2")
    assert (refused.code, refused.err) == (
        2,
        "memlane: --grid is for programs; transpose.parquet is a record file of a program that has already run\n",
    )
    assert "--target is for programs" in memlane("report", record, "--target", "emulator").err
    assert "no file nothing.py" in memlane("explain", "nothing.py").err
    assert "--grid is for .cu and .ptx files" in memlane("explain", SCRIPT, "--grid", "2").err


def test_a_program_that_breaks_off_is_explained_as_far_as_it_came(memlane: Command, tmp_path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(
        f"import sys, runpy\nsys.argv[1:] = ['64']\nrunpy.run_path({str(SCRIPT)!r}, run_name='__main__')\nraise SystemExit(3)\n"
    )
    answer = memlane("explain", script)
    assert answer.code == 3
    assert "uncoalesced global access, naive" in answer.out
    assert "The program failed: " in answer.out
    assert "stopped with exit code 3" in answer.err


def test_a_program_without_launches(memlane: Command, tmp_path) -> None:
    script = tmp_path / "idle.py"
    script.write_text("print('idle')\n")
    answer = memlane("explain", script)
    assert answer.code == 1
    assert "launched no kernel through memlane, so there is nothing to explain" in answer.err


def test_a_program_whose_only_launch_broke_off_says_so_first(memlane: Command, tmp_path) -> None:
    source = tmp_path / "blur.cu"
    source.write_text("__global__ void blur(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x - 1]; }\n")
    answer = memlane("explain", source, "--grid", 1, "--block", 32, "--arg", "f4[32]", "--arg", "f4[32]=random:1")
    assert answer.code == 1
    first, then = answer.err.splitlines()
    assert first.startswith("memlane: kernel blur(float*, float const*), ")
    assert "read 4 bytes" in first
    assert then.startswith("  nothing could be explained, because no launch completed; to list every faulty access: memlane check ")
    assert memlane("check", source, "--grid", 1, "--block", 32, "--arg", "f4[32]", "--arg", "f4[32]=random:1").code == 1


@pytest.mark.parametrize(
    ("module", "name", "instead"), [("numba.cuda.dispatcher", "Numba", "ml.numba("), ("triton.runtime.jit", "Triton", "ml.triton(")]
)
def test_a_launch_that_another_package_makes_is_told_apart(memlane: Command, tmp_path, module: str, name: str, instead: str) -> None:
    """An error out of that package's launcher, as both raise it on a machine without a GPU."""
    script = tmp_path / "own.py"
    script.write_text(f"exec(compile('raise RuntimeError(\"no driver\")', 'x', 'exec'), {{'__name__': {module!r}}})\n")
    answer = memlane("explain", script)
    assert answer.code == 1
    last = answer.err.splitlines()[-1]
    assert last.startswith(
        f"memlane: this launch was made by {name}, so memlane cannot observe it. Load the kernel with target.load({instead}"
    )


def test_an_error_in_a_compiler_that_memlane_calls_is_not_taken_for_a_launch(memlane: Command, tmp_path) -> None:
    """Triton raises an OSError where its cache cannot be written."""
    script = tmp_path / "own.py"
    inner = "exec(compile('raise OSError(\"no folder\")', 'x', 'exec'), {'__name__': 'triton.runtime.cache'})"
    script.write_text(f"exec(compile({inner!r}, 'y', 'exec'), {{'__name__': 'memlane.compile.triton_frontend'}})\n")
    answer = memlane("explain", script)
    assert answer.code == 1
    assert answer.err.splitlines()[-1] == "OSError: no folder"


def test_a_kernel_without_findings_is_to_be_checked_next(memlane: Command) -> None:
    """No finding does not mean that the results are right."""
    source = Path("nobar.cu")
    source.write_text(
        "__global__ void reversed(float *out, const float *in) {\n    __shared__ float t[256];\n    t[threadIdx.x] = in[threadIdx.x];\n"
        "    out[threadIdx.x] = t[255 - threadIdx.x];\n}\n"
    )
    answer = memlane("explain", source, "--grid", 1, "--block", 256, "--arg", "f4[256]", "--arg", "f4[256]")
    assert answer.code == 0
    purpose, _, command = answer.lines[-1].partition(": memlane ")
    assert purpose == "Next, to look for races, accesses out of bounds and misused barriers"
    checked = memlane(*shlex.split(command))
    assert checked.code == 1
    assert "1. data race, reversed" in checked.out


def test_a_script_that_uses_another_launcher_only_is_told_what_to_do() -> None:
    assert unseen_launches(["numpy", "numba"]) == (
        "; launches that Numba makes are not observed: load the kernel with target.load(ml.numba(function, types)) and launch that"
    )
    assert unseen_launches(["numpy"]) == ""
