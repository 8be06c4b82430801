"""Write timelines of plans to files: a picture, a page for a browser, or a trace for Perfetto."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import PurePath

from memlane.errors import CommandError
from memlane.export.plan_timeline import perfetto_timeline
from memlane.plan import Timeline
from memlane.record import replacing
from memlane.report.html.plan_page import render_plan_page
from memlane.report.picture import timeline_svg

_WRITE: dict[str, Callable[[Timeline], bytes]] = {
    ".svg": lambda timeline: timeline_svg(timeline).encode(),
    ".html": lambda timeline: render_plan_page(timeline).encode(),
    ".pftrace": perfetto_timeline,
}


def draw(timeline: Timeline, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a timeline to a file, in the format of its name's extension.

    `.svg` is a picture, `.html` a page for a browser that needs no network, and `.pftrace` a trace for https://ui.perfetto.dev. Raises
    CommandError for another extension, and for `.pftrace` where the package perfetto is missing; RecordError if the file exists, unless
    `force`, or cannot be written.
    """
    ending = PurePath(path).suffix.lower()
    if ending not in _WRITE:
        raise CommandError(
            f"{os.fspath(path)}: a timeline can be written as {', '.join(_WRITE)}; choose a file name that ends in one of these"
        )
    data = _WRITE[ending](timeline)
    with replacing(path, force) as stream:
        stream.write(data)
