"""What one access of a warp costs: the reference definitions, one access at a time. `batch` has the same functions over many.

An access is the addresses of the 32 lanes (uint64, bytes; what an inactive lane holds is ignored), the mask of its active lanes (bit i is
lane i, or 32 booleans), and the bytes that each lane asks for: 1, 2, 4, 8 or 16, naturally aligned as PTX demands. An access without an
active lane costs nothing. Words are those of Nsight Compute: a *sector* is an aligned piece of 32 bytes, a *wavefront* a pass through the
memory pipe.

Sources. Sectors, lines, tags: answers of the Nsight Compute team on NVIDIA's developer forum, for Volta and later. Banks: the CUDA C++
Programming Guide for accesses of up to 4 bytes; for 8 and 16 bytes what NVIDIA said on the forum of compute capability 7.x, and what
Nsight Compute counts on an H200 in a hundred patterns. Segments and single broadcast: the CUDA C Programming Guide 4.2, sections F.3.2
and F.3.3. Local memory, whose copies are interleaved by words: the page on local memory statistics of Nsight's documentation. The numbers
in these rules are data of the chip (`BankRule`, `CoalescingRule`).

Loads, stores and atomics may follow different rules; which, and who says so, is data of the chip too (`Chip.bank_rule`,
`Chip.piece_bytes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from memlane.chip.model import AccessKind, BankRule, Chip

Addresses = npt.NDArray[np.uint64] | Sequence[int]
Mask = int | npt.NDArray[np.bool_] | Sequence[bool]
Lane = tuple[int, int]
"""Number and address of an active lane."""

WIDTHS = (1, 2, 4, 8, 16)


def transactions(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Pieces of memory that move: sectors, lines where L1 is filled by the line, or segments of 32 to 128 bytes."""
    return sum(1 for group in _coalescing_groups(chip, addresses, active, nbytes) for _ in _pieces(chip, group, nbytes, kind))


