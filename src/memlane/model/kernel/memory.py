"""What all multiprocessors share: the ways to L2 and back, L2 itself, DRAM, and places where many atomic operations meet.

Rates are those of the chip file: `benchmarks/bandwidth.py` measured the ways to L2 and atomic operations, `benchmarks/predict_measured.py`
DRAM under reads and writes together. L2 passes on what it reads for multiprocessors and takes from them, and besides what it fetches from
DRAM and writes there; so a kernel that streams through DRAM keeps L2 nearly as busy as DRAM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memlane.chip import SECTOR_BYTES, Chip, Traffic, modelled_time
from memlane.model.kernel.multiprocessor import Part, Sampled
from memlane.number_format import rounded, size

FULL_COVERAGE = 0.95
"""Of the bytes of sectors that are stored to in parts: from there on all of each counts as stored."""
ASKED = ("read", "written", "partly_written", "atomic")
"""What moves between multiprocessors and L2, in sectors."""
AT_ONE_PLACE = "atomics at one place"
"""What is done one by one, and added to the rest: kernels that collect their results so do it at their end."""
FABRIC = "L2 fabric"
"""What goes between the two halves of L2, each of which is at one half of DRAM. It limits nothing that DRAM does not, and is what Nsight
Compute shows as throughput of L2 for kernels that stream."""
FABRIC_SHARE = 0.53
"""Of the rate at which L2 serves multiprocessors, by `breakdown` of tuned kernels in benchmarks/results/h200/predict_calibration.json: 75
sectors a clock on an H200."""
OWN = ("DRAM", "LSU of one SM", "atomics of one line")
"""Floors that are modelled here, or by the clock layer, in other ways."""


@dataclass(frozen=True)
class Shared:
    """How long each part is busy, and what could not be said."""

    parts: tuple[Part, ...]
    missing: tuple[str, ...]
    moved_bytes: float
    """Between the multiprocessors and L2."""


def shared_parts(chip: Chip, sampled: Sampled) -> Shared:
    """Return for how many cycles of the multiprocessors each shared part is busy."""
    traffic = _whole(chip, sampled)
    floors = modelled_time(chip, 0, traffic)
    found = [Part(floor.name, floor.cycles, floor.moved) for floor in floors.floors if floor.name not in OWN]
    found += [*_fabric(chip, traffic), *_l2(chip, sampled, traffic), *_dram(chip, sampled, traffic), *_atomics(chip, sampled)]
    moved = SECTOR_BYTES * sum(traffic.total(name) for name in ASKED)
    return Shared(tuple(found), floors.missing, moved)


def _whole(chip: Chip, sampled: Sampled) -> Traffic:
    """The traffic of all blocks: multiprocessors that did not run have moved what those did that ran."""
    seen, scale = sampled.events.traffic, sampled.scale
    ran = sampled.events.sms
    each = scale * ran / chip.sm_count
    sms = {name: [round(amounts[number % ran] * each) for number in range(chip.sm_count)] for name, amounts in seen.sms.items()}
    return Traffic(
        sms,
        round(seen.fetched * sampled.dram_scale),
        round(seen.written_back * sampled.dram_scale),
        round(seen.hottest * scale),
        seen.wavefront_cycles,
        round(seen.fetched_pairs * sampled.dram_scale),
        round(seen.allocated * sampled.dram_scale),
        round(seen.allocated_pairs * sampled.dram_scale),
    )


def _dram(chip: Chip, sampled: Sampled, traffic: Traffic) -> Iterator[Part]:
    piece = chip.bandwidth.dram_piece or SECTOR_BYTES
    read = _in_pieces(traffic.fetched, traffic.fetched_pairs, piece) + _filled(traffic, piece)
    written = float(traffic.written_back * SECTOR_BYTES)
    if traffic.allocated and _filled(traffic, piece):
        written *= _in_pieces(traffic.allocated, traffic.allocated_pairs, piece) / (traffic.allocated * SECTOR_BYTES)
    mixed = chip.bandwidth.dram_mixed or chip.copy_gb_per_s or chip.bandwidth.dram_read or chip.dram_gb_per_s
    alone = max(mixed, chip.bandwidth.dram_read or mixed)
    turned = 2 * min(read, written)  # as much of reads as of writes: DRAM turns from the ones to the others all the time
    ns = turned / mixed + (read + written - turned) / alone
    rate = (read + written) / ns if ns else mixed
    yield Part("DRAM", ns * chip.clock_mhz / 1000, f"{size(read)} read and {size(written)} written at {rounded(rate)} GB/s")


def _in_pieces(sectors: int, pairs: int, piece: int) -> int:
    """The bytes that DRAM moves for so many sectors."""
    return pairs * piece if piece > SECTOR_BYTES else sectors * SECTOR_BYTES


def _filled(traffic: Traffic, piece: int) -> int:
    """The bytes that are read because only parts of their sectors are stored: before a sector can go to DRAM, the rest of it is fetched."""
    part, whole = traffic.total("partly_written"), traffic.total("written")
    if not part or not traffic.allocated or not traffic.written_back:
        return 0
    allocated = traffic.allocated * part / (part + whole)
    if traffic.total("partly_written_bytes") >= FULL_COVERAGE * allocated * SECTOR_BYTES:
        return 0  # other requests wrote the rest
    return round(_in_pieces(traffic.allocated, traffic.allocated_pairs, piece) * part / (part + whole))


def _l2(chip: Chip, sampled: Sampled, traffic: Traffic) -> Iterator[Part]:
    rate = chip.bandwidth.l2_read
    if rate is None:
        return
    asked = sum(traffic.total(name) for name in ASKED)
    own = traffic.fetched_pairs * (chip.bandwidth.dram_piece or SECTOR_BYTES) // SECTOR_BYTES + traffic.written_back
    yield Part("L2", (asked + own) / rate, f"{asked:,} sectors for multiprocessors and {own:,} from and to DRAM at {rate:g} a clock")


def _fabric(chip: Chip, traffic: Traffic) -> Iterator[Part]:
    if chip.bandwidth.l2_read is not None:
        sectors = (chip.bandwidth.dram_piece or SECTOR_BYTES) / SECTOR_BYTES * traffic.fetched_pairs
        stored = traffic.total("written") + traffic.total("partly_written")
        yield Part(FABRIC, (sectors + stored) / (FABRIC_SHARE * chip.bandwidth.l2_read))


def _atomics(chip: Chip, sampled: Sampled) -> Iterator[Part]:
    """Atomic operations: those of lines that many meet in keep one part of L2 busy, and all of them all parts."""
    busiest, total = (cycles * sampled.scale for cycles in sampled.events.atomic_cycles)
    spread = total / (chip.bandwidth.atomic_parts or 1)
    yield Part("L2 atomics", spread)
    yield Part(AT_ONE_PLACE, max(0.0, busiest - busiest / (chip.bandwidth.atomic_parts or 1)), "in one part of L2")
