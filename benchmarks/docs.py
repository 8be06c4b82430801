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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import support
from harness import RESULTS, ROOT

DOCS = ROOT / "docs"

Document = Mapping[str, Any]
ResultRow = Mapping[str, Any]

ROADS, SITES = "sites counted otherwise by the emulator", "exact sites that differ from the profiler"
"""Metrics of the result of `counts`."""

_BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


# -- cells ---------------------------------------------------------------------------------------------------------------------


def number(value: float | None, unit: str = "") -> str:
    """Whole numbers in full with separators, others with four significant digits."""
    if value is None:
        return "not measured"
    if unit == "share" or unit == "%":
        return f"{100 * value if unit == 'share' else value:.2g} %"
    text = f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 10_000 else f"{value:.4g}"
    return f"{text} {unit}".strip()


def verdict(row: ResultRow) -> str:
    """What was to be reached, and whether it was."""
    if row["reach"] is None:
        return "compares"
    sign = "at least" if row["better"] == "higher" else "at most"
    return f"{sign} {number(row['reach'], row['unit'])}: {'yes' if row['holds'] else '**no**'}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are set to the right."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, rule, *lines)) + "\n"


def provenance(document: Document) -> str:
    """Where and from what the numbers come."""
    where = [document["chip"]]
    where += [f"driver {document['driver']}"] if document["driver"] else []
    where += [f"CUDA {document['cuda']}"] if document["cuda"] else []
    return f"\nMeasured on {', '.join(where)}, {document['date']}, commit `{document['commit'][:12]}`, by `{document['command']}`.\n"


def footnotes(rows: Iterable[ResultRow]) -> str:
    """The notes of the rows that miss their reach."""
    missed = [f"- {row['case']}, {row['metric']}: {row['note'] or 'not explained yet'}\n" for row in rows if not row["holds"]]
    return "\nMissed:\n\n" + "".join(missed) if missed else ""


# -- tables --------------------------------------------------------------------------------------------------------------------


def accuracy(document: Document) -> str:
    rows = [row for row in document["rows"] if "truth" in row["peer"]]
    lines = []
    for row in rows:
        peer = row["peer"]
        interval = f" ± {number(peer['error, half interval'])}" if "error, half interval" in peer else ""
        cells = [number(peer[name]) for name in ("recorded", "window", "net", "truth")]
        error = f"{peer['error']:+.2f}{interval} ({peer['error, %']:+.1f} %)"
        lines.append([row["case"], *cells, error, verdict(row)])
    return table(["scheme, level", "recorded", "window", "net", "truth", "error, cycles", "reach"], lines)


def little(document: Document) -> str:
    rows = [row for row in document["rows"] if "latency x rate" in row["peer"]]
    names = ["mean latency, cycles", "loads per cycle and SM", "latency x rate", "outstanding per SM"]
    lines = [[row["case"], *(number(row["peer"][name]) for name in names), number(row["value"], row["unit"]), verdict(row)] for row in rows]
    return table(["", *names, "mean deviation", "reach"], lines)


def counts(document: Document) -> str:
    """A line for each launch, the sum of all first."""
    by_case: dict[str, list[ResultRow]] = {}
    for row in document["rows"]:
        by_case.setdefault(row["case"], []).append(row)
    launches = {case: _launch(rows) for case, rows in by_case.items() if any(row["metric"] == ROADS for row in rows)}
    known = {name: [value for one in launches.values() if (value := one[name]) is not None] for name in LAUNCH_COLUMNS}
    total = [_cell(sum(values) if values else None) for values in known.values()]
    notes = {case: "; ".join(row["note"] for row in by_case[case] if row["metric"] == SITES) for case in launches}
    lines = [[case, *(_cell(one[name]) for name in LAUNCH_COLUMNS), notes.get(case, "")] for case, one in launches.items()]
    return table(["launch", *LAUNCH_COLUMNS, "what it is, and what differs"], [["**all**", *total, ""], *lines])


