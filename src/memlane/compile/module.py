"""Compile CUDA C++ to a Module."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memlane.compile import shipped
from memlane.compile.frontend import CompiledPtx, cuda_to_ptx, is_path
from memlane.errors import CompileError, MissingDependency
from memlane.ptx import Module, parse

_LOG = logging.getLogger(__name__)


def cuda(
    path_or_source: str | os.PathLike[str],
    *,
    name: str | None = None,
    arch: str = "sm_90",
    std: str = "c++17",
    include: Sequence[str | os.PathLike[str]] = (),
    define: Sequence[str] = (),
    instantiate: Sequence[str] = (),
    lineinfo: bool = True,
    options: Sequence[str] = (),
    relocatable: bool = False,
) -> Module:
    """Compile CUDA C++ to a module, without a GPU or a driver. Host code in the file is left out.

    module = ml.cuda("transpose.cu", define=["TILE=32"], instantiate=["reduce<float, 256>"])

    `path_or_source` is a path that ends in .cu, .cuh, .h or .hpp, or the text of a program; `name` is the program's name in messages and in
    the line table. `arch` is the architecture, `std` the language standard, `include` lists header directories, and `define` macros as
    `NAME` or `NAME=VALUE`. `instantiate` names template kernels with their arguments, `"reduce<float, 256>"`; kernels that the file itself
    launches with arguments known at file scope are instantiated without it. `options` are passed to NVRTC unchanged. `relocatable` keeps
    what other modules may use, for `ml.link`; the file then needs no kernel.

    If the compiler is not installed, PTX kept beside the file (see `memlane.compile.shipped`) is used, provided that it was made from
    exactly this source.

    Raises CompileError with the compiler's log, whose line numbers are those of the file, and MissingDependency. Omissions other than host
    code are logged at level INFO.
    """
    recipe = Recipe(
        path_or_source, name, arch, std, tuple(include), tuple(define), tuple(instantiate), lineinfo, tuple(options), relocatable
    )
    try:
        compiled = recipe.compiled()
    except MissingDependency:
        plain = std == "c++17" and lineinfo and not (include or define or instantiate or options or relocatable)
        found = shipped.find(Path(path_or_source), arch, name) if plain and is_path(path_or_source) else None
        if found is None:
            raise
        compiled = found
    for note in compiled.notes:
        _LOG.info("%s", note)
    return _module(compiled, recipe)


@dataclass(frozen=True)
class Recipe:
    """The arguments of `cuda` that a program was compiled with."""

    path_or_source: str | os.PathLike[str]
    name: str | None
    arch: str
    std: str
    include: tuple[str | os.PathLike[str], ...]
    define: tuple[str, ...]
    instantiate: tuple[str, ...]
    lineinfo: bool
    options: tuple[str, ...]
    relocatable: bool = False

    def compiled(self, text: str | None = None) -> CompiledPtx:
        """Compile the program, or another `text` in its place. Raises what `cuda_to_ptx` raises."""
        return cuda_to_ptx(
            self.path_or_source,
            name=self.name,
            arch=self.arch,
            std=self.std,
            include=self.include,
            define=self.define,
            instantiate=self.instantiate,
            lineinfo=self.lineinfo,
            options=self.options,
            relocatable=self.relocatable,
            text=text,
        )


def recompiled(module: Module, text: str) -> Module:
    """Return the module that results from compiling another text in place of its main file.

    Raises CompileError for a module that was not compiled from CUDA C++ here, and what `cuda` raises.
    """
    if not isinstance(module.recipe, Recipe):
        raise CompileError(f"{module.name} was not compiled from CUDA C++ by memlane, so it cannot be compiled again")
    return _module(module.recipe.compiled(text), module.recipe)


def _module(compiled: CompiledPtx, recipe: Recipe) -> Module:
    main = next(iter(compiled.sources))
    # Line numbers in the PTX are not those of the source, so errors that cite PTX lines need a name other than the file's.
    module = parse(compiled.text, f"{main} (PTX)")
    return replace(
        module,
        name=main,
        sources=_by_ptx_name(compiled.sources, module),
        aliases=dict(compiled.instantiated),
        recipe=recipe,
        left_out=compiled.left_out,
    )


def _by_ptx_name(sources: Mapping[str, str], module: Module) -> dict[str, str]:
    """Return the texts by their file names in the PTX; NVRTC makes a name with non-ASCII characters an absolute path."""
    named = {Path(name).absolute(): name for name in module.files.values() if name not in sources}
    return {named.get(Path(name).absolute(), name): text for name, text in sources.items()}
