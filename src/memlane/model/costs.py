"""What copies and launches take: a latency, and bytes over a bandwidth, by the numbers in chip files."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from memlane.chip import Chip
from memlane.errors import BadPlan, ChipError
from memlane.model.engine import Work, simulate
from memlane.plan import Copy, Execution, HostCall, Launch, Plan, Timeline, Together, executions

KernelTime = Callable[[Launch, int], float]
"""How long the kernel of a launch on a device takes, in ns, by itself and without the launch."""


def predicted(plan: Plan, chips: Sequence[Chip], kernel_ns: KernelTime, *, call_ns: Callable[[HostCall], float] | None = None) -> Timeline:
    """Predict when each step of a plan runs on devices with these chips, without running anything.

    `kernel_ns(launch, device)` says what a kernel takes by itself, as `ml.time` measures it; what a launch takes besides comes from the
    chip file. `call_ns(call)` says what host functions take (nothing, if it is not given). Kernels of one device follow each other, as
    large ones do; copies to the host, from it, inside a device and over each link go on beside them and each other. Raises ChipError,
    with the name of the entry, where a chip file lacks a number that the plan needs, and BadPlan where chips are missing.
    """
    if plan.devices and plan.devices[-1] >= len(chips):
        raise BadPlan(f"the plan uses device {plan.devices[-1]}, but chips were given for devices 0 to {len(chips) - 1} only")
    order = executions(plan)
    return simulate(order, [work_of(execution, chips, kernel_ns, call_ns or _nothing) for execution in order])


def _nothing(call: HostCall) -> float:
    return 0.0


def work_of(execution: Execution, chips: Sequence[Chip], kernel_ns: KernelTime, call_ns: Callable[[HostCall], float]) -> Work:
    """Return how long one execution takes, and what it keeps busy."""
    action, device = execution.action, execution.step.device
    if isinstance(action, Copy):
        return copy_work(action, chips)
    if isinstance(action, HostCall):
        return Work(call_ns(action), (("host", execution.step.queue),))
    launches = action.launches if isinstance(action, Together) else ((device or 0, action),)
    took = [kernel_ns(launch, where) + 1e3 * _known(chips[where], "launch_us") for where, launch in launches]
    return Work(max(took), tuple(("device", where) for where, _ in launches))


def copy_work(copy: Copy, chips: Sequence[Chip]) -> Work:
    """Return how long a copy takes by itself, and the engine or link that it keeps busy."""
    to, of = copy.destination.buffer.home, copy.source.buffer.home
    resource: tuple[Hashable, ...]
    if isinstance(to, int) and isinstance(of, int):
        if to == of:
            chip = chips[to]
            latency, rate, resource = _known(chip, "device_us"), (chip.copy_gb_per_s or chip.dram_gb_per_s) / 2, ("copies inside", to)
        else:
            latency, rate, resource = _known(chips[of], "peer_us"), _known(chips[of], "peer_gb_per_s"), ("link", of, to)
    elif isinstance(to, int) or isinstance(of, int):
        device = to if isinstance(to, int) else of
        assert isinstance(device, int)
        entry = "host_gb_per_s" if "pinned" in (to, of) else "pageable_gb_per_s"
        latency, rate = _known(chips[device], "host_us"), _known(chips[device], entry)
        resource = ("to the device" if isinstance(to, int) else "to the host", device)
    else:
        raise ChipError(f"no chip file says how fast memory of the host is copied to memory of the host: {copy} cannot be predicted")
    return Work(1e3 * latency + copy.source.nbytes / rate, (resource,))


def _known(chip: Chip, entry: str) -> float:
    value: float | None = getattr(chip.links, entry)
    if value is None:
        raise ChipError(f"the chip file of {chip.name} has no [links] {entry}, which a prediction of the plan needs: measure and add it")
    return value
