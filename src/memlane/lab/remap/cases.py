"""Define the four cases: arrays, kernels with and without the remap, and the results that NumPy computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.compile import cuda
from memlane.errors import CommandError
from memlane.launch import DeviceArray, LoadedModule, Target
from memlane.layout import ArrayLayout, array_layout
from memlane.packages import install_command
from memlane.ptx import Module

Array = npt.NDArray[Any]
KMEANS, STRIPS, SPARSE, PARTICLES = "k-means", "Needleman-Wunsch", "sparse product", "particles"
SOURCE = Path(__file__).with_name("kernels.cu")
FEATURES, CLUSTERS, PENALTY = 34, 5, 10
WORKS = (1, 2, 4, 8)
"""Points per thread of K-means."""


@dataclass(frozen=True)
class Call:
    """One launch of a case; arrays are given by name."""

    kernel: str
    grid: int
    block: int
    arguments: tuple[str | int | float, ...]


@dataclass(frozen=True)
class Way:
    """One way to compute a case: a module, and its launches in order."""

    module: Module
    calls: tuple[Call, ...]
    preparation: tuple[Call, ...] = ()
    """Launches needed once per upload, such as a remap."""


@dataclass(frozen=True)
class Case:
    """A case of one size. `host` are the arrays that are uploaded, `made` those that the device makes, by shape and type."""

    name: str
    size: int
    host: Mapping[str, Array]
    made: Mapping[str, tuple[tuple[int, ...], str]]
    remapped: str
    """Name of the array that is remapped."""
    layout: str
    """Layout of that array; `gather` for the vector of the sparse product, whose indices are `columns`."""
    without: Way
    with_remap: Way
    by_hand: Way | None
    results: Mapping[str, Array] = field(default_factory=dict)
    """Expected contents of the result arrays, row-major."""
    result_layouts: Mapping[str, ArrayLayout] = field(default_factory=dict)
    """Layouts of results that differ where the remap was made."""
    tolerance: float = 0.0
    """Relative tolerance of results: 0 if all numbers are whole."""
    works: Mapping[int, Way] = field(default_factory=dict)
    """Ways with the remap, by the amount of work per thread."""


@lru_cache(maxsize=32)
def compiled(case: int, layout: ArrayLayout | None, gathered: bool = False, work: int = 1) -> Module:
    """Return the kernels of a case for a layout of its array."""
    place = layout.cuda_source("place") if layout is not None else ""
    defines = (f"CASE={case}", f"GATHERED={int(gathered)}", f"WORK={work}")
    return cuda(f"{place}\n{SOURCE.read_text(encoding='utf-8')}", name="kernels.cu", define=defines, arch="sm_80")


def kmeans(count: int) -> Case:
    draw = np.random.default_rng(count)
    points = draw.integers(0, 64, (count, FEATURES)).astype("f4")  # small whole numbers: any order of summation gives the same
    centres = draw.integers(0, 64, (CLUSTERS, FEATURES)).astype("f4")
    distances = np.stack([((points - centre) ** 2).sum(axis=1) for centre in centres])
    plain, turned = array_layout("row-major", points.shape), array_layout("column-major", points.shape)
    threads = 256

    def way(layout: ArrayLayout, work: int, name: str, *before: Call) -> Way:
        call = Call("assign", -(-count // (threads * work)), threads, (name, "centres", "members", count, FEATURES, CLUSTERS))
        return Way(compiled(1, layout, work=work), (call,), before)

    preparation = Call("invert_mapping", -(-count // threads), threads, ("points", "turned", count, FEATURES))
    return Case(
        KMEANS,
        count,
        {"points": points, "centres": centres},
        {"members": ((count,), "i4"), "turned": ((FEATURES, count), "f4")},
        "points",
        "column-major",
        way(plain, 1, "points"),
        way(turned, 1, "points"),
        way(turned, 1, "turned", preparation),
        {"members": distances.argmin(axis=0).astype("i4")},
        works={work: way(turned, work, "points") for work in (WORKS if count >= 4096 else WORKS[:2])},
    )


def strips(side: int) -> Case:
    similarity = np.random.default_rng(side).integers(-4, 12, (side, side), dtype=np.int32)
    plain, diagonal = (array_layout(layout, similarity.shape) for layout in ("row-major", "diagonal"))
    threads = 256
    calls = tuple(
        Call("diagonal", -(-_elements(number, side) // threads), threads, ("similarity", "score", number, side, PENALTY))
        for number in range(2 * side - 1)
    )
    across = side // 16
    blocks = tuple(
        Call("tiles", _elements(number, across), 16, ("similarity", "score", number, side, PENALTY)) for number in range(2 * across - 1)
    )
    return Case(
        STRIPS,
        side,
        {"similarity": similarity},
        {"score": ((side, side), "i4")},
        "similarity",
        "diagonal",
        Way(compiled(2, plain), calls),
        Way(compiled(2, diagonal), calls),
        Way(compiled(2, plain), blocks),
        {"score": aligned(similarity)},
        {"score": diagonal},
    )


def _elements(number: int, side: int) -> int:
    """Return the number of elements of an anti-diagonal of a square."""
    return min(number, 2 * side - 2 - number) + 1


def aligned(similarity: Array) -> Array:
    """Return the score table of Needleman and Wunsch, row by row: the running maximum carries the values from the left."""
    side = len(similarity)
    before = -PENALTY * np.arange(side + 1)
    table = np.empty((side, side), np.int32)
    steps = PENALTY * np.arange(side + 1)
    for i in range(side):
        best = np.maximum(before[:-1] + similarity[i], before[1:] - PENALTY)
        row = np.concatenate(([-(i + 1) * PENALTY], best)) + steps
        before = np.maximum.accumulate(row) - steps
        table[i] = before[1:]
    return table


def sparse(rows: int) -> Case:
    draw = np.random.default_rng(rows)
    lengths = draw.integers(8, 64, rows)
    begins = np.concatenate(([0], np.cumsum(lengths))).astype("i4")
    columns = draw.integers(0, rows, begins[-1]).astype("i4")
    return _product(begins, columns, draw.integers(1, 5, begins[-1]).astype("f4"), draw.integers(1, 5, rows).astype("f4"))


def sparse_from(path: Path) -> Case:
    """Return the sparse product of a MatrixMarket file. Raises CommandError for a file that SciPy does not read as a real matrix."""
    try:
        from scipy.io import mmread
    except ImportError:
        raise CommandError(f"--matrix needs SciPy, which reads MatrixMarket files; install it with: {install_command('lab')}") from None
    try:
        matrix = mmread(path).tocsr()
    except FileNotFoundError:
        raise CommandError(f"--matrix {path}: there is no such file") from None
    except (AttributeError, OSError, TypeError, ValueError) as error:
        raise CommandError(f"--matrix {path}: SciPy cannot read it as a sparse matrix: {error}") from None
    if np.iscomplexobj(matrix) or not matrix.nnz:
        raise CommandError(f"--matrix {path}: it is {'complex' if matrix.nnz else 'empty'}; the product takes real numbers")
    x = np.random.default_rng(0).integers(1, 5, matrix.shape[1]).astype("f4")
    begins, columns = (one.astype("i4") for one in (matrix.indptr, matrix.indices))
    case = _product(begins, columns, matrix.data.astype("f4"), x)
    return replace(case, name=f"{SPARSE} of {path.name}", results={"y": matrix.astype("f8") @ x.astype("f8")}, tolerance=1e-5)


def _product(begins: Array, columns: Array, values: Array, x: Array) -> Case:
    rows, threads = len(begins) - 1, 128
    call = Call("product", -(-rows * 32 // threads), threads, ("begins", "columns", "values", "x", "y", rows))
    sums = np.concatenate(([0.0], np.cumsum(values.astype("f8") * x[columns])))
    return Case(
        SPARSE,
        rows,
        {"begins": begins, "columns": columns, "values": values, "x": x},
        {"y": ((rows,), "f4")},
        "x",
        "gather",
        Way(compiled(3, None), (call,)),
        Way(compiled(3, None, gathered=True), (call,)),
        None,
        {"y": (sums[begins[1:]] - sums[begins[:-1]]).astype("f4")},
    )


def particles(count: int) -> Case:
    draw = np.random.default_rng(count)
    given = draw.random((count, 7), np.float32)
    plain, turned = array_layout("row-major", given.shape), array_layout("column-major", given.shape)
    threads = 256
    blocks = -(-count // threads)
    calls = tuple(Call("extent", blocks, threads, ("particles", "least", "most", axis, count)) for axis in range(7))
    whole = Call("extents", blocks, threads, ("particles", "least", "most", count))
    warps = 7, blocks * threads // 32
    results = {name: np.zeros(warps, np.float32) for name in ("least", "most")}
    first = np.arange(0, count, 32)
    for name, function in (("least", np.minimum), ("most", np.maximum)):
        results[name][:, : len(first)] = function.reduceat(given, first, axis=0).T
    return Case(
        PARTICLES,
        count,
        {"particles": given},
        {"least": (warps, "f4"), "most": (warps, "f4")},
        "particles",
        "column-major",
        Way(compiled(4, plain), calls),
        Way(compiled(4, turned), calls),
        Way(compiled(4, plain), (whole,)),
        results,
    )


MAKE: Mapping[str, Callable[[int], Case]] = {KMEANS: kmeans, STRIPS: strips, SPARSE: sparse, PARTICLES: particles}


def loaded(target: Target, way: Way) -> LoadedModule:
    return target.load(way.module)


Memory = dict[str, DeviceArray]
