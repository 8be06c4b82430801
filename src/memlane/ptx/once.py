"""What is worked out once for a module, and forgotten with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from memlane.ptx.ir import Module

T = TypeVar("T")


def once_for_module(compute: Callable[[Module], T]) -> Callable[[Module], T]:
    """Compute what a function gives once for each module, which is immutable. The module keeps it: what is computed may hold the module."""
    key = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def look_up(module: Module) -> T:
        kept = vars(module)
        if key not in kept:
            kept[key] = compute(module)
        found: T = kept[key]
        return found

    return look_up
