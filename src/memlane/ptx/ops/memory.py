"""Data movement: loads, stores, atomics, prefetches, addresses."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "data-movement-and-conversion-instructions-"
_SYNC = "parallel-synchronization-and-communication-instructions-"
_SPACES = "const global local param param::entry param::func shared shared::cta shared::cluster"
_STORE_SPACES = "global local param param::func shared shared::cta shared::cluster"
_TYPES = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_SCOPES = "cta cluster gpu sys"
_EVICTION = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
_L2_EVICTION = "L2::evict_normal L2::evict_first L2::evict_last"
_PREFETCH = "L2::64B L2::128B L2::256B"
_LEVELS = {"eviction": _EVICTION, "l2eviction": _L2_EVICTION, "prefetch": _PREFETCH}
_SHARED_OR_GLOBAL = "global shared shared::cta shared::cluster"
_ORDER = "{.sem}{.scope}"
_HINT = "{.L2::cache_hint}"
_ASYNC = ".relaxed.cluster{.ss}.mbarrier::complete_tx::bytes"
_ATOMS_F32 = "d:f32 b:f32 policy:-"
_PACKED = "f16x2 bf16x2"
_HALVES = "f16 bf16 f16x2 bf16x2"
_ATOMIC_OPERATIONS = {"bitop": "and or xor", "count": "inc dec", "bound": "min max", "each": "add min max"}
"""Slots of `atom` and `red`; the manual calls all of them `.op`, with a list of types for each."""

OPS = (
    op("mov", manual=_SECTION + "mov")
    .form("mov.type d, a")
    .form("mov.vec.type d, a", type="b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64")
    .where(vec="v2 v4", type="pred b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64"),
    op("ld", manual=_SECTION + "ld", effect="load", types="d:type policy:-", wider="d")
    .form("ld{.weak}{.ss}{.cop}{.L2::cache_hint}{.prefetch}{.vec}.type                          d, [a]{, policy}")
    .form("ld{.weak}{.ss}{.eviction}{.l2eviction}{.L2::cache_hint}{.prefetch}{.vec}.type        d, [a]{, policy}")
    .form("ld.volatile{.ss}{.prefetch}{.vec}.type                                               d, [a]")
    .form("ld.relaxed.scope{.ss}{.eviction}{.l2eviction}{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, policy}")
    .form("ld.acquire.scope{.ss}{.eviction}{.l2eviction}{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, policy}")
    .form("ld.mmio.relaxed.sys{.global}.type                                                    d, [a]", spaces="a:global")
    .where(ss=_SPACES, cop="ca cg cs lu cv", scope=_SCOPES, vec="v2 v4 v8", type=_TYPES, **_LEVELS),
    op("ld.global.nc", manual=_SECTION + "ld-global-nc", effect="load", types="d:type policy:-", spaces="a:global", wider="d")
    .form("ld.global{.cop}.nc{.L2::cache_hint}{.prefetch}{.vec}.type                   d, [a]{, policy}")
    .form("ld.global.nc{.eviction}{.l2eviction}{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, policy}")
    .where(cop="ca cg cs", vec="v2 v4 v8", type=_TYPES, **_LEVELS),
    op("ldu", manual=_SECTION + "ldu", effect="load", wider="d")
    .form("ldu{.ss}{.vec}.type d, [a]")
    .where(ss="global", vec="v2 v4", type=_TYPES),
    op("st", manual=_SECTION + "st", effect="store", types="b:type policy:-", wider="b")
    .form("st{.weak}{.ss}{.cop}{.L2::cache_hint}{.vec}.type                          [a], b{, policy}")
    .form("st{.weak}{.ss}{.eviction}{.l2eviction}{.L2::cache_hint}{.vec}.type        [a], b{, policy}")
    .form("st.volatile{.ss}{.vec}.type                                               [a], b")
    .form("st.relaxed.scope{.ss}{.eviction}{.l2eviction}{.L2::cache_hint}{.vec}.type [a], b{, policy}")
    .form("st.release.scope{.ss}{.eviction}{.l2eviction}{.L2::cache_hint}{.vec}.type [a], b{, policy}")
    .form("st.mmio.relaxed.sys{.global}.type                                         [a], b", spaces="a:global")
    .where(ss=_STORE_SPACES, cop="wb cg cs wt", scope=_SCOPES, vec="v2 v4 v8", type=_TYPES, eviction=_EVICTION, l2eviction=_L2_EVICTION),
    op("st.async", manual=_SECTION + "st-async", effect="store", types="b:type", spaces="mbar:shared")
    .form("st.async{.weak}{.ss}.mbarrier::complete_tx::bytes{.vec}.type [a], b, [mbar]")
    .where(ss="shared::cluster", vec="v2 v4", type="b32 b64 u32 u64 s32 s64 f32 f64"),
    op("st.async.release", manual=_SECTION + "st-async", effect="store", types="b:type", spaces="a:global")
    .form("st.async{.mmio}.release.scope.global.type [a], b")
    .where(scope="gpu sys", type="b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"),
    op("red.async", manual=_SYNC + "red-async", effect="reduction", types="b:type", spaces="mbar:shared")
    .form(f"red.async{_ASYNC}.count.u32   [a], b, [mbar]", types="b:u32")
    .form(f"red.async{_ASYNC}.bound.type  [a], b, [mbar]", type="u32 s32")
    .form(f"red.async{_ASYNC}.bitop.type  [a], b, [mbar]", type="b32")
    .form(f"red.async{_ASYNC}.add.type    [a], b, [mbar]", type="u32 s32 u64 s64")
    .where(ss="shared::cluster", **_ATOMIC_OPERATIONS),
    op("red.async.release", manual=_SYNC + "red-async", effect="reduction", types="b:type", spaces="a:global")
    .form("red.async{.mmio}.release.scope.global.add.type [a], b")
    .where(scope="gpu sys", type="u32 s32 u64"),
    op("atom", manual=_SYNC + "atom", effect="atomic", types="d:type b:type c:type policy:-")
    .form(f"atom{_ORDER}{{.ss}}.bitop{_HINT}.type d, [a], b{{, policy}}", type="b32 b64")
    .form(f"atom{_ORDER}{{.ss}}.cas.type          d, [a], b, c", type="b16 b32 b64 b128")
    .form(f"atom{_ORDER}{{.ss}}.exch{_HINT}.type  d, [a], b{{, policy}}", type="b32 b64 b128")
    .form(f"atom{_ORDER}{{.ss}}.add{_HINT}.type   d, [a], b{{, policy}}", type="u32 u64 s32 f32 f64")
    .form(f"atom{_ORDER}{{.ss}}.count{_HINT}.u32  d, [a], b{{, policy}}", types="d:u32 b:u32 policy:-")
    .form(f"atom{_ORDER}{{.ss}}.bound{_HINT}.type d, [a], b{{, policy}}", type="u32 u64 s32 s64")
    .form(f"atom{_ORDER}{{.ss}}.add.noftz{_HINT}.type          d, [a], b{{, policy}}", type=_HALVES)
    .form(f"atom{_ORDER}{{.global}}.add{_HINT}.vec.f32         d, [a], b{{, policy}}", types=_ATOMS_F32, vec="v2 v4", spaces="a:global")
    .form(f"atom{_ORDER}{{.global}}.each.noftz{_HINT}.vec.type d, [a], b{{, policy}}", vec="v2 v4 v8", type="f16 bf16", spaces="a:global")
    .form(f"atom{_ORDER}{{.global}}.each.noftz{_HINT}.vec.type d, [a], b{{, policy}}", vec="v2 v4", type=_PACKED, spaces="a:global")
    .where(sem="relaxed acquire release acq_rel", scope=_SCOPES, ss=_SHARED_OR_GLOBAL, **_ATOMIC_OPERATIONS),
    op("red", manual=_SYNC + "red", effect="reduction", types="b:type policy:-")
    .form(f"red{_ORDER}{{.ss}}.bitop{_HINT}.type [a], b{{, policy}}", type="b32 b64")
    .form(f"red{_ORDER}{{.ss}}.add{_HINT}.type   [a], b{{, policy}}", type="u32 u64 s32 s64 f32 f64")
    .form(f"red{_ORDER}{{.ss}}.count{_HINT}.u32  [a], b{{, policy}}", types="b:u32 policy:-")
    .form(f"red{_ORDER}{{.ss}}.bound{_HINT}.type [a], b{{, policy}}", type="u32 u64 s32 s64")
    .form(f"red{_ORDER}{{.ss}}.add.noftz{_HINT}.type          [a], b{{, policy}}", type=_HALVES)
    .form(f"red{_ORDER}{{.global}}.add{_HINT}.vec.f32         [a], b{{, policy}}", types="b:f32 policy:-", vec="v2 v4", spaces="a:global")
    .form(f"red{_ORDER}{{.global}}.each.noftz{_HINT}.vec.type [a], b{{, policy}}", vec="v2 v4 v8", type="f16 bf16", spaces="a:global")
    .form(f"red{_ORDER}{{.global}}.each.noftz{_HINT}.vec.type [a], b{{, policy}}", vec="v2 v4", type=_PACKED, spaces="a:global")
    .where(sem="relaxed release", scope=_SCOPES, ss=_SHARED_OR_GLOBAL, **_ATOMIC_OPERATIONS),
    op("prefetch", manual=_SECTION + "prefetch-prefetchu", effect="prefetch")
    .form("prefetch{.ss}.level        [a]", ss="global local")
    .form("prefetch{.ss}.l2eviction    [a]", ss="global")
    .form("prefetch{.ss}.tensormap    [a]", ss="const param")
    .where(level="L1 L2", l2eviction="L2::evict_last L2::evict_normal"),
    op("prefetchu", manual=_SECTION + "prefetch-prefetchu", effect="prefetch").form("prefetchu.L1 [a]"),
    op("applypriority", manual=_SECTION + "applypriority", effect="prefetch", types="size:-").form(
        "applypriority{.global}.L2::evict_normal [a], size"
    ),
    op("discard", manual=_SECTION + "discard", effect="prefetch", types="size:-").form("discard{.global}.L2 [a], size"),
    op("createpolicy", manual=_SECTION + "createpolicy", types="d:b64 fraction:f32 a:- primary:u32 total:u32")
    .form("createpolicy.fractional.first{.second}.b64           d{, fraction}")
    .form("createpolicy.range{.global}.first{.second}.b64       d, [a], primary, total", spaces="a:global")
    .form("createpolicy.cvt.L2.b64                              d, a", types="d:b64 a:b64")
    .where(
        first="L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
        second="L2::evict_first L2::evict_unchanged",
    ),
    op("isspacep", manual=_SECTION + "isspacep", types="a:-", writes="p")
    .form("isspacep.ss p, a")
    .where(ss="const global local shared shared::cta shared::cluster param param::entry"),
    op("cvta", manual=_SECTION + "cvta")
    .form("cvta.space.size d, a", types="d:size a:size")
    .form("cvta.to.space.size d, a", types="d:size a:size")
    .where(space="const global local shared shared::cta shared::cluster param param::entry", size="u32 u64"),
    op("mapa", manual=_SECTION + "mapa", types="d:type a:type b:u32")
    .form("mapa{.space}.type d, a, b")
    .where(space="shared::cluster", type="u32 u64"),
    op("getctarank", manual=_SECTION + "getctarank", types="d:u32 a:type")
    .form("getctarank{.space}.type d, a")
    .where(space="shared::cluster", type="u32 u64"),
)
