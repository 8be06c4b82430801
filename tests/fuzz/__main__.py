"""`python -m tests.fuzz`: mutated inputs for the readers, and what failed.

python -m tests.fuzz --reader ptx --seed 7 --number 100000
python -m tests.fuzz --reader ptx --seed 7 --only 4711          the one input, with the whole traceback
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from memlane.errors import MemlaneError
from tests.fuzz.engine import Tally
from tests.fuzz.readers import READERS
from tests.fuzz.watch import fuzz


def main() -> int:
    """Fuzz the readers that were asked for. Returns 1 if any failed."""
    options = argparse.ArgumentParser(description="mutated inputs for everything that reads what comes from outside")
    options.add_argument("--reader", action="append", choices=READERS, help="a reader; may be repeated (default: all)")
    options.add_argument("--seed", type=int, default=0, help="what the inputs follow from (default 0)")
    options.add_argument("--number", type=int, default=2000, help="inputs for each reader (default 2000)")
    options.add_argument("--seconds", type=float, default=float("inf"), help="seconds for each reader, if the number takes longer")
    options.add_argument("--only", type=int, metavar="INPUT", help="the one input of this number, with what it leads to")
    given = options.parse_args()
    names = given.reader or list(READERS)
    if given.only is not None:
        return max(_show(name, given.seed, given.only) for name in names)
    return max(_fuzz(name, given.seed, given.number, given.seconds) for name in names)


def _fuzz(name: str, seed: int, number: int, seconds: float) -> int:
    began = time.monotonic()
    tally = fuzz(name, seed, number, seconds=seconds)
    print(line(name, tally, time.monotonic() - began), flush=True)
    for failure in tally.failures.values():
        print(f"    {failure.key}: python -m tests.fuzz --reader '{name}' --seed {seed} --only {failure.number}", flush=True)
        print(f"        {(failure.what.strip().splitlines() or [''])[-1][:200]}", flush=True)
    return bool(tally.failures)


def line(name: str, tally: Tally, took: float) -> str:
    """Return a tally in one line."""
    return (
        f"{name}: {tally.inputs:,} inputs, {tally.accepted:,} accepted, {tally.failed:,} failed in {len(tally.failures)} ways, "
        f"slowest {tally.slowest_s:.2f} s (input {tally.slowest}), {tally.inputs / took:,.0f} a second"
    )


def _show(name: str, seed: int, number: int) -> int:
    reader = READERS[name]
    given = reader.input(seed, number)
    print(f"{given!r}" if isinstance(given, bytes) or len(given) < 80 else given)
    began = time.process_time()
    try:
        read = reader.read(given)
        if reader.follow is not None:
            reader.follow(read)
        print("accepted", end="")
    except MemlaneError as error:
        print(f"{type(error).__name__}: {error}", end="")
    except Exception:
        traceback.print_exc()
        return 1
    print(f" after {time.process_time() - began:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
