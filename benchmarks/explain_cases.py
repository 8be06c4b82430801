"""Define the kernels by which `memlane explain` is judged: planted inefficiencies, each with the finding and the line that must come first,
and clean kernels. `kernels/explain/<file>.cu` holds their text; a planted line ends in `// planted`.

What is to be found was decided when the kernels were written. Those with `frozen` were written, and this table of them, before the first
rule that they judge; none of them is to be changed for a rule's sake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from harness import ROOT

from memlane.launch import Target

FOLDER = ROOT / "benchmarks" / "kernels" / "explain"
MARK = "// planted"

Arguments = Callable[[Target, np.random.Generator], tuple[object, ...]]


@dataclass(frozen=True)
class Case:
    """One launch of one kernel."""

    file: str
    """Name of the file, without its suffix."""
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Arguments
    finding: str = ""
    """Id of the rule whose finding is to be first; empty for a clean kernel."""
    shared_bytes: int = 0
    frozen: bool = False

    @property
    def name(self) -> str:
        return f"{self.finding or 'clean'}: {self.kernel}"

    @property
    def lines(self) -> tuple[int, ...]:
        """Return the planted lines, 1-based; none for a clean kernel."""
        return planted_lines(self.file, self.kernel)


@cache
def text(file: str) -> str:
    return (FOLDER / f"{file}.cu").read_text(encoding="utf-8")


@cache
def planted_lines(file: str, kernel: str) -> tuple[int, ...]:
    """Return the lines of the kernel that end in the mark."""
    found, inside = [], False
    for number, line in enumerate(text(file).splitlines(), 1):
        inside = f"void {kernel}(" in line if line.startswith("__global__") else inside
        if inside and line.endswith(MARK):
            found.append(number)
    return tuple(found)


def floats(target: Target, *shape: int) -> object:
    """Return an array of numbers between 0 and 1."""
    return target.array(np.random.default_rng(1).random(shape, np.float32))


def whole(target: Target, limit: int, *shape: int) -> object:
    """Return an array of numbers from 0 to below `limit`."""
    return target.array(np.random.default_rng(2).integers(0, limit, shape, np.int32))


THREADS = 264 * 256
"""Threads of most launches: two blocks of 256 for each multiprocessor of an H200."""


def _flat(size_in: int = THREADS, size_out: int = THREADS, *more: object) -> Arguments:
    """Return arguments `(out, in, ...)` with arrays of floats."""
    return lambda target, _: (target.zeros(size_out), floats(target, size_in), *more)


def _rings(target: Target, random: np.random.Generator, rows: int) -> object:
    """Return rows that form one random ring, the same for each lane of a warp."""
    order = random.permutation(rows).astype(np.int32)
    follow = np.empty(rows, np.int32)
    follow[order] = np.roll(order, -1)
    return target.array(np.repeat(follow, 32))


def _search(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    values = np.arange(1 << 18, dtype=np.int32)
    return target.zeros(132 * 32, "i4"), target.array(values), target.array(random.integers(0, 1 << 18, 132, np.int32)), 1 << 18


def _list(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    order = random.permutation(1 << 14).astype(np.int32)
    nodes = np.zeros((1 << 14, 2), np.int32)
    nodes[order, 0] = np.roll(order, -1)
    nodes[:, 1] = 1
    return target.zeros(132 * 32, "i4"), target.array(order[:132].copy()), target.array(nodes), 48


def _ragged(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    lengths = np.full(1056, 64)
    lengths[::8] = 1024
    begins = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return target.zeros(1056 * 32), floats(target, int(begins[-1])), target.array(begins), 1056


def _flags(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    flags = (np.arange(THREADS) % 8 == 3).astype(np.int32)
    return target.zeros(THREADS), floats(target, 16 * THREADS // 8), target.array(flags), 16


def _narrow(kind: str, rows: int) -> Arguments:
    """Return arguments `(out, in, rows)`; a row has one element for each thread."""
    return lambda target, random: (target.zeros(THREADS, "i4" if kind == "u1" else kind), _integers(target, random, kind, rows), rows)


def _integers(target: Target, random: np.random.Generator, kind: str, rows: int) -> object:
    return target.array(random.integers(0, 200, rows * THREADS).astype(kind))


def _counters(*more: object, size: int = THREADS) -> Arguments:
    return lambda target, _: (*(target.zeros(1, "i4") if one is None else one for one in more[:1]), *_rest(target, more[1:], size))


def _rest(target: Target, more: tuple[object, ...], size: int) -> tuple[object, ...]:
    return tuple(target.zeros(size, "i4") if one is None else whole(target, 1 << 20, size) if one == "in" else one for one in more)


def _product(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    return target.zeros((128, 128)), floats(target, 128, 128), floats(target, 128, 128), 128


FLAT = ((264,), (256,))
PLANTED = (
    Case("uncoalesced", "column_copy", (256,), (256,), _flat(65536, 65536, 256), "uncoalesced-global", frozen=True),
    Case("uncoalesced", "one_field", *FLAT, _flat(8 * THREADS), "uncoalesced-global", frozen=True),
    Case("uncoalesced", "chunk_per_thread", *FLAT, _flat(16 * THREADS, THREADS, 16), "uncoalesced-global"),
    Case("uncoalesced", "scatter_rows", *FLAT, _flat(THREADS, 16 * THREADS, 16), "uncoalesced-global"),
    Case("bank_conflict", "tile_column", (16, 16), (32, 8), _flat(512 * 512, 512 * 512, 512), "bank-conflict", frozen=True),
    Case("bank_conflict", "every_eighth", *FLAT, _flat(65536, THREADS, 32), "bank-conflict", frozen=True),
    Case("bank_conflict", "cell_per_thread", (528,), (128,), _flat(), "bank-conflict"),
    Case("bank_conflict", "butterfly", *FLAT, _flat(), "bank-conflict"),
    Case("misaligned", "shifted_copy", *FLAT, _flat(THREADS + 1), "misaligned-base", frozen=True),
    Case("misaligned", "odd_pitch", (4, 66), (256,), _flat(1001 * 66, 1024 * 66, 1001), "misaligned-base", frozen=True),
    Case(
        "misaligned",
        "after_a_header",
        *FLAT,
        lambda target, _: (target.zeros(THREADS, "u1"), target.array(np.arange(THREADS + 12).astype(np.uint8))),
        "misaligned-base",
    ),
    Case("misaligned", "shifted_store", *FLAT, _flat(THREADS, THREADS + 3), "misaligned-base"),
    Case("partial", "every_second", *FLAT, _flat(2 * THREADS), "partial-sectors", frozen=True),
    Case("partial", "one_of_three", *FLAT, _flat(3 * THREADS), "partial-sectors", frozen=True),
    Case(
        "partial",
        "real_parts",
        *FLAT,
        lambda target, _: (target.zeros(THREADS, "f8"), target.array(np.arange(2.0 * THREADS))),
        "partial-sectors",
    ),
    Case("partial", "every_fourth_store", *FLAT, _flat(THREADS, 4 * THREADS), "partial-sectors"),
    Case(
        "chain",
        "follow",
        (132,),
        (32,),
        lambda target, random: (target.zeros(132 * 32, "i4"), _rings(target, random, 4096), 48),
        "dependent-chain",
        frozen=True,
    ),
    Case("chain", "search", (132,), (32,), _search, "dependent-chain", frozen=True),
    Case(
        "chain", "automaton", (132,), (32,), lambda target, _: (target.zeros(132 * 32, "i4"), whole(target, 64, 512), 64), "dependent-chain"
    ),
    Case("chain", "list_sum", (132,), (32,), _list, "dependent-chain"),
    Case("occupancy", "big_tile", (1056,), (64,), _flat(8 * 1056 * 64, 1056 * 64, 8), "low-occupancy", frozen=True),
    Case(
        "occupancy",
        "huge_dynamic",
        (528,),
        (128,),
        _flat(8 * 528 * 128, 528 * 128, 8, 25600),
        "low-occupancy",
        shared_bytes=102400,
        frozen=True,
    ),
    Case("occupancy", "lonely_warps", (2904,), (32,), _flat(4 * 2904 * 32, 2904 * 32, 4), "low-occupancy"),
    Case("small_blocks", "eight_threads", (1056,), (8,), _flat(16 * 1056 * 8, 1056 * 8, 16), "partial-warps"),
    Case("small_blocks", "forty_threads", (528,), (40,), _flat(16 * 528 * 40, 528 * 40, 16), "partial-warps"),
    Case("small_blocks", "rows_of_sixteen", (528,), (16,), _flat(528 * 512, 528 * 16, 512), "partial-warps"),
    Case("imbalance", "triangle", (132,), (256,), _flat(132 * 16 * 2 * 256, 132 * 256, 2), "imbalance", frozen=True),
    Case("imbalance", "heavy_blocks", (132,), (256,), _flat(132 * 16 * 2 * 256, 132 * 256, 2), "imbalance", frozen=True),
    Case("imbalance", "ragged_rows", (132,), (256,), _ragged, "imbalance"),
    Case("imbalance", "one_busy_warp", (132,), (256,), _flat(25 * 132 * 256, 132 * 256, 24), "imbalance"),
    Case("outliers", "rare_jump", (132,), (128,), _flat(512 + 132 * 64 * 128, 132 * 128, 512, 64), "latency-outliers", frozen=True),
    Case("outliers", "rare_hash", (132,), (128,), _flat((4 + 132 * 64) * 128, 132 * 128, 64), "latency-outliers", frozen=True),
    Case("outliers", "late_refill", (132,), (128,), _flat(132 * 8 * 128, 132 * 128, 96), "latency-outliers"),
    Case("thrashing", "sweep", (4,), (256,), _flat(4 * 131072, 4 * 256, 131072, 3), "cache-thrashing", frozen=True),
    Case("thrashing", "columns_of_blocks", (4,), (256,), _flat(512 * 256, 4 * 256, 512, 3), "cache-thrashing", frozen=True),
    Case(
        "thrashing",
        "table_passes",
        (8,),
        (256,),
        lambda target, _: (target.zeros(8 * 256, "i4"), whole(target, 1000, 32768, 4), 32768, 3),
        "cache-thrashing",
    ),
    Case(
        "divergence",
        "odd_and_even",
        *FLAT,
        lambda target, _: (target.zeros(THREADS), floats(target, 8 * THREADS // 2), floats(target, 8 * THREADS // 2), 8),
        "divergence",
        frozen=True,
    ),
    Case("divergence", "four_ways", *FLAT, _flat(16 * THREADS // 4, THREADS, 4), "divergence", frozen=True),
    Case("divergence", "few_lanes", *FLAT, _flags, "divergence"),
    Case("divergence", "own_turns", (132,), (128,), _flat(33 * 132 * 128, 132 * 128), "divergence"),
    Case("reload", "naive_product", (4, 16), (32, 8), _product, "sectors-reloaded", frozen=True),
    Case("reload", "window_sum", (132,), (256,), _flat(132 * 256 + 64, 132 * 256, 32), "sectors-reloaded", frozen=True),
    Case(
        "reload",
        "all_coefficients",
        (132,),
        (256,),
        lambda target, _: (target.zeros(132 * 256), floats(target, 132 * 256), floats(target, 64), 64),
        "sectors-reloaded",
    ),
    Case("reload", "all_pairs", (132,), (128,), _flat(96, 132 * 128, 96), "sectors-reloaded"),
    Case("atomics", "one_counter", *FLAT, _counters(None, None, "in"), "contended-atomics", frozen=True),
    Case(
        "atomics",
        "four_bins",
        *FLAT,
        lambda target, _: (target.zeros(4, "i4"), whole(target, 1 << 20, THREADS)),
        "contended-atomics",
        frozen=True,
    ),
    Case(
        "atomics",
        "counter_of_block",
        *FLAT,
        lambda target, _: (target.zeros(THREADS, "i4"), whole(target, 1 << 20, THREADS)),
        "contended-atomics",
    ),
    Case(
        "atomics",
        "running_maximum",
        (132,),
        (256,),
        lambda target, _: (target.zeros(1, "i4"), whole(target, 1 << 20, 4 * 132 * 256), 4),
        "contended-atomics",
    ),
    Case(
        "atomics",
        "warp_sums",
        *FLAT,
        lambda target, _: (target.zeros(1, "u4"), target.array(np.arange(16 * THREADS, dtype=np.uint32)), 16),
        "contended-atomics",
    ),
    Case(
        "atomics",
        "best_of_warps",
        *FLAT,
        lambda target, _: (target.zeros(2, "u4"), target.array(np.arange(16 * THREADS, dtype=np.uint32)), 16),
        "contended-atomics",
    ),
    Case(
        "atomics",
        "tickets",
        *FLAT,
        lambda target, _: (target.zeros(1, "i4"), target.zeros(16 * THREADS, "i4"), whole(target, 1 << 20, 16 * THREADS), 16),
        "contended-atomics",
    ),
    Case(
        "local",
        "own_stack",
        *FLAT,
        lambda target, _: (target.zeros(THREADS, "i4"), whole(target, 1 << 20, THREADS), 32),
        "local-memory",
        frozen=True,
    ),
    Case(
        "local",
        "own_bins",
        (132,),
        (256,),
        lambda target, _: (target.zeros(33792, "i4"), whole(target, 1 << 20, 16 * 33792), 16),
        "local-memory",
        frozen=True,
    ),
    Case(
        "local",
        "own_permutation",
        (132,),
        (256,),
        lambda target, _: (target.zeros(33792, "i4"), whole(target, 1 << 20, 33792), 16),
        "local-memory",
    ),
    Case(
        "narrow",
        "inverted_bytes",
        *FLAT,
        lambda target, random: (target.zeros(THREADS, "u1"), _integers(target, random, "u1", 1)),
        "narrow-access",
        frozen=True,
    ),
    Case("narrow", "summed_frames", *FLAT, _narrow("u1", 16), "narrow-access", frozen=True),
    Case("narrow", "loudest_sample", *FLAT, _narrow("i2", 16), "narrow-access", frozen=True),
)

CLEAN = (
    Case("clean", "copy", *FLAT, _flat(), frozen=True),
    Case(
        "clean",
        "scaled_sum",
        (132,),
        (256,),
        lambda target, _: (target.zeros(4 * 33792), floats(target, 4 * 33792), 2.0, 4 * 33792),
        frozen=True,
    ),
    Case("clean", "wide_copy", *FLAT, lambda target, _: (target.zeros((THREADS, 4)), floats(target, THREADS, 4)), frozen=True),
    Case("clean", "padded_transpose", (16, 16), (32, 8), _flat(512 * 512, 512 * 512, 512), frozen=True),
    Case("clean", "tiled_stencil", *FLAT, _flat(THREADS, THREADS, THREADS), frozen=True),
    Case("clean", "shuffled_sum", (132,), (256,), _flat(8 * 33792, 132, 8 * 33792), frozen=True),
    Case("clean", "tiled_product", (4, 4), (32, 32), _product, frozen=True),
    Case("clean", "cached_stencil", *FLAT, _flat(THREADS, THREADS, THREADS), frozen=True),
    Case("clean", "row_norm", (132,), (256,), _flat(1056 * 128, 1056 * 128, 128), frozen=True),
    Case("clean", "polynomial", *FLAT, _flat(), frozen=True),
)

CASES = (*PLANTED, *CLEAN)
