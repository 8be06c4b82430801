"""Make the tables about the emulator and about layouts."""

from __future__ import annotations

from docs_cells import Document, cell, number, table, verdict

_PEER = "thread-instructions of the PTX over the time of "
"""Beginning of the metric of a row that describes another way to run a kernel."""


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


_REFUSED = "files that do not: "


def loading(document: Document) -> str:
    """Return a line for each public repository: how many of its files load, and why the others do not."""
    rows = {(row["case"], row["metric"]): row for row in document["rows"]}
    cases = dict.fromkeys(case for case, _ in rows)
    reasons = list(dict.fromkeys(m.removeprefix(_REFUSED) for _, m in rows if m.startswith(_REFUSED)))
    lines = []
    for case in cases:
        commit = rows[case, "files"]["note"][:8]
        counts = [rows[case, metric]["value"] for metric in ("files", "files that load", "kernels that load")]
        share = number(100 * rows[case, "kernels that the emulator runs"]["value"])
        refused = [number(rows[case, _REFUSED + reason]["value"]) for reason in reasons]
        lines.append([f"{case} at `{commit}`", *map(number, counts), f"{share} %", *refused])
    return table(["repository", "`.cu` files", "load", "kernels", "of them the emulator runs", *reasons], lines)


def cute(document: Document) -> str:
    """Return a line for each of CuTe's tutorials: how long it takes to compile, and whether its products are right."""
    rows = [row for row in document["rows"] if row["case"] != "cutlass"]
    return table(
        ["file of CuTe's tutorial", "", "value", "reach", ""],
        [[row["case"], row["metric"], f"{number(row['value'])} {row['unit']}", verdict(row), row["note"]] for row in rows],
    )


_UNDER = "wavefronts of the searched layout, worst"
"""The metric of a row that tells of one pattern under all layouts."""


def layouts(document: Document) -> str:
    """Return a line for each pattern: mean and worst under each layout."""
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
    """Return a line for each array and layout: what it changed, and a last one for each array whose outputs were compared."""
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
    """Return a change as `10 → 24`, or 10 if there is none; a dash if it is not known."""
    ends = [peer.get(f"{name}, {when}") for when in ("before", "after")]
    return "-" if None in ends else " → ".join(dict.fromkeys(map(cell, ends)))
