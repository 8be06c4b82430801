"""Compute the costs of many accesses of warps at once: vectorized versions of the functions of `access`, which defines them.

`addresses` is uint64[n, 32] in bytes, `active` uint32[n] (bit i is lane i), `nbytes` the bytes that a lane requests, one number for all or
integers [n]. Each function returns int64[n]. Accesses must be naturally aligned: each lies within one sector, line and row of banks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from memlane.chip import access
from memlane.chip.model import LANES, WIDTHS, AccessKind, BankRule, Chip
from memlane.number_format import plural

Addresses = npt.NDArray[np.uint64]
Masks = npt.NDArray[np.uint32]
Widths = int | npt.NDArray[np.integer]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_Rule = Callable[[Chip, Addresses, Flags, int], Counts]
_CHUNK = 1 << 12
"""Accesses processed at a time: bounds the memory of intermediate arrays and keeps them in cache."""


def transactions(chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths, kind: AccessKind = "load") -> Counts:
    """Return `access.transactions` of each access."""
    if chip.coalescing.transactions != "sectors":
        return _one_by_one(access.transactions, chip, addresses, active, nbytes)
    return _each(partial(_pieces, kind=kind), chip, addresses, active, nbytes)


def sectors(chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths, kind: AccessKind = "load") -> Counts:
    """Return `access.sectors` of each access."""
    if chip.coalescing.transactions != "sectors":
        return _one_by_one(access.sectors, chip, addresses, active, nbytes)
    return transactions(chip, addresses, active, nbytes, kind) * (chip.piece_bytes(kind) // chip.sector_bytes)


def ideal_sectors(chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths) -> Counts:
    """Return `access.ideal_sectors` of each access."""
    return _each(_ideal_sectors, chip, addresses, active, nbytes)


def tag_wavefronts(chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths) -> Counts:
    """Return `access.tag_wavefronts` of each access."""
    return _each(_tag_wavefronts, chip, addresses, active, nbytes)


def wavefronts(chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths, kind: AccessKind = "load") -> Counts:
    """Return `access.wavefronts` of each access."""
    rule = chip.bank_rule(kind)
    if rule.broadcast != "every word" or rule.wide != "at once":
        return _one_by_one(partial(access.wavefronts, kind=kind), chip, addresses, active, nbytes)
    return _each(partial(_over_passes, rule=rule, degrees=_conflict_degrees), chip, addresses, active, nbytes)


def ideal_wavefronts(chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths, kind: AccessKind = "load") -> Counts:
    """Return `access.ideal_wavefronts` of each access."""
    rule = chip.bank_rule(kind)
    if rule.wide != "at once":
        return _one_by_one(partial(access.ideal_wavefronts, kind=kind), chip, addresses, active, nbytes)
    return _each(partial(_over_passes, rule=rule, degrees=_spread_degrees), chip, addresses, active, nbytes)


def conflicts(chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths, kind: AccessKind = "load") -> Counts:
    """Return `access.conflicts` of each access."""
    return wavefronts(chip, addresses, active, nbytes, kind) - ideal_wavefronts(chip, addresses, active, nbytes, kind)


def _each(rule: _Rule, chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths) -> Counts:
    """Apply `rule` to the accesses of each width, in chunks; raise ValueError for an invalid width."""
    count = np.zeros(len(addresses), np.int64)
    widths = np.broadcast_to(np.asarray(nbytes), len(addresses))
    for width in np.unique(widths):
        if width not in WIDTHS:
            raise ValueError(f"a lane cannot access {plural(width, 'byte')}; choose one of {WIDTHS}")
        chosen = np.flatnonzero(widths == width)
        for first in range(0, len(chosen), _CHUNK):
            rows = chosen[first : first + _CHUNK]
            lanes = (active[rows, None] >> np.arange(LANES, dtype=np.uint32) & np.uint32(1)).astype(np.bool_)
            count[rows] = rule(chip, addresses[rows], lanes, int(width))
    return count


def _one_by_one(
    rule: Callable[[Chip, Addresses, int, int], int], chip: Chip, addresses: Addresses, active: Masks, nbytes: Widths
) -> Counts:
    """Apply `rule` to one access at a time, for rules that do not vectorize, such as the greedy ones of compute capability 1.x."""
    widths = np.broadcast_to(np.asarray(nbytes), len(addresses))
    return np.array([rule(chip, a, int(m), int(w)) for a, m, w in zip(addresses, active, widths, strict=True)], np.int64)


def _pieces(chip: Chip, addresses: Addresses, lanes: Flags, nbytes: int, kind: AccessKind) -> Counts:
    return _total(_distinct(*_grouped(addresses // np.uint64(chip.piece_bytes(kind)), lanes, chip.coalescing.lanes(nbytes))))


def _ideal_sectors(chip: Chip, addresses: Addresses, lanes: Flags, nbytes: int) -> Counts:
    return -(-_distinct_bytes(addresses[:, None], lanes[:, None], nbytes)[:, 0] // chip.sector_bytes)


def _tag_wavefronts(chip: Chip, addresses: Addresses, lanes: Flags, nbytes: int) -> Counts:
    lines = _distinct(*_grouped(addresses // np.uint64(chip.line_bytes), lanes, chip.coalescing.lanes(nbytes)))
    return _total(-(-lines // chip.coalescing.lines_per_wavefront))


def _over_passes(
    chip: Chip,
    addresses: Addresses,
    lanes: Flags,
    nbytes: int,
    rule: BankRule,
    degrees: Callable[[BankRule, Addresses, Flags, int], Counts],
) -> Counts:
    """Sum `degrees` over the passes of each access that have an active lane; merged passes count as one."""
    size = rule.lanes(nbytes)
    apart = _of_groups(rule, addresses, lanes, nbytes, size, degrees)
    if rule.merge != "neighbours" or size == LANES:
        return (rule.times or 1) * _total(apart)
    together = _of_groups(rule, addresses, lanes, nbytes, 2 * size, degrees)
    without_conflict = _of_groups(rule, addresses, lanes, nbytes, 2 * size, _conflict_degrees) <= 1 + rule.extra(nbytes)
    in_pairs = apart.reshape(len(apart), -1, 2).sum(axis=2)
    return (rule.times or 1) * _total(np.where(without_conflict & _merges(addresses, lanes, 2 * size), together, in_pairs))


def _of_groups(
    rule: BankRule,
    addresses: Addresses,
    lanes: Flags,
    nbytes: int,
    lanes_in_group: int,
    degrees: Callable[[BankRule, Addresses, Flags, int], Counts],
) -> Counts:
    """Return the degree of each group of lanes, 0 without an active lane; int64[accesses, groups]."""
    places, on = _grouped(addresses, lanes, lanes_in_group)
    return np.where(on.any(axis=2), degrees(rule, places, on, nbytes), 0)


def _merges(addresses: Addresses, lanes: Flags, lanes_in_group: int) -> Flags:
    """Return which groups of lanes merge into one pass; bool[accesses, groups].

    A group merges if each active lane has the address of lane^1; all groups of an access merge if each active lane has that of lane^2.
    Inactive neighbours count as equal."""
    number = np.arange(LANES)
    agree = [(addresses == addresses[:, number ^ step]) | ~lanes | ~lanes[:, number ^ step] for step in (1, 2)]
    in_group = agree[0].reshape(len(addresses), -1, lanes_in_group).all(axis=2)
    return np.asarray(in_group | agree[1].all(axis=1)[:, None])


def _conflict_degrees(rule: BankRule, addresses: Addresses, lanes: Flags, nbytes: int) -> Counts:
    """Return the wavefronts of each pass; arrays are [accesses, passes, lanes of a pass].

    An access wider than a bank covers a run of banks, and every bank of the run has the same rows, so each run counts as one wide bank.
    """
    wide_bytes = max(nbytes, rule.bank_bytes)
    wide_banks = rule.banks * rule.bank_bytes // wide_bytes
    bank = addresses // np.uint64(wide_bytes) % np.uint64(wide_banks)
    row = addresses // np.uint64(rule.banks * rule.bank_bytes * rule.row_words)
    # One number for each cell (row, bank) of the memory: when sorted, the first of each run of equal numbers is a distinct row of its bank.
    cells, fresh = row * np.uint64(wide_banks) + bank, lanes
    if rule.same_word == "together":
        cells, fresh = _first_of_each(cells, lanes)
    passes = addresses.shape[0] * addresses.shape[1]
    slots = np.arange(passes).reshape(*addresses.shape[:2], 1) * wide_banks + (cells % np.uint64(wide_banks)).astype(np.int64)
    rows = np.bincount(slots[fresh], minlength=passes * wide_banks)
    fullest: Counts = rows.reshape(*addresses.shape[:2], wide_banks).max(axis=-1)
    return np.maximum(1, fullest) + rule.extra(nbytes)


def _spread_degrees(rule: BankRule, addresses: Addresses, lanes: Flags, nbytes: int) -> Counts:
    """Return the wavefronts of each pass if its distinct bytes were spread evenly over the banks."""
    return np.maximum(1, -(-_distinct_bytes(addresses, lanes, nbytes) // (rule.banks * rule.bank_bytes * rule.row_words)))


def _grouped(values: Addresses, on: Flags, lanes_in_group: int) -> tuple[Addresses, Flags]:
    """Reshape arrays [n, 32] to [n, groups, lanes of a group]."""
    shape = (len(values), LANES // lanes_in_group, lanes_in_group)
    return values.reshape(shape), on.reshape(shape)


def _distinct_bytes(addresses: Addresses, lanes: Flags, nbytes: int) -> Counts:
    """Count the distinct requested bytes along the last axis: naturally aligned accesses of one width are equal or disjoint."""
    return _distinct(addresses, lanes) * nbytes


def _distinct(values: Addresses, on: Flags) -> Counts:
    """Count the distinct values along the last axis where `on`."""
    count: Counts = _first_of_each(values, on)[1].sum(axis=-1, dtype=np.int64)
    return count


def _first_of_each(values: Addresses, on: Flags) -> tuple[Addresses, Flags]:
    """Sort the values along the last axis, and mark the first of each run of equal values that are `on`."""
    none = ~np.uint64(0)
    ordered = np.sort(np.where(on, values, none), axis=-1)
    first = ordered != none
    first[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    return ordered, first


def _total(of_groups: Counts) -> Counts:
    total: Counts = of_groups.sum(axis=1)
    return total
