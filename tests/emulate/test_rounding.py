"""Arithmetic in all rounding directions, against exact fractions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.exact import DOUBLE, SINGLE, Binary, added, divided, multiplied, multiplied_and_added, root

from tests.emulate.elementwise import apply

DIRECTIONS = ("rn", "rz", "rm", "rp")


def specimens(form: Binary, count: int, seed: int) -> list[int]:
    """Edges of the format, and bits at random: of all sizes, and near 1."""
    rng = np.random.default_rng(seed)
    one = form.bias << form.mantissa
    edges = [
        0,
        1,
        2,
        (1 << form.mantissa) - 1,
        1 << form.mantissa,
        (1 << form.mantissa) + 1,
        one - 1,
        one,
        one + 1,
        3 << (form.mantissa - 1) | one,
    ]
    edges += [form.infinity - 1, form.infinity - 2, form.infinity, form.infinity + 1]
    edges += [edge | form.sign for edge in edges]
    anything = [int.from_bytes(rng.bytes(8), "little") % (1 << form.bits) for _ in range(count)]
    near = [
        (one + (int.from_bytes(rng.bytes(8), "little") % (4 << form.mantissa)) - (2 << form.mantissa)) ^ (form.sign * (n & 1))
        for n in range(count)
    ]
    return edges + anything + near


def pairs(form: Binary, seed: int) -> list[tuple[int, int]]:
    left, right = specimens(form, 150, seed), specimens(form, 150, seed + 1)
    rng = np.random.default_rng(seed)
    edges = [(a, b) for a in left[:28] for b in right[:28]]
    return edges + [(left[i], right[j]) for i, j in zip(rng.permutation(len(left)), rng.permutation(len(right)), strict=True)]


def agrees(form: Binary, expected: int | None, found: int) -> bool:
    return form.is_nan(found) if expected is None else found == expected


@pytest.mark.parametrize("form", [SINGLE, DOUBLE], ids=["f32", "f64"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("opcode", "expected"), [("add", added), ("mul", multiplied), ("div", divided)])
def test_two_operands(opcode: str, expected: Callable[[Binary, int, int, str], int | None], direction: str, form: Binary) -> None:
    letter, name = ("w", "f32") if form is SINGLE else ("l", "f64")
    cases = pairs(form, 1)
    found = apply(f"{opcode}.{direction}.{name} {letter}d, {letter}a, {letter}b", *zip(*cases, strict=True))
    wrong = [
        (hex(a), hex(b), hex(got))
        for (a, b), got in zip(cases, found.tolist(), strict=True)
        if not agrees(form, expected(form, a, b, direction), got)
    ]
    assert wrong == []


@pytest.mark.parametrize("form", [SINGLE, DOUBLE], ids=["f32", "f64"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_subtraction_is_addition_of_the_opposite(direction: str, form: Binary) -> None:
    letter, name = ("w", "f32") if form is SINGLE else ("l", "f64")
    cases = [(a, b) for a, b in pairs(form, 7) if not form.is_nan(a) and not form.is_nan(b)]
    found = apply(f"sub.{direction}.{name} {letter}d, {letter}a, {letter}b", *zip(*cases, strict=True)).tolist()
    assert all(agrees(form, added(form, a, b ^ form.sign, direction), got) for (a, b), got in zip(cases, found, strict=True))


@pytest.mark.parametrize("form", [SINGLE, DOUBLE], ids=["f32", "f64"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_fma(direction: str, form: Binary) -> None:
    """Besides the pairs, sums that cancel almost: c is the rounded product with the other sign, so that the residue is exact."""
    letter, name = ("w", "f32") if form is SINGLE else ("l", "f64")
    cases = [(a, b, c) for (a, b), c in zip(pairs(form, 3), specimens(form, 500, 5), strict=False)]
    for a, b in pairs(form, 4)[-300:]:
        product = multiplied(form, a, b, "rn")
        if product is not None:
            cases.append((a, b, product ^ form.sign))
    found = apply(f"fma.{direction}.{name} {letter}d, {letter}a, {letter}b, {letter}c", *zip(*cases, strict=True))
    wrong = [
        [hex(bits) for bits in (*case, got)]
        for case, got in zip(cases, found.tolist(), strict=True)
        if not agrees(form, multiplied_and_added(form, *case, direction), got)
    ]
    assert wrong == []


@pytest.mark.parametrize("form", [SINGLE, DOUBLE], ids=["f32", "f64"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("opcode", ["sqrt", "rcp"])
def test_one_operand(opcode: str, direction: str, form: Binary) -> None:
    letter, name = ("w", "f32") if form is SINGLE else ("l", "f64")
    one = form.bias << form.mantissa
    cases = specimens(form, 300, 9)
    found = apply(f"{opcode}.{direction}.{name} {letter}d, {letter}a", cases).tolist()
    expected = [root(form, a, direction) if opcode == "sqrt" else divided(form, one, a, direction) for a in cases]
    assert all(agrees(form, want, got) for want, got in zip(expected, found, strict=True))


def test_flushing_and_saturation_follow_the_rounding() -> None:
    smallest, one = 1 << 23, 0x3F800000
    assert apply("mul.rp.ftz.f32 wd, wa, wb", smallest, 0x3F000000).tolist() == [0]
    assert apply("mul.rm.ftz.f32 wd, wa, wb", 1, one).tolist() == [0]
    assert apply("add.rp.sat.f32 wd, wa, wb", one, 1).tolist() == [one]
    assert apply("add.rm.sat.f32 wd, wa, wb", one | 1 << 31, 1).tolist() == [0]


def test_the_direction_ends_with_the_instruction() -> None:
    """1 + 2^-24 is halfway: up, and behind it to the nearest, which is even."""
    found = apply("{ .reg .b32 up; add.rp.f32 up, wa, wb; add.rn.f32 wd, wa, wb; add.u32 wd, wd, up; }", 0x3F800000, 0x33800000)
    assert found.tolist() == [0x3F800001 + 0x3F800000]
    assert 1.0 + 2.0**-53 == 1.0
