"""Suggest remedies for a program that does not compile, where the compiler's message does not give one."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from memlane.compile import conditionals, libraries, nvrtc
from memlane.compile.build_files import passed_directory, passed_macros
from memlane.compile.device_launches import RUNTIME_CALL
from memlane.compile.sources import SourceFile

_TEXTURE_REFERENCE = re.compile(r"\b(?:texture|surface)\s*<[^;{}<>]*>\s*(\w+)")
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_NO_OVERLOAD = re.compile(r'no instance of (?:overloaded function|function template) "(\w+)" matches')
_THRUST = re.compile(r'^(?P<file>[^\n]+)\((?P<line>\d+)\): error: namespace "thrust" has no member "(?P<name>\w+)"', re.MULTILINE)
_WITHOUT_SYNC = frozenset({"__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__any", "__all", "__ballot"})
"""Warp functions without a lane mask, which act on the lanes that happen to be active; CUDA removed them from sm_70 on."""
_NO_HEADER = re.compile(
    r'^(?P<file>[^\n]+)\((?P<line>\d+)\): catastrophic error: cannot open source file "(?P<header>[^"]*)"', re.MULTILINE
)
_KERNEL = re.compile(r"\b__global__\b[^;{}]*\{")
_SOURCES = frozenset({".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp"})
_MOST_FILES, _MOST_BYTES = 200, 1 << 20
"""Maximum number of neighbouring files to search, and maximum bytes of each."""
_LISTED = 3
_HIGHEST, _LEAST_DEPTH = 6, 3
"""Number of parent directories to search for a header, and their least depth: directories nearer the root belong to the system."""


def hints(log: str, files: Iterable[SourceFile], path: Path | None, defines: Iterable[str] = (), refusals: Sequence[str] = ()) -> list[str]:
    """Return remedies for errors that nvcc would not report, or whose cause memlane knows.

    `refusals` holds the errors for which declarations were left out before `log`.
    """
    files = list(files)
    earlier = "\n\n".join((log, *refusals))
    told = [*_of_runtime(log), *_of_textures(earlier, files), *_of_intrinsics(earlier, files), *_of_dialect(log)]
    told += _of_thrust(earlier, {file.name for file in files})
    told += (*conditionals.hints(log, files, defines, passed_macros(path)), *of_pieces(path))
    return [*dict.fromkeys(told)]


def elsewhere(path: Path | None) -> str:
    """Return the end of the message for a file without a kernel: neighbouring files that define one, or general advice if none does."""
    found = [name for name, text in _beside(path, {".cu", ".cuh"}) if _KERNEL.search(text)]
    return f"; name a file that defines one: {_listed(found)}" if found else "; name a file that defines a `__global__` function"


def skipped_kernels(files: Sequence[SourceFile], path: Path | None, defines: Iterable[str]) -> list[str]:
    """Return remedies for the kernels of a program's main file that conditionals skip."""
    return conditionals.of_kernels(files[:1], defines, passed_macros(path))


def missing_header(log: str, path: Path | None) -> str:
    """Return the sentence about a header that stopped the compiler, with its remedy; empty if none did."""
    if (found := _NO_HEADER.search(log)) is None:
        return ""
    return f'{found["file"]}:{found["line"]}: the header "{found["header"]}" was not found; {remedy_for_header(found["header"], path)}'


def remedy_for_header(header: str, path: Path | None) -> str:
    """Return the remedy for a missing header as the rest of a sentence: its directory, if it is found, or the wheel that contains it."""
    if "\\" in header:
        return f'only Windows has backslashes between directories: write "{header.replace(chr(92), "/")}"'
    if (passed := passed_directory(header, path)) is not None:
        return f"name its directory with -I {passed[0]} (include=[{str(passed[0])!r}] in Python), as {passed[1]} does"
    directory = next(_directories_with(header, path), None) if path is not None else None
    if directory is not None:
        return f"name its directory with -I {directory} (include=[{str(directory)!r}] in Python)"
    made = next(_directories_with(f"{header}.in", path), None) if path is not None else None
    if made is not None:
        return (
            f"the program's build makes it from {made / header}.in: run its configuration (cmake or configure), "
            "and name the directory of the result with -I DIR (include=[DIR] in Python)"
        )
    return libraries.remedy(header)


def _directories_with(header: str, path: Path) -> Iterator[Path]:
    """Yield the directories from which a header is found by its included name: the file's parent directories and those inside them."""
    above = path.parent
    for _ in range(_HIGHEST):
        if len(above.resolve().parts) < _LEAST_DEPTH:
            return
        for pattern in (header, f"*/{header}", f"*/*/{header}"):
            with suppress(OSError, ValueError, NotImplementedError):
                for found in sorted(islice(above.glob(pattern), _MOST_FILES)):
                    if found.is_file():
                        yield Path(os.path.normpath(str(found)[: -len(header)] or "."))
        above = Path(os.path.normpath(above / ".."))


def _of_runtime(log: str) -> Iterator[str]:
    if RUNTIME_CALL.search(log):
        yield (
            "memlane runs no kernels that launch kernels or call the CUDA runtime (dynamic parallelism): launch the inner kernel from the "
            "host, or as a step of a schedule, and move calls of the runtime there."
        )


