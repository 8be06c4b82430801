"""Find header libraries that support NVRTC, as CUTLASS and CuTe do; the compiler reads these from disk unchanged.

Other headers of a program are read here and their host code is cut, because they were written for nvcc. A library that tests for
`__CUDACC_RTC__` excludes its host code itself, and its headers may amount to a megabyte, so they are not read. Only its macros are: a
program that marks its functions with `CUTE_HOST_DEVICE` has them for the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from memlane.compile.tokens import Token, tokenize

_KNOWS = b"__CUDACC_RTC__"
_HEADERS = (".h", ".hpp", ".cuh", ".hxx", ".inl")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?P<open>[<"])(?P<name>[^>"\n]+)[>"]', re.MULTILINE)
_DEFINITION = re.compile(r"^[ \t]*#[ \t]*define\b(?:\\\r?\n|[^\n])*", re.MULTILINE)


def is_left_whole(header: Path, include: Sequence[Path]) -> bool:
    """Return whether the compiler gets a header unchanged.

    That is so if the header lies in a folder below a directory of `include`, and a header in that folder, or in one between, contains
    `__CUDACC_RTC__`.
    """
    root = next((one for one in include if header.is_relative_to(one)), None)
    if root is None:
        return False
    inside = header.relative_to(root).parts[:-1]
    return any(_names_nvrtc(root.joinpath(*inside[:depth])) for depth in range(len(inside), 0, -1))


@lru_cache(maxsize=1024)
def _names_nvrtc(folder: Path) -> bool:
    """Return whether a header in the folder contains `__CUDACC_RTC__`."""
    return any(path.suffix in _HEADERS and path.is_file() and _KNOWS in path.read_bytes() for path in sorted(folder.iterdir()))


def texts(names: Iterable[str], include: Sequence[Path]) -> dict[str, str]:
    """Return the texts of the files in a line table that were left unchanged, so that findings can quote them."""
    paths = {name: Path(name) for name in names}
    return {name: _read(path) for name, path in sorted(paths.items()) if path.is_file() and is_left_whole(path, include)}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig", errors="surrogateescape")


def macros_of(headers: Sequence[Path], include: Sequence[Path]) -> list[Token]:
    """Return the macro definitions in these headers, and in those that they include from `include` or from their own directory."""
    seen: set[Path] = set()
    found: list[Token] = []
    pending = list(headers)
    while pending:
        header = pending.pop()
        if header in seen or not header.is_file():
            continue
        seen.add(header)
        text = _read(header)
        found += tokenize("\n".join(match[0] for match in _DEFINITION.finditer(text)))
        for match in _INCLUDE.finditer(text):
            beside = (header.parent,) if match["open"] == '"' else ()
            pending += [directory / match["name"] for directory in (*beside, *include)]
    return found
