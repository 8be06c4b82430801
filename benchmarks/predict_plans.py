"""How far are predicted plans from measured ones, where the times of their kernels are predicted, too?

The plans of `plans.py` (256 MiB up, a kernel on each chunk, and down, on three queues) are predicted as `ml.predict` does: copies by the
chip file, kernels by the model, without a GPU. Beside them stands what `plans.py` measured on one: the whole, and the kernel by itself.

Prediction (written before the first run): as far off as the kernel is where it is what the plan waits for, in many chunks, and a third of
that in one. The kernel is a loop that the assembler unrolls, which the model does not, so it is predicted too slow.

    python benchmarks/predict_plans.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
from harness import RESULTS, Row, show, store
from plans import CODE, Bench, chunked

from memlane.compile import cuda
from memlane.launch import LoadedModule
from memlane.measure import predict
from memlane.targets import BoundPlan, devices

SOURCES = [
    "src/memlane/emulate/clock",
    "src/memlane/model",
    "src/memlane/measure/prediction.py",
    "src/memlane/measure/plan_prediction.py",
    "src/memlane/chip",
    "benchmarks/predict_plans.py",
    "benchmarks/plans.py",
]
ELEMENTS, TURNS, CHUNKS = 1 << 26, 2000, (1, 2, 4, 8, 16, 64)
"""Sizes of the plans, as in `plans.prediction`."""
REACH = 0.25


def predicted_rows(name: str, elements: int, turns: int, chunks: tuple[int, ...]) -> list[Row]:
    """Return the plans predicted for a chip, without what was measured."""
    (target,) = devices(f"emulator:{name}", 1)
    kernels: LoadedModule = target.load(cuda(CODE, arch="sm_90"))
    bench = cast(Bench, SimpleNamespace(kernels=kernels))
    rows = []
    for count in chunks:
        plan = chunked(bench, elements, count, turns)
        bound = BoundPlan(plan, {"host": np.ones(elements, "f4")}, targets=[target], modules=[kernels])
        found = predict(bound, chip=name, run_kernels=False)
        kernel = found.launches[0].result
        assert kernel is not None
        peer = {"kernel us": kernel.us - kernel.launch_us}
        note = f"kernels limited by {kernel.limiting}, {kernel.share:.0%} of the blocks ran"
        rows.append(Row(f"upload, kernel, download in {count} chunks", "predicted time", round(found.us, 1), "us", peer=peer, note=note))
    return rows


def beside(rows: list[Row], path: Path) -> list[Row]:
    """Return a row with the error for each plan that was measured."""
    measured = {row["case"]: row["peer"] for row in json.loads(path.read_text())["rows"] if "measured us" in row["peer"]}
    found = []
    for row in rows:
        if row.case in measured and row.value:
            peer = {"measured us": measured[row.case]["measured us"], "measured kernel us": measured[row.case]["kernel us"], **row.peer}
            off = row.value / peer["measured us"] - 1
            found.append(Row(row.case, "error of the prediction", off, "", REACH, "lower", peer=peer, note=row.note))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chip", default="h200")
    parser.add_argument("--out", type=Path, help="directory of the result instead of benchmarks/results/emulator-<chip>")
    options = parser.parse_args()
    rows = predicted_rows(options.chip, ELEMENTS, TURNS, CHUNKS)
    rows += beside(rows, RESULTS / options.chip / "plans.json")
    store("predict_plans", rows, chip=f"emulator-{options.chip}", directory=options.out)
    show(rows)


if __name__ == "__main__":
    main()
