"""Make the tables of docs/prediction.md."""

from __future__ import annotations

from docs_cells import Document, number, table, verdict
from predict import FLOOR, MEASURED, TIME
from predict_families import SET_ASIDE, TUNED

SHOWN = 12
"""Kernels of the table of the farthest."""


def totals(document: Document) -> str:
    """Return the totals over all families set aside, and over the tuned families."""
    rows = [row for row in document["rows"] if row["case"] in ("families set aside", "families tuned")]
    aside = [row for row in rows if row["case"] == "families set aside"]
    tuned = {row["metric"]: number(row["value"], row["unit"]) for row in rows if row["case"] == "families tuned"}
    lines = [[row["metric"], number(row["value"], row["unit"]), verdict(row), tuned.get(row["metric"], "-")] for row in aside]
    return table(["", "families set aside", "reach", "tuned families"], lines)


def cost(document: Document) -> str:
    """Return a line for each measured cost of a prediction."""
    rows = [row for row in document["rows"] if row["case"].startswith("cost, ")]
    return table(
        ["", "", "value", "reach"], [[row["case"][6:], row["metric"], number(row["value"], row["unit"]), verdict(row)] for row in rows]
    )


def families(document: Document) -> str:
    """Return a line for each family."""
    found = {row["case"]: row for row in document["rows"] if row["metric"] == "mean absolute error"}
    lines = []
    for name in (*SET_ASIDE, *TUNED):
        if name in found:
            row = found[name]
            half = "set aside" if name in SET_ASIDE else "tuned"
            peer = row["peer"]
            lines.append([name, half, number(peer["kernels"]), number(row["value"], "%"), f"{peer['rank correlation']:.2f}", row["note"]])
    return table(["family", "half", "kernels", "mean error", "rank correlation", "least and most"], lines)


def farthest(document: Document) -> str:
    """Return the kernels of the families set aside whose predictions are farthest off."""
    rows = [row for row in document["rows"] if row["metric"] == TIME and MEASURED in row["peer"]]
    rows = [row for row in rows if row["case"].partition(": ")[0] in SET_ASIDE]
    rows.sort(key=lambda row: -abs(row["peer"]["error"]))
    lines = [
        [
            row["case"],
            number(row["peer"][MEASURED]),
            number(row["value"]),
            f"{row['peer']['error']:+.0%}",
            number(row["peer"][FLOOR]),
            row["note"],
        ]
        for row in rows[:SHOWN]
    ]
    return table(["kernel", "measured, us", "predicted, us", "error", "plain floor, us", "by the model"], lines)


def plans(document: Document) -> str:
    """Return a line for each plan whose kernels are predicted too, next to the measured times."""
    lines = []
    for row in document["rows"]:
        peer = row["peer"]
        if "measured us" in peer:
            kernel = f"{number(peer['measured kernel us'])} / {number(peer['kernel us'])}"
            predicted = peer["measured us"] * (1 + row["value"])
            lines.append([row["case"], number(peer["measured us"]), number(predicted), f"{row['value']:+.0%}", kernel])
    return table(["plan", "measured, us", "predicted, us", "error", "one kernel, measured / predicted, us"], lines)
