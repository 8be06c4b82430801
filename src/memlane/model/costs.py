"""What copies and launches take: a latency, and bytes over a bandwidth, by the numbers in chip files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from memlane.chip import Chip
from memlane.errors import BadPlan, ChipError
from memlane.model.engine import Resources, Work, simulate
from memlane.plan import Copy, Execution, HostCall, Launch, Plan, Put, Timeline, Together, Wait, executions

KernelTime = Callable[[Launch, int], float]
"""How long the kernel of a launch on a device takes, in ns, by itself and without the launch."""


def predicted(plan: Plan, chips: Sequence[Chip], kernel_ns: KernelTime, *, call_ns: Callable[[HostCall], float] | None = None) -> Timeline:
    """Predict when each step of a plan runs on devices with these chips, without running anything.

    `kernel_ns(launch, device)` says what a kernel takes by itself, as `ml.time` measures it; what a launch takes besides comes from the
    chip file. `call_ns(call)` says what host functions take (nothing, if it is not given). Kernels of one device follow each other, as
    large ones do; copies to the host, from it, inside a device and between devices go on beside them and each other. Raises ChipError,
    with the name of the entry, where a chip file lacks a number that the plan needs, and BadPlan where chips are missing.
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
    """Return the launches of an execution with their devices: one, those that run together, or none."""
    action = execution.action
    if isinstance(action, Together):
        return action.launches
    return ((execution.step.device or 0, action),) if isinstance(action, Launch) else ()


def fixed_work(execution: Execution, chips: Sequence[Chip]) -> Work:
    """Return what an execution takes by the numbers in chip files, without what its kernels or its host function take, and what it keeps
    busy. Kernels of one execution begin all at once. Raises ChipError where a number is not known."""
    action = execution.action
    if isinstance(action, Copy):
        return copy_work(action, chips)
    if isinstance(action, HostCall):
        return Work(0.0, (("host", execution.step.queue),))
    if isinstance(action, Put):
        return _put_work(action, execution.step.device or 0, chips)
    if isinstance(action, Wait):
        return Work(0.0, (), 1e3 * _known(chips[execution.step.device or 0], "flag_us"))
    devices = [device for device, _ in launches_of(execution)]
    latency = 1e3 * max(_known(chips[device], "launch_us") for device in devices)
    return Work(0.0, tuple(("device", device) for device in devices), latency)


def roofline_ns(chip: Chip, *, dram_read: float = 0, dram_written: float = 0, l2_read: float = 0, flops: float = 0) -> float:
    """Return the least time of a kernel that keeps the whole chip busy, in ns: a first guess where nobody has measured it.

    It is the greatest of what its bytes from and to DRAM, its bytes from L2, and its operations on 32-bit floats (a fused multiply-add is
    two) take at the rates of the chip file. Rates of L2 that a file lacks count as endless.
    """
    rates = chip.bandwidth
    dram = dram_read / (rates.dram_read or chip.dram_gb_per_s) + dram_written / (rates.dram_write or chip.dram_gb_per_s)
    l2 = 1e3 * l2_read / (rates.l2_read * chip.sector_bytes * chip.clock_mhz) if rates.l2_read else 0.0
    return max(dram, l2, 1e3 * flops / (2 * chip.throughput.fma * chip.sm_count * chip.clock_mhz))


def unknown(order: Sequence[Execution], chips: Sequence[Chip]) -> str:
    """Return which number the chip files lack that the time of a plan needs, as a sentence; empty if they have all."""
    try:
        for execution in order:
            fixed_work(execution, chips)
    except ChipError as error:
        return str(error)
    return ""


def copy_work(copy: Copy, chips: Sequence[Chip]) -> Work:
    """Return how long a copy takes by itself, and the engines or ports that it keeps busy.

    Those to the host and from it are busy with its latency, too: on an H200 two chains of small copies to the device take turns (5.2 us for
    two, 2.6 us for one; `memlane lab bandwidth`). Of copies between devices that was not measured; their latencies overlap.

    Between two devices it takes the way out of the one and the way into the other, as behind a switch: what a device sends to two others
    at once shares its links.
    """
    to, of = copy.destination.buffer.home, copy.source.buffer.home
    resources: Resources
    if isinstance(to, int) and isinstance(of, int):
        if to == of:
            chip = chips[to]
            latency, rate = _known(chip, "device_us"), (chip.copy_gb_per_s or chip.dram_gb_per_s) / 2
            resources = (("copies inside", to),)
        else:
            latency, rate = _known(chips[of], "peer_us"), _known(chips[of], "peer_gb_per_s")
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
    """Return how long a put takes: its launch, and its bytes at the rate between devices. What its flags take is in the wait for them."""
    chip = chips[device]
    nbytes: dict[int, int] = {}
    for copy in put.copies:
        homes = [one.buffer.home for one in (copy.destination, copy.source)]
        other = next((home for home in homes if isinstance(home, int) and home != device), device)
        nbytes[other] = nbytes.get(other, 0) + copy.source.nbytes
    here = nbytes.pop(device, 0)
    elapsed = sum(nbytes.values()) / _known(chip, "peer_gb_per_s") if nbytes else 0.0
    elapsed += 2 * here / (chip.copy_gb_per_s or chip.dram_gb_per_s)
    ways: Resources = (("to peers", device), *(("from peers", other) for other in sorted(nbytes))) if nbytes else ()
    return Work(elapsed, ways, 1e3 * _known(chip, "launch_us"))


def _host_link(chip: Chip, *, is_pinned: bool, is_upload: bool) -> tuple[float, float]:
    """Return latency in us and rate in GB/s of copies between host and device: what is not known of one way is taken from the other."""
    links = chip.links
    latency, rate = _known(chip, "host_us"), _known(chip, "host_gb_per_s" if is_pinned else "pageable_gb_per_s")
    if not is_pinned and links.pageable_us is not None:
        latency = links.pageable_us
    elif not is_upload and links.to_host_us is not None:
        latency = links.to_host_us
    other = None if is_upload else links.to_host_gb_per_s if is_pinned else links.pageable_to_host_gb_per_s
    return latency, rate if other is None else other


def _known(chip: Chip, entry: str) -> float:
    value: float | None = getattr(chip.links, entry)
    if value is None:
        raise ChipError(f"the chip file of {chip.name} has no [links] {entry}, which a prediction of the plan needs: measure and add it")
    return value
