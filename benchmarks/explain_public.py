"""Compare the findings of `memlane explain` in kernels of others with the labels that a reader gave before the tool saw any of them.

The kernels are NVIDIA's samples, Rodinia's, llm.c's and those of Triton's tutorials; as a second set, those of PolyBench-ACC, SHOC and a
textbook; and as a third, a series of matrix products, Parboil's, those of two more textbooks, and two of Liger. Their files are not part of
this project: `public_sources.py` says which commits to clone. Then name the folder of the clones:

    python benchmarks/explain_public.py FOLDER --target cuda:0

A file that is not there is a row that says so. Sizes are small enough for the emulator; on a GPU each kernel has a process of its own. A
kernel agrees if the first finding is one that its label names, or nothing where that is the label. A third of the first set is held out:
no rule was changed for one of these. Each later set was labelled when that was over for the sets before. The predictions stand with the
labels, in `public_labels.toml`; each disagreement is judged in `public_verdicts.py`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import numpy as np
from harness import Row
from public_kernel import Public
from public_llm import CASES as LLM_CASES
from public_rodinia import CASES as RODINIA_CASES
from public_samples import CASES as SAMPLE_CASES
from public_second import CASES as SECOND_CASES
from public_sources import FIRST_SET, LATER_SETS, NOTHING, check_commits, held_out, labels, set_of
from public_third import CASES as THIRD_CASES
from public_triton import CASES as TRITON_CASES
from public_verdicts import FIRST_RUNS
from running import measure, parser

from memlane.diagnose import Findings, explain
from memlane.launch import Target
from memlane.measure import trace
from memlane.targets import target as named

SOURCES = [
    "src/memlane/diagnose",
    "benchmarks/explain_public.py",
    "benchmarks/public_kernel.py",
    "benchmarks/public_labels.toml",
    "benchmarks/public_llm.py",
    "benchmarks/public_rodinia.py",
    "benchmarks/public_samples.py",
    "benchmarks/public_second.py",
    "benchmarks/public_sources.py",
    "benchmarks/public_third.py",
    "benchmarks/public_triton.py",
]
CASES: tuple[Public, ...] = (*SAMPLE_CASES, *RODINIA_CASES, *LLM_CASES, *TRITON_CASES, *SECOND_CASES, *THIRD_CASES)
SHARE = "share that agrees with the labels"
REACH = 0.85
AGREES = "first finding is one of the label"


def explained(case: Public, folder: Path, target: Target) -> Findings:
    call = case.call(target, folder)
    with _one_at_a_time():
        found = trace(call, *case.arguments(target, np.random.default_rng(0)), counts=True)
    return explain(found)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold a lock inside the `with` block. Processes of several cases compile at the same time, but only one uses the device, because
    accesses are timed."""
    with (Path(tempfile.gettempdir()) / "memlane-explain-public.lock").open("w") as file:
        flock(file, LOCK_EX)
        yield


def judged(case: Public, found: Findings) -> Row:
    """Return the row of one case: whether the label names the first finding. Its peers are the number of findings and the rank of the
    label's likeliest finding, 0 for none."""
    label = labels()[case.name]
    rules = [one.rule for one in found] or [NOTHING]
    said = "; ".join(f"{one.rule} at line {one.line} ({one.cost_cycles:.3g} warp cycles)" for one in found) or "nothing found"
    rank = rules.index(label.first) + 1 if label.first in rules else 0
    peer = {"findings": float(len(found)), "rank": float(rank), "held out": float(held_out(case.name))}
    if label.line:
        peer["at the line"] = float(bool(found) and found[0].line == label.line)
    note = f"label: {' or '.join(label.accepted)} ({label.why}) => {said}"
    return Row(case.name, AGREES, float(rules[0] in label.accepted), "", peer=peer, note=note)


def totals(rows: Sequence[Row]) -> list[Row]:
    """Return the rows over each later set, over the kernels held out of the first set, over those for which rules may have been changed,
    and over all."""
    run = [row for row in rows if row.value is not None]
    parts = {
        **{name: [row for row in run if set_of(row.case) == name] for name in LATER_SETS},
        "held out of the first": [row for row in run if held_out(row.case) and set_of(row.case) == FIRST_SET],
        "not held out": [row for row in run if not held_out(row.case)],
        "all": run,
    }
    found = []
    for name, part in parts.items():
        if part:
            agreed = sum(float(row.value or 0) for row in part)
            likeliest = sum(row.peer["rank"] == 1 for row in part)
            note = f"{agreed:.0f} of {len(part)} kernels; the likeliest finding of the label is first in {likeliest}"
            found.append(Row(name, SHARE, agreed / len(part), "share", REACH, "higher", note=note))
    return [*found, *(row for name in FIRST_RUNS for row in _first_run(name, parts[name]))]


def _first_run(name: str, run: Sequence[Row]) -> list[Row]:
    """Return the row that was recorded at the first run of a later set, once all of the set has run; that run is not measured again."""
    first = FIRST_RUNS[name]
    if len(run) < first.kernels:
        return []
    note = f"{first.agreed} of {first.kernels} kernels, with the rules of commit {first.commit}; all rows above are with the rules of now"
    return [Row(f"{name}, first run", SHARE, first.agreed / first.kernels, "share", REACH, "higher", note=note)]


def run(name: str, options: argparse.Namespace) -> list[Row]:
    case = next(one for one in CASES if one.name == name)
    return [judged(case, explained(case, options.folder, named(options.target)))]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, help="where the clones are")
    chosen = options.parse_args()
    if not chosen.folder.is_dir():
        raise SystemExit(f"there is no folder {chosen.folder}; benchmarks/public_sources.py says what to clone into it")
    check_commits(chosen.folder)
    names = [case.name for case in CASES]
    measure("explain_public", names, run, chosen, [str(chosen.folder)], min(15, os.cpu_count() or 1), totals)


if __name__ == "__main__":
    main()
