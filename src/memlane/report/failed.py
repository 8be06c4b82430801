"""What broke off, said aloud: a report of a part would read as a report of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memlane.record import kernel_label

if TYPE_CHECKING:
    from memlane.measure import FailedLaunch


def broken_off_note(why: str) -> str:
    """Say that the program broke off, and what that means for a report."""
    return f"The program failed: {why.rstrip('.')}. Launches after that are missing here."


def failed_notes(why: str, launches: Sequence[FailedLaunch] = (), lacking: str = "") -> list[str]:
    """What broke off, one line each: the program, for the reason `why` unless that is empty, and launches that did not end it.

    `lacking`: what the report lacks of these launches, as a sentence.
    """
    others = [one for one in launches if one.why != why]
    notes = [f"Launch {one.number} ({kernel_label(one.kernel)}) failed: {one.why.rstrip('.')}. {lacking}".rstrip() for one in others]
    return [*notes, broken_off_note(why)] if why else notes


def failed_fields(why: str, launches: Sequence[FailedLaunch]) -> dict[str, Any]:
    """The same as fields of a document."""
    return {
        "failed": why or None,
        "failed_launches": [{"id": one.number, "kernel": one.kernel, "why": one.why} for one in launches],
    }
