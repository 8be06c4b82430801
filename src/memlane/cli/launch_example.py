"""Suggest launch options for a .cu or .ptx file that was named without any."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memlane.cli.later import later
from memlane.cli.launch_shape import ELEMENTS, LaunchShape, launch_shape
from memlane.ptx import Variable, called_functions, names_in
from memlane.titles import plain_name

if TYPE_CHECKING:
    from memlane import compile as front_ends
    from memlane.launch import Kernel
else:
    front_ends = later("memlane.compile")

_DTYPES = {
    "float": "f4", "float1": "f4", "float2": "f4", "float3": "f4", "float4": "f4", "double": "f8", "double2": "f8", "__half": "f2",
    "int": "i4", "int2": "i4", "int3": "i4", "int4": "i4", "unsigned int": "u4", "uint2": "u4", "uint4": "u4", "long": "i8",
    "unsigned long": "u8", "long long": "i8", "unsigned long long": "u8", "short": "i2", "unsigned short": "u2", "char": "i1",
    "signed char": "i1", "unsigned char": "u1", "uchar4": "u1", "bool": "bool",
    "int8_t": "i1", "uint8_t": "u1", "int16_t": "i2", "uint16_t": "u2", "int32_t": "i4", "uint32_t": "u4", "int64_t": "i8",
    "uint64_t": "u8", "size_t": "u8", "unsigned": "u4", "uint": "u4", "half": "f2", "__half2": "f2", "half2": "f2", "uchar": "u1",
    "__nv_bfloat16": "u2", "__nv_bfloat162": "u2", "nv_bfloat16": "u2", "nv_bfloat162": "u2",
    "f32": "f4", "f64": "f8", "u32": "i4", "s32": "i4", "b32": "i4", "u16": "u2", "s16": "i2", "u8": "u1", "s8": "i1",
}  # fmt: skip
"""NumPy type by the C++ or PTX type; for a vector, the type of its elements."""
_SHARED_BYTES = 4096
"""Bytes of dynamic shared memory: 16 for each of 256 threads, or 8 for each of 512."""
_DEEPEST, _MOST_MEMBERS = 4, 40
"""Maximum nesting of structures, and maximum number of members, that are written out."""
_LONGEST_CALL = 160
_MOST_COMPUTED = 1 << 14
"""Maximum threads of a grid that is not a literal in the source."""


def launch_example(kernel: Kernel) -> str:
    """Return options that launch a kernel: a grid, a block and an argument of a matching type for each parameter, with sizes to adapt.

    Numbers that the source's own launch of the kernel determines are used, and that launch is quoted after the options.
    """
    own = front_ends.launch_in_source(list(kernel.module.sources.values()), plain_name(kernel.title))
    names = front_ends.parameter_names(kernel.module, kernel.function)
    types = _types(kernel.title) or front_ends.parameter_types(kernel.module, kernel.function)
    params = kernel.function.params
    types = types if len(types) == len(params) else [""] * len(params)
    extents = [param.name for param, written in zip(params, types, strict=True) if _is_extent(param, written)]
    shape = _shape(kernel, own, extents)
    words = [f"--grid {','.join(map(str, shape.grid))}", f"--block {','.join(map(str, shape.block))}"]
    given = len(own.arguments) if own is not None else 0
    for position, (param, written) in enumerate(zip(params, types, strict=True)):
        name = names[position] if position < len(names) else ""
        value = _own_value(own, position, shape.side) if own is not None and given == len(params) else ""
        if param.shape is not None:
            text = _structure(kernel, written, param.nbytes, shape.side)
        elif _is_pointer(param, written):
            text = _array(kernel, written, name)
        else:
            text = _number(_DTYPES.get(written or param.type, "u8" if param.nbytes == 8 else "i4"), shape.side, value)
        words.append(f"--arg {shlex.quote(text)}")
    if _has_dynamic_shared(kernel):
        words.append(f"--shared {(own.shared_bytes if own is not None else None) or _SHARED_BYTES}")
    quoted = own.call if own is not None and len(own.call) <= _LONGEST_CALL else ""
    return " ".join(words) + (f" (the source launches {quoted})" if quoted else "") + _left_to_do(words, types, names)


def _left_to_do(words: Sequence[str], types: Sequence[str], names: Sequence[str]) -> str:
    """Return what the options above leave to the user: members that are not known, and arrays of addresses."""
    told = ""
    if any("{MEMBERS}" in word for word in words):
        told = "; write the values of the structure in place of MEMBERS, in their order: '{f4[1024], 1024:i4}'"
    for position, written in enumerate(types):
        if written.replace(" ", "").replace("const", "").endswith("**"):
            name = names[position] if position < len(names) else f"argument {position + 1}"
            told += f"; {name} points to pointers: launch the kernel from a script, with an array of the addresses of other arrays"
    return told


def _own_value(own: front_ends.SourceLaunch, position: int, side: int) -> str:
    """Return an argument of the source's launch if it is a literal, or else a number that is small enough for the arrays; else empty."""
    literal = re.fullmatch(r"(-?\d+)[uUlL]*|(-?\d+\.\d*(?:[eE]-?\d+)?)[fF]?", own.arguments[position])
    if literal:
        return literal[1] or literal[2]
    value = own.values[position]
    return str(value) if value is not None and 0 <= value <= side else ""


