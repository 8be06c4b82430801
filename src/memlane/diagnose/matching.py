"""Match the lines of two versions of a kernel by their text, not by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from memlane.diagnose.side import Line


@dataclass
class Matched:
    """Matched pairs of lines and unmatched lines; each in the order of its side."""

    pairs: list[tuple[Line, Line]]
    only_before: list[Line]
    only_after: list[Line]


def match_lines(before: Sequence[Line], after: Sequence[Line]) -> Matched:
    """Pair the accesses of two versions of a kernel.

    First come lines of equal text and opcode in the longest common order, so that lines which only moved keep their partners; then, among
    the rest, lines of equal text elsewhere; then lines with edited text or width between the same neighbours.
    """
    partner: dict[int, int] = {}
    matcher = SequenceMatcher(None, [_exact(line) for line in before], [_exact(line) for line in after], autojunk=False)
    for block in matcher.get_matching_blocks():
        partner.update({block.a + offset: block.b + offset for offset in range(block.size)})
    gaps = [(range(a, b), range(c, d)) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
    everything = range(len(before)), range(len(after))
    _pair(partner, before, after, *everything, _exact)
    _pair(partner, before, after, *everything, _widened)
    for gap in gaps:
        _pair(partner, before, after, *gap, _edited)
    taken = set(partner.values())
    return Matched(
        [(before[one], after[partner[one]]) for one in sorted(partner, key=lambda one: partner[one])],
        [line for number, line in enumerate(before) if number not in partner],
        [line for number, line in enumerate(after) if number not in taken],
    )


def _pair(
    partner: dict[int, int], before: Sequence[Line], after: Sequence[Line], here: range, there: range, key: Callable[[Line], Hashable]
) -> None:
    """Pair unmatched lines of `here` and `there` that are equal by `key`, in their order."""
    taken = set(partner.values())
    free: dict[Hashable, list[int]] = {}
    for number in there:
        if number not in taken:
            free.setdefault(key(after[number]), []).append(number)
    for number in here:
        waiting = [] if number in partner else free.get(key(before[number]), [])
        if waiting:
            partner[number] = waiting.pop(0)


def _exact(line: Line) -> Hashable:
    return line.key, line.op, line.space


def _widened(line: Line) -> Hashable:
    """Return a key that ignores the width of the instruction; a line without text gets a unique key."""
    return (line.key, line.opcode, line.space) if line.key else (line.line, line.op, line.space, id(line))


def _edited(line: Line) -> Hashable:
    return line.opcode, line.space
