"""Run kernels on a real GPU: the only package that opens the CUDA driver.

Order inside: probe, failure, parameters, calls <- library, foreign_arrays, texture <- fast_launch, graph <- device. Only `probe` runs
without CUDA's packages, so that machines without them get a clear message: `Device` and its dependencies are imported on first access to
`Device`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from memlane.driver.probe import Probe, probe
from memlane.errors import MissingDependency

if TYPE_CHECKING:
    from memlane.driver.device import Device

__all__ = ["Device", "Probe", "probe"]


def __getattr__(name: str) -> object:
    if name != "Device":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not probe().packages:
        raise MissingDependency("running kernels on a GPU")
    device = import_module("memlane.driver.device").Device
    globals()[name] = device
    return device
