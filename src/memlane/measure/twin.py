"""The twin of a loaded module: another module with the same kernels, which runs in its place and works on its variables."""

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
    """An instrumented module, loaded where the original is."""

    original: LoadedModule
    loaded: LoadedModule
    preceding: Mapping[str, int]
    """By PTX name of a kernel: how many instructions the twin has in front of those of the instrumented module."""

    def copy_constants(self) -> None:
        """Give the variables in constant memory the contents that the original's have now.

        To do before each launch: only the host changes them, but that it may do at any time. A launch in a graph starts with what they
        held when the graph was made.
        """
        target = self.original.target
        for name in copied_variables(self.original.module):
            source, nbytes = target.symbol(self.original, name)
            contents = np.empty(nbytes, np.uint8)
            target.read(source, contents)
            destination, _ = target.symbol(self.loaded, name)
            target.write(destination, contents)

    def set_words(self, name: str, words: npt.NDArray[np.uint8]) -> None:
        """Fill a variable of the twin's own with these bytes."""
        target = self.loaded.target
        target.write(target.symbol(self.loaded, name)[0], words)

    def set_pointer(self, name: str, address: int) -> None:
        """Tell the probes where to write, through their variable `name`; 0: nowhere."""
        target = self.loaded.target
        place, _ = target.symbol(self.loaded, name)
        target.write(place, np.array([address], np.uint64))


def rebound_to(original: LoadedModule, instrumented: Module) -> Rebound:
    """The instrumented module made to use the variables of the original where they lie."""
    target = original.target
    return rebind(instrumented, {name: target.symbol(original, name)[0] for name in shared_variables(original.module)})


def load_twin(original: LoadedModule, rebound: Rebound) -> Twin:
    """Load the twin where the original is."""
    loaded = replace(original.target.load(rebound.module), original=original)  # Launches of the twin, those in graphs too, keep it alive.
    return Twin(original, loaded, rebound.preceding)
