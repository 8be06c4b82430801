"""Chooses which lanes of a warp run next.

A warp consists of warp splits: sets of lanes that continue at the same segment (`pcs`). Segments are numbered so that a loop precedes what
follows it and both sides of a branch precede their join; the split at the lowest segment runs, and reconverges with the others there. Lanes
that spent their budget of back edges are deferred until every other lane has had its turn, so that lanes which wait for each other make
progress.
"""

from __future__ import annotations

from memlane.emulate.code.build import I32, POINTER, VOID, Emit, Value, constant, vector
from memlane.emulate.layout import BLOCK, BLOCKED, CONTEXT, DONE, FAILED, NONE, RUN, WARP, YIELD, offset
from memlane.emulate.runtime.faults import has_failed
from memlane.emulate.runtime.helper import helper, invoke


def continue_at(e: Emit, warp: Value, lanes: Value, segment: Value) -> None:
    """Let `lanes` continue at `segment`."""
    pcs = e.at(warp, offset(WARP, "pcs"))
    e.store_lanes(e.select(e.lanes_of(lanes), e.splat(segment), e.load_lanes(pcs, I32)), pcs)


def lanes_at(e: Emit, warp: Value, segment: Value) -> Value:
    """Return a mask of the lanes that continue at `segment`."""
    return e.mask_of(e.icmp_unsigned("==", e.load_lanes(e.at(warp, offset(WARP, "pcs")), I32), e.splat(segment)))


@helper("park", VOID, POINTER, I32, I32)
def park(e: Emit, warp: Value, lanes: Value, segment: Value) -> None:
    """Let `lanes` continue at `segment` when they are chosen."""
    continue_at(e, warp, lanes, segment)


@helper("send", VOID, POINTER, I32, POINTER)
def send(e: Emit, warp: Value, lanes: Value, segments: Value) -> None:
    """Let each of `lanes` continue at its own segment, of the 32 at `segments`."""
    pcs = e.at(warp, offset(WARP, "pcs"))
    e.store_lanes(e.select(e.lanes_of(lanes), e.load_lanes(segments, I32), e.load_lanes(pcs, I32)), pcs)


@helper("defer", VOID, POINTER, I32, I32)
def defer(e: Emit, warp: Value, lanes: Value, segment: Value) -> None:
    """Defer the running lanes, which spent their budget on the way to `segment`, until the other lanes have run."""
    continue_at(e, warp, lanes, segment)
    e.put(e.or_(e.get(warp, WARP, "deferred"), lanes), warp, WARP, "deferred")
    context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
    e.put(e.trunc(e.get(context, CONTEXT, "budget"), I32), warp, WARP, "budget")


@helper("pick", I32, POINTER)
def pick(e: Emit, warp: Value) -> None:
    """Choose the warp split to run: set `mask`, `pc` and `frontier` and return RUN; or return why none can run."""
    with e.if_then(has_failed(e, warp), likely=False):
        e.ret(constant(I32, FAILED))
    live, deferred = e.get(warp, WARP, "live"), e.get(warp, WARP, "deferred")
    awake = e.and_(live, e.not_(e.get(warp, WARP, "waiting")))
    candidates = e.and_(awake, e.not_(deferred))
    zero = constant(I32, 0)
    with e.if_then(e.icmp_unsigned("==", candidates, zero), likely=False):
        e.put(0, warp, WARP, "deferred")
        stuck = e.select(e.icmp_unsigned("==", live, zero), constant(I32, DONE), constant(I32, BLOCKED))
        e.ret(e.select(e.icmp_unsigned("!=", awake, zero), constant(I32, YIELD), stuck))
    pcs = e.load_lanes(e.at(warp, offset(WARP, "pcs")), I32)
    nowhere = constant(vector(I32), NONE)
    segments = e.select(e.lanes_of(candidates), pcs, nowhere)
    lowest = e.reduce("umin", segments)
    chosen = e.icmp_unsigned("==", segments, e.splat(lowest))
    e.put(e.mask_of(chosen), warp, WARP, "mask")
    e.put(lowest, warp, WARP, "pc")
    e.put(e.reduce("umin", e.select(chosen, nowhere, segments)), warp, WARP, "frontier")
    e.ret(constant(I32, RUN))


@helper("enter", I32, POINTER)
def enter(e: Emit, warp: Value) -> None:
    """Begin a step of the warp; return RUN, or why it cannot run."""
    goes_on = e.and_(e.icmp_unsigned("!=", e.get(warp, WARP, "together"), constant(I32, 0)), e.not_(has_failed(e, warp)))
    with e.if_then(goes_on):
        e.put(0, warp, WARP, "together")
        e.ret(constant(I32, RUN))
    e.ret(invoke(e, pick, warp))