LAUNCH_COLUMNS = (
    "sites",
    "exact",
    "emulator differs",
    "exact, profiler differs",
    "others, profiler differs",
    "totals differ",
    "sectors",
    "sectors, profiler",
    "wavefronts",
    "wavefronts, profiler",
)


def _launch(rows: Sequence[ResultRow]) -> dict[str, float | None]:
    """The numbers of one launch; None where the profiler said nothing of it."""
    roads = next(row for row in rows if row["metric"] == ROADS)
    by_site = next((row for row in rows if row["metric"] == SITES), None)
    totals = [row for row in rows if row["metric"].endswith(": difference")]
    peer = by_site["peer"] if by_site else {}
    return {
        **{name: peer.get(name) for name in LAUNCH_COLUMNS},
        "sites": roads["peer"].get("sites"),
        "emulator differs": roads["value"],
        "exact, profiler differs": by_site["value"] if by_site else None,
        "others, profiler differs": peer.get("others that differ"),
        "totals differ": float(sum(not row["holds"] for row in totals)) if totals else None,
    }


def _cell(value: float | None) -> str:
    return "-" if value is None else number(value)


def shared_rule(document: Document) -> str:
    by_case: dict[str, list[ResultRow]] = {}
    for row in document["rows"]:
        by_case.setdefault(row["case"], []).append(row)
    lines = []
    for case, (time, *count) in by_case.items():
        cycles = time["peer"]
        chosen = [_cell(cycles.get(name)) for name in RULE_COLUMNS]
        lines.append(
            [case, *chosen, f"{_cell(time['value'])} of {len(cycles)}", *(_cell(row["value"]) for row in count or [{"value": None}])]
        )
    return table(["operation, bytes or type", *RULE_COLUMNS, "off the rule", "counted otherwise by the profiler"], lines)


RULE_COLUMNS = ("stride 1", "stride 2", "stride 32", "all the same", "lane/2", "lanes 0-15", "lanes 0-15, stride 32")
"""Patterns whose cycles are shown; the result file has all of them."""


def perturbation(document: Document) -> str:
    lost = {row["case"]: row["value"] for row in document["rows"] if row["metric"] == "records lost"}
    lines = []
    for row in document["rows"]:
        if row["metric"] != "records lost":
            times = [_cell(row["peer"].get(name)) for name in ("records", "original, us", "traced, us")]
            footprints = [_change(row["peer"], name) for name in ("registers", "local bytes", "blocks", "L1 hits, %")]
            lines.append([row["case"], *times, _cell(row["value"]), *footprints, _cell(lost.get(row["case"])), verdict(row)])
    facts = ["registers", "local bytes", "blocks", "L1 hits, %", "lost", "reach"]
    return table(["launch", "records", "original, us", "traced, us", "ratio", *facts], lines)


def _change(peer: dict[str, float], name: str) -> str:
    """`10 → 24`; a dash where it is not known."""
    ends = [peer.get(f"{name}, {which}") for which in ("original", "traced")]
    return "-" if None in ends else " → ".join(map(_cell, ends))


def outputs(document: Document) -> str:
    lines = [[row["case"], number(row["peer"].get("compared")), number(row["value"]), verdict(row)] for row in document["rows"]]
    return table(["example, road", "bytes compared", "bytes that differ", "reach"], lines)


_PEER = "thread-instructions of the PTX over the time of "
"""How the metric of a row begins that tells of another way to run a kernel."""


def emulator(document: Document) -> str:
    rows = [row for row in document["rows"] if not row["metric"].startswith(_PEER)]
    lines = [[row["case"], row["metric"], number(row["value"], row["unit"]), verdict(row)] for row in rows]
    machine = next((row["note"] for row in document["rows"] if row["note"]), "")
    return table(["what", "", "value", "reach"], lines) + (f"\nThe machine: {machine}.\n" if machine else "")


