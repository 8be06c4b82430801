"""Clusters of blocks: addresses in each other's shared memory, and the cluster barrier."""

from __future__ import annotations

from memlane.emulate.check.hooks import check_cluster_arrival, check_cluster_wait
from memlane.emulate.code.build import I32, I64, Value, constant, vector
from memlane.emulate.layout import BLOCK, CLUSTER_SHIFT, CONTEXT, SHARED_WINDOW, WINDOW_BYTES
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.cluster import arrive_at_cluster, wait_at_cluster
from memlane.emulate.semantics.table import semantics


@semantics("memory/mapa")
def mapa(k: Lowering) -> None:
    """Return the same address in the shared memory of another block, by its rank. Generic addresses stay in their window."""
    e, address = k.e, k.read("a")
    kind = vector(I32)
    steps = e.sub(e.add(k.read("b", "u32"), constant(kind, 1)), _named(k, address))
    steps = e.shl(steps, constant(kind, CLUSTER_SHIFT))
    k.write("d", e.add(address, steps if address.type == kind else e.sext(steps, address.type)))


@semantics("memory/getctarank")
def getctarank(k: Lowering) -> None:
    """Return the rank of the block whose shared memory contains an address."""
    e, field = k.e, _named(k, k.read("a"))
    own = e.splat(e.get(k.block, BLOCK, "rank"))
    rank = e.sub(field, constant(vector(I32), 1))
    k.write("d", e.select(e.icmp_unsigned("==", field, constant(vector(I32), 0)), own, rank))


def _named(k: Lowering, address: Value) -> Value:
    """Return the field of an address that names a block, 32 i32. An address may lie before the block's memory until an offset is added to
    it: it still belongs to that block, although the subtraction borrowed from the field."""
    e, kind = k.e, vector(I32)
    low = address if address.type == kind else e.trunc(address, kind)
    return e.lshr(e.add(low, constant(kind, 1 << (CLUSTER_SHIFT - 1))), constant(kind, CLUSTER_SHIFT))


def is_own_shared(k: Lowering, address: Value) -> Value:
    """Return an i32 mask of the lanes whose generic address lies in the shared memory of their own block."""
    e, kind = k.e, vector(I64)
    inner = e.sub(address, constant(kind, SHARED_WINDOW))
    inside = e.icmp_unsigned("<", inner, constant(kind, WINDOW_BYTES))
    field = e.lshr(inner, constant(kind, CLUSTER_SHIFT))
    named = e.add(e.zext(e.get(k.block, BLOCK, "rank"), I64), constant(I64, 1))
    own = e.or_(e.icmp_unsigned("==", field, constant(kind, 0)), e.icmp_unsigned("==", field, e.splat(named)))
    return e.mask_of(e.and_(inside, own))


@semantics("sync/barrier.cluster")
def barrier_cluster(k: Lowering) -> None:
    """Arrive at the cluster barrier, or wait until all threads of the cluster have arrived. `.aligned` is a promise of the program and
    ignored."""
    arrives = k.instruction.has("arrive")
    place, site = constant(I32, k.flow.pause()), constant(I32, k.index)
    if arrives:
        time = constant(I64, 0) if k.scoreboard is None else _opens(k, k.scoreboard.barrier_opens)
        check_cluster_arrival(k)
        k.call(arrive_at_cluster, k.warp, k.active, place, time, site)
    else:
        check_cluster_wait(k)
        k.call(wait_at_cluster, k.warp, k.active, place, site)
    k.flow.pick_again()


def _opens(k: Lowering, alone: Value) -> Value:
    """Return the cycle in which the barrier opens if no other thread is missing: as a barrier of a block would, but with several blocks no
    sooner than the latency between two multiprocessors allows (modelled)."""
    e, way = k.e, constant(I64, round(k.chip.latency.shared_cluster or 0))
    several = e.icmp_unsigned(">", e.get(k.context, CONTEXT, "cluster_blocks"), constant(I32, 1))
    return e.add(alone, e.select(several, way, constant(I64, 0)))
