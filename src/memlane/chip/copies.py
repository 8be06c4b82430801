"""Compute the cost of one asynchronous copy of a warp from global to shared memory (`cp.async`): the reference definitions, like those of
`access` for other accesses.

A copy is the addresses of the 32 lanes in both memories (uint64, bytes), the mask of the lanes that execute it, the mask of those that read
(the others fill their target with zeros), the mask of those that read all their bytes, and the 4, 8 or 16 bytes that each lane copies.

Source: counts of Nsight Compute for the instruction on an H200, for all patterns of addresses of `benchmarks/results/h200/wgmma.json` and
`copy_costs.json`.

Through L1 (`.ca`), a pass of 32, 16 or 8 lanes (for 4, 8 and 16 bytes) takes as many wavefronts as the lane with the most conflicts needs.
For each lane these are the lanes, itself included, that write to its bank, or, if it reads, that read from its bank. Lanes at the same word
are not served together. So a lane that conflicts with two others where it reads and with two more where it writes needs five wavefronts,
where either side alone would need three.

Past L1 (`.cg`, 16 bytes), two lanes whose halves of a sector go to the two halves of a 32-byte piece of shared memory share a *transfer*;
every other lane has its own. Each transfer counts as a sector. Transfers share a wavefront if they read one line, write one row of 128
bytes, move the same halves to the same halves, and either all or none of them go from an even sector to an odd piece or the reverse; no
sector is read twice in a wavefront. Of the lanes that write the same bytes, only the last counts. If any lane fills a byte with a zero, all
lanes go through L1 as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from memlane.chip.access import ideal_sectors, sectors
from memlane.chip.lanes import Addresses, active_lanes, within
from memlane.chip.model import LANES, Chip

SECTOR, HALF, LINE = 32, 16, 128
"""Bytes of a sector, of the copy of one lane past L1, and of a line (or a row of all banks)."""


Transfer = tuple[int, int, tuple[tuple[int, int], ...]]
"""Index of the source sector, index of the target piece, and pairs (half of the sector, half of the piece)."""


@dataclass(frozen=True, slots=True)
class CopyCost:
    """Cost of one copy, in the terms of Nsight Compute."""

    sectors: int
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int


def copy_cost(
    chip: Chip,
    sources: Addresses,
    targets: Addresses,
    active: int,
    nbytes: int,
    reads: int | None = None,
    past_l1: bool = False,
    whole: int | None = None,
) -> CopyCost:
    """Return the cost of a copy; all 0 without an active lane.

    `sources` and `targets` are the addresses that each lane reads and writes; `reads` is the mask of the lanes that read, `active` if None;
    `past_l1` marks a copy of 16 bytes with `.cg`; `whole` is the mask of the lanes that read all their bytes, `reads` if None.
    """
    reading = active if reads is None else active & reads
    ideal = ideal_sectors(chip, sources, reading, nbytes)
    if not past_l1:
        return CopyCost(
            sectors(chip, sources, reading, nbytes), ideal, _through_l1(sources, targets, active, reading, nbytes), _ideal(active, nbytes)
        )
    copied = _last_writers(targets, reading, nbytes)
    transfers = _transfers(sources, targets, copied, nbytes)
    found, fewest = _wavefronts(transfers), _ideal(copied, nbytes)
    if (reading if whole is None else reading & whole) != active:
        found, fewest = found + _through_l1(sources, targets, active, reading, nbytes), fewest + _ideal(active, nbytes)
    return CopyCost(len(transfers), ideal, found, fewest)


def _through_l1(sources: Addresses, targets: Addresses, active: int, reading: int, nbytes: int) -> int:
    """Return the wavefronts of a copy through L1."""
    size, total = LINE // nbytes, 0
    read, written = dict(active_lanes(sources, reading, nbytes)), active_lanes(targets, active, nbytes)
    for first in range(0, LANES, size):
        here = within(written, first, size)
        banks = [(address % LINE // nbytes, read[lane] % LINE // nbytes if lane in read else None) for lane, address in here]
        total += max((sum(to == near or (of == far is not None) for to, of in banks) for near, far in banks), default=0)
    return total


def _ideal(active: int, nbytes: int) -> int:
    """Return the wavefronts that the bytes of the active lanes would fill."""
    return -(-active.bit_count() * nbytes // LINE)


def _last_writers(targets: Addresses, active: int, nbytes: int) -> int:
    """Return the mask of `active` without lanes whose bytes a later lane overwrites."""
    last = {address: lane for lane, address in active_lanes(targets, active, nbytes)}
    return sum(1 << lane for lane in last.values())


def _transfers(sources: Addresses, targets: Addresses, active: int, nbytes: int) -> list[Transfer]:
    """Return the transfers of the active lanes."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for (_, source), (_, target) in zip(active_lanes(sources, active, nbytes), active_lanes(targets, active, nbytes), strict=True):
        found.setdefault((source // SECTOR, target // SECTOR), {})[target // HALF % 2] = source // HALF % 2
    transfers: list[Transfer] = []
    for (sector, piece), halves in found.items():
        moved = tuple((halves[to], to) for to in sorted(halves))
        together = len({half for half, _ in moved}) == len(moved)
        transfers += [(sector, piece, moved)] if together else [(sector, piece, (one,)) for one in moved]
    return transfers


def _wavefronts(transfers: list[Transfer]) -> int:
    sharing: dict[object, Counter[int]] = {}
    for sector, piece, halves in transfers:
        key = sector // (LINE // SECTOR), piece // (LINE // SECTOR), halves, (sector ^ piece) % 2
        sharing.setdefault(key, Counter())[sector] += 1
    return sum(max(read.values()) for read in sharing.values())
