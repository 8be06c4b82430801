"""Make modules from the PTX of kernels written in Python, with source files under their display names and their texts attached."""

from __future__ import annotations

import linecache
import os
from dataclasses import replace
from pathlib import Path

from memlane.compile import sources
from memlane.ptx import Convention, Function, Module, parse


def module_of(ptx: str, name: str, convention: Convention) -> Module:
    """Return the module of one kernel, called as `convention` says. `name` is the file that the kernel was written in.

    A compiler's line table holds absolute paths; a file below the working directory is shown by its relative path, as files of CUDA C++
    are. Source texts come from Python's `linecache`, as for tracebacks, so notebook cells are found too. Triton caches compiled code by the
    function's text alone, so its line table may give an outdated path: a folder renamed since, or an earlier cell of the notebook.
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
