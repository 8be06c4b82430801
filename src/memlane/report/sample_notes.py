"""Report which part of the launches was traced, and what its totals represent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from memlane.number_format import rounded
from memlane.record import LaunchInfo, Sample, Trace, kernel_label


def sample_notes(trace: Trace) -> list[str]:
    """Return one line for each traced part of a kernel, and which columns cover the part alone; none if everything was traced."""
    samples = [(launch, launch.sample) for launch in trace.launches if launch.sample is not None]
    notes = list(dict.fromkeys(f"{kernel_label(launch.kernel)}: traced {sample}{_weight(sample)}." for launch, sample in samples))
    if notes:
        counted = any(launch.counts for launch, _ in samples)
        notes.append(
            "Accesses and cycles are those of the traced part, not scaled; "
            + ("transactions per request were counted in whole launches." if counted else "transactions were not counted.")
        )
    if any(sample.executions is not None for _, sample in samples):
        notes.append("The shares of warp life do not include executions outside the window.")
    return notes


def samples_of(launches: Sequence[LaunchInfo]) -> list[dict[str, Any]]:
    """Return the fields of `Sample` with its `weight` and its `text`, by the id of the launch."""
    return [
        {"launch": launch.id, **asdict(launch.sample), "weight": launch.sample.weight, "text": str(launch.sample)}
        for launch in launches
        if launch.sample is not None
    ]


def _weight(sample: Sample) -> str:
    if sample.every == 1:
        return ""
    chosen, window = f"{sample.warps_chosen:,}", f"{sample.warps_in_window:,}"
    return f"; {chosen} of {window} warps, so each access stands for {rounded(sample.weight)}"
