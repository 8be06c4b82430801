"""Model when bulk copies complete: copies of a run of bytes, and copies of a box of an array, row by row.

    complete = invoke(e, bulk_copy_time(chip, LOAD_PAST_L1), warp, addresses, distance, lanes, sizes, issue)     # i64: a cycle

A copy between global memory and a multiprocessor is divided into pieces of at most `LANES` sectors. A piece reserves passes of 128 bytes
through shared memory in the ring of the load-store unit: after the earlier pieces, in slots that accesses of warps leave free. From its
first pass on it is an access past L1, which looks for its sectors in L2 and waits in the same queues as accesses of warps (`caches`). So a
copy takes the latency of its last piece plus the time for the bytes before that piece. A copy between blocks of a cluster takes these
passes and the latency between the blocks.

A barrier that counts bytes opens at once in the emulator. The cycle in which the bytes arrive is stored next to it (`mbarriers`), and a
thread that finds the barrier open goes on no earlier. WARP holds the cycles in which groups of copies complete (`bulk`) and have read their
source (`bulk_reads`).

Not modelled: the fetch of a tensor map's descriptor, and the limit on the requests that a copy engine has in flight. By `pipelines
of copies` in benchmarks/results/h200/predict_calibration.json, a copy of 4 KiB from L2 takes no longer than a load and the passes of its
bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from memlane.chip import LANES, Chip
from memlane.emulate.clock.caches import access_helper
from memlane.emulate.clock.issue import Clock
from memlane.emulate.clock.sectors import LOAD_PAST_L1
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, Variable, constant, lane_numbers, vector
from memlane.emulate.layout import BLOCK, CONTEXT, FULL, WARP
from memlane.emulate.runtime.helper import Helper, invoke
from memlane.emulate.runtime.window import address_of_lane

PASS_BYTES = 128
"""Bytes of shared memory that one pass moves."""


@cache
def piece_time(chip: Chip, kind: str, element_bytes: int = 0, operation: str = "") -> Helper:
    """Return the helper `(warp, address: i64, nbytes: i64, issue: i64) -> i64` for the cycle in which a copy of `nbytes` contiguous bytes
    of global memory, at least one, completes.

    `kind` is `LOAD_PAST_L1` for copies to shared memory, `STORE` or `ATOMIC` for copies from there, which count for the open group. An
    `ATOMIC` applies `operation` to elements of 4 or 8 bytes (`element_bytes`).
    """
    unit = element_bytes or chip.sector_bytes

    def build(e: Emit, warp: Value, address: Value, nbytes: Value, issue: Value) -> None:
        block = e.get_pointer(warp, WARP, "block")
        caches = e.get_pointer(e.get_pointer(block, BLOCK, "context"), CONTEXT, "caches")
        places, zero = e.local(vector(I64), align=64), constant(I64, 0)
        at, latest, read = e.variable(e.and_(address, constant(I64, -unit))), e.variable(issue), e.variable(issue)
        end = e.add(address, nbytes)
        with e.while_(lambda: e.icmp_unsigned("<", at.get(), end)):
            here = at.get()
            left = e.udiv(e.add(e.sub(end, here), constant(I64, unit - 1)), constant(I64, unit))
            count = e.intrinsic("umin", [left, constant(I64, LANES)])
            e.store_lanes(e.add(e.splat(here), lane_numbers(I64, unit)), places)
            lanes = e.lshr(constant(I32, FULL), e.sub(constant(I32, LANES), e.trunc(count, I32)))
            start = _pass(e, chip, block, e.mul(count, constant(I64, unit)), issue, read)
            arguments = (e.get(block, BLOCK, "sm"), places, zero, lanes, constant(I32, unit), start)
            found = invoke(e, access_helper(chip, kind, operation), caches, *arguments)
            latest.set(e.intrinsic("smax", [latest.get(), e.add(start, e.and_(found, constant(I64, FULL)))]))
            at.set(e.add(here, e.mul(count, constant(I64, unit))))
        if kind != LOAD_PAST_L1:
            _note_group(e, warp, read.get(), latest.get())
        e.ret(latest.get())

    return Helper(
        f"memlane_piece_time_{unit}_{access_helper(chip, kind, operation).name}_{Clock(chip).lsu.name}",
        I64,
        (POINTER, I64, I64, I64),
        build,
    )


@cache
def bulk_copy_time(chip: Chip, kind: str, element_bytes: int = 0, operation: str = "") -> Helper:
    """Return the helper `(warp, addresses, distance, lanes, sizes, issue) -> i64` for the cycle in which the copies of `lanes` complete.

    `addresses` are those in global memory, `sizes` points to 32 i32 byte counts; the other parameters are those of `piece_time`."""
    piece = piece_time(chip, kind, element_bytes, operation)

    def time(e: Emit, warp: Value, address: Value, nbytes: Value, issue: Value) -> Value:
        return invoke(e, piece, warp, address, nbytes, issue)

    return _for_lanes(f"memlane_bulk_copy_time_{piece.name}", time)


@cache
def peer_copy_time(chip: Chip) -> Helper:
    """Return a helper like that of `bulk_copy_time` for copies between the shared memories of two blocks of a cluster.

    The time does not depend on the distance between the blocks."""
    latency = round(chip.latency.shared_cluster or chip.latency.l2)

    def time(e: Emit, warp: Value, address: Value, nbytes: Value, issue: Value) -> Value:
        read = e.variable(issue)
        _pass(e, chip, e.get_pointer(warp, WARP, "block"), nbytes, issue, read)
        return e.add(read.get(), constant(I64, latency))

    return _for_lanes(f"memlane_peer_copy_time_{latency}_{Clock(chip).lsu.name}", time)


def _for_lanes(name: str, time: Callable[[Emit, Value, Value, Value, Value], Value]) -> Helper:
    def build(e: Emit, warp: Value, addresses: Value, distance: Value, lanes: Value, sizes: Value, issue: Value) -> None:
        latest = e.variable(issue)
        with e.each_lane(lanes) as lane:
            nbytes = e.zext(e.load(e.element(sizes, lane, I32), typ=I32), I64)
            with e.if_then(e.icmp_unsigned("!=", nbytes, constant(I64, 0)), likely=True):
                done = time(e, warp, address_of_lane(e, addresses, distance, lane), nbytes, issue)
                latest.set(e.intrinsic("smax", [latest.get(), done]))
        e.ret(latest.get())

    return Helper(name, I64, (POINTER, POINTER, I64, I32, POINTER, I64), build)


def _pass(e: Emit, chip: Chip, block: Value, nbytes: Value, issue: Value, read: Variable) -> Value:
    """Reserve the passes through shared memory for `nbytes` and return the cycle of the first; raise `read` to the cycle after the last."""
    count = e.udiv(e.add(nbytes, constant(I64, PASS_BYTES - 1)), constant(I64, PASS_BYTES))
    clock = Clock(chip)
    start = invoke(e, clock.lsu, e.get_pointer(block, BLOCK, "sm_state"), issue, e.trunc(count, I32))
    end = e.add(start, e.mul(count, constant(I64, clock.wavefront_cycles)))
    read.set(e.intrinsic("smax", [read.get(), end]))
    return start


def _note_group(e: Emit, warp: Value, read: Value, complete: Value) -> None:
    """Delay the open group of copies to complete no earlier than `complete` and to have read its source no earlier than `read`."""
    for name, when in (("bulk_reads", read), ("bulk", complete)):
        e.put(e.intrinsic("smax", [e.get(warp, WARP, name), when]), warp, WARP, name)
