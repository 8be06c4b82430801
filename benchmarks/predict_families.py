"""Name the families of kernels by which modelled times are judged, and those that are set aside.

The model's numbers may be chosen by what the families of `TUNED` measure. Those of `SET_ASIDE` were chosen before the first of them was
measured and before anything was tuned; nothing is ever changed for their sake, so their errors are those that a user meets.
"""

from __future__ import annotations

TUNED = (
    "copies by vector width",
    "reduction ladder",
    "stencils by block shape",
    "strided gathers",
    "bank conflicts",
    "histograms in shared memory",
    "occupancy",
    "arithmetic",
    "barriers",
    "stores",
    "tensor products",
    "launches",
)

SET_ASIDE = (
    "copies, shifted and strided",
    "transposes",
    "stencil variants",
    "matrix products by tile",
    "random gathers",
    "atomics by contention",
    "textures by block shape",
    "waves of blocks",
    "sparse matrix times vector",
    "public kernels",
    "Numba",
    "Triton",
)
