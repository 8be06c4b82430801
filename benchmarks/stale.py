"""Name the committed results that are older than the code they measured. Exit code 1 if there are any.

Each benchmark script, and each lab, lists in `SOURCES` the paths that it measures; a result is stale when one of them changed after the
result's commit. Docstrings, comments and the layout of Python code do not count.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def sources_of(script: Path) -> list[str]:
    """Return the `SOURCES` of a benchmark script, read without running it."""
    for node in ast.parse(script.read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "SOURCES" for t in node.targets):
            return [str(value) for value in ast.literal_eval(node.value)]
    return []


def measured_by(name: str) -> list[str]:
    """Return what a benchmark or lab measures; all of `src` where none has that name. A lab with the name of a benchmark is called
    `lab_NAME`."""
    scripts = (ROOT / "benchmarks" / f"{name}.py", ROOT / "src" / "memlane" / "lab" / name.removeprefix("lab_") / "lab.py")
    return next((sources_of(script) for script in scripts if script.exists()), ["src"])


def changed_since(commit: str, paths: list[str]) -> list[str]:
    """Return the files under `paths` whose code differs between `commit` and HEAD."""
    result = _git("diff", "--no-renames", "--name-only", commit, "HEAD", "--", *paths)
    if result.returncode:
        return [f"(commit {commit[:12]} is unknown)"]
    return [path for path in result.stdout.split() if not path.endswith(".py") or _code(commit, path) != _code("HEAD", path)]


@cache
def _code(commit: str, path: str) -> str | None:
    """Return the syntax tree of a Python file without docstrings; None where the commit does not have the file."""
    result = _git("show", f"{commit}:{path}")
    return None if result.returncode else without_docstrings(result.stdout)


def without_docstrings(text: str) -> str:
    """Return the syntax tree of Python code without the strings that stand alone."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _is_string(one)]
    return ast.dump(tree)


def _is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def main() -> int:
    stale = 0
    for path in sorted((ROOT / "benchmarks" / "results").glob("*/*.json")):
        document = json.loads(path.read_text())
        changed = changed_since(document["commit"], measured_by(document["benchmark"]))
        if changed:
            stale += 1
            print(f"{path.relative_to(ROOT)}: {len(changed)} files changed since {document['commit'][:12]}: {', '.join(changed[:4])}")
    if not stale:
        print("every result is as new as the code it measured")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
