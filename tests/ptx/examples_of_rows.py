"""Instructions written from the rows of the table: every row is its own test case."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from memlane.ptx.forms import ADDRESS, ARGUMENTS, COORDINATES, Form, Row

Choose = Callable[[Sequence[str]], str]
"""Picks one of several words; a test draws them at random or takes the first."""

REGISTER_TYPES = ("pred", "b16", "b32", "b64", "b128", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")
_HELD_IN = {
    "b8": "b16",
    "u8": "u16",
    "s8": "s16",
    "f16": "b16",
    "bf16": "b16",
    "f16x2": "b32",
    "bf16x2": "b32",
    "u16x2": "b32",
    "s16x2": "b32",
}
_IMMEDIATES = {"lut": "0x80", "size": "16", "n": "24", "align": "16", "a": "1"}
_LENGTHS = {"v2": 2, "v4": 4, "v8": 8, "x1": 1, "x2": 2, "x4": 4}
_COMES_WITH = {"policy": "L2::cache_hint", "mask": "multicast::cluster"}
"""Optional operands that belong to a dotted word."""
_SYMBOLS = {"target": "L", "targets": "T", "function": "f"}


def registers() -> str:
    """Declarations of the registers that the instructions use."""
    return "\n".join(f"\t.reg .{kind} %{kind}_<9>;" for kind in REGISTER_TYPES)


def instruction_from(row: Row, choose: Choose) -> str:
    """An instruction that the row describes, with the words and the optional parts that `choose` picks."""
    with_group = {0: True}
    modifiers = []
    for word in row.words:
        if word.group not in with_group:
            with_group[word.group] = choose(("with", "without")) == "with"
        if with_group[word.group]:
            modifiers.append(choose(sorted(word.words)))
    places = [place for place in row.places if _wanted(place.name, modifiers) or (not place.optional or _free(place.name, choose))]
    form = row.match(tuple(modifiers), tuple(place.shape for place in places))
    if form is None:  # a later optional operand without the one before it
        places = [place for place in row.places if not place.optional]
        form = row.match(tuple(modifiers), tuple(place.shape for place in places))
    assert form is not None, (row.text, modifiers)
    operands = []
    for number, place in enumerate(places):
        if place.shape == ADDRESS:
            operands.append(f"[%b64_{number}+{choose(('0', '16'))}]")
        elif place.shape == COORDINATES:
            operands.append(f"[%b64_{number}, {{%f32_0}}]")
        elif place.shape == ARGUMENTS:
            operands.append(f"({place.name}_0)")
        else:
            operands.append(_value(form, place.name, number, place.negatable and choose(("plain", "negated")) == "negated"))
            if place.second and (not _is_optional_pair(row, place.name) or choose(("with", "without")) == "with"):
                operands[-1] += "|%pred_8"
    return f"{'.'.join((row.opcode, *modifiers))} {', '.join(operands)};".replace(" ;", ";")


def _wanted(name: str, modifiers: Sequence[str]) -> bool:
    return _COMES_WITH.get(name) in modifiers


def _free(name: str, choose: Choose) -> bool:
    return name not in _COMES_WITH and choose(("without", "with")) == "with"


def _is_optional_pair(row: Row, name: str) -> bool:
    return re.search(rf"\b{name}\{{\|", row.text) is not None


def _value(form: Form, letter: str, number: int, negated: bool) -> str:
    wanted = form.types.get(letter)
    if letter in _SYMBOLS:
        return _SYMBOLS[letter]
    if wanted is None:
        if letter == "size" and form.row.startswith(("applypriority", "discard")):
            return "128"
        if letter == "policy" or form.row.startswith(("isspacep", "istypep")):
            return "%b64_8"
        return _IMMEDIATES.get(letter, "1")
    register = f"%{_HELD_IN.get(wanted, wanted)}_"
    length = _LENGTHS.get(form.slots.get("vec") or form.slots.get("num") or "", 0)
    if length and letter in ("d", "b", "v"):
        return "{" + ", ".join(f"{register}{index}" for index in range(length)) + "}"
    return f"{'!' if negated else ''}{register}{number}"
