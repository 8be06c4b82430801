"""Barriers between threads, fences, and programmatic launch order."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "parallel-synchronization-and-communication-instructions-"
_SCOPES = "cta cluster gpu sys"
_BARRIER_TYPES = "a:u32 b:u32 c:pred d:u32"

OPS = (
    op("barrier", manual=_SECTION + "bar", effect="barrier", types=_BARRIER_TYPES)
    .form("barrier{.cta}.sync{.aligned}              a{, b}")
    .form("barrier{.cta}.arrive{.aligned}            a, b")
    .form("barrier{.cta}.red.popc{.aligned}.u32      d, a{, b}, {!}c")
    .form("barrier{.cta}.red.op{.aligned}.pred       p, a{, b}, {!}c")
    .where(op="and or"),
    op("bar", manual=_SECTION + "bar", effect="barrier", types=_BARRIER_TYPES)
    .form("bar{.cta}.sync         a{, b}")
    .form("bar{.cta}.arrive       a, b")
    .form("bar{.cta}.red.popc.u32 d, a{, b}, {!}c")
    .form("bar{.cta}.red.op.pred  p, a{, b}, {!}c")
    .where(op="and or"),
    op("bar.warp.sync", manual=_SECTION + "bar-warp-sync", effect="barrier", types="mask:b32").form("bar.warp.sync mask"),
    op("barrier.cluster", manual=_SECTION + "barrier-cluster", effect="barrier")
    .form("barrier.cluster.arrive{.sem}{.aligned}", sem="release relaxed")
    .form("barrier.cluster.wait{.acquire}{.aligned}"),
    op("membar", manual=_SECTION + "membar-fence", effect="fence").form("membar.level", level="cta gl sys").form("membar.proxy.alias"),
    op("fence", manual=_SECTION + "membar-fence", effect="fence")
    .form("fence{.sem}.scope", sem="sc acq_rel acquire release")
    .form("fence.proxy.kind", kind="alias async")
    .form("fence.proxy.async.space", space="global shared::cta shared::cluster")
    .form("fence.proxy.tensormap::generic.release.scope")
    .form("fence.proxy.tensormap::generic.acquire.scope [a], size", types="size:-")
    .form("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster")
    .form("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster")
    .form("fence.mbarrier_init.release.cluster")
    .form("fence.acquire.sync_restrict::shared::cluster.cluster")
    .form("fence.release.sync_restrict::shared::cta.cluster")
    .where(scope=_SCOPES),
    op("griddepcontrol", manual=_SECTION + "griddepcontrol", effect="fence")
    .form("griddepcontrol.action")
    .where(action="launch_dependents wait"),
)
