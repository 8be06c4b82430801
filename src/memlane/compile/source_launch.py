"""Read the numbers of a kernel's launch from the host code of a program, without a compiler.

    #define BLOCK 128
    int tiles = 16, n = atoi(argv[1]);
    dim3 block(BLOCK, 2);
    k<<<tiles * 4, block>>>(p, BLOCK, n);       grid 64, block 128,2; of the arguments the second is 128, the others are unknown

Macros, constants, and variables with a value in the launching function are resolved. The function is not executed: the last assignment
before the launch counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memlane.compile.extents import ELEMENT_BYTES, constants_in, value_of
from memlane.compile.tokens import tokenize

_DIM3 = re.compile(r"\bdim3\s+(?P<declared>[^;]*);")
_MEMBER = re.compile(r"\b(?P<name>\w+)\s*\.\s*(?P<axis>[xyz])\s*=(?!=)\s*(?P<value>[^;,]+)[;,]")
_GROUP = r"\((?:[^;{}()]|\([^;{}()]*\))*\)"
_ASSIGNED = re.compile(rf"\b(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>(?:[^;,=(){{}}]|{_GROUP})*)(?=[;,])")
_TRIPLE = re.compile(r"(?:dim3\s*)?[({](?P<extents>.*)[)}]", re.DOTALL)
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*(?P<type>\w+)\s*\)")
_DIRECTIVE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_MOST_THREADS = 1024


@dataclass(frozen=True)
class SourceLaunch:
    """A launch as the program writes it. Extents are empty, and values None, where the text does not determine them."""

    call: str
    """The launch on one line."""
    grid: tuple[int, ...]
    has_literal_grid: bool
    """Whether the grid is written in numbers."""
    block: tuple[int, ...]
    shared_bytes: int | None
    arguments: tuple[str, ...]
    values: tuple[int | None, ...]
    """The whole number that each argument is."""


def launch_in_source(texts: Sequence[str], name: str) -> SourceLaunch | None:
    """Return the first launch of a kernel in the texts of a program; None if there is none. `name` is the kernel's plain name."""
    pattern = re.compile(rf"\b{re.escape(name)}\s*(<[^<>;]*>)?\s*<<<(?P<shape>[^;]*?)>>>\s*\((?P<arguments>[^;]*)\)(?=\s*;)")
    for text in texts:
        if found := pattern.search(text):
            known = constants_in(tokenize("\n".join(texts)))
            shape, arguments = tuple(split_arguments(found["shape"])), tuple(split_arguments(found["arguments"]))
            before = text[: found.start()]
            local = before[before.rfind("\n}") + 1 :]
            known |= {one["name"]: _SIZEOF.sub(_bytes_of, one["value"]) for one in _ASSIGNED.finditer(local)}
            grid, block = (_extents(one, local, known) for one in (*shape, "", "")[:2])
            literal = re.fullmatch(r"(?:dim3\s*)?[({]?[\d\s,]+[)}]?", shape[0]) is not None if shape else False
            allowed = len(block) <= 3 and 0 < math.prod(block) <= _MOST_THREADS
            shared = value_of(_SIZEOF.sub(_bytes_of, shape[2]), known) if len(shape) > 2 else None
            values = tuple(value_of(one, known) for one in arguments)
            call = " ".join(_DIRECTIVE.sub("", found[0]).split())
            return SourceLaunch(call, grid[:3], literal, block if allowed else (), shared, arguments, values)
    return None


def split_arguments(text: str) -> Iterator[str]:
    """Yield the arguments of a call or a template, split at the commas outside of brackets."""
    depth = start = 0
    for place, character in enumerate(text):
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()


def _extents(written: str, local: str, known: Mapping[str, str]) -> tuple[int, ...]:
    """Return a grid or block: a number, `dim3(...)`, or a variable of type `dim3`; empty if it is not known."""
    if (number := value_of(written, known)) is not None:
        return (number,) if number > 0 else ()
    if re.fullmatch(r"\w+", written):
        return _variable(written, local, known)
    triple = _TRIPLE.fullmatch(written.strip())
    values = [value_of(one, known) for one in split_arguments(triple["extents"])] if triple else []
    return tuple(one for one in values if one) if values and all(one and one > 0 for one in values) else ()


def _variable(name: str, local: str, known: Mapping[str, str]) -> tuple[int, ...]:
    found: list[int] = []
    for statement in _DIM3.finditer(local):
        for one in split_arguments(statement["declared"]):
            if declared := re.fullmatch(rf"{name}\s*(?:=\s*)?(?P<value>.*)", one, re.DOTALL):
                found = list(_extents(declared["value"] or "1", "", known))
                if not found:
                    return ()
    for member in _MEMBER.finditer(local):
        if member["name"] == name:
            axis, value = "xyz".index(member["axis"]), value_of(member["value"], known)
            if value is None or value < 1:
                return ()
            found += [1] * (axis + 1 - len(found))
            found[axis] = value
    return tuple(found)


def _bytes_of(found: re.Match[str]) -> str:
    return str(ELEMENT_BYTES.get(found["type"], found[0]))
