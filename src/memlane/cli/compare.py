"""Implement `memlane compare A B`: show what changed between two traces, or two counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import options as o
from memlane.cli.later import later
from memlane.cli.terminal import show, show_json
from memlane.errors import CommandError

if TYPE_CHECKING:
    from memlane.cli import progress
    from memlane.diagnose import comparison
    from memlane.report import comparison as shown
else:
    progress = later("memlane.cli.progress")
    comparison = later("memlane.diagnose.comparison")
    shown = later("memlane.report.comparison")


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="A record file, or the output of `memlane count --json`.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another file of the same kind.")],
    kernel: Annotated[
        list[str],
        typer.Option(
            "--kernel",
            "-k",
            metavar="A=B",
            help="Compare kernel A of the first file with kernel B of the second, or one kernel of both. Repeat for several.",
        ),
    ] = [],
    as_json: o.Json = False,
) -> None:
    """Show what changed from A to B: counts, transactions, latency and time of each source line, and which changes are larger than the
    noise."""
    pairs = o.kernel_pairs(kernel)
    for path in (before, after):
        if not path.is_file():
            raise CommandError(f"{path} is a directory; name a file" if path.is_dir() else f"no file {path}")
    with progress.working(f"comparing {before} with {after}"):
        found = comparison.compare(before, after, pairs)
    if as_json:
        show_json(shown.comparison_document(found))
    else:
        show(shown.render_comparison(found))
