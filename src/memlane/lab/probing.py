"""Launch with probes and a trace buffer of its own, to be repeated and read without a tracer."""

from __future__ import annotations

import numpy as np

from memlane.instrument import POINTER, Decoded, buffer_layout, decode, entry, initial_header
from memlane.launch import Launch
from memlane.measure.instrumented_module import InstrumentedModule


class ProbedLaunch:
    """The instrumented twin of a launch, and its buffer."""

    def __init__(self, launch: Launch, probed: InstrumentedModule, records_per_warp: int) -> None:
        self._target = launch.kernel.target
        self._layout = buffer_layout(launch.blocks * launch.warps_per_block, records_per_warp, records_per_warp)
        self._address, self._owner = self._target.allocate(self._layout.nbytes)
        pointer, _ = self._target.symbol(probed.loaded, POINTER)
        self._target.write(pointer, entry(self._address, self._layout))
        self.launch = probed.twin_of(launch)

    def reset(self) -> None:
        """Empty the buffer."""
        self._target.clear(self._address, self._layout.nbytes)
        self._target.write(self._address, initial_header(self._layout))

    def decoded(self) -> Decoded:
        """Return the contents of the buffer, after all work has finished."""
        held = np.empty(self._layout.nbytes, np.uint8)
        self._target.read(self._address, held)
        return decode(held)


def recorded(launch: Launch, probed: InstrumentedModule, records_per_warp: int) -> Decoded:
    """Launch the instrumented twin of `launch` once, and return its records."""
    twin = ProbedLaunch(launch, probed, records_per_warp)
    twin.reset()
    twin.launch.kernel.target.launch(twin.launch)
    return twin.decoded()