def rates(document: Document) -> str:
    rows = {row["metric"]: row["peer"] for row in document["rows"] if row["case"] == "median of the examples"}
    names = list(next(iter(rows.values()), {}))
    lines = [[name, *(number(peer[name] / 1e6) for peer in rows.values())] for name in names]
    return table(["example", *(f"{metric}, millions a second" for metric in rows)], lines)


def peers(document: Document) -> str:
    rows = [row for row in document["rows"] if row["metric"].startswith(_PEER)]
    if not rows:
        return "*Not measured yet.*\n"
    lines = []
    for row in rows:
        rate = row["note"] if row["value"] is None else number(row["value"] / 1e6)
        times = [row["peer"].get(name) for name in ("seconds", "seconds of the emulator")]
        cells = [number(None if value is None else 1e3 * value) for value in times]
        lines.append([row["metric"].removeprefix(_PEER), row["case"], rate, *cells, number(row["peer"].get("the emulator is faster by"))])
    head = ["road", "what", "thread-instructions, millions a second", "its time, ms", "the emulator's, ms", "the emulator is faster by"]
    return table(head, lines)


_UNDER = "wavefronts of the searched layout, worst"
"""The metric of a row that tells of one pattern under all layouts."""


def layouts(document: Document) -> str:
    """Mean and worst of each pattern under each layout."""
    rows = [row for row in document["rows"] if row["metric"] == _UNDER]
    names = [key.removesuffix(", mean") for key in rows[0]["peer"] if key.endswith(", mean")]
    lines = []
    for row in rows:
        peer = {**row["peer"], "searched, worst": row["value"]}
        lines.append([row["case"], *(_mean_and_worst(peer[f"{name}, mean"], peer[f"{name}, worst"]) for name in names)])
    return table(["pattern", *names], lines)


def _mean_and_worst(mean: float, worst: float) -> str:
    return number(worst) if mean == worst else f"{mean:.2f} / {number(worst)}"


def published_means(document: Document) -> str:
    rows = [row for row in document["rows"] if "published" in row["peer"]]
    lines = [[row["case"], number(row["peer"]["published"]), f"{row['peer']['ours']:.3f}", verdict(row)] for row in rows]
    return table(["layout, pattern", "published", "ours", "distance"], lines)


def searched(document: Document) -> str:
    rows = [row for row in document["rows"] if row["case"].startswith("search")]
    lines = [[row["case"], row["metric"], number(row["value"], row["unit"]), verdict(row), row["note"]] for row in rows]
    return table(["what", "", "value", "reach", ""], lines)


def relayout(document: Document) -> str:
    """A line for each array and layout: what it changed, and a last one for each array whose outputs were compared."""
    lines = []
    for row in document["rows"]:
        peer = row["peer"]
        pairs = [_pair(peer, name) for name in ("wavefronts", "us", "registers", "shared bytes", "blocks")]
        if peer:
            lines.append([row["case"], *pairs, f"{row['value']:.2f}", verdict(row)])
        elif row["unit"] == "layouts":
            lines.append([f"{row['case']}: {row['metric']}", *[""] * 5, number(row["value"]), verdict(row)])
    head = ["kernel, array, layout", "wavefronts", "time, us", "registers", "shared bytes", "blocks an SM", "times as fast", "reach"]
    return table(head, lines)


def _pair(peer: dict[str, float], name: str) -> str:
    """`10 → 24`, or 10 where it stayed; a dash where it is not known."""
    ends = [peer.get(f"{name}, {when}") for when in ("before", "after")]
    return "-" if None in ends else " → ".join(dict.fromkeys(map(_cell, ends)))


def size(document: Document) -> str:
    """Each step with its parts, its memory and what it wrote, and each chain of two steps."""
    memory = {row["case"]: row for row in document["rows"] if row["unit"] == "GB"}
    lines = []
    for row in document["rows"]:
        if row["unit"] == "GB":
            continue
        parts = ", ".join(f"{key.removesuffix(', s')} {number(value)}" for key, value in row["peer"].items() if key.endswith(", s"))
        held = memory.get(row["case"])
        lines.append(
            [
                row["case"],
                number(row["value"], row["unit"]),
                parts,
                "" if held is None else number(held["value"], "GB"),
                number(row["peer"]["file, MB"], "MB") if "file, MB" in row["peer"] else "",
                verdict(held or row),
            ]
        )
    return table(["what", "time", "of that, s", "largest resident set", "file", "reach"], lines)


