"""Keep the result of a lab with those of the benchmarks: `python benchmarks/keep.py OUT/result.json`.

It goes to `<chip>/<lab>.json` below `MEMLANE_RESULTS`, or below `benchmarks/results`, as it says itself. Refuses what a test would refuse.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from harness import RESULTS, problems


def keep(result: Path, results: Path) -> Path:
    """Where the result is kept below `results`. SystemExit if it does not fit the schema."""
    document = json.loads(result.read_text(encoding="utf-8"))
    if found := problems(document):
        raise SystemExit(f"{result}: {'; '.join(found)}")
    kept = results / document["chip"] / f"{document['benchmark']}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(result, kept)
    return kept


if __name__ == "__main__":
    print(f"Wrote {keep(Path(sys.argv[1]), Path(os.environ.get('MEMLANE_RESULTS', RESULTS)))}")
