"""What one asynchronous copy of a warp from global to shared memory (`cp.async`) costs: the reference definitions, as `access` has them
for other accesses.

A copy is the addresses of the 32 lanes in both memories (uint64, bytes), the mask of the lanes that execute it, the mask of those that read
(the others fill what they copy with zeros), the mask of those that read all that they copy, and the 4, 8 or 16 bytes that each lane copies.

Source: what Nsight Compute counts at the instruction on an H200, for all patterns of addresses of `benchmarks/results/h200/wgmma.json` and
`copy_costs.json`.

Through L1 (`.ca`), a pass of 32, 16 or 8 lanes (for 4, 8 and 16 bytes) takes as many wavefronts as the most lanes that are in the way of
one of them, itself included: those that write to its bank, and if it reads, those that read from its bank. Lanes in the same word are not
served together. So a lane that meets two others where it reads and two more where it writes makes five wavefronts, where either side alone
would take three.

Past L1 (`.cg`, 16 bytes), two lanes whose halves of a sector go to the two halves of a 32-byte piece of shared memory share a *transfer*;
every other lane has its own. Each transfer is counted as a sector. Transfers share a wavefront if they read one line, write one row of 128
bytes, move the same halves the same way round, and all or none of them go from an even sector to an odd piece or back; no sector is
read twice in a wavefront. Of lanes that write the same bytes one is left. If any lane fills a byte with a zero, all lanes go through L1 as
well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from memlane.chip.access import ideal_sectors, sectors
from memlane.chip.lanes import Addresses, active_lanes, within
from memlane.chip.model import LANES, Chip

SECTOR, HALF, LINE = 32, 16, 128
"""Bytes: of a sector, of the copy of a lane past L1, and of a line or a row of all banks."""


Transfer = tuple[int, int, tuple[tuple[int, int], ...]]
"""The number of a sector, that of the piece it goes to, and which halves of the one go to which of the other."""


@dataclass(frozen=True, slots=True)
class CopyCost:
    """What one copy costs, in the words of Nsight Compute."""

    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0


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
    """Return what a copy costs, nothing without an active lane.

    `sources` and `targets`: where each lane reads and writes; `reads`: mask of the lanes that read, all of `active` if None; `past_l1`:
    whether it is a copy of 16 bytes with `.cg`; `whole`: mask of the lanes that read all that they copy, those that read if None.
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
    """The wavefronts."""
    size, total = LINE // nbytes, 0
    read, written = dict(active_lanes(sources, reading, nbytes)), active_lanes(targets, active, nbytes)
    for first in range(0, LANES, size):
        here = within(written, first, size)
        banks = [(address % LINE // nbytes, read[lane] % LINE // nbytes if lane in read else None) for lane, address in here]
        total += max((sum(to == near or (of == far is not None) for to, of in banks) for near, far in banks), default=0)
    return total


def _ideal(active: int, nbytes: int) -> int:
    """The wavefronts that the bytes of the lanes would fill."""
    return -(-active.bit_count() * nbytes // LINE)


def _last_writers(targets: Addresses, active: int, nbytes: int) -> int:
    """The lanes without those whose bytes a later one writes."""
    last = {address: lane for lane, address in active_lanes(targets, active, nbytes)}
    return sum(1 << lane for lane in last.values())


def _transfers(sources: Addresses, targets: Addresses, active: int, nbytes: int) -> list[Transfer]:
    """The transfers of these lanes."""
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
