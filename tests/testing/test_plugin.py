"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

import memlane as ml

pytest_plugins = ["pytester"]

LOAD = ("-p", "memlane.testing.plugin")
HEAD = '''
import numpy as np
import pytest
import memlane as ml

SOURCE = """
__global__ void shift(float* out, const float* in) {
    int i = threadIdx.x;
    out[i] = in[i + 1];
}
"""

def shift(elements):
    target = ml.target("emulator:h200")
    kernel = target.load(ml.cuda(SOURCE, name="shift.cu"))["shift"]
    return kernel[1, 32], target.zeros(32), target.zeros(elements)
'''
BEYOND = "    call, *arrays = shift(32)\n    call(*arrays)\n"
FAULT = "    call, out, _ = shift(33)\n    call(out, out.target.empty(33))\n"
"""Reads what nobody wrote: not an error unless the checker looks."""


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """Pytester forgets what is imported inside its runs, which extension modules do not survive."""
    target = ml.target("emulator:h200")
    assert callable(ml.trace)
    target.load(ml.cuda("__global__ void idle() {}"))["idle"][1, 1]()


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + tests)
    return pytester.runpytest(*LOAD, "-p", "no:cacheprovider", *options)


def test_what_the_checker_finds_fails_the_launch_and_shows_its_line(pytester: pytest.Pytester) -> None:
    result = run(pytester, f"def test_fault():\n{BEYOND}\ndef test_fine():\n    call, *arrays = shift(33)\n    call(*arrays)\n")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.re_match_lines(
        [
            r"E +memlane\.errors\.CheckFailed: shift\.cu:4  out of bounds in shift\(float\*, float const\*\): block \(0, 0, 0\), "
            r"thread \(31, 0, 0\) read 4 bytes \(ld\.global\.f32\) at 0x\w+, just past the end of the 128-byte allocation at 0x\w+, "
            r"argument 2 \(f4\[32\]\)\. .*",
            r"E +4 \| out\[i\] = in\[i \+ 1\];",
        ]
    )


def test_marks_and_the_ini_file_choose(pytester: pytest.Pytester) -> None:
    off = "@pytest.mark.memlane_check(False)\n"
    on = "@pytest.mark.memlane_check(seed=3)\n"
    tests = (
        f"{off}class TestRaw:\n    def test_fault(self):\n    {FAULT.replace(chr(10), chr(10) + '    ')}\n"
        f"{on}def test_fault():\n{FAULT}\ndef test_unmarked():\n{FAULT}"
    )
    run(pytester, tests).assert_outcomes(failed=2, passed=1)
    pytester.makeini("[pytest]\nmemlane_check = false")
    run(pytester, tests).assert_outcomes(failed=1, passed=2)


def test_fixtures_are_checked_and_measurements_too(pytester: pytest.Pytester) -> None:
    fixture = f"@pytest.fixture\ndef shifted():\n{FAULT}\ndef test_fixture(shifted):\n    pass\n"
    counted = "def test_count():\n    call, out, _ = shift(33)\n    ml.count(call, out, out.target.empty(33))\n"
    run(pytester, fixture + counted).assert_outcomes(errors=1, failed=1)


def test_who_checks_himself_gets_the_reports(pytester: pytest.Pytester) -> None:
    checks = "def test_check():\n    call, *arrays = shift(32)\n    assert [r.kind for r in ml.check(call, *arrays)] == ['out of bounds']\n"
    run(pytester, checks).assert_outcomes(passed=1)


def test_probes_are_not_blamed_for_what_they_do_among_themselves(pytester: pytest.Pytester) -> None:
    """The threads of a block share the word of shared memory to which `consume` stores."""
    traced = "def test_trace():\n    call, *arrays = shift(33)\n    assert ml.trace(call, *arrays, scheme='consume').table.num_rows == 2\n"
    run(pytester, traced).assert_outcomes(passed=1)


def test_the_marker_is_registered(pytester: pytest.Pytester) -> None:
    run(pytester, "def test_nothing():\n    pass\n", "--markers").stdout.fnmatch_lines(["@pytest.mark.memlane_check(*"])


def test_to_load_it_costs_nothing() -> None:
    code = "import pytest, sys; before = set(sys.modules); import memlane.testing.plugin; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"memlane", "memlane.checks", "memlane.testing", "memlane.testing.plugin"}
