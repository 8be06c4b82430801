"""Parameters and results of device functions, cut into registers.

PTX passes them through variables in `.param` space: the caller stores into one of its own and names it in the call, the function loads from
another. Variables that a call binds together are cut alike, at the bounds of all accesses to them, so that a call copies register by
register.
"""

from __future__ import annotations

from memlane.ptx.parameters import Unit, cut

Name = tuple[str, str]
"""A function and a variable of it."""


class Parameters:
    """Which variables are bound together, and which parts of them are accessed."""

    def __init__(self) -> None:
        self._bound: dict[Name, Name] = {}
        self._accesses: dict[Name, set[Unit]] = {}
        self._units: dict[Name, tuple[Unit, ...]] = {}

    def _first(self, name: Name) -> Name:
        path = []
        while name in self._bound:
            path.append(name)
            name = self._bound[name]
        self._bound.update(dict.fromkeys(path, name))  # So many calls of one function do not become a long way.
        return name

    def bind(self, one: Name, other: Name) -> None:
        """A call passes `one` as `other`."""
        one, other = self._first(one), self._first(other)
        if one != other:
            self._bound[other] = one
            self._accesses.setdefault(one, set()).update(self._accesses.pop(other, ()))

    def access(self, name: Name, offset: int, nbytes: int) -> None:
        """Somebody loads or stores `nbytes` there."""
        self._accesses.setdefault(self._first(name), set()).add((offset, nbytes))

    def units(self, name: Name) -> tuple[Unit, ...]:
        """The parts of a variable, in order, once all is known. Bytes that nobody accesses belong to none."""
        first = self._first(name)
        if first not in self._units:
            self._units[first] = cut(self._accesses.get(first, ()))
        return self._units[first]
