"""Write the page: one HTML file that needs no other file and no network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from memlane.errors import RecordError
from memlane.number_format import UNKNOWN, percent, plural, rounded, short
from memlane.record import Trace, kernel_label, replacing
from memlane.report.html.finding_cards import finding_cards
from memlane.report.html.histogram import SPARK_HEIGHT, SPARK_WIDTH, Bins
from memlane.report.html.levels import chip_of, levels_note
from memlane.report.html.model import Operation, SourceFile
from memlane.report.html.pack import Columns
from memlane.report.html.resources import resources_of
from memlane.report.html.source_view import files_of, operations_of
from memlane.report.html.timeline import Timeline, as_plain, timeline
from memlane.report.html.trace_facts import END_WORDS, MEANINGS, trace_facts, warnings
from memlane.report.show import access_pictures
from memlane.report.totals import counted_sites, order_notes
from memlane.report.transactions import is_alarming, with_ideal

SCRIPTS = ("data", "theme", "source", "sort", "chart", "view", "lines", "timeline", "warps", "start")
"""Parts of the script in `js/`, in the order in which they are concatenated in one scope."""
KERNELS = 6
"""Largest number of kernels named in the title."""
HOTTEST, WARM = 6, 0.01
"""Largest number of lines named above the source, and the least share of each."""
FINDINGS = 10
"""Number of findings shown initially; the others are folded below."""
PICTURES = 200
"""Largest number of lines with a picture of one access; each takes some 2 KB of page and 50 KB of a browser's memory."""


