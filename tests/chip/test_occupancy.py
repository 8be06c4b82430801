"""Occupancy against NVIDIA's calculator: the rows are what `cuda_occupancy.h` of CUDA 13.0 says, compiled and run, with the largest
carve-out of shared memory and one barrier a block."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlane import chip
from memlane.chip import Occupancy, resident_blocks

# chip, threads per block, registers per thread, shared bytes per block, resident blocks, limits (1 warps, 2 registers, 4 shared, 8 blocks)
CALCULATOR = [
    ("h200", 96, 16, 232448, 1, 4),
    ("h200", 96, 32, 0, 21, 3),
    ("h200", 128, 32, 1, 16, 3),
    ("h200", 128, 63, 0, 8, 2),
    ("h200", 128, 80, 16384, 6, 2),
    ("h200", 256, 24, 49152, 4, 4),
    ("h200", 256, 24, 65536, 3, 4),
    ("h200", 384, 32, 0, 5, 3),
    ("h200", 512, 32, 1, 4, 3),
    ("h200", 512, 80, 16384, 1, 2),
    ("h200", 512, 80, 232448, 1, 6),
    ("h200", 1024, 16, 16384, 2, 1),
    ("h200", 1024, 16, 101376, 2, 5),
    ("h200", 1024, 32, 99000, 2, 7),
    ("a100", 32, 24, 16384, 9, 4),
    ("a100", 32, 32, 1, 32, 8),
    ("a100", 32, 63, 1, 32, 10),
    ("a100", 96, 16, 4096, 21, 1),
    ("a100", 96, 40, 0, 16, 2),
    ("a100", 96, 63, 0, 10, 2),
    ("a100", 128, 16, 4096, 16, 1),
    ("a100", 256, 40, 4096, 6, 2),
    ("a100", 384, 63, 4096, 2, 2),
    ("a100", 512, 32, 4096, 4, 3),
    ("a100", 512, 32, 33000, 4, 7),
    ("a100", 512, 40, 16384, 3, 2),
    ("a100", 512, 40, 49152, 3, 6),
    ("a100", 512, 255, 232448, 0, 6),
    ("rtx4090", 32, 24, 1, 24, 8),
    ("rtx4090", 32, 80, 0, 24, 10),
    ("rtx4090", 32, 168, 1, 12, 2),
    ("rtx4090", 96, 32, 4096, 16, 1),
    ("rtx4090", 96, 63, 0, 10, 2),
    ("rtx4090", 96, 63, 33000, 3, 4),
    ("rtx4090", 96, 80, 0, 8, 2),
    ("rtx4090", 128, 168, 33000, 3, 6),
    ("rtx4090", 256, 168, 49152, 1, 2),
    ("rtx4090", 384, 40, 1, 4, 3),
    ("rtx4090", 512, 32, 4096, 3, 1),
    ("rtx4090", 512, 80, 99000, 1, 6),
    ("rtx4090", 512, 255, 16384, 0, 2),
    ("rtx4090", 1024, 32, 33000, 1, 1),
    ("v100", 32, 63, 0, 32, 10),
    ("v100", 32, 63, 4096, 24, 4),
    ("v100", 32, 80, 0, 24, 2),
    ("v100", 96, 32, 0, 21, 3),
    ("v100", 96, 40, 0, 16, 2),
    ("v100", 96, 63, 0, 10, 2),
    ("v100", 96, 255, 33000, 2, 6),
    ("v100", 128, 16, 16384, 6, 4),
    ("v100", 128, 32, 1, 16, 3),
    ("v100", 512, 24, 4096, 4, 1),
    ("v100", 512, 32, 0, 4, 3),
    ("v100", 512, 40, 0, 3, 2),
    ("v100", 1024, 16, 0, 2, 1),
    ("v100", 1024, 32, 49152, 2, 7),
]
BITS = {"threads": 1, "registers": 2, "shared memory": 4, "blocks": 8}


@pytest.mark.parametrize(("name", "threads", "registers", "shared", "blocks", "limits"), CALCULATOR)
def test_agrees_with_the_calculator(name: str, threads: int, registers: int, shared: int, blocks: int, limits: int) -> None:
    found = resident_blocks(chip.load(name), threads, registers, shared)
    assert found.blocks == blocks
    assert sum(BITS[limit] for limit in found.limited_by) == limits


def test_warps_and_fraction() -> None:
    # 40 registers: 1280 a warp, 12 warps in each file of 16384, 48 in total, six blocks of 8.
    assert resident_blocks(chip.load("h200"), 256, 40, 0) == Occupancy(6, ("registers",), 48, 0.75)


def test_a_block_of_a_few_threads_holds_a_whole_warp() -> None:
    assert resident_blocks(chip.load("h200"), 33, 16, 0).warps == 2 * resident_blocks(chip.load("h200"), 33, 16, 0).blocks


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limit"),
    [(1025, 16, 0, "threads"), (32, 256, 0, "registers"), (1024, 80, 0, "registers"), (32, 16, 232449, "shared memory")],
)
def test_a_block_that_cannot_run(threads: int, registers: int, shared: int, limit: str) -> None:
    assert resident_blocks(chip.load("h200"), threads, registers, shared) == Occupancy(0, (limit,), 0, 0.0)


def test_no_registers_and_no_shared_memory_are_no_limit() -> None:
    assert resident_blocks(chip.load("v100"), 64, 0, 0) == Occupancy(32, ("threads", "blocks"), 64, 1.0)


@pytest.mark.parametrize("block", [(0, 16, 0), (-1, 16, 0), (1, -1, 0), (1, 16, -1)])
def test_nonsense_is_refused(block: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        resident_blocks(chip.load("h200"), *block)
    assert resident_blocks(chip.load("h200"), 1, 0, 0).blocks == 32


@pytest.mark.parametrize(("registers", "shared", "expected"), [(16, 0, 4), (20, 0, 3), (10, 5120, 3), (33, 0, 1), (65, 0, 0)])
def test_registers_given_to_whole_blocks(registers: int, shared: int, expected: int) -> None:
    """Compute capability 1.3: 16384 registers in units of 512 for each block, warps in pairs, 16 KiB of shared memory in units of 512."""
    tesla = replace(
        chip.load("v100"),
        max_threads_per_block=512,
        max_threads_per_sm=1024,
        max_blocks_per_sm=8,
        registers_per_sm=16384,
        max_registers_per_block=16384,
        max_registers_per_thread=124,
        register_scope="block",
        register_unit=512,
        register_partitions=2,
        shared_bytes_per_sm=16384,
        max_shared_bytes=16384,
        shared_unit_bytes=512,
    )
    assert resident_blocks(tesla, 256, registers, shared).blocks == expected
