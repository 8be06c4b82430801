"""Group the lanes of one warp access that are served together: groups for coalescing, and passes through the banks.

`access` computes the cost of the groups, `served` lists them one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from memlane.chip.model import LANES, WIDTHS, AccessKind, BankRule, Chip
from memlane.number_format import plural

Addresses = npt.NDArray[np.uint64] | Sequence[int]
Mask = int | npt.NDArray[np.bool_] | Sequence[bool]
Lane = tuple[int, int]
"""Index and address of an active lane."""

LOCAL_WORD, LOCAL_ROW = 4, 4 * LANES
"""Bytes of the words by which local memory interleaves the lanes of a warp, and of a row: one word of each lane."""


def active_lanes(addresses: Addresses, active: Mask, nbytes: int) -> list[Lane]:
    """Return the active lanes in order; raise ValueError for an invalid number of bytes."""
    if nbytes not in WIDTHS:
        raise ValueError(f"a lane cannot access {plural(nbytes, 'byte')}; choose one of {WIDTHS}")
    if isinstance(active, int | np.integer):
        flags: Iterable[bool] = (bool(int(active) >> lane & 1) for lane in range(LANES))
    else:
        flags = active
    return [(lane, int(address)) for lane, (address, on) in enumerate(zip(addresses, flags, strict=True)) if on]


def asked_bytes(lanes: Iterable[Lane], nbytes: int) -> set[int]:
    """Return the set of the addresses of all bytes that the lanes request."""
    return {address + offset for _, address in lanes for offset in range(nbytes)}


def coalescing_groups(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> list[list[Lane]]:
    """Return the groups of active lanes that are served together; groups without an active lane are left out."""
    size = chip.coalescing.lanes(nbytes)
    lanes = active_lanes(addresses, active, nbytes)
    groups = (within(lanes, first, size) for first in range(0, LANES, size))
    return [group for group in groups if group]


def moved_pieces(chip: Chip, group: list[Lane], nbytes: int, kind: AccessKind) -> list[tuple[int, int]]:
    """Return the address and size in bytes of each transaction of one group of lanes."""
    if chip.coalescing.transactions == "sectors":
        size = chip.piece_bytes(kind)
        return [(number * size, size) for number in sorted({byte // size for byte in asked_bytes(group, nbytes)})]
    pieces = []
    while group:
        size = {1: 32, 2: 64}.get(nbytes, 128)
        start = group[0][1] // size * size
        served = [one for one in group if start <= one[1] < start + size]
        group = [one for one in group if one not in served]
        while size > chip.sector_bytes:
            halves = {(byte - start) // (size // 2) for byte in asked_bytes(served, nbytes)}
            if len(halves) == 2:
                break
            size //= 2
            start += size * halves.pop()
        pieces.append((start, size))
    return pieces


def requests(rule: BankRule, addresses: Addresses, nbytes: int) -> list[tuple[list[int], int]]:
    """Split an access into requests: the addresses of the 32 lanes, and the bytes that each lane requests."""
    starts = [int(address) for address in addresses]
    if rule.wide == "at once" or nbytes <= rule.bank_bytes or nbytes not in WIDTHS:
        return [(starts, nbytes)]
    return [([start + word for start in starts], rule.bank_bytes) for word in range(0, nbytes, rule.bank_bytes)]


def bank_passes(rule: BankRule, addresses: Addresses, active: Mask, nbytes: int) -> list[list[Lane]]:
    """Return the active lanes of each pass through the banks; merged passes are one, and passes without an active lane are left out."""
    lanes, size = active_lanes(addresses, active, nbytes), rule.lanes(nbytes)
    if size == LANES:
        return [lanes] if lanes else []
    passes = []
    for first in range(0, LANES, 2 * size):
        pair = within(lanes, first, 2 * size)
        agree = rule.merge == "neighbours" and (partners_agree(pair, 1) or partners_agree(lanes, 2))
        together = agree and (not pair or conflict_degree(rule, pair, nbytes) == 1)
        passes += [pair] if together else [within(pair, first, size), within(pair, first + size, size)]
    return [group for group in passes if group]


def within(lanes: list[Lane], first: int, count: int) -> list[Lane]:
    """Return those of `lanes` whose index is among the `count` from `first` on."""
    return [one for one in lanes if first <= one[0] < first + count]


def partners_agree(lanes: list[Lane], step: int) -> bool:
    """Return whether every lane has the address of lane^step, or lane^step is not among `lanes`."""
    at = dict(lanes)
    return all(at.get(lane ^ step, address) == address for lane, address in lanes)


def conflict_degree(rule: BankRule, lanes: list[Lane], nbytes: int) -> int:
    """Return the wavefronts of one pass, which must have an active lane."""
    row_bytes = rule.banks * rule.bank_bytes * rule.row_words
    if rule.same_word == "one by one":
        asked = Counter(bank for lane in lanes for bank in {byte // rule.bank_bytes % rule.banks for byte in asked_bytes([lane], nbytes)})
        return max(asked.values())
    if rule.broadcast == "one word":
        return _single_broadcast_steps(rule, lanes, nbytes)
    rows: dict[int, set[int]] = {}
    for byte in asked_bytes(lanes, nbytes):
        rows.setdefault(byte // rule.bank_bytes % rule.banks, set()).add(byte // row_bytes)
    return max(len(distinct) for distinct in rows.values())


def _single_broadcast_steps(rule: BankRule, lanes: list[Lane], nbytes: int) -> int:
    """Return the steps of a pass when each step broadcasts one word, and serves one lane from every other bank.

    The choice of the broadcast word is not specified; this takes the word of the first lane left, and in each other bank the first lane.
    """
    words = sorted({(lane, (address + offset) // rule.bank_bytes) for lane, address in lanes for offset in range(nbytes)})
    steps = 0
    while words:
        broadcast = words[0][1]
        served = {broadcast % rule.banks}
        left = []
        for lane, word in words:
            if word == broadcast:
                continue
            if word % rule.banks in served:
                left.append((lane, word))
            served.add(word % rule.banks)
        words = left
        steps += 1
    return steps
