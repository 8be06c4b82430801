"""PTX that is kept beside its source, so that a machine without the CUDA packages can use it.

`examples/transpose.cu` has its PTX in `examples/ptx/transpose.ptx`. The first line there says which source it was made from; PTX of
another version of the source is never taken.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from memlane.compile import frontend, sources
from memlane.ptx import demangle


def path_beside(source: Path) -> Path:
    """Where the PTX of a source file is kept."""
    return source.parent / "ptx" / f"{source.stem}.ptx"


def make(source: Path, arch: str = "sm_90") -> str:
    """Compiles a source file that includes no header of its author's; the text to keep beside it. Raises what `cuda_to_ptx` raises."""
    compiled = frontend.cuda_to_ptx(source, name=source.name, arch=arch)
    return f"{_first_line(source.name, compiled.sources[source.name], arch)}\n{compiled.text.lstrip()}"


def find(source: Path, arch: str, name: str | None = None) -> frontend.CompiledPtx | None:
    """The PTX beside a source file; None if there is none, or if it is not of this very source and architecture."""
    kept = path_beside(source)
    if not source.is_file() or not kept.is_file():
        return None
    text, ptx = sources.read(source), sources.read(kept)
    if ptx.partition("\n")[0] != _first_line(source.name, text, arch):
        return None
    name = name or sources.display(source)
    ptx = ptx.replace(f'"{source.name}"', f'"{name}"')
    return frontend.CompiledPtx(ptx, {name: text}, {kernel: demangle(kernel) for kernel in frontend.kernel_names(ptx)})


def _first_line(name: str, text: str, arch: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogateescape")).hexdigest()
    return f"// {name} for {arch}; sha256 of the source {digest}"
