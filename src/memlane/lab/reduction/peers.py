"""The sums of PyTorch and CuPy, over the same memory, where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from memlane.launch import DeviceArray

PEERS = ("PyTorch", "CuPy")
_MODULES = {"PyTorch": "torch", "CuPy": "cupy"}


class _Shown:
    """An array as the CUDA array interface shows it."""

    def __init__(self, array: DeviceArray) -> None:
        self._array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.address, False),
            "version": 3,
            "strides": None,
        }


def missing(name: str) -> str:
    """Why a peer cannot be asked; empty if it can."""
    return "" if find_spec(_MODULES[name]) else f"{name} is not installed here"


def view(name: str, array: DeviceArray) -> Any:
    """The array as one of the peer's, over the same memory."""
    module = import_module(_MODULES[name])
    return module.as_tensor(_Shown(array), device="cuda") if name == "PyTorch" else module.asarray(_Shown(array))


def eager(name: str, array: DeviceArray, axis: int | None = None) -> Callable[[], object]:
    """One call of the peer's sum, in the type of the array."""
    same, dtype = view(name, array), getattr(import_module(_MODULES[name]), array.dtype.name)
    if name == "CuPy":
        return lambda: same.sum(axis=axis, dtype=dtype)
    return (lambda: same.sum(dtype=dtype)) if axis is None else (lambda: same.sum(dim=axis, dtype=dtype))


def captured(array: DeviceArray, repeats: int, axis: int | None = None) -> Callable[[], object]:
    """So many of PyTorch's sums in a graph; a call replays it."""
    torch: ModuleType = import_module("torch")
    once = eager("PyTorch", array, axis)
    for _ in range(3):
        once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [once() for _ in range(repeats)]
    kept.clear()
    return lambda: graph.replay()
