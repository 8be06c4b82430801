"""Define the shape of a launch, its stream, and the step of a plan it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memlane.errors import BadLaunch

Dim3 = tuple[int, int, int]
_STREAM = 2
"""Position of the stream in a configuration of a kernel."""


@dataclass(frozen=True)
class Stream:
    """Queue of work of one target: its launches run in order, those of different streams may overlap."""

    number: int
    """Number of the stream; 0 is the target's default stream."""
    handle: object = field(default=None, repr=False)


DEFAULT_STREAM = Stream(0)
"""Default stream of the target that runs a launch."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Execution of a step of a plan that a launch or a copy comes from."""

    path: tuple[int, ...]
    """Positions of the step: in the plan, and in each enclosing repeat."""
    turns: tuple[int, ...]
    """Turn of each enclosing repeat, the outermost first."""
    device: int | None
    """Number of the executing device in the plan; None is the host."""
    name: str
    """Name for messages, such as `step 3 (scale) in turn 1`."""


def dim3(label: str, extent: object) -> Dim3:
    """Return three positive extents from an int or a tuple of one to three ints. Raises BadLaunch, which names them by `label`."""
    values = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(values) <= 3 or not all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
        raise BadLaunch(f"the {label} must be an int or a tuple of up to 3 ints, got {extent!r}")
    if min(values) < 1:
        raise BadLaunch(f"the {label} must be positive in each dimension, got {extent!r}")
    x, y, z = (*values, 1, 1)[:3]
    return (int(x), int(y), int(z))


def is_cacheable(configuration: tuple[object, ...]) -> bool:
    """Return whether a configuration may be cached: equal keys are the same configuration (1, 1.0 and True are equal keys), and it stays
    valid."""
    for position, value in enumerate(configuration):
        if type(value) is tuple:
            if not all(type(one) is int for one in value):
                return False
        elif type(value) is int:
            if position == _STREAM:  # the handle of another library's stream may be reused for a different stream later
                return False
        elif value is not None and type(value) is not Stream:
            return False
    return True
