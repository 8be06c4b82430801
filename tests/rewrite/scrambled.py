"""Modules with every array in shared memory of a kernel in a random order: the hardest layout there is, for all accesses alike."""

from __future__ import annotations

import numpy as np

from memlane.layout import Gather
from memlane.ptx import Module
from memlane.rewrite import accesses_to_shared, relayout_module, shared_arrays


def scrambled(module: Module, kernel: str) -> tuple[Module, int]:
    """The module, and how many arrays of the kernel with that PTX name were laid out anew: those of known size, in units of the widest
    access."""
    function, count = module.kernels[kernel], 0
    changed = module
    for array in shared_arrays(module, function):
        accesses = accesses_to_shared(function, shared_arrays(module, function)).accesses
        unit = max((one.nbytes for one in accesses if one.pointer.array.same_memory(array)), default=0)
        if array.nbytes and unit and array.nbytes % unit == 0 and array.nbytes > unit:
            units = array.nbytes // unit
            order = Gather(1, units, np.random.default_rng(units).permutation(units))
            changed = relayout_module(changed, order, shared=array.names[0], kernel=kernel, element=unit, tables="global").module
            count += 1
    return changed, count
