"""Define rules: the update of one cell, and its properties that do not depend on a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from memlane.source import Source
from memlane.stencils.expression import Assignment, Read, Scalar, parts

Offsets = tuple[int, ...]


@dataclass(frozen=True)
class Footprint:
    """Reach of a rule along each axis: cells before the cell (`low`) and after it (`high`), neither negative."""

    low: Offsets
    high: Offsets

    @property
    def radius(self) -> Offsets:
        """The larger of the two for each axis."""
        return tuple(map(max, self.low, self.high))


@dataclass(frozen=True, eq=False)
class Rule:
    """Assignments of a stencil's function in order, over fields, scalars and coefficients.

    `read_rule` parses a Python function into a rule. A rule has no shape, types or boundaries; these come from a grid.
    """

    name: str
    dimensions: int
    parameters: tuple[str, ...]
    body: tuple[Assignment, ...]
    source: Source = field(repr=False)
    function: Callable[..., Any] = field(repr=False)

    @cached_property
    def reads(self) -> dict[str, tuple[Offsets, ...]]:
        """The offsets at which each field is read, sorted, in the order in which the parameters are declared."""
        found: dict[str, set[Offsets]] = {}
        for assignment in self.body:
            for part in parts(assignment.value):
                if isinstance(part, Read):
                    found.setdefault(part.name, set()).add(part.offsets)
        return {name: tuple(sorted(found[name])) for name in self.parameters if name in found}

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """The fields that the rule writes, in the order of the parameters."""
        written = {assignment.name for assignment in self.body if assignment.is_field}
        return tuple(name for name in self.parameters if name in written)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """All fields, in the order of the parameters."""
        return tuple(name for name in self.parameters if name in self.reads or name in self.writes)

    @cached_property
    def reductions(self) -> dict[str, str]:
        """The reductions by name, each `sum`, `min` or `max`."""
        return {one.name: one.reduces for one in self.body if one.reduces}

    @cached_property
    def scalars(self) -> dict[str, int | None]:
        """The scalars and arrays of coefficients: None for a scalar, else the number of elements that are used."""
        found: dict[str, int | None] = {}
        for assignment in self.body:
            for part in parts(assignment.value):
                if isinstance(part, Scalar):
                    length = None if part.index is None else max(part.index + 1, found.get(part.name) or 0)
                    found[part.name] = length
        return {name: found[name] for name in self.parameters if name in found}

    @cached_property
    def footprint(self) -> Footprint:
        """The reach of the rule over all its fields."""
        offsets = [(0,) * self.dimensions, *(one for several in self.reads.values() for one in several)]
        axes = range(self.dimensions)
        low = tuple(max(0, *(-one[axis] for one in offsets)) for axis in axes)
        return Footprint(low, tuple(max(0, *(one[axis] for one in offsets)) for axis in axes))

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(self.writes) or 'nothing'} from {', '.join(self.reads)}, radius {self.footprint.radius}"


def joined_names(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return the fields of several rules, each once, in the order in which they appear."""
    return tuple(dict.fromkeys(name for rule in rules for name in rule.fields))