def _of_intrinsics(log: str, files: Iterable[SourceFile]) -> Iterator[str]:
    for name in sorted(_WITHOUT_SYNC.intersection(_UNDEFINED.findall(log))):
        for file in files:
            if found := re.search(rf"\b{name}\b", file.text):
                yield _ended(f"{file.name}:{file.text.count(chr(10), 0, found.start()) + 1}", name)
                break
    for error in nvrtc.errors(log):  # of a program that has an overload with this name
        found = _NO_OVERLOAD.search(error.message)
        if found is not None and found[1] in _WITHOUT_SYNC:
            yield _ended(f"{error.file}:{error.line}", found[1])
            break


def _ended(place: str, name: str) -> str:
    return (
        f"{place}: CUDA has ended `{name}` for chips from sm_70 on, for nvcc too: write "
        f"`{name}_sync(0xffffffff, ...)`, whose first argument is the mask of the lanes that take part."
    )


def _of_thrust(log: str, own: Container[str]) -> Iterator[str]:
    for found in _THRUST.finditer(log):
        if found["file"] in own and not found["name"].endswith(("_vector", "_ptr")):
            yield (
                f"{found['file']}:{found['line']}: NVRTC, with which memlane compiles, cannot compile `thrust::{found['name']}`: write a "
                "loop in the kernel, or compile the file with `nvcc -ptx -lineinfo` and give memlane the .ptx file."
            )


def textures(files: Iterable[SourceFile]) -> list[str]:
    """Return remedies for the texture and surface references of a program that compiled to no kernel."""
    return [*_of_textures("", files, every=True)]


def _of_textures(log: str, files: Iterable[SourceFile], every: bool = False) -> Iterator[str]:
    undefined = set(_UNDEFINED.findall(log))
    for file in files:
        for found in _TEXTURE_REFERENCE.finditer(file.text):
            if every or found[1] in undefined:
                line = file.text.count("\n", 0, found.start()) + 1
                yield (
                    f"{file.name}:{line}: `{found[1]}` is a texture or surface reference, which CUDA 12 has ended, for nvcc too: pass a "
                    "cudaTextureObject_t or cudaSurfaceObject_t to the kernel."
                )


def _of_dialect(log: str) -> Iterator[str]:
    for error in nvrtc.errors(log):
        if error.column is None:
            continue
        place = f"Line {error.line} of {error.file}: NVRTC, with which memlane compiles, refuses"
        before, behind = error.source[: error.column].rstrip(), error.source[error.column :]
        if "expected an expression" in error.message and behind.startswith("{") and before.endswith("("):
            yield (
                f"{place} statement expressions `({{ ...; value; }})` with a jump in them, which nvcc takes from GCC: write "
                "`[&] { ...; return value; }()`."
            )
        elif "expected an expression" in error.message and behind.startswith("{") and before.endswith(")"):
            yield f"{place} compound literals `(type[]){{...}}` of arrays, which nvcc takes from GCC: declare a variable."
        elif "expected an expression" in error.message and behind.startswith(":") and before.endswith("?"):
            yield f"{place} `a ?: b`, which nvcc takes from GCC: write `a ? a : b`."
        elif 'expected a ":"' in error.message and behind.startswith("..."):
            yield f"{place} ranges `case 1 ... 3:`, which nvcc takes from GCC: write `case 1: case 2: case 3:`."
        elif "array designators" in error.message or ("expected an identifier" in error.message and re.search(r"[{,]\s*\[$", before)):
            yield f"{place} array designators `{{[1] = x}}`, which nvcc takes from GCC: write all values in order."
        elif behind.startswith(":") and re.search(r"[{,]\s*\w+$", before):
            yield f"{place} initialisers `{{name: x}}`, which nvcc takes from GCC: write `{{.name = x}}`."


def of_pieces(path: Path | None) -> Iterator[str]:
    """Yield a hint if other files include this one: it may be a fragment that does not compile alone."""
    if path is None:
        return
    include = re.compile(rf'^[ \t]*#[ \t]*include[ \t]*["<](?:[^">\n]*/)?{re.escape(path.name)}[">]', re.MULTILINE)
    found = [name for name, text in _beside(path, _SOURCES) if include.search(text)]
    if found:
        yield f"{path.name} is included by {_listed(found)}, beside it or above it; name that file, where what it needs comes before it."


def _beside(path: Path | None, suffixes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files in the directory of a file and in its parent directory."""
    if path is None:
        return
    own = path.resolve()
    directories = dict.fromkeys((own.parent, own.parent.parent))
    try:
        candidates = [one for directory in directories for one in sorted(directory.iterdir()) if one.suffix in suffixes and one != own]
    except OSError:
        return
    for one in candidates[:_MOST_FILES]:
        try:
            if one.is_file() and one.stat().st_size <= _MOST_BYTES:
                yield (
                    str(path.parent / one.name if one.parent == own.parent else path.parent.parent / one.name),
                    one.read_text("utf-8", "replace"),
                )
        except OSError:
            continue


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"
