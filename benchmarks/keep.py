"""Keep the result of a lab with those of the benchmarks: `python benchmarks/keep.py OUT/result.json [TABLE...]`.

It goes to `<chip>/<lab>.json` below `MEMLANE_RESULTS`, or below `benchmarks/results`, as it says itself, or to `<chip>/lab_<lab>.json` if a
benchmark has the name of the lab; the CSV files of the tables named, from which figures are drawn, to `<chip>/<lab>/`. Refuses what a test
would refuse.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import RESULTS, ROOT, problems


def keep(result: Path, results: Path, tables: Sequence[str] = ()) -> Path:
    """Store the result below `results`, and return the path. SystemExit if it does not fit the schema, or a table is not there."""
    document = json.loads(result.read_text(encoding="utf-8"))
    if found := problems(document):
        raise SystemExit(f"{result}: {'; '.join(found)}")
    if (ROOT / "benchmarks" / f"{document['benchmark']}.py").exists():  # a benchmark of that name has another result
        document["benchmark"] = f"lab_{document['benchmark']}"
    kept = results / document["chip"] / f"{document['benchmark']}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    for table in tables:
        source = result.with_name(f"{table}.csv")
        if not source.exists():
            raise SystemExit(f"{result.parent} has no {source.name}")
        kept.with_suffix("").mkdir(exist_ok=True)
        shutil.copyfile(source, kept.with_suffix("") / source.name)
    kept.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return kept


if __name__ == "__main__":
    print(f"Wrote {keep(Path(sys.argv[1]), Path(os.environ.get('MEMLANE_RESULTS', RESULTS)), sys.argv[2:])}")
