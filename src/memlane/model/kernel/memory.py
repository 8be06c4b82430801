"""Compute the load on resources that all multiprocessors share: the paths to L2, L2 itself, DRAM, and contended atomic operations.

Rates are those of the chip file: `benchmarks/bandwidth.py` measured the paths to L2 and atomic operations, `benchmarks/predict_measured.py`
DRAM under mixed reads and writes. L2 carries the traffic of the multiprocessors and also its fills from DRAM and write-backs, so a kernel
that streams through DRAM occupies L2 nearly as much as DRAM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memlane.chip import SECTOR_BYTES, Chip, Traffic, modelled_time
from memlane.model.kernel.multiprocessor import Part, Sampled
from memlane.number_format import rounded, size

FULL_COVERAGE = 0.95
"""Share of the bytes of partly stored sectors from which all of each sector counts as stored."""
L2_TRAFFIC = ("read", "written", "partly_written", "atomic")
"""Kinds of traffic between multiprocessors and L2, in sectors."""
CONTENDED_ATOMICS = "atomics at one place"
"""Name of the serialised atomics, which are added to the rest of the time: kernels that combine their results so do it at their end."""
FABRIC = "L2 fabric"
"""Name of the traffic between the two halves of L2, each attached to one half of DRAM. It never limits more than DRAM does; Nsight Compute
shows it as L2 throughput for streaming kernels."""
_FABRIC_SHARE = 0.46
"""Rate of that traffic on chips without a measurement, as a share of the rate at which L2 serves multiprocessors: that of H100 and H200."""
_SEEN_WRITES = 0.75
"""Share of the bytes written to DRAM that a launch writes before it ends; the rest stays in L2 until later ones need the room. Fitted to
the tuned kernels of benchmarks/results/h100/predict_measured.json and of h200, where it is 0.5 to 0.9."""
MODELLED_ELSEWHERE = ("DRAM", "LSU of one SM", "atomics of one line")
"""Floors that are modelled here, or by the clock layer, in other ways."""


@dataclass(frozen=True)
class Shared:
    """The load of the shared resources."""

    parts: tuple[Part, ...]
    missing: tuple[str, ...]
    moved_bytes: float
    """Bytes moved between the multiprocessors and L2."""
    seen_dram: float
    """Share of the bytes from and to DRAM that a profiler sees during the launch."""


def shared_parts(chip: Chip, sampled: Sampled) -> Shared:
    """Return the cycles for which each shared resource is busy."""
    traffic = _extrapolate(chip, sampled)
    floors = modelled_time(chip, 0, traffic)
    found = [Part(floor.name, floor.cycles, floor.moved) for floor in floors.floors if floor.name not in MODELLED_ELSEWHERE]
    read, written = _dram_bytes(chip, traffic)
    found += [*_fabric(chip, traffic), *_l2(chip, traffic), _dram(chip, read, written), *_atomics(chip, sampled)]
    moved = SECTOR_BYTES * sum(traffic.total(name) for name in L2_TRAFFIC)
    seen = (read + _SEEN_WRITES * written) / (read + written) if read + written else 1.0
    return Shared(tuple(found), floors.missing, moved, seen)


def _extrapolate(chip: Chip, sampled: Sampled) -> Traffic:
    """Return the traffic of all blocks: multiprocessors without a sample are given the traffic of sampled ones."""
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


def _dram_bytes(chip: Chip, traffic: Traffic) -> tuple[int, float]:
    """Return the bytes that DRAM reads and writes."""
    piece = chip.bandwidth.dram_piece or SECTOR_BYTES
    read = _in_pieces(traffic.fetched, traffic.fetched_pairs, piece) + _filled(traffic, piece)
    written = float(traffic.written_back * SECTOR_BYTES)
    if traffic.allocated and _filled(traffic, piece):
        written *= _in_pieces(traffic.allocated, traffic.allocated_pairs, piece) / (traffic.allocated * SECTOR_BYTES)
    return read, written


def _dram(chip: Chip, read: int, written: float) -> Part:
    mixed = chip.bandwidth.dram_mixed or chip.copy_gb_per_s or chip.bandwidth.dram_read or chip.dram_gb_per_s
    alone = max(mixed, chip.bandwidth.dram_read or mixed)
    turned = 2 * min(read, written)  # equal parts of reads and writes, between which DRAM alternates
    ns = turned / mixed + (read + written - turned) / alone
    rate = (read + written) / ns if ns else mixed
    return Part("DRAM", ns * chip.clock_mhz / 1000, f"{size(read)} read and {size(written)} written at {rounded(rate)} GB/s")


def _in_pieces(sectors: int, pairs: int, piece: int) -> int:
    """Return the bytes that DRAM moves for `sectors` sectors."""
    return pairs * piece if piece > SECTOR_BYTES else sectors * SECTOR_BYTES


def _filled(traffic: Traffic, piece: int) -> int:
    """Return the bytes of fill reads: before a partly stored sector is written back, its rest is fetched."""
    part, whole = traffic.total("partly_written"), traffic.total("written")
    if not part or not traffic.allocated or not traffic.written_back:
        return 0
    allocated = traffic.allocated * part / (part + whole)
    if traffic.total("partly_written_bytes") >= FULL_COVERAGE * allocated * SECTOR_BYTES:
        return 0  # other requests wrote the rest
    return round(_in_pieces(traffic.allocated, traffic.allocated_pairs, piece) * part / (part + whole))


def _l2(chip: Chip, traffic: Traffic) -> Iterator[Part]:
    rate = chip.bandwidth.l2_read
    if rate is None:
        return
    asked = sum(traffic.total(name) for name in L2_TRAFFIC)
    own = traffic.fetched_pairs * (chip.bandwidth.dram_piece or SECTOR_BYTES) // SECTOR_BYTES + traffic.written_back
    yield Part("L2", (asked + own) / rate, f"{asked:,} sectors for multiprocessors and {own:,} from and to DRAM at {rate:g} per clock")


def _fabric(chip: Chip, traffic: Traffic) -> Iterator[Part]:
    rate = chip.bandwidth.l2_fabric or _FABRIC_SHARE * (chip.bandwidth.l2_read or 0.0)
    if rate:
        sectors = (chip.bandwidth.dram_piece or SECTOR_BYTES) / SECTOR_BYTES * traffic.fetched_pairs
        stored = traffic.total("written") + traffic.total("partly_written")
        yield Part(FABRIC, (sectors + stored) / rate)


def _atomics(chip: Chip, sampled: Sampled) -> Iterator[Part]:
    """Yield the load of atomic operations: contended lines occupy one part of L2, all operations together all parts."""
    busiest, total = (cycles * sampled.scale for cycles in sampled.events.atomic_cycles)
    spread = total / (chip.bandwidth.atomic_parts or 1)
    yield Part("L2 atomics", spread)
    yield Part(CONTENDED_ATOMICS, max(0.0, busiest - busiest / (chip.bandwidth.atomic_parts or 1)), "in one part of L2")
