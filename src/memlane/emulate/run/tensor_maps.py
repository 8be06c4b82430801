"""Tensor maps as kernels of the emulator find them."""

from __future__ import annotations

import numpy as np

from memlane.emulate.layout import TENSOR_MAP, TENSOR_MAP_MARK
from memlane.emulate.runtime.tensor_copies import ELEMENT_NUMBERS, NO_MAP, NOT_MODELLED, OTHER_ELEMENT, OTHER_RANK
from memlane.launch import FILLS, SWIZZLES, Tiling


def encode(tiling: Tiling) -> bytes:
    """The record of a tensor map. How much L2 is to fetch makes no difference here."""
    row = np.zeros((), TENSOR_MAP)
    row["mark"], row["address"] = TENSOR_MAP_MARK, tiling.address
    for name, values in (("strides", tiling.strides), ("extents", tiling.extents), ("box", tiling.box), ("steps", tiling.element_strides)):
        row[name][: len(values)] = values
    row["rank"], row["element"] = len(tiling.extents) - 1, ELEMENT_NUMBERS[tiling.element]
    row["swizzle"], row["fill"] = tuple(SWIZZLES).index(tiling.swizzle), FILLS.index(tiling.fill)
    return row.tobytes()


_TROUBLES = {
    NO_MAP: "which is no tensor map of an emulator: make it with target.tensor_map(...)",
    OTHER_RANK: "a tensor map of another number of dimensions",
    NOT_MODELLED: "a tensor map with elements, an interleave or a swizzle that the emulator does not model",
    OTHER_ELEMENT: "a tensor map whose elements have no such reduction",
}


def map_trouble(address: int, reason: int) -> str:
    """What is wrong with what an instruction takes for a tensor map, for the end of a sentence."""
    return f"what lies at {address:#x}, {_TROUBLES[reason]}"
