"""Define the notation of the instruction table, and match instructions against it.

A row is written almost as the PTX manual writes the instruction:

    ld.volatile{.ss}{.vec}.type   d, [a]

- a dotted word is literal (`.volatile`) unless the row declares it a slot (`ss`, `vec`, `type`), which stands for one of a set;
- braces make it optional; words in one pair of braces come together or not at all (`{.sem.scope}`);
- dotted words may be written in any order, as ptxas accepts for most of them, but types keep the order of the row, and so do state spaces
  (`slct.s32.f32` is not `slct.f32.s32`), and slots that share values are filled in it;
- operands follow the opcode, by the manual's letters: `[a]` is an address, `[a, c]` one with coordinates, `d|p` a pair, `d{|p}` a pair or
  its first half, `(a)` a list of arguments, `{, c}` is optional, `{!}c` a predicate that may be negated.

Facts that this notation cannot express are given as keywords (see `Op.form`), which are data too: the types of the operands, which are
written, the spaces of the addresses, and the effect. Rows are compiled when an opcode is first used, and every match is cached, so that a
large module costs one dictionary look-up per instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from memlane.ptx.types import SCALAR_TYPES, SPACES

EFFECTS = (
    *("", "load", "store", "atomic", "reduction", "prefetch", "copy", "texture", "surface", "matrix", "fence"),
    *("barrier", "warp", "async", "branch", "call", "return", "exit", "trap", "other"),
)
"""Kinds of side effect of an instruction; empty for plain arithmetic."""

VALUE, ADDRESS, COORDINATES, ARGUMENTS = "value", "address", "coordinates", "arguments"
"""Shapes of an operand: `a`, `[a]`, `[a, c]`, `(a)`."""


@dataclass(frozen=True, slots=True)
class Form:
    """The match of an opcode with its dotted parts: one row of the table with its slots filled."""

    row: str
    """The row as written in the table."""
    key: str = ""
    """The unique name of the row's instruction (`Op.key`), to which the emulator binds its semantics."""
    slots: Mapping[str, str] = field(default_factory=dict)
    """Word that filled each slot, without the dot."""
    operands: Mapping[str, int] = field(default_factory=dict)
    """Position in `Instruction.operands` of each operand letter of the manual. A pair `d|p` is listed under its first letter."""
    writes: frozenset[str] = frozenset()
    """Letters of the operands that are written (a pair counts as one, under its first letter)."""
    updates: frozenset[str] = frozenset()
    """Letters in `writes` whose old value is also read, such as the accumulator of `wgmma.mma_async`."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Scalar type of each operand letter with the slots filled, for example `{"d": "u64", "a": "u32", "b": "u32"}` for `mul.wide.u32`.

    Addresses have no entry, nor have operands without a scalar type (labels, textures).
    """
    addresses: Mapping[str, str] = field(default_factory=dict)
    """State space of each memory operand, by letter; `generic` if the instruction names none."""
    effect: str = ""
    """One of `EFFECTS`."""
    wider: frozenset[str] = frozenset()
    """Letters whose register may be wider than their type (`ld`, `st`, `cvt`)."""
    manual: str = ""
    """Section of the PTX manual, as the anchor in its one-page edition."""