def latency(document: Document) -> str:
    """A line for each access: the truth, and what each scheme recorded of it, raw and less its window."""
    rows = document["rows"]
    truths = [row for row in rows if row["metric"] in (_LATENCY, "from issue to issue")]
    by_case = {row["case"]: row for row in rows if "recorded" in row["peer"]}
    schemes = list(dict.fromkeys(case.partition(", ")[0] for case in by_case))
    lines = []
    for truth in truths:
        said = [by_case.get(f"{scheme}, {truth['case']}") for scheme in schemes]
        cells = [f"{number(row['peer']['recorded'])} - {number(row['peer']['window'])}" if row else "-" for row in said]
        held = next((verdict(row) for row in said if row and row["reach"] is not None), "compares")
        error = next((f"{row['peer']['error']:+.1f}" for row in said if row and "error" in row["peer"]), "-")
        mark = "" if truth["metric"] == _LATENCY else " (from issue to issue)"
        lines.append([truth["case"], f"{number(truth['value'])}{mark}", *cells, error, held])
    return table(["access", "truth", *schemes, f"error of {schemes[0] if schemes else 'a scheme'}", "reach"], lines)


_LATENCY, _BETWEEN = "latency, chain average", "between two clock reads"


def fences(document: Document) -> str:
    """A line for each fence: what lies between the clock reads at each level, and whether it waits."""
    rows = {row["case"]: row for row in document["rows"] if row["metric"] == _BETWEEN}
    kinds, levels = (list(dict.fromkeys(case.rpartition(", ")[part] for case in rows)) for part in (0, 2))
    lines = [["**the load itself**", *(number(rows[f"{kinds[0]}, {level}"]["peer"]["truth"]) for level in levels), "", ""]] if rows else []
    for kind in kinds:
        of = [rows[f"{kind}, {level}"] for level in levels]
        waits = [row["note"].startswith("waits") for row in of]
        says = (
            "yes" if all(waits) else "**no**" if not any(waits) else "at " + ", ".join(x for x, y in zip(levels, waits, strict=True) if y)
        )
        empty = sorted(row["peer"]["without a load"] for row in of)
        alone = number(empty[0]) if empty[0] == empty[-1] else f"{number(empty[0])} to {number(empty[-1])}"
        lines.append([f"`{kind}`" if "." in kind else kind, *(number(row["value"]) for row in of), alone, says])
    return table(["between the load and the second clock read", *levels, "without a load", "as long as the load"], lines)


