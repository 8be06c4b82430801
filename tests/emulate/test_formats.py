"""Conversions between formats, and arithmetic in the short ones, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from benchmarks.exact import FORMATS as FORMS
from benchmarks.exact import HALF, SINGLE, Binary, added, converted, divided, multiplied, multiplied_and_added

from tests.emulate.elementwise import apply
from tests.emulate.running import run
from tests.emulate.test_rounding import agrees, specimens

WIDTHS = {16: "h", 32: "w", 64: "l"}
INF = 0x7F800000


def near_ties(source: Binary, target: Binary, seed: int) -> list[int]:
    """Bits of the source format beside and on the middle between two numbers of the target."""
    rng = np.random.default_rng(seed)
    cut = source.mantissa - target.mantissa
    found = []
    for bits in specimens(source, 300, seed):
        if cut > 1 and not source.is_nan(bits):
            low = int(rng.choice([0, 1, (1 << (cut - 1)) - 1, 1 << (cut - 1), (1 << (cut - 1)) + 1, (1 << cut) - 1]))
            found.append(bits >> cut << cut | low)
    # And around the smallest numbers of the target, where it has fewer bits.
    for power in range(target.bias + target.mantissa - 12, target.bias + target.mantissa + 3):
        for factor in (Fraction(1), Fraction(3, 2), Fraction(5, 4), Fraction(7, 4), Fraction(9, 8)):
            number = factor / Fraction(2) ** power
            bits = source.round(number, "rn")
            found += [bits, bits | source.sign, bits + 1, max(bits - 1, 0)]
    return found


@pytest.mark.parametrize("direction", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("target", "source"), [("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("f32", "f64"), ("bf16", "f64")])
def test_conversions_to_shorter_formats(target: str, source: str, direction: str) -> None:
    to, come = FORMS[target], FORMS[source]
    cases = specimens(come, 400, 1) + near_ties(come, to, 2)
    found = apply(f"cvt.{direction}.{target}.{source} {WIDTHS[to.bits]}d, {WIDTHS[come.bits]}a", cases).tolist()
    expected = [converted(to, come, bits, direction) for bits in cases]
    wrong = [(hex(a), want, hex(got)) for a, want, got in zip(cases, expected, found, strict=True) if not agrees(to, want, got)]
    assert wrong == []


@pytest.mark.parametrize("direction", ["rna", "rn", "rz"])
def test_tf32(direction: str) -> None:
    """An H200 cuts what is not a number for `.rna`: infinity is left of one whose payload lies in the bits that go."""
    form = FORMS["tf32"]
    cases = specimens(SINGLE, 400, 1) + near_ties(SINGLE, form, 2)
    if direction == "rna":
        cut = [a for a in cases if a & 0x7FFFFFFF > 0x7F800000 and not a & 0x007FE000]
        assert (apply("cvt.rna.tf32.f32 wd, wa", cut) == np.array(cut, np.uint32) & 0xFFFFE000).all()
        cases = [a for a in cases if a not in cut]
    found = (apply(f"cvt.{direction}.tf32.f32 wd, wa", cases) >> np.uint64(13)).tolist()
    assert all(agrees(form, converted(form, SINGLE, a, direction), got) for a, got in zip(cases, found, strict=True))


@pytest.mark.parametrize(("target", "source"), [("f32", "f16"), ("f64", "f16"), ("f32", "bf16"), ("f64", "bf16"), ("f64", "f32")])
def test_conversions_to_longer_formats_are_exact(target: str, source: str) -> None:
    to, come = FORMS[target], FORMS[source]
    cases = list(range(1 << 16)) if come.bits == 16 else specimens(come, 400, 3)
    found = apply(f"cvt.{target}.{source} {WIDTHS[to.bits]}d, {WIDTHS[come.bits]}a", cases).tolist()
    assert all(agrees(to, converted(to, come, a, "rn"), got) for a, got in zip(cases, found, strict=True))


@pytest.mark.parametrize("direction", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("source", ["u64", "s64", "u32", "s32", "s16"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
def test_integers(target: str, source: str, direction: str) -> None:
    form, width, signed = FORMS[target], int(source[1:]), source[0] == "s"
    rng = np.random.default_rng(4)
    cases = [0, 1, 2, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, (1 << (width - 1)) + 1]
    cases += [int.from_bytes(rng.bytes(8), "little") >> int(rng.integers(0, 64)) & ((1 << width) - 1) for _ in range(300)]
    cases += [
        ((1 << (form.mantissa + 1 + n)) + d) & ((1 << width) - 1) for n in range(12) for d in (-1, 0, 1, 1 << n >> 1, (1 << n >> 1) + 1)
    ]
    found = apply(f"cvt.{direction}.{target}.{source} {WIDTHS[form.bits]}d, {WIDTHS[width]}a", cases).tolist()
    values = [case - (1 << width) if signed and case >> (width - 1) else case for case in cases]
    assert found == [form.round(Fraction(value), direction) if value else 0 for value in values]


# -- eight bits --------------------------------------------------------------------------------------------------------------------


def eight_bits(name: str) -> dict[int, Fraction]:
    """Every finite value of a format, from its definition."""
    exponent, mantissa = {"e4m3": (4, 3), "e5m2": (5, 2)}[name]
    bias = (1 << (exponent - 1)) - 1
    found = {}
    for bits in range(0x7F if name == "e4m3" else 0x7C):
        field, rest = bits >> mantissa, bits & ((1 << mantissa) - 1)
        size = Fraction(rest + ((1 << mantissa) if field else 0)) * Fraction(2) ** (max(field, 1) - bias - mantissa)
        found[bits] = size
    return found


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_all_eight_bit_numbers_widen(name: str) -> None:
    """Both halves: the lower byte goes to the lower half."""
    values = eight_bits(name)
    cases = [bits | (bits ^ 0x80) << 8 for bits in values]
    found = apply(f"cvt.rn.f16x2.{name}x2 wd, ha", cases).tolist()
    for (_, value), got in zip(values.items(), found, strict=True):
        assert HALF.value(got & 0xFFFF) == value
        assert HALF.value(got >> 16) == -value
        assert got >> 31 == 1
    nothing = {"e4m3": 0x7F, "e5m2": 0x7E}[name]
    assert HALF.is_nan(int(apply(f"cvt.rn.f16x2.{name}x2 wd, ha", nothing)[0]) & 0xFFFF)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_rounding_to_eight_bits(name: str) -> None:
    """To the nearest, of two the one whose last bit is even; what is too large becomes the largest."""
    values = eight_bits(name)
    rng = np.random.default_rng(6)
    middles = [(values[bits] + values[bits + 1]) / 2 for bits in values if bits + 1 in values]
    cases = [SINGLE.round(value, "rn") for value in (*middles, *(v for v in values.values() if v))]
    cases += [int(bits) for bits in rng.integers(0x30000000, 0x50000000, 500)] + [0, INF]
    cases += [bits + d for bits in cases if 1 < bits < INF for d in (-1, 1)]
    largest = max(values)

    def nearest(bits: int) -> int:
        if bits == INF:
            return largest
        number = SINGLE.value(bits)
        return min(values, key=lambda candidate: (abs(values[candidate] - number), candidate & 1))

    found = apply(f"cvt.rn.satfinite.{name}x2.f32 hd, wa, wb", cases, [bits | 1 << 31 for bits in cases]).tolist()
    assert found == [nearest(bits) << 8 | nearest(bits) | 0x80 for bits in cases]
    assert int(apply(f"cvt.rn.satfinite.{name}x2.f32 hd, wa, wb", 0x7FC00000, 0)[0]) == 0x7F00
    assert int(apply(f"cvt.rn.satfinite.relu.{name}x2.f32 hd, wa, wb", 0xBF800000, 0x3F800000)[0]) == {"e4m3": 0x38, "e5m2": 0x3C}[name]


def test_pairs_of_halves() -> None:
    assert apply("cvt.rn.f16x2.f32 wd, wa, wb", 0x3F800000, 0xC0000000).tolist() == [0x3C00C000]
    assert apply("cvt.rz.bf16x2.f32 wd, wa, wb", 0x3F80FFFF, 0x3F81FFFF).tolist() == [0x3F803F81]
    assert apply("cvt.rn.relu.f16x2.f32 wd, wa, wb", 0xBF800000, 0x3F800000).tolist() == [0x00003C00]
    assert apply("cvt.rn.satfinite.e4m3x2.f16x2 hd, wa", 0x3C00C000).tolist() == [0x38C0]


# -- arithmetic --------------------------------------------------------------------------------------------------------------------


def halves(form: Binary, seed: int, count: int = 700) -> list[int]:
    found = specimens(form, count, seed)
    return [found[i] for i in np.random.default_rng(seed).permutation(len(found))]


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize(("opcode", "expected"), [("add", added), ("mul", multiplied)])
def test_two_operands(opcode: str, expected, name: str) -> None:  # type: ignore[no-untyped-def]
    form = FORMS[name]
    a, b = halves(form, 1), halves(form, 2)
    wanted = [expected(form, x, y, "rn") for x, y in zip(a, b, strict=True)]
    found = apply(f"{opcode}.rn.{name} hd, ha, hb", a, b).tolist()
    assert all(agrees(form, want, got) for want, got in zip(wanted, found, strict=True))
    pairs = apply(
        f"{opcode}.{name}x2 wd, wa, wb", [x << 16 | y for x, y in zip(a, b, strict=True)], [y << 16 | x for x, y in zip(a, b, strict=True)]
    )
    assert all(agrees(form, want, got >> 16) and agrees(form, want, got & 0xFFFF) for want, got in zip(wanted, pairs.tolist(), strict=True))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_fma_rounds_once(name: str) -> None:
    form = FORMS[name]
    a, b, c = (halves(form, seed, 1500) for seed in (3, 4, 5))
    tiny = [1 | (form.sign if n % 2 else 0) for n in range(len(a))]
    for third in (c, tiny, [(multiplied(form, x, y, "rn") or 0) ^ form.sign for x, y in zip(a, b, strict=True)]):
        found = apply(f"fma.rn.{name} hd, ha, hb, hc", a, b, third).tolist()
        for x, y, z, got in zip(a, b, third, found, strict=True):
            assert agrees(form, multiplied_and_added(form, x, y, z, "rn"), got), (hex(x), hex(y), hex(z), hex(got))


def numbers(bits: np.ndarray) -> np.ndarray:
    """The f16 of these bits, as f64."""
    return bits.astype(np.uint16).view(np.float16).astype(np.float64)


def same_halves(expected: np.ndarray, found: np.ndarray) -> bool:
    """Whether the bits of f16 are those expected; the canonical one for what is not a number."""
    bits = np.where(np.isnan(expected), 0x7FFF, expected.astype(np.float16).view(np.uint16))
    return np.array_equal(bits, found)


def test_many_fma_round_once() -> None:
    """Against NumPy, which rounds f64 to f16 at once. The product is exact in f64, and so is the sum, but where it is by far nearer to `c`
    than to the middle between two numbers. A half of the products is about half of the last bit of `c`, others cancel it."""
    rng = np.random.default_rng(11)
    a, b, c = (rng.integers(0, 1 << 16, 1 << 16).astype(np.uint64) for _ in range(3))
    half, rest = slice(0, 1 << 15), slice(1 << 15, 3 << 14)
    with np.errstate(all="ignore"):
        last = np.spacing(np.abs(numbers(c[half])).astype(np.float16)).astype(np.float64)
        b[half] = (last * rng.choice([0.25, 0.5, 1.5], 1 << 15) / numbers(a[half])).astype(np.float16).view(np.uint16)
        b[half] ^= rng.choice([0, 1, 0x8000], 1 << 15).astype(np.uint64)
        c[rest] = (-numbers(a[rest]) * numbers(b[rest])).astype(np.float16).view(np.uint16)
        expected = numbers(a) * numbers(b) + numbers(c)
        assert same_halves(expected.astype(np.float16), apply("fma.rn.f16 hd, ha, hb, hc", a, b, c))
        clamped = np.where(expected > 0, np.minimum(expected, 1), 0)
        assert same_halves(clamped.astype(np.float16), apply("fma.rn.sat.f16 hd, ha, hb, hc", a, b, c))
        positive = np.where(np.signbit(expected) & ~np.isnan(expected), 0, expected)
        upper = np.roll(a, 1), np.roll(b, 1), np.roll(c, 1)
        pairs = apply(
            "fma.rn.relu.f16x2 wd, wa, wb, wc", *(low | high << np.uint64(16) for low, high in zip((a, b, c), upper, strict=True))
        )
        assert same_halves(positive.astype(np.float16), pairs & np.uint64(0xFFFF))
        assert same_halves(np.roll(positive, 1).astype(np.float16), pairs >> np.uint64(16))


def test_all_halves_and_what_lies_between_them() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32).astype(np.int64)
    beside = np.concatenate([bits + step for step in (-1, 0, 1, 0xFFF, 0x1000, 0x1001)]) & 0xFFFFFFFF
    with np.errstate(all="ignore"):
        expected = beside.astype(np.uint32).view(np.float32).astype(np.float16)
    assert same_halves(expected, apply("cvt.rn.f16.f32 hd, wa", beside))


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("setp.gt.f16x2 pd|s, wa, wb; and.pred pd, pd, s;", 0),
        ("setp.gt.f16x2 s|pd, wa, wb;", 1),
        ("setp.gt.f16x2 pd|s, wa, wb;", 0),
    ],
)
def test_the_second_predicate_is_that_of_the_upper_half(instruction: str, expected: int) -> None:
    assert apply(f"{{ .reg .pred s; {instruction} }}", 0x40000000, 0x3C003C00).tolist() == [expected]


def test_division_for_reference() -> None:
    """The oracle itself: a third, from its definition."""
    assert divided(HALF, 0x3C00, 0x4200, "rn") == 0x3555
    assert divided(HALF, 0x3C00, 0x4200, "rp") == 0x3556


@pytest.mark.parametrize(("name", "one", "many"), [("f16", 0x3C00, 0x5000), ("bf16", 0x3F80, 0x4200), ("f16x2", 0x3C004000, 0x50005400)])
def test_atomic_sums(name: str, one: int, many: int) -> None:
    """32 lanes add 1 (and 2 in the upper half) to a zero; the old values are those on the way."""
    width = 32 if name.endswith("x2") else 16
    register = "%r1" if width == 32 else "%h1"
    body = f"""
        mov.b{width} {register}, {one if width == 16 else (one & 0xFFFF) << 16 | one >> 16};
        atom.global.add.noftz.{name} {register}, [%out], {register};
        red.global.add.noftz.{name} [%out+4], {register};
        ret;"""
    assert int(run(body)[0]) == (many if width == 16 else (many & 0xFFFF) << 16 | many >> 16)


def test_compare_and_swap_of_half_a_word() -> None:
    body = "mov.b16 %h1, 0; cvt.u16.u32 %h2, %tid; add.u16 %h2, %h2, 5; atom.global.cas.b16 %h3, [%out+2], %h1, %h2; ret;"
    assert int(run(body)[0]) == 5 << 16
