"""Copy fields between the host, as plain arrays, and a target, with padded rows."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import BadLaunch, DeviceError, StencilError
from memlane.launch import DeviceArray, Target
from memlane.number_format import size
from memlane.plan import PlanBuilder
from memlane.stencils.geometry import stored_shape
from memlane.targets import BoundPlan


def as_host(value: Any) -> npt.NDArray[Any]:
    """Return a NumPy array with the values of an array of any library: CuPy's by `get`, PyTorch's by `cpu`."""
    if isinstance(value, np.ndarray | np.generic | int | float | list | tuple):
        return np.asarray(value)
    if isinstance(value, DeviceArray):
        return value.numpy()
    if hasattr(value, "detach"):
        value = value.detach()
    for method in ("get", "cpu"):
        if hasattr(value, method) and not isinstance(value, dict):
            value = getattr(value, method)()
    return np.asarray(value)


def as_numbers(value: Any, name: str, dtype: str) -> npt.NDArray[Any]:
    """Return a scalar, or several, as a NumPy array. Raise StencilError for what is no real number, or too large for the type."""
    found = as_host(value)
    if found.dtype.kind not in "biuf":
        raise StencilError(f"scalar {name!r} is {str(value)[:60]!r}: give a real number")
    with np.errstate(over="ignore"):
        fits = np.array_equal(np.isfinite(found.astype(dtype)), np.isfinite(found))
    if not fits:
        raise StencilError(f"scalar {name!r} is {str(value)[:60]}, too large for numbers of type {dtype}: give ml.Grid the dtype 'f8'")
    return found


def dtype_of(value: Any, otherwise: str) -> Any:
    """Return the element type of an array of any library; for a list of Python numbers, return the given type."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or value is None:
        return otherwise
    return np.dtype(str(dtype).rpartition(".")[2])


@dataclass(frozen=True, eq=False)
class FieldView:
    """State of a field after the last complete step. CuPy and PyTorch can use one on a GPU without a copy.

    u = run["u"].gather()                       # an array of NumPy
    u = torch.as_tensor(run["u"])               # or cupy.asarray: the memory of the run itself, valid until the next step
    """

    name: str
    shape: tuple[int, ...]
    memory: DeviceArray
    target: Target

    def gather(self, root: int | None = None) -> npt.NDArray[Any]:
        """Return a copy of the whole field on the host. `root` is for runs of several processes: the process that gets it."""
        return np.ascontiguousarray(self.memory.numpy()[..., : self.shape[-1]])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a field of a run cannot be seen by NumPy without a copy; leave out copy=False")
        host = self.gather()
        return host if dtype is None else host.astype(dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.memory.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.target.modelled:
            raise AttributeError(f"{self.name} lies on {self.target.name}, which is not a GPU: use gather()")
        self.target.sync()
        strides = np.empty(0, self.dtype).itemsize * np.cumprod([1, *self.memory.shape[:0:-1]])[::-1]
        return {
            "version": 3, "shape": self.shape, "typestr": self.dtype.str, "data": (self.memory.address, False),
            "strides": tuple(int(one) for one in strides),
        }  # fmt: skip


def upload(target: Target, value: Any, shape: tuple[int, ...], dtype: str, name: str) -> DeviceArray:
    """Return memory of a target with the values of a field, with zeros in the padding of rows. Values that are on the target already are
    copied there, not through the host."""
    there = _on_target(target, value)
    if there is not None and there.shape == shape and there.dtype == np.dtype(dtype):
        return _padded_there(target, there, name)
    host = as_host(value)
    if host.shape != shape:
        raise StencilError(f"field {name!r} has the shape {host.shape}, and the grid {shape}")

    def made() -> DeviceArray:
        padded = np.zeros(stored_shape(shape), dtype)
        padded[..., : shape[-1]] = host
        return target.array(padded)

    return allocated(target, _nbytes(shape, dtype), name, made)


def _on_target(target: Target, value: Any) -> DeviceArray | None:
    """Return an array of any library in place on a target; None if it is elsewhere or not in C order."""
    if isinstance(value, DeviceArray):
        return value if value.target is target else None
    if isinstance(value, np.ndarray | np.generic | int | float | list | tuple):
        return None
    try:
        return target.adopt(value)
    except (BadLaunch, DeviceError):
        return None


def _padded_there(target: Target, source: DeviceArray, name: str) -> DeviceArray:
    """Return a copy of a target's array on the target, with padded rows."""
    padded = blank(target, source.shape, source.dtype.str.lstrip("<|="), name)
    builder = PlanBuilder()
    to, of = builder.array("to", padded.shape, padded.dtype), builder.array("of", source.shape, source.dtype)
    builder.copy(to[..., : source.shape[-1]], of, label=f"upload {name}")
    BoundPlan(builder.plan(), {"to": padded, "of": source}, targets=[target]).run()
    return padded


def blank(target: Target, shape: tuple[int, ...], dtype: str, name: str) -> DeviceArray:
    """Return memory for a field, filled with zeros."""
    return zeros(target, name, stored_shape(shape), dtype)


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return prod(stored_shape(shape)) * np.dtype(dtype).itemsize


_KEPT_TABLES = 64


class KeptTables:
    """Small tables on targets that keep their memory from one stage to the next, so that plans bound to it can be reused."""

    def __init__(self) -> None:
        self._arrays: OrderedDict[tuple[object, ...], DeviceArray] = OrderedDict()
        self._held: dict[tuple[object, ...], bytes] = {}

    def of(self, target: Target, values: npt.NDArray[Any], name: str, home: int = 0, *, is_constant: bool = False) -> DeviceArray:
        """Return a table with these values, in the memory of the last table of the same name, shape and type on device `home`.

        No work in flight may read the last one. `is_constant`: no kernel writes it, so equal values need not be copied again.
        """
        key = home, name, values.shape, values.dtype.str
        held = values.tobytes() if is_constant else b""
        if key in self._arrays:
            self._arrays.move_to_end(key)
            if not is_constant or self._held.get(key) != held:
                self._arrays[key].copy_from(values)
        else:
            self._arrays[key] = allocated(target, values.nbytes, name, lambda: target.array(np.ascontiguousarray(values)))
            if len(self._arrays) > _KEPT_TABLES:
                self._held.pop(self._arrays.popitem(last=False)[0], None)
        if is_constant:
            self._held[key] = held
        return self._arrays[key]


def zeros(target: Target, name: str, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    """Return zeroed memory of a target; `name` says in an error what it was for."""
    return allocated(target, prod(shape) * np.dtype(dtype).itemsize, name, lambda: target.zeros(shape, dtype))


def allocated(target: Target, nbytes: int, name: str, make: Any) -> DeviceArray:
    """Return the result of `make`; if memory is exhausted, raise an error that names its purpose."""
    try:
        array: DeviceArray = make()
    except (MemoryError, DeviceError) as error:
        text = str(error)
        if isinstance(error, DeviceError) and "memory" not in text.lower():
            raise
        free = target.free_bytes()
        left = f"{size(free)} of " if free is not None else "at most "
        raise DeviceError(
            f"no memory left for {name!r} on {target.name}: it needs {size(nbytes)}, and {left}"
            f"{size(target.chip.dram_bytes)} are free; use a smaller grid, a narrower type, or more devices ({text})"
        ) from error
    return array