def proof(document: Document) -> str:
    """The loads that are proved, and the changes of the code that the proof noticed."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "loads proved complete" and row["case"].startswith("all"):
            lines.append([row["case"], number(row["peer"]["loads"]), number(100 * row["value"]), verdict(row), row["note"]])
    return table(["kernels", "traced loads", "proved complete, %", "reach", "the others"], lines)


def _shift_overview(count: str, *addresses: str) -> Callable[[Document], str]:
    """Cycles without a shift, and the speed-up by each layout, of accesses whose case ends in these words."""

    def shown(document: Document) -> str:
        lines, names = [], list[str]()
        for address in addresses:
            for row in document["rows"]:
                case = row["case"].removesuffix(f", {count}, {address}")
                if row["metric"] == "cycles without a shift" and case != row["case"]:
                    names = list(row["peer"])
                    gained = [number(row["peer"][name]) for name in names]
                    lines.append([case, *([address] if len(addresses) > 1 else []), number(row["value"]), *gained])
        return table(["access", *(["address"] if len(addresses) > 1 else []), "none, cycles", *names], lines)

    return shown


def shift_tables(document: Document) -> str:
    rows = [row for row in document["rows"] if row["metric"] == "speed-up over no shift by the place of the table"]
    places = list(rows[0]["peer"]) if rows else []
    return table(["access", *places], [[row["case"], *(number(row["peer"][place]) for place in places)] for row in rows])


def shift_reach(document: Document) -> str:
    """What was to be reached, and how cycles and wavefronts compare."""
    rows = [row for row in document["rows"] if row["reach"] is not None or row["metric"].startswith("cycles of an access")]
    lines = []
    for row in rows:
        within = f" ± {number(row['peer']['within'])}" if "within" in row["peer"] else ""
        lines.append([row["case"], row["metric"], number(row["value"]) + within, verdict(row)])
    return table(["access", "what", "", "reach"], lines)


def shift_kernels(document: Document) -> str:
    lines = []
    for row in document["rows"]:
        peer = row["peer"]
        if "blocks without" in peer:
            fit = f"{number(peer['blocks'])}, {number(peer['blocks without'])}"
            wavefronts = f"{number(peer['wavefronts'])}, {number(peer['without'])}"
            lines.append([row["case"], number(row["value"]), number(peer["us"]), wavefronts, fit, row["note"]])
    return table(["kernel, tile", "speed-up", "time, us", "wavefronts, without", "blocks, without", "layout"], lines)


def shift_wavefronts(document: Document) -> str:
    """For each operation: how many of its accesses take another time than the rule says, and are counted otherwise."""
    rows = document["rows"]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        time, *count = [row for row in rows if row["case"] == case]
        counted = _cell(count[0]["value"] if count else None)
        lines.append([case, number(len(time["peer"])), _cell(time["value"]), counted, verdict(time)])
    return table(["operation, bytes", "accesses", "off the rule in time", "counted otherwise by the profiler", "reach"], lines)


def shift_published(document: Document) -> str:
    """One access, reads of 8 bytes, beside what was published."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "speed-up over no shift, one access":
            peer = row["peer"]
            cells = [number(peer[name]) for name in ("ras", "bare clock, rap")]
            lines.append(
                [row["case"].removesuffix(", rap"), number(row["value"]), *cells, number(peer["published"]) if "published" in peer else "-"]
            )
    return table(["access", "rap", "ras", "rap, bare clock reads", "published"], lines)


