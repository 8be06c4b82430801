"""Format cells, verdicts and Markdown tables for all tables of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]
ResultRow = Mapping[str, Any]


def number(value: float | None, unit: str = "") -> str:
    """Return a number as text: whole numbers in full with separators, others with four significant digits."""
    if value is None:
        return "not measured"
    if unit == "share" or unit == "%":
        percent = 100 * value if unit == "share" else value
        return f"{percent:.2g} %" if abs(percent) < 99.5 else f"{percent:.0f} %"
    text = f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 10_000 else f"{value:.4g}"
    return f"{text} {unit}".strip()


def verdict(row: ResultRow) -> str:
    """Return the reach of a row, and whether it was reached."""
    if row["reach"] is None:
        return "compares"
    sign = "at least" if row["better"] == "higher" else "at most"
    return f"{sign} {number(row['reach'], row['unit'])}: {'yes' if row['holds'] else '**no**'}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are set to the right."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, rule, *lines)) + "\n"


def provenance(document: Document) -> str:
    """Return a sentence with the device, date, commit and command of the numbers."""
    where = [document["chip"]]
    where += [f"driver {document['driver']}"] if document["driver"] else []
    where += [f"CUDA {document['cuda']}"] if document["cuda"] else []
    return f"\nMeasured on {', '.join(where)}, {document['date']}, commit `{document['commit'][:12]}`, by `{document['command']}`.\n"


def footnotes(rows: Iterable[ResultRow]) -> str:
    """Return the notes of the rows that miss their reach."""
    missed = [f"- {row['case']}, {row['metric']}: {row['note'] or 'not explained yet'}\n" for row in rows if not row["holds"]]
    return "\nMissed:\n\n" + "".join(missed) if missed else ""


def cell(value: float | None) -> str:
    return "-" if value is None else number(value)
