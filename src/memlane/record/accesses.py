"""Group the sites of a source line into accesses.

The compiler makes several instructions of one access, as in an unrolled loop, and one line may have several accesses: `c = a[i] + b[i]`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence

from memlane.record.counts import SiteCounts
from memlane.record.site import Place, Site

SAME = 0.05
"""Relative difference up to which transactions per request count as equal."""


def access_groups(sites: Iterable[Site], counts: Mapping[int, SiteCounts]) -> list[list[int]]:
    """Return the indices of the instructions of each access, ascending, by their counts where they have some.

    Instructions at one place form one access, unless they differ in array, column or call path and also in the transactions per request:
    two arrays of one line with the same access pattern are one access, named after both.
    """
    places: dict[Place, dict[Hashable, list[int]]] = {}
    for site in sites:
        key = site.array, site.argument, site.column, site.calls, site.inlined
        places.setdefault(site.place, {}).setdefault(key, []).append(site.instruction)
    return [group for parts in places.values() for group in _merge_equal(list(parts.values()), counts)]


def _merge_equal(parts: Sequence[list[int]], counts: Mapping[int, SiteCounts]) -> list[list[int]]:
    """Merge the parts of a place that have equal transactions per request; uncounted parts join the first group."""
    groups: list[tuple[tuple[float, float], list[int]]] = []
    silent: list[int] = []
    for part in parts:
        counted = [counts[one] for one in part if one in counts]
        requests = sum(one.requests for one in counted)
        if not requests:
            silent += part
            continue
        moved = sum(one.sectors or 0 for one in counted) / requests, sum(one.wavefronts or 0 for one in counted) / requests
        same = next((group for figures, group in groups if all(map(_is_same, figures, moved))), None)
        if same is None:
            groups.append((moved, part))
        else:
            same += part
    found = [sorted(group) for _, group in groups]
    return [sorted(found[0] + silent), *found[1:]] if found else [sorted(silent)]


def _is_same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=SAME)