def write_report(trace: Trace, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write the page of `trace` to the file `path`, atomically. Raises RecordError if it exists and not `force`, or cannot be written."""
    with replacing(path, force) as stream:
        stream.write(render_page(trace).encode())


def render_page(trace: Trace) -> str:
    """Return the page of `trace` as text."""
    cycles = trace.table["end"].to_numpy() - trace.table["start"].to_numpy()
    bins = Bins.up_to(int(cycles.max()) if len(cycles) else 1)
    operations, of_site = operations_of(trace, bins)
    chip = chip_of(trace)
    result = finding_cards(trace, chip, FINDINGS)
    columns = Columns()
    pictures = _pictures(trace, operations, columns)
    sources, left_out = files_of(trace, operations, result.by_line, pictures)
    times, no_times = _timeline(trace, of_site, columns)
    data = {
        "bins": bins.edges.tolist(),
        "operations": [_operation(one) for one in operations],
        "launches": [as_plain(line) for line in times.launches],
        "columns": columns.directory,
    }
    template = environment().get_template("page.html.j2")
    return template.render(
        trace=trace,
        title=_title(trace),
        hottest=_hottest(sources),
        ends=_ends(operations),
        found=result,
        most_findings=FINDINGS,
        sources=sources,
        anchors=_anchors(sources),
        exposed=trace.table["exposed"].null_count < trace.table.num_rows,
        several=len({one.kernel for one in operations}) > 1,
        bins=bins,
        pictured=bool(pictures),
        times=times,
        resources=resources_of(trace, chip),
        notes={
            "head": warnings(trace),
            "source": [note for note in (left_out, levels_note(trace, chip), *order_notes(counted_sites(trace))) if note],
            "times": times.notes,
            "no_times": no_times,
        },
        about=trace_facts(trace, chip),
        columns=columns.text(),
        **embedded(data, SCRIPTS),
    )


def _title(trace: Trace) -> str:
    """Return the kernels that ran."""
    kernels = list(dict.fromkeys(kernel_label(launch.kernel) for launch in trace.launches))
    left = f" and {len(kernels) - KERNELS:,} more" if len(kernels) > KERNELS else ""
    return f"{', '.join(kernels[:KERNELS])}{left}" or "no kernel"


def _hottest(sources: list[SourceFile]) -> list[tuple[str, str, float]]:
    """Return the lines with the largest shares: their anchors in the page, their places, the shares."""
    lines = [
        (f"f{one.number}l{line.number}", f"{one.short}:{line.number}", line.share)
        for one in sources
        for stretch in one.stretches
        for line in stretch.lines
    ]
    return sorted((line for line in lines if line[2] >= WARM), key=lambda line: -line[2])[:HOTTEST]


def embedded(data: Mapping[str, Any], scripts: Sequence[str]) -> dict[str, str]:
    """Return the template variables that make a page one file.

    Style and script are trusted; `digest` is that of the only script that a browser may run.
    """
    script = _script(tuple(scripts))
    return {
        "style": Markup(text_of("page.css")),
        "script": Markup(script),
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        "data": Markup(_json(data)),
    }


def _pictures(trace: Trace, operations: list[Operation], columns: Columns) -> dict[tuple[str, int], str]:
    """Add the pictures of the lines with the largest share to `columns`, and return the column names by file and line."""
    shares: dict[tuple[str, int], float] = {}
    for one in operations:
        shares[one.file, one.line] = shares.get((one.file, one.line), 0.0) + one.share
    drawn = access_pictures(trace) if trace.examples and chip_of(trace) is not None else {}
    named: dict[tuple[str, int], str] = {}
    for place in sorted(drawn, key=lambda place: -shares.get(place, 0.0))[:PICTURES]:
        named[place] = f"picture/{len(named)}"
        columns.add(named[place], np.frombuffer(drawn[place].encode(), np.uint8), "u1")
    return named


def _timeline(trace: Trace, of_site: Any, columns: Columns) -> tuple[Timeline, str]:
    """Return the timeline, and the reason if there is none."""
    if not len(trace.warps):
        why = "the trace contains no accesses" if not trace.table.num_rows else "the trace does not contain the clocks of its warps"
        return Timeline(), f"There is no timeline, because {why}."
    try:
        return timeline(trace, of_site, columns), ""
    except RecordError as error:
        return Timeline(), f"There is no timeline: {error}."


def _ends(operations: list[Operation]) -> dict[str, int]:
    """Return the number of accesses by completeness of their end."""
    ends: dict[str, int] = {}
    for one in operations:
        for label, amount in one.ends.items():
            ends[label] = ends.get(label, 0) + amount
    return ends


def _anchors(sources: list[SourceFile]) -> dict[tuple[str, int], str]:
    """Return the anchors of the lines in the page, by file and line."""
    return {
        (one.name, line.number): f"f{one.number}l{line.number}" for one in sources for stretch in one.stretches for line in stretch.lines
    }


_FOR_SCRIPT = (
    "id",
    "kernel",
    "line",
    "op",
    "space",
    "accesses",
    "cycles_p50",
    "cycles_p95",
    "cycles_p99",
    "histogram",
    "levels",
    "facts",
)


def _operation(one: Operation) -> dict[str, Any]:
    """Return the data of an operation that the script needs; the numbers of the table are in the page already."""
    everything = asdict(one)
    return {name: everything[name] for name in _FOR_SCRIPT} | {"file": PurePath(one.file).name}


def _json(data: Mapping[str, Any]) -> str:
    """Return JSON that is safe inside a script element: characters special in HTML are written as JSON escapes."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_plain)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in the page")


def _words(text: str) -> Markup:
    """Return terminal text as HTML: text between backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of them is only a backtick
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts))


def text_of(name: str) -> str:
    """Return the text of a file in this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _script(names: tuple[str, ...]) -> str:
    return "\n" + "\n".join(text_of(f"js/{name}.js") for name in names)


@cache
def environment() -> Environment:
    """Return the template environment."""
    made = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["end_word"] = lambda label: END_WORDS.get(label, label)
    made.globals |= {
        "unknown": UNKNOWN,
        "percent": percent,
        "words": _words,
        "plural": plural,
        "short": short,
        "number": rounded,
        "with_ideal": with_ideal,
        "alarming": is_alarming,
        "end_word": lambda label: END_WORDS.get(label, label),
        "end_meanings": MEANINGS,
        "spark": (SPARK_WIDTH, SPARK_HEIGHT),
    }
    return made
