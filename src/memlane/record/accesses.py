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


def groups_of_array(sites: Iterable[Site], counts: Mapping[int, SiteCounts]) -> list[list[int]]:
    """Return accesses as `access_groups`, with those of several lines joined that do the same to one array.

    They have the same width, kind (in global memory), call path and transactions per request, such as `p[i].x` and `p[i].y` on two lines,
    or the loads of a stencil: one cause, and one change to the data, concerns all of them.
    """
    known = {site.instruction: site for site in sites}
    joined: dict[Hashable, list[list[int]]] = {}
    for group in access_groups(known.values(), counts):
        first = known[group[0]]
        arrays = tuple(dict.fromkeys((known[one].array, known[one].argument) for one in group))
        kind = "" if first.space == "shared" else first.kind  # A layout of shared memory concerns loads and stores alike.
        key: Hashable = (first.kernel, first.file, arrays, kind, first.space, first.nbytes, first.calls, first.inlined)
        joined.setdefault(key if all(map(_is_named, arrays)) else first.instruction, []).append(group)
    return [group for groups in joined.values() for group in _merge_equal(groups, counts)]


def _is_named(array: tuple[str, int | None]) -> bool:
    return bool(array[0]) or array[1] is not None
