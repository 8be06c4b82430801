"""Run whole kernels, each with its tile in every layout: outputs against NumPy, wavefronts, time, and resident blocks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.compile import cuda
from memlane.errors import MemlaneError
from memlane.lab.shift.cases import NONE, SEARCHED, SIDE
from memlane.launch import DeviceArray, KernelCall, Target
from memlane.layout import Layout, read_spec
from memlane.measure import count, time
from memlane.optimize import search_layout

SOURCE = Path(__file__).with_name("kernels.cu")
WAYS = (NONE, "pad(1)", "xor", SEARCHED)
Host = npt.NDArray[Any]


@dataclass(frozen=True)
class Work:
    """One kernel with its data."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    inputs: tuple[Host, ...]
    expected: Host
    numbers: tuple[int, ...] = ()
    exact: bool = True
    """Whether the output must be equal bit by bit; else within rounding."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of `SOURCE`."""

    name: str
    patterns: tuple[str, ...]
    """Patterns in which its warps access the tile, for the search of a layout."""
    work: Callable[[int], Work]
    """Function that makes the data for about so many tiles."""


@dataclass(frozen=True)
class Outcome:
    """A kernel with its tile in one layout."""

    kernel: str
    way: str
    layout: Layout
    wavefronts: int
    """Wavefronts of all accesses to shared memory of one launch, by the chip's rule."""
    time_ns: float
    """Median time."""
    resident_blocks: int
    """Resident blocks per SM."""


def _random(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(11).random(shape, dtype=np.float32)


def _transpose(tiles: int) -> Work:
    n = SIDE * max(1, int(tiles**0.5))
    a = _random(n, n)
    return Work((n // SIDE, n // SIDE), (SIDE, 8), (a,), a.T.copy(), (n,))


def _product(tiles: int) -> Work:
    n = SIDE * max(1, round((tiles / 2) ** (1 / 3)))
    a, b = _random(n, n), _random(n, n) - np.float32(0.5)
    return Work((n // SIDE, n // SIDE), (SIDE, SIDE), (a, b), a @ b.T, (n,), exact=False)


def _align(tiles: int) -> Work:
    pairs = 4 * max(1, tiles // 4)
    first, second = np.random.default_rng(12).integers(0, 4, (2, pairs, SIDE), dtype=np.int32)
    return Work((pairs // 4,), (4 * SIDE,), (first, second), alignment(first, second))


def _butterfly(tiles: int) -> Work:
    rows = np.random.default_rng(13).integers(-1000, 1000, (tiles, SIDE * SIDE), dtype=np.int32)
    return Work((tiles,), (512,), (rows,), walsh_hadamard(rows))


def alignment(first: Host, second: Host) -> Host:
    """Return the scores of `align`, int32[pairs, 32, 32]."""
    pairs, length = first.shape
    scores = np.zeros((pairs, length + 1, length + 1), np.int32)
    scores[:, 0, :] = scores[:, :, 0] = -np.arange(length + 1)
    for i in range(length):
        for j in range(length):
            matched = scores[:, i, j] + np.where(first[:, i] == second[:, j], 2, -1)
            scores[:, i + 1, j + 1] = np.maximum(matched, np.maximum(scores[:, i, j + 1], scores[:, i + 1, j]) - 1)
    return scores[:, 1:, 1:].copy()


def walsh_hadamard(rows: Host) -> Host:
    """Return the Walsh-Hadamard transform of each row, in natural order."""
    values = rows.copy()
    for step in (1 << log for log in range(10)):
        pairs = values.reshape(len(rows), -1, 2, step)
        values = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(rows.shape)
    return values


def _exchanges() -> Iterator[str]:
    """Yield the accesses of a butterfly whose partners lie in one row or the next, as row-major indices from row r."""
    for log in range(5):
        first = f"r * columns + t // {1 << log} * {2 << log} + t % {1 << log}"
        yield from (f"({first})", f"({first} + {1 << log})")


KERNELS = (
    Kernel("transpose", ("row", "column"), _transpose),
    Kernel("product", ("row", "column"), _product),
    Kernel("align", ("row", "antidiagonal"), _align),
    Kernel("butterfly", ("row", *_exchanges()), _butterfly),
)


def layout_of(kernel: Kernel, way: str, target: Target) -> Layout:
    """Return the layout of a kernel's tile."""
    if way == SEARCHED:
        return search_layout(kernel.patterns, rows=SIDE, columns=SIDE, chip=target.chip).layout
    return read_spec("row-major" if way == NONE else way).of(SIDE, SIDE)


def outcomes(target: Target, kernel: Kernel, tiles: int, rounds: int, ways: Sequence[str] = WAYS) -> list[Outcome]:
    """Run the kernel in each layout, timed in turn. Raises MemlaneError for a wrong output."""
    work = kernel.work(tiles)
    inputs = [target.array(one) for one in work.inputs]
    found: list[tuple[str, Layout, KernelCall, tuple[DeviceArray | int, ...], DeviceArray]] = []
    for way in ways:
        layout = layout_of(kernel, way, target)
        text = f"#define ROOM {layout.size}\n{layout.cuda_source('place')}{SOURCE.read_text(encoding='utf-8')}"
        call = target.load(cuda(text, name="kernels.cu"))[kernel.name][work.grid, work.block]
        out = target.zeros(work.expected.shape, work.expected.dtype)
        found.append((way, layout, call, (out, *inputs, *work.numbers), out))
    times: list[list[float]] = [[] for _ in found]
    for _ in range(rounds):
        for samples, (_, _, call, arguments, _) in zip(times, found, strict=True):
            samples.append(time(call, *arguments).median_ns)
    results = []
    for samples, (way, layout, call, arguments, out) in zip(times, found, strict=True):
        counted = count(call, *arguments)
        _check(kernel, way, out.numpy(), work)
        threads = int(np.prod(work.block))
        resident = target.resident_blocks(call.kernel, threads, 0)
        results.append(Outcome(kernel.name, way, layout, _shared(counted.sites), statistics.median(samples), resident))
    return results


def _shared(sites: Sequence[Any]) -> int:
    return sum(site.wavefronts or 0 for site in sites if site.site.space == "shared")


def _check(kernel: Kernel, way: str, got: Host, work: Work) -> None:
    right = np.array_equal(got, work.expected) if work.exact else np.allclose(got, work.expected, rtol=1e-3, atol=1e-3)
    if not right:
        raise MemlaneError(f"{kernel.name} with the tile {way} does not compute what NumPy does")
