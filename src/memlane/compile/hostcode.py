"""Cuts the host code out of a `.cu` file, so that a device compiler accepts the rest.

NVRTC refuses functions and variables of the host: `main`, launches with `<<<>>>`, `std::vector<int> v;`. `cut` overwrites them with
blanks, so that every line and column that remains stays where it was. What remains is what nvcc too would give to its device
compiler: whatever is marked for the device, types, aliases, templates of classes, constants and `constexpr` functions. Directives
stay, because a conditional may begin in one function and end in another.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memlane.compile.declarations import Unit, tokens_inside, units_of
from memlane.compile.launches import launches_in, template_kernel
from memlane.compile.macros import Macros
from memlane.compile.tokens import Token, directive

_KEPT_DIRECTIVES = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef"})

CONSTEXPR = "_mlcx"
"""Name of a macro that stands for `constexpr`."""
_FLOATING_CONSTANT = re.compile(r"(?:static\s+)?(const)\s+(?:float|double)\s+\w+\s*=")


@dataclass(frozen=True)
class DeviceCode:
    """A file without its host code."""

    text: str
    """The text, as long as the original line by line."""
    removable: tuple[Unit, ...]
    """Declarations that stayed although nothing marks them for the device; without them the rest may well compile."""
    functions: tuple[Unit, ...]
    """What is marked for the device and is not a kernel: what kernels may call, or may never have needed."""
    launches: tuple[str, ...]
    """Template kernels as the host code launches them, for example `block_sum<float, 256>`, in order and once each."""
    direct_launches: int
    """How many launches these are."""
    templates: tuple[str, ...]
    """Names of the template kernels."""
    host: tuple[Unit, ...]
    """Declarations that were cut."""
    inner_includes: tuple[int, ...] = ()
    """Directives inside a declaration, as indices of tokens: a header that is included there is a piece of it."""
    kernels: tuple[Unit, ...] = ()
    """Kernels and templates of kernels."""
    is_piece: bool = False
    """Whether the file is included inside a declaration of another one."""


def cut(text: str, tokens: list[Token], macros: Macros) -> DeviceCode:
    """Blanks the host code of `text`, whose tokens are `tokens`."""
    units = units_of(tokens, macros)
    host = [unit for unit in units if unit.side == "host"]
    launches = [launch for unit in host for launch in launches_in(text, tokens_inside(tokens, unit))]
    templates = [name for unit in units if unit.side == "device" and (name := template_kernel(tokens_inside(tokens, unit)))]
    either = tuple(unit for unit in units if unit.side == "either")
    device = [unit for unit in units if unit.side == "device"]
    kernels = tuple(unit for unit in device if any(one.text == "__global__" for one in tokens_inside(tokens, unit)))
    functions = tuple(unit for unit in device if unit not in kernels)
    return DeviceCode(
        blank(text, tokens, host),
        either,
        functions,
        tuple(dict.fromkeys(launches)),
        len(launches),
        tuple(dict.fromkeys(templates)),
        tuple(host),
        tuple(_directives_inside(tokens, units)),
        kernels,
    )


def uncut(text: str) -> DeviceCode:
    """A file that is a piece of a function or class of another file, and stays whole."""
    return DeviceCode(text, (), (), (), 0, (), (), is_piece=True)


def with_constexpr(text: str, units: Iterable[Unit]) -> str:
    """`text` where the constants of floating point among the units are `constexpr`, by a macro as long as the word `const`.

    One constant may stand in the initial value of another with nvcc. NVRTC calls that a dynamic initialisation.
    """
    for unit in units:
        if found := _FLOATING_CONSTANT.match(text, unit.start, unit.end):
            text = f"{text[: found.start(1)]}{CONSTEXPR}{text[found.end(1) :]}"
    return text


def _directives_inside(tokens: list[Token], units: list[Unit]) -> Iterator[int]:
    for unit in units:
        first = bisect_left(tokens, unit.start, key=lambda token: token.start)
        for index in range(first, len(tokens)):
            if tokens[index].start >= unit.end:
                break
            if tokens[index].kind == "directive":
                yield index


def blank(text: str, tokens: list[Token], units: list[Unit]) -> str:
    """Overwrites the units with blanks; line ends, tabs and directives inside them stay."""
    pieces: list[str] = []
    position = 0
    for unit in sorted(units, key=lambda unit: unit.start):
        if unit.start < position:
            continue
        pieces.append(text[position : unit.start])
        position = unit.start
        for token in tokens_inside(tokens, unit):
            if token.kind == "directive" and directive(token).name in _KEPT_DIRECTIVES:
                pieces.append(_blanks(text[position : token.start]))
                pieces.append(token.text)
                position = token.end
        pieces.append(_blanks(text[position : unit.end]))
        position = unit.end
    pieces.append(text[position:])
    return "".join(pieces)


def _blanks(text: str) -> str:
    return "".join(c if c in "\n\r\t" else " " for c in text)
