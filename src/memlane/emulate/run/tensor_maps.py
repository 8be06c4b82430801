"""Encode tensor maps for kernels of the emulator, and explain their misuse."""

from __future__ import annotations

import numpy as np

from memlane.emulate.layout import TENSOR_MAP, TENSOR_MAP_MARK
from memlane.emulate.runtime.tensor_copies import (
    BOX_ALIGNMENT,
    CROOKED,
    DETAIL,
    ELEMENT_NUMBERS,
    IN_FRONT,
    NO_MAP,
    NOT_MODELLED,
    OTHER_ELEMENT,
    OTHER_RANK,
    PIECE,
)
from memlane.launch import FILLS, SWIZZLES, Tiling
from memlane.number_format import plural


def encode(tiling: Tiling) -> bytes:
    """Return the record of a tensor map; the L2 prefetch size is ignored."""
    row = np.zeros((), TENSOR_MAP)
    row["mark"], row["address"] = TENSOR_MAP_MARK, tiling.address
    for name, values in (("strides", tiling.strides), ("extents", tiling.extents), ("box", tiling.box), ("steps", tiling.element_strides)):
        row[name][: len(values)] = values
    row["rank"], row["element"] = len(tiling.extents) - 1, ELEMENT_NUMBERS[tiling.element]
    row["swizzle"], row["fill"] = tuple(SWIZZLES).index(tiling.swizzle), FILLS.index(tiling.fill)
    return row.tobytes()


_TROUBLES = {
    NO_MAP: "which is not a tensor map of an emulator: make it with target.tensor_map(...)",
    OTHER_RANK: "a tensor map with a different number of dimensions",
    NOT_MODELLED: "a tensor map with elements, an interleave or a swizzle that the emulator does not model",
    OTHER_ELEMENT: "a tensor map whose elements have no such reduction",
}


def map_trouble(address: int, reason: int) -> str:
    """Describe what is wrong with an operand used as a tensor map, or with the start of its box, for the end of a sentence."""
    reason, detail = reason % (1 << DETAIL), reason >> DETAIL
    if reason in _TROUBLES:
        return f"the data at {address:#x}, {_TROUBLES[reason]}"
    start = address - (1 << 64) if address >> 63 else address
    if reason == IN_FRONT:
        return (
            f"a box that begins at {start} along {_AXES[detail]}, before the array, where only loads may begin; to store, begin at 0 and "
            "use a tensor map with a smaller box"
        )
    assert reason == CROOKED
    return (
        f"a box that begins {plural(start << detail, 'byte')} into a row (x is {start}), where a GPU stops with an illegal instruction: "
        f"begin at a multiple of {PIECE} bytes, that is at an x that is a multiple of {PIECE >> detail}, and use a wider box"
    )


_AXES = ("x", "y", "z", "the fourth axis", "the fifth axis")


def place_trouble(address: int, variable: str, begin: int, is_dynamic: bool) -> str:
    """Describe a misaligned box in shared memory, in a variable that begins at `begin`, with the remedy."""
    remedy = "declare it with alignas(128), and begin at a multiple of 128 bytes in it"
    if is_dynamic and begin % BOX_ALIGNMENT:
        remedy = "round its address up to such a multiple, because dynamic shared memory starts right after static, or make it static"
    return (
        f"a box at {address:#x} in shared memory, {plural(address - begin, 'byte')} into {variable}, which begins at {begin:#x}: a box "
        f"begins at a multiple of {BOX_ALIGNMENT} bytes; {remedy}"
    )