def _shape(kernel: Kernel, own: front_ends.SourceLaunch | None, extents: Sequence[str]) -> LaunchShape:
    """Return a grid and a block: those of the source if they are known, else such that they cover the extents.

    A large grid that the source computes fits its own sizes, which the arguments are not.
    """
    instructions, block = tuple(kernel.inlined.instructions()), own.block if own is not None else ()
    shape = launch_shape(instructions, extents, block)
    if not block and (allowed := _allowed_block(kernel, shape.block)) != shape.block:
        shape = launch_shape(instructions, extents, allowed)
    grid = own.grid if own is not None and block else ()
    is_kept = own is not None and (own.has_literal_grid or math.prod(grid) * math.prod(block) <= _MOST_COMPUTED)
    return replace(shape, grid=grid) if grid and is_kept else shape


def _allowed_block(kernel: Kernel, block: tuple[int, ...]) -> tuple[int, ...]:
    """Return a block as far as the kernel's launch bounds allow it."""
    if required := kernel.function.extents(".reqntid"):
        return tuple(required[: len(block)]) if math.prod(required[len(block) :]) == 1 else tuple(required)
    found, most = list(block), math.prod(kernel.function.extents(".maxntid") or (1024,))
    while math.prod(found) > max(most, 1):
        found[found.index(max(found))] = -(-max(found) // 2)
    return tuple(found)


def _is_pointer(param: Variable, written: str) -> bool:
    return written.endswith("*") or (not written and param.nbytes == 8 and not param.type.startswith("f"))


def _is_extent(param: Variable, written: str) -> bool:
    """Return whether a parameter is a number that may be an extent of an array."""
    return param.shape is None and not _is_pointer(param, written) and param.type[:1] in "usb" and param.nbytes >= 4


def _has_dynamic_shared(kernel: Kernel) -> bool:
    """Return whether a kernel, or a function that it calls, uses dynamic shared memory."""
    variables = kernel.module.variables
    dynamic = {name for name, one in variables.items() if one.space == "shared" and "extern" in one.linkage}
    functions = (kernel.function, *called_functions(kernel.module, kernel.function)) if dynamic else ()
    return any(not dynamic.isdisjoint(names_in(operand)) for one in functions for each in one.instructions() for operand in each.operands)


def _array(kernel: Kernel, written: str, name: str) -> str:
    """Return an array for a parameter that is a pointer."""
    is_input = "const" in written.split("*")[0].split()
    element = " ".join(word for word in written.rstrip("*").split() if word not in ("const", "volatile", "__restrict__"))
    if element and element not in _DTYPES:
        element = front_ends.type_aliases(list(kernel.module.sources.values())).get(element, element)
    if "*" in written[:-1]:
        element = "unsigned long"  # an address
    dtype = _DTYPES.get(element, "u1" if written else "f4")
    fill = "=random:7" if is_input and dtype.startswith("f") else ""
    return f"{name}:{dtype}[{ELEMENTS}]{fill}" if name else f"{dtype}[{ELEMENTS}]{fill}"


def _number(dtype: str, side: int, own: str = "") -> str:
    """Return a number with its type: `own`, the argument in the source, or else `side` for whole numbers and 1 for others."""
    value = "1.0" if dtype.startswith("f") else "1" if dtype in ("bool", "i1", "u1") else str(side)
    if own and dtype.startswith("f"):
        value = own if "." in own else f"{own}.0"
    elif own and "." not in own:
        value = own
    return f"{value}:{dtype}"


def _structure(kernel: Kernel, written: str, nbytes: int, side: int) -> str:
    """Return the members of a structure in braces, by its definition; `{MEMBERS}` if they are unknown or do not match its size."""
    texts = list(kernel.module.sources.values())
    members = _members(written.removeprefix("const ").rpartition("::")[2], texts, front_ends.type_aliases(texts), side, _DEEPEST)
    return members[0] if members is not None and members[1] == nbytes else "{MEMBERS}"


def _members(kind: str, texts: Sequence[str], aliases: Mapping[str, str], side: int, depth: int) -> tuple[str, int, int] | None:
    """Return the members of a structure in braces, with its size and alignment; None if they are unknown."""
    declared = front_ends.structure_members(texts, kind) if depth else None
    if not declared or sum(one.count for one in declared) > _MOST_MEMBERS:
        return None
    words: list[str] = []
    size, widest = 0, 1
    for member in declared:
        plain = aliases.get(member.type, member.type)
        dtype = _DTYPES.get(plain, "")
        if member.is_pointer:
            word, nbytes, alignment = f"{dtype or 'u1'}[{ELEMENTS}]", 8, 8
        elif dtype and not plain[-1].isdigit():  # a vector (`float2`) is not a scalar of its element type
            nbytes = alignment = 1 if dtype == "bool" else int(dtype[1:])
            word = _number(dtype, side)
        elif (inner := _members(plain.rpartition("::")[2], texts, aliases, side, depth - 1)) is not None:
            word, nbytes, alignment = inner
        else:
            return None
        words += [word] * member.count
        size = -(-size // alignment) * alignment + nbytes * member.count
        widest = max(widest, alignment)
    return "{" + ", ".join(words) + "}", -(-size // widest) * widest, widest


def _types(title: str) -> list[str]:
    """Return the types of the parameters in a full C++ name: `f<int>(float const*, int)` -> `float const*`, `int`."""
    if not title.endswith(")"):
        return []
    depth = 0
    for place in range(len(title) - 1, -1, -1):  # the list is the last group: template arguments have parentheses too, `f<(Mode)0>(int)`
        depth += (title[place] == ")") - (title[place] == "(")
        if not depth:
            return list(front_ends.split_arguments(title[place + 1 : -1]))
    return []
