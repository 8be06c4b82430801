"""`memlane doctor`: what this machine can do."""

from __future__ import annotations

import typer

from memlane.targets import describe


def doctor() -> None:
    """Say what this machine can do, and the command that installs what is missing."""
    for finding in describe():
        typer.echo(str(finding))
