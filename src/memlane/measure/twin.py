"""Load an instrumented copy (twin) of a module: it has the same kernels, runs in place of the original and uses its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memlane.instrument import Rebound, copied_variables, rebind, shared_variables
from memlane.launch import LoadedModule
from memlane.ptx import Module


@dataclass(frozen=True, eq=False)
class Twin:
    """An instrumented module, loaded on the target of its original."""

    original: LoadedModule
    loaded: LoadedModule
    preceding: Mapping[str, int]
    """Number of instructions that loading inserted at the start of each kernel, by its PTX name."""

    def copy_constants(self) -> None:
        """Copy the contents of the original's variables in constant memory.

        Call it before each launch: only the host changes them, but it may do so at any time. A launch in a graph starts with the contents
        at the time when the graph was made.
        """
        target = self.original.target
        for name in copied_variables(self.original.module):
            source, nbytes = target.symbol(self.original, name)
            contents = np.empty(nbytes, np.uint8)
            target.read(source, contents)
            destination, _ = target.symbol(self.loaded, name)
            target.write(destination, contents)

    def set_words(self, name: str, words: npt.NDArray[np.uint8]) -> None:
        """Write these bytes to a variable of the copy's own."""
        target = self.loaded.target
        target.write(target.symbol(self.loaded, name)[0], words)

    def set_pointer(self, name: str, address: int) -> None:
        """Set the address that the probes write to, in their variable `name`; 0 disables them."""
        target = self.loaded.target
        place, _ = target.symbol(self.loaded, name)
        target.write(place, np.array([address], np.uint64))


def rebound_to(original: LoadedModule, instrumented: Module) -> Rebound:
    """Return the instrumented module with its references redirected to the variables of the original."""
    target = original.target
    return rebind(instrumented, {name: target.symbol(original, name)[0] for name in shared_variables(original.module)})


def load_twin(original: LoadedModule, rebound: Rebound) -> Twin:
    """Load the instrumented copy on the target of the original."""
    loaded = replace(
        original.target.load(rebound.module), original=original
    )  # Launches of the copy, also those in graphs, keep the original alive.
    return Twin(original, loaded, rebound.preceding)
