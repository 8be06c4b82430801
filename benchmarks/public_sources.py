"""The kernels of others that `explain_public` speaks of, as they are published, in a folder outside this project:

    git clone https://github.com/NVIDIA/cuda-samples
    git clone https://github.com/yuhc/gpu-rodinia
    git clone https://github.com/karpathy/llm.c
    git clone https://github.com/triton-lang/triton

each checked out at the commit that `COMMITS` names: `git -C triton checkout 8e96b71b`, and so on. A clone at another commit is refused,
because the labels were given for the one.
"""

from __future__ import annotations

import ast
import importlib.util
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
COMMITS: Mapping[str, str] = {
    SAMPLES: "c94ff366aed18c797b8a85dfaac7817b0228b420",
    RODINIA: "9c10d3ea16ddba2ba057cc3951a9efc4c2cc18a4",
    LLM: "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
    TRITON: "8e96b71b1b47a5d09f1cfb1826a16178f58dbef0",
}
"""Folder of a clone -> its commit."""
LABELS_FILE = Path(__file__).parent / "public_labels.toml"
NOTHING = "nothing"
_IMPORTS = ("triton", "triton.language", "triton.language.extra")
"""What kernels of Triton need."""


@dataclass(frozen=True)
class Label:
    """What a reader of a kernel expects to be the first finding."""

    accepted: tuple[str, ...]
    """Ids of findings, the likeliest first; `NOTHING` stands for none."""
    why: str

    @property
    def first(self) -> str:
        return self.accepted[0]


@cache
def labels() -> Mapping[str, Label]:
    """By the name of a case, `<clone>: <kernel>`."""
    tables = tomllib.loads(LABELS_FILE.read_text(encoding="utf-8"))
    return {
        f"{source}: {kernel}": Label(tuple(said.split(" or ")), why)
        for source, table in tables.items()
        for kernel, (said, why) in table.items()
    }


def held_out(name: str) -> bool:
    """Whether a case is one of the third for which no rule is changed."""
    return int(sha256(name.encode()).hexdigest(), 16) % 3 == 0


def check_commits(folder: Path) -> None:
    """Raise MemlaneError if a clone in the folder is not at the commit that was labelled; one that is not there is left alone."""
    for name, commit in COMMITS.items():
        if (folder / name / ".git").exists():
            found = subprocess.run(["git", "-C", str(folder / name), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
            if found != commit:
                raise MemlaneError(
                    f"{folder / name} is at commit {found[:12]}; the labels are for {commit[:12]}: git -C {folder / name} checkout {commit}"
                )


def kernels_of(path: Path, into: Path) -> ModuleType:
    """The Triton kernels of a Python file as a module, without what their file does besides: they need neither PyTorch nor a GPU.

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
    """The decorator without what it says of a launch; other lines as they are."""
    return "@triton.jit" if line.startswith("@triton.jit(") else line
