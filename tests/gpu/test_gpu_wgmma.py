"""Products of a warpgroup on the device against the emulator and NumPy: layouts, types, rounding, and probes around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from memlane.driver import Device
from memlane.instrument import Selection
from memlane.launch import Target
from memlane.measure import count, trace
from memlane.record import COMPLETE, PROVED, Trace
from tests.emulate.test_wgmma import CASES, INTEGERS
from tests.emulate.test_wgmma_pipeline import check_product
from tests.emulate.warpgroup import Case, Layout, multiplied
from tests.instrument.test_products import CASE, PIPELINE, SCHEMES

pytestmark = pytest.mark.gpu
K, MN = True, False
_FAR = 16384


def layout(swizzle: int, by_depth: bool, start: int = 0) -> Layout:
    """A layout for 64 lines of 16 elements of 16 bits, with gaps that no other layout has."""
    if by_depth:
        return Layout(swizzle, K, 0 if swizzle else 1536, 8 * max(16, swizzle) + (0 if swizzle else 16), start)
    atom = 8 * max(16, swizzle)
    return Layout(swizzle, MN, 2 * atom, atom, start) if swizzle else Layout(0, MN, 9 * (2 * atom + 16), 2 * atom + 16, start)


SWEEP = {
    **CASES,
    "integers": INTEGERS,
    "integers to their limits": replace(INTEGERS, satfinite=True),
    "two signed": Case(256, "s32", "s8", "s8", None, Layout(128, K, 0, 1024, 96)),
    "unsigned": Case(8, "s32", "u8", "u8", Layout(0, K, 1024, 128), Layout(64, K, 0, 512, 8192 + 32)),
    "single bits": Case(16, "s32", "b1", "b1", Layout(32, K, 0, 256), Layout(0, K, 1024, 128, 8192)),
    "single bits in registers": Case(256, "s32", "b1", "b1", None, Layout(128, K, 0, 1024, 64)),
    "tf32 in memory": Case(256, "f32", "tf32", "tf32", Layout(64, K, 0, 512), Layout(32, K, 0, 256, 8192)),
    "bf16 in memory": Case(104, "f32", "bf16", "bf16", Layout(128, MN, 0, 1024), Layout(32, MN, 256, 4096, 8192), signs=(-1, -1)),
    **{
        f"{left} and {right} bytes, {'K' if a else 'M'} and {'K' if b else 'N'}": Case(
            64, "f32", "f16", "f16", layout(left, a), layout(right, b, _FAR)
        )
        for left, right in ((0, 32), (32, 64), (64, 128), (128, 0))
        for a, b in ((K, K), (MN, K), (K, MN), (MN, MN))
    },
}


def both(case: Case, gpu: Device, emulator: Target, *matrices: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    found = [multiplied(target, case, *matrices) for target in (gpu, emulator)]
    return found[0], found[1]


@pytest.mark.parametrize("name", SWEEP)
def test_products_of_small_numbers_are_equal(name: str, gpu: Device, emulator: Target) -> None:
    case, rng = SWEEP[name], np.random.default_rng(3)
    low, high, scale = {"u8": (0, 256, 1), "s8": (-128, 128, 1), "b1": (0, 2, 1)}.get(case.a, (-4, 5, 2))
    a, b = (
        rng.integers(low if case.a == one else 0, high, shape) / scale
        for one, shape in ((case.a, (64, case.depth)), (case.b, (case.depth, case.columns)))
    )
    c = rng.integers(-(1 << 31), 1 << 31, (64, case.columns)) if case.d == "s32" else rng.integers(-4, 5, (64, case.columns)) / 2
    for start in (c, None):
        on_device, emulated = both(case, gpu, emulator, a, b, start)
        assert np.array_equal(on_device, emulated)


TOLERANCES = {"f16": 2.0**-22, "bf16": 2.0**-22, "tf32": 2.0**-22, "e4m3": 2.0**-12, "e5m2": 2.0**-12}
"""Of each addend, relative to the largest: tensor cores line addends up to that and cut what is below. Nobody publishes how far below;
of eight-bit factors it is known to be much less."""


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.a not in ("e4m3", "e5m2")])
def test_sums_differ_by_what_is_cut_on_the_way(name: str, gpu: Device, emulator: Target) -> None:
    case, rng = CASES[name], np.random.default_rng(4)
    a, b, c = (
        rng.standard_normal(shape).astype(np.float16) for shape in ((64, case.depth), (case.depth, case.columns), (64, case.columns))
    )
    on_device, emulated = (one.astype(np.float64) for one in both(case, gpu, emulator, a, b, c))
    largest = np.maximum(np.abs(a[:, :, None].astype(np.float64) * b[None, :, :]).max(axis=1), np.abs(c))
    allowed = (case.depth + 1) * TOLERANCES[case.a] * largest
    if case.d == "f16":
        allowed = allowed + 2.0**-10 * np.abs(emulated)
    assert (np.abs(on_device - emulated) <= allowed).all()


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_patterns_that_begin_elsewhere(swizzle: int, gpu: Device, emulator: Target) -> None:
    """With the base offset in the descriptor, where a pattern begins 128 bytes behind where it would."""
    rng = np.random.default_rng(5)
    case = Case(64, "f32", "f16", "f16", None, replace(layout(swizzle, K, 128), base=1))
    a, b = rng.integers(-4, 5, (64, 16)) / 2, rng.integers(-4, 5, (16, 64)) / 2
    on_device, emulated = both(case, gpu, emulator, a, b, None)
    assert np.array_equal(emulated, a @ b)
    assert np.array_equal(on_device, emulated)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_traced_products_are_the_same(scheme: str, gpu: Device) -> None:
    rng = np.random.default_rng(6)
    a, b, c = (rng.standard_normal(shape) for shape in ((64, 8), (8, 24), (64, 24)))
    made = []
    plain = multiplied(gpu, CASE, a, b, c, PIPELINE)
    for measured in (partial(trace, scheme=scheme), count):
        found = multiplied(gpu, CASE, a, b, c, PIPELINE, lambda *given, how=measured: made.append(how(*given)))
        assert np.array_equal(found.view(np.uint32), plain.view(np.uint32))
    waits = [site for site in made[0].sites if site.kind == "wait"]
    assert [(site.completeness, site.evidence, site.changed) for site in waits] == [(COMPLETE, PROVED, "")] * 2


@pytest.mark.parametrize("measured", [lambda call, *arguments: call(*arguments), trace, count], ids=["plain", "traced", "counted"])
def test_a_pipeline_computes_the_product(measured: Callable[..., object], gpu: Device) -> None:
    check_product(gpu, measured)


def test_a_wait_ends_when_the_products_are_done(gpu: Device) -> None:
    """A tensor core does 512 products of f16 a cycle, so one of 64 by 256 by 16 keeps the four of a multiprocessor busy for 128. How many
    of them a warp may begin before it is held is not known, so the time is that from the last load to the end of the wait. It is the least
    of three launches, because the first fetches the code."""
    case = Case(256, "f32", "f16", "f16", Layout(128, K, 0, 1024), Layout(128, K, 0, 1024, 8192))
    cycles = []
    for number in (8, 40):
        text, a, b = case.text().replace(case.line, "\n".join([case.line] * number)), np.zeros((64, 16)), np.zeros((16, 256))
        made: list[Trace] = []
        for _ in range(3):
            multiplied(gpu, case, a, b, None, text, partial(_traced, made))
        cycles.append(min(map(_after_the_last_load, made)))
    assert 0.8 * 128 <= (cycles[1] - cycles[0]) / 32 <= 1.5 * 128, cycles


def _after_the_last_load(made: Trace) -> float:
    """Cycles until the end of the wait, the median over the warps."""
    table, waits = made.table, [site.id for site in made.sites if site.kind == "wait"]
    waited = np.isin(table["site"].to_numpy(), waits)
    warps, ends = table["warp"].to_numpy(), table["end"].to_numpy().astype(np.int64)
    return float(np.median([ends[waited & (warps == warp)].max() - ends[~waited & (warps == warp)].max() for warp in range(4)]))


def _traced(made: list[Trace], *call: object) -> None:
    made.append(trace(*call, selection=Selection(kinds={"load", "wait"})))  # type: ignore[arg-type]
