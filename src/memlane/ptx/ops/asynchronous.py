"""Asynchronous copies and the barriers in shared memory that track them."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "data-movement-and-conversion-instructions-"
_SYNC = "parallel-synchronization-and-communication-instructions-"
_PREFETCH = "L2::64B L2::128B L2::256B"
_SHARED = "shared shared::cta shared::cluster"
_FORMAT = "elemtype interleave_layout swizzle_mode fill_mode"
_COORDINATES = "1d 2d 3d 4d 5d"

OPS = (
    op(
        "cp.async",
        manual=_SECTION + "cp-async",
        effect="copy",
        types="size:- source:u32 policy:-",
        spaces="dst:shared src:global",
    )
    .form("cp.async.cop.space.global{.L2::cache_hint}{.prefetch} [dst], [src], size{, source}{, policy}")
    .where(cop="ca cg", space="shared shared::cta", prefetch=_PREFETCH),
    op("cp.async.commit_group", manual=_SECTION + "cp-async-commit-group", effect="async").form("cp.async.commit_group"),
    op("cp.async.wait_group", manual=_SECTION + "cp-async-wait-group", effect="async", types="n:-")
    .form("cp.async.wait_group n")
    .form("cp.async.wait_all"),
    op("cp.async.bulk", manual=_SECTION + "cp-async-bulk", effect="copy", types="size:u32 mask:b16 policy:-")
    .form(
        "cp.async.bulk.dst.src.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint}"
        " [dst], [src], size, [mbar]{, mask}{, policy}",
        dst="shared::cluster shared::cta",
        src="global shared::cta",
        spaces="dst:shared src:global mbar:shared",
    )
    .form(
        "cp.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint} [dst], [src], size{, policy}",
        spaces="dst:global src:shared",
    ),
    op("cp.reduce.async.bulk", manual=_SECTION + "cp-reduce-async-bulk", effect="copy", types="size:u32 policy:-").form(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint}.op{.noftz}.type [dst], [src], size{, policy}",
        op="and or xor add inc dec min max",
        type="f16 bf16 b32 u32 s32 b64 u64 s64 f32 f64",
        spaces="dst:global src:shared",
    ),
    op("cp.async.bulk.prefetch", manual=_SECTION + "cp-async-bulk-prefetch", effect="prefetch", types="size:u32 policy:-").form(
        "cp.async.bulk.prefetch.L2.global{.L2::cache_hint} [src], size{, policy}", spaces="src:global"
    ),
    op("cp.async.bulk.tensor", manual=_SECTION + "cp-async-bulk-tensor", effect="copy", types="mask:b16 policy:-")
    .form(
        "cp.async.bulk.tensor.dim.dst.global{.mode}.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint}"
        " [dst], [map, coordinates], [mbar]{, mask}{, policy}",
        dst="shared::cluster shared::cta",
        spaces="dst:shared map:global mbar:shared",
    )
    .form(
        "cp.async.bulk.tensor.dim.global.shared::cta{.mode}.bulk_group{.L2::cache_hint} [map, coordinates], [src]{, policy}",
        spaces="map:global src:shared",
    )
    .where(dim=_COORDINATES, mode="tile"),
    op("cp.reduce.async.bulk.tensor", manual=_SECTION + "cp-reduce-async-bulk-tensor", effect="copy", types="policy:-")
    .form(
        "cp.reduce.async.bulk.tensor.dim.global.shared::cta.op{.mode}.bulk_group{.L2::cache_hint} [map, coordinates], [src]{, policy}",
        spaces="map:global src:shared",
    )
    .where(dim=_COORDINATES, mode="tile", op="add min max inc dec and or xor"),
    op("cp.async.bulk.prefetch.tensor", manual=_SECTION + "cp-async-bulk-prefetch-tensor", effect="prefetch", types="policy:-")
    .form("cp.async.bulk.prefetch.tensor.dim.L2.global{.mode}{.L2::cache_hint} [map, coordinates]{, policy}", spaces="map:global")
    .where(dim=_COORDINATES, mode="tile"),
    op("tensormap.replace", manual=_SECTION + "tensormap-replace", effect="other", types="new:type ordinal:-")
    .form("tensormap.replace.tile.field{.space}.b1024.type [a], new", field="global_address", type="b64")
    .form("tensormap.replace.tile.field{.space}.b1024.type [a], new", field="rank", type="b32")
    .form("tensormap.replace.tile.field{.space}.b1024.type [a], ordinal, new", field="box_dim global_dim element_stride", type="b32")
    .form("tensormap.replace.tile.field{.space}.b1024.type [a], ordinal, new", field="global_stride", type="b64")
    .form("tensormap.replace.tile.field{.space}.b1024.type [a], new", field=_FORMAT, type="b32")
    .where(space="global shared::cta"),
    op("tensormap.cp_fenceproxy", manual=_SYNC + "tensormap-cp-fenceproxy", effect="fence", types="size:-").form(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [dst], [src], size",
        scope="cta cluster gpu sys",
        spaces="dst:global src:shared",
    ),
    op("cp.async.bulk.commit_group", manual=_SECTION + "cp-async-bulk-commit-group", effect="async").form("cp.async.bulk.commit_group"),
    op("cp.async.bulk.wait_group", manual=_SECTION + "cp-async-bulk-wait-group", effect="async", types="n:-").form(
        "cp.async.bulk.wait_group{.read} n"
    ),
    op("cp.async.mbarrier.arrive", manual=_SYNC + "cp-async-mbarrier-arrive", effect="async", spaces="a:shared")
    .form("cp.async.mbarrier.arrive{.noinc}{.space}.b64 [a]")
    .where(space="shared shared::cta"),
    op("mbarrier.init", manual=_SYNC + "mbarrier-init", effect="async", types="count:u32", spaces="a:shared")
    .form("mbarrier.init{.space}.b64 [a], count")
    .where(space="shared shared::cta"),
    op("mbarrier.inval", manual=_SYNC + "mbarrier-inval", effect="async", spaces="a:shared")
    .form("mbarrier.inval{.space}.b64 [a]")
    .where(space="shared shared::cta"),
    op("mbarrier.expect_tx", manual=_SYNC + "mbarrier-expect-tx", effect="async", types="count:u32", spaces="a:shared")
    .form("mbarrier.expect_tx{.sem.scope}{.space}.b64 [a], count")
    .where(sem="relaxed", scope="cta cluster", space=_SHARED),
    op("mbarrier.complete_tx", manual=_SYNC + "mbarrier-complete-tx", effect="async", types="count:u32", spaces="a:shared")
    .form("mbarrier.complete_tx{.sem.scope}{.space}.b64 [a], count")
    .where(sem="relaxed", scope="cta cluster", space=_SHARED),
    op("mbarrier.arrive", manual=_SYNC + "mbarrier-arrive", effect="async", types="d:b64 count:u32", spaces="a:shared")
    .form("mbarrier.arrive{.sem.scope}{.space}.b64             d, [a]{, count}")
    .form("mbarrier.arrive.expect_tx{.sem.scope}{.space}.b64   d, [a], count")
    .form("mbarrier.arrive.noComplete{.sem.cta}{.space}.b64    d, [a], count")
    .where(sem="release relaxed", scope="cta cluster", space=_SHARED),
    op("mbarrier.arrive_drop", manual=_SYNC + "mbarrier-arrive-drop", effect="async", types="d:b64 count:u32", spaces="a:shared")
    .form("mbarrier.arrive_drop{.sem.scope}{.space}.b64            d, [a]{, count}")
    .form("mbarrier.arrive_drop.expect_tx{.sem.scope}{.space}.b64  d, [a], count")
    .form("mbarrier.arrive_drop.noComplete{.sem.cta}{.space}.b64   d, [a], count")
    .where(sem="release relaxed", scope="cta cluster", space=_SHARED),
    op(
        "mbarrier.test_wait",
        manual=_SYNC + "mbarrier-test-wait-try-wait",
        effect="async",
        types="state:b64 parity:u32 hint:u32",
        spaces="a:shared",
    )
    .form("mbarrier.test_wait{.sem.scope}{.space}.b64        p, [a], state")
    .form("mbarrier.test_wait.parity{.sem.scope}{.space}.b64 p, [a], parity")
    .form("mbarrier.try_wait{.sem.scope}{.space}.b64         p, [a], state{, hint}")
    .form("mbarrier.try_wait.parity{.sem.scope}{.space}.b64  p, [a], parity{, hint}")
    .where(sem="acquire relaxed", scope="cta cluster", space="shared shared::cta"),
    op("mbarrier.pending_count", manual=_SYNC + "mbarrier-pending-count", types="d:u32 state:b64").form(
        "mbarrier.pending_count.b64 d, state"
    ),
)
