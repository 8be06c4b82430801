"""Writing a file, or a directory of files, whole or not at all: all that memlane leaves behind goes through here."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from memlane.errors import RecordError


def check_output(path: str | os.PathLike[str], force: bool = False) -> None:
    """Raise RecordError if `replacing(path, force)` would refuse. Long work asks before it starts."""
    target = Path(path)
    if target.is_dir():
        raise RecordError(f"{path} is a directory; name a file")
    if not target.parent.is_dir():
        raise RecordError(f"{path} cannot be written: there is no directory {target.parent}")
    if target.is_file() and not force:
        raise RecordError(f"{path} exists; pass --force (force=True in Python) to replace it")
    if target.is_file() or not target.exists():  # and no device
        _check_folder(path, Path(os.path.realpath(path)).parent)


def _check_folder(path: str | os.PathLike[str], folder: Path) -> None:
    """A file is made beside the one that it becomes, so the directory must let files be made in it."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RecordError(
            f"{path} cannot be written: you have no permission to create files in the directory {folder}; name a file elsewhere"
        )


@contextmanager
def replacing(path: str | os.PathLike[str], force: bool = False) -> Iterator[BinaryIO]:
    """A binary stream whose content becomes the file `path` when the block ends well; if not, an older file stays as it was.

    The content goes to a temporary neighbour first, so that the last step is one rename in one file system. Devices and pipes are written
    directly. RecordError if the file exists and not `force`, or if the operating system refuses to write it.
    """
    check_output(path, force)
    given, final = Path(path), Path(os.path.realpath(path))
    is_device = given.exists() and not given.is_file()  # asked of the name: what /dev/stdout leads to may have none
    scratch = given if is_device else final.with_name(f".memlane-{secrets.token_hex(8)}.part")
    try:
        with scratch.open("wb" if is_device else "xb") as stream:
            yield stream
            stream.flush()
            if not is_device:
                os.fsync(stream.fileno())  # a full disk may show only here
        if not is_device:
            scratch.replace(final)
    except OSError as error:
        rest = "the file that was there is unchanged" if final.is_file() else "no incomplete file was left"
        raise RecordError(f"{path} cannot be written: {error.strerror or error}; {rest}") from error
    finally:
        if not is_device:
            scratch.unlink(missing_ok=True)


def check_output_directory(path: str | os.PathLike[str], anchor: str, force: bool = False) -> None:
    """As `check_output`, for `replacing_directory`."""
    target = Path(path)
    if not target.parent.is_dir():
        raise RecordError(f"{path} cannot be written: there is no directory {target.parent}")
    if target.is_dir() and not (target / anchor).is_file():
        raise RecordError(f"{path} is a directory without {anchor}, so it may hold other files; name another directory")
    if target.exists() and not target.is_dir():
        raise RecordError(f"{path} is a file, but this format is a directory; name another path")
    if target.exists() and not force:
        raise RecordError(f"{path} exists; pass --force (force=True in Python) to replace it")
    _check_folder(path, Path(os.path.realpath(path)).parent)


@contextmanager
def replacing_directory(path: str | os.PathLike[str], anchor: str, force: bool = False) -> Iterator[Path]:
    """An empty directory that becomes `path` when the block ends well; if not, an older one stays as it was.

    An older one is replaced only with `force`, and only if it has the file `anchor`, which tells that it is of the same kind. It is moved
    away first: whoever is killed between two renames finds it beside `path`, whole. RecordError as for `replacing`.
    """
    check_output_directory(path, anchor, force)
    final = Path(os.path.realpath(path))
    scratch, old = (final.with_name(f".memlane-{secrets.token_hex(8)}.{suffix}") for suffix in ("part", "old"))
    try:
        scratch.mkdir()
        yield scratch
        if hasattr(os, "sync"):
            os.sync()  # once: an archive may have thousands of files
        if final.exists():
            final.replace(old)
        scratch.replace(final)
    except OSError as error:
        rest = "the directory that was there is unchanged" if final.is_dir() else "no incomplete file was left"
        raise RecordError(f"{path} cannot be written: {error.strerror or error}; {rest}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if final.is_dir():
            shutil.rmtree(old, ignore_errors=True)
