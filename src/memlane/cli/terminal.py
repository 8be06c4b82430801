"""Print to standard output: with colours and wrapped on a terminal, as plain unwrapped text to files and pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from memlane.cli.later import later

if TYPE_CHECKING:
    from rich import console as consoles
    from rich.console import RenderableType

    from memlane import report
else:
    consoles = later("rich.console")
    report = later("memlane.report")


def show(*parts: RenderableType, width: int | None = None) -> None:
    """Print the parts one below the other, `width` columns wide; the default is the width of the terminal, `COLUMNS`, or 80."""
    console = consoles.Console(width=width)
    if console.is_terminal:
        console.print(consoles.Group(*parts))
    else:
        typer.echo(report.to_text(consoles.Group(*parts), console.width), nl=False)


def show_json(document: Mapping[str, Any]) -> None:
    """Print the document, escaping characters that the encoding of standard output lacks."""
    text = report.to_json(document)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text), indent=2) + "\n"
    typer.echo(text, nl=False)


def on_terminal() -> bool:
    """Return whether standard output is a terminal at the moment; it may be redirected."""
    return consoles.Console().is_terminal


def columns() -> int:
    """Return the width of standard output: that of the terminal, `COLUMNS`, or 80."""
    return consoles.Console().width
