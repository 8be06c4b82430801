"""Write a file, or a directory of files, completely or not at all. All output of memlane goes through this module."""

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
    """Raise RecordError if `replacing(path, force)` would refuse. Call it before long work."""
    target = Path(path)
    if target.is_dir():
        raise RecordError(f"{path} is a directory; name a file")
    if not target.parent.is_dir():
        raise RecordError(f"{path} cannot be written: there is no directory {target.parent}")
    if target.is_file() and not force:
        raise RecordError(f"{path} exists; pass --force (force=True in Python) to replace it")
    if target.is_file() or not target.exists():  # and not a device
        _check_folder(path, Path(os.path.realpath(path)).parent)


def _check_folder(path: str | os.PathLike[str], folder: Path) -> None:
    """Raise RecordError if files cannot be created in the directory: a file is written next to the one that it replaces."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RecordError(
            f"{path} cannot be written: you have no permission to create files in the directory {folder}; name a file elsewhere"
        )


@contextmanager
def replacing(path: str | os.PathLike[str], force: bool = False) -> Iterator[BinaryIO]:
    """Yield a binary stream whose contents become the file `path` when the block succeeds; if not, an older file stays unchanged.

    The contents go to a temporary file in the same directory first, so that the last step is one rename in one file system. Devices and
    pipes are written directly. Raises RecordError if the file exists without `force`, or if the operating system refuses to write it.
    """
    check_output(path, force)
    given, final = Path(path), Path(os.path.realpath(path))
    is_device = given.exists() and not given.is_file()  # checked by name: the target of /dev/stdout may have none
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
    """Raise RecordError if `replacing_directory(path, anchor, force)` would refuse."""
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
    """Yield an empty directory that becomes `path` when the block succeeds; if not, an older one stays unchanged.

    An older one is replaced only with `force`, and only if it contains the file `anchor`, which shows that it is of the same kind. It is
    moved away first: if the process is killed between the two renames, it remains next to `path`, complete. Raises RecordError as
    `replacing` does.
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
