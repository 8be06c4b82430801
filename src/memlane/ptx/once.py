"""What is worked out once for a module, or for something else that does not change, and forgotten with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
P = ParamSpec("P")
T = TypeVar("T")
_KEPT = "_once_for_each"


def once_for_each(compute: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """Compute what a function gives once for each owner, which is its first argument, and each choice of the arguments behind it.

    The owner keeps it: what is computed may hold the owner, and is forgotten with it. The other arguments count by their value.
    """

    @wraps(compute)
    def look_up(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        kept: dict[object, T] = vars(owner).setdefault(_KEPT, {})
        key = compute, args, *kwargs.items()
        if key not in kept:
            kept[key] = compute(owner, *args, **kwargs)
        return kept[key]

    return look_up
