"""Run nvdisasm, from the wheel `nvidia-cuda-nvdisasm` or else from the PATH."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

from memlane.errors import CompileError, MissingDependency
from memlane.sass.listing import parse_listing
from memlane.sass.program import Program

_WHEEL = "nvidia-cuda-nvdisasm"
_TOOL = "nvdisasm"
_LISTING = ("-c", "-hex", "-gi", "-gp")
_INDIRECT = re.compile(r"\b(?:BRXU?|JMXU?)\b")


def disassemble(cubin: bytes) -> Program:
    """Return the instructions of a cubin, with the lines of its source and of its PTX if it has them.

    Raises CompileError if nvdisasm rejects the cubin, and MissingDependency if there is no nvdisasm.
    """
    return _disassemble(bytes(cubin))


@lru_cache(maxsize=16)
def _disassemble(cubin: bytes) -> Program:
    # Branch analysis takes a fourth of the time and only adds the targets of indirect branches.
    listing = run_nvdisasm(cubin, (*_LISTING, "-ndf"))
    return parse_listing(run_nvdisasm(cubin, _LISTING) if _INDIRECT.search(listing) else listing)


def disassembler_version() -> str:
    """Return a text that identifies the nvdisasm in use: its path, size and modification time. Raises MissingDependency."""
    path = _tool()
    state = os.stat(path)
    return f"{path} {state.st_size} {state.st_mtime_ns}"


def run_nvdisasm(cubin: bytes, options: Sequence[str]) -> str:
    """Return the output of nvdisasm for a cubin."""
    try:
        with tempfile.TemporaryDirectory(prefix="memlane-") as directory:
            file = Path(directory) / "code.cubin"
            file.write_bytes(cubin)
            done = subprocess.run([_tool(), *options, str(file)], capture_output=True, text=True, errors="replace")
    except OSError as cause:  # It does not start, or there is no room for its input.
        raise CompileError(f"nvdisasm cannot be run: {cause}") from None
    if done.returncode:
        raise CompileError("nvdisasm refuses the cubin", done.stderr.replace(str(file), "<cubin>"))
    return done.stdout


@cache
def _tool() -> str:
    """Return the path of nvdisasm. Raises MissingDependency."""
    found = _from_wheel() or shutil.which(_TOOL)
    if found is None:
        raise MissingDependency("reading assembled code")
    return found


def _from_wheel() -> str | None:
    try:
        files = importlib.metadata.files(_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.stem == _TOOL and file.suffix in ("", ".exe"):
            path = Path(str(file.locate()))
            return str(path) if path.is_file() else None
    return None
