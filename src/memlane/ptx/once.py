"""Cache results per module, or per other immutable object, for as long as the object lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
P = ParamSpec("P")
T = TypeVar("T")
_KEPT = "_once_for_each"


def once_for_each(compute: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """Cache the results of a function per owner (its first argument) and per choice of its other arguments.

    The owner holds the cache: a result may refer to its owner, and is freed with it. The other arguments are compared by value.
    """

    @wraps(compute)
    def look_up(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        kept: dict[object, T] = vars(owner).setdefault(_KEPT, {})
        key = compute, args, *kwargs.items()
        if key not in kept:
            kept[key] = compute(owner, *args, **kwargs)
        return kept[key]

    return look_up
