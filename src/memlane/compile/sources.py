"""Collect the files of a program: the `.cu` file and its author's headers, found through `#include`.

The author's headers are read here because they may contain host code. Headers of CUDA are left to the compiler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memlane.compile import libraries, nvrtc_headers, standard, toolkit
from memlane.compile.tokens import Token, directive, tokenize
from memlane.errors import CompileError

_FILE = re.compile(r'^(\s*\.file\s+\d+\s+")([^"]*)(")', re.MULTILINE)
_LOCATION = re.compile(r"^\s*\.loc\s+(\d+)\s", re.MULTILINE)
_BUILTIN = "__nv_nvrtc_builtin_header.h"
"""The compiler's name for its built-in header."""
_INCLUDE = re.compile(r'(?P<open>[<"])(?P<name>[^>"]+)[>"]')


@dataclass(frozen=True)
class SourceFile:
    """A file of the program. `name` is its name in messages and `.file` directives."""

    name: str
    text: str = field(repr=False)
    tokens: list[Token] = field(repr=False)
    includes: dict[int, str] = field(repr=False)
    """Token index of an include directive -> name of the program file that it includes."""


@dataclass(frozen=True)
class Program:
    """All files of a program, the main file first."""

    files: tuple[SourceFile, ...]
    absent: tuple[str, ...]
    """Headers in angle brackets that were not found, usually of the system or of host libraries."""
    library: tuple[str, ...]
    """CUDA headers that the files include, by the names in `#include`."""
    whole: tuple[Path, ...] = ()
    """Headers of libraries that support NVRTC; the compiler reads these itself."""


def read(path: Path) -> str:
    """Return the text of a file without its byte order mark. Raises CompileError."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as cause:
        raise CompileError(f"cannot read {path}: {cause.strerror}") from cause


def gather(name: str, text: str, directory: Path, include: Sequence[Path], *, read_all: bool = False) -> Program:
    """Return the program whose main file is `text`. Quoted headers are searched beside the including file, then in `include`.

    Headers of libraries that support NVRTC are left to the compiler, unless `read_all` is True. A quoted header that is not found is left
    to the compiler too, because only it can tell whether the conditionals around the `#include` hold.
    """
    files: dict[str, SourceFile] = {}
    absent: dict[str, None] = {}
    quoted: set[str] = set()
    library: dict[str, None] = {}
    whole: dict[Path, None] = {}
    known = standard.stand_ins()
    pending = [(name, text, directory)]
    while pending:
        name, text, directory = pending.pop(0)
        if name in files:
            continue
        file = SourceFile(name, text, tokenize(text), {})
        files[name] = file
        for index, token in enumerate(file.tokens):
            found = _included(token)
            if found is None:
                continue
            header = _find(found["name"], ([directory] if found["open"] == '"' else []) + list(include))
            if header is not None and not read_all and nvrtc_headers.is_left_whole(header, include):
                whole[header] = None
            elif header is not None:
                file.includes[index] = display(header)
                pending.append((display(header), read(header), header.parent))
            elif _in_toolkit(found["name"]):
                library[found["name"]] = None
            elif found["name"] not in known:
                absent[found["name"]] = None
                if found["open"] == '"' and not libraries.is_for_host(found["name"]):
                    quoted.add(found["name"])
    return Program(tuple(files.values()), tuple(name for name in absent if name not in quoted), tuple(library), tuple(whole))


def display(path: Path) -> str:
    """Return the name of a file in messages: its relative path if it lies below the working directory."""
    name = os.path.normpath(path)
    relative = os.path.relpath(name)
    return name if relative.startswith("..") else relative


def file_names(ptx: str) -> set[str]:
    """Return the file names in the line table of PTX text."""
    return {found[2] for found in _FILE.finditer(ptx)}


def first_located_file(ptx: str) -> str:
    """Return the file of the first source line in PTX text, which for a single kernel is the file of the kernel; empty if it has none."""
    located = _LOCATION.search(ptx)
    names = {found[1].split()[1]: found[2] for found in _FILE.finditer(ptx)}
    return names.get(located[1], "") if located else ""


def with_file_names(ptx: str, name_of: Callable[[str], str]) -> str:
    """Return the PTX with each file name in its line table replaced by `name_of(name)`."""
    return _FILE.sub(lambda found: f"{found[1]}{name_of(found[2])}{found[3]}", ptx)


def with_short_names(ptx: str, names: Iterable[str]) -> str:
    """Return the PTX with absolute file names replaced by `names`, or for CUDA's headers by paths relative to the include directory."""
    absolute = {os.path.join(os.getcwd(), name): name for name in (*names, standard.PRELUDE, _BUILTIN)}
    roots = [f"{directory}{os.sep}" for directory in sorted(toolkit.include_directories(), reverse=True)]

    def short(name: str) -> str:
        name = absolute.get(name, name)
        for root in roots:
            name = name.removeprefix(root)
        return name

    return with_file_names(ptx, short)


def with_includes(file: SourceFile, text: str) -> str:
    """Return `text`, the file's text with parts blanked, with each include of a program file rewritten to use that file's name."""
    for index, name in sorted(file.includes.items(), reverse=True):
        token = file.tokens[index]
        if text.startswith(token.text, token.start):
            line_ends = "\n" * token.text.count("\n")
            text = f'{text[: token.start]}#include "{name}"{line_ends}{text[token.end :]}'
    return text


def _included(token: Token) -> re.Match[str] | None:
    if token.kind != "directive" or "include" not in token.text:
        return None
    line = directive(token)
    return _INCLUDE.match(line.body) if line.name in ("include", "include_next") else None


def _find(name: str, directories: Sequence[Path]) -> Path | None:
    for directory in directories:
        candidate = directory / name
        if _is_file(candidate):
            return candidate
    return None


def _is_file(path: Path) -> bool:
    """Return whether a file exists; False for a string that is not a valid file name."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _in_toolkit(name: str) -> bool:
    return any(_is_file(directory / name) for directory in toolkit.include_directories())
