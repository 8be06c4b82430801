"""Prove on the machine code that the times of a site measure what the report says.

A scheme of `memlane.instrument` only adds PTX: ptxas may move, merge or delete any of it. So the machine instructions are read back. For
every copy of a timed site all of the following is shown, or the site is `issue-only`:

1. order      on every path the first clock read, the access and the second clock read follow each other, and no copy of the access
   stands anywhere else; a path that leaves the kernel before the second clock read writes no record;
2. end        no path leads from the access to the second clock read without an instruction that waits for the scoreboard which the
   access raises; for an atomic that one leader lane performs for its warp, none without a wait for the instructions that broadcast the
   result either (`memlane.audit.warp_aggregation`);
3. start      every variable-latency producer of the address, the data or the guard has been waited for before the first clock read, and
   none of them stands between that clock read and the access;
4. record     the start and the end in the record of the site come from these two clock reads, the halves of each in their order, and the
   number in the record is the site's;

for a window that closes in front of a consumer (scheme `exposed`) also

   wait       the clock read before the wait stands between the access and the instruction that waits; nothing has read the value before it,
   only the wait stands between it and the second clock read, and the exposed cycles in the record are the difference of the two;

5. hazards    no instruction of the kernel uses a register that is still to be filled: control words that allow this were not made by
   ptxas, and nothing can be concluded from them.

`memlane.sass.control` describes scoreboards and what it means to wait for one. The proof does not cover effects of the hardware without a
scoreboard, such as when a store becomes visible: stores raise no scoreboard for their completion, and are `issue-only`. Where a store is
timed until other threads can see it, point 2 is shown of its witness instead: on every path from the store to the second clock read there
is a load from its address, at the requested scope, or a fence, and the second clock read waits for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.exposure import ExposedWindows
from memlane.audit.missing_accesses import NO_ACCESS, MissingAccesses
from memlane.audit.windows import Window
from memlane.instrument.probe import ProbeLines
from memlane.instrument.tracing import Traced
from memlane.record import BLOCK_VISIBLE, COMPLETE, DEVICE_VISIBLE, ISSUE_ONLY, Site
from memlane.sass import Program, disassemble

_VISIBLE = (BLOCK_VISIBLE, DEVICE_VISIBLE)


@dataclass(frozen=True, slots=True)
class SiteProof:
    """The result of the proof for one timed site."""

    site: int
    """Number of the site."""
    completeness: str
    """`complete`, `issue-only`, or, for a store that is timed until other threads see it, `block-visible` or `device-visible`."""
    reason: str
    """Why the site is `issue-only`, in words; empty otherwise."""
    copies: int
    """Number of machine instructions that make the access; several where a loop was unrolled or the access was split."""
    also_waits: tuple[str, ...] = ()
    """Other instructions whose results are awaited inside the window, such as `0x01f0 LDG.E`: the measured time may be theirs. For a window
    that closes in front of a consumer, only those awaited in the wait of the consumer.
    """
    shared_waits: tuple[str, ...] = ()
    """Instructions in front of the consumer that wait for the access too, because another result that they need shares its scoreboard.

    The consumer then waits less.
    """


def prove(traced: Traced, assembled: bytes | Program) -> tuple[SiteProof, ...]:
    """Return the proof for each timed site, in the order of their numbers.

    `assembled`: the cubin of `traced.module`, or the program in it. Raises MemlaneError if it belongs to another module, CompileError if it
    is not a cubin, and MissingDependency if nvdisasm is missing.
    """
    program = disassemble(assembled) if isinstance(assembled, bytes) else assembled
    code = AssembledModule(traced.module, program)
    sites = {site.id: site for site in traced.sites}
    proofs: list[SiteProof] = []
    for kernel, found in traced.probes.items():
        code.check(kernel)
        windows = ExposedWindows(code, kernel)
        missing = MissingAccesses(code, kernel, sites, found)
        shown = [_prove(windows, sites[number], probe) for number, probe in found.items()]
        proofs.extend(replace(one, reason=missing.reason(one.site)) if one.reason == NO_ACCESS else one for one in shown)
    return tuple(sorted(proofs, key=lambda proof: proof.site))


def proved_sites(traced: Traced, proofs: Sequence[SiteProof]) -> tuple[Site, ...]:
    """Return the sites of `traced` with the completeness that was proved in place of the intended one."""
    of: Mapping[int, SiteProof] = {proof.site: proof for proof in proofs}
    return tuple(
        replace(site, completeness=of[site.id].completeness, reason=of[site.id].reason) if site.id in of else site for site in traced.sites
    )


def _prove(windows: ExposedWindows, site: Site, probe: ProbeLines) -> SiteProof:
    window = windows.window(site, probe)
    reason = _first_reason(windows, site, window)
    also, shared = ((), ()) if reason else (windows.other_waits(window), windows.shared_waits(window))
    meant = site.completeness if site.completeness in _VISIBLE else COMPLETE
    return SiteProof(site.id, ISSUE_ONLY if reason else meant, reason, len(window.accesses), also, shared)


def _first_reason(windows: ExposedWindows, site: Site, window: Window) -> str:
    """Return why the site is not complete, or an empty string; a reason that the scheme declared comes first, as the most informative."""
    if not window.accesses:
        return NO_ACCESS
    declared = site.reason if site.completeness == ISSUE_ONLY else ""
    ended = windows.unwitnessed if site.completeness in _VISIBLE else windows.end_unwaited
    checks = (windows.hazard, windows.disorder, ended, windows.not_broadcast, windows.start_unordered, windows.wrong_record)
    waits = (windows.consumed_early, windows.work_inside_wait, windows.wrong_exposed_cycles)
    return declared or next((reason for check in (*checks, *waits) if (reason := check(window))), "")
