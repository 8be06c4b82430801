"""Reduce arrays on a target, in one launch each.

    total = reduce(array)                       an array of one element on the target; total.item() waits for it
    rows = reduce(matrix, "max", axis=1)        shape of the other axes
    bound = Reducer(array, "sum")               bound once: kernel, arguments, memory between blocks
    total = bound()                             started with the least work, repeatedly
    graph = target.graph([bound.launch(out)])        graph.replay() starts it repeatedly

The result has the array's type (argmin and argmax: int64). Sums and products of integers wrap, those of float16 are computed in float32. A
NaN is the minimum and the maximum, as in NumPy, and argmin and argmax return the first one; among equal elements they return the first.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from sys import getrefcount
from typing import Any

import numpy as np

from memlane.chip import LANES
from memlane.compile import cuda
from memlane.errors import BadLaunch
from memlane.lab.reduction.elements import WITHOUT_IDENTITY, Kind, first_lines, kind_of
from memlane.lab.reduction.module_cache import load_cached
from memlane.lab.reduction.shapes import CLUSTER, Shape, column_shape, fixed_shape, row_shape, segment_words, whole_shape
from memlane.launch import DeviceArray, Kernel, KernelCall, Launch, Target, whole_target
from memlane.ptx import Module
from memlane.targets import target as target_of

FOLDER = Path(__file__).parent
MOST_PLANS = 64
"""Number of reductions that `reduce` caches."""


class _Slot:
    """A result with the launch that fills it."""

    __slots__ = ("out", "start", "unheld")

    def __init__(self, out: DeviceArray, start: Callable[[], None]) -> None:
        self.out, self.start, self.unheld = out, start, 0


def _nothing_to_do() -> None:
    """Do nothing, for a result without elements."""


class Reducer:
    """A reduction bound to an array. Its launches must not overlap each other: its blocks communicate through memory of its own."""

    def __init__(
        self, array: DeviceArray, op: str = "sum", axis: int | None = None, *, reproducible: bool = False, shape: Shape | None = None
    ) -> None:
        """Bind a reduction.

        `axis` None reduces the whole array. `reproducible`: every bit of the result is the same for every launch shape and chip; whole
        arrays only. `shape` is chosen by the size if it is not given. Raises BadLaunch for arrays or operations that cannot be reduced.
        """
        self.kind = kind_of(array.dtype, op)
        self.array, self.target = array, whole_target(array.target)
        self.axis = _axis(array, axis)
        self.result_shape = () if self.axis is None else array.shape[: self.axis] + array.shape[self.axis + 1 :]
        if op in WITHOUT_IDENTITY and (array.size if self.axis is None else array.shape[self.axis]) == 0:
            raise BadLaunch(f"{op} of an empty array (shape {array.shape}, axis {axis}) is undefined; only its sum and product are defined")
        if reproducible and self.axis is not None:
            raise BadLaunch("reproducible=True is for whole arrays: leave out the axis")
        self._kept: list[DeviceArray] = []
        self._call, self._arguments, self.depth = self._whole(reproducible, shape) if self.axis is None else self._along(self.axis)
        self._slots: list[_Slot] = []
        self._turn = threading.Lock()

    def empty(self) -> DeviceArray:
        """Return an array for the result."""
        return self.target.empty(self.result_shape, self.kind.result)

    def launch(self, out: DeviceArray) -> Launch:
        """Return the launch that leaves the result in `out`, for graphs. It keeps the arrays that it uses alive."""
        return self._call.bind(out, self.array, *self._arguments)

    def __call__(self) -> DeviceArray:
        """Start the reduction on the default stream; the result is available once all earlier launches have finished.

        A result array is reused once it has no other reference: its launch is already bound to its address.
        """
        with self._turn:
            for slot in self._slots:
                if getrefcount(slot.out) == slot.unheld:
                    break
            else:
                slot = self._new_slot()
            slot.start()
            return slot.out

    def _new_slot(self) -> _Slot:
        out = self.empty()
        start = self.target.prepared(self.launch(out)) if out.size else _nothing_to_do
        slot = _Slot(out, start)
        del out
        slot.unheld = getrefcount(slot.out)
        self._slots.append(slot)
        return slot

    # -- kernels ---------------------------------------------------------------------------------------------------------------

    def _whole(self, reproducible: bool, shape: Shape | None) -> tuple[KernelCall, tuple[object, ...], int]:
        n, kind, target = self.array.size, self.kind, self.target
        if reproducible:
            shape = shape or fixed_shape(kind, n, target.chip, target.modelled)
            segment, words = segment_words(kind, n), -(-n // kind.per_load)
            kernel = _kernel(
                target, kind, "fixed.cu", "reduce_fixed", f"THREADS={shape.threads}", f"UNROLL={shape.unroll}", f"HINT={shape.hint}"
            )
            segments = -(-words // segment)
            depth = _chain(segment // LANES, kind) + 10 + -(-segments // 1024) + 5
            return kernel[shape.grid, shape.threads], (n, segment, self._room(segments), self._tickets(1)), depth
        shape = shape or whole_shape(kind, n, target.chip, target.modelled)
        defines = [f"THREADS={shape.threads}", f"UNROLL={shape.unroll}", f"HINT={shape.hint}", f"FINISH={shape.finish}"]
        if shape.finish == CLUSTER:
            defines.append(f"CLUSTER_BLOCKS={shape.grid}")
        kernel = _kernel(target, kind, "whole.cu", "reduce_whole", *defines)
        words, turn = -(-n // kind.per_load), shape.grid * shape.threads * shape.unroll
        per_thread = -(-words // turn) * shape.unroll
        depth = _chain(per_thread, kind) + 2 + 10 + -(-shape.grid // shape.threads) + 10
        return kernel[shape.grid, shape.threads], (n, self._room(shape.grid), self._tickets(1)), depth

    def _along(self, axis: int) -> tuple[KernelCall, tuple[object, ...], int]:
        target, kind = self.target, self.kind
        outer, length, inner = math.prod(self.array.shape[:axis]), self.array.shape[axis], math.prod(self.array.shape[axis + 1 :])
        if inner == 1:
            row = row_shape(kind, outer, length, target.chip, target.modelled)
            defines = [f"THREADS={row.threads}", f"UNROLL={row.unroll}", f"LANES={row.lanes}", "WIDE=1"]
            kernel = _kernel(target, kind, "axis.cu", "reduce_rows", *defines)
            return kernel[row.grid, row.threads], (outer, length), _chain(-(-length // (kind.per_load * row.lanes)), kind) + 12
        aligned = self.array.address % 16 == 0
        column = column_shape(kind, outer, length, inner, aligned, target.chip, target.modelled)
        defines = [f"THREADS={column.threads}", f"UNROLL={column.unroll}", f"WIDE={column.wide}", f"LANES={LANES}"]
        kernel = _kernel(target, kind, "axis.cu", "reduce_columns", *defines)
        warps = column.threads // LANES
        room = self._room(column.across * column.splits * LANES * column.wide if column.splits > 1 else 1)
        arguments = (length, inner, room, self._tickets(column.across if column.splits > 1 else 1))
        depth = -(-length // (warps * column.splits)) + warps + column.splits
        return kernel[(max(1, column.across), column.splits), column.threads], arguments, depth

    def _room(self, partials: int) -> DeviceArray:
        """Return zeroed memory, as a packed sum requires."""
        self._kept.append(self.target.zeros(max(8, partials * self.kind.partial_bytes), np.uint8))
        return self._kept[-1]

    def _tickets(self, number: int) -> DeviceArray:
        self._kept.append(self.target.zeros(max(1, number), np.uint32))
        return self._kept[-1]


def _chain(words: int, kind: Kind) -> int:
    """Return the depth, in operations, of a thread's share of `words` words of 16 bytes."""
    chains = min(4, kind.per_load)
    return words * (kind.per_load // chains) + chains - 1


def _axis(array: DeviceArray, axis: int | None) -> int | None:
    if axis is None:
        return None
    try:
        number = operator.index(axis)
    except TypeError:
        raise BadLaunch(f"axis must be a whole number or None, got {axis!r}") from None
    dimensions = len(array.shape)
    if not -dimensions <= number < dimensions:
        raise BadLaunch(f"axis {number} is out of range for an array of {dimensions} dimensions")
    return number % dimensions


def _kernel(target: Target, kind: Kind, file: str, name: str, *defines: str) -> Kernel:
    return load_cached(target, _compiled, kind, file, *defines)[name]


def _compiled(kind: Kind, file: str, *defines: str) -> Module:
    text = "".join((FOLDER / part).read_text(encoding="utf-8") for part in ("values.cuh", file))
    return cuda(first_lines([*kind.defines(), *defines]) + text, name=file)


def bulk_launch(out: DeviceArray, array: DeviceArray) -> Launch:
    """Return the launch that sums an int32 array by bulk copies; its size is a multiple of 4. An experiment that `reduce` does not use."""
    target, threads, stages, stage_bytes = whole_target(array.target), 256, 6, 1 << 15
    defines = [f"THREADS={threads}", f"STAGES={stages}", f"STAGE_BYTES={stage_bytes}"]
    kernel = _kernel(target, Kind("int32", "sum"), "bulk.cu", "reduce_whole", *defines)
    call = kernel[target.chip.sm_count, threads, None, stages * stage_bytes]
    return call.bind(out, array, array.size, target.zeros(8, np.uint8), target.zeros(1, np.uint32))


# -- one call -----------------------------------------------------------------------------------------------------------------

_PLANS: dict[tuple[object, ...], Reducer] = {}


def reduce(array: Any, op: str = "sum", axis: int | None = None, *, reproducible: bool = False) -> DeviceArray:
    """Reduce an array on its target, without waiting for the result, an array of shape () or of the remaining axes.

    `array` is a `DeviceArray`, or an array of another library on a GPU, in C order. `op` is sum, product, min, max, argmin or argmax (whose
    indices along all axes count in C order). Reductions of the same memory, shape, type and operation are bound once and cached.
    `reproducible` as for `Reducer`. Raises BadLaunch for an empty array without a value, and for a type or a layout that cannot be reduced.
    """
    if type(array) is not DeviceArray:
        return _of_foreign(array, op, axis, reproducible)
    key = (array.address, array.shape, array.dtype, op, axis, reproducible, id(array.target))
    plan = _PLANS.get(key)
    return plan() if plan is not None else _remembered(key, array, op, axis, reproducible)()


def _remembered(key: tuple[object, ...], array: DeviceArray, op: str, axis: int | None, reproducible: bool) -> Reducer:
    """Cache and return a reduction that does not keep the array alive: a caller with the same address owns memory there."""
    plan = Reducer(replace(array, owner=None), op, axis, reproducible=reproducible)
    while len(_PLANS) >= MOST_PLANS:
        del _PLANS[next(iter(_PLANS))]
    _PLANS[key] = plan
    return plan


def _of_foreign(array: Any, op: str, axis: int | None, reproducible: bool) -> DeviceArray:
    """Reduce an array of another library, through a launch that keeps it alive until it ends.

    The owner of the array may reuse its memory at any time.
    """
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack_device__"):
        raise BadLaunch(f"a {type(array).__name__} is not on a target: copy it to one with target.array first")
    adopted = _device(f"cuda:{int(array.__dlpack_device__()[1])}").adopt(array)
    key = (adopted.address, adopted.shape, adopted.dtype, op, axis, reproducible, id(adopted.target))
    plan = _PLANS.get(key) or _remembered(key, adopted, op, axis, reproducible)
    out = plan.empty()
    if out.size:
        launch = plan.launch(out)
        first, second, *others = launch.arguments
        held = replace(launch, arguments=(first, replace(second, owner=array), *others))
        plan.target.start(held)
    return out


@lru_cache(maxsize=16)
def _device(name: str) -> Target:
    return target_of(name)
