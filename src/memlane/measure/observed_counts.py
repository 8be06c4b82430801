"""Convert the observations of a target to counts by site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from memlane.instrument import place_of
from memlane.launch import COUNT_FIELDS, Kernel, Observation
from memlane.ptx import Function, Instruction
from memlane.record import BranchCounts, Site, SiteCounts

_FIELD = {name: index for index, name in enumerate(COUNT_FIELDS)}


def site_counts(observation: Observation, sites: Mapping[int, Site]) -> tuple[SiteCounts, ...]:
    """Return the counts of the executed sites; `sites` maps an instruction's index to its site."""
    return tuple(_site_counts(site, observation.counts[index]) for index, site in sorted(sites.items()) if index in observation.counts)


def summed_counts(observation: Observation, places: Mapping[int, tuple[int, ...]]) -> dict[int, npt.NDArray[np.int64]]:
    """Return the fields of `COUNT_FIELDS` summed over the instructions that represent each key of `places`; only executed keys."""
    found: dict[int, npt.NDArray[np.int64]] = {}
    for one, indices in places.items():
        rows = [observation.counts[index] for index in indices if index in observation.counts]
        if rows:
            found[one] = np.sum(rows, axis=0)
            found[one][_FIELD["most_lanes_at_address"]] = max(int(row[_FIELD["most_lanes_at_address"]]) for row in rows)
    return found


def counts_of_sites(counts: Mapping[int, npt.NDArray[np.int64]], sites: Mapping[int, Site]) -> tuple[SiteCounts, ...]:
    """Return the counts from `summed_counts` as counts of these sites, ordered by number."""
    return tuple(_site_counts(sites[number], fields) for number, fields in sorted(counts.items()))


def _site_counts(site: Site, fields: npt.NDArray[np.int64]) -> SiteCounts:
    """Return the counts of a site from the fields of an observation; fields that do not apply to the site are None."""

    def field(name: str) -> int:
        return int(fields[_FIELD[name]])

    return (
        SiteCounts(
            site=site,
            requests=field("requests"),
            lanes=field("lanes"),
            bytes=field("bytes"),
            sectors=field("sectors") if site.has_sectors or site.is_box else None,
            ideal_sectors=field("ideal_sectors") if site.has_sectors or site.is_box else None,
            wavefronts=field("wavefronts") if site.has_wavefronts else None,
            ideal_wavefronts=field("ideal_wavefronts") if site.has_wavefronts else None,
            addresses=field("addresses") if site.is_atomic else None,
            most_lanes_at_address=field("most_lanes_at_address") if site.is_atomic else None,
        )
        .of_known_memory()
        .of_products()
    )


def branch_counts(observation: Observation, kernel: Kernel) -> tuple[BranchCounts, ...]:
    """Return the counts of the executed conditional branches of `kernel`, which ran itself or as an instrumented copy, without those of
    probes."""
    ran = observation.launch.kernel.inlined
    originals = [branch for _, branch in _branches(kernel.inlined)]
    places: dict[int, tuple[int, ...]] = {}
    for index, number in _original_branches(_branches(ran), originals):
        places[number] = (*places.get(number, ()), index)
    found = []
    for number, fields in summed_counts(observation, places).items():
        file, line, _ = place_of(kernel.module, originals[number])
        found.append(BranchCounts(kernel.title, file, line, int(fields[_FIELD["requests"]]), int(fields[_FIELD["divergent"]])))
    return tuple(found)


def _branches(function: Function) -> list[tuple[int, Instruction]]:
    """Return the branches of a function with their instruction indices."""
    return [(index, one) for index, one in enumerate(function.instructions()) if one.form.effect == "branch"]


def _original_branches(branches: list[tuple[int, Instruction]], originals: list[Instruction]) -> Iterator[tuple[int, int]]:
    """Yield the branches that are `originals`, each with its index among these.

    They occur in the same order, and a second time if an instrumented copy contains the original body too; the labels of probes are
    distinct from the kernel's.
    """
    number = 0
    for index, branch in branches:
        if originals and (branch.operands, branch.guard) == (originals[number].operands, originals[number].guard):
            yield index, number
            number = (number + 1) % len(originals)
