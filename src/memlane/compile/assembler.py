"""PTX to a cubin through nvJitLink: the same assembler that the driver has, without a driver."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from memlane.compile import toolkit
from memlane.compile.cubin import KernelUsage, kernel_usage
from memlane.compile.placement import check_dynamic_shared
from memlane.errors import BadLaunch, CompileError
from memlane.packages import pip_install
from memlane.ptx import Module, print_module, verify

_WHEEL = "nvidia-nvjitlink"
_PLACE = re.compile(r"^ptxas (?:application ptx input|[^\n,]*), line (\d+); ", re.MULTILINE)
_NEWER = re.compile(r"Unsupported \.version ([\d.]+); current version is '([\d.]+)'")
_TARGET = re.compile(r"^\s*\.target\s+([\w, ]+)", re.MULTILINE)


@dataclass(frozen=True)
class Cubin:
    """Assembled code."""

    data: bytes = field(repr=False)
    arch: str
    kernels: Mapping[str, KernelUsage]
    """What each kernel needs, by its name in PTX."""
    log: str = field(default="", repr=False)
    """What the assembler reported, register spills among it."""


def assemble(module: Module | str, *, arch: str = "sm_90", fmad: bool = True, options: Sequence[str] = ()) -> Cubin:
    """Assembles a module, or PTX text, for one architecture. Source lines are kept.

    `fmad=False` forbids the assembler to fuse multiplications with additions, as bit-for-bit comparisons need. `options` go to nvJitLink
    as they are, for example `"-Xptxas=-O0"`.

    Raises CompileError with the assembler's log, whose lines are those of the text, or if the dynamic shared memory of a module does not
    begin where it is declared to, PtxTypeError for a module that makes no sense (some of those would bring the assembler down, and this
    process with it), and MissingDependency.
    """
    if isinstance(module, Module):
        verify(module)
    text, name = (module, "<ptx>") if isinstance(module, str) else (print_module(module), module.name)
    contraction = [] if fmad else ["-Xptxas=-fmad=false"]
    cubin = _assemble(text, name, arch, ("-lineinfo", "-verbose", *contraction, *options))
    if isinstance(module, Module):
        check_dynamic_shared(module, cubin.kernels)
    return cubin


def assembler_version() -> str:
    """What tells the assembler from others. Raises MissingDependency."""
    try:
        return importlib.metadata.version(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return ".".join(map(str, toolkit.nvjitlink_bindings().version()))


def architecture(module: Module, compute_capability: tuple[int, int]) -> str:
    """What to assemble a module for: the device's own architecture, with the suffix that the module asks for.

    Raises BadLaunch if the module is for a GPU that this one cannot stand in for.
    """
    own = compute_capability[0] * 10 + compute_capability[1]
    wanted = module.target[0] if module.target else f"sm_{own}"
    match = re.fullmatch(r"(?:sm|compute)_(\d+)([af]?)", wanted)
    if match is None:
        raise BadLaunch(f"{module.name} is for {wanted!r}, which is no architecture that memlane knows")
    number, suffix = int(match[1]), match[2]
    family = suffix == "f" and number // 10 == own // 10
    fits = {"": number <= own, "a": number == own, "f": family and number <= own}[suffix]
    if not fits:
        raise BadLaunch(f"{module.name} is for {wanted} and cannot run on a GPU of sm_{own}; compile it with --arch sm_{own}")
    return f"sm_{own}{suffix}"


@lru_cache(maxsize=64)
def _assemble(text: str, name: str, arch: str, options: tuple[str, ...]) -> Cubin:
    linker = toolkit.nvjitlink_bindings()
    flags = [f"-arch=sm_{toolkit.compute_capability(arch)}", *options]
    try:
        handle = linker.create(len(flags), flags)
    except linker.nvJitLinkError as cause:
        if "ARCH" in str(cause):
            raise CompileError(f"the assembler does not know {arch}") from None
        raise CompileError(f"the assembler refuses {' '.join(flags)}: {cause}") from None
    try:
        data = text.encode("utf-8", errors="surrogateescape")
        try:
            linker.add_data(handle, linker.InputType.PTX, data, len(data), name)
            linker.complete(handle)
        except linker.nvJitLinkError:
            raise _refusal(text, name, arch, _log(linker, handle, "error")) from None
        cubin = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, cubin)
        return Cubin(bytes(cubin), arch, kernel_usage(bytes(cubin)), _log(linker, handle, "info"))
    finally:
        linker.destroy(handle)


def _log(linker: Any, handle: int, kind: str) -> str:
    size: Callable[[int], int] = getattr(linker, f"get_{kind}_log_size")
    buffer = bytearray(size(handle))
    if buffer:
        getattr(linker, f"get_{kind}_log")(handle, buffer)
    return buffer.partition(b"\0")[0].decode("utf-8", errors="replace")


def _refusal(text: str, name: str, arch: str, log: str) -> CompileError:
    """The error for a log: it names places as `name:line` and quotes the line."""
    if newer := _NEWER.search(log):
        return CompileError(
            f"{name} is PTX of version {newer[1]}, and the assembler knows versions up to {newer[2]}; "
            f"install a newer one with: {pip_install('--upgrade', 'nvidia-nvjitlink')}"
        )
    if "higher than default SM version" in log:
        target = _TARGET.search(text)
        return CompileError(f"{name} is for {target[1].strip() if target else 'a newer GPU'} and cannot be assembled for {arch}")
    lines = text.split("\n")
    report: list[str] = []
    for entry in log.splitlines():
        place = _PLACE.match(entry)
        if place is None:
            if not entry.startswith("ERROR NVJITLINK"):
                report.append(entry)
            continue
        number = int(place[1])
        message = " ".join(entry[place.end() :].split())
        report.append(f"{name}:{number}: {message}")
        if 1 <= number <= len(lines):
            report.append(f"    {lines[number - 1].strip()}")
    return CompileError(f"{name} does not assemble for {arch}", "\n".join(report))
