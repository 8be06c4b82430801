"""Collect the rows of all instructions in one table, and find the row that an instruction fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from memlane.ptx.forms import Form, NoMatch, Op, Row


class Table:
    """The instruction table: rows by opcode, and a cache of matches."""

    def __init__(self, chapters: Mapping[str, tuple[Op, ...]]) -> None:
        """Build the table from `chapters`, the instructions of each chapter by its name.

        Raises ValueError if two instructions have the same key.
        """
        for chapter, entries in chapters.items():
            for entry in entries:
                entry.chapter = chapter
        self.ops = ops = tuple(entry for entries in chapters.values() for entry in entries)
        if doubles := [key for key, count in Counter(entry.key for entry in ops).items() if count > 1]:
            raise ValueError(f"two instructions of the table have the key {doubles[0]!r}; give one of them a variant")
        self._by_opcode: dict[str, list[Op]] = {}
        for entry in ops:
            self._by_opcode.setdefault(entry.opcode, []).append(entry)
        self._rows: dict[str, tuple[Row, ...]] = {}
        self._matches: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Form] = {}

    @property
    def opcodes(self) -> tuple[str, ...]:
        """All opcodes that have a row, in alphabetical order."""
        return tuple(sorted(self._by_opcode))

    def rows(self, opcode: str) -> tuple[Row, ...]:
        """Return the rows of an opcode in the order of the table; empty for an unknown one."""
        if opcode not in self._rows:
            self._rows[opcode] = tuple(row for entry in self._by_opcode.get(opcode, ()) for row in entry.rows())
        return self._rows[opcode]

    def match(self, opcode: str, modifiers: tuple[str, ...], shapes: tuple[str, ...]) -> Form:
        """Return the form of an instruction. `shapes` has `value`, `address`, `coordinates` or `arguments` for each operand.

        Raises `NoMatch`.
        """
        key = (opcode, modifiers, shapes)
        found = self._matches.get(key)
        if found is None:
            found = self._matches[key] = self._search(opcode, modifiers, shapes)
        return found

    def with_space(self, opcode: str, modifiers: tuple[str, ...], space: str) -> tuple[str, ...] | None:
        """Return the dotted parts with a state space that they leave out; None if they name one, or take none."""
        return next(filter(None, (row.insert_space(modifiers, space) for row in self.rows(opcode))), None)

    def _search(self, opcode: str, modifiers: tuple[str, ...], shapes: tuple[str, ...]) -> Form:
        rows = self.rows(opcode)
        if not rows:
            raise NoMatch("opcode")
        for row in rows:
            form = row.match(modifiers, shapes)
            if form is not None:
                return form
        fitting = tuple(row.text for row in rows if row.fill(modifiers) is not None)
        if fitting:
            raise NoMatch("operands", fitting)
        raise NoMatch("modifiers", tuple(row.text for row in sorted(rows, key=lambda row: _distance(row, modifiers))))


def _distance(row: Row, modifiers: tuple[str, ...]) -> int:
    """Return the distance of dotted parts from a row: words that it does not have, plus words that it requires and are absent."""
    unknown = sum(not any(modifier in word.words for word in row.words) for modifier in modifiers)
    absent = sum(not word.optional and not any(modifier in word.words for modifier in modifiers) for word in row.words)
    return unknown + absent
