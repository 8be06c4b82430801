"""Tensor maps as kernels of the emulator find them."""

from __future__ import annotations

import numpy as np

from memlane.emulate.layout import TENSOR_MAP, TENSOR_MAP_MARK
from memlane.emulate.runtime.tensor_copies import NO_MAP, OTHER_ELEMENT, OTHER_RANK
from memlane.launch import ELEMENTS, SWIZZLES, Tiling

_NANS = {"f16": 0x7FFF_7FFF_7FFF_7FFF, "bf16": 0x7FFF_7FFF_7FFF_7FFF, "f32": 0x7FFF_FFFF_7FFF_FFFF, "f64": 0x7FFF_FFFF_FFFF_FFFF}


def encode(tiling: Tiling) -> bytes:
    """The record of a tensor map. How much L2 is to fetch makes no difference here."""
    row = np.zeros((), TENSOR_MAP)
    row["mark"], row["address"] = TENSOR_MAP_MARK, tiling.address
    rank = len(tiling.extents)
    for name, values in (
        ("strides", tiling.strides),
        ("extents", tiling.extents),
        ("taken", tiling.taken),
        ("steps", tiling.element_strides),
    ):
        row[name][: len(values)] = values
    row["rank"], row["element"], row["element_bytes"] = rank, tuple(ELEMENTS).index(tiling.element), tiling.element_bytes
    row["swizzle"] = (SWIZZLES[tiling.swizzle] // 16).bit_length() - 1 if SWIZZLES[tiling.swizzle] else 0
    row["filling"] = _NANS[tiling.element] if tiling.fill == "nan" else 0
    return row.tobytes()


_TROUBLES = {
    NO_MAP: "which is no tensor map of an emulator: make it with target.tensor_map(...)",
    OTHER_RANK: "a tensor map of another number of dimensions",
    OTHER_ELEMENT: "a tensor map whose elements have no such reduction",
}


def map_trouble(address: int, reason: int) -> str:
    """What is wrong with what an instruction takes for a tensor map, for the end of a sentence."""
    return f"what lies at {address:#x}, {_TROUBLES[reason]}"
