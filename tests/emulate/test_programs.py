"""Whole programs, as people write them, on the emulator against NumPy and plain Python.

The checker watches, with the warps in an order of their own. It has nothing to say of programs that keep the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.compile import cuda
from memlane.errors import BadLaunch, UnsupportedPtx
from memlane.launch import DeviceArray
from memlane.measure import check
from memlane.ptx import Module
from tests.emulate.running import emulator

Host = npt.NDArray[Any]
Check = Callable[[Host], bool]
PROGRAMS = Path(__file__).parent / "programs"
SEED = 5


@dataclass(frozen=True)
class Case:
    """A launch of `kernel`; `expected` are the contents of arrays behind it, by position among the arguments."""

    kernel: str
    grid: int | tuple[int, ...]
    block: int
    arguments: tuple[Any, ...]
    expected: Mapping[int, Host | Check]
    reports: tuple[str, ...] = ()
    """Kinds of what the checker must find."""


CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    """Registers a case under its name, which begins with that of its program."""
    CASES[build.__name__] = lambda: build(np.random.default_rng(5))
    return build


ARCHITECTURES = {"warpgroups": "sm_90a"}
"""Of programs that run on one kind of GPU only."""


@cache
def module(program: str) -> Module:
    return cuda(PROGRAMS / f"{program}.cu", name=f"{program}.cu", arch=ARCHITECTURES.get(program, "sm_90"))


def sorted_like(expected: Host) -> Check:
    """The same elements in any order."""
    return lambda got: np.array_equal(np.sort(got, axis=0), np.sort(expected, axis=0))


def near(expected: Host, tolerance: float) -> Check:
    """Relative to the largest value."""
    return lambda got: bool(np.abs(got.astype(np.float64) - expected).max() <= tolerance * np.abs(expected).max())


# -- groups ------------------------------------------------------------------------------------------------------------------


def tiles(values: Host, size: int, operation: np.ufunc) -> Host:
    """Each element's tile of `size`, reduced."""
    return np.repeat(operation.reduce(values.reshape(-1, size), axis=1), size)


@case
def groups__tiles(random: np.random.Generator) -> Case:
    x = random.integers(-99, 99, 192).astype(np.int32)
    sums = np.concatenate([tiles(x, size, np.add) for size in (8, 16, 32)])
    maxima = np.concatenate([tiles(x, size, np.maximum) for size in (8, 16, 32)])
    scanned = x.reshape(-1, 16).cumsum(axis=1).reshape(-1)
    blank = np.zeros(3 * 192, np.int32)
    return Case("tiles", 2, 96, (blank, blank, blank[:192], x, 192), {0: sums, 1: maxima, 2: scanned})


@case
def groups__compact(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 256).astype(np.int32)
    kept = x[x % 3 == 0]
    expected = np.concatenate([np.sort(kept), np.zeros(256 - len(kept), np.int32)])
    return Case(
        "compact", 2, 128, (np.zeros(1, np.int32), np.zeros(256, np.int32), x), {0: np.array([len(kept)]), 1: sorted_like(expected)}
    )


@case
def groups__parts(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 64).astype(np.int32)
    warps = x.reshape(-1, 32)
    same = [[100 * np.sum(warp & 3 == v & 3) + np.sum((warp > 50) == (v > 50)) for v in warp] for warp in warps]
    return Case("parts", 1, 64, (np.zeros_like(x), x), {0: np.array(same).reshape(-1)})


@case
def grid_sync__smooth(random: np.random.Generator) -> Case:
    a = random.random(1000, np.float32)
    steps = [a]
    for _ in range(4):
        padded = np.pad(steps[-1], 1)
        steps.append(np.float32(0.5) * steps[-1] + np.float32(0.25) * (padded[:-2] + padded[2:]))
    return Case("smooth", 6, 96, (a, np.zeros_like(a), 1000, 4), {0: near(steps[4], 1e-6), 1: near(steps[3], 1e-6)})


# -- blocks and warps --------------------------------------------------------------------------------------------------------


@case
def block_primitives__reduce(random: np.random.Generator) -> Case:
    x = random.integers(-99, 99, (3, 128)).astype(np.int32)
    return Case("reduce", 3, 128, (np.zeros(3, np.int32), x), {0: x.sum(axis=1)})


@case
def block_primitives__scan(random: np.random.Generator) -> Case:
    x = random.integers(-99, 99, (2, 512)).astype(np.int32)
    return Case("scan", 2, 128, (np.zeros_like(x), x), {0: x.cumsum(axis=1) - x})


@case
def block_primitives__sort(random: np.random.Generator) -> Case:
    x = random.integers(0, 256, 128).astype(np.uint32)
    order = np.argsort(x, kind="stable")
    return Case("sort", 1, 64, (np.zeros_like(x), np.zeros(128, np.int32), x), {0: x[order], 1: order})


