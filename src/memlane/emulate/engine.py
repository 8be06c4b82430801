"""Execute plans on emulated devices along one clock that all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from memlane.emulate.emulator import Emulator
from memlane.emulate.layers import reads_clock
from memlane.launch import Launch, Layers, Observation, Target, adds_clock_reads
from memlane.model import Work, advance, fixed_work, launches_of, missing_number
from memlane.plan import Execution, Timeline

Clocked = Callable[[Launch], Launch]
"""A function that adds the layers by which the engine reads a launch's time."""


def needs_clock(order: Sequence[Execution], devices: Sequence[Target], launches: Iterable[Launch]) -> bool:
    """Return whether a plan must run along its clock because a kernel reads one, or will once an observer has instrumented it.

    Returns False if a chip file lacks a number that this needs; kernels then read the time of their own device.
    """
    if not all(isinstance(device, Emulator) for device in devices):
        return False
    kernels = {id(launch.kernel.function): launch.kernel for launch in launches}
    if not adds_clock_reads() and not any(reads_clock(kernel.module, kernel.name) for kernel in kernels.values()):
        return False
    return not missing_number(order, [device.chip for device in devices])


class Engine:
    """Emulated devices that execute one plan, and their shared clock.

    An execution starts when its dependencies have ended and the engines, links and devices that it needs are free (`memlane.model`). Copies
    and launch overheads take the times in the chip files; kernels take the time of the clock layer. Each kernel begins on its device at its
    start time in the plan, so `%globaltimer` reads the plan's clock on all devices.
    """

    def __init__(self, devices: Sequence[Target]) -> None:
        self._devices = [device for device in devices if isinstance(device, Emulator)]
        self._chips = [device.chip for device in devices]
        self._kernel_ns: dict[int, float] = {}
        """Device number -> duration in ns of the kernel that ran last."""

    def run(
        self,
        order: Sequence[Execution],
        execute: Callable[[Execution, Clocked], None],
        is_left_out: Callable[[Execution], bool] = lambda execution: False,
    ) -> Timeline:
        """Execute a plan and return when each execution ran; all device clocks then stand at the plan's end.

        `execute` runs one of `order` on the devices and passes each launch through its second argument. An execution for which
        `is_left_out` returns true takes no time; it is asked once, after all dependencies. Caches are empty at the beginning, so that a
        plan takes the same time again. Raises ChipError, before anything runs, if a chip file lacks a number.
        """
        fixed = [fixed_work(execution, self._chips) for execution in order]
        clocks = [device.clock for device in self._devices]
        begin = max(clock.now_ns for clock in clocks)
        left_out: set[int] = set()

        def needs(number: int) -> Work:
            if is_left_out(order[number]):
                left_out.add(number)
                return Work(0.0)
            return fixed[number]

        def run_one(number: int, begin_ns: float) -> float:
            if number in left_out:
                return 0.0
            execution = order[number]
            devices = [device for device, _ in launches_of(execution)]
            for device in devices:
                clocks[device].move_to(begin + begin_ns)
            execute(execution, self._clocked if devices else _unclocked)
            return max([self._kernel_ns.pop(device) for device in devices] or [fixed[number].elapsed_ns])

        for device in self._devices:
            device.empty_caches()
        line = advance(order, needs, run_one)
        for clock in clocks:
            clock.move_to(math.ceil(begin + max((span.end_ns for span in line.spans), default=0.0)))
        return replace(line, globaltimer_ns=begin)

    def _clocked(self, launch: Launch) -> Launch:
        device = next(number for number, one in enumerate(self._devices) if one is launch.kernel.target)

        def report(seen: Observation) -> None:
            self._kernel_ns[device] = 1e3 * (seen.cycles or 0) / self._chips[device].clock_mhz

        return replace(launch, layers=launch.layers.merged(Layers(clock=True, report=report)))


def _unclocked(launch: Launch) -> Launch:
    """Return the launch of a put or a wait unchanged: its time is that of a message, not of its kernel."""
    return launch
