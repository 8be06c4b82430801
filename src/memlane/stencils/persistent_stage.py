"""Steps on several devices as launches that stay there (`persistent`): the plan, and which memory its kernels get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memlane.plan import KernelRef, Launch, Plan, PlanBuilder, View, planned
from memlane.stencils.decomposition import Slab
from memlane.stencils.exchange import SharedStage, on_device
from memlane.stencils.persistent import SIGNAL_ROWS, SIGNAL_WORDS, PersistentKernel, free_after
from memlane.stencils.stages import SCALARS, field_buffers, scalar_type, scalars_shape

SIGNALS = "signals"
"""The buffer of flags and counts of a device."""
MOST_STEPS = 1000
"""Steps of one launch: behind each the host can stop."""


@dataclass(frozen=True)
class PersistentStage(SharedStage):
    """Turns by launches that stay on their devices, with the steps of `turn` between two exchanges."""

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
        self.turn = stage.turn
        self.up, self.down = (dict(faces) for faces in self.turn.faces(stage.wanted, 0))
        self.free_after = free_after(self.turn, [*self.up, *self.down])
        self.views: dict[tuple[str, int], View] = {}
        problem = self.turn.problem
        for slab in stage.slabs:
            shape, rows = stage.decomposition.stored_shape(slab), scalars_shape(problem, stage.scalar_rows)
            for name in field_buffers(problem, False):
                self._add(name, slab, shape, problem.dtype(name))
            self._add(SCALARS, slab, rows, scalar_type(problem))
            self._add(SIGNALS, slab, (SIGNAL_ROWS, SIGNAL_WORDS), "u4")

    def _add(self, name: str, slab: Slab, shape: tuple[int, ...], dtype: str) -> None:
        self.views[name, slab.device] = self.builder.array(on_device(name, slab.device), shape, dtype, slab.device)

    def plan(self) -> Plan:
        """Return the plan: launches on all devices together, of at most `MOST_STEPS` steps each, in whole turns."""
        most = max(1, MOST_STEPS // self.turn.steps) * self.turn.steps
        for done in range(0, self.stage.steps, most):
            steps = min(most, self.stage.steps - done)
            self.builder.together([(slab.device, self._launch(slab, done, steps)) for slab in self.stage.slabs], label=f"{steps} steps")
            moved = self.turn.names_after(steps)
            self.views |= {
                (name, slab.device): self.views[other, slab.device] for name, other in moved.items() for slab in self.stage.slabs
            }
        return self.builder.plan()

    def _launch(self, slab: Slab, done: int, steps: int) -> Launch:
        kernel, stage, turn = self.kernel, self.stage, self.turn
        lower, upper = self._neighbours(slab)
        near = [slab if other is None else other for other in (lower, upper)]
        # The planes of a neighbour precede or follow those of this part, also where a periodic grid begins again.
        moved = [0 if lower is None else lower.stop - slab.start, 0 if upper is None else upper.start - slab.stop]
        own = [self.views[name, slab.device] for name in turn.problem.fields]
        theirs = [[self.views[name, other.device] for name in kernel.memories] for other in near]
        scalars, signals = self.views[SCALARS, slab.device], [self.views[SIGNALS, other.device] for other in (*near, slab)]
        low_border, high_border = turn.with_borders(stage.wanted)[-1].border[0]
        # Where anything is sent each device has a border at each neighbour, because borders raise the flags.
        borders = [max(1, low_border), max(1, high_border)] if self.up or self.down else [0, 0]
        arguments: list[View | int] = [*own, *theirs[0], *theirs[1]]
        arguments += [scalars, done if stage.scalar_rows > 1 else 0, int(stage.scalar_rows > 1), steps, turn.steps]
        arguments += [slab.origin, slab.start, slab.stop, *(other.origin - by for other, by in zip(near, moved, strict=True))]
        arguments += [int(lower is not None), int(upper is not None), *borders]
        for name in kernel.sent:
            arguments += [self.down.get(name, 0) if lower else 0, self.up.get(name, 0) if upper else 0]
        arguments += [self.free_after, int(self.free_after == len(turn.launches) - 1), *signals, stage.polls]
        changed = [view for view, name in zip(own, turn.problem.fields, strict=True) if name not in turn.problem.constant]
        sent = [view for other, views in zip((lower, upper), theirs, strict=True) for view in views if other is not None]
        blocks = min(kernel.blocks(slab.planes), stage.blocks[slab.device])
        return planned(
            self.ref, blocks, kernel.block, *arguments,
            reads=[*own, scalars, signals[-1]], writes=list(dict.fromkeys([*changed, *sent, *signals])),
        )  # fmt: skip

    def _neighbours(self, slab: Slab) -> tuple[Slab | None, Slab | None]:
        """Return the parts whose planes come before and behind those of one."""
        pairs = self.stage.decomposition.neighbours_along(0)
        lower = next((low for low, high in pairs if high is slab), None)
        return lower, next((high for low, high in pairs if low is slab), None)
