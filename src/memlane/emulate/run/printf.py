"""Format text as C's `printf` does, with arguments in memory as `vprintf` takes them."""

from __future__ import annotations

import re
import struct
from typing import Protocol

_PIECE = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
MOST_CHARACTERS = 4095
"""Maximum width and precision of a conversion: the minimum that C requires of every library, and too little to exhaust memory."""
_HAS_PRECISION = re.compile(r"%[-+ #0]*(?:\*|\d+)?\.")


class UnreadableError(Exception):
    """Raised when there is no memory at an address to be read."""


class Reader(Protocol):
    """Read access to memory from one thread's view."""

    def read(self, address: int, nbytes: int) -> bytes:
        """Return bytes at a generic address. Raises UnreadableError."""

    def string(self, address: int) -> str:
        """Return the zero-terminated text at a generic address. Raises UnreadableError."""


class _Arguments:
    """Sequential reader of `vprintf` arguments, each aligned to its size."""

    def __init__(self, address: int, memory: Reader) -> None:
        self._address, self._memory = address, memory
        self.count = 0

    def next(self, nbytes: int) -> bytes:
        self._address = -(-self._address // nbytes) * nbytes
        found = self._memory.read(self._address, nbytes)
        self._address += nbytes
        self.count += 1
        return found

    def integer(self, nbytes: int, signed: bool = True) -> int:
        return int.from_bytes(self.next(nbytes), "little", signed=signed)


def formatted(pattern: str, address: int, memory: Reader) -> tuple[str, int]:
    """Return the formatted text for a format and the arguments at an address, and the number of arguments that it took.

    A conversion unknown to C is copied unchanged. Raises UnreadableError.
    """
    arguments = _Arguments(address, memory)
    text = _PIECE.sub(lambda match: _converted(match, arguments, memory), pattern)
    return text, arguments.count


def _converted(match: re.Match[str], arguments: _Arguments, memory: Reader) -> str:
    flags, width, precision, length, letter = match.groups(default="")
    if letter == "%":
        return "%"
    if width == "*":
        number = arguments.integer(4)
        flags, width = (flags + "-", str(-number)) if number < 0 else (flags, str(number))
    if precision == "*":
        number = arguments.integer(4)
        precision = str(number) if number >= 0 else ""
    elif _HAS_PRECISION.match(match[0]):
        precision = precision or "0"
    width, precision = (number and str(min(int(number), MOST_CHARACTERS)) for number in (width[:9], precision[:9]))
    shape = f"%{flags}{width}{'.' + precision if precision else ''}"
    if letter in "diouxX":
        return _integer(shape, letter, length, arguments)
    if letter in "eEfFgG":
        value = float(struct.unpack("<d", arguments.next(8))[0])
        return (shape + letter) % value
    if letter in "aA":
        text = float(struct.unpack("<d", arguments.next(8))[0]).hex()
        return f"%{flags.replace('0', '')}{width}s" % (text.upper() if letter == "A" else text)
    if letter == "c":
        return f"%{flags.replace('0', '')}{width}s" % chr(arguments.integer(4) & 0xFF)
    place = arguments.integer(8, signed=False)
    if letter == "s":
        return f"{shape.replace('0', '', 1) if '0' in flags else shape}s" % (memory.string(place) if place else "(null)")
    if letter == "p":
        return f"%{flags.replace('0', '')}{width}s" % (f"{place:#x}" if place else "(nil)")
    return ""  # %n writes the length of the text, which CUDA leaves out too


def _integer(shape: str, letter: str, length: str, arguments: _Arguments) -> str:
    signed = letter in "di"
    value = arguments.integer(8 if length in ("l", "ll", "j", "z", "t", "L") else 4, signed)
    if length in ("h", "hh"):
        bits = 16 if length == "h" else 8
        value &= (1 << bits) - 1
        value -= (1 << bits) if signed and value >> (bits - 1) else 0
    if letter == "o" and "#" in shape:
        return f"{shape.replace('#', '')}s" % ("0" + format(value, "o") if value else "0")
    if value == 0 and "#" in shape:
        shape = shape.replace("#", "")
    return (shape + ("d" if letter in "diu" else letter)) % value
