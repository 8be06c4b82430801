"""Does an instrumented kernel compute what the original computes, and the emulator what the GPU computes? Bit for bit.

Every launch of every example is run on its original memory: as it is, instrumented with each scheme, counting, and (where the target is
a GPU) on the emulator, with the arrays copied there and addresses stored in them translated. All arrays that the launch was given are
compared byte by byte. Everything is assembled without fusing multiplications and additions, as the design defines "bit for bit"; without
it the assembler may fuse differently around a probe. The examples' atomics are on integers, so their order does not matter.

Prediction: no byte differs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

from harness import Row
from replay import Bytes, differing_bytes, each_launch, elsewhere, memory_of, outcome, read_memory, traced, translated
from running import EXAMPLES, example, example_arguments, measure, parser

from memlane.driver import Device
from memlane.emulate import Emulator
from memlane.instrument import SCHEMES
from memlane.launch import Launch, Target
from memlane.measure.device_counters import DeviceCounters
from memlane.record import kernel_label

SOURCES = [
    "src/memlane/ptx",
    "src/memlane/compile",
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/emulate",
    "src/memlane/driver",
    "src/memlane/measure",
    "examples",
    "benchmarks/outputs.py",
    "benchmarks/replay.py",
]
RECORDS_PER_WARP = 128


class Comparison:
    """Differences of one comparison over the launches of an example."""

    def __init__(self) -> None:
        self.differing = self.compared = self.launches = 0
        self.found: list[str] = []
        self.failures: list[str] = []

    def add(self, launch: Launch, expected: Sequence[Bytes], seen: Callable[[Launch], Sequence[Bytes]]) -> None:
        """Add one launch. `seen` returns the arrays as computed in another way; if it raises, the comparison has failed."""
        label = kernel_label(launch.kernel.title)
        try:
            differing = differing_bytes(expected, seen(launch))
        except Exception as error:
            self.failures.append(f"{label}: {type(error).__name__}: {error}"[:200])
            return
        self.launches += 1
        self.differing += differing
        self.compared += sum(nbytes for _, nbytes in memory_of(launch))
        if differing:
            self.found.append(f"{label}: {differing} bytes")

    def row(self, case: str) -> Row:
        """Return the row, without a value if a launch could not be compared."""
        value = None if self.failures or not self.launches else float(self.differing)
        note = "; ".join([f"{self.launches} launches", *self.found, *self.failures])[:600]
        return Row(case, "differing bytes", value, "bytes", 0.0, peer={"compared": float(self.compared)}, note=note)


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Run all launches of one example."""
    roads = comparisons(options)
    tallies = {road: Comparison() for road in roads}

    def visit(number: int, launch: Launch) -> None:
        launch = strict(launch)
        expected = outcome(launch, lambda: launch.kernel.target.launch(launch))
        for road, seen in roads.items():
            tallies[road].add(launch, expected, seen)

    each_launch(example(name), example_arguments(name, options.quick), options.target, visit)
    return [tally.row(f"{name}, {road}") for road, tally in tallies.items()]


def comparisons(options: argparse.Namespace) -> dict[str, Callable[[Launch], Sequence[Bytes]]]:
    """Return the other roads to the same outputs, by name."""
    roads: dict[str, Callable[[Launch], Sequence[Bytes]]] = {scheme: partial(instrumented, scheme=scheme) for scheme in SCHEMES}
    roads["counting"] = counted
    if options.target.startswith("cuda"):
        roads["emulator"] = emulated
    return roads


def instrumented(launch: Launch, scheme: str) -> list[Bytes]:
    """Run with the probes of a scheme. The buffer is small, so kernels with loops fill it; outputs must not change then either."""
    return outcome(launch, lambda: traced(launch, scheme, RECORDS_PER_WARP))


def counted(launch: Launch) -> list[Bytes]:
    """Run with the instructions that count."""
    tally = DeviceCounters(launch.kernel.loaded)  # it holds the counters
    return outcome(launch, lambda: launch.kernel.target.launch(tally.counting_launch(0, launch)))


def emulated(launch: Launch) -> list[Bytes]:
    """Run on the emulator, with the same addresses as on the GPU."""
    there = elsewhere(launch, _emulator_beside(launch.kernel.target))
    there.kernel.target.launch(there)
    there.kernel.target.sync()
    back = {now: before[0] for now, before in zip(memory_of(there), memory_of(launch), strict=True)}
    return [translated(held, back) for held in read_memory(there)]


def strict(launch: Launch) -> Launch:
    """Return the launch on a target that assembles without fusing, over the same memory."""
    where = launch.kernel.target
    if not isinstance(where, Device):
        return launch
    device = _without_fusing(where.name)
    return replace(launch, kernel=device.load(launch.kernel.module)[launch.kernel.name], stream=device.default_stream)


@cache
def _emulator_beside(target: Target) -> Target:
    """Return an emulator of a target's chip. It is not created by name, because while a script runs every name means its target."""
    return Emulator(target.chip)


@cache
def _without_fusing(name: str) -> Target:
    return Device(int(name.partition(":")[2]), fmad=False)


def main() -> None:
    options = parser(__doc__).parse_args()
    measure("outputs", EXAMPLES, run_case, options)


if __name__ == "__main__":
    main()
