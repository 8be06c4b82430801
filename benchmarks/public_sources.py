"""Find the published kernels of others that `explain_public` judges, in a folder outside this project:

    git clone https://github.com/NVIDIA/cuda-samples
    git clone https://github.com/yuhc/gpu-rodinia
    git clone https://github.com/karpathy/llm.c
    git clone https://github.com/triton-lang/triton
    git clone https://github.com/cavazos-lab/PolyBench-ACC
    git clone https://github.com/vetter/shoc
    git clone https://github.com/deeperlearning/professional-cuda-c-programming
    git clone https://github.com/siboehm/SGEMM_CUDA
    git clone https://github.com/abduld/Parboil
    git clone https://github.com/PacktPublishing/Learn-CUDA-Programming
    git clone https://github.com/R100001/Programming-Massively-Parallel-Processors
    git clone https://github.com/linkedin/Liger-Kernel

each checked out at the commit that `COMMITS` names: `git -C triton checkout 8e96b71b`, and so on. A clone at another commit is refused,
because the labels were given for the one. For a machine without the clones, a few MiB of text are enough:

    python benchmarks/public_sources.py FOLDER INTO

copies what compilers read, and writes the commit of each clone beside it, into a file `COMMIT` that stands for its history.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from memlane.errors import MemlaneError

SAMPLES, RODINIA, LLM, TRITON = "cuda-samples", "gpu-rodinia", "llm.c", "triton"
POLYBENCH, SHOC, PROFESSIONAL = "PolyBench-ACC", "shoc", "professional-cuda-c-programming"
SGEMM, PARBOIL, LEARN = "SGEMM_CUDA", "Parboil", "Learn-CUDA-Programming"
MASSIVELY, LIGER = "Programming-Massively-Parallel-Processors", "Liger-Kernel"
COMMITS: Mapping[str, str] = {
    SAMPLES: "c94ff366aed18c797b8a85dfaac7817b0228b420",
    RODINIA: "9c10d3ea16ddba2ba057cc3951a9efc4c2cc18a4",
    LLM: "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
    TRITON: "8e96b71b1b47a5d09f1cfb1826a16178f58dbef0",
    POLYBENCH: "70ea4ca9047dc4ec9c3ca79b4c91b3b2cc1510e7",
    SHOC: "0aea03beba2f09fcb5935cc11737372fe4de9ec0",
    PROFESSIONAL: "ee58310bcdcec62a609f02b6c5193452d8102183",
    SGEMM: "60cba6f9b20a198116c76f18de8047f44df8c8b8",
    PARBOIL: "a4c63da28f45699e9a274cbc49af3e067162aa2b",
    LEARN: "10bd9b59bfcc680d608ea1417da5089f73d91b11",
    MASSIVELY: "a972fb50d5d8695844ab3d5621e3ec54c2388367",
    LIGER: "ead96b618e5c67bddc6a6e9bcb99bfe6b5ab661c",
}
"""Folder of a clone -> its commit."""
FIRST_SET, SECOND_SET, THIRD_SET = "first set", "second set", "third set"
LATER_SETS: Mapping[str, tuple[str, ...]] = {
    SECOND_SET: (POLYBENCH, SHOC, PROFESSIONAL),
    THIRD_SET: (SGEMM, PARBOIL, LEARN, MASSIVELY, LIGER),
}
"""Clones that were labelled when all rules for the sets before had been mended."""
LABELS_FILE = Path(__file__).parent / "public_labels.toml"
NOTHING = "nothing"
COMMIT_FILE = "COMMIT"
"""Name of the file that gives the commit in a copy of a clone without its history."""
_READ = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inc", ".inl", ".py"}
"""Endings of the files that a compiler may read."""
_IMPORTS = ("triton", "triton.language", "triton.language.extra")
"""Modules that Triton kernels import."""


@dataclass(frozen=True)
class Label:
    """The finding that a reader of a kernel expects first."""

    accepted: tuple[str, ...]
    """Ids of findings, the likeliest first; `NOTHING` stands for none."""
    why: str
    line: int = 0
    """Line of the first fault; 0 if the label does not give it, or there is none."""

    @property
    def first(self) -> str:
        return self.accepted[0]


@cache
def labels() -> Mapping[str, Label]:
    """Return the labels by the name of a case, `<clone>: <kernel>`."""
    tables = tomllib.loads(LABELS_FILE.read_text(encoding="utf-8"))
    return {
        f"{source}: {kernel}": Label(tuple(said.split(" or ")), why, *line)
        for source, table in tables.items()
        for kernel, (said, why, *line) in table.items()
    }


def held_out(name: str) -> bool:
    """Return whether a case is one of those for which no rule is changed: a third of the first clones, and all of the later sets."""
    return set_of(name) != FIRST_SET or int(sha256(name.encode()).hexdigest(), 16) % 3 == 0


def set_of(name: str) -> str:
    """Return which set the clone of a case is of."""
    clone = name.partition(": ")[0]
    return next((one for one, clones in LATER_SETS.items() if clone in clones), FIRST_SET)


def commit_of(clone: Path) -> str:
    """Return the commit of a clone, or of the copy that `pack` made of one; an empty text if it is neither."""
    if (clone / ".git").exists():
        return subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    return (clone / COMMIT_FILE).read_text(encoding="utf-8").strip() if (clone / COMMIT_FILE).exists() else ""


def check_commits(folder: Path) -> None:
    """Raise MemlaneError if a clone in the folder is not at the commit that was labelled; one that is not there is left alone."""
    for name, commit in COMMITS.items():
        clone = folder / name
        if clone.exists() and (found := commit_of(clone)) != commit:
            if not found:
                raise MemlaneError(f"{clone} is neither a clone nor a copy of one, so its commit is not known; delete it, and clone {name}")
            raise MemlaneError(f"{clone} is at commit {found[:12]}; the labels are for {commit[:12]}: git -C {clone} checkout {commit}")


def pack(folder: Path, into: Path) -> int:
    """Copy the files of the clones that a compiler may read, and return their bytes. Raises MemlaneError as `check_commits` does."""
    check_commits(folder)
    total = 0
    for name, commit in COMMITS.items():
        for path in sorted((folder / name).rglob("*")):
            if path.suffix in _READ and path.is_file() and not path.is_symlink():
                copy = into / name / path.relative_to(folder / name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                total += copy.stat().st_size
        if (into / name).exists():
            (into / name / COMMIT_FILE).write_text(f"{commit}\n", encoding="utf-8")
    return total


def kernels_of(path: Path, into: Path) -> ModuleType:
    """Return the Triton kernels of a Python file as a module, without what their file does besides: they need neither PyTorch nor a GPU.

    What is not an import of Triton or a kernel is blanked, so that lines stay as they are; `into` is a folder for the text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    kept: set[int] = set()
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node).replace(" import", "").split()[1] in _IMPORTS:
            kept |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(one) for one in node.decorator_list):
            kept |= {node.lineno - 1} | set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    text = "\n".join(_plain(line) if number in kept else "" for number, line in enumerate(lines, 1))
    file = into / f"kernels_{path.stem.replace('-', '_')}.py"
    file.write_text(f"{text}\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _plain(line: str) -> str:
    """Return the decorator without what it says of a launch; other lines as they are."""
    return "@triton.jit" if line.startswith("@triton.jit(") else line


def main() -> None:
    options = argparse.ArgumentParser(description="Copy what `explain_public` reads of the clones.")
    options.add_argument("folder", type=Path, help="where the clones are")
    options.add_argument("into", type=Path, help="a new folder")
    chosen = options.parse_args()
    print(f"{pack(chosen.folder, chosen.into) / 2**20:.1f} MiB in {chosen.into}")


if __name__ == "__main__":
    main()
