"""Cache the modules of this lab: each is compiled and loaded once per target."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache

from memlane.launch import LoadedModule, Target
from memlane.ptx import Module


@cache
def load_cached(target: Target, make: Callable[..., Module], *arguments: Hashable) -> LoadedModule:
    """Return `make(*arguments)` loaded on a target, cached for the life of the process."""
    return target.load(make(*arguments))
