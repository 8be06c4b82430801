"""Keep PTX beside its source, so that a machine without the CUDA packages can use it.

The PTX of `examples/transpose.cu` is in `examples/ptx/transpose.ptx`. Its first line identifies the source by its hash; PTX of another
version of the source is never used.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from memlane.compile import frontend, sources
from memlane.ptx import demangle


def path_beside(source: Path) -> Path:
    """Return the path of the PTX for a source file."""
    return source.parent / "ptx" / f"{source.stem}.ptx"


def make(source: Path, arch: str = "sm_90") -> str:
    """Compile a source file without headers of its author, and return the PTX text to keep beside it. Raises as `cuda_to_ptx` does."""
    compiled = frontend.cuda_to_ptx(source, name=source.name, arch=arch)
    return f"{_first_line(source.name, compiled.sources[source.name], arch)}\n{compiled.text.lstrip()}"


def find(source: Path, arch: str, name: str | None = None) -> frontend.CompiledPtx | None:
    """Return the PTX beside a source file; None if there is none, or if it was made from another source or for another architecture."""
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
