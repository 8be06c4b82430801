"""Module-scope variables on the emulator: their memory and their initial values."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from memlane.errors import PtxTypeError
from memlane.ptx import SCALAR_TYPES, Variable

_TOKENS = re.compile(r"[{},]|generic\([^)]*\)(?:\s*[+-]\s*\w+)?|[^{},\s][^{},]*")

_NAME = re.compile(r"(?:generic\(\s*([A-Za-z_$%][\w$]*)\s*\)|([A-Za-z_$%][\w$]*))\s*(?:\+\s*(\w+))?")
"""`name`, `name+4`, `generic(name)+4`: the address of another variable."""


def fill(variable: Variable, target: npt.NDArray[np.uint8], address_of: Callable[[str], int]) -> None:
    """Write the initial value of a variable; what it leaves out is zero, as the manual says.

    `address_of` gives the device address of another variable, for initialisers that name one.
    """
    target[:] = 0
    if variable.initial is None:
        return
    scalar = SCALAR_TYPES[variable.type]
    text = variable.initial.strip()
    for place, token in _scalars(text, variable):
        start = place * scalar.nbytes
        if start + scalar.nbytes > len(target):
            raise PtxTypeError(f"the initialiser of {variable.name} has more values than the variable", variable.span)
        target[start : start + scalar.nbytes] = list(_bits(token.strip(), variable, address_of).to_bytes(scalar.nbytes, "little"))


def _scalars(text: str, variable: Variable) -> Iterator[tuple[int, str]]:
    """Each value with its place, in elements: an inner brace begins a row."""
    if not text.startswith("{"):
        yield 0, text
        return
    extents = [*(variable.shape or (1,)), *([variable.vector] if variable.vector > 1 else [])]
    strides = [1] * (len(extents) + 1)
    for axis in reversed(range(len(extents))):
        strides[axis] = strides[axis + 1] * max(1, extents[axis])
    depth, place = 0, 0
    starts = [0]
    for token in _TOKENS.findall(text):
        if token == "{":
            depth += 1
            starts.append(place)
        elif token == "}":
            depth -= 1
            start = starts.pop()
            place = start + strides[min(depth, len(strides) - 1)] if depth else place
        elif token != ",":
            yield place, token
            place += 1


def _bits(token: str, variable: Variable, address_of: Callable[[str], int]) -> int:
    scalar = SCALAR_TYPES[variable.type]
    limit = (1 << scalar.bits) - 1
    if token[:2].lower() in ("0f", "0d") and len(token) in (10, 18):
        bits = int(token[2:], 16)
        if len(token) == 18 and scalar.bits == 32:
            return _float_bits(struct.unpack("<d", bits.to_bytes(8, "little"))[0], 32)
        return bits & limit
    named = _NAME.fullmatch(token)
    if named:
        return (address_of(named[1] or named[2]) + (int(named[3], 0) if named[3] else 0)) & limit
    if scalar.kind == "f" or (re.search(r"[.eE]", token) and not token.lower().startswith("0x")):
        return _float_bits(float(token), scalar.bits)
    return _integer(token) & limit


def _float_bits(number: float, bits: int) -> int:
    return int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[bits], number), "little")


def _integer(token: str) -> int:
    """A PTX integer literal: 12, -3, 0x1F, 017, 0b11, with an optional U."""
    sign, digits = (-1, token[1:]) if token.startswith("-") else (1, token.lstrip("+"))
    digits = digits.rstrip("uU")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)
