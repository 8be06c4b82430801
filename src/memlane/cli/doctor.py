"""Implement `memlane doctor`: list what this machine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from memlane.cli.later import later

if TYPE_CHECKING:
    from memlane import targets
else:
    targets = later("memlane.targets")


def doctor() -> None:
    """List what is installed and what this machine can do, with the command that installs each missing part."""
    for finding in targets.describe():
        typer.echo(str(finding))
