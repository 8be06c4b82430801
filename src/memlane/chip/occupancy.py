"""Compute how many blocks of a kernel fit on one multiprocessor at once.

The rules are those of NVIDIA's occupancy calculator (`cuda_occupancy.h` of the CUDA toolkit), with the chip's numbers in them.
"""

from __future__ import annotations

from dataclasses import dataclass

from memlane.chip.model import Chip


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident blocks of one multiprocessor, and the limits that prevent more."""

    blocks: int
    """Resident blocks; 0 if the chip cannot run such a block at all."""
    limited_by: tuple[str, ...]
    """All limits that allow exactly `blocks`, among `threads`, `blocks`, `registers` and `shared memory`."""
    warps: int
    """Resident warps of those blocks."""
    fraction: float
    """`warps` divided by the most that the multiprocessor can hold."""


def resident_blocks(chip: Chip, threads_per_block: int, registers_per_thread: int, shared_bytes_per_block: int) -> Occupancy:
    """Return the occupancy of a kernel; raise ValueError for a block without threads and for negative numbers.

    `shared_bytes_per_block` is the static and dynamic shared memory, without the bytes that the system reserves. The multiprocessor is
    assumed to provide the largest carve-out of shared memory. Limits of barriers and clusters are not considered.
    """
    if threads_per_block < 1 or registers_per_thread < 0 or shared_bytes_per_block < 0:
        raise ValueError("a block needs at least one thread, and its registers and bytes must not be negative")
    warps_per_block = -(-threads_per_block // chip.warp_size)
    limits = {
        "threads": chip.max_warps_per_sm // warps_per_block if threads_per_block <= chip.max_threads_per_block else 0,
        "blocks": chip.max_blocks_per_sm,
        "registers": _by_registers(chip, warps_per_block, registers_per_thread),
        "shared memory": _by_shared_memory(chip, shared_bytes_per_block),
    }
    blocks = min(limit for limit in limits.values() if limit is not None)
    warps = blocks * warps_per_block
    binding = tuple(name for name, limit in limits.items() if limit == blocks)
    return Occupancy(blocks, binding, warps, warps / chip.max_warps_per_sm)


def _by_registers(chip: Chip, warps_per_block: int, registers_per_thread: int) -> int | None:
    """Return the blocks that the register files hold; None if they are not a limit."""
    if registers_per_thread == 0:
        return None
    if registers_per_thread > chip.max_registers_per_thread:
        return 0
    # The hardware checks a block as if its warps were spread evenly over the register files, so their number is rounded up first.
    spread_warps = _round_up(warps_per_block, chip.register_partitions)
    if chip.register_scope == "block":
        per_block = _round_up(spread_warps * chip.warp_size * registers_per_thread, chip.register_unit)
        return chip.registers_per_sm // per_block if per_block <= chip.max_registers_per_block else 0
    per_warp = _round_up(chip.warp_size * registers_per_thread, chip.register_unit)
    if per_warp * spread_warps > chip.max_registers_per_block:
        return 0
    warps = chip.registers_per_sm // chip.register_partitions // per_warp * chip.register_partitions
    return warps // warps_per_block


def _by_shared_memory(chip: Chip, shared_bytes_per_block: int) -> int | None:
    """Return the blocks that shared memory holds; None if it is not a limit."""
    if shared_bytes_per_block > chip.max_shared_bytes:
        return 0
    taken = _round_up(shared_bytes_per_block + chip.reserved_shared_bytes, chip.shared_unit_bytes)
    return chip.shared_bytes_per_sm // taken if taken else None


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