@case
def block_primitives__maxima(random: np.random.Generator) -> Case:
    x = random.normal(size=128).astype(np.float32)
    return Case("maxima", 1, 128, (np.zeros(4, np.float32), x), {0: x.reshape(4, 32).max(axis=1)})


@case
def warps__meet(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 64).astype(np.int32)
    lanes = np.arange(64) % 32
    cells = np.where(lanes < 16, 2 * x, x + 1)
    return Case("meet", 1, 64, (np.zeros_like(x), x), {0: cells.reshape(2, 32)[:, ::-1].reshape(-1)})


@case
def warps__hand_over(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 64).astype(np.int32)
    return Case("hand_over", 1, 64, (np.zeros(2, np.int32), x), {0: x[17::32]})


@case
def warps__leaders(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 64).astype(np.int32)
    lanes = np.arange(64)
    peers = [sum(1 << k for k in range(32) if x[i // 32 * 32 + k] % 5 == x[i] % 5) for i in lanes]
    ones = np.repeat([np.count_nonzero(warp[1::2] % 5 == 1) for warp in x.reshape(2, 32)], 32)
    first = np.array([i // 32 * 32 + (peers[i] & -peers[i]).bit_length() - 1 for i in lanes]) + np.where(lanes % 2, 1000 * ones, 0)
    return Case("leaders", 1, 64, (np.zeros(64, np.int32), np.zeros(64, np.uint32), x), {0: first, 1: np.array(peers)})


# -- blocks that wait for each other -----------------------------------------------------------------------------------------


@case
def look_back__scan(random: np.random.Generator) -> Case:
    x = random.integers(-99, 99, 5000).astype(np.int32)
    prefix = np.pad(x, (0, 120)).cumsum()[127::128]
    return Case(
        "scan", 40, 128, (np.zeros_like(x), x, np.zeros(40, np.uint64), 5000), {0: x.cumsum(), 2: (2 << 32) + (prefix & 0xFFFFFFFF)}
    )


@case
def last_block__sum(random: np.random.Generator) -> Case:
    x = random.integers(0, 9, 5000).astype(np.float32)
    partial = np.pad(x, (0, 7 * 768 - 5000)).reshape(7, 6, 128).sum(axis=(0, 2))
    return Case("sum", 6, 128, (np.zeros(1, np.float32), np.zeros(6, np.float32), x, 5000), {0: np.array([x.sum()]), 1: partial})


def locked(kernel: str, grid: int) -> Callable[[np.random.Generator], Case]:
    def build(random: np.random.Generator) -> Case:
        x = random.integers(0, 99, grid * 64).astype(np.int32)
        return Case(kernel, grid, 64, (np.zeros(3, np.int32), np.zeros(1, np.int32), x), {0: np.zeros(3), 1: np.array([x.sum()])})

    build.__name__ = f"locks__{kernel}"
    return build


case(locked("spin", 3))
case(locked("impatient", 2))


@case
def locks__ticket(random: np.random.Generator) -> Case:
    threads = np.arange(128, dtype=np.int32)
    return Case("ticket", 2, 64, (np.zeros(3, np.int32), np.zeros_like(threads)), {0: np.array([0, 128, 128]), 1: sorted_like(threads)})


# -- functions ---------------------------------------------------------------------------------------------------------------


@case
def functions__recursive(random: np.random.Generator) -> Case:
    fibonacci = [0, 1]
    for _ in range(14):
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    expected = [1000 * fibonacci[i % 16] + 2 * (i % 4) + 3 for i in range(40)]
    return Case("recursive", 1, 40, (np.zeros(40, np.int64),), {0: np.array(expected)})


@case
def functions__pointers(random: np.random.Generator) -> Case:
    a, b = random.random((2, 50), np.float32)
    which = np.arange(50) % 3
    return Case("pointers", 1, 50, (np.zeros_like(a), a, b), {0: np.choose(which, [a + b, a - b, a * b])})


@case
def functions__shapes(random: np.random.Generator) -> Case:
    side = random.random(40, np.float32)
    return Case("shapes", 1, 40, (np.zeros_like(side), side), {0: np.where(np.arange(40) % 2, side * side, 2 * side)})


@case
def functions__polynomial(random: np.random.Generator) -> Case:
    coefficients, degrees = (3, 1, 4, 1, 5, 9, 2, 6), random.integers(0, 8, 8).astype(np.int32)
    expected = [sum(coefficients[(k + i % 4) % 8] * (i % 4) ** int(degrees[k]) for k in range(8)) for i in range(40)]
    return Case("polynomial", 1, 40, (np.zeros(40, np.int32), degrees), {0: np.array(expected)})


# -- numbers -----------------------------------------------------------------------------------------------------------------


@case
def generators__weyl(random: np.random.Generator) -> Case:
    expected = []
    for seed in range(1, 65):
        x = []
        for _ in range(5):
            seed = (seed * 1664525 + 1013904223) % 2**32
            x.append(seed)
        for draw in range(1, 6):
            t = x[0] ^ x[0] >> 2
            x = [*x[1:], (x[4] ^ x[4] << 4 ^ t ^ t << 1) % 2**32]
            expected.append((x[4] + 6615241 + draw * 362437) % 2**32)
    return Case("weyl", 2, 32, (np.zeros(320, np.uint32), 5), {0: np.array(expected)})


@case
def generators__philox(random: np.random.Generator) -> Case:
    """The first is the published test vector of Philox4x32-10 for counter and key 0."""
    known = np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], np.uint32)
    return Case("philox", 1, 64, (np.zeros(256, np.uint32), 0, 0), {0: lambda got: np.array_equal(got[:4], known) and got.any()})


@case
def halves__axpy(random: np.random.Generator) -> Case:
    x, y = random.normal(size=(2, 100)).astype(np.float16)
    return Case("axpy", 2, 64, (y, x, 0.5, 100), {0: np.float16(0.5) * x + y})


@case
def halves__pairs(random: np.random.Generator) -> Case:
    x, z = random.normal(size=(2, 64)).astype(np.float16)
    return Case("pairs", 1, 32, (np.zeros_like(x), x, z), {0: np.maximum(x + z, x * z)})


@case
def halves__brain(random: np.random.Generator) -> Case:
    x = (random.normal(size=100).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    exact = (x.astype(np.uint32) << 16).view(np.float32) * np.float32(3) + np.float32(1)
    bits = exact.view(np.uint32)
    rounded = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    return Case("brain", 2, 64, (np.zeros_like(x), x, 100), {0: lambda got: bool(np.abs(got.astype(int) - rounded.astype(int)).max() <= 1)})


@case
def atomics__sums(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 128).astype(np.float32)
    halves, brains = np.array([128, 256], np.float16), np.array([0x4300, 0x4280], np.uint16)
    blank = (np.zeros(1), np.zeros(2, np.float16), np.zeros(2, np.uint16))
    return Case("sums", 2, 64, (*blank, x), {0: np.array([x.sum()]), 1: halves, 2: brains})


@case
def atomics__references(random: np.random.Generator) -> Case:
    x = random.integers(0, 999, 192).astype(np.int32)
    arguments = (np.zeros(4, np.int32), np.zeros(1, np.uint64), np.zeros(1, np.int32), x)
    return Case("references", 3, 64, arguments, {0: np.bincount(x % 4), 1: np.array([x.max()]), 2: np.array([3])})


@case
def atomics__products(random: np.random.Generator) -> Case:
    x = random.choice([0.5, 1, 2, 4], 64).astype(np.float32)
    least = np.array([999, 7], np.uint16)
    return Case("products", 1, 64, (np.ones(1, np.float32), least, x), {0: np.array([x.prod()]), 1: np.array([0, 7])})


# -- barriers and copies -----------------------------------------------------------------------------------------------------


@case
def barriers__hand_over(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, (7, 32)).astype(np.int32)
    return Case("hand_over", 1, 64, (np.zeros(32, np.int32), x, 7), {0: x[:, ::-1].sum(axis=0)})


@case
def barriers__votes(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 96).astype(np.int32)
    row = [np.count_nonzero(x > 50), 1, 0]
    return Case("votes", 1, 96, (np.zeros(288, np.int32), x), {0: np.tile(row, 96)})


@case
def barriers__early(random: np.random.Generator) -> Case:
    x = random.integers(1, 99, 128).astype(np.int32)
    expected = np.concatenate([np.zeros(40, np.int32), x[40:][::-1]])
    return Case("early", 1, 128, (np.zeros_like(x), x, 40), {0: expected}, ("barrier",))


@case
def copies__staged(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, (5, 128)).astype(np.float32)
    return Case("staged", 1, 128, (np.zeros(128, np.float32), x, 5), {0: x[:, ::-1].sum(axis=0)})


@case
def copies__grouped(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 256).astype(np.int32)
    return Case("grouped", 1, 64, (np.zeros_like(x), x), {0: x[::-1]})


@case
def phases__reverse(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 64).astype(np.int32)
    return Case("reverse", 1, 64, (np.zeros(192, np.int32), x), {0: np.concatenate([x[::-1] + round for round in range(3)])})


# -- instructions ------------------------------------------------------------------------------------------------------------


@case
def matrices__product(random: np.random.Generator) -> Case:
    a, b = random.integers(-4, 5, (2, 48, 48)).astype(np.float16)
    c = np.zeros((48, 48), np.float32)
    return Case("product", (3, 3), 32, (c, a, np.ascontiguousarray(b.T), 48), {0: 2 * a.astype(np.float32) @ b.astype(np.float32)})


@case
def assembly__bits(random: np.random.Generator) -> Case:
    a, b = random.integers(0, 2**32, (2, 32), dtype=np.uint32)
    x, y = (v.view(np.uint8).reshape(32, 4) for v in (a, b))
    permuted = np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1).copy().view(np.uint32)[:, 0]
    reversed_ = np.array([int(f"{v:032b}"[::-1], 2) for v in a], np.uint32) + b
    c = a ^ np.uint32(0x0F0F0F0F)
    majority = a & b | a & c | b & c
    dot = (x.astype(np.uint32) * y).sum(axis=1) + 7
    out = np.stack([permuted, reversed_, majority, dot.astype(np.uint32)], axis=1)
    return Case("bits", 1, 32, (np.zeros(128, np.uint32), a, b), {0: out.reshape(-1)})


@case
def assembly__wide(random: np.random.Generator) -> Case:
    a, b = random.integers(0, 2**64, (2, 32), dtype=np.uint64)
    whole = [int(x) * int(y) + int(x) for x, y in zip(a, b, strict=True)]
    low, high = np.array([w % 2**64 for w in whole], np.uint64), np.array([w >> 64 for w in whole], np.uint64)
    return Case("wide", 1, 32, (np.zeros_like(a), np.zeros_like(a), a, b), {0: low, 1: high})


@case
def assembly__vectors(random: np.random.Generator) -> Case:
    x = random.random((32, 4), np.float32)
    return Case("vectors", 1, 32, (np.zeros(32, np.float32), x), {0: np.where(x[:, 0] > 0.5, x[:, 1] + x[:, 2], x[:, 3])})


# -- the tests ---------------------------------------------------------------------------------------------------------------


# -- warpgroups --------------------------------------------------------------------------------------------------------------


@case
def warpgroups__product(random: np.random.Generator) -> Case:
    a, b = random.integers(-4, 5, (256, 192)).astype(np.float16), random.integers(-4, 5, (64, 192)).astype(np.float16)
    expected = a.astype(np.float32) @ b.T.astype(np.float32)
    return Case("product", (2, 2), 256, (np.zeros((256, 64), np.float32), a, b, 64, 192), {0: expected})


@pytest.mark.parametrize("name", CASES)
def test_results_equal_numpy_and_the_checker_is_quiet(name: str) -> None:
    one, target = CASES[name](), emulator()
    kernel = target.load(module(name.partition("__")[0]))[one.kernel]
    arguments = [target.array(value) if isinstance(value, np.ndarray) else value for value in one.arguments]
    reports = check(kernel[one.grid, one.block], *arguments, seed=SEED)
    assert tuple(report.kind for report in reports) == one.reports, reports
    for position, value in enumerate(arguments):
        if isinstance(value, DeviceArray):
            expected = one.expected.get(position, one.arguments[position])
            got = value.numpy()
            agrees = expected(got) if callable(expected) else np.array_equal(got.reshape(-1), np.asarray(expected).reshape(-1))
            assert agrees, f"argument {position} holds {got}"


def test_every_program_has_a_case() -> None:
    assert {name.partition("__")[0] for name in CASES} == {path.stem for path in PROGRAMS.glob("*.cu")}


def test_a_grid_that_synchronises_itself_must_fit_on_the_chip() -> None:
    target = emulator()
    smooth, a = target.load(module("grid_sync"))["smooth"], target.zeros(4)
    assert smooth.cooperative
    assert not target.load(module("locks"))["spin"].cooperative
    smooth[132 * 8, 256](a, a, 0, 1)
    message = (
        "smooth(float*, float*, int, int) synchronises its whole grid, so all 1,057 blocks must be on the chip at once; h200 holds 1056 of "
        "them (8 on each of 132 multiprocessors): launch fewer, and let each thread do more"
    )
    with pytest.raises(BadLaunch, match=f"^{re.escape(message)}$"):
        smooth[132 * 8 + 1, 256](a, a, 0, 1)


def test_kernels_that_launch_kernels_are_refused_by_name() -> None:
    source = "__global__ void child(int* p) { *p = 1; }\n__global__ void parent(int* p) {\n    child<<<1, 1>>>(p);\n}\n"
    target = emulator()
    parent = target.load(cuda(source, name="nested.cu", options=["-rdc=true"]))["parent"]
    with pytest.raises(UnsupportedPtx, match=r"^nested.cu:3: the emulator does not model __cudaCDP2GetParameterBufferV2"):
        parent[1, 1](target.zeros(1, np.int32))
    loaded = target.load(cuda(source, name="nested.cu"))
    assert list(loaded.module.kernels) == ["_Z5childPi"]
    with pytest.raises(
        BadLaunch, match=r"nested\.cu:3: .*`parent` was left out: it launches a kernel from the device .*; launch the inner"
    ):
        loaded["parent"]
