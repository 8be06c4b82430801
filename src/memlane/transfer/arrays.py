"""Represent the arrays on both sides of a transfer: host arrays, and device arrays with their layouts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from memlane.errors import LayoutError
from memlane.launch import DeviceArray, Target
from memlane.layout import ArrayLayout, Blocked, Fields, Layout, PaddedRows, Permuted
from memlane.layout.array_spec import LayoutLike, array_layout, words_of_structure
from memlane.number_format import plural
from memlane.remap.requests import HostArray

if TYPE_CHECKING:
    from memlane.transfer.transfer import Transfer

_ON_HOST = (1, 3, 11)
"""DLPack device types with memory that the host can read: the CPU, and the pinned memory of CUDA and ROCm."""


@dataclass(frozen=True, eq=False)
class LaidOutArray(DeviceArray):
    """An array on a target with its layout. Kernels get its address, as for any `DeviceArray`.

    `shape` and `numpy()` describe the memory; `logical_shape` is that of the array which `ml.download` returns.
    """

    layout: ArrayLayout | None = None
    """The layout; None for a gather, which is not a layout."""
    host_dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype("f4"))
    """Type of the host's elements; structures if the memory holds separate fields."""
    transfer: Transfer | None = field(default=None, repr=False)
    """The transfer that filled it: its plan, its prediction and its measured times."""

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """Shape of the array on the host."""
        if self.layout is None:
            return self.shape
        return self.layout.shape[:1] if self.holds_fields else self.layout.shape

    @property
    def holds_fields(self) -> bool:
        """Whether the host's elements are structures whose fields are stored separately."""
        return isinstance(self.layout, Fields) and self.host_dtype.fields is not None

    def wait(self) -> LaidOutArray:
        """Wait until the array is filled, and return it. Raises the errors of the transfer."""
        if self.transfer is not None:
            self.transfer.wait()
        return self

    def __await__(self) -> Generator[object, None, LaidOutArray]:
        """Wait as `wait` does, without blocking other asyncio tasks."""
        if self.transfer is not None:
            yield from self.transfer.__await__()
        return self

    def field(self, name: str) -> DeviceArray:
        """Return the values of one separately stored field as an array, without copying."""
        if not isinstance(self.layout, Fields) or self.host_dtype.fields is None or name not in self.host_dtype.fields:
            listed = ", ".join(self.host_dtype.names or ()) or "none"
            raise LayoutError(f"the array has no separate field {name!r}; its fields are: {listed}")
        kind, start = self.host_dtype.fields[name][:2]
        count, word = self.layout.shape[0], self.dtype.itemsize
        borders = [word * words for words in accumulate(self.layout.widths, initial=0)]
        if (start, start + kind.itemsize) not in pairwise(borders):
            raise LayoutError(f"field {name!r} is in several parts under {self.layout}: upload the structures with layout='soa'")
        base, inner = kind.subdtype if kind.subdtype is not None else (kind, ())
        return DeviceArray(self.target, self.address + start * count, (count, *inner), base, self)


def chunk_layouts(given: LayoutLike, whole: ArrayLayout) -> Callable[[tuple[int, ...]], ArrayLayout]:
    """Return a function from a chunk's shape to its layout. Raises LayoutError for a layout of a fixed shape."""
    if isinstance(whole, Permuted | PaddedRows | Blocked | Fields):
        return lambda shape: replace(whole, shape=shape)
    if isinstance(given, str) or not isinstance(given, ArrayLayout | Layout):
        return lambda shape: array_layout(given, shape)
    raise LayoutError(
        f"{whole} is for the whole array, but keep=False applies the layout to each chunk: pass a layout's name, or a function of the shape"
    )


@dataclass(frozen=True)
class HostInput:
    """A host array prepared for a transfer."""

    memory: npt.NDArray[Any]
    """C-contiguous memory bound to the plan's buffer, which may exceed the elements."""
    described: HostArray
    layout: ArrayLayout
    host_dtype: np.dtype[Any]
    dtype: np.dtype[Any]
    """Element type in the device's memory."""


