"""Limits of transactions, in `ml.check` and as a mark."""

from __future__ import annotations

import pytest

import memlane as ml
from memlane.errors import CheckFailed, MemlaneError
from memlane.launch import KernelCall

pytest_plugins = ["pytester"]

SOURCE = """
__global__ void columns(float* out, const float* in, int n) {
    __shared__ float tile[32][32];
    int t = threadIdx.x;
    out[t * n + blockIdx.x] = in[blockIdx.x * n + t];
    tile[t][0] = out[t * n + blockIdx.x];
    __syncwarp();
    out[t * n + blockIdx.x] = tile[t][0];
}
"""
ROWS, SHARED = 4, 32


@pytest.fixture(scope="module")
def call() -> tuple[KernelCall, object, object]:
    target = ml.target("emulator:h200")
    kernel = target.load(ml.cuda(SOURCE, name="columns.cu"))["columns"]
    return kernel[ROWS, 32], target.zeros(32 * 32), target.zeros(32 * 32)


def test_without_limits_only_correctness_is_checked(call: tuple[KernelCall, object, object]) -> None:
    launched, out, source = call
    assert ml.check(launched, out, source, 32) == []


def test_what_is_just_allowed_passes(call: tuple[KernelCall, object, object]) -> None:
    """By hand: 32 lanes, 128 bytes apart, touch 32 sectors; a column of a tile of 32 words is one bank, 31 wavefronts more than one."""
    launched, out, source = call
    assert (
        ml.check(launched, out, source, 32, max_sectors_per_request=32, max_conflicts=31 * ROWS, max_excess_bytes=2 * 28 * 32 * ROWS) == []
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"max_sectors_per_request": 31.9}, "32 sectors per request on average, max_sectors_per_request=31.9 was allowed"),
        ({"max_conflicts": 31 * ROWS - 1}, "124 wavefronts above the ideal, max_conflicts=123 was allowed"),
        ({"max_excess_bytes": 0}, "3,584 bytes of sectors above the ideal, max_excess_bytes=0 was allowed"),
    ],
)
def test_beyond_a_limit_the_finding_is_raised(call: tuple[KernelCall, object, object], limit: dict[str, float], words: str) -> None:
    launched, out, source = call
    with pytest.raises(CheckFailed) as failed:
        ml.check(launched, out, source, 32, **limit)
    message = str(failed.value)
    assert words in message
    assert ("32-way bank conflict" if "max_conflicts" in limit else "each request touches 32 sectors where 4 would do") in message
    assert "tile[t][0]" in message if "max_conflicts" in limit else "out[t * n + blockIdx.x] = in[blockIdx.x * n + t];" in message


@pytest.mark.parametrize("value", [-1, "4", True, float("nan")])
def test_a_limit_is_a_number(call: tuple[KernelCall, object, object], value: object) -> None:
    launched, out, source = call
    with pytest.raises(MemlaneError, match=r"^max_conflicts must be a number of 0 or more, got "):
        ml.check(launched, out, source, 32, max_conflicts=value)


TEST = f'''
import pytest
import memlane as ml

SOURCE = """{SOURCE}"""

def launch():
    target = ml.target("emulator:h200")
    target.load(ml.cuda(SOURCE, name="columns.cu"))["columns"][1, 32](target.zeros(1024), target.zeros(1024), 32)

@pytest.mark.memlane(max_sectors_per_request=4)
def test_beyond():
    launch()

@pytest.mark.memlane(max_sectors_per_request=32)
def test_within():
    launch()

def test_unlimited():
    launch()
'''


def run(pytester: pytest.Pytester, text: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    return pytester.runpytest("-p", "memlane.testing.plugin", "-p", "no:cacheprovider")


def test_a_marked_test_fails_at_its_launch(pytester: pytest.Pytester, call: object) -> None:
    result = run(pytester, TEST)
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(["E*CheckFailed: columns.cu:5*each request touches 32 sectors where 4 would do*"])
    result.stdout.fnmatch_lines(["*32 sectors per request on average, max_sectors_per_request=4 was allowed*"])


def test_an_unknown_limit_is_refused_before_anything_runs(pytester: pytest.Pytester, call: object) -> None:
    result = run(pytester, TEST.replace("max_sectors_per_request=32", "max_sectors=32"))
    result.assert_outcomes()
    result.stderr.fnmatch_lines(
        ["ERROR: *test_within: the mark memlane takes max_sectors_per_request=, max_conflicts=, max_excess_bytes=, not max_sectors"]
    )
