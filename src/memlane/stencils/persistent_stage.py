"""Plan steps on several devices as launches of persistent kernels (`persistent`), and assign memory to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memlane.plan import KernelRef, Launch, Plan, PlanBuilder, View, planned
from memlane.stencils.decomposition import Subdomain
from memlane.stencils.exchange import SharedStage
from memlane.stencils.persistent import SIGNAL_WORDS, PersistentKernel, free_after
from memlane.stencils.resident import ResidentKernel
from memlane.stencils.stages import SCALARS, field_buffers, on_device, scalar_type, scalars_shape

SIGNALS = "signals"
"""Name of the buffer of flags and counts of a device."""
ARRIVED = "arrived"
"""Name of the buffer for planes of the neighbours, where they do not store into the halo."""
StayingKernel = PersistentKernel | ResidentKernel
MOST_STEPS = 1000
"""Most steps of one launch; the host can stop between launches."""


@dataclass(frozen=True)
class PersistentStage(SharedStage):
    """Stage of turns by persistent kernels, with the steps of `turn` between two exchanges."""

    kernel: StayingKernel | None = None
    blocks: tuple[int, ...] = ()
    """Blocks that are resident at the same time on each device."""
    polls: int = field(default=1 << 28, compare=False)
    """Polls of a flag after which a device gives up."""

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        return _Writer(self, refs).plan()


class _Writer:
    """Builder of the plan of one stage."""

    def __init__(self, stage: PersistentStage, refs: Mapping[str, KernelRef]) -> None:
        assert stage.kernel is not None
        self.stage, self.kernel, self.ref, self.builder = stage, stage.kernel, refs[stage.kernel.name], PlanBuilder()
        self.turn = stage.turn
        self.up: dict[str, int]
        self.down: dict[str, int]
        self.up, self.down = (dict(faces) for faces in self.turn.faces(stage.wanted, 0))
        self.free_after = free_after(self.turn, [*self.up, *self.down])
        self.views: dict[tuple[str, int], View] = {}
        problem = self.turn.problem
        for subdomain in stage.subdomains:
            shape, rows = stage.decomposition.stored_shape(subdomain), scalars_shape(problem, stage.scalar_rows)
            for name in field_buffers(problem, False):
                self._add(name, subdomain, shape, problem.dtype(name))
            self._add(SCALARS, subdomain, rows, scalar_type(problem))
            self._add(SIGNALS, subdomain, (self.kernel.signal_rows(subdomain.planes), SIGNAL_WORDS), "u4")
            if isinstance(self.kernel, ResidentKernel):
                self._add(ARRIVED, subdomain, self.kernel.arrival_shape, self.kernel.arrival_type)

    def _add(self, name: str, subdomain: Subdomain, shape: tuple[int, ...], dtype: str) -> None:
        self.views[name, subdomain.device] = self.builder.array(on_device(name, subdomain.device), shape, dtype, subdomain.device)

    def plan(self) -> Plan:
        """Return the plan: launches on all devices together, of at most `MOST_STEPS` steps each, in whole turns."""
        most = max(1, MOST_STEPS // self.turn.steps) * self.turn.steps
        for done in range(0, self.stage.steps, most):
            steps = min(most, self.stage.steps - done)
            self.builder.together(
                [(subdomain.device, self._launch(subdomain, done, steps)) for subdomain in self.stage.subdomains], label=f"{steps} steps"
            )
            moved = self.turn.names_after(steps // self.turn.kernels[0].variant.steps)
            self.views |= {
                (name, subdomain.device): self.views[other, subdomain.device]
                for name, other in moved.items()
                for subdomain in self.stage.subdomains
            }
        return self.builder.plan()

    def _launch(self, subdomain: Subdomain, done: int, steps: int) -> Launch:
        kernel, stage, turn = self.kernel, self.stage, self.turn
        lower, upper = self._neighbours(subdomain)
        near = [subdomain if other is None else other for other in (lower, upper)]
        own = [self.views[name, subdomain.device] for name in turn.problem.fields]
        scalars, signals = self.views[SCALARS, subdomain.device], [self.views[SIGNALS, other.device] for other in (*near, subdomain)]
        rows: list[View | int] = [scalars, done if stage.scalar_rows > 1 else 0, int(stage.scalar_rows > 1), steps]
        place = [subdomain.origin, subdomain.start, subdomain.stop]
        arguments: list[View | int]
        if isinstance(kernel, ResidentKernel):
            blocks, shared_bytes = kernel.blocks_of(subdomain.planes), kernel.shared_bytes
            arrived = [self.views[ARRIVED, other.device] for other in (*near, subdomain)]
            sent = list(dict.fromkeys(arrived))
            exchanges = bool(self.up or self.down)
            has = [int(exchanges and other is not None) for other in (lower, upper)]
            arguments = [*own, *rows, *place, *has, *signals, *arrived, stage.polls]
        else:
            blocks, shared_bytes = min(kernel.blocks(subdomain.planes), stage.blocks[subdomain.device]), 0
            # The planes of a neighbour precede or follow those of this part, also where a periodic grid begins again.
            moved = [0 if lower is None else lower.stop - subdomain.start, 0 if upper is None else upper.start - subdomain.stop]
            theirs = [[self.views[name, other.device] for name in kernel.memories] for other in near]
            sent = [view for other, views in zip((lower, upper), theirs, strict=True) for view in views if other is not None]
            arguments = [*own, *theirs[0], *theirs[1], *rows, turn.steps, *place]
            arguments += [other.origin - by for other, by in zip(near, moved, strict=True)]
            arguments += [*self._borders(lower is not None, upper is not None), self.free_after]
            arguments += [int(self.free_after == len(turn.launches) - 1), *signals, stage.polls]
        changed = [view for view, name in zip(own, turn.problem.fields, strict=True) if name not in turn.problem.constant]
        return planned(
            self.ref, blocks, kernel.block, *arguments, shared_bytes=shared_bytes,
            reads=[*own, scalars, signals[-1]], writes=list(dict.fromkeys([*changed, *sent, *signals])),
        )  # fmt: skip

    def _borders(self, has_low: bool, has_high: bool) -> list[int]:
        """Return the existing neighbours, the planes of the borders, and the planes of each field to send."""
        # If anything is sent, each device has a border at each neighbour, because borders raise the flags.
        low, high = self.turn.with_borders(self.stage.wanted)[-1].border[0]
        borders = [max(1, low), max(1, high)] if self.up or self.down else [0, 0]
        found = [int(has_low), int(has_high), *borders]
        assert isinstance(self.kernel, PersistentKernel)
        for name in self.kernel.sent:
            found += [self.down.get(name, 0) if has_low else 0, self.up.get(name, 0) if has_high else 0]
        return found

    def _neighbours(self, subdomain: Subdomain) -> tuple[Subdomain | None, Subdomain | None]:
        """Return the parts before and after a part along the first axis."""
        pairs = self.stage.decomposition.neighbours_along(0)
        lower = next((low for low, high in pairs if high is subdomain), None)
        return lower, next((high for low, high in pairs if low is subdomain), None)
