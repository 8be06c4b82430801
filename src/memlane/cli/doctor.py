"""`memlane doctor`: what this machine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from memlane.cli.later import later

if TYPE_CHECKING:
    from memlane import targets
else:
    targets = later("memlane.targets")


def doctor() -> None:
    """Say what this machine can do, and the command that installs what is missing."""
    for finding in targets.describe():
        typer.echo(str(finding))
