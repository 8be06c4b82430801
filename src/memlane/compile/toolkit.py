"""Locate the CUDA headers and import the optional packages that memlane compiles with."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from functools import cache
from pathlib import Path
from types import ModuleType

from memlane.errors import CompileError, MissingDependency

_LANDMARKS = {"nvidia-cuda-runtime": "cuda_runtime.h", "nvidia-cuda-cccl": "cuda/std/cstdint"}
"""Wheels with headers -> a header in each, whose path reveals the include directory."""


def compute_capability(arch: str) -> str:
    """Return the compute capability in an architecture name: `90a` for `sm_90a`.

    Raises CompileError for an invalid architecture, because nvJitLink crashes on some.
    """
    match = re.fullmatch(r"sm_([1-9]\d\d?)([af]?)", arch)
    if match is None:
        raise CompileError(f"no architecture {arch!r}; write it like sm_90")
    return match[1] + match[2]


def nvrtc_bindings() -> ModuleType:
    """Return the module `cuda.bindings.nvrtc`. Raises MissingDependency."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as cause:
        raise MissingDependency("compiling CUDA C++") from cause
    return nvrtc  # type: ignore[no-any-return]


def nvjitlink_bindings() -> ModuleType:
    """Return the module `cuda.bindings.nvjitlink`. Raises MissingDependency."""
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, RuntimeError) as cause:
        raise MissingDependency("assembling PTX") from cause
    return nvjitlink  # type: ignore[no-any-return]


@cache
def include_directories() -> tuple[Path, ...]:
    """Return the include directories of the CUDA runtime and of CCCL (`cuda/std`, CUB, Thrust): from the wheels, else from an installed
    toolkit.

    Raises MissingDependency.
    """
    found: dict[Path, None] = {}
    for wheel, landmark in _LANDMARKS.items():
        directory = _from_wheel(wheel, landmark) or _from_directories(landmark)
        if directory is None:
            raise MissingDependency("compiling CUDA C++")
        found[directory] = None
    return tuple(found)


def _from_wheel(wheel: str, landmark: str) -> Path | None:
    try:
        files = importlib.metadata.files(wheel) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        name = file.as_posix()
        if name.endswith(f"/{landmark}"):
            header = Path(str(file.locate()))
            return header.parents[landmark.count("/")] if header.is_file() else None
    return None


def _from_directories(landmark: str) -> Path | None:
    """Search the wheels' namespace package, in any layout, and a toolkit named by the environment; None if the header is in neither."""
    roots: list[Path] = []
    package = importlib.util.find_spec("nvidia")
    for place in (package.submodule_search_locations or ()) if package else ():
        roots += sorted(Path(place).glob("*/include"))
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            roots.append(Path(os.environ[variable]) / "include")
    for root in roots:
        for candidate in (root, root / "cccl"):
            if (candidate / landmark).is_file():
                return candidate
    return None
