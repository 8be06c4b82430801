"""Write the tables of the documentation from the result files, between their markers, and the pages that are tables altogether (`WHOLE`).
With `--check` only say whether they are up to date.

    <!-- table: accuracy -->
    (written by this script)
    <!-- end of table -->

A table whose benchmark has no result file yet says so.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import docs_emulator
import docs_explain
import docs_labs
import docs_predict
import docs_reduction
import docs_trace
import support
from docs_cells import Document, ResultRow, footnotes, provenance
from harness import RESULTS, ROOT

from memlane.lab.figures import Figure, draw

DOCS = ROOT / "docs"

_BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


TABLES: dict[str, tuple[str, Callable[[Document], str]]] = {
    "accuracy": ("h200/accuracy", docs_trace.accuracy),
    "accuracy-h100": ("h100/accuracy", docs_trace.accuracy),
    "little": ("h200/accuracy", docs_trace.little),
    "counts": ("h200/counts", docs_trace.counts),
    "counts-h100": ("h100/counts", docs_trace.counts_in_all),
    "shared-rule": ("h200/shared_rule", docs_trace.shared_rule),
    "perturbation": ("h200/perturbation", docs_trace.perturbation),
    "outputs-h200": ("h200/outputs", docs_trace.outputs),
    "outputs-cpu": ("cpu/outputs", docs_trace.outputs),
    "emulator": ("cpu/emulator", docs_emulator.emulator),
    "rates": ("cpu/emulator", docs_emulator.rates),
    "peers": ("cpu/emulator", docs_emulator.peers),
    "loading": ("cpu/loading", docs_emulator.loading),
    "cute": ("cpu/cute", docs_emulator.cute),
    "latency": ("h200/latency", docs_labs.latency),
    "latency-h100": ("h100/latency", docs_labs.latency),
    "fences": ("h200/latency", docs_labs.fences),
    "proof": ("cpu/proof", docs_trace.proof),
    "stalls-h200": ("h200/stalls", docs_trace.stalls),
    "stalls-cpu": ("cpu/stalls", docs_trace.stalls),
    "stalls-proof": ("cpu/proof", docs_trace.stalls_proof),
    "kinds": ("h200/kinds", docs_trace.kinds),
    "layouts": ("cpu/layouts", docs_emulator.layouts),
    "published-means": ("cpu/layouts", docs_emulator.published_means),
    "searched": ("cpu/layouts", docs_emulator.searched),
    "transfers": ("h200/transfers", docs_labs.transfers),
    "remap-gtx480": ("emulator-gtx480/remap", docs_labs.remaps),
    "remap-h200": ("h200/remap", docs_labs.remaps),
    "relayout": ("h200/relayout", docs_emulator.relayout),
    "size": ("cpu/size", docs_trace.size),
    "explain-h200": ("h200/explain", docs_explain.totals),
    "explain-kernels": ("h200/explain", docs_explain.kernels),
    "explain-cpu": ("cpu/explain", docs_explain.totals),
    "explain-public-cpu": ("cpu/explain_public", docs_explain.public),
    "predict-totals": ("emulator-h200/predict", docs_predict.totals),
    "predict-h100": ("emulator-h100/predict", docs_predict.totals),
    "predict-families": ("emulator-h200/predict", docs_predict.families),
    "predict-cost": ("emulator-h200/predict", docs_predict.cost),
    "predict-farthest": ("emulator-h200/predict", docs_predict.farthest),
    "predict-plans": ("emulator-h200/predict_plans", docs_predict.plans),
    "volume-claims": ("h200/volume", docs_labs.volume_claims),
    "volume-shapes": ("h200/volume", docs_labs.volume_shapes),
    "volume-correlations": ("h200/volume", docs_labs.volume_correlations),
    "shift-excluded-16": ("h200/shift", docs_labs.shift_overview("16 accesses", "excluded")),
    "shift-included-16": ("h200/shift", docs_labs.shift_overview("16 accesses", "included")),
    "shift-one": ("h200/shift", docs_labs.shift_published),
    "shift-tables": ("h200/shift", docs_labs.shift_tables),
    "shift-reach": ("h200/shift", docs_labs.shift_reach),
    "shift-warps": ("h200/shift", docs_labs.shift_warps),
    "shift-kernels": ("h200/shift", docs_labs.shift_kernels),
    "shift-wavefronts": ("h200/shift_wavefronts", docs_labs.shift_wavefronts),
    "reduction-removed": ("emulator-s1070/reduction", docs_reduction.removed),
    "reduction-reasons": ("h200/reduction", docs_reduction.reasons),
    "reduction-course-times": ("emulator-s1070/reduction", docs_reduction.course_times),
    "reduction-course": ("emulator-s1070/reduction", docs_reduction.course),
    "reduction-22": ("h200/reduction", docs_reduction.ladder("2^22")),
    "reduction-24": ("h200/reduction", docs_reduction.ladder("2^24")),
    "reduction-28": ("h200/reduction", docs_reduction.ladder("2^28")),
    "reduction-beside": ("h200/reduction", docs_reduction.beside),
    "reduction-call": ("h200/reduction", docs_reduction.call),
    "reduction-beyond": ("h200/reduction", docs_reduction.beyond),
    "reduction-floors": ("h200/reduction", docs_reduction.floors),
    "stencils": ("h200/stencil", docs_labs.stencils),
    "stencil-devices": ("h200/stencil_scaling", docs_labs.stencil_devices),
    "stencil-devices-h100": ("h100/stencil_scaling", docs_labs.stencil_devices),
    "stencil-calls": ("h200/stencil_scaling", docs_labs.stencil_calls),
    "stencil-model": ("h200/stencil_scaling", docs_labs.stencil_model),
    "stencil-exchanges": ("h200/stencil_scaling", docs_labs.stencil_exchanges),
    "stencil-exchanges-h100": ("h100/stencil_scaling", docs_labs.stencil_exchanges),
    "stencil-scaling": ("emulator-m2050/lab_stencil", docs_labs.stencil_scaling),
    "stencil-published": ("emulator-m2050/lab_stencil", docs_labs.stencil_claims(is_predicted=True)),
    "stencil-emulated": ("emulator-m2050/lab_stencil", docs_labs.stencil_claims(is_predicted=False)),
    "stencil-overlap": ("emulator-m2050/lab_stencil", docs_labs.stencil_overlap),
    "stencil-lab": ("h200/lab_stencil", docs_labs.stencil_lab),
    "stencil-measured": ("h200/lab_stencil", docs_labs.stencil_claims(is_predicted=False)),
    "shift-gtx680": ("emulator-gtx680-8byte/shift", docs_labs.shift_published),
}
"""Result file below `benchmarks/results` and the function that makes the table, by the name in the marker."""


# -- pages ---------------------------------------------------------------------------------------------------------------------


def content(name: str, results: Path = RESULTS) -> str:
    """Return the text that belongs between the markers of a table."""
    source, make = TABLES[name]
    path = results / f"{source}.json"
    if not path.exists():
        return f"*Not measured yet: there is no `benchmarks/results/{source}.json`.*\n"
    document = json.loads(path.read_text(encoding="utf-8"))
    return f"{make(document)}{footnotes(_shown(document, make))}{provenance(document)}"


def _shown(document: Document, make: Callable[[Document], str]) -> list[ResultRow]:
    """Return the rows whose misses belong below a table: those that it shows, and those that have no value."""
    shown = make(document)
    return [row for row in document["rows"] if f"| {row['case']} |" in shown or row["metric"] == "not measured"]


def rewritten(page: str, results: Path = RESULTS) -> str:
    """Return the text of a page with its tables as the results have them now."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{content(block[2], results)}\n{block[3]}", page)


