"""Python values as kernel arguments, checked against the kernel's parameters."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memlane.errors import BadLaunch
from memlane.launch.array import DeviceArray
from memlane.launch.schedule import Argument
from memlane.ptx import SCALAR_TYPES, Variable

if TYPE_CHECKING:
    from memlane.launch.target import Target

_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}


def pack(kernel: str, params: Sequence[Variable], values: Sequence[object], target: Target) -> tuple[Argument, ...]:
    """The values as arguments of `kernel`, one for each parameter.

    A pointer parameter takes an array of the target, or any object whose device memory the target recognises; an integer or
    floating-point parameter takes a Python or NumPy number that fits; a parameter passed by value (an array of bytes in PTX) takes bytes
    or a NumPy value of its size. Raises BadLaunch that names the position and what would do.
    """
    if len(values) != len(params):
        listed = ", ".join(_describe(param) for param in params)
        raise BadLaunch(f"kernel {kernel} takes {len(params)} arguments ({listed or 'none'}), {len(values)} given")
    return tuple(
        _pack_one(f"argument {position} of {kernel}", param, value, target)
        for position, (param, value) in enumerate(zip(params, values, strict=True), 1)
    )


def _describe(param: Variable) -> str:
    if param.shape is not None:
        return f"{param.nbytes} bytes"
    return f"{param.type} pointer" if ".ptr" in param.attributes else param.type


def _pack_one(where: str, param: Variable, value: object, target: Target) -> Argument:
    if param.shape is not None:
        return _by_value(where, param, value)
    kind = SCALAR_TYPES[param.type]
    if isinstance(value, DeviceArray):
        if value.target is not target:
            raise BadLaunch(f"{where} lives on {value.target.name}, the kernel on {target.name}; copy it with target.array(x.numpy())")
        text = f"{value.dtype.str[1:]}[{', '.join(map(str, value.shape))}]"
        return _pointer(where, param, (value.address, value.nbytes), text, value.owner)
    if isinstance(value, bool | int | float | np.bool | np.integer | np.floating):
        return _number(where, param, kind.kind, kind.bits, value)
    found = target.device_pointer(value)
    if found is not None:
        address, nbytes, text = found
        return _pointer(where, param, (address, nbytes), text, value)
    given = "a NumPy array, which lies on the host" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    raise BadLaunch(f"{where} is {given}; the parameter is {_describe(param)}: pass a number, or copy the array with target.array(x)")


def _pointer(where: str, param: Variable, memory: tuple[int, int], text: str, owner: object) -> Argument:
    if SCALAR_TYPES[param.type].bits != 64 or SCALAR_TYPES[param.type].kind == "f":
        raise BadLaunch(f"{where} is an array, but the parameter is {param.type}, a number")
    return Argument(struct.pack("<Q", memory[0]), text, owner, memory)


def _number(where: str, param: Variable, kind: str, bits: int, value: Any) -> Argument:
    if ".ptr" in param.attributes and value != 0:
        raise BadLaunch(f"{where} is the number {value}, but the parameter is a pointer: pass an array of the target")
    if isinstance(value, np.generic) and value.dtype.itemsize * 8 != bits:
        raise BadLaunch(
            f"{where} is {value.dtype.name}, {value.dtype.itemsize} bytes, but the parameter is {param.type}, {bits // 8} bytes"
        )
    if kind == "f" or (isinstance(value, float | np.floating) and kind == "b" and bits in _FLOAT_FORMATS):
        return Argument(_float_bytes(where, param, bits, float(value)), str(value))
    if isinstance(value, float | np.floating):
        raise BadLaunch(f"{where} is the float {value}, but the parameter is {param.type}: pass an integer")
    number = int(value)
    if not -(1 << (bits - 1)) <= number < (1 << bits):
        raise BadLaunch(f"{where} is {number}, which does not fit {param.type}")
    return Argument((number & ((1 << bits) - 1)).to_bytes(bits // 8, "little"), str(number))


def _float_bytes(where: str, param: Variable, bits: int, value: float) -> bytes:
    try:
        return struct.pack(_FLOAT_FORMATS[bits], value)
    except OverflowError:
        raise BadLaunch(f"{where} is {value}, which does not fit {param.type}") from None


def _by_value(where: str, param: Variable, value: object) -> Argument:
    data = value if isinstance(value, bytes) else value.tobytes() if isinstance(value, np.generic | np.ndarray) else None
    if data is None:
        raise BadLaunch(
            f"{where} is a {type(value).__name__}, but the parameter is a structure of {param.nbytes} bytes: pass bytes or a NumPy value"
        )
    if len(data) != param.nbytes:
        raise BadLaunch(f"{where} has {len(data)} bytes, but the parameter has {param.nbytes}")
    return Argument(data, f"{len(data)} bytes")
