"""Run the command line; each command is a module of this package. `main` is the entry point.

A command's help text is loaded only when it is asked for, and the modules it needs (`later`) only when it runs. Until they are loaded,
Ctrl-C ends the process at once with a one-line message; Python would print a traceback of the import.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import current_thread, main_thread

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells: 128 plus the signal's number."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, the code of a `MemlaneError`, 2 for a wrong command line, or 130 after Ctrl-C.

    An error that a user can cause is one message on standard error. Any other exception is a bug and keeps its traceback.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    with loading():
        app = import_module("memlane.cli.app")
        application = app.application(arguments)
    return int(app.run(application, arguments))


@contextmanager
def loading() -> Iterator[None]:
    """End the process at once on Ctrl-C inside the `with` block, which loads modules.

    No work has begun that needs cleaning up, and an exception could surface anywhere in an import. Does nothing outside the main thread, or
    if another handler for the signal is installed.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    os.write(2, b"memlane: interrupted\n")
    os._exit(INTERRUPTED)
