"""Link source files, PTX and assembled code into one module, as nvcc links objects compiled with `-rdc=true`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memlane.compile.assembler import object_kind
from memlane.compile.cubin import defined_names
from memlane.compile.frontend import SOURCE_SUFFIXES
from memlane.compile.module import cuda
from memlane.errors import LinkError
from memlane.ptx import Module, demangle, link_modules, parse


def link(
    *parts: Module | str | os.PathLike[str],
    arch: str = "sm_90",
    std: str = "c++17",
    include: Sequence[str | os.PathLike[str]] = (),
    define: Sequence[str] = (),
    instantiate: Sequence[str] = (),
    lineinfo: bool = True,
    options: Sequence[str] = (),
) -> Module:
    """Link modules and files into one module, and resolve their `extern __device__` functions and variables.

    module = ml.link("main.cu", "physics.cu", "tables.ptx", include=["inc"])

    Each part is a Module or a file path. A .cu, .cuh, .h or .hpp file is compiled as relocatable code, with the same keywords as `ml.cuda`;
    a .ptx file is parsed. Assembled code (a .cubin, .fatbin, .o or .a file made by nvcc with `-rdc=true`) is passed to the linker on a GPU:
    its functions can be called there, but neither traced nor emulated. Compile a module to be linked with `ml.cuda(..., relocatable=True)`.

    Raises LinkError for a name that is defined twice, declared differently by two parts, or used but not defined, for parts of different
    architectures, and for a file of any other type; CompileError and MissingDependency as `ml.cuda` does; and PtxSyntaxError for a .ptx
    file.
    """
    modules: list[Module] = []
    objects: list[tuple[str, bytes]] = []
    for part in parts:
        if isinstance(part, Module):
            modules.append(replace(part, objects=()))
            objects += part.objects
        elif (path := Path(part)).suffix in SOURCE_SUFFIXES:
            modules.append(
                cuda(
                    path,
                    arch=arch,
                    std=std,
                    include=include,
                    define=define,
                    instantiate=instantiate,
                    lineinfo=lineinfo,
                    options=options,
                    relocatable=True,
                )
            )
        else:
            data = _bytes(path)
            if path.suffix == ".ptx":
                modules.append(_parsed(path, data))
            elif object_kind(data):
                objects.append((str(path), data))
            else:
                raise LinkError(f"{path} is neither CUDA C++ (.cu), nor PTX (.ptx), nor assembled code (.cubin, .fatbin, .o, .a)")
    if not modules:
        raise LinkError("there is nothing to link that memlane can run: name at least one .cu or .ptx file, or a module")
    whole = link_modules(modules, elsewhere=bool(objects))
    _check_objects(whole, objects)
    return replace(whole, objects=tuple(objects))


def _check_objects(module: Module, objects: Sequence[tuple[str, bytes]]) -> None:
    """Raise LinkError for a name that a cubin defines again; nvJitLink 13.0 only prints that to standard error, and uses either."""
    defined = {name: module.name for name in (*module.functions, *module.variables) if _is_strong(module, name)}
    for file, data in objects:
        for name in sorted(defined_names(data)) if object_kind(data) == "CUBIN" else ():
            if name in defined:
                raise LinkError(f"`{demangle(name)}` is defined in {defined[name]} and again in {file}; keep one definition")
            defined[name] = file


def _is_strong(module: Module, name: str) -> bool:
    """Return whether a module defines a function or variable with external (`.visible`), non-weak linkage."""
    item = module.functions.get(name) or module.variables[name]
    return "visible" in item.linkage and "weak" not in item.linkage


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as cause:
        raise LinkError(f"cannot read {path}: {cause.strerror}") from cause


def _parsed(path: Path, data: bytes) -> Module:
    try:
        return ptx_module(data.decode(), str(path))
    except UnicodeDecodeError:
        raise LinkError(f"{path} is not text, so it is not PTX") from None


def ptx_module(text: str, name: str) -> Module:
    """Parse the text of a .ptx file into a module. Without line information, the PTX itself becomes the source text of the module."""
    module = parse(text, name)
    return module if module.files else replace(module, sources={module.name: text})
