"""Make the tables about the measured accuracy of traces, counts and probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from docs_cells import Document, ResultRow, cell, number, table, verdict

ROADS, SITES = "sites counted otherwise by the emulator", "exact sites that differ from the profiler"
"""Metrics of the result of `counts`."""


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
    """Return a line for each launch, the sum of all first."""
    by_case, launches = _counted(document)
    notes = {case: _once(row["note"] for row in by_case[case] if row["metric"] == SITES) for case in launches}
    lines = [[case, *(cell(one[name]) for name in LAUNCH_COLUMNS), notes.get(case, "")] for case, one in launches.items()]
    columns = ["launch", *LAUNCH_COLUMNS, "what it is, and what differs"]
    return table(columns, [["**all**", *_summed(launches), ""], *lines])


def counts_in_all(document: Document) -> str:
    """Return the sum of all launches alone."""
    _, launches = _counted(document)
    return table(["launches", *LAUNCH_COLUMNS], [[cell(float(len(launches))), *_summed(launches)]])


def _counted(document: Document) -> tuple[dict[str, list[ResultRow]], dict[str, dict[str, float | None]]]:
    """Return the rows by case, and of those that are launches what `LAUNCH_COLUMNS` names."""
    by_case: dict[str, list[ResultRow]] = {}
    for row in document["rows"]:
        by_case.setdefault(row["case"], []).append(row)
    return by_case, {case: _launch(rows) for case, rows in by_case.items() if any(row["metric"] == ROADS for row in rows)}


def _summed(launches: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    known = {name: [value for one in launches.values() if (value := one[name]) is not None] for name in LAUNCH_COLUMNS}
    return [cell(sum(values) if values else None) for values in known.values()]


def _once(notes: Iterable[str]) -> str:
    """Return the parts of the notes. Sites with the same reason are one part: the first site and the number of sites."""
    by_reason: dict[str, list[str]] = {}
    for part in "; ".join(notes).split("; "):
        head, _, reason = part.rpartition(": ")
        by_reason.setdefault(reason, []).append(head)
    told = []
    for reason, heads in by_reason.items():
        more = f" (and at {len(heads) - 1} more)" if len(heads) > 1 else ""
        told.append(f"{heads[0]}{more}: {reason}" if heads[0] else reason)
    return "; ".join(told)


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
    """Return the numbers of one launch; None where the profiler said nothing of it."""
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


def shared_rule(document: Document) -> str:
    by_case: dict[str, list[ResultRow]] = {}
    for row in document["rows"]:
        by_case.setdefault(row["case"], []).append(row)
    lines = []
    for case, (time, *count) in by_case.items():
        cycles = time["peer"]
        chosen = [cell(cycles.get(name)) for name in RULE_COLUMNS]
        lines.append(
            [case, *chosen, f"{cell(time['value'])} of {len(cycles)}", *(cell(row["value"]) for row in count or [{"value": None}])]
        )
    return table(["operation, bytes or type", *RULE_COLUMNS, "off the rule", "counted otherwise by the profiler"], lines)


RULE_COLUMNS = ("stride 1", "stride 2", "stride 32", "all the same", "lane/2", "lanes 0-15", "lanes 0-15, stride 32")
"""Patterns whose cycles are shown; the result file has all of them."""


def perturbation(document: Document) -> str:
    lost = {row["case"]: row["value"] for row in document["rows"] if row["metric"] == "records lost"}
    lines, errors = [], []
    for row in document["rows"]:
        if row["unit"] == "cycles":
            truth, error = (cell(row["peer"].get(name)) for name in ("truth", "error"))
            errors.append([row["case"], truth, error, verdict(row)])
        elif row["metric"] != "records lost":
            times = [cell(row["peer"].get(name)) for name in ("records", "original, us", "traced, us")]
            footprints = [_change(row["peer"], name) for name in ("registers", "local bytes", "blocks", "L1 hits, %")]
            lines.append([row["case"], *times, cell(row["value"]), *footprints, cell(lost.get(row["case"])), verdict(row)])
    facts = ["registers", "local bytes", "blocks", "L1 hits, %", "lost", "reach"]
    of_launches = table(["launch", "records", "original, us", "traced, us", "ratio", *facts], lines)
    if not errors:
        return of_launches
    return f"{of_launches}\n\n{table(['a load that is recorded', 'cycles without probes', 'error of its time', 'reach'], errors)}"


def _change(peer: dict[str, float], name: str) -> str:
    """Return a change as text, such as `10 → 24`; a dash if it is not known."""
    ends = [peer.get(f"{name}, {which}") for which in ("original", "traced")]
    return "-" if None in ends else " → ".join(map(cell, ends))


def outputs(document: Document) -> str:
    lines = [[row["case"], number(row["peer"].get("compared")), number(row["value"]), verdict(row)] for row in document["rows"]]
    return table(["example, road", "bytes compared", "bytes that differ", "reach"], lines)


def size(document: Document) -> str:
    """Return a line for each step, with its parts, memory and file size, and for each chain of two steps."""
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
                number(row["value"], row["unit"]) + (" a record" if row["metric"] == "time per record" else ""),
                parts,
                "" if held is None else number(held["value"], "GB"),
                number(row["peer"]["file, MB"], "MB") if "file, MB" in row["peer"] else "",
                verdict(held or row),
            ]
        )
    return table(["what", "time", "of that, s", "largest resident set", "file", "reach"], lines)


def kinds(document: Document) -> str:
    """Return a line for each kind of access: its time, and what it was to agree with."""
    lines = [[row["case"], number(row["value"]), verdict(row)] for row in document["rows"]]
    return table(["access", "median, cycles", "reach"], lines)


def stalls(document: Document) -> str:
    """Return a line for each kernel whose overlap is known: all cycles, what was exposed of them, and what was predicted."""
    lines = []
    for row in document["rows"]:
        if "exposed" in row["peer"]:
            loads = row["peer"]["loads"]
            means = [number(row["peer"][name] / loads) for name in ("cycles", "exposed")]
            lines.append([row["case"], number(loads), *means, row["metric"], number(row["value"]), verdict(row)])
    return table(["kernel", "loads", "start to end, mean", "exposed, mean", "what was predicted", "cycles", "reach"], lines)


def stalls_proof(document: Document) -> str:
    """Return the share of loads whose consumers are proved, among the loads that are followed to their consumers."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "waits of consumers proved":
            counts_ = [number(row["peer"][name]) for name in ("loads", "followed", "awaited with another")]
            lines.append([row["case"], *counts_, number(100 * row["value"]), verdict(row), row["note"]])
    return table(["kernels", "traced loads and atomics", "followed", "share a wait", "proved, %", "reach", "the others"], lines)


def proof(document: Document) -> str:
    """Return the loads that are proved, and the changes of the code that the proof noticed."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "loads proved complete" and row["case"].startswith("all"):
            lines.append([row["case"], number(row["peer"]["loads"]), number(100 * row["value"]), verdict(row), row["note"]])
    return table(["kernels", "traced loads", "proved complete, %", "reach", "the others"], lines)
