"""What is kept for the modules that are alive, so that equal ones can share it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from memlane.ptx import Module

T = TypeVar("T")


class ByModule(Generic[T]):
    """Things kept for modules, which count as themselves, not as what they say. A module does not live longer for it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._kept: dict[int, tuple[weakref.ref[Module], T]] = {}

    def of(self, module: Module) -> T:
        """What is kept for a module; made now if there is nothing yet."""
        key = id(module)
        found = self._kept.get(key)
        if found is None or found[0]() is not module:
            found = self._kept[key] = weakref.ref(module, lambda gone: self._forget(key, gone)), self._make()
        return found[1]

    def _forget(self, key: int, gone: weakref.ref[Module]) -> None:
        found = self._kept.get(key)
        if found is not None and found[0] is gone:  # another module may have the number by now
            del self._kept[key]

    def all(self) -> list[tuple[Module, T]]:
        """The modules that are alive, and what is kept for them."""
        pairs = [(reference(), kept) for reference, kept in list(self._kept.values())]
        return [(module, kept) for module, kept in pairs if module is not None]