class NoMatch(Exception):  # noqa: N818 (it is an answer, which the parser turns into an error with a place)
    """Raised if no row matches.

    `rows` are those of the opcode, nearest first; `reason` is `opcode`, `modifiers` or `operands`.
    """

    def __init__(self, reason: str, rows: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.rows = rows


@dataclass(frozen=True, slots=True)
class _Word:
    """One dotted word of a row: a literal, or a slot that stands for one of `words`."""

    name: str
    words: frozenset[str]
    group: int
    """Number of its pair of braces, 0 for none: the words of a group come together or not at all."""
    is_slot: bool

    @property
    def optional(self) -> bool:
        return self.group > 0


@dataclass(frozen=True, slots=True)
class _Place:
    """One operand of a row."""

    name: str
    shape: str
    optional: bool = False
    second: str = ""
    """The second letter of a pair."""
    negatable: bool = False


class Op:
    """An instruction of the manual: one section with its rows. The tables in `ptx.ops` build it by chained calls."""

    def __init__(self, name: str, manual: str, facts: Mapping[str, str]) -> None:
        self.name = name
        self.manual = manual
        self.chapter = ""
        """The module of `ptx.ops` that contains it."""
        self.variant = ""
        """Text that distinguishes it from another instruction of the chapter with the same name."""
        self._facts = dict(facts)
        self._forms: list[tuple[str, dict[str, str]]] = []
        self._slots: dict[str, str] = {}

    @property
    def opcode(self) -> str:
        """Word before the first dot."""
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        """Unique name of the instruction: `memory/ld.global.nc`, `half/add mixed`."""
        return f"{self.chapter}/{self.name}" + (f" {self.variant}" if self.variant else "")

    def form(self, text: str, **facts: str) -> Self:
        """Add a row. Keywords apply to this row alone; those given to `op` apply to all of its rows, and these take precedence.

        - `types="d:dtype a:u32"`: the type of an operand: a slot's name, a type, either followed by `*2` for twice the width, or `-` for
          none. Without an entry an operand `x` has the type of the slot `xtype`, else of the slot `type`; a predicate where the notation
          shows one.
        - `writes="d"`: the operands written; without it `d`, and a `p` that stands first.
        - `updates="d"`: written operands whose old value is read.
        - `spaces="a:shared"`: the state space of an address; without it the slot `ss` or `space`, else `generic`.
        - `effect="load"`: one of `EFFECTS`.
        - `wider="d"`: operands whose register may be wider than their type.
        - any other keyword declares a slot for this row alone.
        """
        self._forms.append((text, facts))
        return self

    def where(self, **slots: str) -> Self:
        """Declare slots: each name with the words it stands for, separated by blanks and without dots."""
        self._slots.update(slots)
        return self

    def rows(self) -> Iterator[Row]:
        """Yield the rows, compiled."""
        for text, facts in self._forms:
            yield _compile_row(self, text, {**self._facts, **facts}, self._slots)


def op(name: str, *, manual: str, variant: str = "", **facts: str) -> Op:
    """Declare the instruction `name` of the manual's section `manual`; the other keywords are those of `Op.form`.

    `variant` distinguishes it from another instruction of the chapter with the same name.
    """
    declared = Op(name, manual, facts)
    declared.variant = variant
    return declared


_COMES_WITH = {"policy": "L2::cache_hint", "mask": "multicast::cluster"}
"""Optional operands that are present exactly where a dotted word is."""
_FACTS = frozenset({"types", "writes", "updates", "spaces", "effect", "wider"})


@dataclass(frozen=True, slots=True)
class Row:
    """One compiled row of the table."""

    text: str
    opcode: str
    key: str
    manual: str
    words: tuple[_Word, ...]
    places: tuple[_Place, ...]
    facts: Mapping[str, str]

    def match(self, modifiers: tuple[str, ...], shapes: tuple[str, ...]) -> Form | None:
        """Return the form of an instruction with these dotted parts and operand shapes, or None."""
        slots = self.fill(modifiers)
        places = None if slots is None else _arrange(tuple(self._offered(modifiers)), shapes)
        if slots is None or places is None:
            return None
        return self._form(slots, places)

    def fill(self, modifiers: tuple[str, ...]) -> dict[str, str] | None:
        """Return the word of each slot if the dotted parts fit this row in some order, else None."""
        chosen = self._choose(modifiers, 0, frozenset(), {})
        if chosen is None:
            return None
        return {self.words[place].name: modifiers[index] for index, place in enumerate(chosen) if self.words[place].is_slot}

    def _choose(self, modifiers: tuple[str, ...], index: int, taken: frozenset[int], last: Mapping[str, int]) -> tuple[int, ...] | None:
        """Return the places of the words that the dotted parts from `index` on fill, or None.

        `last`: the last place taken by a type, or a state space.
        """
        if index == len(modifiers):
            needed = {0, *(self.words[place].group for place in taken)}
            complete = all(place in taken or word.group not in needed for place, word in enumerate(self.words))
            return () if complete else None
        kind = _ordered_kind(modifiers[index])
        for place, word in enumerate(self.words):
            if place not in taken and modifiers[index] in word.words and place > last.get(kind, -1):
                rest = self._choose(modifiers, index + 1, taken | {place}, {**last, kind: place} if kind else last)
                if rest is not None:
                    return (place, *rest)
        return None

    def insert_space(self, modifiers: tuple[str, ...], space: str) -> tuple[str, ...] | None:
        """Return the dotted parts with a state space inserted; None if they do not fit this row, already name a space, or take none."""
        chosen = self._choose(modifiers, 0, frozenset(), {})
        for place, word in enumerate(self.words):
            spelled = next((name for name in (space, f"{space}::cta") if name in word.words), None)
            if chosen is not None and word.name in ("ss", "space") and place not in chosen and spelled is not None:
                return (*modifiers[: (at := sum(other < place for other in chosen))], spelled, *modifiers[at:])
        return None

    def _offered(self, modifiers: tuple[str, ...]) -> Iterator[_Place]:
        """Yield the operands that an instruction with these dotted parts has: some are present exactly with a word."""
        for place in self.places:
            word = _COMES_WITH.get(place.name) if place.optional else None
            if word is None:
                yield place
            elif word in modifiers:
                yield replace(place, optional=False)

    def _form(self, slots: dict[str, str], places: tuple[_Place, ...]) -> Form:
        rules = _pairs(self.facts.get("types", ""))
        spaces = _pairs(self.facts.get("spaces", ""))
        named_space = slots.get("ss") or slots.get("space") or "generic"
        types: dict[str, str] = {}
        addresses: dict[str, str] = {}
        for place in places:
            if place.shape in (ADDRESS, COORDINATES):
                addresses[place.name] = spaces.get(place.name, named_space.partition("::")[0])
                continue
            for letter in filter(None, (place.name, place.second)):
                found = _type_of(letter, rules.get(letter, ""), slots, place.negatable or letter == place.second or letter in "pq")
                if found:
                    types[letter] = found
        if "writes" in self.facts:
            writes = frozenset(self.facts["writes"].split())
        else:
            writes = frozenset(place.name for i, place in enumerate(places) if place.name == "d" or (i == 0 and place.name == "p"))
        return Form(
            row=self.text,
            key=self.key,
            slots=slots,
            operands={place.name: index for index, place in enumerate(places)},
            writes=frozenset(place.name for place in places if place.name in writes and place.shape in (VALUE, ARGUMENTS)),
            updates=frozenset(self.facts.get("updates", "").split()),
            types=types,
            addresses=addresses,
            effect=self.facts.get("effect", ""),
            wider=frozenset(self.facts.get("wider", "").split()),
            manual=self.manual,
        )


def _arrange(places: tuple[_Place, ...], shapes: tuple[str, ...]) -> tuple[_Place, ...] | None:
    """Return the operands of a row, in order, that match operands of these shapes; None if they do not fit."""
    if not places:
        return None if shapes else ()
    here, *others = places
    if shapes and shapes[0] == here.shape:
        rest = _arrange(tuple(others), shapes[1:])
        if rest is not None:
            return (here, *rest)
    return _arrange(tuple(others), shapes) if here.optional else None


def _ordered_kind(word: str) -> str:
    """Return `type` or `space` for words that keep the order of the row; empty for the others."""
    return "type" if word in SCALAR_TYPES else "space" if word.partition("::")[0] in SPACES else ""


def _pairs(text: str) -> dict[str, str]:
    return dict(entry.split(":", 1) for entry in text.split())


def _type_of(letter: str, rule: str, slots: Mapping[str, str], is_predicate: bool) -> str:
    if rule == "-":
        return ""
    if not rule:
        if is_predicate:
            return "pred"
        return slots.get(f"{letter}type") or slots.get("type") or ""
    name, doubled, _ = rule.partition("*2")
    name = slots.get(name, name)
    if doubled:
        scalar = SCALAR_TYPES[name]
        name = f"{scalar.kind}{scalar.bits * 2}"
    return name if name in SCALAR_TYPES else ""


_HEAD = re.compile(r"\.[\w:]+|[{}]")
_OPERAND = re.compile(r"\w+|\S")


def _compile_row(owner: Op, text: str, facts: Mapping[str, str], slots: Mapping[str, str]) -> Row:
    head, _, tail = " ".join(text.split()).partition(" ")
    opcode = re.match(r"\w+", head)
    assert opcode is not None, text
    declared = {**slots, **{name: words for name, words in facts.items() if name not in _FACTS}}
    words: list[_Word] = []
    groups = [0]
    opened = 0
    for token in _HEAD.findall(head):
        if token == "{":
            opened += 1
            groups.append(opened)
            continue
        if token == "}":
            groups.pop()
            continue
        name = token[1:]
        values = declared.get(name)
        words.append(_Word(name, frozenset(values.split() if values is not None else (name,)), groups[-1], values is not None))
    kept = {name: value for name, value in facts.items() if name in _FACTS}
    return Row(" ".join(text.split()), opcode.group(), owner.key, owner.manual, tuple(words), tuple(_compile_places(tail)), kept)


def _compile_places(text: str) -> Iterator[_Place]:
    """Parse `d{|p}, [a], {!}c{, e}`."""
    tokens = _OPERAND.findall(text)
    depth = index = 0
    while index < len(tokens):
        token = tokens[index]
        if token == "{" and tokens[index + 1] == "!":
            yield _Place(tokens[index + 3], VALUE, depth > 0, negatable=True)
            index += 4
        elif token in ("{", "}"):
            depth += 1 if token == "{" else -1
            index += 1
        elif token == ",":
            index += 1
        elif token in "[(":
            close = tokens.index("]" if token == "[" else ")", index)
            inside = tokens[index + 1 : close]
            shape = ARGUMENTS if token == "(" else COORDINATES if "," in inside else ADDRESS
            yield _Place(inside[0], shape, depth > 0)
            index = close + 1
        else:
            index += 1
            second = ""
            if tokens[index : index + 1] == ["|"]:
                second, index = tokens[index + 1], index + 2
            elif tokens[index : index + 2] == ["{", "|"]:
                second, index = tokens[index + 2], index + 4
            yield _Place(token, VALUE, depth > 0, second)
