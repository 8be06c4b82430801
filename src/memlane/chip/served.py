"""List the transactions or wavefronts of one warp access, each with the lanes that it serves, so that they can be drawn.

`access` defines how many there are. The bytes of a lane are one touch, or one touch per word where the words of lanes are interleaved
(local memory) or served one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memlane.chip.lanes import (
    LOCAL_ROW,
    LOCAL_WORD,
    Addresses,
    Lane,
    Mask,
    active_lanes,
    bank_passes,
    coalescing_groups,
    moved_pieces,
    requests,
)
from memlane.chip.model import AccessKind, BankRule, Chip


@dataclass(frozen=True)
class Touch:
    """Contiguous bytes that one lane requests."""

    lane: int
    address: int
    nbytes: int


@dataclass(frozen=True)
class Piece:
    """Aligned piece of memory that moves in one transaction: one sector or several."""

    start: int
    nbytes: int
    touches: tuple[Touch, ...]
    """All requested bytes in it."""


@dataclass(frozen=True)
class Wavefront:
    """One pass through the banks of shared memory. A wavefront without touches serves no lane and only takes time."""

    touches: tuple[Touch, ...]


def pieces(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> list[Piece]:
    """Return the transactions of an access to global memory; their sectors are those that `access.sectors` counts."""
    found = []
    for group in coalescing_groups(chip, addresses, active, nbytes):
        touches = [Touch(lane, address, nbytes) for lane, address in group]
        found += [_piece(start, size, touches) for start, size in moved_pieces(chip, group, nbytes, kind)]
    return found


def local_pieces(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> list[Piece]:
    """Return the sectors of an access to local memory, where each lane's address is in its own copy.

    Addresses of pieces are those of the interleaved copies: byte b of word w of lane i is at 128 w + 4 i + b.
    """
    width = min(nbytes, LOCAL_WORD)
    touches = [
        Touch(lane, at // LOCAL_WORD * LOCAL_ROW + lane * LOCAL_WORD + at % LOCAL_WORD, width)
        for lane, address in active_lanes(addresses, active, nbytes)
        for at in range(address, address + nbytes, width)
    ]
    size = chip.sector_bytes
    return [_piece(number * size, size, touches) for number in sorted({one.address // size for one in touches})]


def wavefronts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> list[Wavefront]:
    """Return the wavefronts of an access to shared memory in a possible order, as many as `access.wavefronts` counts."""
    rule = chip.bank_rule(kind)
    found = []
    for starts, width in requests(rule, addresses, nbytes):
        for group in bank_passes(rule, starts, active, width):
            found += [Wavefront(tuple(touches)) for touches in _served(rule, group, width)]
            found += [Wavefront(())] * rule.extra(width)
    return found * (rule.times or 1)


def _piece(start: int, size: int, touches: Iterable[Touch]) -> Piece:
    inside = [one for one in touches if one.address < start + size and start < one.address + one.nbytes]
    return Piece(start, size, tuple(inside))


def _served(rule: BankRule, lanes: Sequence[Lane], nbytes: int) -> list[list[Touch]]:
    """Return the touches that each wavefront of one pass serves."""
    if rule.same_word != "one by one" and rule.broadcast == "one word":
        return _by_single_broadcast(rule, lanes, nbytes)
    found: list[list[Touch]] = []
    met: dict[int, list[int]] = {}
    for lane, address in lanes:
        # All lanes request the same number of bytes, naturally aligned, so lanes that share one bank share all their banks.
        row, bank = address // (rule.banks * rule.bank_bytes * rule.row_words), address // rule.bank_bytes % rule.banks
        rows = met.setdefault(bank, [])
        if rule.same_word == "one by one" or row not in rows:
            rows.append(row)
        turn = len(rows) - 1 if rule.same_word == "one by one" else rows.index(row)
        while len(found) <= turn:
            found.append([])
        found[turn].append(Touch(lane, address, nbytes))
    return found


def _by_single_broadcast(rule: BankRule, lanes: Sequence[Lane], nbytes: int) -> list[list[Touch]]:
    """Return the touches of each step of a rule that broadcasts one word, and serves one lane from every other bank."""
    width = min(nbytes, rule.bank_bytes)
    left = [Touch(lane, at, width) for lane, address in lanes for at in range(address, address + nbytes, width)]
    steps = []
    while left:
        broadcast = left[0].address // rule.bank_bytes
        taken, served, rest = {broadcast % rule.banks}, [], []
        for touch in left:
            word = touch.address // rule.bank_bytes
            if word == broadcast or word % rule.banks not in taken:
                served.append(touch)
                taken.add(word % rule.banks)
            else:
                rest.append(touch)
        steps.append(served)
        left = rest
    return steps
