"""Format transactions per request next to the fewest that the same bytes need."""

from __future__ import annotations

from memlane.number_format import UNKNOWN, rounded

ALARMING = 1.5
"""Ratio of transactions to ideal from which on a number is coloured. Only a colour: `diagnose` decides what is a finding."""


def mean(total: int | None, requests: int) -> float | None:
    """Return a total divided by the number of requests; None where it is not known."""
    return None if total is None or requests == 0 else total / requests


def with_ideal(value: float | None, ideal: float | None) -> str:
    """Return `32 (4)`, or the value alone where no ideal is known."""
    if value is None:
        return UNKNOWN
    return rounded(value) if ideal is None else f"{rounded(value)} ({rounded(ideal)})"


def is_alarming(value: float | None, ideal: float | None) -> bool:
    """Return whether a number of transactions is coloured; never where the ideal is 0 or not known."""
    return value is not None and bool(ideal) and value >= ALARMING * (ideal or 0)
