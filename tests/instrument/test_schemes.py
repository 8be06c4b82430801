"""What a scheme asks of a launch."""

from __future__ import annotations

import pytest

from memlane import chip
from memlane.errors import BadLaunch
from memlane.instrument import check_consume, fits_consume

H200 = chip.load("h200")


def test_consume_fits_where_the_slot_costs_no_resident_block() -> None:
    assert fits_consume(H200, threads=256, registers=32, shared_bytes=0)
    assert fits_consume(H200, threads=256, registers=32, shared_bytes=16 * 1024)


def test_consume_does_not_fit_where_a_block_less_would_run() -> None:
    # With 1 KiB that the system reserves, seven blocks of 32,256 bytes fill the 228 KiB of a multiprocessor to the last 128.
    full = H200.shared_bytes_per_sm // 7 // 128 * 128 - H200.reserved_shared_bytes
    assert chip.resident_blocks(H200, 128, 32, full).blocks == 7
    assert not fits_consume(H200, threads=128, registers=32, shared_bytes=full)
    assert fits_consume(H200, threads=128, registers=32, shared_bytes=full - 128)


def test_consume_does_not_fit_behind_all_the_shared_memory_there_is() -> None:
    assert not fits_consume(H200, threads=32, registers=0, shared_bytes=H200.max_shared_bytes)
    with pytest.raises(
        BadLaunch, match="needs 32 bytes of shared memory for each block, and k with its 232448 bytes leaves no room for them on h200"
    ):
        check_consume("k", H200, threads=32, registers=0, shared_bytes=H200.max_shared_bytes)
    check_consume("k", H200, threads=32, registers=0, shared_bytes=0)
