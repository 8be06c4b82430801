"""Make the tables of docs/findings.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docs_cells import Document, number, table, verdict
from public_verdicts import RELABELLED, SINCE, VERDICTS, first_of, is_right

SHARE = "share that agrees with the labels"
"""The metric of the rows that sum up the public kernels."""
SHOWN = 2
"""Findings of a public kernel that the table quotes."""


def totals(document: Document) -> str:
    """Return the totals over all planted and all clean kernels."""
    rows = [row for row in document["rows"] if row["case"] in ("planted", "clean")]
    return table(
        ["", "value", "reach", ""], [[row["metric"], number(row["value"], row["unit"]), verdict(row), row["note"]] for row in rows]
    )


def kernels(document: Document) -> str:
    """Return a line for each kernel: what was expected and all that was said, in its rank."""
    rows = [row for row in document["rows"] if row["case"] not in ("planted", "clean")]
    lines = []
    for row in rows:
        expected, _, kernel = row["case"].partition(": ")
        found = "yes" if row["holds"] else "**no**"
        lines.append([kernel, expected if expected != "clean" else "nothing", found, row["note"] or "nothing"])
    return table(["kernel", "expected", "first, and alone in clean ones", "found, by rank"], lines)


def public(document: Document) -> str:
    """Return a line for each kernel of others: the label that a reader gave, the first findings, and who was right where they differed at
    the first run. The last line counts the labels that were wrong as they should have been."""
    lines, sums, right = [], [], []
    for row in document["rows"]:
        if row["metric"] == SHARE:
            sums.append([f"**{row['case']}**", number(row["value"], row["unit"]), verdict(row), row["note"], ""])
            continue
        given, _, found = row["note"].partition(" => ")
        label = given.removeprefix("label: ").partition(" (")[0] if found else "-"
        if row["value"] is not None:
            right.append(is_right(row["case"], label, first_of(found)))
        lines.append([row["case"], _label(row["case"], label), _agrees(row, found), _short(found) or row["note"], _judged(row)])
    if any(row["case"] in RELABELLED for row in document["rows"]):
        sums.append(
            ["**all, wrong labels put right**", number(sum(right) / len(right), "share"), "", f"{sum(right)} of {len(right)} kernels", ""]
        )
    return table(["kernel", "label", "agrees", "found, by rank", "who was right"], [*lines, *sums])


def _judged(row: Mapping[str, Any]) -> str:
    """Return who was right, at the first run or now."""
    return VERDICTS.get(row["case"], "") or ("" if row["value"] else SINCE.get(row["case"], ""))


def _label(name: str, label: str) -> str:
    return f"{label}; should be {RELABELLED[name]}" if name in RELABELLED else label


def _agrees(row: Mapping[str, Any], found: str) -> str:
    if row["value"] is None:
        return "not measured"
    held = " (held out)" if row["peer"].get("held out") else ""
    if row["value"]:
        return f"yes{held}"
    right = row["case"] in RELABELLED and is_right(row["case"], "", first_of(found))
    return f"**no**; yes{held}" if right else f"**no**{held}"


def _short(found: str) -> str:
    """Return the first findings, and the number of the others."""
    said = found.split("; ")
    return "; ".join(said[:SHOWN]) + (f"; {len(said) - SHOWN} more" if len(said) > SHOWN else "")
