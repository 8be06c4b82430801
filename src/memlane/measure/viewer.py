"""Keep single accesses with the addresses of their lanes, from the plain kernel on the emulator, for drawing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memlane.chip import Chip
from memlane.errors import MemlaneError
from memlane.instrument import site_table
from memlane.launch import ExampleOf, Launch, Launcher, Layers, Observation
from memlane.measure.examples import ObservedRun, asked_examples, chosen_examples
from memlane.measure.launch_info import launch_info
from memlane.measure.launch_observer import LaunchObserver
from memlane.measure.observed_counts import site_counts
from memlane.record import LaunchInfo, Site, Trace, build_trace

_COLUMNS = ("launch", "site", "block", "warp", "sm", "mask", "start", "end")
_NONE = np.zeros(0, np.int64)
_ROWS = 1 << 20
"""Maximum number of accesses kept per launch, to determine which execution of its warp an example is."""


class Viewer(LaunchObserver):
    """Observer that keeps, for each site of the observed launches, accesses with the addresses of their lanes."""

    def __init__(self, example: ExampleOf | None = None, *, worst: bool = True, only_launch: int | None = None) -> None:
        """`example`: which accesses to keep; by default of all warps. With `worst`, the worst of each site, and the first if it is better;
        else the one that `example` selects by its execution.

        `only_launch`: view only the launch with this number, from 0.
        """
        super().__init__(only_launch)
        self._example, self._worst = example, worst
        self._observations: list[Observation] = []
        self._target: Launcher | None = None

    def _replacement(self, number: int, launch: Launch) -> Launch:
        """Return the launch, observed. Raises MemlaneError on a target that does not record addresses."""
        target = launch.kernel.target
        if not target.observes:
            raise MemlaneError(f"{target.name} does not record the addresses of the lanes; only the emulator does: pass --target emulator")
        self._target = target
        mine = Layers(accesses=True, max_accesses=_ROWS, example=self._example, report=self._observed)
        return replace(launch, layers=launch.layers.merged(mine))

    def _observed(self, observation: Observation) -> None:
        """Keep the observation of a launch unless it broke off."""
        if not observation.broke_off:
            self._observations.append(observation)

    @property
    def chip(self) -> Chip:
        """Chip of the launches. Raises MemlaneError if nothing was launched."""
        if self._target is None:
            raise MemlaneError("nothing was launched through memlane inside the viewer")
        return self._target.chip

    def finish(self) -> Trace:
        """Return a trace without rows that holds the examples, and the counts of each launch. Raises MemlaneError if nothing was
        launched."""
        if self._target is None:
            raise MemlaneError("nothing was launched through memlane inside the viewer")
        sites: list[Site] = []
        runs: list[ObservedRun] = []
        launches: list[LaunchInfo] = []
        numbers: dict[tuple[object, str], dict[int, int]] = {}
        for observation in self._observations:
            kernel = observation.launch.kernel
            known = site_table(kernel.module).of_kernel[kernel.name]
            key = kernel.loaded, kernel.name
            if key not in numbers:
                numbers[key] = {index: len(sites) + place for place, index in enumerate(sorted(known))}
                sites += [replace(known[index], id=number) for index, number in numbers[key].items()]
            of_launch = {index: sites[number] for index, number in numbers[key].items()}
            runs.append(ObservedRun(len(launches), observation, numbers[key]))
            launches.append(replace(launch_info(len(launches), observation.launch), counts=site_counts(observation, of_launch)))
        chosen = chosen_examples(runs) if self._worst else asked_examples(runs)
        sources = {name: text for one in self._observations for name, text in one.launch.kernel.module.sources.items()}
        return build_trace(
            dict.fromkeys(_COLUMNS, _NONE),
            sites=sites,
            launches=launches,
            chip=self._target.chip.name,
            target=self._target.name,
            modelled=self._target.modelled,
            sources=sources,
            examples=chosen,
        )
