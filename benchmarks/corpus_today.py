"""Describe the kernels of `kernels/today`, as they are written in Triton today.

python benchmarks/corpus_today.py        compiles them again; needs Triton
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from corpus import KERNELS, Array, Case, Group, Problem, kept_ptx

from memlane.compile import triton
from memlane.launch import Kernel, Target
from memlane.ptx import parse

FOLDER = KERNELS / "today"
BLOCK, WIDTH, HALF = 64, 64, "*fp16:16"
Random = np.random.Generator


@dataclass(frozen=True)
class TritonCase(Case):
    """A kernel with what Triton needs to compile it."""

    signature: str = ""
    constexprs: Mapping[str, object] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3

    def compiled(self) -> str:
        """Return the kernel's PTX, after a line with what a launch must know. Raises MissingDependency without Triton."""
        sys.path.insert(0, str(FOLDER))
        import triton_kernels

        function = getattr(triton_kernels, self.kernel)
        module = triton(function, self.signature, dict(self.constexprs), num_warps=self.num_warps, num_stages=self.num_stages)
        convention = next(iter(module.kernels.values())).convention
        assert convention is not None
        return f"// shared bytes: {convention.shared_bytes}\n{kept_ptx(module)}"


class TritonGroup(Group):
    """Kernels of which each is a file of PTX."""

    def load(self, target: Target) -> Mapping[str, Kernel]:  # type: ignore[override]
        found = {}
        for case in self.cases:
            path = FOLDER / f"{case.kernel}.ptx"
            found[case.kernel] = target.load(parse(path.read_text(encoding="utf-8"), path.name))[case.kernel]
        return found


def shared_bytes(kernel: str) -> int:
    """Return how much dynamic shared memory a launch needs."""
    return int((FOLDER / f"{kernel}.ptx").read_text(encoding="utf-8").partition("\n")[0].rpartition(" ")[2])


SCRATCH = np.uint64(0), np.uint64(0)
"""Pointers that Triton appends, to memory that these kernels do not use."""


def _launch(kernel: str, grid: Any, warps: int, arguments: tuple[Any, ...], results: Mapping[int, Array], close: float = 0.0) -> Problem:
    words = tuple(np.int32(one) if isinstance(one, int) else one for one in arguments)
    return Problem(grid, 32 * warps, (*words, *SCRATCH), results, shared_bytes(kernel), close)


def _small(random: Random, *shape: int, dtype: str = "f2") -> Array:
    return random.integers(-4, 5, shape).astype(dtype)


def _grouped(n: int, random: Random) -> Problem:
    a, b, ends = _small(random, 256, 64), _small(random, 3, 64, 128), np.array([64, 192, 256], np.int32)
    c = np.concatenate(
        [a[start:end].astype("f4") @ weights.astype("f4") for start, end, weights in zip([0, 64, 192], ends, b, strict=True)]
    )
    return _launch("grouped_product", (4, 2), 4, (np.zeros_like(c), a, b, ends, 3, 128, 64), {0: c})


def _persistent(n: int, random: Random) -> Problem:
    a, b = _small(random, 256, 64), _small(random, 64, 192)
    c = a.astype("f4") @ b.astype("f4")
    return _launch("persistent_product", 5, 4, (np.zeros_like(c), a, b, 256, 192, 64), {0: c})


def _fp8(random: Random, *shape: int) -> tuple[Array, Array]:
    """Return whole numbers as bytes of sign, 4 bits of exponent (bias 7) and 3 of fraction, and the same numbers as floats."""
    codes = np.array([0, 0x38, 0x40, 0x44, 0x48, 0xB8, 0xC0, 0xC4, 0xC8], np.uint8)
    values = np.array([0, 1, 2, 3, 4, -1, -2, -3, -4], np.float32)
    chosen = random.integers(0, len(codes), shape)
    return codes[chosen], values[chosen]


def _fp8_product(n: int, random: Random) -> Problem:
    (a, a_values), (b, b_values) = _fp8(random, 128, 128), _fp8(random, 128, 128)
    c = a_values @ b_values.T
    return _launch("fp8_product", (2, 2), 4, (np.zeros_like(c), a, b, 128, 128), {0: c})


def _int8_product(n: int, random: Random) -> Problem:
    a, b = (random.integers(-128, 128, (128, 128)).astype("i1") for _ in range(2))
    c = a.astype("i4") @ b.astype("i4").T
    return _launch("int8_product", (2, 2), 4, (np.zeros_like(c), a, b, 128, 128), {0: c})


