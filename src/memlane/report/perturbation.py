"""Report what probes changed, in one line for each kernel and launch configuration."""

from __future__ import annotations

from memlane.number_format import plural, rounded
from memlane.record import Footprint, LaunchInfo, Perturbation, Trace, kernel_label


def perturbation_notes(trace: Trace) -> list[str]:
    """Return registers, local memory, resident blocks and, where measured, times without and with probes.

    For the emulator, which has no registers to report, only times.
    """
    told = [
        (launch, launch.perturbation)
        for launch in trace.launches
        if launch.perturbation is not None and (launch.perturbation.plain_ns is not None or not trace.modelled)
    ]
    return list(dict.fromkeys(_note(launch, found, trace.modelled) for launch, found in told))


def staging_notes(trace: Trace) -> list[str]:
    """Return notes on the staging of records, for launches where shared memory was requested or used.

    Also tells why it is not known how many blocks fit on a multiprocessor, where that is so.
    """
    told = [(kernel_label(launch.kernel), launch.staging) for launch in trace.launches if launch.staging is not None]
    notes = [f"Records of {kernel} went to {staging}." for kernel, staging in told if staging.considered]
    notes += [
        f"It is not known how many blocks of {kernel} a multiprocessor holds: {staging.unknown}"
        for kernel, staging in told
        if staging.unknown
    ]
    return list(dict.fromkeys(notes))


def _note(launch: LaunchInfo, found: Perturbation, modelled: bool) -> str:
    facts = [_footprints(found.plain, found.probed)] if found.plain is not None and found.probed is not None else []
    if not facts:
        facts.append(f"registers and resident blocks are not known{f': {found.unknown}' if found.unknown else ''}")
    if found.plain_ns is not None and found.probed_ns is not None:
        how = "modelled" if modelled else f"median of {found.rounds}"
        if found.plain_time is not None and found.probed_time is not None:
            how += f", limited by {found.plain_time.limited_by} -> {found.probed_time.limited_by}"
        ratio = "" if found.slowdown is None else f" ({rounded(found.slowdown)} times, {how})"
        facts.append(f"time {rounded(found.plain_ns / 1e3)} -> {rounded(found.probed_ns / 1e3)} us{ratio}")
    if not modelled:
        facts.append("hit rate of L1 unknown: counters need Nsight Compute")
    return f"Without -> with probes, {kernel_label(launch.kernel)}: {'; '.join(facts)}."


def _footprints(plain: Footprint, probed: Footprint) -> str:
    return (
        f"registers {plain.registers} -> {probed.registers}, local memory {plain.local_bytes} -> {plural(probed.local_bytes, 'byte')} "
        f"per thread; blocks per multiprocessor {plain.resident_blocks} -> {probed.resident_blocks}"
    )
