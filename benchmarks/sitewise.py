"""Compare memlane's counts of each site with those of the profiler for the instructions that were assembled from the site."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ncu import Counted, Disassembled

from memlane.audit import exactness
from memlane.audit.assembled_module import AssembledModule
from memlane.audit.exact_accesses import SiteExactness
from memlane.chip import LANES
from memlane.instrument.sites import site_table
from memlane.ptx import Module
from memlane.record import EXACT, SiteCounts
from memlane.sass import disassemble

METRICS = {
    "lanes": "thread_inst_executed_true",
    "sectors": "memory_l2_theoretical_sectors_global",
    "wavefronts": "memory_l1_wavefronts_shared",
    "ideal_sectors": "memory_l2_theoretical_sectors_global_ideal",
    "ideal_wavefronts": "memory_l1_wavefronts_shared_ideal",
}
"""Metric of the profiler that means the same, by field of `SiteCounts`."""

EXECUTIONS = "inst_executed"

COMPARED = ("lanes", "sectors", "wavefronts")
"""Fields that must be equal for an exact site. What is ideal is a definition, and compared for itself."""
IDEALS = ("ideal_sectors", "ideal_wavefronts")

_GLOBAL, _SHARED = ("global", "generic"), ("shared", "shared::cluster", "generic")
_SPACES = {"sectors": _GLOBAL, "ideal_sectors": _GLOBAL, "wavefronts": _SHARED, "ideal_wavefronts": _SHARED}


@dataclass(frozen=True)
class Compared:
    """One site, or the sites that the assembler made one access of."""

    label: str
    """`line 12, ld.global.f32`."""
    kind: str
    space: str
    """Address space, as in `Site`."""
    verdict: str
    """`exact`, `merged` or `hint`."""
    reason: str
    """Why it is not exact."""
    ours: Mapping[str, int]
    """Counts of memlane by field of `SiteCounts`. The lanes of matrix loads are those that execute, as the profiler counts them, and not
    only those that name rows."""
    theirs: Mapping[str, float]
    """Counts of the profiler by the same fields; empty if nothing was assembled from the site."""
    opcodes: tuple[str, ...]
    """Opcodes of the instructions that were assembled from the site."""
    requests: int
    """Executions by a warp with an active lane, by memlane."""
    executions: float
    """Executions by a warp, by the profiler; also those without an active lane."""
    sites: int = 1
    misread: int = 0
    """Instructions of which the profiler's transactions are no evidence (`Counted.is_misread`)."""

    def differing(self, fields: Sequence[str] = COMPARED) -> list[str]:
        """Return the fields that are not equal."""
        return [name for name in fields if name in self.ours and self.ours[name] != self.theirs.get(name, 0)]

    def excess(self, name: str) -> float:
        """Return how much more the profiler counted in a field; 0 where it is not compared."""
        return self.theirs.get(name, 0) - self.ours[name] if name in self.ours else 0.0

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {self.ours[name]:g}, profiler {self.theirs.get(name, 0):g}" for name in self.differing())
        return f"{self.label} ({' + '.join(dict.fromkeys(self.opcodes)) or 'nothing'}): {numbers}"

    def split(self) -> str:
        """Return what explains a difference where the lanes agree and only their transactions do not: the lanes came in smaller groups."""
        same_lanes = "lanes" in self.ours and not self.differing(["lanes"])
        if same_lanes and self.differing() and self.executions > self.requests:
            return f"the same lanes in {self.executions:g} executions, not {self.requests}: the assembled code did not bring them together"
        return ""


class Code:
    """A module and its assembled code."""

    def __init__(self, assembled: AssembledModule) -> None:
        self.assembled = assembled
        self.verdicts: Mapping[int, SiteExactness] = {one.site: one for one in exactness(assembled.module, assembled.program)}
        self._inlined = site_table(assembled.module).inlined

    @classmethod
    def of(cls, module: Module, cubin: bytes) -> Code:
        return cls(AssembledModule(module, disassemble(cubin)))

    def compared(self, kernel: str, counts: Sequence[SiteCounts], profiled: Disassembled) -> list[Compared]:
        """Return the sites of one launch of the kernel with that PTX name. RuntimeError if the profiler saw other code.

        Sites in functions that it calls are left out: the profiler's page has the instructions of the kernel alone. The totals have them.
        """
        at = {one.offset: one for one in profiled.instructions}
        groups: dict[tuple[int, ...], list[SiteCounts]] = defaultdict(list)
        for entry in counts:
            if self._inlined.origin(kernel, entry.site.instruction).function == kernel:
                groups[self.verdicts[entry.site.id].merged or (entry.site.id,)].append(entry)
        return [self._compare(kernel, entries, at) for entries in groups.values()]

    def is_exact(self, entry: SiteCounts) -> bool:
        """Return whether the site is exact in a launch with these counts."""
        verdict = self.verdicts[entry.site.id]
        return verdict.verdict == EXACT or (verdict.exact_if_full and entry.is_full)

    def _compare(self, kernel: str, entries: list[SiteCounts], at: Mapping[int, Counted]) -> Compared:
        made = [one for entry in entries for one in self._made(kernel, entry, at)]
        first, verdict = entries[0], self.verdicts[entries[0].site.id]
        exact = all(map(self.is_exact, entries))
        several = f"{len(entries)} x " if len(entries) > 1 else ""
        return Compared(
            label=f"line {first.site.line}, {several}{first.site.op}",
            kind=first.site.kind,
            space=first.site.space,
            verdict=EXACT if exact else verdict.verdict,
            reason="" if exact else verdict.reason,
            ours=_ours(entries),
            theirs={name: sum(one.metrics.get(metric, 0) for one in made) for name, metric in METRICS.items()} if made else {},
            opcodes=tuple(one.opcode for one in made),
            requests=sum(entry.requests for entry in entries),
            executions=sum(one.metrics.get(EXECUTIONS, 0) for one in made),
            sites=len(entries),
            misread=sum(one.is_misread for one in made),
        )

    def _made(self, kernel: str, entry: SiteCounts, at: Mapping[int, Counted]) -> list[Counted]:
        """Return the profiled instructions that were assembled from a site."""
        found = []
        index = self._inlined.origin(kernel, entry.site.instruction).instruction
        for node in self.assembled.accesses(kernel, index, entry.site.space):
            instruction = self.assembled.flow.nodes[node]
            seen = at.get(instruction.offset)
            if seen is None or seen.opcode.partition(".")[0] != instruction.opcode:
                raise RuntimeError(f"at {instruction.offset:#x} of {kernel} is {instruction.name}, and the profiler saw {seen}")
            found.append(seen)
        return found


def _ours(entries: list[SiteCounts]) -> dict[str, int]:
    """Return the sums of the fields that can be compared. Lanes are left out for several sites, because a merged access has each lane once.
    An asynchronous copy has the sectors of its load and the wavefronts of its store."""
    space, both = entries[0].site.space, entries[0].site.kind == "copy"
    ours = {}
    for name in METRICS:
        values = [getattr(entry, name) for entry in entries]
        wanted = len(entries) == 1 if name == "lanes" else both or space in _SPACES[name]
        if wanted and None not in values:
            ours[name] = sum(values)
    if "lanes" in ours:
        ours["lanes"] = ours["lanes"] * LANES // entries[0].site.full_lanes
    return ours
