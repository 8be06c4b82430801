"""Choose the kernel of a remap by shape, alignment and element width, and describe its launch as data.

| kernel | moves |
|---|---|
| `transpose` | the fastest axes of the two sides differ; in units of 16 bytes, through shared memory without bank conflicts |
| `transpose_any` | the same if rows or addresses are not multiples of 16 bytes; one element per lane |
| `split_structures`, `join_structures` | structures of at most 16 elements to arrays, and back; `..._any` if counts do not divide |
| `split_fields`, `join_fields` | structures with fields of different widths to arrays of their fields, and back; `..._any` likewise |
| `copy_strided` | both sides have the same fastest axis: padding, permuted rows |
| `scatter`, `collect` | everything else, by the layout's own function; diagonals through a skewed tile |
| `gather` | rows by index |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from math import lcm
from pathlib import Path
from typing import Any

from memlane.compile import cuda
from memlane.errors import LayoutError
from memlane.launch import module_digest
from memlane.layout import ArrayLayout, DiagonalStrip, Fields, OfTile
from memlane.number_format import plural
from memlane.plan import KernelRef, Launch, View, planned
from memlane.ptx import Module
from memlane.remap.movement import WIDEST, Axis, Movement

ARCH = "sm_80"
"""Architecture to compile for: every newer GPU accepts its code, and counting on a GPU needs at least this one."""
MOST_FIELDS = 16
"""Maximum elements of a structure that one thread holds in registers."""
_MOST_STRUCTURE = 512
"""Maximum bytes of a structure for a block of 64 threads with one structure each."""
_FOLDER = Path(str(files(__package__)))
_MOST_BLOCKS = (1 << 31) - 1


@dataclass(frozen=True)
class Tile:
    """The shape of a tile that one block transposes, and its load and store functions."""

    row_units: int = 16
    """Units of 16 bytes along the rows of the source; at least 8, which determine the bank of a unit."""
    column_units: int = 16
    group: int = 0
    """Vertically adjacent tiles that are consecutive in block order: 0 all, 1 none. With all of them, concurrent blocks fill whole rows of
    the result; on an H200 that is 3 to 6 % faster than any square of tiles."""
    load: str = "load_plain"
    store: str = "store_plain"

    @property
    def threads(self) -> int:
        return self.row_units * self.column_units


@dataclass(frozen=True)
class Share:
    """The part of an array of structures that one block processes, and its load and store functions."""

    shared_bytes: int = 1 << 15
    """Shared memory that decides between 256, 128 and 64 threads, in bytes."""
    load: str = "load_plain"
    store: str = "store_plain"


SHARE = Share()


TILES = {1: Tile(16, 16), 2: Tile(16, 16), 4: Tile(16, 16), 8: Tile(16, 32), 16: Tile(16, 16)}
"""Element bytes -> fastest tile on an H200 (`benchmarks/remap_tuning.py`)."""


@dataclass(frozen=True)
class Remap:
    """One launch of a remap, with the module of its kernel."""

    launch: Launch
    module: Module


@lru_cache(maxsize=256)
def compiled(file: str, defines: tuple[str, ...], place: str = "") -> tuple[Module, str]:
    """Return the module of a source file of this package, and its digest. `place` is text inserted before the kernels.

    The header is inlined into the text, so that the module is the same wherever it is compiled.
    """
    header, text = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("elements.cuh", file))
    text = text.replace('#include "elements.cuh"\n', f"{header}\n{place}")
    module = cuda(text, name=f"memlane/remap/{file}", arch=ARCH, define=defines)
    return module, module_digest(module)


def _remap(
    kernel: str,
    file: str,
    defines: Sequence[str],
    grid: int | tuple[int, int],
    block: int,
    arguments: Sequence[View | int],
    reads: Sequence[View],
    writes: Sequence[View],
    shared_bytes: int = 0,
    place: str = "",
) -> Remap:
    module, digest = compiled(file, tuple(defines), place)
    across = grid if isinstance(grid, int) else grid[0]
    if across > _MOST_BLOCKS or (isinstance(grid, tuple) and grid[1] > 65535):
        raise LayoutError(f"a remap of {reads[0]} needs {grid} blocks, more than a launch may have: upload it in more chunks")
    launch = planned(
        KernelRef(digest, kernel, kernel), grid, block, *arguments, reads=tuple(reads), writes=tuple(writes), shared_bytes=shared_bytes
    )
    return Remap(launch, module)


def remap_of(movement: Movement, out: View, source: View, tile: Tile | None = None, share: Share = SHARE) -> Remap:
    """Return the launch that performs a movement from `source`, which starts at the movement's first element, to `out`.

    Both are views whose offsets in their buffers, which are aligned to 256 bytes, give their alignment.
    """
    simple = movement.simplified(out.offset, source.offset)
    if not simple.axes:
        simple = Movement((Axis(1, 1, 1),), simple.element)
    fastest_in = min(simple.axes, key=lambda axis: axis.source)
    fastest_out = min(simple.axes, key=lambda axis: axis.destination)
    if fastest_in is not fastest_out and len(simple.axes) <= 4 and fastest_in.source == 1 and fastest_out.destination == 1:
        rows, columns = fastest_out, fastest_in
        batches = [axis for axis in simple.axes if axis is not rows and axis is not columns]
        structures = None if batches else _structures(simple.element, rows, columns, out, source, share)
        return structures or _transpose(simple.element, rows, columns, batches, out, source, tile)
    if len(simple.axes) > 6:
        raise LayoutError(f"a remap over {plural(len(simple.axes), 'axis')} is not supported: use a layout with fewer blocks or axes")
    return _copy_strided(simple, out, source)


def _structures(element: int, rows: Axis, columns: Axis, out: View, source: View, share: Share) -> Remap | None:
    """Return the launch for structures of few elements; None for other matrices."""
    if columns.extent <= MOST_FIELDS and rows.source == columns.extent:
        kernel, fields, count, pitch = "split_structures", columns.extent, rows.extent, columns.destination
    elif rows.extent <= MOST_FIELDS and columns.destination == rows.extent:
        kernel, fields, count, pitch = "join_structures", rows.extent, columns.extent, rows.source
    else:
        return None
    unit = WIDEST // element
    fits = not (count % unit or pitch % unit or out.offset % WIDEST or source.offset % WIDEST)
    threads = next((count for count in (256, 128) if fields * WIDEST * count <= share.shared_bytes), 64)
    defines = [f"ELEMENT={element}", f"FIELDS={fields}", f"THREADS={threads}", f"PERIOD={lcm(fields, 8)}"]
    defines += [f"LOAD={share.load}", f"STORE={share.store}", *(["VECTORS=1"] if fits else [])]
    blocks = -(-count // (threads * (unit if fits else 1)))
    name = kernel if fits else f"{kernel}_any"
    return _remap(name, "structures.cu", defines, blocks, threads, [out, source, count, pitch], [source], [out])


def _transpose(element: int, rows: Axis, columns: Axis, batches: list[Axis], out: View, source: View, tile: Tile | None) -> Remap:
    unit = WIDEST // element
    inner, outer = (*batches[::-1], Axis(1, 0, 0), Axis(1, 0, 0))[:2]
    steps = (
        rows.extent,
        columns.extent,
        rows.source,
        columns.destination,
        inner.source,
        inner.destination,
        outer.source,
        outer.destination,
    )
    fits = not any(step % unit for step in steps) and not (out.offset % WIDEST or source.offset % WIDEST)
    chosen = tile or TILES[element]
    group = f"GROUP={chosen.group}"
    shape = [rows.extent, columns.extent, rows.source, columns.destination]
    batch = [inner.extent, inner.source, inner.destination, outer.source, outer.destination]
    if fits:
        down, across = chosen.row_units * unit, chosen.column_units * unit
        defines = [f"ELEMENT={element}", f"ROW_UNITS={chosen.row_units}", f"COLUMN_UNITS={chosen.column_units}", group]
        defines += [f"LOAD={chosen.load}", f"STORE={chosen.store}"]
        name, threads, shared = "transpose", chosen.threads, chosen.threads * unit * WIDEST
    else:
        down = across = 32
        defines, name, threads, shared = [f"ELEMENT={element}", group], "transpose_any", 256, 0
    blocks = -(-rows.extent // down) * -(-columns.extent // across) * inner.extent * outer.extent
    return _remap(name, "transpose.cu", defines, blocks, threads, [out, source, *shape, *batch], [source], [out], shared)


def transpose_in_place(data: View, side: int) -> Remap:
    """Return the launch that transposes a square matrix in place. Raises LayoutError for elements that are not 1, 2, 4, 8 or 16 bytes."""
    if data.itemsize not in TILES:
        raise LayoutError(f"elements of {plural(data.itemsize, 'byte')} are not transposed in place: leave out in_place")
    tiles = -(-side // 32)
    defines = [f"ELEMENT={data.itemsize}", "GROUP=1"]
    return _remap("transpose_in_place", "transpose.cu", defines, (tiles, tiles), 256, [data, side, side], [data], [data])


def _copy_strided(simple: Movement, out: View, source: View) -> Remap:
    axes = [*(Axis(1, 0, 0) for _ in range(6 - len(simple.axes))), *simple.axes]
    arguments = [simple.count, *(axis.extent for axis in axes[1:]), *(axis.source for axis in axes), *(axis.destination for axis in axes)]
    blocks = -(-simple.count // 256)
    return _remap("copy_strided", "rows.cu", [f"ELEMENT={simple.element}"], blocks, 256, [out, source, *arguments], [source], [out])


def remap_by_function(layout: ArrayLayout, out: View, source: View, first: int, rows: int, *, back: bool = False) -> Remap:
    """Return the launch that moves rows `first` to `first + rows` (along axis 0) to their places under any layout, or `back` from there.

    One side is a contiguous array of these rows alone, the other the whole memory of the layout.
    """
    element = out.itemsize
    if element not in TILES:
        raise LayoutError(f"elements of {plural(element, 'byte')} under {layout} are not supported: use elements of 1, 2, 4, 8 or 16 bytes")
    if isinstance(layout, Fields) and layout.shape[1] * element <= _MOST_STRUCTURE:
        return _fields(layout, out, source, first, rows, back=back)
    kernel = "collect" if back else "scatter"
    arguments: list[View | int] = [out, source]
    if isinstance(layout, OfTile) and isinstance(layout.tile, DiagonalStrip):
        columns = layout.shape[1]
        grid = (-(-(columns + 31) // 32), -(-rows // 32))
        defines = [f"ELEMENT={element}", "DIAGONAL=1"]
        place = layout.cuda_source("place")
        return _remap(kernel, "mapped.cu", defines, grid, 256, [*arguments, first, rows, columns], [source], [out], place=place)
    inner = layout.count // layout.shape[0]
    place = f"{layout.cuda_source('place')}\n#define COORDINATES {_coordinates(layout.shape)}\n"
    count = rows * inner
    arguments = [*arguments, first * inner, count]
    return _remap(kernel, "mapped.cu", [f"ELEMENT={element}"], -(-count // 256), 256, arguments, [source], [out], place=place)


def _fields(layout: Fields, out: View, source: View, first: int, rows: int, *, back: bool) -> Remap:
    """Return the launch for structures `first` to `first + rows` whose fields have different widths."""
    (pitch, words), element = layout.shape, out.itemsize
    unit = WIDEST // element
    fits = words <= MOST_FIELDS and not any(number % unit for number in (rows, pitch, first))
    fits = fits and not (out.offset % WIDEST or source.offset % WIDEST)
    room = words * (WIDEST if fits else element)
    threads = next((count for count in (256, 128) if room * count <= SHARE.shared_bytes), 64)
    regions, start, region = [], 0, 0
    for width in layout.widths:
        period = lcm(width, 8)
        regions.append(f"X({start}, {width}, {region}, {period})")
        start, region = start + width, region + (width * threads + width * threads // period + 1 if width > 1 else 0)
    staged = words * threads + words * threads // lcm(words, 8) + 1
    defines = [f"ELEMENT={element}", f"WORDS={words}", f"THREADS={threads}"]
    if fits:
        defines += ["VECTORS=1", f"PERIOD={lcm(words, 8)}", f"SHARED_UNITS={max(staged, region)}"]
    place = f"#define EACH_FIELD(X) {' '.join(regions)}\n"
    kernel = f"{'join' if back else 'split'}_fields{'' if fits else '_any'}"
    blocks = -(-rows // (threads * (unit if fits else 1)))
    return _remap(kernel, "fields.cu", defines, blocks, threads, [out, source, first, rows, pitch], [source], [out], place=place)


def _coordinates(shape: tuple[int, ...]) -> str:
    """Return the coordinates of the row-major index `flat` in C++."""
    parts: list[str] = []
    inner = 1
    for axis in reversed(range(len(shape))):
        divided = f"flat / {inner}" if inner > 1 else "flat"
        parts.insert(0, f"{divided} % {shape[axis]}" if axis else divided)
        inner *= shape[axis]
    return ", ".join(parts)


def gather_of(out: View, source: View, indices: View, wrong: View, first: int, rows: int, row_bytes: int) -> Remap:
    """Return the launch that gathers rows of `row_bytes`: position k of `out` gets row `indices[k]` of the `rows` in `source`.

    `first` is the position of the first index, for the report of an index out of range; `wrong` is a single u8 for the report, initially
    larger than any position.
    """
    element = next(width for width in (16, 8, 4, 2, 1) if row_bytes % width == 0 and not (out.offset % width or source.offset % width))
    threads, turns, places = 256, 4, indices.size
    defines = [f"ELEMENT={element}", f"ROW_UNITS={row_bytes // element}", f"INDEX={indices.itemsize}", f"THREADS={threads}"]
    defines += [f"TURNS={turns}", "LOAD=load_plain", "STORE=store_once"]
    blocks = -(-places * (row_bytes // element) // (threads * turns))
    arguments: list[Any] = [out, source, indices, wrong, places, first, rows]
    return _remap("gather", "gather.cu", defines, blocks, threads, arguments, [source, indices, wrong], [out, wrong])
