"""Map the elements of a tile to offsets, with layouts that compose, invert, print themselves and become kernel code.

    from memlane.layout import RandomPermuteShift, XorSwizzle, count, pattern

    xor = XorSwizzle(32, 32)
    xor(3, 5), xor.inverse(xor(3, 5)), xor.is_bijective
    print(xor.cuda_source("place"))                                # for CUDA C++; xor.numba() for Numba
    count(xor, pattern("antidiagonal", 32, 32), chip, width=4)     # wavefronts over all offsets

`arrays` has the layouts of whole arrays in global memory, of one to four dimensions, which `ml.upload` applies during the transfer.
`expression` and `program` are the building blocks of maps, `layout` is the base class, and each family has a file. `patterns` are the
accesses of a warp, `wavefronts` counts their cost by a chip's rule, `spec` reads layouts by name.
"""

from memlane.layout.array_families import Blocked, Fields, OfTile, PaddedRows, Permuted, column_major, row_major
from memlane.layout.array_spec import array_layout
from memlane.layout.arrays import ArrayLayout, ComposedArray, same_places, sources
from memlane.layout.bit_linear import BitLinear
from memlane.layout.diagonal import DiagonalStrip
from memlane.layout.gather import Gather
from memlane.layout.layout import Composed, Layout
from memlane.layout.patterns import Pattern, pattern, split_names
from memlane.layout.program import Cost
from memlane.layout.selection import Selection
from memlane.layout.shifts import RandomPermuteShift, RandomShift, ShiftTable, Skewed
from memlane.layout.spec import Spec, read_spec
from memlane.layout.strides import ColumnMajor, Padded, RowMajor, Strided
from memlane.layout.swizzles import Swizzle, XorSwizzle
from memlane.layout.tiles import Morton, Tiled
from memlane.layout.vectors import OfVectors
from memlane.layout.wavefronts import Wavefronts, addresses, check_vectors, count, count_drawn

__all__ = [
    "ArrayLayout",
    "BitLinear",
    "Blocked",
    "ColumnMajor",
    "Composed",
    "ComposedArray",
    "Cost",
    "DiagonalStrip",
    "Fields",
    "Gather",
    "Layout",
    "Morton",
    "OfTile",
    "OfVectors",
    "Padded",
    "PaddedRows",
    "Pattern",
    "Permuted",
    "RandomPermuteShift",
    "RandomShift",
    "RowMajor",
    "Selection",
    "ShiftTable",
    "Skewed",
    "Spec",
    "Strided",
    "Swizzle",
    "Tiled",
    "Wavefronts",
    "XorSwizzle",
    "addresses",
    "array_layout",
    "check_vectors",
    "column_major",
    "count",
    "count_drawn",
    "pattern",
    "read_spec",
    "row_major",
    "same_places",
    "sources",
    "split_names",
]
