"""Choose operands to try instructions on: edge values crossed with each other, and random ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from memlane.ptx import SCALAR_TYPES

Bits = npt.NDArray[np.uint64]

UNARY, OTHERS = 1 << 16, 1 << 12
"""Number of operand tuples of a form with one operand, which include every 16-bit number, and of a form with several."""
QUICK = 1 << 8
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
"""Bits of exponent and of fraction."""


def tuples(kinds: tuple[str, ...], count: int, seed: int = 0) -> list[Bits]:
    """Return `count` tuples of operands of these kinds, as bits: an array for each operand."""
    if not kinds:
        return []
    rng = np.random.default_rng([seed, len(kinds)])
    crossed = _crossed(kinds, count * 3 // 4)
    held = min(len(crossed[0]), count * 3 // 4)
    columns = []
    for kind, edges in zip(kinds, crossed, strict=True):
        drawn = _random(kind, count - held, rng)
        columns.append(np.concatenate([edges[:held], drawn]))
    if len(columns) > 1:
        _relate(columns, kinds, held, rng)
    elif width(kinds[0]) == 16 and count == UNARY:
        columns[0] = np.arange(UNARY, dtype=np.uint64)
    return columns


def width(kind: str) -> int:
    """Return the bits of an operand of this kind; for numbers narrower than a register, those of the register."""
    if kind in SCALAR_TYPES:
        bits = SCALAR_TYPES[kind].bits
        return 32 if bits == 8 else bits
    return 64 if kind.endswith("64") else 32


def _crossed(kinds: tuple[str, ...], room: int) -> list[Bits]:
    """Return all combinations of edge values; of so many of each that they do not take more than `room`."""
    each = [edges(kind) for kind in kinds]
    most = max((len(values) for values in each), default=0)
    while most > 3 and np.prod([float(min(most, len(values))) for values in each]) > room:
        most -= 1
    thinned = [_thinned(values, most) for values in each]
    rows = np.array(list(itertools.product(*thinned)), np.uint64).reshape(-1, len(kinds))
    return [np.ascontiguousarray(rows[:, number]) for number in range(len(kinds))]


def _thinned(values: list[int], most: int) -> list[int]:
    """Return the first ones: edges are listed with the most telling first."""
    return values[:most]


def edges(kind: str) -> list[int]:
    """Return values at which instructions err, as bits, the most telling first."""
    if kind == "pred":
        return [0, 1]
    if kind == "amount":
        return [0, 1, 31, 32, 33, 63, 64, 65, 5, 8, 15, 16, 17, 24, 30, 40, 62, 127, 128, 255, 256, 257, 0x80000000, 0xFFFFFFFF]
    if kind == "clamp":
        return [31, 0, 0x1F00, 0x181F, 0x1C1F, 0x1800, 0x100F, 0x1E03, 0x0F1F, 7]
    if kind.startswith("few"):
        return [0, 1, 2, 0xFFFFFFFF, 1 << (width(kind) - 1)]
    scalar = SCALAR_TYPES[kind]
    if scalar.lanes == 2:
        part = "f16" if kind == "f16x2" else "bf16" if kind == "bf16x2" else "u16"
        single = edges(part)
        return [low | single[(7 * number + 3) % len(single)] << 16 for number, low in enumerate(single)]
    if kind in FLOATS:
        return _float_edges(kind)
    return _integer_edges(scalar.bits)


def _integer_edges(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    first = [0, 1, 2 * top - 1, top, top - 1, 2, 3, 2 * top - 2, top + 1, 7, 1 << bits // 2, (1 << bits // 2) - 1, top // 3]
    powers = [1 << place for place in range(2, bits - 1, 3)]
    high = [1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, 1 << 24, (1 << 24) + 1, (1 << 53) + 1] if bits == 64 else []
    return list(dict.fromkeys(value for value in (*first, *high, *powers, 0x55, 0xAA, 100, 10) if value < 2 * top))


def _float_edges(kind: str) -> list[int]:
    exponent, fraction = FLOATS[kind]
    sign, one = 1 << (exponent + fraction), ((1 << (exponent - 1)) - 1) << fraction
    infinity, least = ((1 << exponent) - 1) << fraction, 1 << fraction
    step = 1 << fraction
    positive = [one, 0, infinity, infinity | 1 << (fraction - 1), least, 1, infinity - 1, one + step, least - 1, one | 1, one - 1]
    positive += [infinity | 1, one - step, one + step // 2, infinity | (step - 1), least + 1, 5, one + 2 * step, one + step * fraction]
    positive += [one - step * (fraction + 1), one + (fraction + 1) * step, one + step // 2 + step]
    both = [value for one_value in positive for value in (one_value, one_value | sign)]
    return list(dict.fromkeys(value for value in both if value < 2 * sign))


def _random(kind: str, count: int, rng: np.random.Generator) -> Bits:
    if kind == "pred":
        return np.asarray(rng.integers(0, 2, count, np.uint64))
    if kind == "clamp" or kind.startswith("few"):
        return np.asarray(rng.choice(np.array(edges(kind), np.uint64), count))
    bits = width(kind)
    uniform = rng.integers(0, 1 << bits, count, np.uint64, endpoint=False) if bits < 64 else rng.integers(0, 2**64, count, np.uint64)
    makers: list[Callable[[], Bits]] = [lambda: uniform]
    if kind == "amount":
        makers.append(lambda: rng.integers(0, 70, count, np.uint64))
    elif kind in FLOATS or kind in ("f16x2", "bf16x2"):
        makers += [lambda: _moderate(kind, count, rng)] * 2
    elif bits > 1:
        makers.append(lambda: uniform >> rng.integers(0, bits, count, np.uint64))
    choice = rng.integers(0, len(makers), count)
    return np.asarray(np.select([choice == number for number in range(len(makers))], [make() for make in makers]), np.uint64)


def _moderate(kind: str, count: int, rng: np.random.Generator) -> Bits:
    """Return numbers of either sign around 1, so that they are close to each other in sums, products and quotients."""
    if kind.endswith("x2"):
        low, high = (_moderate(kind.removesuffix("x2"), count, rng) for _ in range(2))
        return low | high << np.uint64(16)
    exponent, fraction = FLOATS[kind]
    middle = (1 << (exponent - 1)) - 1
    spread = min(12, middle - 1)
    powers = rng.integers(middle - spread, middle + spread, count).astype(np.uint64)
    signs = rng.integers(0, 2, count, np.uint64)
    fractions = rng.integers(0, 1 << fraction, count, np.uint64)
    return np.asarray(signs << np.uint64(exponent + fraction) | powers << np.uint64(fraction) | fractions)


def _relate(columns: list[Bits], kinds: tuple[str, ...], start: int, rng: np.random.Generator) -> None:
    """Make the second operand the first, its neighbour or its opposite, in some of the random tuples."""
    if width(kinds[0]) != width(kinds[1]) or "pred" in kinds[:2] or kinds[1] in ("amount", "clamp"):
        return
    bits = width(kinds[0])
    choice = rng.integers(0, 16, len(columns[0]))
    choice[:start] = 15
    limit = np.uint64((1 << bits) - 1)
    for number, delta in enumerate((0, 1, int(limit), 1 << (bits - 1))):
        chosen = choice == number
        columns[1][chosen] = (columns[0][chosen] + np.uint64(delta)) & limit
