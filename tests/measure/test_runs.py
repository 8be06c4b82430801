"""Which launch the warps in a buffer are of, with buffers made by hand as a GPU leaves them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memlane.instrument import Decoded, TraceOptions
from memlane.instrument.decode import ACCESS_DTYPE, WARP_DTYPE
from memlane.launch import Launch, LoadedModule
from memlane.measure.probed import ProbedModule, probe
from memlane.measure.runs import LaunchRecord, grids_of

Warp = tuple[int, int, int, int]
"""Grid id, block, warp of the block, and when it began."""


def buffer(warps: Sequence[Warp], kernel: int = 0, homeless_records: int = 0) -> Decoded:
    rows = np.zeros(len(warps), WARP_DTYPE)
    for name, column in zip(("gridid", "block", "warp", "begin_ns"), zip(*warps, strict=True), strict=True):
        rows[name] = column
    rows["kernel"] = kernel
    rows["end_cycles"] = 1
    records = np.zeros(len(warps), ACCESS_DTYPE)
    records["slice"] = np.arange(len(warps))
    return Decoded(records, rows, int(homeless_records > 0), homeless_records, 0)


def grid(gridid: int, blocks: int, began: int, warps: int = 1) -> list[Warp]:
    return [(gridid, block, warp, began + block) for block in range(blocks) for warp in range(warps)]


def launch(kernels: LoadedModule, blocks: int, threads: int = 32, name: str = "add") -> Launch:
    return kernels[name][blocks, threads].bind(kernels.target.zeros(128, "u4"), blocks)


def found(kernels: LoadedModule, launches: Sequence[Launch], buffers: Sequence[Decoded]) -> list[tuple[int, int, int, int]]:
    """For each run in the order of time: number of its launch, grid id, its warps, and homeless records."""
    probed = probe(kernels, TraceOptions())
    records = [LaunchRecord(one, probed) for one in launches]
    runs = sorted(grids_of(records, buffers, probed.traced.kernels), key=lambda run: run.began)
    return [(records.index(run.record), int(run.warp_rows["gridid"][0]), len(run.warps), run.homeless) for run in runs]


def test_launches_are_told_apart_by_their_grid_id(kernels: LoadedModule) -> None:
    launches = [launch(kernels, 2), launch(kernels, 2), launch(kernels, 2)]
    mixed = [warp for pair in zip(grid(7, 2, 100), grid(9, 2, 50), grid(12, 2, 300), strict=True) for warp in pair]
    assert found(kernels, launches, [buffer(mixed)]) == [(1, 9, 2, 0), (0, 7, 2, 0), (2, 12, 2, 0)]


def test_later_buffers_go_on_where_earlier_ones_ended(kernels: LoadedModule) -> None:
    launches = [launch(kernels, 1), launch(kernels, 2), launch(kernels, 3)]
    buffers = [buffer(grid(4, 1, 10)), buffer([*grid(5, 2, 20), *grid(8, 3, 30)])]
    assert found(kernels, launches, buffers) == [(0, 4, 1, 0), (1, 5, 2, 0), (2, 8, 3, 0)]


def test_graph_that_is_started_again_gives_a_run_each_time(kernels: LoadedModule) -> None:
    """Its grid ids come again with it: in one buffer, and in the next."""
    launches = [launch(kernels, 2), launch(kernels, 1, 64)]
    once = [*grid(3, 2, 100), *grid(4, 1, 110, warps=2)]
    again = [*grid(3, 2, 200), *grid(4, 1, 210, warps=2)]
    later = [*grid(3, 2, 300), *grid(4, 1, 310, warps=2)]
    runs = found(kernels, launches, [buffer([*once, *again]), buffer(later)])
    assert runs == [(0, 3, 2, 0), (1, 4, 2, 0)] * 3


def test_graph_whose_starts_have_grid_ids_of_their_own(kernels: LoadedModule) -> None:
    launches = [launch(kernels, 2), launch(kernels, 1, 64)]
    warps = [
        warp for start in range(3) for warp in (*grid(3 + 2 * start, 2, 100 * start), *grid(4 + 2 * start, 1, 100 * start + 10, warps=2))
    ]
    assert [run[0] for run in found(kernels, launches, [buffer(warps)])] == [0, 1] * 3


def test_launches_that_never_ran_are_passed_over(kernels: LoadedModule) -> None:
    launches = [launch(kernels, 4), launch(kernels, 2), launch(kernels, 3)]
    assert found(kernels, launches, [buffer([*grid(5, 2, 10), *grid(6, 3, 20)])]) == [(1, 5, 2, 0), (2, 6, 3, 0)]


def test_kernels_of_a_module_are_counted_apart(kernels: LoadedModule) -> None:
    launches = [launch(kernels, 1, name="sum"), launch(kernels, 1), launch(kernels, 1, name="sum")]
    names = list(kernels.module.kernels)
    adds, sums = buffer(grid(6, 1, 20), names.index("add")), buffer([*grid(5, 1, 10), *grid(7, 1, 30)], names.index("sum"))
    assert [run[0] for run in found(kernels, launches, [adds, sums])] == [0, 1, 2]


def test_records_without_a_slice_are_charged_to_the_last_run_of_their_buffer(kernels: LoadedModule) -> None:
    launches = [launch(kernels, 2), launch(kernels, 2)]
    buffers = [buffer(grid(5, 2, 10)), buffer(grid(6, 1, 20), homeless_records=17)]
    assert found(kernels, launches, buffers) == [(0, 5, 2, 0), (1, 6, 1, 17)]


def test_a_run_is_never_taken_for_a_launch_of_another_extent(kernels: LoadedModule) -> None:
    launches = [launch(kernels, 2), launch(kernels, 2)]
    assert found(kernels, launches, [buffer([*grid(5, 2, 10), *grid(6, 4, 20)])]) == [(0, 5, 2, 0)]


def test_runs_that_failed_are_left_out(kernels: LoadedModule) -> None:
    launches = [launch(kernels, 2), launch(kernels, 2)]
    failed = buffer([*grid(5, 2, 10), *grid(6, 2, 20)])
    failed.warps["end_cycles"][1] = 0
    assert found(kernels, launches, [failed]) == [(0, 6, 2, 0)]


def test_buffer_that_nobody_wrote_to(kernels: LoadedModule) -> None:
    empty = Decoded(np.zeros(0, ACCESS_DTYPE), np.zeros(0, WARP_DTYPE), 0, 0, 0)
    assert found(kernels, [launch(kernels, 1)], [empty]) == []


def test_a_probed_module_knows_its_loops(kernels: LoadedModule) -> None:
    probed: ProbedModule = probe(kernels, TraceOptions())
    assert [(name, probed.sites_of(name), probed.loops(name)) for name in kernels] == [
        ("add", 2, False),
        ("sum", 2, True),
        ("idle", 0, False),
    ]
