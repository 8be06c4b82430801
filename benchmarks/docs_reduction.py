"""Make the tables about the reduction ladder."""

from __future__ import annotations

from collections.abc import Callable

from docs_cells import Document, ResultRow, number, table, verdict

from memlane.lab.reduction.ladder import STEPS

PROFILED = {
    "2": "604,485 instructions of warps and 97,319 warps serialised in 3,277 blocks: 184.5 and 29.7 of a block",
    "3": "385,507 instructions in 3,277 blocks: 117.6 of a block; none serialised",
}
"""Numbers from the course's pages of a profiler, by step; the other steps have no page."""


def _of(document: Document, metric: str) -> list[ResultRow]:
    return [row for row in document["rows"] if row["metric"] == metric]


def ladder(size: str) -> Callable[[Document], str]:
    """Return the steps at a size, as the course shows them."""

    def shown(document: Document) -> str:
        lines = []
        for row in _of(document, "time of a step"):
            n, _, step = row["case"].split(", ", 2)
            peer = row["peer"]
            if n == size:
                copy = number(peer.get("of the copy")) if "of the copy" in peer else "-"
                gained = [f"{peer['step']:.2f}", f"{peer['all']:.1f}", number(peer["launches"])]
                lines.append([step, number(row["value"]), number(peer["GB/s"]), copy, number(peer["of the datasheet"]), *gained])
        return table(["step", "us", "GB/s", "% of a copy", "% of the datasheet", "gain", "all", "launches"], lines)

    return shown


def removed(document: Document) -> str:
    """Return a line for each measured step, with the cost that it removes."""
    measured = {row["case"].split(", ", 2)[2] for row in _of(document, "time of a step")}
    return table(["step", "what it removes"], [[one.title, one.removed] for one in STEPS if one.title in measured])


_COUNTED = ("divergent branches", "excess wavefronts", "wavefronts", "instructions an element", "idle lanes, %", "barriers", "sectors")


def reasons(document: Document) -> str:
    """Return a line for each step, with the counts of one block."""
    lines = []
    for row in _of(document, "counted, of a block"):
        peer = row["peer"]
        cells = [number(peer[name]) if name in peer else "-" for name in ("launches", *_COUNTED)]
        lines.append([row["case"].split(", ", 2)[2], *cells])
    return table(["step", "launches", *_COUNTED[:-1], "sectors of 1,024 elements"], lines)


def course(document: Document) -> str:
    """Return the course's steps on its chip, beside what its pages of a profiler say."""
    lines = []
    for row in _of(document, "counted, of a block")[:7]:
        step, peer = row["case"].split(", ", 2)[2], row["peer"]
        cells = [number(peer[name]) for name in ("divergent branches", "excess wavefronts", "wavefronts", "instructions an element")]
        lines.append([step, *cells, PROFILED.get(step.partition(":")[0], "-")])
    return table(
        ["step", "divergent branches", "excess wavefronts", "wavefronts", "instructions an element", "the course's profiler"], lines
    )


def course_times(document: Document) -> str:
    """Return the predicted times of the steps beside those that the course measured."""
    lines = []
    for row in _of(document, "predicted time of a step"):
        peer, step = row["peer"], row["case"].split(", ", 2)[2]
        if "course us" in peer:
            limit = row["note"].partition(";")[0].removeprefix("limited by ")
            lines.append([step, number(peer["course us"]), number(row["value"]), f"{peer['over the course']:.2f}", limit])
    return table(["step", "the course, us", "predicted, us", "predicted / course", "limited by"], lines)


def beside(document: Document) -> str:
    """Return a line for each size: our time, the peers' times and the floor."""
    lines = []
    for row in document["rows"]:
        peer = row["peer"]
        if "only read" in peer:
            ours, others = peer["memlane"], {name: peer[name] for name in ("PyTorch", "CuPy") if name in peer}
            best = f"{peer['times as quick']:.3f}" if "times as quick" in peer else "-"
            cells = [number(others[name]) if name in others else "-" for name in ("PyTorch", "CuPy")]
            lines.append([row["case"], number(ours), number(peer["TB/s, memlane"]), *cells, best, number(peer["only read"]), verdict(row)])
    head = ["sum", "us", "TB/s", "PyTorch, us", "CuPy, us", "times as quick", "only read, us", "reach"]
    return table(head, lines)


def call(document: Document) -> str:
    """Return a line for each way to launch one call."""
    lines = []
    for row in _of(document, "time between events"):
        lines += [[name, number(value)] for name, value in row["peer"].items()]
        lines.append(["reach", verdict(row)])
    return table(["one call of 2^16", "us between events"], lines)


def beyond(document: Document) -> str:
    """Return a line for each idea, with its gain."""
    lines = []
    for row in _of(document, "times as quick with the idea"):
        n, _, idea = row["case"].partition(", ")
        lines.append([idea, n, number(row["peer"]["us without"]), number(row["peer"]["us with"]), f"{row['value']:.2f}"])
    return table(["idea", "elements", "without, us", "with, us", "times as quick"], lines)


def floors(document: Document) -> str:
    return table(["what", ""], [[row["case"], number(row["value"], row["unit"])] for row in _of(document, "floor")])
