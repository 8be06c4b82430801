"""Name the committed results that are older than the code they measured. Exit code 1 if there are any.

Each benchmark script, and each lab, lists in `SOURCES` the paths that it measures; a result is stale when one of them changed after the
result's commit.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def sources_of(script: Path) -> list[str]:
    """The `SOURCES` of a benchmark script, read without running it."""
    for node in ast.parse(script.read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "SOURCES" for t in node.targets):
            return [str(value) for value in ast.literal_eval(node.value)]
    return []


def measured_by(name: str) -> list[str]:
    """What the benchmark or the lab of that name measures; everything if there is neither. A lab that has the name of a benchmark is called
    `lab_NAME`."""
    scripts = (ROOT / "benchmarks" / f"{name}.py", ROOT / "src" / "memlane" / "lab" / name.removeprefix("lab_") / "lab.py")
    return next((sources_of(script) for script in scripts if script.exists()), ["src"])


def changed_since(commit: str, paths: list[str]) -> list[str]:
    """Files under `paths` that differ between `commit` and HEAD."""
    result = subprocess.run(["git", "diff", "--name-only", commit, "HEAD", "--", *paths], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.split() if result.returncode == 0 else [f"(commit {commit[:12]} is unknown)"]


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
