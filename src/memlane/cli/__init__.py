"""The command line: one module per command. `main` runs it."""

from memlane.cli.app import main

__all__ = ["main"]
