"""Suggest launch options for a .cu or .ptx file that was named without any."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from memlane.cli.later import later
from memlane.cli.launch_shape import ELEMENTS, launch_shape
from memlane.ptx import Variable, called_functions, names_in

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


def launch_example(kernel: Kernel) -> str:
    """Return options that launch a kernel: a grid, a block and an argument of a matching type for each parameter, with sizes to adapt.

    Literal numbers in the source's own launch of the kernel are used, and that launch is quoted after the options.
    """
    call = _own_launch(kernel)
    configuration, values = _parts(call)
    names = front_ends.parameter_names(kernel.module, kernel.function)
    types = _types(kernel.title) or front_ends.parameter_types(kernel.module, kernel.function)
    params = kernel.function.params
    types = types if len(types) == len(params) else [""] * len(params)
    extents = [param.name for param, written in zip(params, types, strict=True) if _is_extent(param, written)]
    own_grid, own_block = (*map(_extent, configuration[:2]), (), ())[:2]
    shape = launch_shape(tuple(kernel.inlined.instructions()), extents, own_block)
    grid, block = (",".join(map(str, one)) for one in (own_grid if own_block and own_grid else shape.grid, shape.block))
    words = [f"--grid {grid}", f"--block {block}"]
    for position, (param, written) in enumerate(zip(params, types, strict=True)):
        name = names[position] if position < len(names) else ""
        value = values[position] if len(values) == len(params) else ""
        if param.shape is None:
            text = _argument(param, written, name, value, shape.side)
        else:
            text = _structure(kernel, written, param.nbytes, shape.side)
        words.append(f"--arg {shlex.quote(text)}")
    if _has_dynamic_shared(kernel):
        words.append(f"--shared {_SHARED_BYTES}")
    quoted = call if len(call) <= _LONGEST_CALL else ""
    return " ".join(words) + (f" (the source launches {quoted})" if quoted else "")


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


def _parts(call: str) -> tuple[list[str], list[str]]:
    """Return the configuration and the arguments of a launch: `f<<<1, n>>>(a)` -> `1`, `n` and `a`."""
    head, _, arguments = call.partition(">>>")
    return list(_split(head.partition("<<<")[2])), list(_split(arguments.strip().removeprefix("(").removesuffix(")")))


def _extent(text: str) -> tuple[int, ...]:
    """Return a grid or block of plain numbers, `dim3(32, 8)` -> 32 and 8; empty for anything else."""
    found = re.fullmatch(r"(?:dim3\s*[({])?([\d\s,]+)[)}]?", text.strip())
    return tuple(int(one) for one in found[1].replace(",", " ").split()) if found else ()


def _argument(param: Variable, written: str, name: str, own: str, side: int) -> str:
    if _is_pointer(param, written):
        is_input = "const" in written.split("*")[0].split()
        element = " ".join(word for word in written.rstrip("*").split() if word not in ("const", "volatile", "__restrict__"))
        dtype = _DTYPES.get(element, "u1" if written else "f4")
        fill = "=random:7" if is_input and dtype.startswith("f") else ""
        return f"{name}:{dtype}[{ELEMENTS}]{fill}" if name else f"{dtype}[{ELEMENTS}]{fill}"
    return _number(_DTYPES.get(written or param.type, "u8" if param.nbytes == 8 else "i4"), side, own)


def _number(dtype: str, side: int, own: str = "") -> str:
    """Return a number with its type, `side` for a whole number; `own`, the argument in the source, is used if it is a literal."""
    value = "1.0" if dtype.startswith("f") else "1" if dtype in ("bool", "i1", "u1") else str(side)
    number = re.fullmatch(r"(-?\d+)[uUlL]*|(-?\d+\.\d*(?:[eE]-?\d+)?)[fF]?", own)
    if number and (number[1] or dtype.startswith("f")):
        value = number[2] or (f"{number[1]}.0" if dtype.startswith("f") else number[1])
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
    return list(_split(title[title.index("(") + 1 : title.rindex(")")])) if title.endswith(")") else []


def _split(text: str) -> Iterator[str]:
    depth = start = 0
    for place, character in enumerate(text):
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()


def _own_launch(kernel: Kernel) -> str:
    """Return the first launch of the kernel in its source, on one line; empty if there is none."""
    name = re.escape(kernel.title.partition("(")[0].partition("<")[0].rpartition(" ")[2].rpartition("::")[2])
    for text in kernel.module.sources.values():
        if found := re.search(rf"\b{name}\s*(<[^<>;]*>)?\s*<<<[^;]*?>>>\s*\([^;]*\)(?=\s*;)", text):
            return " ".join(found[0].split())
    return ""
