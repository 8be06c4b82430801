"""Call the sums of PyTorch and CuPy, over the same memory, if they are installed."""

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
    """Wrapper that exposes an array through the CUDA array interface."""

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
    """Return why a peer cannot be used; empty if it can."""
    return "" if find_spec(_MODULES[name]) else f"{name} is not installed here"


def view(name: str, array: DeviceArray) -> Any:
    """Return the array as one of the peer's, over the same memory."""
    module = import_module(_MODULES[name])
    return module.as_tensor(_Shown(array), device="cuda") if name == "PyTorch" else module.asarray(_Shown(array))


def eager(name: str, array: DeviceArray, axis: int | None = None) -> Callable[[], object]:
    """Return a function that calls the peer's sum once, in the type of the array."""
    same, dtype = view(name, array), getattr(import_module(_MODULES[name]), array.dtype.name)
    if name == "CuPy":
        return lambda: same.sum(axis=axis, dtype=dtype)
    return (lambda: same.sum(dtype=dtype)) if axis is None else (lambda: same.sum(dim=axis, dtype=dtype))


def captured(array: DeviceArray, repeats: int, axis: int | None = None) -> Callable[[], object]:
    """Return a function that replays a graph of `repeats` of PyTorch's sums."""
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
