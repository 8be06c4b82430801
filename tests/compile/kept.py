"""Cases compiled beforehand, for a machine with a GPU whose front ends are missing or do not fit its NumPy.

    python -m tests.compile.kept          writes build/kernels/*.pickle, to be carried there

What was made from other kernels or cases, or by another front end of memlane, than those of this checkout is not used.
"""

from __future__ import annotations

import hashlib
import pickle
from functools import cache
from importlib import import_module
from pathlib import Path

import memlane.compile
import memlane.ptx
from tests.compile.cases import Case

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "build" / "kernels"
KINDS = ("numba", "triton")


@cache
def _digest(kind: str) -> str:
    """Of the texts that decide what the cases of a front end are, and of which fields the objects in them have."""
    packages = (Path(package.__path__[0]) for package in (memlane.compile, memlane.ptx))
    files = (
        *(HERE / name for name in ("cases.py", f"{kind}_cases.py", f"{kind}_kernels.py")),
        *(one for at in packages for one in sorted(at.rglob("*.py"))),
    )
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def keep(kind: str, folder: Path = FOLDER) -> list[str]:
    """Compile all cases of a front end; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = import_module(f"tests.compile.{kind}_cases").CASES
    for name, build in cases.items():
        (folder / f"{kind}_{name}.pickle").write_bytes(pickle.dumps((_digest(kind), build())))
    return list(cases)


def kept(kind: str, name: str, folder: Path = FOLDER) -> Case | None:
    """A case that was compiled beforehand from the texts of this checkout; None if there is none."""
    path = folder / f"{kind}_{name}.pickle"
    if not path.is_file():
        return None
    digest, case = pickle.loads(path.read_bytes())
    return case if digest == _digest(kind) else None


if __name__ == "__main__":
    for one in KINDS:
        print(f"{one}: {' '.join(keep(one))}")