def pages() -> list[Path]:
    """Return the pages that have tables."""
    return [path for path in sorted(DOCS.glob("*.md")) if _BLOCK.search(path.read_text(encoding="utf-8"))]


WHOLE: dict[str, Callable[[], str]] = {support.PAGE: support.page}
"""Pages that are written as a whole, and by what."""


def written() -> Iterator[tuple[Path, str]]:
    """Yield every page that this script writes, with the text that it should have."""
    for path in pages():
        yield path, rewritten(path.read_text(encoding="utf-8"))
    for name, make in WHOLE.items():
        yield DOCS / name, make()


FIGURES: dict[str, tuple[str, Callable[[Document], dict[str, Figure]]]] = {
    "scaling": ("h200/stencil_scaling", docs_labs.stencil_figures),
}
"""Result file and the function that makes the figures, by folder below `docs/figures`."""


def draw_figures() -> None:
    """Draw the figures of the pages from the result files."""
    for folder, (source, make) in FIGURES.items():
        out = DOCS / "figures" / folder
        out.mkdir(parents=True, exist_ok=True)
        draw(make(json.loads((RESULTS / f"{source}.json").read_text(encoding="utf-8"))), out)


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a table is out of date")
    check = arguments.parse_args().check
    old = 0
    for path, after in written():
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before != after:
            old += 1
            print(f"{path.relative_to(ROOT)} is out of date" if check else f"Wrote {path.relative_to(ROOT)}")
            if not check:
                path.write_text(after, encoding="utf-8")
    if not check:
        draw_figures()
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
