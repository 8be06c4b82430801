"""The tables of docs/findings.md."""

from __future__ import annotations

from docs_cells import Document, number, table, verdict


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
