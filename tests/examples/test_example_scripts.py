"""Every example script is a test of its own: its assertions hold plain, counted, and traced with every scheme.

Then the records are held against the counts, which come about without probes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.chip import load
from memlane.cli.programs import run_script
from memlane.instrument import SCHEMES, Sampling, TraceOptions
from memlane.launch import Launch
from memlane.measure import Counter, Tracer
from memlane.record import ISSUE_ONLY, Counts, Trace
from memlane.report.picture import drawing_of

pytestmark = pytest.mark.memlane_check(seed=1)

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = {
    "chase": 40,
    "copies": 2016,
    "histogram": 3000,
    "matmul": 40,
    "reduction": 1500,
    "rotation": 60,
    "spmv": 150,
    "stencil": 18,
    "transpose": 72,
}
SLOW = ("reduction", "spmv", "stencil")
"""Scripts of many launches or records, which are traced only by `make test-all`."""
TRACED = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SIZES]
"""Small, and no multiples of a block, so that the guards at the edges have work to do."""
LAUNCHES = {"chase": 5, "copies": 4, "histogram": 2, "matmul": 1, "reduction": 8, "rotation": 1, "spmv": 2, "stencil": 2, "transpose": 3}
Rows = npt.NDArray[Any]


class Nobody:
    """An observer that lets every launch go its way, and counts them."""

    seen = 0

    def launching(self, launch: Launch) -> Launch:
        self.seen += 1
        return launch


def run(name: str, observer: Any) -> None:
    run_script(EXAMPLES / f"{name}.py", [str(SIZES[name])], "emulator:h200", observer)


@cache
def traced(name: str, scheme: str = "dependent") -> Trace:
    tracer = Tracer(TraceOptions(scheme))
    run(name, tracer)
    return tracer.finish()


@cache
def counted(name: str) -> list[Counts]:
    counter = Counter()
    run(name, counter)
    return counter.finish()


def columns(trace: Trace, *names: str) -> list[Rows]:
    return [trace.table[name].to_numpy() for name in names]


def rows_of(trace: Trace) -> Iterator[tuple[int, int, Rows]]:
    """Launch, site, and the numbers of its rows."""
    launch, site = columns(trace, "launch", "site")
    for number in range(len(trace.launches)):
        for one in trace.sites:
            rows = np.flatnonzero((launch == number) & (site == one.id))
            if len(rows):
                yield number, one.id, rows


def test_every_example_is_here() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py") if path.with_suffix(".cu").exists()}
    assert scripts == {path.stem for path in EXAMPLES.glob("*.cu")} == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_plain(name: str) -> None:
    observer = Nobody()
    run(name, observer)
    assert observer.seen == LAUNCHES[name]


@pytest.mark.parametrize("name", TRACED)
def test_trace_is_whole(name: str) -> None:
    trace = traced(name)
    assert len(trace.launches) == LAUNCHES[name]
    assert trace.lost == 0
    assert trace.table.num_rows == trace.warps["kept"].sum()
    for launch in trace.launches:
        warps = trace.warps[trace.warps["launch"] == launch.id]
        blocks, per_block = np.prod(launch.grid), -(-np.prod(launch.block) // 32)
        assert len(warps) == blocks * per_block
        assert len(np.unique(warps[["block", "warp"]])) == len(warps)


@pytest.mark.parametrize("name", TRACED)
def test_times_are_in_order_and_executions_numbered(name: str) -> None:
    trace = traced(name)
    launch, block, warp, site, execution, start, end = columns(trace, "launch", "block", "warp", "site", "execution", "start", "end")
    assert (start <= end).all()
    order = np.lexsort((start, site, warp, block, launch))
    keys = np.stack([launch, block, warp, site])[:, order].astype(np.int64)
    first = np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    expected = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    assert np.array_equal(execution[order], expected)
    life = {(row["launch"], row["block"], row["warp"]): (row["begin_cycles"], row["end_cycles"]) for row in trace.warps}
    begins, ends = np.array([life[key] for key in zip(launch.tolist(), block.tolist(), warp.tolist(), strict=True)]).T
    assert ((begins <= start) & (end <= ends)).all()


@pytest.mark.parametrize("name", TRACED)
def test_records_are_the_accesses_that_were_counted(name: str) -> None:
    """The counts are of the plain kernel, the records of the one with probes."""
    trace, counts = traced(name), counted(name)
    assert [one.kernel for one in counts] == [launch.kernel for launch in trace.launches]
    mask, sectors, wavefronts = (trace.table[column].to_pylist() for column in ("active_mask", "sectors", "wavefronts"))
    seen: set[tuple[int, int, str]] = set()
    for number, site, rows in rows_of(trace):
        place = trace.sites[site].instruction
        (one,) = [entry for entry in counts[number].sites if entry.site.instruction == place]
        assert one.site.op == trace.sites[site].op
        assert len(rows) == one.requests
        assert sum(mask[row].bit_count() for row in rows) == one.lanes
        for column, total in ((sectors, one.sectors), (wavefronts, one.wavefronts)):
            values = [column[row] for row in rows]
            if total is None:
                assert set(values) == {None}
            else:
                assert sum(value or 0 for value in values) == total  # None where a generic address leads to the other space
        seen.add((number, place, one.site.op))
    assert seen == {(number, entry.site.instruction, entry.site.op) for number, one in enumerate(counts) for entry in one.sites}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "dependent"])
@pytest.mark.parametrize("name", TRACED)
def test_every_scheme_records_the_same_accesses(name: str, scheme: str) -> None:
    trace, usual = traced(name, scheme), traced(name)
    assert trace.lost == 0
    assert {launch.scheme for launch in trace.launches} == {scheme}
    for column in ("launch", "block", "warp", "op", "line"):
        assert sorted(trace.table[column].to_pylist()) == sorted(usual.table[column].to_pylist()), column
    start, end = columns(trace, "start", "end")
    assert (start <= end).all()
    stores = [site for site in trace.sites if site.kind in ("store", "reduction")]
    assert {site.completeness for site in stores} == {ISSUE_ONLY}


Row = tuple[object, ...]


def described(trace: Trace, number: dict[int, int]) -> list[Row]:
    """What each row says but for its times, sorted; `number`: the launch that each launch of the trace is."""
    launch, site = (trace.table[column].to_pylist() for column in ("launch", "site"))
    rest = ("block", "warp", "execution", "active_mask", "sectors", "wavefronts")
    rows = zip(
        (number[one] for one in launch),
        (trace.sites[one].instruction for one in site),
        *(trace.table[column].fill_null(0).to_pylist() for column in rest),
        strict=True,
    )
    return sorted(rows)


@pytest.mark.memlane_check(False)  # The whole trace is checked, and machine code of two bodies takes long with a checker in it.
@pytest.mark.parametrize("name", TRACED)
def test_one_warp_in_three(name: str) -> None:
    """The script's own assertions hold, and the rows are those of the whole trace that the chosen warps made."""
    tracer = Tracer(TraceOptions(sampling=Sampling.of(every=3, seed=2)))
    run(name, tracer)
    part, whole = tracer.finish(), traced(name)
    number = dict(enumerate(index for index, plan in enumerate(tracer.plans) if plan.chosen))
    assert len(part.launches) == len(number)
    chosen = {(number[int(row["launch"])], int(row["block"]), int(row["warp"])) for row in part.warps}
    assert len(chosen) == sum(plan.chosen for plan in tracer.plans)
    everything = described(whole, {launch.id: launch.id for launch in whole.launches})
    assert described(part, number) == [row for row in everything if (row[0], *row[2:4]) in chosen]
    counts = {launch.id: [(one.site.instruction, one.requests) for one in launch.counts] for launch in whole.launches}
    assert all([(one.site.instruction, one.requests) for one in launch.counts] == counts[number[launch.id]] for launch in part.launches)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SIZES))
def test_pictures_show_what_the_records_say(name: str) -> None:
    """Of each site that reaches memory whose transactions are known there is an access to draw, with the number of its record."""
    trace = traced(name)
    rows = {tuple(row[key] for key in ("launch", "site", "block", "warp", "execution")): row for row in trace.table.to_pylist()}
    for example in trace.examples:
        drawing = drawing_of(trace, example, load(trace.chip))
        row = rows.get((example.launch, example.site, example.block, example.warp, example.execution))
        assert drawing.transactions == example.transactions
        assert drawing.ideal == example.ideal
        if row is not None and example.space != "local" and trace.sites[example.site].kind != "copy":
            assert row["wavefronts" if example.space == "shared" else "sectors"] == example.transactions
    executed = {
        counts.site.id for launch in trace.launches for counts in launch.counts if counts.site.space in ("global", "shared", "local")
    }
    assert executed <= {example.site for example in trace.examples}
