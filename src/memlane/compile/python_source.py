"""What the front ends for kernels written in Python share: their PTX with its files named as people call them, and the texts of those."""

from __future__ import annotations

import linecache
import os
from dataclasses import replace
from pathlib import Path

from memlane.compile import sources
from memlane.ptx import Convention, Function, Module, parse


def module_of(ptx: str, name: str, convention: Convention) -> Module:
    """The module of one kernel, called as `convention` says. `name` is the file that the kernel was written in.

    The line table of a compiler holds absolute paths; here a file below the working directory is called by its path from there, as the
    files of CUDA C++ are. Texts come from where Python finds them for tracebacks, so that those of a notebook are found too.
    Triton keeps what it compiled by the text of a function alone, so its line table may say where the file was then: in a folder that was
    renamed since, or among the cells of an earlier kernel of the notebook.
    """
    texts: dict[str, str] = {}
    is_moved = name not in sources.file_names(ptx)

    def shown(path: str) -> str:
        if is_moved and os.path.basename(path) == os.path.basename(name):
            path = name
        display = _display(path)
        if text := "".join(linecache.getlines(path)):
            texts[display] = text
        return display

    module = parse(sources.with_file_names(ptx, shown), f"PTX of {_display(name)}")
    items = tuple(replace(item, convention=convention) if isinstance(item, Function) and item.is_entry else item for item in module.items)
    return replace(module, name=_display(name), items=items, sources=texts)


def _display(name: str) -> str:
    return sources.display(Path(name)) if os.path.isabs(name) else name
