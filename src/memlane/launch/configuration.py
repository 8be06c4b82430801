"""The shape of a launch and the stream that it is put on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memlane.errors import BadLaunch

Dim3 = tuple[int, int, int]
_STREAM = 2
"""Where the stream stands in a configuration of a kernel."""


@dataclass(frozen=True)
class Stream:
    """A queue of work of one target: its launches run one after another, those of two streams may overlap."""

    number: int
    """0 is the target's default stream."""
    handle: object = field(default=None, repr=False)


DEFAULT_STREAM = Stream(0)
"""The default stream of whichever target runs a launch."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The execution of a step of a plan that a launch or a copy comes from."""

    path: tuple[int, ...]
    """Positions of the step: in the plan, and in each repeat around it."""
    turns: tuple[int, ...]
    """The turn of each repeat around it, the outermost first."""
    device: int | None
    """The number of the device that does it, as the plan has it; None is the host."""
    name: str
    """What to call it in a message, as `step 3 (scale) in turn 1`."""


def dim3(label: str, extent: object) -> Dim3:
    """Return three positive extents from an int or a tuple of one to three ints. Raises BadLaunch, which names them by `label`."""
    values = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(values) <= 3 or not all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
        raise BadLaunch(f"the {label} must be an int or a tuple of up to 3 ints, got {extent!r}")
    if min(values) < 1:
        raise BadLaunch(f"the {label} must be positive in each dimension, got {extent!r}")
    x, y, z = (*values, 1, 1)[:3]
    return (int(x), int(y), int(z))


def is_lasting(configuration: tuple[object, ...]) -> bool:
    """Whether a configuration is one that is worth remembering: what equals it is it (1, 1.0 and True are one key), and lasts as long."""
    for position, value in enumerate(configuration):
        if type(value) is tuple:
            if not all(type(one) is int for one in value):
                return False
        elif type(value) is int:
            if position == _STREAM:  # the handle of a stream of another library, which may be that of another one later
                return False
        elif value is not None and type(value) is not Stream:
            return False
    return True
