"""What a target saw by itself, as counts by site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memlane.instrument import place_of
from memlane.launch import COUNT_FIELDS, Kernel, Observation
from memlane.ptx import Function, Instruction
from memlane.record import BranchCounts, Site, SiteCounts

_FIELD = {name: index for index, name in enumerate(COUNT_FIELDS)}


def site_counts(observation: Observation, sites: Mapping[int, Site]) -> tuple[SiteCounts, ...]:
    """The counts of the sites that were executed; `sites` maps an instruction's index to its site."""
    return tuple(_of_site(site, observation.counts[index]) for index, site in sorted(sites.items()) if index in observation.counts)


def _of_site(site: Site, fields: object) -> SiteCounts:
    def field(name: str) -> int:
        return int(fields[_FIELD[name]])  # type: ignore[index]

    return SiteCounts(
        site=site,
        requests=field("requests"),
        lanes=field("lanes"),
        bytes=field("bytes"),
        sectors=field("sectors") if site.has_sectors else None,
        ideal_sectors=field("ideal_sectors") if site.has_sectors else None,
        wavefronts=field("wavefronts") if site.has_wavefronts else None,
        ideal_wavefronts=field("ideal_wavefronts") if site.has_wavefronts else None,
        addresses=field("addresses") if site.is_atomic else None,
        most_lanes_at_address=field("most_lanes") if site.is_atomic else None,
    )


def branch_counts(observation: Observation, kernel: Kernel) -> tuple[BranchCounts, ...]:
    """The conditional branches of `kernel` that were executed: by itself, or by a twin of it with probes, whose own do not count."""
    ran = observation.launch.kernel.function
    found = []
    for index, branch in _shared(_branches(ran), [branch for _, branch in _branches(kernel.function)]):
        if index in observation.counts:
            fields = observation.counts[index]
            file, line, _ = place_of(kernel.module, branch)
            found.append(BranchCounts(kernel.title, file, line, int(fields[_FIELD["requests"]]), int(fields[_FIELD["divergent"]])))
    return tuple(found)


def _branches(function: Function) -> list[tuple[int, Instruction]]:
    """With their indices among the instructions."""
    assert function.body is not None
    return [(index, one) for index, one in enumerate(function.body.instructions()) if one.form.effect == "branch"]


def _shared(branches: list[tuple[int, Instruction]], originals: list[Instruction]) -> Iterator[tuple[int, Instruction]]:
    """Those of `branches` that are `originals`, which stand among them in their order; the labels of probes are no kernel's."""
    following = iter(originals)
    wanted = next(following, None)
    for index, branch in branches:
        if wanted is not None and (branch.operands, branch.guard) == (wanted.operands, wanted.guard):
            yield index, wanted
            wanted = next(following, None)
