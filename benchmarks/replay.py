"""Hand out every launch of an example script, with the memory as it was before it, ready to run again in other ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memlane.cli.programs import run_script
from memlane.instrument import TraceOptions
from memlane.launch import Argument, Launch, LoadedModule, Target, suspend_observers
from memlane.measure import Tracer
from memlane.measure.memory import Snapshot
from memlane.record import Trace

Bytes = npt.NDArray[np.uint8]


@dataclass
class Visitor:
    """An observer that hands each launch to `visit`, puts the memory back, and lets the launch go its way."""

    visit: Callable[[int, Launch], None]
    seen: int = 0

    def launching(self, launch: Launch) -> Launch:
        with suspend_observers():
            before = Snapshot(launch)
            try:
                self.visit(self.seen, launch)
            finally:
                before.restore()
        self.seen += 1
        return launch


def each_launch(script: Path, arguments: Sequence[str], target: str, visit: Callable[[int, Launch], None]) -> int:
    """Run a script on `target` and call `visit` with the number of each launch and the launch, just before it happens; how many there
    were. `visit` may launch what it likes: the arrays that the launch was given are as before when it has returned. Raises what ended
    the script, or `visit`, early."""
    visitor = Visitor(visit)
    ended = run_script(script, arguments, target, visitor)
    if ended is not None:
        raise ended.error
    return visitor.seen


def memory_of(launch: Launch) -> list[tuple[int, int]]:
    """Return address and size of each array among a launch's arguments, once each, in the order of the arguments."""
    return list(dict.fromkeys(argument.memory for argument in launch.arguments if argument.memory))


def read_memory(launch: Launch) -> list[Bytes]:
    """Return the contents of the launch's arrays after all work has finished."""
    held = []
    for address, nbytes in memory_of(launch):
        host = np.empty(nbytes, np.uint8)
        launch.kernel.target.read(address, host)
        held.append(host)
    return held


def outcome(launch: Launch, action: Callable[[], object]) -> list[Bytes]:
    """Return the contents of the arrays of `launch` after `action`, then restore them."""
    before = Snapshot(launch)
    try:
        action()
        launch.kernel.target.sync()
        return read_memory(launch)
    finally:
        before.restore()


def traced(launch: Launch, scheme: str, records_per_warp: int | None = None) -> Trace:
    """Send the launch out with probes; the memory is as it leaves it. `records_per_warp` as for `Tracer`."""
    tracer = Tracer(TraceOptions(scheme), records_per_warp=records_per_warp)
    launch.kernel.target.launch(tracer.launching(launch))
    return tracer.finish()


def elsewhere(launch: Launch, target: Target) -> Launch:
    """Return the same launch on another target, with copies of the arrays' current contents.

    Addresses of these arrays that are stored in them, as in a linked ring, are translated.
    """
    places = memory_of(launch)
    copies = [target.allocate(max(1, nbytes)) for _, nbytes in places]
    moved = {place: address for place, (address, _) in zip(places, copies, strict=True)}
    for place, held in zip(places, read_memory(launch), strict=True):
        target.write(moved[place], translated(held, moved))
    arguments = []
    for argument in launch.arguments:
        if argument.memory is not None:
            offset = int.from_bytes(argument.data, "little") - argument.memory[0]
            address = moved[argument.memory] + offset
            memory = (moved[argument.memory], argument.memory[1])
            argument = Argument(address.to_bytes(8, "little"), argument.text, copies, memory)
        arguments.append(argument)
    loaded: LoadedModule = target.load(launch.kernel.module)
    return replace(launch, kernel=loaded[launch.kernel.name], arguments=tuple(arguments), stream=target.default_stream)


def translated(held: Bytes, moved: dict[tuple[int, int], int]) -> Bytes:
    """Return `held` with each aligned 64-bit word that is an address in one of the ranges of `moved` replaced by the new address."""
    if held.nbytes % 8:
        return held
    words = held.copy().view(np.uint64)
    result = words.copy()
    for (address, nbytes), new in moved.items():
        inside = (words >= np.uint64(address)) & (words < np.uint64(address + nbytes))
        result[inside] = words[inside] - np.uint64(address) + np.uint64(new)
    return result.view(np.uint8)


def differing_bytes(one: Sequence[Bytes], other: Sequence[Bytes]) -> int:
    """Return the number of bytes in which two outcomes differ."""
    return sum(int(np.count_nonzero(a != b)) for a, b in zip(one, other, strict=True))
