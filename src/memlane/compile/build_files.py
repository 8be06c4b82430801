"""Read from the Makefiles and CMake files near a program which macros and directories of headers its build passes to the compiler.

    CFLAGS := -O3 -DBLOCK_SIZE=256 -DGPU -I../common          BLOCK_SIZE=256, GPU; ../common
    target_compile_definitions(main PRIVATE USE_DOUBLE=1)     USE_DOUBLE=1

The files are not evaluated: conditionals, targets and included files are ignored. Of variables, those with one word in the same file are
known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memlane.compile.sources import display

_NAMES = ("GNUmakefile", "Makefile", "makefile", "Makefile.am", "CMakeLists.txt")
_SUFFIXES = ("*.mk", "*.sh")
_HIGHEST, _LEAST_DEPTH = 3, 3
"""Number of directories to search, the file's own first, and their least depth: directories nearer the root belong to the system."""
_MOST_FILES, _MOST_BYTES = 20, 1 << 18
"""Maximum number of build files in a directory, and maximum bytes of each."""
_VALUE = r"(?:=(?P<value>\"[^\"\s]*\"|'[^'\s]*'|(?:\$\(\w+\)|[^\s\"',;)\\])*))?"
_OPTION = re.compile(rf"(?<![\w.$-])-D[ \t]*[\"']?(?P<name>[A-Za-z_]\w*){_VALUE}")
_DIRECTORY = re.compile(r"(?<![\w.$-])-I[ \t]*[\"']?(?P<name>[^\s\"',;\\]+)")
_CMAKE = re.compile(r"\b(?:target_|add_)compile_definitions\s*\((?P<listed>[^)]*)\)", re.IGNORECASE)
_DEFINITION = re.compile(rf"(?<![\w$<{{])(?P<name>[A-Za-z_]\w*){_VALUE}(?=[\s;]|$)")
_VARIABLE = re.compile(r"^[ \t]*(\w+)[ \t]*[:?]?=[ \t]*([^\s#$]+)[ \t]*(?:#.*)?$", re.MULTILINE)
_REFERENCE = re.compile(r"\$[({](\w+)[)}]")
_KEYWORDS = frozenset({"PUBLIC", "PRIVATE", "INTERFACE"})


@dataclass(frozen=True)
class PassedMacro:
    """A macro that a build file passes with -D."""

    name: str
    value: str
    """Its value; empty if it has none, and `VALUE` for one that the files do not tell."""
    place: str
    """`FILE:LINE` of the build file."""

    @property
    def option(self) -> str:
        """The macro as the command line takes it, `NAME` or `NAME=VALUE`."""
        return f"{self.name}={self.value}" if self.value else self.name


def passed_macros(path: Path | None) -> Mapping[str, PassedMacro]:
    """Return the macros that the build files in a file's directory, and in those above it, pass to the compiler; the nearest counts."""
    found: dict[str, PassedMacro] = {}
    for file, code in _build_files(path):
        for name, value, position in _definitions(code):
            found.setdefault(name, PassedMacro(name, value, _place(file, code, position)))
    return found


def passed_directory(header: str, path: Path | None) -> tuple[Path, str] | None:
    """Return a directory that holds a header and that a build file passes with -I, with `FILE:LINE` of that file; None if there is none."""
    for file, code in _build_files(path):
        variables = dict(_VARIABLE.findall(code))
        for option in _DIRECTORY.finditer(code):
            directory = Path(os.path.normpath(file.parent / _plain(option["name"], variables)))
            with suppress(OSError, ValueError):
                if (directory / header).is_file():
                    return directory, _place(file, code, option.start())
    return None


def _place(file: Path, code: str, position: int) -> str:
    return f"{display(file)}:{code.count(chr(10), 0, position) + 1}"


def _build_files(path: Path | None) -> Iterator[tuple[Path, str]]:
    """Yield the build files near a file, the nearest first, with their texts without comments."""
    for file in _candidates(path) if path is not None else ():
        with suppress(OSError):
            if file.stat().st_size <= _MOST_BYTES:
                text = file.read_text("utf-8", "replace")
                yield file, re.sub(r"(?m)^[ \t]*#.*$", lambda comment: " " * len(comment[0]), text)


def _candidates(path: Path) -> Iterator[Path]:
    directory = path.parent
    for _ in range(_HIGHEST):
        if len(directory.resolve().parts) < _LEAST_DEPTH:
            return
        named = [directory / name for name in _NAMES]
        others = sorted(one for suffix in _SUFFIXES for one in directory.glob(suffix))
        yield from [one for one in (*named, *others) if one.is_file()][:_MOST_FILES]
        directory = Path(os.path.normpath(directory / ".."))


def _definitions(code: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, value and position of each macro that a build file passes."""
    variables = dict(_VARIABLE.findall(code))
    for option in _OPTION.finditer(code):
        yield option["name"], _plain(option["value"], variables), option.start()
    for command in _CMAKE.finditer(code):
        words = command["listed"]
        target = re.match(r"\s*[^\s;]+", words) if command[0].lower().startswith("target_") else None
        for macro in _DEFINITION.finditer(words, target.end() if target else 0):
            if macro["name"] not in _KEYWORDS:
                yield macro["name"].removeprefix("-D"), _plain(macro["value"], variables), command.start("listed") + macro.start()


def _plain(value: str | None, variables: Mapping[str, str]) -> str:
    """Return a value without quotes and with the variables in it replaced; `VALUE` if one of them is not known."""
    plain = _REFERENCE.sub(lambda found: variables.get(found[1], found[0]), (value or "").strip("\"'"))
    return "VALUE" if "$" in plain or "@" in plain else plain
