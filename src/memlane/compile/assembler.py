"""Assemble PTX to a cubin with nvJitLink, which contains the driver's assembler and needs no driver."""

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
from memlane.errors import BadLaunch, CompileError, LinkError
from memlane.packages import pip_install
from memlane.ptx import Module, demangle, print_module, verify

_WHEEL = "nvidia-nvjitlink"
_PLACE = re.compile(r"^ptxas (?:application ptx input|[^\n,]*), line (\d+); ", re.MULTILINE)
_NEWER = re.compile(r"Unsupported \.version ([\d.]+); current version is '([\d.]+)'")
_FATBIN, _ELF, _ARCHIVE = b"\x50\xed\x55\xba", b"\x7fELF", b"!<arch>\n"
_CUDA_MACHINE = b"\xbe\x00"
"""Machine field (`e_machine`) in the ELF header of GPU code."""
_LINKING = re.compile(
    r"Undefined reference to '(?P<undefined>[^']+)' in '(?P<user>[^']*)'"
    r"|bad input:(?P<foreign>\S+)|input \((?P<other>[^)\n]*)\) binary format mismatch"
    r"|(?P<what>Size|Prototype) doesn't match for '(?P<unlike>[^']+)' in '(?P<there>[^']*)'"
)
_TARGET = re.compile(r"^\s*\.target\s+([\w, ]+)", re.MULTILINE)


@dataclass(frozen=True)
class Cubin:
    """Assembled code for one architecture."""

    data: bytes = field(repr=False)
    arch: str
    kernels: Mapping[str, KernelUsage]
    """Resource usage of each kernel, by its name in PTX."""
    log: str = field(default="", repr=False)
    """The assembler's log, which includes register spills."""


def assemble(module: Module | str, *, arch: str = "sm_90", fmad: bool = True, options: Sequence[str] = ()) -> Cubin:
    """Assemble a module or PTX text for one architecture, keeping source line information.

    `fmad=False` forbids the assembler to fuse multiplications with additions, as bit-for-bit comparisons need. `options` are passed to
    nvJitLink unchanged, for example `"-Xptxas=-O0"`.

    Raises CompileError with the assembler's log, whose line numbers are those of the text, or if the dynamic shared memory of a module does
    not begin at its declared alignment; LinkError if the module and the assembled code that it calls do not fit together; PtxTypeError for
    an invalid module (some of those would crash the assembler, and this process with it); and MissingDependency.
    """
    if isinstance(module, Module):
        verify(module)
    text, name = (module, "<ptx>") if isinstance(module, str) else (print_module(module), module.name)
    contraction = [] if fmad else ["-Xptxas=-fmad=false"]
    objects = module.objects if isinstance(module, Module) else ()
    cubin = _assemble(text, name, arch, ("-lineinfo", "-verbose", *contraction, *options), objects)
    if isinstance(module, Module):
        check_dynamic_shared(module, cubin.kernels)
    return cubin


def object_kind(data: bytes) -> str:
    """Return the kind of assembled code, by nvJitLink's name for it; empty if the data is not assembled code."""
    if data.startswith(_ELF):
        return "CUBIN" if data[18:20] == _CUDA_MACHINE else "OBJECT"
    return "FATBIN" if data.startswith(_FATBIN) else "LIBRARY" if data.startswith(_ARCHIVE) else ""


def assembler_version() -> str:
    """Return the version of the installed assembler. Raises MissingDependency."""
    try:
        return importlib.metadata.version(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return ".".join(map(str, toolkit.nvjitlink_bindings().version()))


def architecture(module: Module, compute_capability: tuple[int, int]) -> str:
    """Return the architecture to assemble a module for: the device's own, with the suffix that the module asks for.

    Raises BadLaunch if the module is for a GPU whose code this one cannot run.
    """
    own = compute_capability[0] * 10 + compute_capability[1]
    wanted = module.target[0] if module.target else f"sm_{own}"
    match = re.fullmatch(r"(?:sm|compute)_(\d+)([af]?)", wanted)
    if match is None:
        raise BadLaunch(f"{module.name} is for {wanted!r}, which is not an architecture that memlane knows")
    number, suffix = int(match[1]), match[2]
    family = suffix == "f" and number // 10 == own // 10
    fits = {"": number <= own, "a": number == own, "f": family and number <= own}[suffix]
    if not fits:
        raise BadLaunch(f"{module.name} is for {wanted} and cannot run on a GPU of sm_{own}; compile it with --arch sm_{own}")
    return f"sm_{own}{suffix}"


@lru_cache(maxsize=64)
def _assemble(text: str, name: str, arch: str, options: tuple[str, ...], objects: tuple[tuple[str, bytes], ...] = ()) -> Cubin:
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
            for file, code in objects:
                linker.add_data(handle, getattr(linker.InputType, object_kind(code)), code, len(code), file)
            linker.complete(handle)
        except linker.nvJitLinkError:
            log = _log(linker, handle, "error")
            raise (_link_error(name, arch, log, objects) if objects else None) or _refusal(text, name, arch, log) from None
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


def _link_error(name: str, arch: str, log: str, objects: tuple[tuple[str, bytes], ...]) -> LinkError | None:
    """Return the error for a linker message about assembled code; None if the log has no such message."""
    found = _LINKING.search(log)
    if found is None:
        return None
    if foreign := found["foreign"] or found["other"]:
        return LinkError(f"{foreign} has no code for {arch}; make it with nvcc -arch={arch} -rdc=true")
    files = [name, *(file for file, _ in objects)]

    def file(group: str) -> str:
        return found[group] if found[group] in files else name  # the linker alters the names of PTX inputs

    if found["undefined"]:
        missing = demangle(found["undefined"])
        return LinkError(f"`{missing}`, which {file('user')} uses, is not defined in {', '.join(files)}; link the file that defines it too")
    return LinkError(f"the {found['what'].lower()} of `{demangle(found['unlike'])}` is another one in {file('there')}; make them the same")


def _refusal(text: str, name: str, arch: str, log: str) -> CompileError:
    """Return the error for an assembler log, with each place as `name:line` and the line quoted."""
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
