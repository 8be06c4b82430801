"""Parse instructions: tokens to `Instruction`, resolved against the instruction table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from memlane.errors import PtxTypeError, UnsupportedPtx
from memlane.ptx.forms import ADDRESS, ARGUMENTS, COORDINATES, VALUE, Form, NoMatch
from memlane.ptx.ir import (
    Address,
    Arguments,
    Guard,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    Special,
    Statement,
    Symbol,
    TextureAddress,
    Vector,
)
from memlane.ptx.lexer import DIRECTIVE, Cursor
from memlane.ptx.location import Location
from memlane.ptx.operands import Names, Sum, parse_operand
from memlane.ptx.ops import TABLE
from memlane.source import Span, shortened

_SHAPES: dict[type, str] = {Address: ADDRESS, TextureAddress: COORDINATES, Arguments: ARGUMENTS}
_PART = re.compile(r"b[0-7]{1,4}|h[0-3]{1,2}")
"""Parts of a register that a video instruction can take."""

_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})
INSERTED = "<statements>"
"""Source name of text that a pass inserts."""


def _shape(operand: Operand) -> str:
    return _SHAPES.get(type(operand), VALUE)


class InstructionParser:
    """Parser of the instructions of one text, with a cache of resolved forms."""

    def __init__(self, cursor: Cursor, names: Names) -> None:
        self._cursor, self._names = cursor, names
        self._forms: dict[tuple[object, ...], tuple[str, tuple[str, ...], Form]] = {}
        self._sums: list[tuple[Register, Sum]] = []
        """Sums among the operands of the current instruction, with the registers that stand for them."""
        self._ignored: list[tuple[Register, Register, Operand]] = []
        """Predicates that make `cp.async` ignore its source: the register for the bytes read, the predicate, the bytes copied."""
        self._sum_count = 0
        self._opcode_start = 0
        self.version = (0, 0)
        """PTX version of the module; (0, 0) for statements alone."""

    def parse(self, guard: Guard | None, start: int, location: Location | None) -> tuple[Statement, ...]:
        """Parse the instruction at the cursor. The additions for operands such as `%r1+4` are returned in front of it."""
        cursor, texts = self._cursor, self._cursor.texts
        opcode_at = cursor.at
        text = texts[opcode_at]
        self._opcode_start = cursor.starts[opcode_at]
        cursor.at += 1
        while cursor.kind == DIRECTIVE:  # `st.global .u32`
            text += cursor.next()
        operands: tuple[Operand, ...] = ()
        if not cursor.accept(";"):
            operands = self._operands(text)
        key = (text, *map(type, operands))
        resolved = self._forms.get(key)
        if resolved is None:
            resolved = self._forms[key] = self._resolve(text, operands, opcode_at)
        if resolved[2].addresses and any(isinstance(operand, Address) and isinstance(operand.base, Symbol) for operand in operands):
            resolved = self._with_space(resolved, operands)
        if "." in "".join(texts[opcode_at + 1 : cursor.at]):
            for operand in operands:
                self._check_elements(operand, resolved[2])
        span = Span(cursor.source, start, cursor.starts[cursor.at - 1] + 1)
        if resolved[2].key == "asynchronous/cp.async":
            operands = self._with_source_bytes(operands, resolved[2])
        one = Instruction(resolved[0], resolved[1], operands, resolved[2], guard, location, span)
        before = *self._selections(span, location), *self._additions(span, location)
        return (*before, one) if before else (one,)

    def _check_elements(self, operand: Operand, form: Form) -> None:
        """Reject `%r1.x` where `%r1` has no such element. Video instructions take bytes and halves of registers, as `%r1.b0`."""
        match operand:
            case Register(name) if "." in name:
                base, _, element = name.partition(".")
                kind, length = self._names.declared(base) or ("", 1)
                if not kind and element in (*"xyzw", *"rgba"):
                    return
                is_part = form.key.startswith("video/") and length == 1 and _PART.fullmatch(element) is not None
                if not is_part and (length == 1 or element not in (*"xyzw"[:length], *"rgba"[:length])):
                    what = f"is a vector of {length}" if length > 1 else f"is a `.{kind}`" if kind else "is not declared"
                    raise PtxTypeError(
                        f"the register `{shortened(base)}` {what}: it has no element `.{shortened(element)}`",
                        self._cursor.span(self._opcode_start),
                    )
            case Vector(items) | TextureAddress(items) | Arguments(items):
                for item in items:
                    self._check_elements(item, form)
            case Pair(first, second):
                self._check_elements(first, form)
                self._check_elements(second, form)

    def _with_space(self, resolved: tuple[str, tuple[str, ...], Form], operands: tuple[Operand, ...]) -> tuple[str, tuple[str, ...], Form]:
        """Return the opcode with the state space added if it accesses a shared or local variable without one, as ptxas infers it."""
        opcode, modifiers, form = resolved
        for letter in form.addresses:
            operand = operands[form.operands[letter]]
            if isinstance(operand, Address) and isinstance(operand.base, Symbol):
                variable = self._names.variable(operand.base.name)
                if variable is not None and variable.space in ("shared", "local"):
                    longer = TABLE.with_space(opcode, modifiers, variable.space)
                    if longer is not None:
                        with suppress(NoMatch):
                            return opcode, longer, TABLE.match(opcode, longer, tuple(map(_shape, operands)))
            return resolved
        return resolved

    def _additions(self, span: Span, location: Location | None) -> Iterator[Statement]:
        """Yield the computation of the sums among the operands of an instruction, each into a register of its own."""
        sums, self._sums = self._sums, []
        for register, one in sums:
            yield RegisterDecl(one.type, register.name)
            source: Operand = one.base
            if isinstance(source, Special):  # special registers may only be moved
                form = TABLE.match("mov", (one.type,), (VALUE, VALUE))
                yield Instruction("mov", (one.type,), (register, source), form, None, location, span)
                source = register
            form = TABLE.match("add", (one.type,), (VALUE, VALUE, VALUE))
            yield Instruction("add", (one.type,), (register, source, Immediate(one.offset)), form, None, location, span)

    def _with_source_bytes(self, operands: tuple[Operand, ...], form: Form) -> tuple[Operand, ...]:
        """Replace a predicate that makes `cp.async` ignore its source by a register that holds how many bytes it reads."""
        at = form.operands.get("source", -1)
        ignore, size = (operands[at], operands[form.operands["size"]]) if at >= 0 else (None, None)
        if not isinstance(ignore, Register) or (self._names.declared(ignore.name) or ("",))[0] != "pred" or size is None:
            return operands
        register = self._new_register()
        self._ignored.append((register, ignore, size))
        return (*operands[:at], register, *operands[at + 1 :])

    def _selections(self, span: Span, location: Location | None) -> Iterator[Statement]:
        """Yield the computation of each register of `_with_source_bytes`."""
        ignored, self._ignored = self._ignored, []
        for register, ignore, size in ignored:
            yield RegisterDecl("u32", register.name)
            form = TABLE.match("selp", ("u32",), (VALUE,) * 4)
            read, left = (size, Immediate(0)) if ignore.negated else (Immediate(0), size)
            yield Instruction("selp", ("u32",), (register, read, left, Register(ignore.name)), form, None, location, span)

    def _operands(self, opcode: str) -> tuple[Operand, ...]:
        cursor, names = self._cursor, self._names
        found: list[Operand] = []
        while True:
            operand = parse_operand(cursor, names, opcode)
            if isinstance(operand, Sum):
                operand = self._sum_register(operand)
            found.append(names.spread(operand) if names.has_vectors and isinstance(operand, Register) else operand)
            text = cursor.next()
            if text == ",":
                continue
            if text == ";":
                return tuple(found)
            cursor.at -= 1
            raise cursor.error(f"expected `,` or `;` after an operand of `{shortened(opcode)}`, found {cursor.found()}")

    def _sum_register(self, operand: Sum) -> Register:
        """Return a new register that stands for a sum."""
        register = self._new_register()
        self._sums.append((register, operand))
        return register

    def _new_register(self) -> Register:
        """Return a register with a name not used in the text."""
        register = Register(f"%sum{self._sum_count}")
        while register.name in self._cursor.source.text:
            self._sum_count += 1
            register = Register(f"%sum{self._sum_count}")
        self._sum_count += 1
        return register

    def _resolve(self, text: str, operands: tuple[Operand, ...], at: int) -> tuple[str, tuple[str, ...], Form]:
        """Find the row of the table. This is the only place where an instruction can turn out to be unknown."""
        opcode, *modifiers = text.split(".")
        if opcode == "mad" and "f32" in modifiers and _ROUNDINGS.isdisjoint(modifiers) and (2, 0) <= self.version <= (3, 1):
            modifiers.insert(0, "rn")  # as ptxas reads it in such old modules
        shapes = tuple(map(_shape, operands))
        try:
            return opcode, tuple(modifiers), TABLE.match(opcode, tuple(modifiers), shapes)
        except NoMatch as answer:
            cursor = self._cursor
            span = Span(cursor.source, cursor.starts[at], cursor.starts[at] + len(text))
            rows = "".join(f"\n    {row}" for row in answer.rows[:3])
            if answer.reason == "opcode":
                raise UnsupportedPtx(f"the instruction `{shortened(text)}` is not supported", span) from None
            if answer.reason == "modifiers":
                raise UnsupportedPtx(
                    f"this form of `{opcode}` is not supported: `{shortened(text)}`; the nearest known are{rows}", span
                ) from None
            raise PtxTypeError(f"the operands of `{text}` do not match; its form is{rows}", span) from None
