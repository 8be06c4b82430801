"""CUDA C++ to a Module."""

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

    `path_or_source` is a path that ends in .cu, .cuh, .h or .hpp, or the text of a program; `name` is how it is called in messages and in
    the line table. `arch` is the architecture, `std` the language, `include` directories of headers, `define` macros as `NAME` or
    `NAME=VALUE`. `instantiate` names template kernels with their arguments, `"reduce<float, 256>"`; what the file itself launches with
    arguments known at file scope is there already. `options` go to NVRTC as they are.
    `relocatable` keeps what other modules may use, for `ml.link`: then a file needs no kernel.

    Where the compiler is not installed, PTX that lies beside the file (see `memlane.compile.shipped`) is taken if it was made from
    exactly this source.

    Raises CompileError with the compiler's log, whose lines are those of the file, and MissingDependency. What was left out of the
    program beyond host code is logged as information.
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
    """How a program was compiled: the arguments of `cuda`."""

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
    """Return the module that the front end makes of another text of its main file.

    Raises CompileError for a module that was not compiled from CUDA C++ here, and what `cuda` raises.
    """
    if not isinstance(module.recipe, Recipe):
        raise CompileError(f"{module.name} was not compiled from CUDA C++ by memlane, so it cannot be compiled again")
    return _module(module.recipe.compiled(text), module.recipe)


def _module(compiled: CompiledPtx, recipe: Recipe) -> Module:
    main = next(iter(compiled.sources))
    # Places in the PTX are not places in the program: whoever names one by the text that it lies in must not take the file's name for it.
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
    """The texts by the names that the PTX has for them: of a name beyond ASCII NVRTC makes an absolute path."""
    named = {Path(name).absolute(): name for name in module.files.values() if name not in sources}
    return {named.get(Path(name).absolute(), name): text for name, text in sources.items()}
