"""Write the initial values of module-scope variables into the emulator's memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from memlane.errors import PtxTypeError
from memlane.ptx import SCALAR_TYPES, Variable
from memlane.ptx.constants import bits_of
from memlane.ptx.initializers import Value, initial_values


def fill(variable: Variable, target: npt.NDArray[np.uint8], address_of: Callable[[str], int | None]) -> None:
    """Write a variable's initial value into zeroed memory; elements without an initialiser stay zero.

    `address_of` returns the device address of another variable or function by name, or None.
    """
    nbytes = SCALAR_TYPES[variable.type].nbytes if variable.type in SCALAR_TYPES else 8
    for place, value in enumerate(initial_values(variable)):
        target[place * nbytes : (place + 1) * nbytes] = list(_bits(variable, value, address_of).to_bytes(nbytes, "little"))


def _bits(variable: Variable, value: Value, address_of: Callable[[str], int | None]) -> int:
    scalar = SCALAR_TYPES[variable.type]
    if value.literal is not None:
        whole = bits_of(value.literal, scalar) if value.byte is None else value.literal.value
    else:
        address = address_of(value.name)
        if address is None:
            what = f"the initialiser of {variable.name} names {value.name}"
            raise PtxTypeError(
                f"{what}, which is neither a variable in global or constant memory nor a function with a body", variable.span
            )
        whole = address + value.offset
    if value.byte is not None:
        return whole >> 8 * value.byte & 0xFF
    return whole & ((1 << scalar.bits) - 1)
