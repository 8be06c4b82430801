"""Convert Python values to kernel arguments, checked against the kernel's parameters."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from memlane.errors import BadLaunch
from memlane.launch.memory import DeviceArray, Memory
from memlane.launch.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap, TensorMaps
from memlane.launch.texture import Surface, Texture
from memlane.number_format import plural
from memlane.ptx import SCALAR_TYPES, Convention, Single, SpreadArray, SpreadTensorMap, Variable

_PROMOTION = "128B"
"""L2 fetch size of tensor maps that are made for a launch."""
_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel argument, ready to be passed: its bytes in the layout of the parameter."""

    data: bytes
    text: str
    """Description for messages and records, such as `f4[1024, 1024]` or `1024`."""
    owner: object = field(default=None, repr=False, compare=False)
    memory: tuple[int, int] | None = None
    """Device address and size in bytes of an array, so that an observer can save and restore it; None for other arguments."""
    dtype: str = ""
    """Type of the elements of an array in NumPy's notation, such as `f4`; empty if unknown."""
    shape: tuple[int, ...] | None = None
    """Extents of an array in elements; None for other arguments, and for memory of unknown extents."""


class ArgumentRule(Protocol):
    """Requirements of a modified kernel on its arguments, in addition to its parameters."""

    def values(self, values: tuple[object, ...]) -> tuple[object, ...]:
        """Return the values to be packed. Raises BadLaunch if they do not fit."""

    def packed(self, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """Return the arguments to be passed. Raises BadLaunch if they do not fit."""


def pack(
    kernel: str,
    params: Sequence[Variable],
    values: Sequence[object],
    target: TensorMaps,
    convention: Convention | None = None,
    blocks: int = 1,
    rule: ArgumentRule | None = None,
) -> tuple[Argument, ...]:
    """Return the values as arguments of `kernel`, one for each parameter.

    A pointer parameter takes an array of the target, or any object whose device memory the target recognises; a parameter of 64 bits also
    takes a texture or a surface of the target, and receives its handle; an integer or floating-point parameter takes a Python or NumPy
    number that fits; a parameter passed by value (an array of bytes in PTX) takes bytes or a NumPy value of its size, or a tensor map of
    the target. A `convention` lists the values that expand to several parameters. Parameters without a value are zero, except for scratch
    memory of each of the `blocks`. A `rule` of the kernel may change or reject values. Raises BadLaunch with the position of the argument
    and what would fit.
    """
    forms = (Single(),) * len(params) if convention is None else convention.arguments
    if len(values) != len(forms):
        listed = ", ".join(_listed(forms, params))
        raise BadLaunch(f"kernel {kernel} takes {plural(len(forms), 'argument')} ({listed or 'none'}), got {len(values)}")
    values = values if rule is None else rule.values(tuple(values))
    packed: list[Argument] = []
    for position, (form, value) in enumerate(zip(forms, values, strict=True), 1):
        where = f"argument {position} of {kernel}"
        if isinstance(form, SpreadArray):
            packed += _pack_spread(where, form, value, target)
        elif isinstance(form, SpreadTensorMap):
            packed += _pack_tensor_map(where, form, params[len(packed) : len(packed) + form.width()], value, target)
        else:
            packed.append(_pack_one(where, params[len(packed)], value, target))
            _check_promises(where, form, value, packed[-1])
    if convention is not None and convention.scratch_bytes:
        nbytes = convention.scratch_bytes * blocks
        address, owner = target.allocate(nbytes)
        packed.append(Argument(struct.pack("<Q", address), f"{plural(nbytes, 'byte')} of scratch memory", owner, (address, nbytes)))
    packed += (Argument(bytes(param.nbytes), "hidden") for param in params[len(packed) :])
    return tuple(packed) if rule is None else rule.packed(tuple(packed))


def pointer_parameters(params: Sequence[Variable], convention: Convention | None, is_array: Sequence[bool]) -> list[int | None] | None:
    """Return for each argument the position of the parameter that leads to its array, None for an argument that is not an array; or None if
    the number of arguments is wrong."""
    forms = (Single(),) * len(params) if convention is None else convention.arguments
    if len(forms) != len(is_array):
        return None
    found: list[int | None] = []
    at = 0
    for form, array in zip(forms, is_array, strict=True):
        before = 0
        if isinstance(form, SpreadArray):
            parts = form.parts[: form.parts.index("address")]
            before = sum(form.ndim if part in ("shape", "strides") else 1 for part in parts)
        found.append(at + before if array else None)
        at += form.width()
    return found


def _listed(forms: Sequence[Single | SpreadArray | SpreadTensorMap], params: Sequence[Variable]) -> list[str]:
    """Return descriptions of the arguments that a kernel takes."""
    listed, at = [], 0
    for form in forms:
        listed.append(_describe(params[at]) if isinstance(form, Single) else _describe_spread(form))
        at += form.width()
    return listed


def _describe_spread(form: SpreadArray | SpreadTensorMap) -> str:
    """Return a description such as `f4[:, :]` or `f32[:, :] in boxes of 16 x 32`."""
    if isinstance(form, SpreadTensorMap):
        return f"{form.element}[{', '.join(':' * len(form.box))}] in boxes of {' x '.join(map(str, form.box))}"
    return f"{form.dtype}[{', '.join(':' * form.ndim)}]"


def _pack_spread(where: str, form: SpreadArray, value: object, target: TensorMaps) -> list[Argument]:
    """Return the parameters of an array that is passed with its shape. Arrays of a target, and those it recognises, are in C order."""
    dtype = np.dtype(form.dtype)
    if isinstance(value, bool | int | float | np.bool | np.integer | np.floating):
        raise BadLaunch(f"{where} is the number {value}, but the kernel was compiled for an array, {_describe_spread(form)}")
    pointer = _pack_one(where, Variable("param", "u64", "array"), value, target)
    assert pointer.memory is not None
    shape = tuple(int(extent) for extent in getattr(value, "shape", ()))
    fits = value.dtype == dtype if isinstance(value, DeviceArray) else math.prod(shape) * dtype.itemsize == pointer.memory[1]
    if len(shape) != form.ndim or not fits:
        raise BadLaunch(f"{where} is {pointer.text}, but the kernel was compiled for {_describe_spread(form)}")
    if form.order == "F" and sum(extent > 1 for extent in shape) > 1:
        raise BadLaunch(f"{where} is in C order, but the kernel was compiled for Fortran order; compile it for C order")
    strides = [math.prod(shape[axis + 1 :]) * dtype.itemsize for axis in range(form.ndim)]
    numbers = {"zero": [0], "size": [math.prod(shape)], "itemsize": [dtype.itemsize], "shape": shape, "strides": strides}
    packed: list[Argument] = []
    for part in form.parts:
        packed += [pointer] if part == "address" else [Argument(struct.pack("<q", n), f"{part} {n}") for n in numbers[part]]
    return packed


def _pack_tensor_map(where: str, form: SpreadTensorMap, params: Sequence[Variable], value: object, target: TensorMaps) -> list[Argument]:
    """Return the parameters of an array that is copied in boxes: its tensor map, made here if the array itself is passed."""
    if isinstance(value, bool | int | float | np.bool | np.integer | np.floating):
        raise BadLaunch(f"{where} is the number {value}, but the kernel was compiled for an array, {_describe_spread(form)}")
    if not isinstance(value, TensorMap):
        value = target.tensor_map(value, form.box, swizzle=form.swizzle, promotion=_PROMOTION, element=form.element)
    tiling = value.tiling
    if (tiling.element, tuple(reversed(tiling.box)), tiling.swizzle) != (form.element, form.box, form.swizzle):
        raise BadLaunch(
            f"{where} is a tensor map with {tiling} and swizzle {tiling.swizzle}, but the kernel was compiled for {_describe_spread(form)} "
            f"and swizzle {form.swizzle}: create it with these, or pass the array itself"
        )
    strides = [stride // tiling.element_bytes for stride in reversed(tiling.strides)]
    numbers = [*reversed(tiling.extents), *strides, 1]
    packed = [_tensor_map(where, params[0], value, target)]
    for param, number, part in zip(params[1:], numbers, ["shape"] * len(form.box) + ["strides"] * len(form.box), strict=True):
        packed.append(Argument(number.to_bytes(param.nbytes, "little"), f"{part} {number}"))
    return packed


def _check_promises(where: str, form: Single, value: object, packed: Argument) -> None:
    """Raise BadLaunch if the argument breaks an assumption of the compiler: its element type, or a multiple."""
    if form.dtype is not None and isinstance(value, DeviceArray) and value.dtype != np.dtype(form.dtype):
        raise BadLaunch(f"{where} is {packed.text}, but the kernel was compiled for a pointer to {form.dtype}")
    if form.multiple_of > 1 and (number := int.from_bytes(packed.data, "little")) % form.multiple_of:
        given = f"at address {number:#x}" if packed.memory else packed.text
        raise BadLaunch(f"{where} is {given}, but the kernel was compiled for multiples of {form.multiple_of}")


def _describe(param: Variable) -> str:
    """Return a description of a parameter."""
    if param.shape is not None:
        return f"{plural(param.nbytes, 'byte')}"
    return f"{param.type} pointer" if ".ptr" in param.attributes else param.type


def _pack_one(where: str, param: Variable, value: object, target: TensorMaps) -> Argument:
    """Return the argument for one parameter. Raises BadLaunch if the value does not fit."""
    if isinstance(value, TensorMap):
        return _tensor_map(where, param, value, target)
    if param.shape is not None:
        return _by_value(where, param, value)
    kind = SCALAR_TYPES[param.type]
    if isinstance(value, DeviceArray):
        if not target.reaches(value.target):
            home = value.target.name_beside(target)
            raise BadLaunch(
                f"{where} is on {home}, but the kernel is on {target.name}; copy it with target.array(x.numpy()), or let the kernel "
                "access it with target.enable_peer(x.target)"
            )
        text = f"{value.dtype.str[1:]}[{', '.join(map(str, value.shape))}]"
        packed = _pointer(where, param, (value.address, value.nbytes), text, value.owner)
        return replace(packed, dtype=value.dtype.str[1:], shape=tuple(value.shape))
    if isinstance(value, bool | int | float | np.bool | np.integer | np.floating):
        return _number(where, param, kind.kind, kind.bits, value)
    if isinstance(value, Texture | Surface):
        return _handle(where, param, value, target)
    found = target.device_pointer(value)
    if found is not None:
        address, nbytes, text = found
        extents = getattr(value, "shape", None)
        shape = tuple(map(int, extents)) if isinstance(extents, Sequence) else None
        return replace(_pointer(where, param, (address, nbytes), text, value), dtype=_element_type(value), shape=shape)
    given = "a NumPy array, which is in host memory" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    raise BadLaunch(f"{where} is {given}; the parameter is {_describe(param)}: pass a number, or copy the array with target.array(x)")


def _element_type(value: object) -> str:
    """Return the element type of a foreign array in NumPy's notation; empty if NumPy does not have it."""
    try:
        return np.dtype(str(getattr(value, "dtype", "")).rpartition(".")[2]).str[1:]
    except TypeError:
        return ""


def _handle(where: str, param: Variable, value: Texture | Surface, target: TensorMaps) -> Argument:
    what = type(value).__name__.lower()
    home: Memory = value.target
    if home is not target:
        raise BadLaunch(f"{where} is a {what} of {value.target.name_beside(target)}, but the kernel runs on {target.name}; create it there")
    if SCALAR_TYPES[param.type].bits != 64 or SCALAR_TYPES[param.type].kind == "f" or ".ptr" in param.attributes:
        raise BadLaunch(f"{where} is a {what}, a handle of 64 bits, but the parameter is {_describe(param)}")
    return Argument(struct.pack("<Q", value.handle), f"{what}: {value.texels}", value)


def _tensor_map(where: str, param: Variable, value: TensorMap, target: TensorMaps) -> Argument:
    if value.target is not target:
        raise BadLaunch(
            f"{where} is a tensor map of {value.target.name_beside(target)}, but the kernel runs on {target.name}; create it there"
        )
    if param.nbytes != TENSOR_MAP_BYTES or param.shape is None or (param.align or 1) % TENSOR_MAP_ALIGNMENT:
        found = _describe(param) if param.shape is None else f"{_describe(param)}, aligned to {param.align or 1}"
        raise BadLaunch(
            f"{where} is a tensor map ({TENSOR_MAP_BYTES} bytes, aligned to {TENSOR_MAP_ALIGNMENT}), but the parameter is {found}: "
            "declare it as `const __grid_constant__ CUtensorMap`"
        )
    memory = (value.owner.address, value.owner.nbytes) if isinstance(value.owner, DeviceArray) else None
    return Argument(value.data, f"tensor map: {value.tiling}", value, memory)


def _pointer(where: str, param: Variable, memory: tuple[int, int], text: str, owner: object) -> Argument:
    if SCALAR_TYPES[param.type].bits != 64 or SCALAR_TYPES[param.type].kind == "f":
        raise BadLaunch(f"{where} is an array, but the parameter is {param.type}, a number")
    return Argument(struct.pack("<Q", memory[0]), text, owner, memory)


def _number(where: str, param: Variable, kind: str, bits: int, value: Any) -> Argument:
    if ".ptr" in param.attributes and value != 0:
        raise BadLaunch(f"{where} is the number {value}, but the parameter is a pointer: pass an array of the target")
    if isinstance(value, np.generic) and value.dtype.itemsize * 8 != bits:
        raise BadLaunch(
            f"{where} is {value.dtype.name}, {plural(value.dtype.itemsize, 'byte')}, but the parameter is {param.type}, "
            f"{plural(bits // 8, 'byte')}"
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
            f"{where} is a {type(value).__name__}, but the parameter is a structure of {plural(param.nbytes, 'byte')}: pass bytes or a "
            "NumPy value"
        )
    if len(data) != param.nbytes:
        raise BadLaunch(f"{where} has {plural(len(data), 'byte')}, but the parameter has {param.nbytes}")
    return Argument(data, f"{plural(len(data), 'byte')}")
