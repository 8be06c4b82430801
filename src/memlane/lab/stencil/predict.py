"""Predict the published machine by both models: strong scaling of M2050s on the network of TSUBAME 2.0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memlane.errors import StencilError
from memlane.lab.stencil.cases import COUNTS, Case
from memlane.stencils.scaling import Prediction, plan_scaling

CHIP, NETWORK = "m2050", "tsubame2"
MODELS = ("kawamura", "memlane")
EVERY = tuple(range(1, 9))
"""Steps between two exchanges."""


@dataclass(frozen=True)
class Point:
    """Times of a step, in us."""

    step: float
    inner: float
    exchange: float
    boundary: float

    @property
    def bound(self) -> str:
        """Limit of a step, `computation` or `communication`, as in figure 8."""
        return "computation" if self.inner >= self.exchange else "communication"


@dataclass
class Scaling:
    """Times over devices and steps between exchanges."""

    case: Case
    by: str
    """The model, or the transport of a run."""
    points: dict[tuple[int, int], Point] = field(default_factory=dict)
    """Times by devices and steps between exchanges."""
    notes: list[str] = field(default_factory=list)

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(sorted({devices for devices, _ in self.points}))

    def over_steps(self, devices: int) -> dict[int, Point]:
        """Return the times with `devices` devices by steps between exchanges."""
        return {k: point for (count, k), point in sorted(self.points.items()) if count == devices}

    def best(self, devices: int) -> int:
        """Return the steps between exchanges that are fastest."""
        found = self.over_steps(devices)
        return min(found, key=lambda k: found[k].step)

    def gain(self, devices: int) -> float:
        """Return the share by which the best number of steps is faster than an exchange after each."""
        found = self.over_steps(devices)
        return found[1].step / found[self.best(devices)].step - 1.0


def point_of(one: Prediction) -> Point:
    return Point(one.step_us, one.inner_us, one.exchange_us, one.boundary_us)


def predict(case: Case, model: str, devices: Sequence[int] = COUNTS) -> Scaling:
    """Return a model's predictions for a case, each step a launch as in the paper. Cases that do not fit are in the notes."""
    found = Scaling(case, model)
    for count in devices:
        try:
            plan = plan_scaling(
                case.problem.rules[0], case.problem.grid, count, EVERY, chip=CHIP, network=NETWORK, model=model, swap=case.problem.swap,
                axes=1, steps_per_launch=1,
            )  # fmt: skip
        except StencilError as error:
            found.notes.append(f"{count} devices: {error}")
            continue
        found.points |= {(count, one.exchange_every): point_of(one) for one in plan.rows}
    return found
