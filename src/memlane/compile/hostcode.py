"""Cut the host code out of a `.cu` file, so that a device compiler accepts the rest.

NVRTC refuses host functions and variables: `main`, launches with `<<<>>>`, `std::vector<int> v;`. `cut` overwrites them with blanks, so
that lines and columns of the remaining code do not change. The rest is what nvcc would also pass to its device compiler: declarations
marked for the device, types, aliases, class templates, constants and `constexpr` functions. Directives stay, because a conditional may
begin in one function and end in another.
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
"""Name of a macro that expands to `constexpr`."""
_FLOATING_CONSTANT = re.compile(r"(?:static\s+)?(const)\s+(?:float|double)\s+\w+\s*=")


@dataclass(frozen=True)
class DeviceCode:
    """A file without its host code."""

    text: str
    """The text, with line lengths unchanged."""
    removable: tuple[Unit, ...]
    """Remaining declarations that nothing marks for the device; the rest may compile without them."""
    functions: tuple[Unit, ...]
    """Declarations marked for the device that are not kernels; kernels may or may not need them."""
    launches: tuple[str, ...]
    """Template kernels as the host code launches them, for example `block_sum<float, 256>`, in order, without duplicates."""
    direct_launches: int
    """Number of these launches, with duplicates."""
    templates: tuple[str, ...]
    """Names of the template kernels."""
    host: tuple[Unit, ...]
    """Declarations that were cut."""
    inner_includes: tuple[int, ...] = ()
    """Indices of the directive tokens inside declarations; a header included there is a fragment of the declaration."""
    kernels: tuple[Unit, ...] = ()
    """Kernels and templates of kernels."""
    is_piece: bool = False
    """Whether the file is included inside a declaration of another file."""


def cut(text: str, tokens: list[Token], macros: Macros) -> DeviceCode:
    """Return the device code of `text`, whose tokens are `tokens`, with the host code overwritten by blanks."""
    units = units_of(tokens, macros)
    host = [unit for unit in units if unit.side == "host"]
    launches = [launch for unit in host for launch in launches_in(text, tokens_inside(tokens, unit))]
    templates = [name for unit in units if unit.side == "device" and (name := template_kernel(tokens_inside(tokens, unit)))]
    either = tuple(unit for unit in units if unit.side == "either")
    device = [unit for unit in units if unit.side == "device"]
    kernels = tuple(unit for unit in device if any(one.text == "__global__" for one in tokens_inside(tokens, unit)))
    functions = tuple(unit for unit in device if unit not in kernels)
    return DeviceCode(
        _without_host_marks(blank(text, tokens, host), tokens, either),
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
    """Return a file that is a fragment of a function or class of another file, without cutting anything."""
    return DeviceCode(text, (), (), (), 0, (), (), is_piece=True)


def with_constexpr(text: str, units: Iterable[Unit]) -> str:
    """Return `text` with the floating-point constants among the units made `constexpr`, by a macro as long as the word `const`.

    With nvcc, such a constant may appear in the initial value of another; NVRTC refuses that as a dynamic initialisation.
    """
    for unit in units:
        if found := _FLOATING_CONSTANT.match(text, unit.start, unit.end):
            text = f"{text[: found.start(1)]}{CONSTEXPR}{text[found.end(1) :]}"
    return text


def _without_host_marks(text: str, tokens: list[Token], units: Iterable[Unit]) -> str:
    """Return `text` with `__host__` blanked in the units where `__device__` is not beside it.

    A `constexpr` function that is marked for the host is a constant of device code too, as it is with nvcc's relaxed rules.
    """
    for unit in units:
        inside = ["", *(token.text for token in tokens_inside(tokens, unit)), ""]
        for token, before, after in zip(tokens_inside(tokens, unit), inside, inside[2:], strict=False):
            if token.text == "__host__" and "__device__" not in (before, after):
                text = f"{text[: token.start]}{_blanks(token.text)}{text[token.end :]}"
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
    """Return the text with the units overwritten by blanks; line ends, tabs and directives inside them stay."""
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
