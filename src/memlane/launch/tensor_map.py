"""Create tensor maps, which a kernel passes to Hopper's copies of boxes of an array (`cp.async.bulk.tensor`, the TMA).

    tiles = target.tensor_map(matrix, (64, 32), swizzle="128B")     # of a matrix of f32: boxes of 64 rows and 32 columns
    kernel[grid, block](tiles, out)

A kernel takes one as a parameter `const __grid_constant__ CUtensorMap`, 128 bytes. Shapes here are in NumPy's order, the slowest axis
first; coordinates in a kernel are in the opposite order, x first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memlane.errors import BadLaunch
from memlane.launch.memory import DeviceArray, Memory
from memlane.number_format import plural

TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64
"""Size and alignment of a tensor map as a kernel parameter."""
ELEMENTS: Mapping[str, int] = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
"""Bytes of an element, by its type in PTX notation."""
SWIZZLES: Mapping[str, int] = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
"""Bytes within which pieces of 16 bytes are permuted in shared memory."""
PROMOTIONS: Mapping[str, int] = {"none": 0, "64B": 64, "128B": 128, "256B": 256}
"""Minimum bytes that L2 fetches from memory."""
FILLS = ("zeros", "nan")
_INTEGERS = {"u1": "u8", "i1": "u8", "u2": "u16", "i2": "u16", "u4": "u32", "i4": "s32", "u8": "u64", "i8": "s64"}
_OF_DTYPES = {**_INTEGERS, "f2": "f16", "f4": "f32", "f8": "f64"}
_MOST_DIMENSIONS, _MOST_BOX, _MOST_STEP, _PIECE, _MOST_EXTENT, _MOST_STRIDE = 5, 256, 8, 16, 1 << 32, 1 << 40


@dataclass(frozen=True)
class Tiling:
    """Array in device memory and the boxes in which it is copied. Axes are in a kernel's order: the fastest first."""

    address: int
    element: str
    """Element type, one of `ELEMENTS`."""
    extents: tuple[int, ...]
    """Extents in elements; coordinates at or above them are out of bounds."""
    strides: tuple[int, ...]
    """Strides in bytes, for all axes but the first, which is contiguous."""
    box: tuple[int, ...]
    """Number of elements that a copy spans, in steps of `element_strides`."""
    element_strides: tuple[int, ...]
    swizzle: str = "none"
    promotion: str = "none"
    fill: str = "zeros"
    """Value of out-of-bounds elements in loads: `zeros`, or `nan`."""

    @property
    def element_bytes(self) -> int:
        return ELEMENTS[self.element]

    @property
    def taken(self) -> tuple[int, ...]:
        """Number of elements that a copy moves along each axis."""
        return tuple(-(-extent // step) for extent, step in zip(self.box, self.element_strides, strict=True))

    @property
    def box_bytes(self) -> int:
        """Bytes of a box in shared memory, which a barrier must expect for its load."""
        return math.prod(self.taken) * self.element_bytes

    def __str__(self) -> str:
        """Return a description such as `boxes of 64 x 32 of f32[1024, 1024]`."""
        shape = ", ".join(str(extent) for extent in reversed(self.extents))
        return f"boxes of {' x '.join(str(extent) for extent in reversed(self.box))} of {self.element}[{shape}]"


class TensorMaps(Memory):
    """Tensor maps of a target, which its kernels pass to copies of boxes."""

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """Return the 128 bytes of a tensor map for kernels of this target. Raises BadLaunch on a target without such copies."""
        raise BadLaunch(f"{self.name} has no tensor maps")

    def tensor_map(
        self,
        source: object,
        box: Sequence[int],
        *,
        element_strides: Sequence[int] | None = None,
        swizzle: str = "none",
        promotion: str = "none",
        fill: str = "zeros",
        element: str = "",
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> TensorMap:
        """Return a tensor map of a device array, from which kernels copy boxes between global and shared memory (`cp.async.bulk.tensor`,
        sm_90).

        `box` has an extent for each axis, in the array's order; with `element_strides` only each n-th element of an axis is copied.
        `swizzle` (`none`, `32B`, `64B`, `128B`) is the permutation of the rows of a box in shared memory, `promotion` the fetch size of L2,
        `fill` (`zeros` or `nan`) the value of elements out of bounds. `element` names the type if NumPy has none (`bf16`); `shape` and
        `strides` (in bytes, as in NumPy) describe a part of the array, such as rows without their padding. Raises BadLaunch for an invalid
        tensor map.

        In a kernel boxes start at multiples of 16 bytes in a row, and stores not before the array. Stores write whole pieces of 16 bytes,
        so anything after rows whose length is not a multiple of 16 bytes, such as their padding, is overwritten.
        """
        return make_tensor_map(self, source, box, element_strides, swizzle, promotion, fill, element, shape, strides)


@dataclass(frozen=True, eq=False)
class TensorMap:
    """Result of `target.tensor_map`: pass it to a kernel that takes a `const __grid_constant__ CUtensorMap`."""

    target: TensorMaps = field(repr=False)
    tiling: Tiling
    data: bytes = field(repr=False)
    """The 128 bytes in the encoding of this target; not valid for another target."""
    owner: object = field(default=None, repr=False)
    """Object that keeps the array alive."""


def make_tensor_map(
    target: TensorMaps,
    source: object,
    box: Sequence[int],
    element_strides: Sequence[int] | None,
    swizzle: str,
    promotion: str,
    fill: str,
    element: str,
    shape: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> TensorMap:
    """Return a tensor map; see `TensorMaps.tensor_map`."""
    if target.chip.compute_capability < (9, 0):
        major, minor = target.chip.compute_capability
        raise BadLaunch(f"tensor maps need sm_90, but {target.name} is sm_{major}{minor}: let threads copy (cp.async), or use a newer chip")
    if isinstance(source, np.ndarray):
        raise BadLaunch("a tensor map needs an array on the target, but this one is in host memory: copy it with target.array(x)")
    array = source if isinstance(source, DeviceArray) else target.adopt(source)
    if array.target is not target:
        raise BadLaunch(
            f"the array is on {array.target.name_beside(target)}, but the tensor map would be on {target.name}; copy the array "
            "there with target.array(x.numpy())"
        )
    extents = array.shape if shape is None else tuple(int(extent) for extent in shape)
    kind = _element_of(array, element)
    tiling = Tiling(
        array.address,
        kind,
        tuple(reversed(extents)),
        _strides_of(extents, strides, ELEMENTS[kind]),
        tuple(int(extent) for extent in reversed(box)),
        (1,) * len(box) if element_strides is None else tuple(int(step) for step in reversed(element_strides)),
        swizzle,
        promotion,
        fill,
    )
    _check_array(tiling, array)
    _check_box(tiling)
    if tiling.box_bytes > target.chip.launch_limits.max_shared_bytes:
        raise BadLaunch(
            f"a box of {' x '.join(map(str, box))} takes {plural(tiling.box_bytes, 'byte')}, and a block of {target.chip.name} has "
            f"{target.chip.launch_limits.max_shared_bytes} of shared memory: copy several smaller ones"
        )
    return TensorMap(target, tiling, target.encode_tensor_map(tiling), array)


def _element_of(array: DeviceArray, element: str) -> str:
    kind = element or (
        "bf16" if array.dtype.name == "bfloat16" else _OF_DTYPES.get(array.dtype.str[1:] if array.dtype.isnative else "", "")
    )
    if kind not in ELEMENTS:
        raise BadLaunch(f"the element type of a tensor map is one of {', '.join(ELEMENTS)}; got {element or array.dtype}: pass element=...")
    if ELEMENTS[kind] != array.dtype.itemsize:
        raise BadLaunch(
            f"an array of {array.dtype} has elements of {plural(array.dtype.itemsize, 'byte')}, but {kind} has {ELEMENTS[kind]}: pass an "
            "array with elements of that size"
        )
    return kind


def _strides_of(shape: tuple[int, ...], strides: Sequence[int] | None, element_bytes: int) -> tuple[int, ...]:
    """Return the strides of a tiling from those of NumPy, C order if none are given."""
    if strides is None:
        return tuple(math.prod(shape[axis:]) * element_bytes for axis in range(len(shape) - 1, 0, -1))
    if len(strides) != len(shape) or (strides and strides[-1] != element_bytes):
        raise BadLaunch(
            f"strides of a tensor map are in bytes, one for each of its {plural(len(shape), 'axis')}, and the last stride is the "
            f"{plural(element_bytes, 'byte')} of an element; got {tuple(strides)}"
        )
    return tuple(int(stride) for stride in reversed(strides[:-1]))


def _check_array(tiling: Tiling, array: DeviceArray) -> None:
    """Raise BadLaunch if a tensor map cannot describe the array."""
    rank, shape = len(tiling.extents), tuple(reversed(tiling.extents))
    if not 1 <= rank <= _MOST_DIMENSIONS:
        raise BadLaunch(f"a tensor map has 1 to {_MOST_DIMENSIONS} dimensions, but the array has {rank}: join or split some with shape=...")
    if any(not 1 <= extent <= _MOST_EXTENT for extent in shape):
        raise BadLaunch(f"an array of shape {shape} has no tensor map: each extent is from 1 to 2^32")
    if tiling.address % _PIECE:
        raise BadLaunch(
            f"the array begins at address {tiling.address:#x}, but a tensor map needs a multiple of {_PIECE}: begin at such an "
            "address, and add the rest to the coordinates"
        )
    for stride in tiling.strides:
        if stride % _PIECE or not 0 < stride < _MOST_STRIDE:
            raise BadLaunch(
                f"an axis has a stride of {plural(stride, 'byte')}, but a tensor map needs multiples of {_PIECE} from {_PIECE} to 2^40: "
                f"pad the rows to {plural(-(-max(stride, 1) // _PIECE) * _PIECE, 'byte')}, and pass strides=... and the shape without the "
                "padding"
            )
    reach = sum((extent - 1) * stride for extent, stride in zip(tiling.extents, (tiling.element_bytes, *tiling.strides), strict=True))
    if reach + tiling.element_bytes > array.nbytes:
        raise BadLaunch(
            f"shape {shape} with strides up to {max(tiling.strides, default=0)} needs {plural(reach + tiling.element_bytes, 'byte')}, but "
            f"the array has {array.nbytes}: pass a smaller shape, or a larger array"
        )


def _check_box(tiling: Tiling) -> None:
    """Raise BadLaunch if a tensor map cannot have such a box."""
    box, steps = tuple(reversed(tiling.box)), tuple(reversed(tiling.element_strides))
    if len(box) != len(tiling.extents) or len(steps) != len(box):
        raise BadLaunch(
            f"the array has {plural(len(tiling.extents), 'axis')}, the box {len(box)} and its element strides {len(steps)}: give one "
            "number for each axis"
        )
    if any(not 1 <= extent <= _MOST_BOX for extent in box):
        raise BadLaunch(f"a box of {box} is too large or empty: each of its extents is from 1 to {_MOST_BOX}; copy several smaller ones")
    if any(not 1 <= step <= _MOST_STEP for step in steps) or steps[-1] != 1:
        raise BadLaunch(f"element strides {steps} are invalid: each is from 1 to {_MOST_STEP}, and that of the last axis is 1")
    inner = tiling.box[0] * tiling.element_bytes
    if inner % _PIECE:
        raise BadLaunch(
            f"rows of the box have {plural(inner, 'byte')} ({tiling.box[0]} x {tiling.element}), but a copy needs a multiple of {_PIECE}: "
            f"make the box {-(-inner // _PIECE) * _PIECE // tiling.element_bytes} wide"
        )
    for name, chosen, known in (("swizzle", tiling.swizzle, SWIZZLES), ("promotion", tiling.promotion, PROMOTIONS)):
        if chosen not in known:
            raise BadLaunch(f"{name} of a tensor map is one of {', '.join(known)}; got {chosen!r}")
    if tiling.fill not in FILLS or (tiling.fill == "nan" and "f" not in tiling.element):
        raise BadLaunch(f"fill of a tensor map is zeros, or nan if its elements are floats; got {tiling.fill!r} for {tiling.element}")
    width = SWIZZLES[tiling.swizzle]
    if width and inner != width:
        raise BadLaunch(
            f"rows of the box have {plural(inner, 'byte')}, but swizzle {tiling.swizzle} is for rows of {width}: make the box "
            f"{width // tiling.element_bytes} wide, or use swizzle {_fitting(inner)}"
        )


def _fitting(inner: int) -> str:
    return next((name for name, width in SWIZZLES.items() if width == inner), "none")
