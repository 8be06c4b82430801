"""Compute the cost of one access of a warp: the reference definitions. `batch` has the same functions for arrays of accesses.

An access is the addresses of the 32 lanes (uint64, bytes; those of inactive lanes are ignored), the mask of its active lanes (bit i is
lane i, or 32 booleans), and the bytes that each lane requests: 1, 2, 4, 8 or 16, naturally aligned as PTX requires. An access without an
active lane costs nothing. Terms are those of Nsight Compute: a *sector* is an aligned piece of 32 bytes, a *wavefront* a pass through the
memory pipe.

Sources. Sectors, lines, tags: answers of the Nsight Compute team on NVIDIA's developer forum, for Volta and later. Banks: the CUDA C++
Programming Guide for accesses of up to 4 bytes; for 8 and 16 bytes NVIDIA's statements on the forum about compute capability 7.x, and the
counts of Nsight Compute on an H200 for a hundred patterns. Segments and single broadcast: the CUDA C Programming Guide 4.2, sections F.3.2
and F.3.3. Local memory, whose copies are interleaved by words: the page on local memory statistics of Nsight's documentation. The numbers
in these rules are data of the chip (`BankRule`, `CoalescingRule`).

Loads, stores and atomics may follow different rules; these and their sources are data of the chip too (`Chip.bank_rule`,
`Chip.piece_bytes`).
"""

from __future__ import annotations

from collections import Counter

from memlane.chip.lanes import (
    LOCAL_ROW,
    LOCAL_WORD,
    Addresses,
    Mask,
    active_lanes,
    asked_bytes,
    bank_passes,
    coalescing_groups,
    conflict_degree,
    moved_pieces,
    partners_agree,
    requests,
    within,
)
from memlane.chip.model import LANES, AccessKind, Chip


def transactions(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Return the number of transactions: sectors, lines where L1 is filled by whole lines, or segments of 32 to 128 bytes."""
    return sum(1 for group in coalescing_groups(chip, addresses, active, nbytes) for _ in moved_pieces(chip, group, nbytes, kind))


def sectors(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Return the sectors that move: those of the distinct transactions of each group of lanes that is served together."""
    moved = sum(size for group in coalescing_groups(chip, addresses, active, nbytes) for _, size in moved_pieces(chip, group, nbytes, kind))
    return moved // chip.sector_bytes


def ideal_sectors(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> int:
    """Return the sectors that the distinct requested bytes would fill if they were contiguous."""
    return -(-len(asked_bytes(active_lanes(addresses, active, nbytes), nbytes)) // chip.sector_bytes)


def local_sectors(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> int:
    """Return the sectors of an access to local memory, where each lane's address is in its own copy.

    The copies of a warp are interleaved by words of 4 bytes: word k of all lanes is one line of 128 bytes.
    """
    lanes = active_lanes(addresses, active, nbytes)
    at = {(address + offset) // LOCAL_WORD * LOCAL_ROW + lane * LOCAL_WORD for lane, address in lanes for offset in range(nbytes)}
    return len({byte // chip.sector_bytes for byte in at})


def ideal_local_sectors(chip: Chip, active: Mask, nbytes: int) -> int:
    """Return the sectors that the requested words of local memory would fill if they were contiguous: no two lanes share a word."""
    lanes = active_lanes([0] * LANES, active, nbytes)
    return -(-len(lanes) * max(LOCAL_WORD, nbytes) // chip.sector_bytes)


def tag_wavefronts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int) -> int:
    """Return the passes that a global access needs to look up the tags of its distinct lines."""
    lines = (
        len({byte // chip.line_bytes for byte in asked_bytes(group, nbytes)})
        for group in coalescing_groups(chip, addresses, active, nbytes)
    )
    return sum(-(-count // chip.coalescing.lines_per_wavefront) for count in lines)


def wavefronts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Return the wavefronts of a shared-memory access, summed over its passes through the banks that have an active lane."""
    rule = chip.bank_rule(kind)
    return (rule.times or 1) * sum(
        conflict_degree(rule, group, width) + rule.extra(width)
        for starts, width in requests(rule, addresses, nbytes)
        for group in bank_passes(rule, starts, active, width)
    )


def bank_cycles(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Return the cycles for which a shared-memory access occupies the banks: one per wavefront, and at least one per pass.

    A pass without an active lane takes a cycle too. Where all passes of the warp would merge in pairs, they do so here even with bank
    conflicts, while `wavefronts` counts such passes separately: the cycles can be fewer than the wavefronts. Measured on an H200; assumed
    for other chips.
    """
    rule = chip.bank_rule(kind)
    cycles = 0
    for starts, width in requests(rule, addresses, nbytes):
        lanes, size = active_lanes(starts, active, width), rule.lanes(width)
        if rule.merge == "neighbours" and size < LANES and (partners_agree(lanes, 1) or partners_agree(lanes, 2)):
            size *= 2
        groups = [group for first in range(0, LANES, size) if (group := within(lanes, first, size))]
        if groups:
            cycles += max(LANES // size, sum(conflict_degree(rule, group, width) + rule.extra(width) for group in groups))
    return (rule.times or 1) * cycles


def ideal_wavefronts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Return the wavefronts of the same passes if the distinct bytes of each were spread evenly over the banks."""
    rule = chip.bank_rule(kind)
    row_bytes = rule.banks * rule.bank_bytes * rule.row_words
    return (rule.times or 1) * sum(
        -(-len(asked_bytes(group, width)) // row_bytes)
        for starts, width in requests(rule, addresses, nbytes)
        for group in bank_passes(rule, starts, active, width)
    )


def conflicts(chip: Chip, addresses: Addresses, active: Mask, nbytes: int, kind: AccessKind = "load") -> int:
    """Return the wavefronts in excess of the ideal: bank conflicts, and the serialization of atomics at the same word."""
    return wavefronts(chip, addresses, active, nbytes, kind) - ideal_wavefronts(chip, addresses, active, nbytes, kind)


def distinct_addresses(addresses: Addresses, active: Mask, nbytes: int) -> tuple[int, int]:
    """Return the number of distinct addresses of the active lanes, and the most lanes at one address."""
    lanes = Counter(address for _, address in active_lanes(addresses, active, nbytes))
    return len(lanes), max(lanes.values(), default=0)
