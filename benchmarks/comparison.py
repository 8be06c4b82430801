"""Define when two results of an instruction are equal, and how far apart those of an approximate one may be.

Integers and IEEE operations: equal bits. Where PTX leaves the payload of a NaN open, any two NaNs are equal: results in f64, for which the
manual names no canonical NaN as it does for f32, f16 and bf16, and `abs` and `neg`, of which it says that a NaN gives an unspecified NaN.
Operands for which the manual leaves the result open are left out (see `undefined`), and nothing else is.
Approximate instructions: the error against the true value, where that is a normal number, and equality in kind (zero, infinite, NaN) where
either result is none. Where a form without `.ftz` gives subnormal results their error is recorded too, in steps of the smallest number: the
manual's bounds speak of normal results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, pi
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Row
from operands import FLOATS, Bits, width

from cases import Case
from memlane.ptx import SCALAR_TYPES

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]

COPIES = ("mov", "ld", "ldu", "st", "selp", "slct", "copysign", "prmt", "shfl", "set", "setp")
"""Instructions that hand their operands on as they are."""


# -- numbers ---------------------------------------------------------------------------------------------------------------------


def parts(kind: str, bits: Bits) -> tuple[str, list[Bits]]:
    """Return the type of the numbers in a result, and these: two if it is packed."""
    if kind not in ("f16x2", "bf16x2"):
        return kind, [bits]
    return kind.removesuffix("x2"), [bits & np.uint64(0xFFFF), bits >> np.uint64(16)]


def numbers(kind: str, bits: Bits) -> Numbers:
    """Convert floating-point bits to numbers."""
    views: dict[str, Callable[[], Any]] = {
        "f16": lambda: bits.astype(np.uint16).view(np.float16),
        "bf16": lambda: (bits.astype(np.uint32) << np.uint32(16)).view(np.float32),
        "f32": lambda: bits.astype(np.uint32).view(np.float32),
        "f64": lambda: bits.view(np.float64),
    }
    with np.errstate(all="ignore"):
        return np.asarray(views[kind]().astype(np.float64))


def is_nan(kind: str, bits: Bits) -> Mask:
    """Return a mask of the NaNs."""
    exponent, fraction = FLOATS[kind]
    size = bits & np.uint64((1 << (exponent + fraction)) - 1)
    return np.asarray(size > np.uint64(((1 << exponent) - 1) << fraction))


def differing(kind: str, expected: Bits, found: Bits, open_payload: bool) -> Mask:
    """Return a mask of the results that are not equal."""
    if not open_payload:
        return np.asarray(expected != found)
    single, pairs = parts(kind, expected)
    other = parts(kind, found)[1]
    masks = [(a != b) & ~(is_nan(single, a) & is_nan(single, b)) for a, b in zip(pairs, other, strict=True)]
    return np.asarray(np.logical_or.reduce(masks))


def has_open_payload(case: Case, kind: str) -> bool:
    """Return whether PTX leaves the payload of a NaN result open."""
    opcode = case.spelling.row.opcode
    if SCALAR_TYPES[kind].kind != "f" or opcode in COPIES or case.spelling.has("exch") or case.spelling.has("cas"):
        return False
    return opcode in ("abs", "neg") or kind == "f64"


def undefined(case: Case, operands: Sequence[Bits], count: int) -> tuple[Mask, str]:
    """Return a mask of the operands for which the manual does not define the result, and the reason in words.

    The manual restricts positions and lengths of `bfe` and `bfi` to the values of eight bits. Beyond them its code takes their lower byte,
    which an H200 does for 32 bits: that is compared. For 64 bits it does not (positions beyond 255 give nothing): that is left out.
    `fns`: bases beyond 31 are undefined by the manual, and the absolute value of the offset -2^31, by which its code counts, is no
    number of its type. Division of integers by zero: the manual leaves the value to the machine.
    """
    opcode = case.spelling.row.opcode
    if opcode in ("div", "rem") and SCALAR_TYPES[case.operands[1]].kind in "us":
        return np.asarray(operands[1] == 0), "division by zero left out"
    if opcode in ("bfe", "bfi") and width(case.results[0]) == 64:
        return np.asarray((operands[-1] > 255) | (operands[-2] > 255)), "positions and lengths beyond 255 left out"
    if opcode == "fns":
        return np.asarray((operands[1] > 31) | (operands[2] == 1 << 31)), "bases beyond 31 and the offset -2^31 left out"
    return np.zeros(count, bool), ""


# -- equal bits ------------------------------------------------------------------------------------------------------------------


def exact_row(case: Case, operands: Sequence[Bits], expected: Sequence[Bits], found: Sequence[Bits], names: tuple[str, str]) -> Row:
    """Return a row with the number of operand tuples whose results differ; `names` are those of the two sides compared."""
    unsaid, said = undefined(case, operands, len(expected[0]))
    defined = ~unsaid
    wrong = np.zeros(len(expected[0]), bool)
    relaxed = False
    for kind, one, other in zip(case.results, expected, found, strict=True):
        relaxed |= has_open_payload(case, kind)
        wrong |= differing(kind, one, other, has_open_payload(case, kind))
    wrong &= defined
    notes = []
    if wrong.any():
        notes.append(example(case, int(np.flatnonzero(wrong)[0]), operands, expected, found, names))
    if unsaid.any():
        notes.append(said)
    if relaxed:
        notes.append("NaNs of any payload are equal")
    peer = {"tuples": float(defined.sum())}
    return Row(case.name, "operands that differ", float(wrong.sum()), "", 0.0, peer=peer, note="; ".join(notes))


def example(
    case: Case, place: int, operands: Sequence[Bits], expected: Sequence[Bits], found: Sequence[Bits], names: tuple[str, str]
) -> str:
    """Return one operand tuple with both results, in hexadecimal."""
    given = ", ".join(_shown(kind, column[place]) for kind, column in zip(case.operands, operands, strict=True))
    results = [
        ", ".join(_shown(kind, column[place]) for kind, column in zip(case.results, road, strict=True)) for road in (expected, found)
    ]
    return f"({given}): {names[0]} {results[0]}, {names[1]} {results[1]}"


def _shown(kind: str, value: np.uint64) -> str:
    return f"0x{int(value):0{max(1, width(kind) // 4)}x}"


# -- approximate instructions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """The error measure of an approximate instruction, and the bound that the manual promises."""

    truth: Callable[..., Numbers]
    unit: str = "ulp"
    """`ulp`, `relative`, `absolute`, or `mixed`: relative for true values beyond 1, absolute below."""
    reach: float | None = None
    lowest: float = 0.0
    highest: float = inf
    """The sizes of the last operand for which the promise holds."""


def _reciprocal(a: Numbers) -> Numbers:
    return np.asarray(1.0 / a)


BOUNDS = {
    ("rcp", "f32"): Bound(_reciprocal, reach=1.0),
    ("rcp", "f64"): Bound(_reciprocal, "relative"),
    ("sqrt", "f32"): Bound(np.sqrt, "relative", 2.0**-23),
    ("rsqrt", "f32"): Bound(lambda a: 1.0 / np.sqrt(a), "relative", 2.0**-22.9),
    ("rsqrt", "f64"): Bound(lambda a: 1.0 / np.sqrt(a), "relative"),
    ("sin", "f32"): Bound(np.sin, "absolute", 2.0**-20.5, highest=pi),
    ("cos", "f32"): Bound(np.cos, "absolute", 2.0**-20.5, highest=pi),
    ("lg2", "f32"): Bound(np.log2, "mixed", 2.0**-22),
    ("ex2", "f32"): Bound(np.exp2),
    ("ex2", "f16"): Bound(np.exp2),
    ("ex2", "bf16"): Bound(np.exp2),
    ("tanh", "f32"): Bound(np.tanh, "relative", 2.0**-11),
    ("tanh", "f16"): Bound(np.tanh, "absolute", 2.0**-10.987),
    ("tanh", "bf16"): Bound(np.tanh, "absolute"),
    ("div", "f32"): Bound(np.divide, reach=2.0, lowest=2.0**-126, highest=2.0**126),
}
"""Bounds by opcode and type; without a reach the error is only recorded."""


def is_approximate(case: Case) -> bool:
    return case.spelling.has("approx") or case.spelling.has("full")


def approximate_rows(
    case: Case, operands: Sequence[Bits], expected: Sequence[Bits], found: Sequence[Bits], names: tuple[str, str]
) -> list[Row]:
    """Return the largest errors, and how many results are zero, infinite or no number on one road only."""
    kind, results = parts(case.results[0], found[0])
    others = parts(case.results[0], expected[0])[1]
    inputs = [np.concatenate(parts(name, column)[1]) for name, column in zip(case.operands, operands, strict=True)]
    here, there = (numbers(kind, np.concatenate(pieces)) for pieces in (results, others))
    given = [numbers(kind, column) for column in inputs]
    bound = BOUNDS[case.spelling.row.opcode, kind]
    if case.spelling.has("ftz"):
        given = [np.where(np.abs(column) < least_normal(kind), np.copysign(0.0, column), column) for column in given]
    with np.errstate(all="ignore"):
        truth = bound.truth(*given)
    size = np.abs(given[-1])
    promised = (size >= bound.lowest) & (size <= bound.highest) & (np.abs(truth) >= least_normal(kind)) & (np.abs(truth) < largest(kind))
    error, place = _largest_error(bound, kind, truth, here, promised)
    beside, _ = _largest_error(bound, kind, truth, there, promised)
    note = f"at {', '.join(f'{column[place]:.9g}' for column in given)}: {names[1]} {here[place]:.9g}, true {truth[place]:.9g}"
    peer = {names[0]: beside, "tuples": float(promised.sum())}
    kinds_differ = _class(here, kind) != _class(there, kind)
    kinds_differ &= np.isin(_class(here, kind), (0, 2, 3)) | np.isin(_class(there, kind), (0, 2, 3))
    kinds_differ &= ~_within(bound, kind, size, here, there)
    apart = Row(case.name, "zero, infinite or NaN on one road only", float(kinds_differ.sum()), "", 0.0, note="")
    if kinds_differ.any():
        first = int(np.flatnonzero(kinds_differ)[0])
        values = ", ".join(f"{column[first]:.9g}" for column in given)
        apart = Row(
            apart.case, apart.metric, apart.value, "", 0.0, note=f"({values}): {names[0]} {there[first]:.9g}, {names[1]} {here[first]:.9g}"
        )
    rows = [Row(case.name, "largest error", error, bound.unit, bound.reach, peer=peer, note=note), apart]
    return rows if case.spelling.has("ftz") else [*rows, *_subnormal_row(case, kind, truth, here, size <= bound.highest)]


def _subnormal_row(case: Case, kind: str, truth: Numbers, found: Numbers, promised: Mask) -> list[Row]:
    """Return the largest error among true values below the smallest normal number, if there are any; nothing is promised of it."""
    step = least_normal(kind) * 2.0 ** -FLOATS[kind][1]
    small = promised & (truth != 0) & (np.abs(truth) < least_normal(kind))
    if not small.any() or kind == "f64":
        return []
    with np.errstate(all="ignore"):
        error = float(np.max(np.where(small, np.abs(found - truth), 0.0)) / step)
    return [Row(case.name, "largest error of subnormal results", error, "steps", peer={"tuples": float(small.sum())})]


def _within(bound: Bound, kind: str, size: Numbers, here: Numbers, there: Numbers) -> Mask:
    """Return a mask of the results that are acceptable although one road gives zero and the other does not. A zero may stand for a number
    within an absolute error, or within two steps of the smallest numbers. Where the manual promises an absolute error for smaller operands
    only, any number is acceptable."""
    _, fraction = FLOATS[kind]
    absolute = bound.unit == "absolute"
    near = bound.reach if absolute and bound.reach is not None else 2.0 * least_normal(kind) * 2.0**-fraction
    with np.errstate(invalid="ignore"):
        found = np.asarray(np.abs(here - there) <= near)
    beyond = absolute & (size > bound.highest) & np.isfinite(here) & np.isfinite(there)
    return np.asarray(found | beyond)


def least_normal(kind: str) -> float:
    exponent, _ = FLOATS[kind]
    return float(2.0 ** (2 - (1 << (exponent - 1))))


def largest(kind: str) -> float:
    exponent, fraction = FLOATS[kind]
    return float(2.0 ** ((1 << (exponent - 1)) - 1) * (2.0 - 2.0**-fraction))


def _class(values: Numbers, kind: str) -> npt.NDArray[np.int64]:
    """Classify values: 0 zero, 1 other number, 2 infinite, 3 NaN; negated for negative values. Subnormals count as unsigned zeros."""
    size = np.where(np.abs(values) < least_normal(kind), 0, np.where(np.isinf(values), 2, 1))
    signed = np.where(np.signbit(values) & (size > 0), -size, size)
    return np.asarray(np.where(np.isnan(values), 3, signed), np.int64)


def _largest_error(bound: Bound, kind: str, truth: Numbers, values: Numbers, where: Mask) -> tuple[float, int]:
    with np.errstate(all="ignore"):
        error = np.abs(values - truth)
        scale = {
            "ulp": np.exp2(np.floor(np.log2(np.abs(truth))) - FLOATS[kind][1]),
            "relative": np.abs(truth),
            "absolute": np.ones_like(truth),
            "mixed": np.maximum(1.0, np.abs(truth)),
        }[bound.unit]
        error = np.where(where, error / scale, 0.0)
    error = np.where(np.isnan(error), 0.0, error)
    place = int(np.argmax(error))
    return float(error[place]), place
