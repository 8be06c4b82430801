"""Modules of this lab on their targets: each is compiled and loaded once for a target."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache

from memlane.launch import LoadedModule, Target
from memlane.ptx import Module


@cache
def loaded(target: Target, make: Callable[..., Module], *arguments: Hashable) -> LoadedModule:
    """`make(*arguments)` on a target, which stays as long as the process does."""
    return target.load(make(*arguments))
