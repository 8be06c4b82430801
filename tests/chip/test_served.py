"""The pieces and wavefronts of one access, told apart: as many as are counted, nothing twice and nothing left out."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from memlane.chip import ACCESS_KINDS, Chip, access, load, names, served
from memlane.chip.model import WIDTHS

MASKS = ((1 << 32) - 1, 0x0000FFFF, 0x80000001, 0x55555555, 1 << 17)


def patterns(seed: int, nbytes: int) -> list[npt.NDArray[np.uint64]]:
    random = np.random.default_rng(seed)
    lane = np.arange(32)
    made = [lane * stride for stride in (0, 1, 2, 3, 8, 16, 32, 33)]
    made += [lane // 2, lane // 4, lane % 4, lane[::-1].copy(), lane ^ 5, lane * 32 + lane // 4]
    made += [random.integers(0, reach, 32) for reach in (2, 16, 100, 1000)]
    return [(one * nbytes).astype(np.uint64) for one in made]


CHIPS = [load(name) for name in names()]


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_wavefronts_are_as_many_as_are_counted_and_serve_every_byte(chip: Chip) -> None:
    for nbytes in WIDTHS:
        for number, addresses in enumerate(patterns(nbytes, nbytes)):
            for kind in ACCESS_KINDS:
                mask = MASKS[number % len(MASKS)]
                found = served.wavefronts(chip, addresses, mask, nbytes, kind)
                assert len(found) == access.wavefronts(chip, addresses, mask, nbytes, kind)
                asked = {(lane, int(addresses[lane]) + byte) for lane in range(32) if mask >> lane & 1 for byte in range(nbytes)}
                got = Counter((one.lane, one.address + byte) for wave in found for one in wave.touches for byte in range(one.nbytes))
                assert got.keys() == asked
                assert set(got.values()) == {chip.bank_rule(kind).times or 1}


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip.banks.broadcast == "every word"], ids=lambda chip: chip.name)
def test_no_bank_delivers_two_rows_in_one_wavefront(chip: Chip) -> None:
    rule = chip.bank_rule("load")
    for nbytes in WIDTHS:
        for addresses in patterns(nbytes + 100, nbytes):
            for wave in served.wavefronts(chip, addresses, MASKS[0], nbytes):
                rows: dict[int, set[int]] = {}
                for byte in {one.address + byte for one in wave.touches for byte in range(one.nbytes)}:
                    rows.setdefault(byte // rule.bank_bytes % rule.banks, set()).add(
                        byte // (rule.bank_bytes * rule.banks * rule.row_words)
                    )
                assert all(len(distinct) == 1 for distinct in rows.values())


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_pieces_hold_as_many_sectors_as_are_counted_and_every_byte(chip: Chip) -> None:
    for nbytes in WIDTHS:
        for number, addresses in enumerate(patterns(nbytes + 200, nbytes)):
            for kind in ("load", "load_past_l1", "store"):
                mask = MASKS[number % len(MASKS)]
                found = served.pieces(chip, addresses + np.uint64(96), mask, nbytes, kind)
                assert sum(one.nbytes for one in found) == 32 * access.sectors(chip, addresses + np.uint64(96), mask, nbytes, kind)
                assert all(one.start % one.nbytes == 0 and one.touches for one in found)
                assert {touch.lane for one in found for touch in one.touches} == {lane for lane in range(32) if mask >> lane & 1}


def test_pieces_of_local_memory() -> None:
    chip = load("h200")
    for nbytes in WIDTHS:
        for number, addresses in enumerate(patterns(nbytes + 300, nbytes)):
            mask = MASKS[number % len(MASKS)]
            found = served.local_pieces(chip, addresses, mask, nbytes)
            assert len(found) == access.local_sectors(chip, addresses, mask, nbytes)
            assert sum(touch.nbytes for one in found for touch in one.touches) == nbytes * mask.bit_count()


def test_a_column_of_a_tile_goes_lane_by_lane() -> None:
    found = served.wavefronts(load("h200"), np.arange(32, dtype=np.uint64) * np.uint64(128), MASKS[0], 4)
    assert [[(one.lane, one.address) for one in wave.touches] for wave in found] == [[(lane, 128 * lane)] for lane in range(32)]
