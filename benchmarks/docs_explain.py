"""The tables of docs/findings.md."""

from __future__ import annotations

from docs_cells import Document, number, table, verdict
from public_verdicts import VERDICTS

SHARE = "share that agrees with the labels"
"""The metric of the rows that sum up the public kernels."""
SHOWN = 2
"""Findings of a public kernel that the table quotes."""


def totals(document: Document) -> str:
    """What holds for all kernels together."""
    rows = [row for row in document["rows"] if row["case"] in ("planted", "clean")]
    return table(
        ["", "value", "reach", ""], [[row["metric"], number(row["value"], row["unit"]), verdict(row), row["note"]] for row in rows]
    )


def kernels(document: Document) -> str:
    """A line for each kernel: what was expected and all that was said, in its rank."""
    rows = [row for row in document["rows"] if row["case"] not in ("planted", "clean")]
    lines = []
    for row in rows:
        expected, _, kernel = row["case"].partition(": ")
        found = "yes" if row["holds"] else "**no**"
        lines.append([kernel, expected if expected != "clean" else "nothing", found, row["note"] or "nothing"])
    return table(["kernel", "expected", "first, and alone in clean ones", "found, by rank"], lines)


def public(document: Document) -> str:
    """Kernels of others: the label that a reader gave, what was said first, and who is right where they differ."""
    lines, totals = [], []
    for row in document["rows"]:
        if row["metric"] == SHARE:
            totals.append([f"**{row['case']}**", number(row["value"], row["unit"]), "", row["note"], ""])
            continue
        given, _, found = row["note"].partition(" => ")
        label = given.removeprefix("label: ").partition(" (")[0] if found else "-"
        agrees = "not measured" if row["value"] is None else "yes" if row["value"] else "**no**"
        said = found.split("; ")
        short = "; ".join(said[:SHOWN]) + (f"; {len(said) - SHOWN} more" if len(said) > SHOWN else "")
        verdict_of = "" if row["value"] != 0 else VERDICTS.get(row["case"], "not studied yet")
        lines.append([row["case"], label, agrees, short if found else row["note"], verdict_of])
    return table(["kernel", "label", "agrees", "found, by rank", "right is"], [*lines, *totals])
