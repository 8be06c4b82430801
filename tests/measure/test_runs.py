"""Which launch the warps in a buffer are of, with buffers made by hand as a GPU leaves them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import MemlaneError
from memlane.instrument import Decoded, TraceOptions
from memlane.instrument.decode import ACCESS_DTYPE, WARP_DTYPE
from memlane.launch import Launch, LoadedModule
from memlane.measure.instrumented_module import InstrumentedModule, probe
from memlane.measure.runs import LaunchRecord, grids_of
from memlane.ptx import Module, parse

Warp = tuple[int, int, int, int, int]
"""Tag of the launch, grid id, block, warp of the block, and when it began."""


class Device(Emulator):
    """Sees nothing by itself, as a GPU."""

    observes = False


@pytest.fixture
def on_device(module: Module) -> LoadedModule:
    return Device(load("h200")).load(module)


def buffer(warps: Sequence[Warp], kernel: int = 0, dropped_without_slice: int = 0) -> Decoded:
    rows = np.zeros(len(warps), WARP_DTYPE)
    for name, column in zip(("tag", "gridid", "block", "warp", "begin_ns"), zip(*warps, strict=True), strict=True):
        rows[name] = column
    rows["kernel"] = kernel
    rows["end_cycles"] = 1
    records = np.zeros(len(warps), ACCESS_DTYPE)
    records["slice"] = np.arange(len(warps))
    return Decoded(records, rows, int(dropped_without_slice > 0), dropped_without_slice, 0)


def grid(tag: int, gridid: int, blocks: int, began: int, warps: int = 1) -> list[Warp]:
    return [(tag, gridid, block, warp, began + block) for block in range(blocks) for warp in range(warps)]


def launch(kernels: LoadedModule, blocks: int, threads: int = 32, name: str = "add") -> Launch:
    return kernels[name][blocks, threads].bind(kernels.target.zeros(128, "u4"), blocks)


def found(
    kernels: LoadedModule, launches: Sequence[Launch], buffers: Sequence[Decoded], failures: Sequence[dict[int, str]] = ()
) -> list[tuple[int, int, int, int]]:
    """For each run in the order of time: number of its launch, grid id, its warps, and homeless records. Launches are tagged 1, 2, ..."""
    probed = probe(kernels, TraceOptions(tagged=True))
    records = [LaunchRecord(one, probed, tag) for tag, one in enumerate(launches, 1)]
    for record, failed in zip(records, failures, strict=False):
        record.failures.update(failed)
    runs = sorted(grids_of(records, buffers), key=lambda run: run.began)
    return [(records.index(run.record), int(run.warp_rows["gridid"][0]), len(run.warps), run.dropped_without_slice) for run in runs]


def test_launches_are_told_apart_by_their_tags(on_device: LoadedModule) -> None:
    """However the device numbers them, and in whatever order equal ones of several streams begin."""
    launches = [launch(on_device, 2), launch(on_device, 2), launch(on_device, 2)]
    mixed = [warp for pair in zip(grid(2, 7, 2, 100), grid(1, 9, 2, 50), grid(3, 3, 2, 300), strict=True) for warp in pair]
    assert found(on_device, launches, [buffer(mixed)]) == [(0, 9, 2, 0), (1, 7, 2, 0), (2, 3, 2, 0)]


def test_launches_of_one_grid_id_are_told_apart(on_device: LoadedModule) -> None:
    """As those of two devices may have."""
    launches = [launch(on_device, 2), launch(on_device, 2)]
    assert found(on_device, launches, [buffer([*grid(2, 5, 2, 10), *grid(1, 5, 2, 20)])]) == [(1, 5, 2, 0), (0, 5, 2, 0)]


def test_later_buffers_go_on_where_earlier_ones_ended(on_device: LoadedModule) -> None:
    launches = [launch(on_device, 1), launch(on_device, 2), launch(on_device, 3)]
    buffers = [buffer(grid(1, 4, 1, 10)), buffer([*grid(2, 5, 2, 20), *grid(3, 8, 3, 30)])]
    assert found(on_device, launches, buffers) == [(0, 4, 1, 0), (1, 5, 2, 0), (2, 8, 3, 0)]


def test_graph_that_is_started_again_gives_a_run_each_time(on_device: LoadedModule) -> None:
    """Its grid ids come again with it: in one buffer, and in the next."""
    launches = [launch(on_device, 2), launch(on_device, 1, 64)]
    once = [*grid(1, 3, 2, 100), *grid(2, 4, 1, 110, warps=2)]
    again = [*grid(1, 3, 2, 200), *grid(2, 4, 1, 210, warps=2)]
    later = [*grid(1, 3, 2, 300), *grid(2, 4, 1, 310, warps=2)]
    runs = found(on_device, launches, [buffer([*once, *again]), buffer(later)])
    assert runs == [(0, 3, 2, 0), (1, 4, 2, 0)] * 3


def test_graph_whose_starts_have_grid_ids_of_their_own(on_device: LoadedModule) -> None:
    launches = [launch(on_device, 2), launch(on_device, 2)]
    warps = [warp for start in range(3) for tag in (1, 2) for warp in grid(tag, 2 + tag + 2 * start, 2, 100 * start + 10 * tag)]
    assert [run[0] for run in found(on_device, launches, [buffer(warps)])] == [0, 1] * 3


def test_launches_that_never_ran_are_passed_over(on_device: LoadedModule) -> None:
    launches = [launch(on_device, 2), launch(on_device, 2), launch(on_device, 2)]
    assert found(on_device, launches, [buffer([*grid(2, 5, 2, 10), *grid(3, 6, 2, 20)])]) == [(1, 5, 2, 0), (2, 6, 2, 0)]


def test_records_without_a_slice_are_charged_to_the_last_run_of_their_buffer(on_device: LoadedModule) -> None:
    launches = [launch(on_device, 2), launch(on_device, 2)]
    buffers = [buffer(grid(1, 5, 2, 10)), buffer(grid(2, 6, 1, 20), dropped_without_slice=17)]
    assert found(on_device, launches, buffers) == [(0, 5, 2, 0), (1, 6, 1, 17)]


def test_warps_of_launches_of_others_are_left_out(on_device: LoadedModule) -> None:
    assert found(on_device, [launch(on_device, 2)], [buffer([*grid(1, 5, 2, 10), *grid(4, 6, 2, 20)])]) == [(0, 5, 2, 0)]


def test_where_runs_are_observed_those_that_nobody_saw_end_are_left_out(kernels: LoadedModule) -> None:
    """And those that broke off have their warps, with the reason."""
    launches = [launch(kernels, 2), launch(kernels, 2)]
    warps = [*grid(1, 5, 2, 10), *grid(2, 6, 2, 20)]
    assert found(kernels, launches, [buffer(warps)]) == []
    assert found(kernels, launches, [buffer(warps)], [{}, {6: "a trap"}]) == [(1, 6, 2, 0)]


def test_a_kernel_without_room_for_a_tag_is_refused_by_its_name(kernels: LoadedModule) -> None:
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry full(.param .b8 all[4352])\n"
    full = parse(text + "{ .reg .b64 a; .reg .b32 v; ld.param.u64 a, [all]; ld.global.u32 v, [a]; st.global.u32 [a+4], v; ret; }")
    with pytest.raises(MemlaneError, match="full has 4,352 bytes of parameters, and tracing needs 12 more, which exceeds the 4,352 that"):
        probe(kernels.target.load(full), TraceOptions(tagged=True))


def test_buffer_that_nobody_wrote_to(kernels: LoadedModule) -> None:
    empty = Decoded(np.zeros(0, ACCESS_DTYPE), np.zeros(0, WARP_DTYPE), 0, 0, 0)
    assert found(kernels, [launch(kernels, 1)], [empty]) == []


def test_a_probed_module_knows_its_loops(kernels: LoadedModule) -> None:
    probed: InstrumentedModule = probe(kernels, TraceOptions())
    assert [(name, probed.sites_of(name), probed.loops(name)) for name in kernels] == [
        ("add", 2, False),
        ("sum", 2, True),
        ("idle", 0, False),
    ]
