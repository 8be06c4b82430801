"""Read `tests/cases/instructions/*.txt`: single instructions with values worked out by hand.

One case a line, in the form

    add.sat.s32 | 2147483647 1 -> 2147483647    # why

with the operands in the order of the manual and then the results, `d` before the predicate behind the bar. A value is bits (`0x7fffffff`),
an integer, or for floating-point operands a number with a point, a power of two (`-2^-126`), `inf`, `-inf` or `nan`. As a result `nan` is
the one that instructions give, and of an f64 any; `?` is anything. A line stands for a block of threads that all have these operands. Loads
and stores take the 16 bytes of a thread as two numbers; carry chains take the carry in as the last operand, and give it as the last result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from application import FORMS_PER_KERNEL, THREADS, Application
from exact import FORMATS
from harness import ROOT
from instructions import Spelling
from operands import Bits, width

from cases import Case, cases
from memlane.ptx import SCALAR_TYPES, TABLE

FILES = ROOT / "tests" / "cases" / "instructions"


@dataclass(frozen=True)
class Line:
    """A case by hand. A result is None where anything is right."""

    place: str
    case: Case
    operands: tuple[int, ...]
    results: tuple[int | None, ...]

    def differs(self, found: tuple[int, ...]) -> bool:
        """Return whether other results are wrong."""
        for kind, wanted, got in zip(self.case.results, self.results, found, strict=True):
            open_payload = kind == "f64" and wanted == _value("nan", "f64")
            if wanted is not None and wanted != got and not (open_payload and FORMATS["f64"].is_nan(got)):
                return True
        return False


@cache
def lines() -> tuple[Line, ...]:
    """Return all cases of all files. Raises ValueError, which names file and line."""
    return tuple(line for path in sorted(FILES.glob("*.txt")) for line in read(path.name, path.read_text(encoding="utf-8")))


def read(name: str, text: str) -> Iterator[Line]:
    """Yield the cases of a file."""
    for number, row in enumerate(text.splitlines(), 1):
        said = row.partition("#")[0].strip()
        if said:
            try:
                yield _line(f"{name}:{number}", said)
            except (ValueError, KeyError) as problem:
                raise ValueError(f"{name}:{number}: {problem}") from problem


def _line(place: str, said: str) -> Line:
    form, bar, values = (part.strip() for part in said.partition("|"))
    given, arrow, wanted = (part.split() for part in values.partition("->"))
    if not bar or not arrow or not wanted:
        raise ValueError(f"`{said}` is not `instruction | operands -> results`")
    case = case_of(form, len(given))
    if len(wanted) != len(case.results):
        raise ValueError(f"{form} has {len(case.results)} results, not {len(wanted)}")
    operands = tuple(_value(word, kind) for word, kind in zip(given, case.operands, strict=True))
    results = tuple(None if word == "?" else _value(word, kind) for word, kind in zip(wanted, case.results, strict=True))
    return Line(place, case, operands, results)


@cache
def case_of(form: str, count: int) -> Case:
    """Return the case of this name that takes `count` operands."""
    dotted = form.partition(" ")[0].rstrip(",")
    opcode, *modifiers = dotted.split(".")
    found: list[Case] = []
    for row in TABLE.rows(opcode):
        match = row.match(tuple(modifiers), tuple(place.shape for place in row.places if not place.optional))
        if match is not None:
            found += cases(Spelling(dotted, row, match))
    chosen = [case for case in found if len(case.operands) == count and (case.name == form or case.spelling.name == form)]
    if not chosen:
        raise ValueError(f"there is no {form} with {count} operands among {', '.join(case.name for case in found) or 'the forms'}")
    return chosen[0]


def _value(word: str, kind: str) -> int:
    """Return the bits of a value of a type, as a register holds them."""
    bits = width(kind) if kind != "pred" else 1
    scalar = SCALAR_TYPES.get(kind)
    if word.startswith("0x"):
        value = int(word, 16)
        if value >> bits:
            raise ValueError(f"{word} has more than the {bits} bits of {kind}")
        return value
    if scalar is None or scalar.kind != "f" or scalar.lanes != 1:
        return int(word) & ((1 << bits) - 1)
    form = FORMATS[kind]
    sign, size = (form.sign, word[1:]) if word.startswith("-") else (0, word)
    if size in ("inf", "nan"):
        return sign | form.infinity if size == "inf" else form.nothing
    base, power, exponent = size.partition("^")
    if not power and "." not in size:
        raise ValueError(f"{word} is an integer where {kind} is wanted: write bits, or a point")
    number = Fraction(2) ** int(exponent) if base == "2" and power else Fraction(size)
    return sign | (form.round(number, "rn") if number else 0)


@dataclass(frozen=True)
class Handmade(Application):
    """A kernel that applies some forms with the same kinds of operands to those of all their lines."""

    lines: tuple[Line, ...] = ()

    def operands(self) -> list[Bits]:
        columns = zip(*(line.operands for line in self.lines), strict=True)
        return [np.repeat(np.array(column, np.uint64), THREADS) for column in columns]

    def wrong(self, found: list[list[Bits]]) -> Iterator[tuple[Line, tuple[int, ...]]]:
        """Yield the lines whose results are wrong, with these results."""
        for case, columns in zip(self.cases, found, strict=True):
            for number, line in enumerate(self.lines):
                if line.case == case:
                    for thread in {tuple(int(column[number * THREADS + lane]) for column in columns) for lane in range(THREADS)}:
                        if line.differs(thread):
                            yield line, thread


def kernels(chosen: tuple[Line, ...]) -> Iterator[Handmade]:
    """Yield the kernels for these lines."""
    by_kinds: dict[tuple[str, ...], dict[str, list[Line]]] = {}
    for line in chosen:
        by_kinds.setdefault(line.case.operands, {}).setdefault(line.case.name, []).append(line)
    number = 0
    for forms in by_kinds.values():
        names = list(forms)
        for start in range(0, len(names), FORMS_PER_KERNEL):
            taken = names[start : start + FORMS_PER_KERNEL]
            listed = tuple(line for name in taken for line in forms[name])
            yield Handmade(f"k{number}", tuple(forms[name][0].case for name in taken), THREADS * len(listed), listed)
            number += 1
