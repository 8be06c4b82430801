"""A launch of a kernel that others wrote, and how its file becomes a module: a file of CUDA C++, or a text in a Python file."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from explain_cases import Arguments

from memlane.compile import cuda
from memlane.errors import MemlaneError
from memlane.ptx import Module


@dataclass(frozen=True)
class Public:
    """One launch of a kernel of somebody else's."""

    source: str
    """The folder: a repository of git, or a source distribution with its version."""
    file: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Arguments
    label: str
    """What a reader of the kernel expects to be the first finding; empty for nothing."""
    why: str
    """What in the kernel makes him think so."""
    include: Sequence[str] = field(default=())
    """Folders of the source to search for headers."""
    instantiate: Sequence[str] = field(default=())
    define: Sequence[str] = field(default=())
    shared_bytes: int = 0
    literal: int = 0
    """Of a Python file: which of the texts that hold the kernel, from 0."""
    values: Mapping[str, object] | None = None
    """What the host code puts into such a text by `%`."""

    @property
    def name(self) -> str:
        more = f" ({self.literal + 1})" if self.literal else ""
        return f"{self.source}: {self.kernel}{more}"

    def module(self, folder: Path) -> Module:
        """The compiled file; `folder` holds the sources. Raises CompileError, and MemlaneError where a file does not hold the kernel."""
        root = folder / self.source
        path = root / self.file
        settings = {"include": [root / one for one in self.include], "instantiate": self.instantiate, "define": self.define}
        if path.suffix != ".py":
            return cuda(path, **settings)  # type: ignore[arg-type]
        return cuda(text_in(path, self.kernel, self.literal, self.values), name=path.name, **settings)  # type: ignore[arg-type]


def text_in(path: Path, kernel: str, number: int, values: Mapping[str, object] | None) -> str:
    """The CUDA C++ in a Python file that defines the kernel, with the values put in, on the lines that it has there."""
    found = [
        one
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and "__global__" in one.value and f"{kernel}(" in one.value
    ]
    if number >= len(found):
        raise MemlaneError(f"{path} has {len(found)} texts with the kernel {kernel}, not {number + 1}")
    chosen = sorted(found, key=lambda one: one.lineno)[number]
    text = str(chosen.value)
    return "\n" * (chosen.lineno - 1) + (text % values if values else text)
