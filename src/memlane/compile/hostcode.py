"""Cuts the host code out of a `.cu` file, so that a device compiler accepts the rest.

NVRTC refuses functions and variables of the host: `main`, launches with `<<<>>>`, `std::vector<int> v;`. `cut` overwrites them with
blanks, so that every line and column that remains stays where it was. What remains is what nvcc too would give to its device
compiler: whatever is marked for the device, types, aliases, templates of classes, constants and `constexpr` functions. Directives
stay, because a conditional may begin in one function and end in another.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from memlane.compile.declarations import Unit, units_of
from memlane.compile.macros import Macros
from memlane.compile.tokens import Token, directive

_KEPT_DIRECTIVES = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef"})


@dataclass(frozen=True)
class DeviceCode:
    """A file without its host code."""

    text: str
    """The text, as long as the original line by line."""
    removable: tuple[Unit, ...]
    """Declarations that stayed although nothing marks them for the device; without them the rest may well compile."""
    launches: tuple[str, ...]
    """Template kernels as the host code launches them, for example `block_sum<float, 256>`, in order and once each."""


def cut(text: str, tokens: list[Token], macros: Macros) -> DeviceCode:
    """Blanks the host code of `text`, whose tokens are `tokens`."""
    units = units_of(tokens, macros)
    kept = blank(text, tokens, [unit for unit in units if unit.side == "host"])
    launches: dict[str, None] = {}
    for unit in units:
        if unit.side == "host":
            launches.update(dict.fromkeys(_launches(text, _inside(tokens, unit))))
    return DeviceCode(kept, tuple(unit for unit in units if unit.side == "either"), tuple(launches))


def blank(text: str, tokens: list[Token], units: list[Unit]) -> str:
    """Overwrites the units with blanks; line ends, tabs and directives inside them stay."""
    pieces: list[str] = []
    position = 0
    for unit in sorted(units, key=lambda unit: unit.start):
        if unit.start < position:
            continue
        pieces.append(text[position : unit.start])
        position = unit.start
        for token in _inside(tokens, unit):
            if token.kind == "directive" and directive(token).name in _KEPT_DIRECTIVES:
                pieces.append(_blanks(text[position : token.start]))
                pieces.append(token.text)
                position = token.end
        pieces.append(_blanks(text[position : unit.end]))
        position = unit.end
    pieces.append(text[position:])
    return "".join(pieces)


def _inside(tokens: list[Token], unit: Unit) -> list[Token]:
    first = bisect_left(tokens, unit.start, key=lambda token: token.start)
    return tokens[first : bisect_left(tokens, unit.end, key=lambda token: token.start)]


def _blanks(text: str) -> str:
    return "".join(c if c in "\n\r\t" else " " for c in text)


def _launches(text: str, tokens: list[Token]) -> list[str]:
    """The template kernels in front of each `<<<`, unless an argument is a template parameter of the host function around it."""
    tokens = [token for token in tokens if token.kind != "directive"]
    parameters = _template_parameters(tokens)
    found = []
    for index, token in enumerate(tokens):
        if token.text != "<<<" or index < 2 or tokens[index - 1].text != ">":
            continue
        first = _start_of_name(tokens, index - 1)
        if first is not None and not parameters & {t.text for t in tokens[first:index]}:
            found.append(" ".join(text[tokens[first].start : tokens[index - 1].end].split()))
    return found


def _template_parameters(tokens: list[Token]) -> set[str]:
    """The names between the `<` and `>` of a `template` in front of a function."""
    names: set[str] = set()
    if not tokens or tokens[0].text != "template":
        return names
    depth = 0
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        depth += (token.text == "<") - (token.text == ">")
        if depth == 0:
            break
        if token.kind == "word" and after.text in (",", ">", "=") and before.text != "=":
            names.add(token.text)
    return names


def _start_of_name(tokens: list[Token], last: int) -> int | None:
    """Where `a::b<c, d<e>>` begins whose closing `>` is at `last`."""
    depth = 0
    for index in range(last, -1, -1):
        depth += (tokens[index].text == ">") - (tokens[index].text == "<")
        if depth == 0:
            break
    first = index - 1
    if depth or first < 0 or tokens[first].kind != "word":
        return None
    while first >= 2 and tokens[first - 1].text == "::" and tokens[first - 2].kind == "word":
        first -= 2
    return first
