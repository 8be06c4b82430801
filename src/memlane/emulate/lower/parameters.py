"""Splits parameters and results of device functions into registers.

PTX passes them through variables in `.param` space: the caller stores into one of its own and names it in the call, the function loads from
another. Variables bound together by a call are split alike, at the bounds of all accesses to them, so that a call copies register by
register.
"""

from __future__ import annotations

from memlane.ptx.parameters import Unit, cut

Name = tuple[str, str]
"""A function and one of its variables."""


class Parameters:
    """Tracks which variables calls bind together, and which pieces of them are accessed."""

    def __init__(self) -> None:
        self._bound: dict[Name, Name] = {}
        self._accesses: dict[Name, set[Unit]] = {}
        self._units: dict[Name, tuple[Unit, ...]] = {}

    def _first(self, name: Name) -> Name:
        path = []
        while name in self._bound:
            path.append(name)
            name = self._bound[name]
        self._bound.update(dict.fromkeys(path, name))  # Path compression keeps the chains short when one function is called often.
        return name

    def bind(self, one: Name, other: Name) -> None:
        """Record that a call passes `one` as `other`."""
        one, other = self._first(one), self._first(other)
        if one != other:
            self._bound[other] = one
            self._accesses.setdefault(one, set()).update(self._accesses.pop(other, ()))

    def access(self, name: Name, offset: int, nbytes: int) -> None:
        """Record a load or store of `nbytes` at `offset`."""
        self._accesses.setdefault(self._first(name), set()).add((offset, nbytes))

    def units(self, name: Name) -> tuple[Unit, ...]:
        """Return the pieces of a variable, in order, after all accesses are recorded. Bytes that are never accessed belong to none."""
        first = self._first(name)
        if first not in self._units:
            self._units[first] = cut(self._accesses.get(first, ()))
        return self._units[first]
