"""Standard output as a stream, whatever is printed to it."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

_NOT_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
"""Why standard output may refuse to be written, which is no fault of memlane."""
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENFILE)
"""Why a file may not be opened or looked at, which is none either."""


def replace_what_has_no_code() -> None:
    """From now on print a question mark for a character that the encoding lacks, one for one, so that pictures keep their shape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def flush() -> None:
    """Write what is still held back. Where nobody reads any more, the rest is dropped without a word. OSError if it cannot be written."""
    if sys.stdout is None:  # so Python has it where the shell closed it
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
    """Inside the `with` block, if `wanted`, what a program prints goes to standard error: standard output is for the document alone."""
    with redirect_stdout(sys.stderr) if wanted else nullcontext():
        yield


def refusal(error: OSError) -> str | None:
    """What to say of an error that writing gives; None if it is one of something else."""
    if error.errno not in _NOT_OURS or error.filename is not None:
        return None
    return f"standard output cannot be written: {error.strerror}"


def refusal_of_file(error: OSError) -> str | None:
    """What to say where the operating system refuses a file to this user; None if an error is of another kind."""
    if error.errno not in (*_NOT_OURS, *_NOT_ALLOWED) or error.filename is None:
        return None
    return f"{os.fsdecode(error.filename)} is not accessible: {error.strerror}"


def is_of_output(error: OSError) -> bool:
    """Whether an error says that standard output takes no more: its reader has gone, or its disk is full."""
    return isinstance(error, BrokenPipeError) or refusal(error) is not None


def give_up(error: OSError) -> None:
    """Print nothing more to standard output, which gave `error`, and say why on standard error unless its reader has gone."""
    _drop_the_rest()
    if not isinstance(error, BrokenPipeError):
        print(f"memlane: {refusal(error)}", file=sys.stderr)


def _drop_the_rest() -> None:
    """Send what is left nowhere: Python would try again when it ends, and say in words of its own that it could not."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # no file of the system
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
