"""What a target saw by itself, as counts by site."""

from __future__ import annotations

from collections.abc import Mapping

from memlane.launch import COUNT_FIELDS, Observation
from memlane.record import Site, SiteCounts

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
