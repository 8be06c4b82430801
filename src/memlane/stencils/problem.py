"""Combine rules with a grid: types of the fields, fields that swap after a step, and the reference result in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from memlane.errors import StencilError
from memlane.stencils.grid import Grid, floating
from memlane.stencils.reference import apply_rule
from memlane.stencils.rule import Rule, joined_names

Swap = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Problem:
    """Rules on a grid. A step applies each rule in order to the whole grid and then rotates the names in each cycle of `swap` by one.

    After a step with `swap=(("new", "u", "old"),)`, `u` has the former memory of `new`, `old` that of `u`, and `new` that of `old`.
    """

    rules: tuple[Rule, ...]
    grid: Grid
    swap: tuple[tuple[str, ...], ...] = ()
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Type of each field, as `f4`, or `u1` for a mask; by default the grid's."""
    cut: tuple[int, ...] = ()
    """Axes along which the grid is cut: launches get the range of cells to compute there, and memory holds only part of the grid."""
    held: tuple[int, ...] = ()
    """The shape of the memory of a field, where another axis than the first is cut."""
    exact_sums: bool = False
    """Whether reductions by `+=` are exact and rounded once, so that their bits do not depend on how the cells are divided."""

    def __post_init__(self) -> None:
        for rule in self.rules:
            self.grid.check(rule)
        object.__setattr__(self, "swap", self._cycles())

    def _cycles(self) -> tuple[tuple[str, ...], ...]:
        cycles = cycles_of(self.swap)
        names = [name for cycle in cycles for name in cycle]
        for cycle in cycles:
            for name in cycle:
                if name not in self.fields:
                    raise StencilError(f"swap names {name!r}, which is not a field; the fields are {', '.join(self.fields)}")
            if len(cycle) < 2:
                raise StencilError(f"a swap is of two or more fields, not {cycle}: write swap=('new', 'u')")
            if cycle[0] not in self.written:
                raise StencilError(f"the first field of a swap is the one that is written; {cycle[0]!r} is not written by any rule")
            for name in cycle[1:]:
                if name in self.written:
                    raise StencilError(f"{name!r} is written in each step, so it cannot also take the place of {cycle[0]!r}")
            if len({self.dtype(name) for name in cycle}) > 1:
                raise StencilError(f"fields that swap have one type; {', '.join(f'{one} is {self.dtype(one)}' for one in cycle)}")
        if len(set(names)) != len(names):
            raise StencilError(f"a field swaps once only; swap is {cycles}")
        return cycles

    @cached_property
    def fields(self) -> tuple[str, ...]:
        return joined_names(self.rules)

    @cached_property
    def written(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.writes))

    @cached_property
    def constant(self) -> tuple[str, ...]:
        """The fields that no step changes."""
        changed = {*self.written, *(name for cycle in self.swap for name in cycle)}
        return tuple(name for name in self.fields if name not in changed)

    @cached_property
    def scalars(self) -> dict[str, int | None]:
        """The scalars (None) and arrays of coefficients (their number) of all rules."""
        found: dict[str, int | None] = {}
        for rule in self.rules:
            for name, length in rule.scalars.items():
                found[name] = length if length is None else max(length, found.get(name) or 0)
        for name in found:
            if name in self.fields:
                raise StencilError(f"{name!r} is a field in one rule and a number in another: give one of them another name")
        return found

    @cached_property
    def reductions(self) -> dict[str, str]:
        return {name: kind for rule in self.rules for name, kind in rule.reductions.items()}

    @cached_property
    def previous(self) -> dict[str, str]:
        """For each written field that swaps, the field that supplies the values of its fixed cells: the one that it becomes."""
        return {cycle[0]: cycle[1] for cycle in self.swap}

    @cached_property
    def period(self) -> int:
        """The number of steps after which every name has its first memory again."""
        return int(np.lcm.reduce([len(cycle) for cycle in self.swap] or [1]))

    def dtype(self, name: str) -> str:
        """Return the type of a field, or of spare memory, as named by `spares`."""
        return self.dtypes.get(name if name in self.fields else name.removesuffix(_SPARE), self.grid.dtype)

    @cached_property
    def optional(self) -> set[str]:
        """Fields that need no initial values, because each of their cells is written before it is read."""
        return {name for name in self.written if name in self.previous or not any(map(any, self.grid.fixed(self._writer(name))))}

    def _writer(self, name: str) -> Rule:
        return next(rule for rule in self.rules if name in rule.writes)

    def reference(self, steps: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields after some steps, and the reductions of the last one, by executing the rules on NumPy arrays.

        A scalar may be given as an array with a value for each step (coefficients: a row for each step).
        """
        state = {name: np.array(values[name], self.dtype(name)) for name in self.fields if name in values}
        for cycle in self.swap:
            state.setdefault(cycle[0], np.zeros(self.grid.shape, self.dtype(cycle[0])))
        for name in self.written:
            state.setdefault(name, np.zeros(self.grid.shape, self.dtype(name)))
        found: dict[str, Any] = {}
        for step in range(steps):
            scalars = {name: at_step(values[name], length, step) for name, length in self.scalars.items()}
            for rule in self.rules:
                result = apply_rule(rule, self.grid, {**state, **scalars}, self.previous)
                state |= {name: result[name] for name in rule.writes}
                found |= {name: result[name] for name in rule.reductions}
            for cycle in self.swap:
                moved = [state[name] for name in cycle]
                state |= dict(zip(cycle, [moved[-1], *moved[:-1]], strict=True))
        return {**state, **found}


def at_step(value: Any, length: int | None, step: int) -> Any:
    """Return the value of a scalar, or the coefficients, in one step."""
    given = np.asarray(value)
    return given[step] if given.ndim == (1 if length is None else 2) else given


def field_type(dtype: Any, name: str) -> str:
    """Return the element type of an array for a field. Raise StencilError for a type that a field cannot have."""
    kind = np.dtype(dtype)
    if kind.str[1:] in ("b1", "u1"):
        return "u1"
    return floating(kind, f"field {name!r}")


def spares(cycle: Sequence[str]) -> list[str]:
    """Return the names of the memory that a launch of several steps writes: the first of the cycle, and spares for longer cycles."""
    return [cycle[0], *(f"{name}{_SPARE}" for name in cycle[2:])]


def cycles_of(swap: Swap) -> tuple[tuple[str, ...], ...]:
    """Normalise the groups of names that swap after a step: a single group may be passed without the outer sequence."""
    given: Any = swap
    return (tuple(given),) if given and isinstance(given[0], str) else tuple(tuple(one) for one in given)


_SPARE = "_next"
"""Suffix of a field's name that names spare memory."""