def host_array(value: object, what: str = "host") -> npt.NDArray[Any]:
    """Return a host array as a NumPy array, without a copy. Raises LayoutError for anything else."""
    if isinstance(value, np.ma.MaskedArray):
        raise LayoutError(f"{what} is a masked array, whose mask would be lost: pass its data, or fill the gaps with {what}.filled(value)")
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, DeviceArray):
        raise LayoutError(
            f"{what} is already an array on {value.target.name}: change its layout there with memlane.transfer.lay_out(array, layout=...)"
        )
    device = getattr(value, "__dlpack_device__", None)
    if device is not None:
        kind = int(device()[0])
        if kind not in _ON_HOST:
            raise LayoutError(
                f"{what} is a {type(value).__name__} in device memory: change its layout there with "
                "memlane.transfer.lay_out(target.adopt(array), layout=...)"
            )
        if kind == 1:
            return np.from_dlpack(value)  # type: ignore[arg-type]
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return np.asarray(value)
    raise LayoutError(f"{what} must be a NumPy array or support DLPack, not a {type(value).__name__}: use np.asarray for a list")


def given_array(target: Target, value: object, layout: LayoutLike) -> HostInput:
    """Return a host array with its layout. Raises LayoutError if they do not fit."""
    host = host_array(value)
    if host.dtype.hasobject:
        raise LayoutError(f"elements of type {host.dtype} are Python objects, which a device cannot hold: convert them to numbers first")
    if host.dtype.fields is not None and (layout in ("soa", "column-major") or isinstance(layout, Fields)):
        return _structures(target, host, layout if isinstance(layout, Fields) else None)
    shape = host.shape or (1,)
    found = array_layout(layout, shape)
    plain = host.dtype if host.dtype.fields is None else np.dtype(f"V{host.dtype.itemsize}")
    return HostInput(
        *described(target, host.reshape(shape) if host.shape != shape else host, plain), found, host.dtype, host.dtype.newbyteorder("=")
    )


def _structures(target: Target, host: npt.NDArray[Any], layout: Fields | None) -> HostInput:
    """Return structures as words, by default with the layout that stores the words of each field contiguously."""
    if any(not kind.isnative for kind, *_ in (host.dtype.fields or {}).values()):
        raise LayoutError(
            f"structures whose fields have another byte order, {host.dtype}, are not converted during the upload: convert them first"
        )
    if host.ndim > 1:
        raise LayoutError(
            f"only a one-dimensional array of structures can be split into arrays of their fields, not one of shape {host.shape}: "
            "reshape it to (-1,)"
        )
    word, widths = words_of_structure(host.dtype)
    if layout is not None:
        if layout.shape[0] != host.size or host.itemsize % layout.shape[1]:
            raise LayoutError(
                f"{layout} does not fit {plural(host.size, 'structure')} of {plural(host.itemsize, 'byte')}; use layout='soa'"
            )
        word, widths = np.dtype(f"V{host.itemsize // layout.shape[1]}"), layout.widths
    words = np.asarray(_Words(host.reshape(-1), word))
    layout = Fields(words.shape, widths)
    return HostInput(*described(target, words, word), layout, host.dtype, word)


def described(target: Target, host: npt.NDArray[Any], plain: np.dtype[Any]) -> tuple[npt.NDArray[Any], HostArray]:
    """Return the memory to bind, and its description for a plan."""
    order = ">" if plain.byteorder == ">" else ""
    kind = f"{order}{plain.kind}{plain.itemsize}" if plain.kind in "iufcb" else f"V{plain.itemsize}"
    if host.flags.c_contiguous:
        return host, HostArray(host.shape, kind, target.is_pinned(host))
    low, high = np.lib.array_utils.byte_bounds(host)
    span = np.asarray(_Span(host, low, high - low))
    return span, HostArray(host.shape, kind, target.is_pinned(host), host.strides, host.__array_interface__["data"][0] - low, high - low)


class _Words:
    """Array interface of structures as words, in place, with any strides. It keeps the array alive."""

    def __init__(self, host: npt.NDArray[Any], word: np.dtype[Any]) -> None:
        self.host = host
        place = host.__array_interface__["data"][0], not host.flags.writeable
        shape, strides = (host.size, host.itemsize // word.itemsize), (host.strides[0], word.itemsize)
        self.__array_interface__ = {"version": 3, "data": place, "typestr": word.str, "shape": shape, "strides": strides}


class _Span:
    """Array interface of all bytes from the first to the last of an array with gaps, which it keeps alive."""

    def __init__(self, host: npt.NDArray[Any], low: int, nbytes: int) -> None:
        self.host = host
        self.__array_interface__ = {"version": 3, "data": (low, not host.flags.writeable), "typestr": "|u1", "shape": (nbytes,)}
