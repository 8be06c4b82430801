"""Records the first fault of a launch in the record of its worker, and stops the worker soon after.

Python stops the other workers (`run.interrupt`).
"""

from __future__ import annotations

from memlane.emulate.code.atomic import exchange_if
from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.layout import BLOCK, CONTEXT, INTERRUPTED, WARP, WORKERS
from memlane.emulate.runtime.helper import helper
from memlane.emulate.runtime.workers import workers_record


@helper("fault", VOID, POINTER, I32, I32, I32, I64, I32, I32)
def fault(e: Emit, warp: Value, kind: Value, site: Value, lane: Value, address: Value, nbytes: Value, space: Value) -> None:
    """Record a fault unless there was one before. The warp stops at its next back edge, barrier or exit; until then it does no harm,
    because what it computes is discarded with the launch."""
    block = e.get_pointer(warp, WARP, "block")
    context = e.get_pointer(block, BLOCK, "context")
    e.put(-1, warp, WARP, "budget")
    with e.if_then(e.icmp_unsigned("==", e.get(context, CONTEXT, "fault"), constant(I32, 0)), likely=False):
        place, _ = e.place(workers_record(e, context), WORKERS, "faulting_worker")
        number = e.add(e.get(context, CONTEXT, "number"), constant(I32, 1))
        _, is_first = exchange_if(e, place, constant(I32, 0), number)
        e.put(e.select(is_first, kind, constant(I32, INTERRUPTED)), context, CONTEXT, "fault")
        with e.if_then(is_first):
            e.put(site, context, CONTEXT, "fault_site")
            e.put(lane, context, CONTEXT, "fault_lane")
            e.put(e.get(warp, WARP, "number"), context, CONTEXT, "fault_warp")
            e.put(e.get(block, BLOCK, "number"), context, CONTEXT, "fault_block")
            e.put(address, context, CONTEXT, "fault_address")
            e.put(nbytes, context, CONTEXT, "fault_bytes")
            e.put(space, context, CONTEXT, "fault_space")
            e.put(e.ptrtoint(block, I64), context, CONTEXT, "fault_slot")


def has_failed(e: Emit, warp: Value) -> Value:
    """Return i1: whether the launch has a fault or has to stop."""
    context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
    return e.icmp_unsigned("!=", e.get(context, CONTEXT, "fault"), constant(I32, 0))
