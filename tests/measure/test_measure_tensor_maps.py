"""Copies of boxes in traces and counts: the copy ends with its issue, its wait is a site, and the sectors are those of its rows."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.audit import prove
from memlane.instrument import site_table, trace, uncounted
from memlane.launch import KernelCall, TensorMap
from memlane.measure import count
from memlane.measure import trace as trace_call
from memlane.measure.memory import Snapshot
from memlane.optimize.lane_addresses import _on_emulator as on_emulator
from memlane.record import COMPLETE, ISSUE_ONLY
from tests.emulate.running import emulator
from tests.emulate.tensor_boxes import THREADS, Case, load_program, loaded_box, store_program
from tests.measure.tiles import IMAGE, doubling, line_of
from tests.sass.code import cubin_of

CASE = Case((50, 48), (8, 32), (45, 20), swizzle="128B")


def loading() -> tuple[KernelCall, TensorMap, object]:
    target = emulator()
    tiles, out = CASE.tensor_map(target, target.array(CASE.host())), target.zeros(1024, np.uint8)
    return target.load(load_program(2))["load"][1, THREADS, target.default_stream, 1024], tiles, out


def test_a_trace_changes_nothing_and_has_the_wait_as_a_site() -> None:
    call, tiles, out = loading()
    made = trace_call(call, tiles, out, 1024, 20, 45)
    assert np.array_equal(out.numpy(), loaded_box(CASE, CASE.host()))
    box, wait = (next(site for site in made.sites if site.kind == kind) for kind in ("copy", "wait"))
    assert (box.space, box.completeness, box.is_box) == ("global", ISSUE_ONLY, True)
    assert box.reason == f"a copy completes at its wait: line {wait.line}"
    assert box.address_parameters == (0, 3, 4), "the map and the coordinates"
    assert (wait.op, wait.completeness) == ("mbarrier.try_wait.parity.shared.b64", COMPLETE)
    rows = made.table.to_pylist()
    assert [(row["active_mask"], row["sectors"]) for row in rows if "tensor" in row["op"]] == [(1, 20)]
    assert sum(row["active_mask"].bit_count() for row in rows if "try_wait" in row["op"]) == THREADS


def test_sectors_of_boxes_are_counted_where_the_map_can_be_read() -> None:
    call, tiles, out = loading()
    found = count(call, tiles, out, 1024, 20, 45)
    (box,) = (entry for entry in found.sites if entry.site.is_box)
    # 5 rows of 28 floats, 192 bytes apart, from byte 80 on: bytes 80 to 192 of each row touch 4 sectors
    assert (box.requests, box.lanes, box.bytes, box.sectors, box.ideal_sectors) == (1, 1, 5 * 28 * 4, 5 * 4, -(-5 * 28 * 4 // 32))
    assert box.wavefronts is None
    assert [one.op for one in found.skipped] == ["prefetch.tensormap"]
    told = {(one.op.split(".global")[0], one.reason) for one in uncounted(site_table(load_program(2))) if one.op.startswith("cp")}
    assert told == {("cp.async.bulk.tensor.2d.shared::cluster", _REASON)}


_REASON = "the sectors of a box depend on its tensor map, which only the emulator can read, so only the emulator counts them"


@pytest.mark.parametrize("operation", ["", "add"])
def test_the_assembled_code_proves_the_waits(operation: str) -> None:
    """Also of stores and reductions, whose group is waited for."""
    for module in (load_program(2), store_program(2, operation)):
        traced = trace(module)
        proofs = {one.site: one for one in prove(traced, cubin_of(traced.module))}
        kinds = {site.kind: proofs[site.id].completeness for site in traced.sites if site.kind in ("copy", "wait")}
        assert kinds == {"copy": ISSUE_ONLY, "wait": COMPLETE}


def test_tiles_in_cuda_are_traced_at_the_lines_of_their_calls() -> None:
    """The copy at the line that starts it, its wait at that of the `cuda::barrier`, and outputs as without a trace."""
    call, tiles, results, out = doubling(emulator())
    made = trace_call(call, tiles, results)
    assert np.array_equal(out.numpy(), 2 * IMAGE)
    lines = {(site.kind, site.line) for site in made.sites if site.kind in ("copy", "wait")}
    assert lines == {
        ("copy", line_of("2d_global_to_shared")),
        ("wait", line_of("full.wait")),
        ("copy", line_of("2d_shared_to_global")),
        ("wait", line_of("wait_group_read")),
    }
    assert all(f"line {line_of('full.wait')}" in site.reason for site in made.sites if "::complete_tx" in site.op)


def test_the_array_behind_a_tensor_map_is_saved_and_moved_with_the_others() -> None:
    target = emulator()
    host = CASE.host()
    array, flat = target.array(host), target.array(np.ones((8, 32), np.float32))
    call = target.load(store_program(2, "add"))["store"][1, THREADS, target.default_stream, 1024]
    launch = call.bind(target.tensor_map(array, (8, 32)), flat, 1024, 20, 40)
    before = Snapshot(launch)
    elsewhere = on_emulator(launch)
    assert elsewhere is not None
    elsewhere.kernel.target.launch(elsewhere)
    assert np.array_equal(array.numpy(), host)
    target.launch(launch)
    left = array.numpy()
    assert np.array_equal(left[40:48, 20:48], host[40:48, 20:48] + 1)
    moved = np.empty_like(host)
    elsewhere.kernel.target.read(elsewhere.arguments[0].memory[0], moved)
    assert np.array_equal(moved, left)
    before.restore()
    assert np.array_equal(array.numpy(), host)
