"""Describe a launch of a kernel of others, and make a module of its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp

from explain_cases import Arguments
from public_sources import kernels_of

from memlane.compile import cuda, triton
from memlane.launch import KernelCall, Target
from memlane.launch.kernel_names import find_kernel
from memlane.ptx import Function, Module


@dataclass(frozen=True)
class Public:
    """One launch of a kernel of somebody else's."""

    source: str
    """The folder of the clone."""
    file: str
    kernel: str
    """Name of the kernel as in its launch, with its template arguments."""
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Arguments
    shared_bytes: int = 0
    include: Sequence[str] = field(default=())
    """Folders of the clone to search for headers."""
    instantiate: bool = False
    """True if the kernel is a template that the file itself does not launch."""
    define: Sequence[str] = field(default=())
    title: str = ""
    """Name in the labels, if it differs from that in the launch."""

    @property
    def name(self) -> str:
        return f"{self.source}: {self.title or self.kernel}"

    def module(self, folder: Path) -> Module:
        """Return the compiled file; `folder` holds the clones. Raises CompileError."""
        root = folder / self.source
        wanted = (self.kernel,) if self.instantiate else ()
        return cuda(root / self.file, include=[root / one for one in self.include], instantiate=wanted, define=self.define)

    def call(self, target: Target, folder: Path) -> KernelCall:
        """Return the kernel on a target, to be launched."""
        return target.load(alone(self.module(folder), self.kernel))[self.kernel][self.grid, self.block, None, self.shared_bytes]


@dataclass(frozen=True)
class PublicTriton(Public):
    """One launch of a Triton kernel of somebody else's; the block follows from `num_warps`."""

    signature: str = ""
    constexprs: Mapping[str, object] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3

    def module(self, folder: Path) -> Module:
        kernels = kernels_of(folder / self.source / self.file, Path(mkdtemp()))
        function: Callable[..., object] = getattr(kernels, self.kernel)
        return triton(function, self.signature, self.constexprs, num_warps=self.num_warps, num_stages=self.num_stages)

    def call(self, target: Target, folder: Path) -> KernelCall:
        return target.load(self.module(folder))[self.kernel][self.grid,]


def alone(module: Module, kernel: str) -> Module:
    """Return the module without the other kernels of its file; there may be hundreds, and each of them would get probes."""
    found = find_kernel(module, kernel)
    return replace(module, items=tuple(one for one in module.items if one is found or not (isinstance(one, Function) and one.is_entry)))
