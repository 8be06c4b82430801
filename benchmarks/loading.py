"""How many of the `.cu` files of public repositories load, how many of their kernels can the emulator run, and why do the others not load?

    git clone https://github.com/NVIDIA/cuda-samples && git -C cuda-samples checkout c94ff366aed18c797b8a85dfaac7817b0228b420
    git clone https://github.com/yuhc/gpu-rodinia && git -C gpu-rodinia checkout 9c10d3ea16ddba2ba057cc3951a9efc4c2cc18a4
    git clone https://github.com/karpathy/llm.c && git -C llm.c checkout f1e2ace651495b74ae22d45d1723443fd00ecd3a
    git clone https://github.com/brucefan1983/CUDA-Programming && git -C CUDA-Programming checkout 8b6c96ba30fafeb3f71c74b2abb18a6bf849822d
    git clone https://github.com/NVIDIA-developer-blog/code-samples && git -C code-samples checkout 72d62ec464442786a36754508bcb1094d197d6a5
    python -m pip install --no-deps --target wheels nvidia-curand
    python benchmarks/loading.py cuda-samples gpu-rodinia llm.c CUDA-Programming code-samples -I wheels/nvidia/cu13/include

Each file is compiled to a module in a process of its own, with `Common` and the file's own folders to search for headers; where a header
is not found and the message names a directory that has it, that is given with -I, as a user would; and with -I of this program those of
wheels that some samples need (cuRAND's headers are in none that memlane itself needs). The module is loaded on an emulated
H200, which verifies it, and each of its kernels is lowered, which refuses what the emulator does not model.

A file that does not load is put down to the first of these that its error names: its kernels launch kernels; it includes templates of
kernels that another file launches; it uses texture references, which CUDA 12 has ended; it uses functions of before sm_70 (`__shfl`),
which nvcc refuses too; it needs a header that neither CUDA's wheels nor the clone have (cuDLA, DirectX); it is a piece of another file and
no program by itself; or it has no kernel of its own (those that a library launches are none).

Prediction: nothing is left over, and of the kernels that compile the emulator runs 99 of 100 or more. At commit 1e50dac 131 of the 175
files of cuda-samples loaded, with 317 kernels.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import Row, write

from memlane.compile import cuda
from memlane.emulate.layers import layers_for
from memlane.emulate.lower.kernel import lowered
from memlane.errors import MemlaneError
from memlane.launch import Layers
from memlane.targets import target

SOURCES = ["src/memlane/compile", "src/memlane/ptx", "src/memlane/emulate/lower", "src/memlane/emulate/semantics", "benchmarks/loading.py"]
REASONS = {
    "kernels that launch kernels": ("(dynamic parallelism)",),
    "launches in another file": (" has no kernel of its own, and no launch was found ",),
    "texture references": (" is a texture or surface reference,",),
    "functions that CUDA has ended": (": CUDA has ended `",),
    "a header that is not there": (" was not found; ", "Header not found: "),
    "a piece of another file": (" is included by ",),
    "no kernel of its own": (" has no kernel; ",),
}
"""Why a file does not load, and what its error then contains."""
OTHER = "another reason"
_NAMED = re.compile(r"name its directory with -I (\S+) \(include=\['")
_MOST_DIRECTORIES = 5
"""Largest number of directories that are added because a message names them."""


@dataclass(frozen=True)
class Loaded:
    """The outcome of loading one file."""

    reason: str = ""
    """Why it does not load; empty if it does."""
    kernels: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    """Kernels that the emulator does not run, and why."""
    error: str = ""


def load(path: Path, include: list[Path]) -> Loaded:
    """Compile, load and lower a file."""
    text = ""
    for _ in range(_MOST_DIRECTORIES):
        try:
            return _run(path, include)
        except MemlaneError as error:
            text = str(error)
        named = [Path(found) for found in _NAMED.findall(text) if Path(found) not in include]
        if not named:
            break
        include = [*include, *named]
    return Loaded(next((reason for reason, signs in REASONS.items() if any(sign in text for sign in signs)), OTHER), error=text)


def _run(path: Path, include: list[Path]) -> Loaded:
    module = cuda(path, include=include)
    emulator, refused = target("emulator:h200"), {}
    emulator.load(module)
    for kernel in module.kernels.values():
        try:
            lowered(module, kernel, layers_for(Layers(), module, kernel), emulator.chip)
        except MemlaneError as error:
            refused[kernel.title] = str(error).partition("\n")[0].rpartition(": ")[2]
    return Loaded(kernels=len(module.kernels), refused=refused)


def folders(clone: Path, path: Path) -> list[Path]:
    """Return the folders that are searched for headers first: `Common`, the file's folder, and folders of headers in it or next to it."""
    own = [path.parent, *(path.parent / name for name in ("inc", "include", "../inc", "../include"))]
    return [folder for folder in (clone / "Common", *own) if folder.is_dir()]


def loaded(clone: Path, path: Path, limit_s: float, include: Sequence[Path] = ()) -> Loaded:
    """Load a file like `load`, in a process of its own that may take `limit_s` seconds; headers are searched in `include` last."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(load, (path, [*folders(clone, path), *include])).get(limit_s)
        except multiprocessing.TimeoutError:
            return Loaded(OTHER, error=f"more than {limit_s:.0f} s")


def rows_of(name: str, found: Mapping[Path, Loaded], commit: str = "") -> list[Row]:
    """Return the rows of one clone, whose files are named by their paths in it."""
    kernels = sum(one.kernels for one in found.values())
    refused = [f"{path.stem}: {title.partition('(')[0]} ({why})" for path, one in found.items() for title, why in one.refused.items()]
    share = (kernels - len(refused)) / kernels if kernels else None
    rows = [
        Row(name, "files", len(found), "files", note=commit),
        Row(name, "files that load", sum(not one.reason for one in found.values()), "files"),
        Row(name, "kernels that load", kernels, "kernels"),
        Row(name, "kernels that the emulator runs", share, "share", 0.99, better="higher", note="; ".join(refused)),
    ]
    for reason in (*REASONS, OTHER):
        names = [path.stem for path, one in found.items() if one.reason == reason]
        reach = 0.0 if reason == OTHER else None
        rows.append(Row(name, f"files that do not: {reason}", len(names), "files", reach, note=", ".join(names)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clones", type=Path, nargs="+", help="clones of repositories")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one file may take")
    parser.add_argument("--errors", type=Path, help="a file for the errors of all files that do not load")
    parser.add_argument("-I", dest="include", type=Path, action="append", default=[], help="a directory of headers that some files need")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for clone in arguments.clones:
        found: dict[Path, Loaded] = {}
        for path in sorted(clone.rglob("*.cu")):
            found[path.relative_to(clone)] = one = loaded(clone, path, arguments.limit, arguments.include)
            if one.error and arguments.errors:
                with arguments.errors.open("a") as log:
                    log.write(f"== {path}: {one.reason}\n{one.error}\n\n")
        head = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        rows += rows_of(clone.name, found, head)
    write("loading", rows, chip="cpu")


if __name__ == "__main__":
    main()
