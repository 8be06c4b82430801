"""Make modules from the PTX of kernels written in Python, with source files under their display names and their texts attached."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from memlane.compile import sources
from memlane.ptx import Convention, Function, Module, parse


def module_of(ptx: str, name: str, convention: Convention, others: Collection[str] = ()) -> Module:
    """Return the module of one kernel, called as `convention` says. `name` is the file that the kernel was written in.

    A compiler's line table holds absolute paths; a file below the working directory is shown by its relative path, as files of CUDA C++
    are. Source texts come from Python's `linecache`, as for tracebacks, so notebook cells are found too. Triton caches compiled code by the
    function's text and first line alone, so its line table may name another file: one in a folder renamed since, an earlier cell of the
    notebook, or a script of which the file is a copy. `others`: files of functions that the kernel may call.
    """
    texts: dict[str, str] = {}
    moved = _moved_files(ptx, name, others)

    def shown(path: str) -> str:
        path = moved.get(path, path)
        display = _display(path)
        if text := "".join(linecache.getlines(path)):
            texts[display] = text
        return display

    module = parse(sources.with_file_names(ptx, shown), f"PTX of {_display(name)}")
    items = tuple(replace(item, convention=convention) if isinstance(item, Function) and item.is_entry else item for item in module.items)
    return replace(module, name=_display(name), items=items, sources=texts)


def _moved_files(ptx: str, name: str, others: Collection[str]) -> dict[str, str]:
    """Map the files in the line table that the program does not use to the files of the same code that it does use."""
    named = sources.file_names(ptx)
    moved = {sources.first_located_file(ptx): name} if name not in named else {}
    unknown = named - {name, *others, *moved}
    unknown -= {getattr(one, "__file__", None) or "" for one in tuple(sys.modules.values())} if unknown else set()
    for path in unknown:
        same = [one for one in {name, *others} - named if os.path.basename(one) == os.path.basename(path)]
        moved |= {path: same[0]} if len(same) == 1 else {}
    return moved


def _display(name: str) -> str:
    return sources.display(Path(name)) if os.path.isabs(name) else name
