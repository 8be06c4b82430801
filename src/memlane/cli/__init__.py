"""The command line: one module per command. `main` runs it.

What a command says of itself is loaded when it is asked for, and what it needs (`later`) when it runs. Until that is there, Ctrl-C ends
the process at once, with one line: Python would print where in which import it was.
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
"""The exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


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
    """While modules are loaded, Ctrl-C ends the process: nothing has begun that would have to be put right, and an exception may end up
    anywhere in an import. Left alone where somebody else handles it, or where this is not the thread that can."""
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
