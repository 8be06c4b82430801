"""Steps on several devices as launches that stay there (`persistent`): the plan, and which memory its kernels get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memlane.plan import KernelRef, Launch, Plan, PlanBuilder, View, planned
from memlane.stencils.decomposition import Slab
from memlane.stencils.exchange import SharedStage, on_device
from memlane.stencils.persistent import FROM_HIGH, FROM_LOW, SIGNAL_WORDS, PersistentKernel
from memlane.stencils.stages import SCALARS, field_buffers, scalar_count

SIGNALS = "signals"
"""The buffer of flags and counts of a device."""
MOST_STEPS = 1000
"""Steps of one launch: behind each the host can stop."""


@dataclass(frozen=True)
class PersistentStage(SharedStage):
    """Steps, each with an exchange, by launches that stay on their devices; `turn` has one launch."""

    kernel: PersistentKernel | None = None
    blocks: tuple[int, ...] = ()
    """How many blocks each device has room for at the same time."""
    polls: int = field(default=1 << 28, compare=False)
    """Polls of a flag after which a device gives up."""

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        return _Writer(self, refs).plan()


class _Writer:
    """Writes the plan of one stage."""

    def __init__(self, stage: PersistentStage, refs: Mapping[str, KernelRef]) -> None:
        assert stage.kernel is not None
        self.stage, self.kernel, self.ref, self.builder = stage, stage.kernel, refs[stage.kernel.name], PlanBuilder()
        self.views: dict[tuple[str, int], View] = {}
        problem = stage.turn.problem
        for slab in stage.slabs:
            shape, rows = stage.decomposition.stored_shape(slab), (stage.scalar_rows, max(1, scalar_count(problem)))
            for name in field_buffers(problem, False):
                self._add(name, slab, shape, problem.dtype(name))
            self._add(SCALARS, slab, rows, problem.grid.dtype)
            self._add(SIGNALS, slab, (3, SIGNAL_WORDS), "u4")

    def _add(self, name: str, slab: Slab, shape: tuple[int, ...], dtype: str) -> None:
        self.views[name, slab.device] = self.builder.array(on_device(name, slab.device), shape, dtype, slab.device)

    def plan(self) -> Plan:
        """Return the plan: launches on all devices together, of at most `MOST_STEPS` steps each."""
        first, second = self.kernel.moving
        for done in range(0, self.stage.steps, MOST_STEPS):
            steps = min(MOST_STEPS, self.stage.steps - done)
            self.builder.together([(slab.device, self._launch(slab, done, steps)) for slab in self.stage.slabs], label=f"{steps} steps")
            for device in [slab.device for slab in self.stage.slabs] if steps % 2 else []:
                one, other = (first, device), (second, device)
                self.views[one], self.views[other] = self.views[other], self.views[one]
        return self.builder.plan()

    def _launch(self, slab: Slab, done: int, steps: int) -> Launch:
        kernel, stage = self.kernel, self.stage
        lower, upper = self._neighbours(slab)
        up, down = stage.turn.faces(stage.wanted, 0)
        (one,) = stage.turn.with_borders(stage.wanted)
        (low, high), (before, after) = one.border[0], one.reach[0]
        low, high = low if lower else 0, high if upper else 0
        if low + high > slab.planes:
            low, high = slab.planes, 0
        own = [self.views[name, slab.device] for name in kernel.moving]
        constants = [self.views[name, slab.device] for name in kernel.constants]
        scalars, signals = self.views[SCALARS, slab.device], self.views[SIGNALS, slab.device]
        arguments: list[View | int] = [*own, *constants, scalars, done if stage.scalar_rows > 1 else 0, int(stage.scalar_rows > 1), steps]
        arguments += [slab.origin, slab.start, slab.stop, low, high, before, after]
        written = [*own, signals]
        for other, goes, sent, row in ((lower, slab.start, down, FROM_HIGH), (upper, slab.stop, up, FROM_LOW)):
            there = slab if other is None else other
            # The planes of the other follow or precede those of this one, also where a periodic grid begins again.
            moved = 0 if other is None else (other.stop if row == FROM_HIGH else other.start) - goes
            theirs = [self.views[name, there.device] for name in kernel.moving]
            flag = self.views[SIGNALS, there.device][row]
            arguments += [*theirs, there.origin - moved, max((width for _, width in sent), default=0) if other else 0, flag]
            written += [*theirs, flag] if other else []
        arguments += [signals, int(lower is not None), int(upper is not None), stage.polls]
        tiles = kernel.tiles(low) + kernel.tiles(high) + kernel.tiles(slab.planes - low - high)
        blocks = min(tiles, stage.blocks[slab.device])
        reads = [*own, *constants, scalars, signals]
        return planned(self.ref, blocks, kernel.block, *arguments, reads=reads, writes=list(dict.fromkeys(written)))

    def _neighbours(self, slab: Slab) -> tuple[Slab | None, Slab | None]:
        """Return the parts whose planes come before and behind those of one."""
        pairs = self.stage.decomposition.neighbours_along(0)
        lower = next((low for low, high in pairs if high is slab), None)
        return lower, next((high for low, high in pairs if low is slab), None)
