"""From decoded columns to rows: order, execution numbers, nulls, and refusal of what does not fit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.record import ACCESS_SCHEMA, build_trace
from memlane.record.build import _order
from tests.synthetic import NAIVE, launch, site

SITES = (site(0, "ld.global.f32", 4), site(1, "st.shared.f64", 5), site(2, "atom.global.u32", 9))
LAUNCHES = (launch(0, NAIVE), launch(1, NAIVE))
MADE = {"sites": SITES, "launches": LAUNCHES, "chip": "c", "target": "t", "modelled": False}


def columns(rows: list[tuple[int, ...]], **more: list[int]) -> dict[str, npt.NDArray[Any]]:
    """Columns from (launch, site, block, warp, start) rows; each takes 7 cycles on SM 3 with lanes 0 and 31 active."""
    table = np.array(rows, np.int64).reshape(-1, 5)
    named = dict(zip(("launch", "site", "block", "warp", "start"), table.T, strict=True))
    named |= {"end": named["start"] + 7, "sm": np.full(len(table), 3), "mask": np.full(len(table), 0x80000001)}
    return named | {name: np.array(values) for name, values in more.items()}


def test_a_site_lends_its_facts_to_its_rows() -> None:
    trace = build_trace(columns([(1, 1, 5, 2, 100)], sectors=[-1], wavefronts=[2], exposed=[4_000_000_000]), **MADE)
    assert trace.table.schema.equals(ACCESS_SCHEMA)
    assert trace.table.to_pylist() == [
        {
            "launch": 1,
            "kernel": NAIVE,
            "file": "transpose.cu",
            "line": 5,
            "op": "st.shared.f64",
            "space": "shared",
            "site": 1,
            "bytes": 8,
            "block": 5,
            "sm": 3,
            "warp": 2,
            "active_mask": 0x80000001,
            "execution": 0,
            "start": 100,
            "end": 107,
            "completeness": "issue-only",
            "sectors": None,
            "wavefronts": 2,
            "exposed": 4_000_000_000,
            "device": "t",
        }
    ]


def test_sectors_are_null_where_no_one_counted() -> None:
    trace = build_trace(columns([(0, 0, 0, 0, 1)]), **MADE)
    assert trace.table["sectors"].null_count == trace.table["wavefronts"].null_count == 1


def test_exposed_cycles_are_null_where_no_one_recorded_them() -> None:
    rows = [(0, 0, 0, 0, 1), (0, 1, 0, 0, 2), (0, 2, 0, 0, 3)]
    assert build_trace(columns(rows), **MADE).table["exposed"].to_pylist() == [None, None, None]
    assert build_trace(columns(rows, exposed=[-1, 0, 7]), **MADE).table["exposed"].to_pylist() == [None, 0, 7]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, high) for high in (1, 2, 2, 1, 20)]), max_size=40))
def test_rows_are_ordered_and_executions_count_up(rows: list[tuple[int, ...]]) -> None:
    table = build_trace(columns(rows), **MADE).table.to_pylist()
    places = [(row["launch"], row["block"], row["warp"], row["start"]) for row in table]
    assert places == sorted(places)
    seen: Counter[tuple[int, ...]] = Counter()
    for row in table:
        place = (row["launch"], row["block"], row["warp"], row["site"])
        assert row["execution"] == seen[place]
        seen[place] += 1
    assert Counter((row["launch"], row["site"], row["block"], row["warp"], row["start"]) for row in table) == Counter(rows)


@pytest.mark.parametrize("far", [1, 1 << 31])
@pytest.mark.parametrize("step", [1, -1])
def test_warps_that_come_as_runs_are_put_in_order(far: int, step: int) -> None:
    """Each warp by start, as warps are decoded, or the other way round; also with numbers too large to be one key."""
    runs = [
        (launch, turn % 3, far * block, far * warp, 100 + turn)
        for block in (2, 0, 1)
        for warp in (1, 0)
        for launch in (1, 0)
        for turn in range(4)
    ]
    rows = [row for at in range(0, len(runs), 4) for row in runs[at : at + 4][::step]]
    made = _ordered_like(columns(rows))
    assert made == sorted(rows, key=lambda row: (row[0], row[2], row[3], row[4]))


def _ordered_like(given: dict[str, npt.NDArray[Any]]) -> list[tuple[int, ...]]:
    order = _order(given)
    return list(zip(*(given[name][order].tolist() for name in ("launch", "site", "block", "warp", "start")), strict=True))


def test_records_that_start_together_keep_their_order() -> None:
    trace = build_trace(columns([(0, 0, 0, 0, 9), (0, 0, 0, 0, 9), (0, 0, 0, 0, 9)], sectors=[5, 1, 3]), **MADE)
    assert trace.table["sectors"].to_pylist() == [5, 1, 3]
    assert trace.table["execution"].to_pylist() == [0, 1, 2]


def test_block_numbers_and_clocks_may_be_large() -> None:
    row = build_trace(columns([(0, 0, 2**32 - 1, 31, 2**62)]), **MADE).table.to_pylist()[0]
    assert (row["block"], row["warp"], row["start"]) == (2**32 - 1, 31, 2**62)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sm": None}, r"missing columns: \['sm'\]"),
        ({"lanes": [1]}, r"unknown columns: \['lanes'\]"),
        ({"sm": [1, 2]}, "different lengths"),
        ({"site": [3]}, "site numbers from 3 to 3, but there are 3 entries"),
        ({"launch": [2]}, "launch numbers from 2 to 2, but there are 2 entries"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change: dict[str, list[int] | None], message: str) -> None:
    given_columns = columns([(0, 0, 0, 0, 1)])
    for name, values in change.items():
        if values is None:
            del given_columns[name]
        else:
            given_columns[name] = np.array(values)
    with pytest.raises(ValueError, match=message):
        build_trace(given_columns, **MADE)


def test_site_ids_must_be_their_places() -> None:
    with pytest.raises(ValueError, match="ids of site entries"):
        build_trace(columns([(0, 0, 0, 0, 1)]), **{**MADE, "sites": SITES[::-1]})
