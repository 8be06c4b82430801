"""Measure what probes change: registers, occupancy and time of a launch without and with them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from memlane.errors import MemlaneError
from memlane.instrument import TraceOptions
from memlane.launch import Kernel, Launch, LaunchTime, Layers
from memlane.measure.arena import Arena
from memlane.measure.instrumented_module import InstrumentedModule, borrow_instrumented, usage_of
from memlane.measure.memory import Snapshot
from memlane.ptx import once_for_each
from memlane.record import Footprint, Perturbation

ROUNDS = 5
"""Number of times a launch is timed each way; once on a target that models time."""


def perturbation_of(launch: Launch, probed: InstrumentedModule, times: Perturbation | None = None) -> Perturbation:
    """Return the footprints of a launch and of its instrumented copy, together with its `times` if they were taken.

    An error never loses a trace: values that cannot be read are unknown, with the reason.
    """
    times, target = times or Perturbation(), launch.kernel.target
    twin = probed.twin_of(launch)
    try:
        plain, with_probes = _footprint(launch), _footprint(twin)
    except Exception as error:  # An error here must not lose the trace.
        return replace(times, unknown=str(error).partition("\n")[0] if isinstance(error, MemlaneError) else repr(error))
    if plain is None or with_probes is None:
        return replace(times, unknown=f"{target.name} runs PTX")
    return replace(times, plain=plain, probed=with_probes)


def resident_blocks_of(launch: Launch) -> tuple[int | None, str]:
    """Return the number of blocks of the plain launch that fit on one multiprocessor, or None and the reason."""
    x, y, z = launch.block
    return _resident_blocks(launch.kernel, x * y * z, launch.shared_bytes)


@once_for_each
def _resident_blocks(kernel: Kernel, threads: int, shared_bytes: int) -> tuple[int | None, str]:
    try:
        return kernel.target.resident_blocks(kernel, threads, shared_bytes), ""
    except Exception as error:  # An error here must not lose the trace; the user reads the reason.
        return None, str(error) or type(error).__name__


def times_of(launch: Launch, options: TraceOptions, records_per_warp: int | None) -> Perturbation:
    """Return the median times of the launch without and with probes; its memory is restored."""
    plain, with_probes = _interleaved_runs(launch, [options], records_per_warp, 1 if launch.kernel.target.modelled else ROUNDS)
    return Perturbation(
        plain_ns=statistics.median(one.elapsed_ns for one in plain),
        probed_ns=statistics.median(one.elapsed_ns for one in with_probes),
        rounds=len(plain),
        plain_time=plain[0].model,
        probed_time=with_probes[0].model,
    )


def _interleaved_runs(launch: Launch, ways: Sequence[TraceOptions], records_per_warp: int | None, rounds: int) -> list[list[LaunchTime]]:
    """Return the times of the plain launch, then of the launch with each of these probes."""
    launch = replace(launch, layers=Layers())  # Observers of the launch do not see these launches.
    target, before = launch.kernel.target, Snapshot(launch)
    twins: list[tuple[Launch, Arena | None]] = [(launch, None)]
    times: list[list[LaunchTime]] = [[] for _ in range(1 + len(ways))]
    with ExitStack() as borrowed:
        for options in ways:
            probed = borrowed.enter_context(borrow_instrumented(launch.kernel.loaded, replace(options, tagged=True)))
            arena = Arena(probed, records_per_warp)
            borrowed.callback(arena.close)
            room = arena.make_room(replace(launch, runs_once=True))  # It runs once per emptying of the buffer.
            probed.twin.copy_constants()
            twins.append((probed.twin_of(launch, first=room.first), arena))
        warm_up = 0 if target.modelled else 1
        for turn in range(warm_up + rounds):
            for (one, buffer), samples in zip(twins, times, strict=True):
                if buffer is not None:
                    buffer.discard()
                before.restore()  # Last, so that every launch starts with the same caches.
                time = target.time_launches([one])
                if turn >= warm_up:
                    samples += time
        before.restore()
    return times


def _footprint(launch: Launch) -> Footprint | None:
    """Return registers, memory and resident blocks of a launch; None if the target has no assembled code."""
    kernel, (x, y, z) = launch.kernel, launch.block
    usage = usage_of(kernel.loaded)
    if usage is None:
        return None
    own = usage[kernel.name]
    return Footprint(
        registers=own.registers,
        local_bytes=own.local_bytes,
        shared_bytes=own.shared_bytes + launch.shared_bytes,
        resident_blocks=kernel.target.resident_blocks(kernel, x * y * z, launch.shared_bytes),
    )
