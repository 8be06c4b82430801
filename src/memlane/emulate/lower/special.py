"""Lowers special registers, one line each: how the value comes from the records of warp, block and launch."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.build import I32, I64, Value, constant, lane_numbers, vector
from memlane.emulate.layout import BLOCK, CONTEXT, WARP, offset
from memlane.emulate.lower.protocols import Emission
from memlane.emulate.lower.variables import RESERVED, RESERVED_BYTES, WORKSPACE
from memlane.ptx import GRID_WORKSPACE


def _thread(field: str) -> Callable[[Emission], Value]:
    return lambda k: k.e.load_lanes(k.e.at(k.warp, offset(WARP, field)), I32)


def _launch(field: str, axis: int = 0) -> Callable[[Emission], Value]:
    return lambda k: k.e.splat(k.e.get(k.context, CONTEXT, field, axis))


def _block(field: str, axis: int = 0) -> Callable[[Emission], Value]:
    return lambda k: k.e.splat(k.e.get(k.block, BLOCK, field, axis))


def _cluster_of_block(axis: int) -> Callable[[Emission], Value]:
    return lambda k: k.e.splat(k.e.udiv(k.e.get(k.block, BLOCK, "ctaid", axis), k.e.get(k.context, CONTEXT, "cluster", axis)))


def _block_in_cluster(axis: int) -> Callable[[Emission], Value]:
    return lambda k: k.e.splat(k.e.urem(k.e.get(k.block, BLOCK, "ctaid", axis), k.e.get(k.context, CONTEXT, "cluster", axis)))


def _clusters(axis: int) -> Callable[[Emission], Value]:
    return lambda k: k.e.splat(k.e.udiv(k.e.get(k.context, CONTEXT, "grid", axis), k.e.get(k.context, CONTEXT, "cluster", axis)))


def _is_explicit_cluster(k: Emission) -> Value:
    return k.e.neg(k.e.get(k.context, CONTEXT, "explicit_cluster"))


def _warp(field: str) -> Callable[[Emission], Value]:
    return lambda k: k.e.splat(k.e.get(k.warp, WARP, field))


def _always(number: int) -> Callable[[Emission], Value]:
    return lambda k: constant(vector(I32), number)


def _bits(of_lane: Callable[[int], int]) -> Callable[[Emission], Value]:
    return lambda k: ir.Constant(vector(I32), [of_lane(lane) for lane in range(LANES)])


def _total_shared(k: Emission) -> Value:
    return k.e.splat(k.e.trunc(k.e.get(k.context, CONTEXT, "shared_bytes"), I32))


def _clock(k: Emission) -> Value:
    """Return the multiprocessor's time in the cycle in which this instruction issues."""
    return k.e.splat(k.e.add(k.start, k.e.get(k.block, BLOCK, "origin")))


def _low(value: Callable[[Emission], Value]) -> Callable[[Emission], Value]:
    return lambda k: k.e.trunc(value(k), vector(I32))


def _high(value: Callable[[Emission], Value]) -> Callable[[Emission], Value]:
    return lambda k: k.e.trunc(k.e.lshr(value(k), constant(vector(I64), 32)), vector(I32))


def _nanoseconds(k: Emission) -> Value:
    """Return the device time in nanoseconds: the time at launch plus the cycles since then at the chip's clock."""
    e = k.e
    cycles = e.sub(k.start, e.get(k.context, CONTEXT, "base"))
    elapsed = e.udiv(e.mul(cycles, constant(I64, 1000)), e.get(k.context, CONTEXT, "clock_mhz"))
    return e.splat(e.add(e.get(k.context, CONTEXT, "start_ns"), elapsed))


def _workspace(k: Emission) -> Value:
    return k.symbol_address(WORKSPACE, 0)


def _reserved(offset: int) -> Callable[[Emission], Value]:
    return lambda k: k.e.trunc(k.symbol_address(RESERVED, offset), vector(I32))


_OF_GROUPS = 288
"""Bytes at the end of the reserved shared memory that cooperative groups expect at `%reserved_smem_offset_1`."""
SPECIAL: dict[str, Callable[[Emission], Value]] = {
    **{f"%tid.{axis}": _thread(f"tid_{axis}") for axis in "xyz"},
    **{f"%ntid.{axis}": _launch("block", number) for number, axis in enumerate("xyz")},
    **{f"%ctaid.{axis}": _block("ctaid", number) for number, axis in enumerate("xyz")},
    **{f"%nctaid.{axis}": _launch("grid", number) for number, axis in enumerate("xyz")},
    # Without clusters each block is a cluster of its own.
    **{f"%clusterid.{axis}": _cluster_of_block(number) for number, axis in enumerate("xyz")},
    **{f"%nclusterid.{axis}": _clusters(number) for number, axis in enumerate("xyz")},
    **{f"%cluster_ctaid.{axis}": _block_in_cluster(number) for number, axis in enumerate("xyz")},
    **{f"%cluster_nctaid.{axis}": _launch("cluster", number) for number, axis in enumerate("xyz")},
    "%cluster_ctarank": _block("rank"),
    "%cluster_nctarank": _launch("cluster_blocks"),
    "%laneid": lambda k: lane_numbers(I32),
    "%warpid": _warp("number"),
    "%nwarpid": _launch("warps"),
    "%smid": _block("sm"),
    "%nsmid": _launch("sm_count"),
    "%gridid": _launch("grid_id"),
    "%lanemask_eq": _bits(lambda lane: 1 << lane),
    "%lanemask_lt": _bits(lambda lane: (1 << lane) - 1),
    "%lanemask_le": _bits(lambda lane: (2 << lane) - 1),
    "%lanemask_gt": _bits(lambda lane: 0xFFFFFFFF & ~((2 << lane) - 1)),
    "%lanemask_ge": _bits(lambda lane: 0xFFFFFFFF & ~((1 << lane) - 1)),
    "%dynamic_smem_size": _launch("dynamic_shared_bytes"),
    **dict(zip(GRID_WORKSPACE, (_high(_workspace), _low(_workspace)), strict=True)),
    "%total_smem_size": _total_shared,
    "%aggr_smem_size": _total_shared,
    "%reserved_smem_offset_begin": _reserved(0),
    "%reserved_smem_offset_end": _reserved(RESERVED_BYTES),
    "%reserved_smem_offset_cap": _always(RESERVED_BYTES),
    "%reserved_smem_offset_0": _reserved(0),
    "%reserved_smem_offset_1": _reserved(RESERVED_BYTES - _OF_GROUPS),
    "%clock64": _clock,
    "%clock": _low(_clock),
    "%clock_hi": _high(_clock),
    "%globaltimer": _nanoseconds,
    "%globaltimer_lo": _low(_nanoseconds),
    "%globaltimer_hi": _high(_nanoseconds),
    **{
        f"%{name}.w": _always(0)
        for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    },
    # Performance counters that nothing has set up, and the device graph that no launch is part of.
    **{f"%pm{number}{width}": _always(0) for number in range(8) for width in ("", "_64")},
    "%current_graph_exec": _always(0),
    "WARP_SZ": _always(LANES),
}
"""Name to the code of the value: 32 lanes of i32, or of i64 for 64-bit registers."""

PREDICATES: dict[str, Callable[[Emission], Value]] = {"%is_explicit_cluster": _is_explicit_cluster}
"""Name to the code of the value: an i32 mask."""
