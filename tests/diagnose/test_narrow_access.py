"""The rule for lanes side by side that ask for a byte or two."""

from __future__ import annotations

from typing import Any

import pytest

from memlane.record import Trace
from tests.diagnose.made import accesses, counted, found, site, trace


def rows_of(op: str, nbytes: int, cycles: int = 700, array: str = "u1[6400]", **per_request: float) -> Trace:
    """200 requests of one warp; an array of 6,400 bytes is what they load when each byte is loaded once."""
    load = site(0, op, nbytes=nbytes)
    counts: dict[str, Any] = {"sectors": nbytes, "ideal_sectors": nbytes, **per_request}
    return trace(
        [accesses(load, cycles, (1, 1, 200))],
        [counted(load, 200, **counts)],
        arguments=("f4[1024]", array, "64"),
        lives=400 * cycles,
    )


@pytest.mark.parametrize(("op", "nbytes", "array", "saved"), [("ld.global.u8", 1, "u1[6400]", 0.75), ("ld.global.s16", 2, "i2[6400]", 0.5)])
def test_bytes_one_at_a_time_wait_four_times_as_often(op: str, nbytes: int, array: str, saved: float) -> None:
    (one,) = found(rows_of(op, nbytes, array=array), "narrow-access")
    assert one.cost_cycles == pytest.approx(200 * 700 * saved)
    assert one.cost_low == 200 * saved
    assert f"a request moves {32 * nbytes} bytes of a possible 128" in one.what
    assert f"read {4 // nbytes} neighbouring elements at once" in one.remedy


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(rows_of("ld.global.f32", 4, array="f4[6400]"), id="words"),
        pytest.param(rows_of("ld.global.u8", 1, sectors=2), id="misaligned"),
        pytest.param(rows_of("ld.global.u8", 1, array="u1[64]"), id="one byte for all lanes, of a small table"),
        pytest.param(rows_of("ld.global.u8", 1, lanes=16), id="half of the lanes"),
        pytest.param(rows_of("ld.shared.u8", 1), id="shared memory"),
    ],
)
def test_what_is_not_narrow(made: Trace) -> None:
    assert found(made, "narrow-access") == []


def test_stores_cost_their_issue_at_least() -> None:
    """A cycle for each of 150 requests, in 72,000 cycles that the warp lived; in 280,000 nobody feels it."""
    assert found(rows_of("st.global.u8", 1, cycles=700), "narrow-access") == []
    (one,) = found(rows_of("st.global.u8", 1, cycles=180), "narrow-access")
    assert (one.cost_cycles, one.cost_measured) == (150, False)
    assert "store to 4 neighbouring elements at once" in one.remedy


def test_two_narrow_arrays_at_one_place_are_each_read_once() -> None:
    """`y[i] = a * x[i] + y[i]` in halves: together they are loaded twice as often as one of them has elements."""
    one, two = site(0, "ld.global.u16", nbytes=2), site(1, "ld.global.u16", nbytes=2, address_parameters=(0,))
    each = {"sectors": 2, "ideal_sectors": 2}
    both = trace(
        [accesses(one, 700, (1, 1, 200)), accesses(two, 700, (1, 1, 200))],
        [counted(one, 200, **each), counted(two, 200, **each)],
        arguments=("f2[6400]", "f2[6400]", "64"),
        lives=400 * 700,
    )
    (finding,) = found(both, "narrow-access")
    assert finding.requests == 400
