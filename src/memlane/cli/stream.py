"""Handle errors and encoding of standard output."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

_NOT_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
"""Error numbers of writes to standard output that are not bugs of memlane."""
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENFILE)
"""Error numbers of opening or inspecting a file that are not bugs of memlane."""


def replace_what_has_no_code() -> None:
    """Print a question mark for each character that the encoding lacks, so that pictures keep their shape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def flush() -> None:
    """Write buffered output. Drops it silently if the reader closed the pipe; raises OSError if it cannot be written."""
    if sys.stdout is None:  # Python sets None if the shell closed it
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_the_rest()
    except OSError:
        _drop_the_rest()
        raise


@contextmanager
def for_a_document(wanted: bool) -> Iterator[None]:
    """Redirect a program's standard output to standard error inside the `with` block if `wanted`: the document must stand alone."""
    with redirect_stdout(sys.stderr) if wanted else nullcontext():
        yield


def refusal(error: OSError) -> str | None:
    """Return the message for an error of writing to standard output; None for any other error."""
    if error.errno not in _NOT_OURS or error.filename is not None:
        return None
    return f"standard output cannot be written: {error.strerror}"


def refusal_of_file(error: OSError) -> str | None:
    """Return the message for a file that the operating system does not let this user access; None for any other error."""
    if error.errno not in (*_NOT_OURS, *_NOT_ALLOWED) or error.filename is None:
        return None
    return f"{os.fsdecode(error.filename)} is not accessible: {error.strerror}"


def is_of_output(error: OSError) -> bool:
    """Return whether an error means that standard output cannot be written: its reader closed it, or the disk is full."""
    return isinstance(error, BrokenPipeError) or refusal(error) is not None


def give_up(error: OSError) -> None:
    """Stop printing to standard output after `error`, and report it on standard error unless the reader closed the pipe."""
    _drop_the_rest()
    if not isinstance(error, BrokenPipeError):
        print(f"memlane: {refusal(error)}", file=sys.stderr)


def _drop_the_rest() -> None:
    """Redirect buffered output to the null device; Python would write it again at exit and print its own error message."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # it has no file descriptor
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
