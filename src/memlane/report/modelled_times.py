"""Report what limited modelled times: a sentence for each kernel, and numbers for each launch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from memlane.chip import ModelledTime
from memlane.record import LaunchInfo, Trace, kernel_label

COSTS = (
    "Costs are warp cycles and do not include waits for bandwidth. A kernel whose limit is not latency gets faster only if less data "
    "moves through the part that limits it."
)


def time_notes(trace: Trace) -> list[str]:
    """Return for each kernel what limited its longest launch: without probes where that was timed, else with them."""
    longest: dict[str, tuple[ModelledTime, bool]] = {}
    for launch in trace.launches:
        time, plain = time_of(launch)
        known = longest.get(launch.kernel)
        if time is not None and (known is None or time.cycles > known[0].cycles):
            longest[launch.kernel] = time, plain
    return [_note(kernel, time, plain, trace) for kernel, (time, plain) in longest.items()]


def limited_by(launch: LaunchInfo) -> str:
    """Return what limited the modelled time of a launch, in a few words; empty where no time was modelled."""
    time, plain = time_of(launch)
    return "" if time is None else f"{time.short}{'' if plain else ', with its probes'}"


def times_document(trace: Trace) -> list[dict[str, Any]]:
    """Return the modelled times of the launches as plain data."""
    found = []
    for launch in trace.launches:
        time, plain = time_of(launch)
        if time is not None:
            found.append(
                {"launch": launch.id, "kernel": launch.kernel, "with_probes": not plain, "limited_by": time.limited_by, **asdict(time)}
            )
    return found


def time_of(launch: LaunchInfo) -> tuple[ModelledTime | None, bool]:
    """Return the modelled time of a launch, None if there is none, and whether it is that without probes."""
    if launch.perturbation is not None and launch.perturbation.plain_time is not None:
        return launch.perturbation.plain_time, True
    return launch.time, False


def _note(kernel: str, time: ModelledTime, plain: bool, trace: Trace) -> str:
    several = sum(launch.kernel == kernel for launch in trace.launches) > 1
    which = f"Modelled time of {kernel_label(kernel)}{' (its longest launch)' if several else ''}"
    how = "without probes" if plain else "with its probes, including the traffic of their records"
    return f"{which} {how}: {time.sentence(trace.clock_mhz)}."
