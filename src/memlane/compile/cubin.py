"""Read the registers, shared memory and local memory of each kernel from a cubin.

A cubin is a 64-bit ELF file. The section `.nv.info` holds attributes, each with a format, a number and, for the formats read here, a size:
the register count and the stack size of each function, by its index in the symbol table. The size of `.nv.shared.<kernel>` is that of its
shared memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from memlane.errors import CompileError

_SIZED = 4
"""Format of an attribute whose header gives the size of its value; the other formats carry two bytes."""
_REGISTER_COUNT, _MIN_STACK_SIZE = 0x2F, 0x12
_LONGEST_NAME = 1 << 16
_RESERVED = 1024
"""Bytes of shared memory reserved by the system from sm_90 on. Cubins record the number; those of nvJitLink 13.0 only that there is one."""


@dataclass(frozen=True)
class KernelUsage:
    """Registers, shared memory and local memory that one kernel uses."""

    registers: int
    """32-bit registers per thread."""
    shared_bytes: int
    """Static shared memory that the kernel declares, without the bytes that the system reserves in each block."""
    local_bytes: int
    """Stack of each thread in local memory: arrays and spilled registers."""


def defined_names(cubin: bytes) -> frozenset[str]:
    """Return the functions and variables that a cubin defines with global binding. Raises CompileError if the data is not a cubin."""
    try:
        sections = {section.name: section for section in _sections(cubin)}
        return frozenset(symbol.name for symbol in _symbols(cubin, sections) if symbol.is_global and symbol.is_defined)
    except (struct.error, IndexError, KeyError, OverflowError, ValueError) as cause:
        raise CompileError("this is not a readable cubin") from cause


@dataclass(frozen=True)
class _Section:
    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    value: int
    is_function: bool
    is_global: bool
    is_defined: bool


def kernel_usage(cubin: bytes) -> dict[str, KernelUsage]:
    """Return the resource usage of each kernel, by its name in PTX. Raises CompileError if the data is not a cubin."""
    try:
        return _kernel_usage(cubin)
    except (struct.error, IndexError, KeyError, OverflowError, ValueError) as cause:
        raise CompileError("the assembler made no readable cubin") from cause


def _kernel_usage(cubin: bytes) -> dict[str, KernelUsage]:
    sections = _sections(cubin)
    by_name = {section.name: section for section in sections}
    symbols = _symbols(cubin, by_name)
    attributes: dict[int, dict[int, int]] = {_REGISTER_COUNT: {}, _MIN_STACK_SIZE: {}}
    for attribute, number, value in _attributes(cubin, by_name.get(".nv.info")):
        if attribute in attributes:
            attributes[attribute][number] = value
    values = {symbol.name: symbol.value for symbol in symbols}
    reserved = values.get(".nv.reservedSmem.cap", _RESERVED if ".nv.reservedSmem.offset0" in values else 0)
    usage = {}
    for number, symbol in enumerate(symbols):
        # Only kernels have a constant bank for their parameters; other functions use their caller's.
        if not symbol.is_function or f".nv.constant0.{symbol.name}" not in by_name:
            continue
        shared = by_name.get(f".nv.shared.{symbol.name}")
        usage[symbol.name] = KernelUsage(
            registers=attributes[_REGISTER_COUNT].get(number, 0),
            shared_bytes=max(0, shared.size - reserved) if shared else 0,
            local_bytes=attributes[_MIN_STACK_SIZE].get(number, 0),
        )
    return usage


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", cubin, table + index * entry_size) for index in range(count)]
    names = heads[names_index][4]
    return [_Section(_string(cubin, names + head[0]), head[4], head[5]) for head in heads]


def _symbols(cubin: bytes, sections: dict[str, _Section]) -> list[_Symbol]:
    table, names = sections[".symtab"], sections[".strtab"]
    symbols = []
    for offset in range(table.offset, table.offset + table.size, 24):
        name, kind, _, section, value, _ = struct.unpack_from("<IBBHQQ", cubin, offset)
        symbols.append(_Symbol(_string(cubin, names.offset + name), value, kind & 15 == 2, kind >> 4 == 1, section != 0))
    return symbols


def _attributes(cubin: bytes, section: _Section | None) -> Iterator[tuple[int, int, int]]:
    """Yield attribute, symbol index and value of each entry that refers to a symbol."""
    position, end = (section.offset, section.offset + section.size) if section else (0, 0)
    while position < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, position)
        position += 4
        if form == _SIZED:
            if size == 8:
                yield (attribute, *struct.unpack_from("<II", cubin, position))
            position += size


def _string(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset, offset + _LONGEST_NAME)].decode()
