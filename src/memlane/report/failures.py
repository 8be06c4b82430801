"""Report failures: without a note, a partial report would be taken for a complete one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memlane.record import kernel_label

if TYPE_CHECKING:
    from memlane.measure import FailedLaunch


def broken_off_note(why: str) -> str:
    """Return a note that the program failed, and what that means for a report."""
    return f"The program failed: {why.rstrip('.')}. Launches after that are missing here."


def failed_notes(why: str, launches: Sequence[FailedLaunch] = (), lacking: str = "") -> list[str]:
    """Return one line for each failure: failed launches that did not end the program, then the program itself if `why` is not empty.

    `lacking`: a sentence that tells what the report lacks of these launches.
    """
    others = [one for one in launches if one.why != why]
    notes = [f"Launch {one.number} ({kernel_label(one.kernel)}) failed: {one.why.rstrip('.')}. {lacking}".rstrip() for one in others]
    return [*notes, broken_off_note(why)] if why else notes


def failed_fields(why: str, launches: Sequence[FailedLaunch]) -> dict[str, Any]:
    """Return the failures as fields of a JSON document."""
    return {
        "failed": why or None,
        "failed_launches": [{"id": one.number, "kernel": one.kernel, "why": one.why} for one in launches],
    }
