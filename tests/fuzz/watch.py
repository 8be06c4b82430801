"""Many inputs for a reader, in a process that is watched: a library may crash it, hang in it, or ask for all memory.

Inputs go in batches. When a process dies or stands still, the input that it had is a failure, and a new process does the batch without it.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tests.fuzz.engine import Failure, Tally, try_one
from tests.fuzz.readers import READERS

START = "forkserver"
"""How processes begin: from one that has loaded the readers and has no threads of libraries yet."""
BATCH = 100
STANDSTILL_S = 120.0
"""Seconds on the clock that one input may take before its process is killed; others may have the processor for long."""
ADDRESS_SPACE_BYTES = 4 << 30
"""What a process may map, so that one that asks for more gets a MemoryError."""
_PROCESS_INPUTS = 20_000
"""Inputs after which a process is replaced, because some readers remember what they have read."""


@dataclass
class _Watched:
    """A process at work, and where it stands."""

    process: Any
    results: Connection
    at: Any
    """The number of the input that it has, shared with it."""


def fuzz(
    name: str,
    seed: int,
    count: int,
    first: int = 0,
    seconds: float = float("inf"),
    report: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Give a reader `count` inputs, or as many as `seconds` allow; `report` hears of the tally after each batch."""
    total, ends = Tally(), time.monotonic() + seconds
    began, stop = first, first + count
    while began < stop and time.monotonic() < ends:
        began = _with_one_process(name, seed, began, min(stop, began + _PROCESS_INPUTS), ends, total, report)
    return total


def _with_one_process(name: str, seed: int, first: int, stop: int, ends: float, total: Tally, report: Callable[[Tally], None]) -> int:
    """Do batches with one process while it lives, and return where the next one is to begin."""
    skipped: set[int] = set()
    watched = _start(name, seed, first, stop, skipped)
    try:
        while first < stop and time.monotonic() < ends:
            tally = _answer(watched)
            if tally is not None:
                total.add(tally)
                first = min(stop, first + BATCH)
                report(total)
                continue
            number = watched.at.value
            total.fail(_death(watched, number))
            total.inputs += 1
            skipped.add(number)
            _end(watched)
            watched = _start(name, seed, first, stop, skipped)
    finally:
        _end(watched)
    return first


def _start(name: str, seed: int, first: int, stop: int, skipped: Collection[int]) -> _Watched:
    context: Any = multiprocessing.get_context(START)
    context.set_forkserver_preload(["tests.fuzz.readers"])
    results, sending = context.Pipe(duplex=False)
    at = context.Value("q", -1, lock=False)
    process = context.Process(target=_work, args=(name, seed, first, stop, frozenset(skipped), at, sending), daemon=True)
    process.start()
    sending.close()
    return _Watched(process, results, at)


def _answer(watched: _Watched) -> Tally | None:
    """The tally of a batch; None if the process died or stands still."""
    number, since = watched.at.value, time.monotonic()
    while True:
        try:
            if watched.results.poll(0.5):
                return watched.results.recv()  # type: ignore[no-any-return]
        except EOFError:
            watched.process.join()
            return None
        if watched.at.value != number:
            number, since = watched.at.value, time.monotonic()
        elif number >= 0 and time.monotonic() - since > STANDSTILL_S:  # before the first input it makes its corpus
            return None


def _death(watched: _Watched, number: int) -> Failure:
    if watched.process.exitcode is None:
        return Failure("hangs", f"took more than {STANDSTILL_S:.0f} s", number)
    return Failure(f"process died with {watched.process.exitcode}", f"exit code {watched.process.exitcode}", number)


def _end(watched: _Watched) -> None:
    watched.process.kill()
    watched.process.join()
    watched.results.close()


def _work(name: str, seed: int, first: int, stop: int, skipped: Collection[int], at: Any, sending: Connection) -> None:
    os.environ["MEMLANE_CACHE"] = "0"
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    reader = READERS[name]
    for begin in range(first, stop, BATCH):
        tally = Tally()
        for number in range(begin, min(stop, begin + BATCH)):
            if number not in skipped:
                at.value = number
                try_one(reader, reader.input(seed, number), number, tally)
        sending.send(tally)
