"""Where results go and what is said of them."""

from __future__ import annotations

from pathlib import Path

from memlane.errors import CommandError
from memlane.record import check_output


def output_path(given: Path | None, source: Path, suffix: str, force: bool) -> Path:
    """The file to write: `given`, else named after `source`, in the working directory.

    CommandError if it is `source` itself, which `force` is not about; RecordError if it exists and not `force`, or cannot be written.
    """
    path = not_the_input(given or Path(source.stem + suffix), source)
    check_output(path, force)
    return path


def not_the_input(path: Path, source: Path) -> Path:
    """`path`; CommandError if it is `source`."""
    if path.exists() and path.samefile(source):
        raise CommandError(f"{path} is the input; name another file with --output")
    return path
