"""Cache values per live module, so that equal modules can share them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from memlane.ptx import Module

T = TypeVar("T")


class WeakModuleCache(Generic[T]):
    """Per-module cache, keyed by identity; it does not keep the module alive."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._kept: dict[int, tuple[weakref.ref[Module], T]] = {}

    def get_or_create(self, module: Module) -> T:
        """Return the value of a module, created on first use."""
        key = id(module)
        found = self._kept.get(key)
        if found is None or found[0]() is not module:
            found = self._kept[key] = weakref.ref(module, lambda gone: self._forget(key, gone)), self._make()
        return found[1]

    def _forget(self, key: int, gone: weakref.ref[Module]) -> None:
        found = self._kept.get(key)
        if found is not None and found[0] is gone:  # another module may have the same id by now
            del self._kept[key]

    def items(self) -> list[tuple[Module, T]]:
        """Return the live modules and their values."""
        pairs = [(reference(), kept) for reference, kept in list(self._kept.values())]
        return [(module, kept) for module, kept in pairs if module is not None]
