"""Provide the parts of a demangler: a cursor over the characters, types and names; and the C++ runtime's demangler, if there is one."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

_MOST_DIGITS = 40
_LONGEST = 1 << 16
_DIGITS36 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class UnreadError(Exception):
    """Raised for a part of the mangling that this demangler does not support."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type in two halves, with its declarator between them: `int (*` and `)(float)`."""

    left: str
    right: str = ""
    items: tuple[Type, ...] | None = None
    """Members, if this is a pack of types or constants."""
    parameter: int | None = None
    """Number of the template parameter that this stands for. A later `S_` for it means that parameter at the place of the `S_`."""

    def __str__(self) -> str:
        return ", ".join(map(str, self.items)) if self.items is not None else self.left + self.right

    def pointed(self, sign: str) -> Type:
        """Return the pointer (or reference) to this type."""
        if self.right.startswith(("(", " [")):
            return Type(f"{self.left.rstrip()} ({sign}", f"){self.right}")
        return Type(self.left + sign, self.right)

    def qualified(self, word: str) -> Type:
        return Type(f"{self.left} {word}", self.right)


@dataclass(slots=True)
class Name:
    """A name with the facts that decide how its function type is parsed."""

    text: str
    has_arguments: bool = False
    returns_nothing: bool = False
    """Whether it is a constructor, destructor or conversion: even as a template it has no return type in its mangling."""
    qualifiers: str = ""
    """Text behind the parameters of a member function, for example ` const`."""


class Cursor:
    """A reading position in the mangled text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def take(self, expected: str) -> bool:
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def need(self, expected: str) -> None:
        if not self.take(expected):
            raise UnreadError

    def next(self) -> str:
        character = self.text[self.at]
        self.at += 1
        return character

    @staticmethod
    def check_length(characters: int) -> None:
        """Raise UnreadError for a part that is too long: back references can double it with every step."""
        if characters > _LONGEST:
            raise UnreadError

    def number(self) -> int:
        negative = self.take("n")
        start = self.at
        while self.peek().isdecimal():
            self.at += 1
        if not 0 < self.at - start <= _MOST_DIGITS:
            raise UnreadError
        return -int(self.text[start : self.at]) if negative else int(self.text[start : self.at])

    def index(self) -> int:
        """Return the index in the rest of `S_`, `S0_`, `SA_`, in base 36: 0, 1, 11."""
        value = 0
        if self.take("_"):
            return 0
        while not self.take("_"):
            value = value * 36 + _DIGITS36.index(self.next()) if self.peek() in _DIGITS36 else self._fail()
        return value + 1

    def _fail(self) -> int:
        raise UnreadError


_RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")
_LONGEST_FOR_RUNTIME = 4096
"""Longest name passed to the runtime, in characters; it parses nested parts by recursion."""
_MOST_SUBSTITUTIONS = 32
"""Largest number of back references in such a name. Each may double its length, and the runtime has no limit."""
_SUBSTITUTION = re.compile(r"[ST][0-9A-Z]*_")
_LITERAL = re.compile(r"(?<=[<,( ])(-?\d+)(?:u|l|ul|ll|ull)(?=[,>)])")
_INTERNAL = re.compile(r"\b_INTERNAL_\w+(?=::)")


def runtime_demangle(name: str) -> str | None:
    """Return the C++ runtime's demangling of a name, in the spelling of this package.

    None if there is no runtime, if it cannot parse the name, or if the result may not fit into memory.
    """
    if len(name) > _LONGEST_FOR_RUNTIME or len(_SUBSTITUTION.findall(name)) > _MOST_SUBSTITUTIONS:
        return None
    runtime = _runtime()
    text = runtime(name) if runtime else None
    if text is None:
        return None
    while "> >" in text:
        text = text.replace("> >", ">>")
    return _INTERNAL.sub("(anonymous namespace)", _LITERAL.sub(r"\1", text))


@cache
def _runtime() -> Callable[[str], str | None] | None:
    """Return `__cxa_demangle` of the C++ ABI, from the first library that exists; None if none does."""
    for library in _RUNTIMES:
        try:
            return _wrapped(ctypes.CDLL(library).__cxa_demangle, ctypes.CDLL(None).free)
        except (OSError, AttributeError):
            continue
    return None


def _wrapped(demangler: Any, free: Any) -> Callable[[str], str | None]:
    """Return the two C functions wrapped as one Python function."""
    demangler.restype = ctypes.c_void_p
    demangler.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
    free.argtypes = (ctypes.c_void_p,)

    def demangled(name: str) -> str | None:
        status = ctypes.c_int()
        memory = demangler(name.encode(errors="replace"), None, None, ctypes.byref(status))
        if not memory:
            return None
        try:
            return ctypes.string_at(memory).decode(errors="replace")
        finally:
            free(memory)

    return demangled
