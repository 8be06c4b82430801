"""Standard output: on a terminal with its colours and its width, in files and pipes as plain text that ends where it ends."""

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
    """Print the parts one below the other, `width` columns wide; by default as wide as the terminal, `COLUMNS`, or 80."""
    console = consoles.Console(width=width)
    if console.is_terminal:
        console.print(consoles.Group(*parts))
    else:
        typer.echo(report.to_text(consoles.Group(*parts), console.width), nl=False)


def show_json(document: Mapping[str, Any]) -> None:
    """Print the document, with escapes where the encoding of standard output lacks a character."""
    text = report.to_json(document)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text), indent=2) + "\n"
    typer.echo(text, nl=False)


def on_terminal() -> bool:
    """Whether somebody looks at standard output now, and not at what became of it."""
    return consoles.Console().is_terminal


def columns() -> int:
    """How wide standard output is: the terminal, `COLUMNS`, or 80."""
    return consoles.Console().width