def volume_claims(document: Document) -> str:
    """Each finding of the publication, ours, and whether it holds."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "found in 2012":
            figure, _, found = row["case"].partition(": ")
            holds, _, here = row["note"].partition(": ")
            lines.append([figure, found, here, f"**{holds}**" if holds == "no" else holds])
    return table(["", "found in 2012", "here", "holds"], lines)


def volume_shapes(document: Document) -> str:
    """A line for each viewpoint and shape."""
    values = {(row["case"], row["metric"]): row for row in document["rows"]}
    lines = []
    for (case, metric), row in values.items():
        if metric != "frame rate":
            continue
        hits = values[case, "hit rate of the texture cache"]["value"]
        cells = [_cell(row["value"]), "-" if hits is None else f"{100 * hits:.1f} %"]
        for scheme in ("dependent", "simple"):
            seen = values[f"{case}, {scheme}", "access frequency"]["peer"]
            share = values.get((f"{case}, {scheme}", "share of the warps' time in accesses"))
            within = f" ± {number(seen['access time, half interval'])}" if seen.get("access time, half interval") else ""
            cells += [_cell(seen.get("access time, cycles")) + within, "-" if share is None else f"{100 * share['value']:.1f} %"]
        lines.append([case, *cells])
    columns = [f"`{scheme}`: {what}" for scheme in ("dependent", "simple") for what in ("access time, cycles", "of the time")]
    return table(["view, shape", "frames/s", "hit rate", *columns], lines)


def volume_correlations(document: Document) -> str:
    """Both coefficients of each pair, with their intervals."""
    found: dict[str, dict[str, str]] = {}
    for row in document["rows"]:
        if row["metric"] in ("Pearson's r", "Spearman's rho"):
            peer, value = row["peer"], row["value"]
            said = "-" if value is None else f"{value:+.2f} ({peer['low']:+.2f} to {peer['high']:+.2f})"
            found.setdefault(row["case"], {"remark": row["note"]})[row["metric"]] = said
    lines = [[case, one["Pearson's r"], one["Spearman's rho"], one["remark"]] for case, one in found.items()]
    return table(["over the shapes", "Pearson's r", "Spearman's rho", "remark"], lines)


TABLES: dict[str, tuple[str, Callable[[Document], str]]] = {
    "accuracy": ("h200/accuracy", accuracy),
    "little": ("h200/accuracy", little),
    "counts": ("h200/counts", counts),
    "shared-rule": ("h200/shared_rule", shared_rule),
    "perturbation": ("h200/perturbation", perturbation),
    "outputs-h200": ("h200/outputs", outputs),
    "outputs-cpu": ("cpu/outputs", outputs),
    "emulator": ("cpu/emulator", emulator),
    "rates": ("cpu/emulator", rates),
    "peers": ("cpu/emulator", peers),
    "latency": ("h200/latency", latency),
    "fences": ("h200/latency", fences),
    "proof": ("cpu/proof", proof),
    "layouts": ("cpu/layouts", layouts),
    "published-means": ("cpu/layouts", published_means),
    "searched": ("cpu/layouts", searched),
    "relayout": ("h200/relayout", relayout),
    "size": ("cpu/size", size),
    "volume-claims": ("h200/volume", volume_claims),
    "volume-shapes": ("h200/volume", volume_shapes),
    "volume-correlations": ("h200/volume", volume_correlations),
    "shift-excluded-16": ("h200/shift", _shift_overview("16 accesses", "excluded")),
    "shift-included-16": ("h200/shift", _shift_overview("16 accesses", "included")),
    "shift-one": ("h200/shift", shift_published),
    "shift-tables": ("h200/shift", shift_tables),
    "shift-reach": ("h200/shift", shift_reach),
    "shift-kernels": ("h200/shift", shift_kernels),
    "shift-wavefronts": ("h200/shift_wavefronts", shift_wavefronts),
    "shift-gtx680": ("emulator-gtx680-8byte/shift", shift_published),
}
"""By the name in the marker: the result file below `benchmarks/results`, and what makes the table of it."""


# -- pages ---------------------------------------------------------------------------------------------------------------------


def content(name: str, results: Path = RESULTS) -> str:
    """What stands between the markers of a table."""
    source, make = TABLES[name]
    path = results / f"{source}.json"
    if not path.exists():
        return f"*Not measured yet: there is no `benchmarks/results/{source}.json`.*\n"
    document = json.loads(path.read_text(encoding="utf-8"))
    return f"{make(document)}{footnotes(_shown(document, make))}{provenance(document)}"


def _shown(document: Document, make: Callable[[Document], str]) -> list[ResultRow]:
    """Rows whose misses belong below a table: those that it shows, and those that no table can show because they have no value."""
    shown = make(document)
    return [row for row in document["rows"] if f"| {row['case']} |" in shown or row["metric"] == "not measured"]


def rewritten(page: str, results: Path = RESULTS) -> str:
    """The text of a page with its tables as the results have them now."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{content(block[2], results)}\n{block[3]}", page)


def pages() -> list[Path]:
    """The pages that have tables."""
    return [path for path in sorted(DOCS.glob("*.md")) if _BLOCK.search(path.read_text(encoding="utf-8"))]


WHOLE: dict[str, Callable[[], str]] = {support.PAGE: support.page}
"""Pages that are written as a whole, and by what."""


def written() -> Iterator[tuple[Path, str]]:
    """Every page that this script writes, with the text that it should have."""
    for path in pages():
        yield path, rewritten(path.read_text(encoding="utf-8"))
    for name, make in WHOLE.items():
        yield DOCS / name, make()


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
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
