"""The benchmark of sizes runs, and its kernels are what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scaling import Clock, row_of
from scaling_kernels import FAMILIES

from memlane.ptx import parse, verify

Quick = Callable[..., list[dict[str, Any]]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [100, 700])
def test_kernels_have_about_as_many_instructions_as_are_asked_for(family: str, size: int) -> None:
    module = parse(FAMILIES[family](size))
    verify(module)
    found = sum(1 for function in module.functions.values() for _ in function.instructions())
    assert 0.7 * size <= found <= 1.2 * size + 90


@pytest.mark.slow
def test_every_stage_of_a_family_has_a_row(quick: Quick) -> None:
    rows = quick("scaling", "branches")
    stages = [row["metric"].rpartition(", growth")[0] for row in rows]
    assert stages[:6] == ["prove, dependent", "prove, exposed", "parse", "verify", "print", "sites"]
    assert {"verdicts", "trace, dependent", "count", "lowering, with checker", "LLVM, function only"} <= set(stages)
    assert all(row["value"] > 0 and len(row["peer"]) == 2 for row in rows)


def test_a_stage_that_grows_with_the_square_does_not_hold() -> None:
    straight = row_of("f", "s", {1_000: 1.0, 10_000: 15.0})
    square = row_of("f", "s", {1_000: 1.0, 10_000: 100.0})
    assert (straight.value, straight.holds) == (1.5, True)
    assert (square.value, square.holds, square.note) == (10.0, False, "100.00 s at 10,000 instructions")


def test_a_stage_that_would_take_too_long_is_left_out_and_named() -> None:
    clock = Clock(10_000, {1_000: {"slow": 3.0, "quick": 1.0}, 4_000: {"slow": 12.0}}, limit=25)
    assert clock("slow", lambda: 1) is None
    assert clock("quick", lambda: 2) == 2
    assert clock("new", lambda: 3) == 3
    assert clock.seconds.keys() == {"quick", "new"}
    assert clock.left_out == {"slow"}
    row = row_of("f", "slow", {1_000: 3.0, 4_000: 12.0}, [10_000])
    assert row.note == "not measured at 10,000 instructions: expected to take too long"