def _scores(random: Random) -> tuple[Array, ...]:
    q, k, v, do = random.normal(size=(4, 128, WIDTH)).astype(np.float16)
    high = q.astype("f8") @ k.T.astype("f8") / 8
    powers = np.exp(high - high.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    largest = (high.max(axis=1) + np.log(powers.sum(axis=1))).astype("f4")
    slopes = shares * (do.astype("f8") @ v.T.astype("f8"))
    delta = slopes.sum(axis=1).astype("f4")
    of_scores = (slopes - shares * delta[:, None]) / 8
    return q, k, v, do, largest, delta, shares, of_scores


def _of_keys(n: int, random: Random) -> Problem:
    q, k, v, do, largest, delta, shares, of_scores = _scores(random)
    results = {0: (of_scores.T @ q).astype("f4"), 1: (shares.T @ do).astype("f4")}
    empty = np.zeros((128, WIDTH), "f4")
    return _launch("attention_of_keys", 2, 4, (empty, empty, q, k, v, do, largest, delta, 128, np.float32(0.125)), results, 2e-2)


def _of_queries(n: int, random: Random) -> Problem:
    q, k, v, do, largest, delta, _, of_scores = _scores(random)
    result = (of_scores @ k).astype("f4")
    return _launch(
        "attention_of_queries", 2, 4, (np.zeros_like(result), q, k, v, do, largest, delta, 128, np.float32(0.125)), {0: result}, 2e-2
    )


def _norm(n: int, random: Random) -> Problem:
    x, weight, bias = (random.normal(size=shape).astype(np.float16) for shape in ((16, 1000), 1000, 1000))
    values = x.astype("f8")
    scaled = (values - values.mean(axis=1, keepdims=True)) / np.sqrt(values.var(axis=1, keepdims=True) + 1e-5)
    result = (scaled * weight + bias).astype(np.float16)
    return _launch("layer_norm", 16, 4, (np.zeros_like(result), x, weight, bias, 1000, np.float32(1e-5)), {0: result}, 1e-2)


def _softmax(n: int, random: Random) -> Problem:
    x = random.normal(size=(16, 1000)).astype("f4")
    powers = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
    result = (powers / powers.sum(axis=1, keepdims=True)).astype("f4")
    return _launch("softmax", 16, 4, (np.zeros_like(result), x, 1000), {0: result}, 1e-5)


def _scan(n: int, random: Random) -> Problem:
    x = random.integers(-9, 10, (8, 2048)).astype("i4")
    return _launch("scan", 8, 4, (np.zeros_like(x), x, 2048), {0: x.cumsum(axis=1, dtype="i4")})


def _top_k(n: int, random: Random) -> Problem:
    x = random.normal(size=(8, 512)).astype("f4")
    result = np.sort(x, axis=1)[:, :-9:-1].copy()
    return _launch("top_k", 8, 4, (np.zeros_like(result), x, 512), {0: result})


def _pages(n: int, random: Random) -> Problem:
    pages, table = random.integers(-9, 10, (32, 16, 128)).astype("f2"), random.permutation(32)[:24].reshape(4, 6).astype("i4")
    return _launch("paged_gather", (4, 6), 4, (np.zeros((4, 6, 16, 128), "f2"), pages, table, 6), {0: pages[table]})


_TILES = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
_BYTES = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
_HEAD = {"BLOCK": BLOCK, "WIDTH": WIDTH}
_ROWS = "*fp32:16, *fp32:16"
GROUP = TritonGroup(
    "today",
    (
        TritonCase(
            "grouped_product",
            "products with a group of weights each",
            _grouped,
            f"*fp32:16, {HALF}, {HALF}, *i32:16, i32, i32:16, i32:16",
            _TILES,
        ),
        TritonCase(
            "persistent_product",
            "blocks that do one tile after another",
            _persistent,
            f"*fp32:16, {HALF}, {HALF}, i32:16, i32:16, i32:16",
            _TILES,
        ),
        TritonCase(
            "fp8_product",
            "a product of numbers of 8 bits with an exponent",
            _fp8_product,
            "*fp32:16, *fp8e4nv:16, *fp8e4nv:16, i32:16, i32:16",
            _BYTES,
        ),
        TritonCase("int8_product", "a product of bytes", _int8_product, "*i32:16, *i8:16, *i8:16, i32:16, i32:16", _BYTES),
        TritonCase(
            "attention_of_keys",
            "attention backward, by keys",
            _of_keys,
            f"{_ROWS}, {HALF}, {HALF}, {HALF}, {HALF}, {_ROWS}, i32:16, fp32",
            _HEAD,
        ),
        TritonCase(
            "attention_of_queries",
            "attention backward, by queries",
            _of_queries,
            f"*fp32:16, {HALF}, {HALF}, {HALF}, {HALF}, {_ROWS}, i32:16, fp32",
            _HEAD,
        ),
        TritonCase("layer_norm", "rows of 1,000 halves", _norm, f"{HALF}, {HALF}, {HALF}, {HALF}, i32, fp32", {"BLOCK": 1024}),
        TritonCase("softmax", "rows of 1,000 floats", _softmax, f"{_ROWS}, i32", {"BLOCK": 1024}),
        TritonCase("scan", "sums up to each element, a block at a time", _scan, "*i32:16, *i32:16, i32:16", {"BLOCK": 1024}),
        TritonCase("top_k", "the eight largest of a row", _top_k, f"{_ROWS}, i32:16", {"BLOCK": 512, "K": 8}),
        TritonCase(
            "paged_gather", "pages of a cache that a table names", _pages, f"{HALF}, {HALF}, *i32:16, i32:16", {"PAGE": 16, "WIDTH": 128}
        ),
    ),
)


def main() -> None:
    for case in GROUP.cases:
        assert isinstance(case, TritonCase)
        text = case.compiled()
        (FOLDER / f"{case.kernel}.ptx").write_text(text, encoding="utf-8")
        print(f"{case.kernel}: {len(text):,} characters, {shared_bytes(case.kernel):,} bytes of shared memory")


if __name__ == "__main__":
    main()
