"""Instructions on bits that no table of values would cover well: all operands, against Python."""

from __future__ import annotations

import numpy as np

from tests.emulate.elementwise import apply


def nth_set(mask: int, base: int, offset: int) -> int:
    """As the manual's pseudocode has it."""
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    step = 1 if offset > 0 else -1
    count, place = 0, base
    while 0 <= place < 32:
        if mask >> place & 1:
            count += 1
            if count == abs(offset):
                return place
        place += step
    return 0xFFFFFFFF


def test_fns() -> None:
    rng = np.random.default_rng(1)
    cases = [(int(rng.integers(0, 1 << 32)), int(rng.integers(0, 32)), int(rng.integers(-18, 19))) for _ in range(600)]
    cases += [(mask, base, offset) for mask in (0, 0xFFFFFFFF, 1, 1 << 31) for base in (0, 1, 31) for offset in (-32, -1, 0, 1, 32, 33)]
    found = apply("fns.b32 wd, wa, wb, wc", [c[0] for c in cases], [c[1] for c in cases], [c[2] % (1 << 32) for c in cases])
    assert found.tolist() == [nth_set(*case) for case in cases]


def test_cvt_pack() -> None:
    assert apply("cvt.pack.sat.s16.s32 wd, wa, wb", 40000, 0xFFFF0000).tolist() == [0x7FFF8000]
    assert apply("cvt.pack.sat.u16.s32 wd, wa, wb", 0xFFFFFFFF, 70000).tolist() == [0x0000FFFF]
    assert apply("cvt.pack.sat.u8.s32.b32 wd, wa, wb, wc", 300, 0xFFFFFFFB, 0xABCD1234).tolist() == [0x1234FF00]
    assert apply("cvt.pack.sat.s4.s32.b32 wd, wa, wb, wc", 100, 0xFFFFFF00, 0x01234567).tolist() == [0x23456778]
