"""Check output paths, and report written files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from memlane.cli.later import later
from memlane.errors import CommandError, MemlaneError

if TYPE_CHECKING:
    from memlane import record
    from memlane.record import Trace
else:
    record = later("memlane.record")


@contextmanager
def wrong_use() -> Iterator[None]:
    """Turn any MemlaneError inside the `with` block into a CommandError, whose exit code means a wrong command line."""
    try:
        yield
    except CommandError:
        raise
    except MemlaneError as error:
        raise CommandError(str(error)) from error


def may_write(path: Path, source: Path, force: bool) -> Path:
    """Return `path` as an absolute path, because a program may change the working directory.

    Raises CommandError if it is `source` itself (even with `force`), if it exists without `force`, or if it cannot be written.
    """
    not_the_input(path, source)
    with wrong_use():
        record.check_output(path, force)
    return path.absolute()


def may_fill(folder: Path) -> Path:
    """Return `folder`, a directory for output files, which may not exist yet. Raises CommandError if no files can be created in it."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise CommandError(f"{there} is a file, but several files will be written to {folder}; name a directory with --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise CommandError(
            f"{folder} cannot be written: you have no permission to create files in the directory {there.absolute()}; "
            f"name another with --out"
        )
    return folder


def output_path(given: Path | None, source: Path, suffix: str, force: bool, is_replaceable: Callable[[Path], bool] | None = None) -> Path:
    """Return the file to write: `given`, else a name derived from `source`, in the working directory.

    Raises CommandError as `may_write` does, except for an existing file for which `is_replaceable` returns True.
    """
    path = given or Path(source.stem + suffix)
    may_write(path, source, force or (is_replaceable is not None and is_replaceable(path)))
    return path


def tell_of(path: Path, name: Path | None = None) -> None:
    """Print that a file was written, under the `name` the user gave; to standard error if the path may be standard output itself."""
    typer.echo(f"Wrote {name or path}", err=not (path.is_file() or path.is_dir()))


def recorded(path: Path) -> Trace:
    """Return the trace in a record file. Raises CommandError if there is no such file, RecordError if it is not a record."""
    if not path.exists():
        raise CommandError(f"{path}: there is no such file")
    return record.load(path)


def not_the_input(path: Path, source: Path) -> Path:
    """Return `path`. Raises CommandError if it is `source`, or `-`, which other programs take for standard output."""
    if str(path) == "-":
        raise CommandError("--output - does not mean standard output; name a file, such as out.csv or /dev/stdout")
    if path.exists() and path.samefile(source):
        raise CommandError(f"{path} is the input; name another file with --output")
    return path
