"""Launches whose transactions have limits: `ml.check(kernel[grid, block], ..., max_sectors_per_request=4)` and the mark `memlane`."""

from __future__ import annotations

from collections.abc import Sequence

from memlane.diagnose.limits import Limits
from memlane.errors import CheckFailed
from memlane.launch import KernelCall, Launch, Observation, Report, observed, observing
from memlane.measure import Checker, Counter
from memlane.measure import check as check_correctness
from memlane.measure.apart import apart
from memlane.measure.counter import counts_of
from memlane.record import Counts


def check(
    call: KernelCall,
    *args: object,
    seed: int | None = None,
    max_sectors_per_request: float | None = None,
    max_conflicts: float | None = None,
    max_excess_bytes: float | None = None,
) -> list[Report]:
    """Launch `call(*args)` once on the emulator, and report what no kernel may do: accesses out of bounds, misaligned or to freed memory,
    reads of what was never written, data races, barriers that not all threads reach, mismatched masks.

    assert ml.check(kernel[grid, block], out, a, n) == []
    ml.check(kernel[grid, block], out, a, n, max_sectors_per_request=4, max_conflicts=0)

    The launch goes on after a finding; accesses that would do harm are left out. Otherwise memory is left as the plain launch would leave
    it. `seed` shuffles the order of the warps.

    With limits the transactions are counted too, and CheckFailed is raised with the finding where an operation on a source line is beyond
    one: sectors of global memory in the mean request, wavefronts of shared memory beyond the ideal, bytes of sectors beyond the ideal.
    MemlaneError for a limit that is no number from 0 on, and where the target is no emulator.
    """
    limits = Limits(max_sectors_per_request, max_conflicts, max_excess_bytes)
    if not limits.any:
        return check_correctness(call, *args, seed=seed)
    checker, counter, launch = Checker(seed=seed), Counter(), call.bind(*args)
    with apart(launch):
        with observing(checker), observing(counter):
            launch.kernel.target.launch(observed(launch))
        _require(limits, counter.finish(), launch)
    return list(checker.reports)


def judge(limits: Limits, launch: Launch, seen: Observation) -> None:
    """CheckFailed if what was counted in a launch is beyond the limits."""
    _require(limits, [counts_of(seen)], launch)


def _require(limits: Limits, counted: Sequence[Counts], launch: Launch) -> None:
    told = [text for counts in counted for text in limits.beyond(counts, launch.kernel.module.sources)]
    if told:
        raise CheckFailed("\n".join(told))
