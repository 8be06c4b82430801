"""What a command runs: a script that launches kernels itself, or one kernel of a .cu or .ptx file."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memlane.cli.specs import ArgumentSpec, parse_argument, parse_extent
from memlane.compile import cuda
from memlane.errors import CommandError
from memlane.launch import Observer, Target, observing
from memlane.ptx import Module, parse
from memlane.targets import override, target

SOURCE_SUFFIXES = (".cu", ".cuh", ".ptx")


@dataclass(frozen=True)
class CompileOptions:
    """How a .cu file is compiled."""

    define: Sequence[str] = ()
    include: Sequence[Path] = ()
    std: str = "c++17"
    arch: str = ""
    instantiate: Sequence[str] = ()


@dataclass(frozen=True)
class LaunchOptions:
    """The one launch that a .cu or .ptx file gets."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[ArgumentSpec, ...]
    shared_bytes: int

    @classmethod
    def parse(cls, kernel: str, grid: str, block: str, arguments: Sequence[str], shared_bytes: int) -> LaunchOptions:
        return cls(
            kernel, parse_extent("--grid", grid), parse_extent("--block", block), tuple(map(parse_argument, arguments)), shared_bytes
        )


def load_source(path: Path, options: CompileOptions, default_arch: str) -> Module:
    """The module in a .cu or .ptx file."""
    if not path.exists():
        raise CommandError(f"no file {path}")
    if path.suffix == ".ptx":
        return parse(path.read_text(), str(path))
    return cuda(
        path,
        arch=options.arch or default_arch,
        std=options.std,
        include=tuple(map(str, options.include)),
        define=tuple(options.define),
        instantiate=tuple(options.instantiate),
    )


def arch_of(target: Target) -> str:
    """The architecture to compile for: `sm_90` for compute capability 9.0."""
    major, minor = target.chip.compute_capability
    return f"sm_{major}{minor}"


def run_kernel(path: Path, compile_options: CompileOptions, options: LaunchOptions, target_name: str, observer: Observer) -> None:
    """Launch the one kernel of a .cu or .ptx file under `observer`."""
    where = target(target_name or None)
    loaded = where.load(load_source(path, compile_options, arch_of(where)))
    if not options.kernel and len(loaded) > 1:
        raise CommandError(
            f"{path} has several kernels: {', '.join(k.title for k in loaded.module.kernels.values())}; choose one with --kernel"
        )
    kernel = loaded[options.kernel or next(iter(loaded), "")]
    values = [spec.on(where) for spec in options.arguments]
    with observing(observer):
        kernel[options.grid, options.block, None, options.shared_bytes](*values)
        where.sync()


def run_script(path: Path, arguments: Sequence[str], target_name: str, observer: Observer) -> None:
    """Run a Python script as `python path arguments...` would, with every launch under `observer`."""
    if not path.exists():
        raise CommandError(f"no file {path}")
    argv, search = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with override(target_name or None), observing(observer):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise CommandError(
                f"{path} stopped with exit code {stop.code}", exit_code=stop.code if isinstance(stop.code, int) else 1
            ) from None
    finally:
        sys.argv, sys.path[:] = argv, search
