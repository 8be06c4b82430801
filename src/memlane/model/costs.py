"""Model the times of copies and launches as a latency plus bytes over a bandwidth, with the numbers in chip files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from memlane.chip import Chip
from memlane.errors import BadPlan, ChipError
from memlane.model.engine import Resources, Work, simulate
from memlane.plan import Copy, DeviceCall, Execution, HostCall, Launch, Plan, Put, Timeline, Together, Wait, executions

KernelTime = Callable[[Launch, int], float]
"""A function from a launch and a device number to the kernel's duration in ns, without the launch overhead."""


def predicted(plan: Plan, chips: Sequence[Chip], kernel_ns: KernelTime, *, call_ns: Callable[[HostCall], float] | None = None) -> Timeline:
    """Predict when each step of a plan runs on devices with these chips, without running anything.

    `kernel_ns(launch, device)` returns a kernel's own duration, as `ml.time` measures it; the launch overhead comes from the chip file.
    `call_ns(call)` returns the duration of a host function (default 0). Kernels on one device run one after another, as large ones do;
    copies to the host, from the host, inside a device and between devices overlap with them and with each other. Raises ChipError, with the
    name of the entry, if a chip file lacks a number that the plan needs, and BadPlan if chips are missing.
    """
    if plan.devices and plan.devices[-1] >= len(chips):
        raise BadPlan(f"the plan uses device {plan.devices[-1]}, but chips were given for devices 0 to {len(chips) - 1} only")
    order = executions(plan)
    return simulate(order, [_with_kernels(execution, fixed_work(execution, chips), kernel_ns, call_ns) for execution in order])


def _with_kernels(execution: Execution, fixed: Work, kernel_ns: KernelTime, call_ns: Callable[[HostCall], float] | None) -> Work:
    action = execution.action
    if isinstance(action, HostCall):
        return fixed if call_ns is None else replace(fixed, elapsed_ns=call_ns(action))
    took = [kernel_ns(launch, device) for device, launch in launches_of(execution)]
    return replace(fixed, elapsed_ns=max(took)) if took else fixed


def launches_of(execution: Execution) -> tuple[tuple[int, Launch], ...]:
    """Return the launches of an execution with their devices: one, several concurrent ones, or none."""
    action = execution.action
    if isinstance(action, Together):
        return action.launches
    return ((execution.step.device or 0, action),) if isinstance(action, Launch) else ()


def fixed_work(execution: Execution, chips: Sequence[Chip]) -> Work:
    """Return the time of an execution by the numbers in chip files, without its kernels or its host function, and the resources that it
    occupies.

    Kernels of one execution start together. Raises ChipError if a number is unknown.
    """
    action = execution.action
    if isinstance(action, Copy):
        return copy_work(action, chips)
    if isinstance(action, HostCall | DeviceCall):
        return Work(0.0, (("host", execution.step.queue),))
    if isinstance(action, Put):
        return _put_work(action, execution.step.device or 0, chips)
    if isinstance(action, Wait):
        return Work(0.0, (), 1e3 * _required(chips[execution.step.device or 0], "flag_us"))
    devices = [device for device, _ in launches_of(execution)]
    latency = 1e3 * max(_required(chips[device], "launch_us") for device in devices)
    return Work(0.0, tuple(("device", device) for device in devices), latency)


def roofline_ns(chip: Chip, *, dram_read: float = 0, dram_written: float = 0, l2_read: float = 0, flops: float = 0) -> float:
    """Return the roofline bound of a kernel that occupies the whole chip, in ns: a first estimate without a measurement.

    It is the maximum of the times for its DRAM bytes, for its L2 bytes, and for its operations on 32-bit floats (a fused multiply-add is
    two) at the rates of the chip file. L2 rates missing in the file count as infinite.
    """
    rates = chip.bandwidth
    dram = dram_read / (rates.dram_read or chip.dram_gb_per_s) + dram_written / (rates.dram_write or chip.dram_gb_per_s)
    l2 = 1e3 * l2_read / (rates.l2_read * chip.sector_bytes * chip.clock_mhz) if rates.l2_read else 0.0
    return max(dram, l2, 1e3 * flops / (2 * chip.throughput.fma * chip.sm_count * chip.clock_mhz))


