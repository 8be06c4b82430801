"""Write the note on lines of called functions: the calls over which their numbers are summed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from memlane.record import Site

_MOST = 4
"""Largest number of calls of a line listed individually."""


def called_note(sites: Iterable[Site]) -> str:
    """Return `Called, summed over the calls: odd.cu:2 by helper (odd.cu:9), make (odd.cu:8) > helper (odd.cu:4).`, or an empty string."""
    ways: dict[tuple[str, int], dict[str, None]] = {}
    for site in sites:
        if site.calls:
            ways.setdefault((PurePath(site.file).name, site.line), {})[site.called] = None
    told = [f"{file}:{line} by {_told(list(found))}" for (file, line), found in sorted(ways.items())]
    return f"Called, summed over the calls: {'; '.join(told)}." if told else ""


def _told(ways: list[str]) -> str:
    left = len(ways) - _MOST
    return ", ".join(ways[:_MOST]) + (f" and {left:,} more" if left > 0 else "")
