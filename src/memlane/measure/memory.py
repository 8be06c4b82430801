"""Save and restore the memory that a launch may change."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.instrument import shared_variables
from memlane.launch import Launch, Launcher, Surface
from memlane.number_format import size
from memlane.ptx import parameter_use

MOST_SAVED = 4 << 30
"""Maximum bytes that are saved and restored without an explicit request."""


class Snapshot:
    """A copy of the arrays and surfaces that a launch was given, and of the variables of its module.

    Memory that the kernel reaches otherwise (pointers stored in arrays) is not included.
    """

    def __init__(self, launch: Launch) -> None:
        self._target: Launcher = launch.kernel.target
        self._saved: list[tuple[int, npt.NDArray[Any]]] = []
        loaded = launch.kernel.loaded
        variables = {self._target.symbol(loaded, name) for name in shared_variables(loaded.module)}
        for address, nbytes in sorted({argument.memory for argument in launch.arguments if argument.memory} | variables):
            host = np.empty(nbytes, np.uint8)
            self._target.read(address, host)
            self._saved.append((address, host))
        surfaces = dict.fromkeys(argument.owner for argument in launch.arguments if isinstance(argument.owner, Surface))
        self._surfaces = [(surface, surface.numpy()) for surface in surfaces]

    def holds_what(self, other: Snapshot) -> bool:
        """Return whether both snapshots hold the same bytes at the same addresses."""
        mine, theirs = ([(address, host.tobytes()) for address, host in one._saved] for one in (self, other))
        images = zip(self._surfaces, other._surfaces, strict=True)
        return mine == theirs and all(one.tobytes() == another.tobytes() for (_, one), (_, another) in images)

    def restore(self) -> None:
        """Restore the contents, after all later launches have finished."""
        for address, host in self._saved:
            self._target.write(address, host)
        for surface, host in self._surfaces:
            surface.copy_from(host)


def not_restorable(launch: Launch) -> str:
    """Return the reason why the memory that a launch writes cannot be saved and restored; empty if it can.

    It can if each store of the kernel goes to one of its arrays or to a variable of its module, and if these are not too large.
    """
    kernel = launch.kernel
    arrays = [position for position, argument in enumerate(launch.arguments) if argument.memory is not None]
    write = parameter_use(kernel.module, kernel.name, arrays).unknown_write
    if write is not None:
        place = None if write.location is None else kernel.module.users_location(write.location)
        where = "" if place is None else f" at line {place.line}"
        return f"{write.opcode}{where} may write to memory outside the arrays that were passed to the kernel"
    nbytes = sum(size for _, size in {argument.memory for argument in launch.arguments if argument.memory is not None})
    if nbytes > MOST_SAVED:
        return f"the {size(nbytes)} of its arrays would have to be copied to the host and back"
    return ""