def missing_number(order: Sequence[Execution], chips: Sequence[Chip]) -> str:
    """Return which number required for a plan's time is missing in the chip files, as a sentence; empty if none is."""
    try:
        for execution in order:
            fixed_work(execution, chips)
    except ChipError as error:
        return str(error)
    return ""


def copy_work(copy: Copy, chips: Sequence[Chip]) -> Work:
    """Return the duration of a copy by itself, and the engines or ports that it occupies.

    Copies to and from the host occupy their engine during the latency too: on an H200 two chains of small copies to the device alternate
    (5.2 us for two, 2.6 us for one; `memlane lab bandwidth`). For copies between devices that was not measured; their latencies overlap. A
    copy between two devices occupies the outgoing link of one and the incoming link of the other, as behind a switch, so concurrent copies
    to two devices share the sender's links.
    """
    to, of = copy.destination.buffer.home, copy.source.buffer.home
    resources: Resources
    if isinstance(to, int) and isinstance(of, int):
        if to == of:
            chip = chips[to]
            latency, rate = _required(chip, "device_us"), (chip.copy_gb_per_s or chip.dram_gb_per_s) / 2
            resources = (("copies inside", to),)
        else:
            latency, rate = _required(chips[of], "peer_us"), _required(chips[of], "peer_gb_per_s")
            resources = ("to peers", of), ("from peers", to)
    elif isinstance(to, int) or isinstance(of, int):
        device = to if isinstance(to, int) else of
        assert isinstance(device, int)
        latency, rate = _host_link(chips[device], is_pinned="pinned" in (to, of), is_upload=isinstance(to, int))
        resources = (("to the device" if isinstance(to, int) else "to the host", device),)
        return Work(1e3 * latency + copy.source.nbytes / rate, resources)
    else:
        raise ChipError(f"no chip file says how fast memory of the host is copied to memory of the host: {copy} cannot be predicted")
    return Work(copy.source.nbytes / rate, resources, 1e3 * latency)


def _put_work(put: Put, device: int, chips: Sequence[Chip]) -> Work:
    """Return the duration of a put: its launch, and its bytes at the rate between devices. The latency of its flags is part of the wait."""
    chip = chips[device]
    nbytes: dict[int, int] = {}
    for copy in put.copies:
        homes = [one.buffer.home for one in (copy.destination, copy.source)]
        other = next((home for home in homes if isinstance(home, int) and home != device), device)
        nbytes[other] = nbytes.get(other, 0) + copy.source.nbytes
    here = nbytes.pop(device, 0)
    elapsed = sum(nbytes.values()) / _required(chip, "peer_gb_per_s") if nbytes else 0.0
    elapsed += 2 * here / (chip.copy_gb_per_s or chip.dram_gb_per_s)
    ways: Resources = (("to peers", device), *(("from peers", other) for other in sorted(nbytes))) if nbytes else ()
    return Work(elapsed, ways, 1e3 * _required(chip, "launch_us"))


def _host_link(chip: Chip, *, is_pinned: bool, is_upload: bool) -> tuple[float, float]:
    """Return latency in us and rate in GB/s of copies between host and device; a number missing for one direction is taken from the
    other."""
    links = chip.links
    latency, rate = _required(chip, "host_us"), _required(chip, "host_gb_per_s" if is_pinned else "pageable_gb_per_s")
    if not is_pinned and links.pageable_us is not None:
        latency = links.pageable_us
    elif not is_upload and links.to_host_us is not None:
        latency = links.to_host_us
    other = None if is_upload else links.to_host_gb_per_s if is_pinned else links.pageable_to_host_gb_per_s
    return latency, rate if other is None else other


def _required(chip: Chip, entry: str) -> float:
    value: float | None = getattr(chip.links, entry)
    if value is None:
        raise ChipError(f"the chip file of {chip.name} has no [links] {entry}, which a prediction of the plan needs: measure and add it")
    return value
