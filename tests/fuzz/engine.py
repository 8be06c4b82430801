"""One input of a reader, and what counts as a failure.

A reader may accept an input or refuse it with a `MemlaneError`; anything else is a failure. So is an input that takes long or much memory,
one whose message cannot be read, and one that is accepted and then fails in what comes behind the reader.
"""

from __future__ import annotations

import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from memlane.errors import MemlaneError, SourceError

MOST_SECONDS = 3.0
"""Processor time for one input."""
MOST_BYTES = 512 << 20
"""What a process may grow by with one input."""
LONGEST_MESSAGE = 20_000
"""Characters."""
_PACKAGE = str(Path(__file__).parents[2] / "src" / "memlane")


@dataclass(frozen=True)
class Reader:
    """Something that reads what comes from outside."""

    name: str
    corpus: Callable[[], Sequence[Any]]
    """What is mutated, in a form that `mutated` understands; made once."""
    mutated: Callable[[Random, Sequence[Any]], Any]
    read: Callable[[Any], object]
    """What is called with an input. It raises MemlaneError for what it refuses."""
    follow: Callable[[Any], object] | None = None
    """What is done with something that was accepted."""
    follow_every: int = 1
    """Only each n-th accepted input is followed, where that is slow."""
    words: bool = False
    """Whether inputs are words of a user, which messages may repeat in full."""
    seconds: float = MOST_SECONDS
    """Processor time that an input may take."""
    short: int = 100
    """Inputs of the short run of the tests, which takes about a second."""

    def input(self, seed: int, number: int) -> Any:
        """Return the input of that number; the same for the same seed and corpus."""
        return self.mutated(Random(f"{self.name} {seed} {number}"), self.corpus())


@dataclass(frozen=True)
class Failure:
    """What went wrong with an input."""

    key: str
    """The kind of failure and the place in memlane where it came from: equal for what is probably one defect."""
    what: str
    number: int = -1
    """The number of the input."""


@dataclass
class Tally:
    """What became of some inputs."""

    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    slowest: int = -1
    grown_bytes: int = 0
    failed: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)
    """The first one of each key."""

    def add(self, other: Tally) -> None:
        """Take in those of another run."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.seconds += other.seconds
        self.failed += other.failed
        self.grown_bytes = max(self.grown_bytes, other.grown_bytes)
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        self.failures = {**other.failures, **self.failures}

    def fail(self, failure: Failure) -> None:
        """Note a failure."""
        self.failed += 1
        self.failures.setdefault(failure.key, failure)


def run(reader: Reader, seed: int, first: int, count: int) -> Tally:
    """Give a reader the inputs `first` to `first + count - 1`."""
    tally = Tally()
    for number in range(first, first + count):
        try_one(reader, reader.input(seed, number), number, tally)
    return tally


def try_one(reader: Reader, given: Any, number: int, tally: Tally) -> None:
    """Give a reader one input, and note in `tally` what becomes of it."""
    held, began = _peak_bytes(), time.process_time()
    failure: Failure | None = None
    accepted = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read = reader.read(given)
            accepted = True
            if reader.follow is not None and number % reader.follow_every == 0:
                reader.follow(read)
    except MemlaneError as error:
        failure = wrong_message(error, LONGEST_MESSAGE + (4 * len(given) if reader.words else 0))
    except Exception as error:
        failure = Failure(f"{type(error).__name__} in {place_of(error)}", "".join(traceback.format_exception(error, limit=-12))[-4000:])
    took, grown = time.process_time() - began, _peak_bytes() - held
    if took > reader.seconds:
        failure = failure or Failure("slow", f"took {took:.1f} s")
    if grown > MOST_BYTES:
        failure = failure or Failure("memory", f"grew by {grown >> 20:,} MiB")
    tally.inputs += 1
    tally.accepted += accepted
    tally.seconds += took
    tally.grown_bytes = max(tally.grown_bytes, grown)
    if took > tally.slowest_s:
        tally.slowest_s, tally.slowest = took, number
    if failure is not None:
        tally.fail(Failure(failure.key, failure.what, number))


def wrong_message(error: MemlaneError, longest: int) -> Failure | None:
    """Return what is wrong with a message: that it is empty or endless, that it holds what no terminal can show, or that it names no place
    in a text that was read."""
    text = str(error.args[0]) if error.args else ""  # as it was written: what is shown has a bound
    where = f"{type(error).__name__} from {place_of(error)}"
    if not text.strip():
        return Failure(f"empty message: {where}", "")
    if len(text) > longest:
        return Failure(f"message too long: {where}", f"{len(text):,} characters: {text[:300]!r}")
    if isinstance(error, SourceError) and error.span is None and not error.origin:
        return Failure(f"message without a place: {where}", text[:500])
    return None


def place_of(error: BaseException) -> str:
    """Return the innermost place in memlane from which an error came."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(_PACKAGE)]
    if not frames:
        frames = list(traceback.extract_tb(error.__traceback__))[-1:]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "nowhere"


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
