"""Detect usable GPUs of this machine, without failing and without importing more than needed."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memlane.packages import install_command

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
"""File name of the driver's library."""

_NO_DEVICE = {"CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_STUBLIBRARY"}
"""Results of `cuInit` when a driver is installed but there is no device."""
_MODULE_VERSION = Path("/sys/module/nvidia/version")
"""Linux's file with the version of the driver's kernel module; the driver's library only reports the CUDA version that it supports."""
_TIMEOUT_S = 10.0
"""Timeout for `nvidia-smi`, in seconds."""


@dataclass(frozen=True)
class Probe:
    """Result of the detection. `devices` is empty if and only if `problem` is set."""

    packages: bool
    """Whether `cuda.bindings` and `cuda.core` are installed."""
    library: bool = True
    """Whether the driver's library is installed."""
    driver: tuple[int, int] | None = None
    """Newest CUDA version that the driver supports."""
    devices: tuple[str, ...] = ()
    """Product names of the devices, by device number."""
    problem: str = ""
    """Why no device can be used, as the end of a sentence."""
    broken: bool = False
    """Whether a driver is installed but fails: a fault to repair, not a machine without a GPU."""


@cache
def probe() -> Probe:
    """Detect the CUDA driver, the Python packages and the devices, once per process. Imports nothing if there is no driver."""
    packages = _installed("cuda.bindings") and _installed("cuda.core")
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return Probe(packages, library=False, problem=f"there is no CUDA driver on this machine ({LIBRARY} was not found)")
    if not packages:
        return Probe(packages, problem=f"the CUDA packages are not installed ({install_command('cuda')})")
    return _ask_driver()


def module_version() -> str:
    """Return the version of the driver's kernel module, such as `580.159.04`; empty if unknown."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return _MODULE_VERSION.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        pass  # not Linux, or a container that hides the kernel modules of its host
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def driver_version(found: Probe) -> str:
    """Return the version of the detected driver, such as `580.159.04, CUDA 13.0`; unknown parts are left out."""
    module = module_version()
    cuda = "" if found.driver is None else f"CUDA {found.driver[0]}.{found.driver[1]}"
    return ", ".join(part for part in (module, cuda) if part)


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _ask_driver() -> Probe:
    from cuda.bindings import driver

    try:
        (code,) = driver.cuInit(0)
    except RuntimeError as error:
        return Probe(True, problem=f"the CUDA driver cannot be opened ({error})", broken=True)
    if code.name in _NO_DEVICE:
        return Probe(True, problem=f"the CUDA driver finds no device ({code.name})")
    if code != driver.CUresult.CUDA_SUCCESS:
        return Probe(True, problem=f"the CUDA driver does not start ({code.name}); see what nvidia-smi says", broken=True)
    version = _value(driver.cuDriverGetVersion())
    names = tuple(_name(driver, number) for number in range(_value(driver.cuDeviceGetCount())))
    problem = "" if names else "the CUDA driver finds no device"
    return Probe(True, driver=(version // 1000, version % 1000 // 10), devices=names, problem=problem)


def _name(driver: Any, number: int) -> str:
    raw: bytes = _value(driver.cuDeviceGetName(256, _value(driver.cuDeviceGet(number))))
    return raw.split(b"\0")[0].decode()


def _value(result: tuple[Any, ...]) -> Any:
    code, value = result
    if code != 0:
        raise RuntimeError(f"the CUDA driver answered {code.name}")
    return value