def sectors(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Sectors that move: those of the distinct pieces that hold a byte asked for, counted in each group of lanes that is served
    together."""
    moved = sum(size for group in _coalescing_groups(chip, addresses, active, nbytes) for size in _pieces(chip, group, nbytes, kind))
    return moved // chip.sector_bytes


def ideal_sectors(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> int:
    """Sectors that the distinct bytes asked for would fill if they lay side by side."""
    return -(-len(_bytes(_lanes(addresses, active, nbytes), nbytes)) // chip.sector_bytes)


def local_sectors(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> int:
    """Sectors of local memory, each lane's address being one in its own copy.

    The copies of a warp are interleaved by words of 4 bytes: word k of all lanes is one line of 128 bytes.
    """
    lanes = _lanes(addresses, active, nbytes)
    at = {(address + offset) // 4 * 128 + lane * 4 for lane, address in lanes for offset in range(nbytes)}
    return len({byte // chip.sector_bytes for byte in at})


def ideal_local_sectors(chip: Chip, active: Mask, nbytes: int) -> int:
    """Sectors that the words asked for would fill if they lay side by side: no two lanes share a word."""
    lanes = _lanes([0] * 32, active, nbytes)
    return -(-len(lanes) * max(4, nbytes) // chip.sector_bytes)


def tag_wavefronts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> int:
    """Passes that a global access needs to look up the tags of its distinct lines."""
    lines = (
        len({byte // chip.line_bytes for byte in _bytes(group, nbytes)}) for group in _coalescing_groups(chip, addresses, active, nbytes)
    )
    return sum(-(-count // chip.coalescing.lines_per_wavefront) for count in lines)


def wavefronts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Wavefronts of a shared-memory access: those of its passes through the banks that have an active lane."""
    rule = chip.bank_rule(kind)
    return (rule.times or 1) * sum(
        _conflict_degree(rule, group, width) + rule.extra(width)
        for starts, width in _requests(rule, addresses, nbytes)
        for group in _passes(rule, starts, active, width)
    )


def bank_cycles(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Cycles for which a shared-memory access keeps the banks: one for each wavefront of a pass, but no less than one for each pass.

    A pass without an active lane takes its cycle too. Passes merge in pairs where those of the whole warp do, also with conflicts, which
    are counted as if they did not: so this may be less than the wavefronts. Measured on an H200; elsewhere assumed.
    """
    rule = chip.bank_rule(kind)
    cycles = 0
    for starts, width in _requests(rule, addresses, nbytes):
        lanes, size = _lanes(starts, active, width), rule.lanes(width)
        if rule.merge == "neighbours" and size < 32 and (_agree(lanes, 1) or _agree(lanes, 2)):
            size *= 2
        groups = [group for first in range(0, 32, size) if (group := _within(lanes, first, size))]
        if groups:
            cycles += max(32 // size, sum(_conflict_degree(rule, group, width) + rule.extra(width) for group in groups))
    return (rule.times or 1) * cycles


def ideal_wavefronts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Wavefronts of the same passes if the distinct bytes of each were spread evenly over the banks."""
    rule = chip.bank_rule(kind)
    row_bytes = rule.banks * rule.bank_bytes * rule.row_words
    return (rule.times or 1) * sum(
        -(-len(_bytes(group, width)) // row_bytes)
        for starts, width in _requests(rule, addresses, nbytes)
        for group in _passes(rule, starts, active, width)
    )


def conflicts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Wavefronts beyond the ideal: bank conflicts, and lanes of an atomic that wait for each other at one word."""
    return wavefronts(chip, addresses, active, nbytes, kind) - ideal_wavefronts(chip, addresses, active, nbytes, kind)


def distinct_addresses(addresses: Addresses, active: Mask, nbytes: int) -> tuple[int, int]:
    """The different addresses of the active lanes, and the most lanes at one of them."""
    lanes = Counter(address for _, address in _lanes(addresses, active, nbytes))
    return len(lanes), max(lanes.values(), default=0)


def _lanes(addresses: Addresses, active: Mask, nbytes: int) -> list[Lane]:
    """The active lanes in order; ValueError for what is no access."""
    if nbytes not in WIDTHS:
        raise ValueError(f"a lane cannot access {nbytes} bytes; it is one of {WIDTHS}")
    if isinstance(active, int | np.integer):
        flags: Iterable[bool] = (bool(int(active) >> lane & 1) for lane in range(32))
    else:
        flags = active
    return [(lane, int(address)) for lane, (address, on) in enumerate(zip(addresses, flags, strict=True)) if on]


def _bytes(lanes: Iterable[Lane], nbytes: int) -> set[int]:
    return {address + offset for _, address in lanes for offset in range(nbytes)}


def _coalescing_groups(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> list[list[Lane]]:
    """The active lanes that are served together, groups without one left out."""
    size = chip.coalescing.lanes(nbytes)
    lanes = _lanes(addresses, active, nbytes)
    groups = ([one for one in lanes if first <= one[0] < first + size] for first in range(0, chip.warp_size, size))
    return [group for group in groups if group]


def _pieces(chip: Chip, group: list[Lane], nbytes: int, kind: AccessKind) -> list[int]:
    """Sizes in bytes of what moves for one group of lanes."""
    return [size for _, size in _pieces_at(chip, group, nbytes, kind)]


def _pieces_at(chip: Chip, group: list[Lane], nbytes: int, kind: AccessKind) -> list[tuple[int, int]]:
    """Address and size in bytes of what moves for one group of lanes."""
    if chip.coalescing.transactions == "sectors":
        size = chip.piece_bytes(kind)
        return [(number * size, size) for number in sorted({byte // size for byte in _bytes(group, nbytes)})]
    pieces = []
    while group:
        size = {1: 32, 2: 64}.get(nbytes, 128)
        start = group[0][1] // size * size
        served = [one for one in group if start <= one[1] < start + size]
        group = [one for one in group if one not in served]
        while size > chip.sector_bytes:
            halves = {(byte - start) // (size // 2) for byte in _bytes(served, nbytes)}
            if len(halves) == 2:
                break
            size //= 2
            start += size * halves.pop()
        pieces.append((start, size))
    return pieces


def _requests(rule: BankRule, addresses: Addresses, nbytes: int) -> list[tuple[list[int], int]]:
    """The requests that an access is made of: their addresses, and the bytes that each lane asks for."""
    starts = [int(address) for address in addresses]
    if rule.wide == "at once" or nbytes <= rule.bank_bytes or nbytes not in WIDTHS:
        return [(starts, nbytes)]
    return [([start + word for start in starts], rule.bank_bytes) for word in range(0, nbytes, rule.bank_bytes)]


def _passes(rule: BankRule, addresses: Addresses, active: Mask, nbytes: int) -> list[list[Lane]]:
    """The lanes of each pass through the banks that has any; passes that merge are one."""
    lanes, size = _lanes(addresses, active, nbytes), rule.lanes(nbytes)
    if size == 32:
        return [lanes] if lanes else []
    passes = []
    for first in range(0, 32, 2 * size):
        pair = _within(lanes, first, 2 * size)
        agree = rule.merge == "neighbours" and (_agree(pair, 1) or _agree(lanes, 2))
        together = agree and (not pair or _conflict_degree(rule, pair, nbytes) == 1)
        passes += [pair] if together else [_within(pair, first, size), _within(pair, first + size, size)]
    return [group for group in passes if group]


def _within(lanes: list[Lane], first: int, count: int) -> list[Lane]:
    return [one for one in lanes if first <= one[0] < first + count]


def _agree(lanes: list[Lane], step: int) -> bool:
    """Whether every lane has the address of lane^step, as far as that is among them."""
    at = dict(lanes)
    return all(at.get(lane ^ step, address) == address for lane, address in lanes)


def _conflict_degree(rule: BankRule, lanes: list[Lane], nbytes: int) -> int:
    """Wavefronts of one pass with an active lane."""
    row_bytes = rule.banks * rule.bank_bytes * rule.row_words
    if rule.same_word == "one by one":
        asked = Counter(bank for lane in lanes for bank in {byte // rule.bank_bytes % rule.banks for byte in _bytes([lane], nbytes)})
        return max(asked.values())
    if rule.broadcast == "one word":
        return _single_broadcast_steps(rule, lanes, nbytes)
    rows: dict[int, set[int]] = {}
    for byte in _bytes(lanes, nbytes):
        rows.setdefault(byte // rule.bank_bytes % rule.banks, set()).add(byte // row_bytes)
    return max(len(distinct) for distinct in rows.values())


def _single_broadcast_steps(rule: BankRule, lanes: list[Lane], nbytes: int) -> int:
    """Steps when each can hand one word to many lanes and from every other bank one word to one lane.

    Which word is broadcast is unspecified; taken is that of the first lane left, and in each other bank that bank's first lane.
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
