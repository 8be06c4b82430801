"""`memlane check`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import EXAMPLES, Command

SOURCE = """
__global__ void k(int* out, const int* in, int n) {
    __shared__ int values[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) values[threadIdx.x] = in[i];
    if (i < n) out[i] = values[threadIdx.x ^ 32];
}
"""
ARGUMENTS = ("--grid", "2", "--block", "64", "--arg", "i4[128]", "--arg", "i4[128]=arange", "--arg", "128:i4")


@pytest.fixture
def racy(tmp_path: Path) -> Path:
    path = tmp_path / "racy.cu"
    path.write_text(SOURCE)
    return path


def test_a_script_that_is_right(memlane: Command) -> None:
    answer = memlane("check", EXAMPLES / "reduction.py", "--", "4096")
    assert answer.code == 0
    assert " ".join(answer.lines[-2:]).endswith("block_sum<float>, interleaved<float>: nothing found.")


def test_a_kernel_with_a_race_shows_both_lines_and_ends_with_1(memlane: Command, racy: Path) -> None:
    answer = memlane("check", racy, *ARGUMENTS)
    assert answer.code == 1
    assert "data race, k" in answer.out
    assert "5  if (i < n) values[threadIdx.x] = in[i];" in answer.out
    assert "6  if (i < n) out[i] = values[threadIdx.x ^ 32];" in answer.out
    assert "Put __syncthreads() between the two" in " ".join(answer.out.split())
    assert answer.lines[-1].startswith("Checked 1 launch of k: ")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_race_is_found_whatever_the_order(memlane: Command, racy: Path, seed: int) -> None:
    assert memlane("check", racy, *ARGUMENTS, "--seed", seed).code == 1


def test_json(memlane: Command, racy: Path) -> None:
    answer = memlane("check", racy, *ARGUMENTS, "--json")
    assert answer.code == 1
    document = json.loads(answer.out)
    assert (document["kind"], document["launches"]) == ("reports", 1)
    races = [report for report in document["reports"] if report["kind"] == "data race"]
    assert {(one["who"]["line"], one["other"]["line"]) for one in races} <= {(5, 6), (6, 5)}
    assert all(one["space"] == "shared" and one["memory"].startswith("values+") for one in races)


def test_stopping_at_the_first_finding(memlane: Command, racy: Path) -> None:
    answer = memlane("check", racy, *ARGUMENTS, "--stop")
    assert answer.code == 1
    assert answer.lines[0].startswith("1. ")
    assert answer.lines[-1] == "Checked 1 launch of k: 1 finding."
    assert answer.err.startswith("memlane: ")
    assert "in k(int*, int const*, int): block (0, 0, 0)" in answer.err


def test_only_one_launch_of_a_script(memlane: Command) -> None:
    answer = memlane("check", EXAMPLES / "copies.py", "--launch", "2", "--", "1024")
    assert answer.lines[-1] == "Checked 1 launch of shifted: nothing found."
    answer = memlane("check", EXAMPLES / "copies.py", "--launch", "9", "--", "1024")
    assert answer.code == 1
    assert "made 4 launches, numbered from 0; there is no launch 9" in answer.err


def test_a_script_without_a_launch(memlane: Command, tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("print(1)\n")
    answer = memlane("check", path)
    assert answer.code == 1
    assert "launched no kernel through memlane, so there is nothing to check" in answer.err


def test_what_was_found_is_shown_before_the_error_that_ends_the_launch(memlane: Command, tmp_path: Path) -> None:
    path = tmp_path / "stuck.cu"
    path.write_text("""
__global__ void k(int* out) {
    out[threadIdx.x + 32] = 1;
    if (threadIdx.x < 8) asm volatile("bar.sync 1, 32;");
    else asm volatile("bar.sync 2, 32;");
}""")
    answer = memlane("check", path, "--grid", "1", "--block", "32", "--arg", "i4[40]")
    assert answer.code == 1
    assert "out of bounds, k" in answer.out
    assert "cannot continue" in answer.err


@pytest.mark.parametrize("command", ["trace", "count"])
def test_other_commands_check_on_request(memlane: Command, racy: Path, command: str) -> None:
    answer = memlane(command, racy, *ARGUMENTS, "--check")
    assert answer.code == 1
    assert re.search(r"racy\.cu:[56]  data race in k\(int\*, int const\*, int\): ", answer.err)
    assert "     5 | if (i < n) values[threadIdx.x] = in[i];" in answer.err
    assert "     6 | if (i < n) out[i] = values[threadIdx.x ^ 32];" in answer.err
    kept = ["--force"] if command == "trace" else []  # the records until then are in a file
    assert memlane(command, racy, *ARGUMENTS, *kept).code == 0
    assert memlane(command, EXAMPLES / "copies.py", "--check", "--", "1024").code == 0
