"""Change the layout of an array in global memory that a kernel gets through a pointer parameter.

    ld.param.u64 %rd1, [points];          ld.param.u64 %at_b64_0, [points];         at the entry
    add.s64 %rd8, %rd7, %rd6;             add.s64 %rd8, %rd7, %rd6;
    ld.global.f32 %f1, [%rd8];     ->     sub.s64 %at_b64_1, %rd8, %at_b64_0;       byte offset in the array
                                          ...                                       the element, and its place in the layout
                                          add.s64 %at_b64_7, %at_b64_0, %at_b64_6;
                                          ld.global.f32 %f1, [%at_b64_7];

Changes every access whose address must come from that parameter. If an address may come from it or from something else, or leaves the
registers that are followed, the pass refuses with the line: an access to an element at its old place would reach another one.
Tables of the layout become variables of the module, which are read under the guard of the access.
Takes a valid module and returns a valid one, with the calls of the kernel inlined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from memlane.errors import LayoutError, RelayoutError
from memlane.layout import ArrayLayout, Fields
from memlane.layout.arrays import split
from memlane.layout.expression import name
from memlane.layout.layout import LARGEST_TABLE
from memlane.layout.program import Program
from memlane.number_format import plural
from memlane.ptx import (
    SCALAR_TYPES,
    Address,
    Block,
    ControlFlow,
    Function,
    Instruction,
    Module,
    Register,
    RegisterDecl,
    Statement,
    Symbol,
    Variable,
    flatten_scopes,
    inline_calls,
    statements,
    verify,
)
from memlane.ptx.edit import alias, free_prefix, placed, with_items
from memlane.rewrite.arrays import SharedArray
from memlane.rewrite.emit import LookUp, can_be_computed, put_together
from memlane.rewrite.provenance import Analysis, ArrayAccess, Problem, entry_state, fixpoint
from memlane.rewrite.relayout import refusal
from memlane.rewrite.values import ANY, Mixed, Pointer, Value
from memlane.rewrite.writer import PREFIX

_OPERATIONS: Mapping[str, str] = {
    "+": "add.s{}",
    "-": "sub.s{}",
    "*": "mul.lo.s{}",
    "//": "div.u{}",
    "%": "rem.u{}",
    "&": "and.b{}",
    "|": "or.b{}",
    "^": "xor.b{}",
    "<<": "shl.b{}",
    ">>": "shr.u{}",
    "min": "min.s{}",
    "max": "max.s{}",
}


@dataclass(frozen=True)
class ParameterRelayoutResult:
    """Module with a new layout of an array of a kernel."""

    module: Module
    parameter: str
    accesses: int
    """Number of instructions that access the array."""
    alignment: int
    """Required alignment of the array in bytes, for the widest of these accesses."""


def relayout_parameter(module: Module, kernel: str, parameter: int | str, layout: ArrayLayout, element: int) -> ParameterRelayoutResult:
    """Map every access of a kernel to the array behind a pointer parameter through `layout`, whose elements have `element` bytes.

    `parameter` is its position or its name in the PTX. Raises RelayoutError, with the line, if an address cannot be followed.
    """
    inlined = inline_calls(module).module
    function = inlined.kernels[kernel]
    wanted = _parameter(function, parameter)
    array = SharedArray(function.name, (wanted,), f"the array of parameter {wanted!r}", 0, 1)
    flat = flatten_scopes(function)
    accesses, problems = _accesses_and_problems(flat, array)
    if problems:
        first = problems[0]
        raise refusal(inlined, flat, first.index, f"the layout of {array.title} cannot be changed: {first.reason}")
    if not accesses:
        raise RelayoutError(f"{function.title} makes no access through parameter {wanted!r} that memlane can follow")
    program = Program(layout.offset(split(name("k", layout.count), layout.shape)))
    remedy = _by_words(layout, element, max(one.nbytes for one in accesses))
    for one in accesses:
        _check(inlined, flat, one, layout, element, array, remedy)
    names, variables = _tables(inlined, program)
    changed = _Writer(flat, accesses, wanted, program, element, names).rewrite()
    result = with_items(inlined, {kernel: changed}, variables)
    verify(result)
    return ParameterRelayoutResult(result, wanted, len(accesses), max(one.nbytes for one in accesses))


def _tables(module: Module, program: Program) -> tuple[dict[tuple[int, ...], LookUp], list[Variable]]:
    """Return how each table of a layout is read, and the variables in global memory for those that need memory."""
    found: dict[tuple[int, ...], LookUp] = {}
    variables: list[Variable] = []
    taken = {*module.variables, *module.functions}
    free = (word for number in count() if (word := f"memlane_layout_{number}") not in taken)
    for step in program.steps:
        values = step.part.value
        if step.part.op != "table" or values in found:
            continue
        assert isinstance(values, tuple)
        if can_be_computed(values) and _is_narrow(program):
            continue
        kinds = (("u8", 1, 0, 1 << 8), ("u16", 2, 0, 1 << 16), ("s32", 4, -(1 << 31), 1 << 31), ("s64", 8, -(1 << 63), 1 << 63))
        kind, size = next((kind, size) for kind, size, low, high in kinds if low <= min(values) and max(values) < high)
        found[values] = LookUp(next(free), "global", kind, size)
        initial = "{" + ", ".join(map(str, values)) + "}"
        variables.append(Variable("global", kind, found[values].variable, (len(values),), align=8, initial=initial))
    return found, variables


def _is_narrow(program: Program) -> bool:
    """Return whether every intermediate value fits into 32 bits."""
    return all(step.part.low >= -(1 << 31) and step.part.high < 1 << 31 for step in program.steps)


def _parameter(function: Function, wanted: int | str) -> str:
    """Return the PTX name of a pointer parameter. Raises RelayoutError if there is none."""
    names = [one.name for one in function.params]
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        if not 0 <= wanted < len(names):
            raise RelayoutError(f"{function.title} has parameters 0 to {len(names) - 1}, no {wanted}")
        wanted = names[wanted]
    if wanted not in names:
        raise RelayoutError(f"{function.title} has no parameter {wanted!r}; it has: {', '.join(names)}")
    if function.params[names.index(wanted)].nbytes != 8:
        raise RelayoutError(f"parameter {wanted!r} of {function.title} is not a pointer, so it has no array whose layout could change")
    return wanted


class _OfParameter(Analysis):
    """Analysis of the addresses that come from one parameter. They count as generic, which global addresses are too."""

    def __init__(self, array: SharedArray) -> None:
        super().__init__({})
        self.array = array

    def result(self, one: Instruction, state: dict[str, Value]) -> tuple[Value, str]:
        if _reads_parameter(one, self.array):
            return Pointer(self.array, True, 64, 0), ""
        values = self._values(one, state)
        if one.opcode == "cvta" and len(values) == 1 and isinstance(values[0], Pointer):
            if (one.slot("space") or "").partition("::")[0] == "global":
                return values[0], ""
            return ANY, "it is used as an address in another state space"
        return super().result(one, state)


def _reads_parameter(one: Instruction, array: SharedArray) -> bool:
    """Return whether an instruction loads the parameter."""
    bases = [operand.base for operand in one.operands if isinstance(operand, Address)]
    return one.opcode == "ld" and any(isinstance(base, Symbol) and base.name in array.names for base in bases)


def _names_parameter(one: Instruction, array: SharedArray) -> bool:
    """Return whether an instruction takes the address of the parameter, through which its value may be read anywhere."""
    return any(isinstance(operand, Symbol) and operand.name in array.names for operand in one.operands)


def _is_whole(one: Instruction) -> bool:
    """Return whether a load of a parameter reads the whole pointer."""
    offsets = [operand.offset for operand in one.operands if isinstance(operand, Address)]
    return offsets == [0] and isinstance(one.operands[0], Register) and SCALAR_TYPES[one.form.types["d"]].bits == 64


def _accesses_and_problems(flat: Function, array: SharedArray) -> tuple[list[ArrayAccess], list[Problem]]:
    """Return the accesses to the array, and what prevents changing its layout, both in program order."""
    flow, analysis = ControlFlow(flat), _OfParameter(array)
    ends = fixpoint(flow, analysis)
    numbers = {id(one): index for index, one in enumerate(flat.instructions())}
    accesses: list[ArrayAccess] = []
    problems: list[Problem] = []
    for block in flow.order:
        state = entry_state(flow, block, ends)
        for one in flow.blocks[block].instructions:
            found, reported = analysis.uses(one, state, numbers[id(one)])
            accesses += found
            # Accesses to shared memory do not concern an array in global memory.
            problems += [problem for problem in reported if problem.arrays]
            if _names_parameter(one, array):
                problems.append(Problem(numbers[id(one)], frozenset({array}), "the address of the parameter itself is taken here"))
            if _reads_parameter(one, array) and not _is_whole(one):
                problems.append(Problem(numbers[id(one)], frozenset({array}), "only a part of its address is read here"))
            if one.form.effect and any(isinstance(value, Mixed) for value in analysis._values(one, state)):
                problems.append(Problem(numbers[id(one)], frozenset({array}), "its address may be stored or passed on here"))
            analysis.step(one, state)
    return sorted(accesses, key=lambda one: one.index), sorted(problems, key=lambda one: one.index)


def _by_words(layout: ArrayLayout, element: int, widest: int) -> str:
    """Return, for the end of a message, a layout of structures that splits no access; empty for other layouts."""
    if not isinstance(layout, Fields) or widest <= element or layout.shape[1] * element % widest:
        return ""
    words = layout.shape[1] * element // widest
    fields = f"memlane.layout.Fields(({layout.shape[0]}, {words}), {(1,) * words})"
    return (
        f"; to keep words of {plural(widest, 'byte')} together, upload with {fields}, and pass the same layout to relayout with its "
        f"shape and dtype='V{widest}'"
    )


def _check(module: Module, flat: Function, one: ArrayAccess, layout: ArrayLayout, element: int, array: SharedArray, remedy: str) -> None:
    """Raise RelayoutError if an access covers several elements that would not be contiguous, or may cross the boundary between two."""
    if element % one.nbytes == 0:
        return
    instruction = list(flat.instructions())[one.index]
    if one.nbytes < element:
        text = f"`{instruction.name}` accesses {plural(one.nbytes, 'byte')}, which may cross the boundary between two elements of {element}"
        raise refusal(module, flat, one.index, text)
    several = f"`{instruction.name}` accesses {plural(one.nbytes, 'byte')} of {array.title} at once"
    count, left = divmod(one.nbytes, element)
    if left or layout.count % count or layout.count > LARGEST_TABLE:
        raise refusal(module, flat, one.index, f"{several}, and it is not known whether {layout} keeps them together")
    groups = layout.table.reshape(-1, count)
    if not np.array_equal(groups, groups[:, :1] + np.arange(count)) or (groups[:, 0] % count).any():
        raise refusal(module, flat, one.index, f"{several}, which {layout} splits: they would not be contiguous{remedy}")


@dataclass
class _Writer:
    """Rewrites a function with mapped addresses."""

    function: Function
    accesses: list[ArrayAccess]
    parameter: str
    program: Program
    element: int
    tables: Mapping[tuple[int, ...], LookUp]
    _declared: dict[str, int] = field(default_factory=dict)

    def rewrite(self) -> Function:
        assert self.function.body is not None
        self._prefix = free_prefix(self.function, PREFIX)
        base = self._fresh("b64")
        entry = statements(f"ld.param.u64 {base}, [{self.parameter}];")
        of: dict[int, list[ArrayAccess]] = {}
        for one in self.accesses:
            of.setdefault(one.index, []).append(one)
        numbers = count()
        body: list[Statement] = []
        for statement in self.function.body.statements:
            if not isinstance(statement, Instruction):
                body.append(statement)
                continue
            body += self._instruction(statement, of.get(next(numbers), []), base)
        first = next((at for at, one in enumerate(body) if isinstance(one, Instruction)), 0)
        declared = [RegisterDecl(kind, f"%{self._prefix}{kind}_", used) for kind, used in sorted(self._declared.items())]
        return replace(self.function, body=Block((*declared, *body[:first], *entry, *body[first:])))

    def _instruction(self, one: Instruction, accesses: list[ArrayAccess], base: str) -> Iterator[Statement]:
        operands = list(one.operands)
        for access in accesses:
            address = operands[access.operand]
            assert isinstance(address, Address)
            assert isinstance(address.base, Register)
            lines: list[str] = []
            place = self._place(alias(address.base.name), address.offset, base, lines)
            for statement in placed("\n".join(lines), one.location):
                assert isinstance(statement, Instruction)
                # Under a false guard the address is arbitrary, so tables are not read there.
                yield replace(statement, guard=one.guard if statement.opcode == "ld" else None)
            operands[access.operand] = replace(address, base=Register(place), offset=0)
        yield replace(one, operands=tuple(operands)) if accesses else one

    def _place(self, source: str, offset: int, base: str, lines: list[str]) -> str:
        """Append PTX that computes the new address; return its register."""
        distance = self._line(lines, "sub.s64", source, base)
        if offset:
            distance = self._line(lines, "add.s64", distance, str(offset))
        shift = self.element.bit_length() - 1
        within = ""
        if 1 << shift == self.element:
            index = self._line(lines, "shr.u64", distance, str(shift)) if shift else distance
            within = self._line(lines, "and.b64", distance, str(self.element - 1)) if shift else ""
        else:
            index = self._line(lines, "div.u64", distance, str(self.element))
            within = self._line(lines, "rem.u64", distance, str(self.element))
        element = self._element(index, lines)
        at = self._line(lines, "mad.lo.s64", element, str(self.element), base)
        return self._line(lines, "add.s64", at, within) if within else at

    def _element(self, index: str, lines: list[str]) -> str:
        """Append PTX that computes the place of an element, in 32-bit arithmetic if every intermediate value fits; return its register."""
        steps = self.program.steps
        bits = 32 if _is_narrow(self.program) else 64
        if bits == 32:
            narrow = self._fresh("b32")
            lines.append(f"cvt.u32.u64 {narrow}, {index};")
            index = narrow
        places: list[str] = []
        for step in steps:
            part, operands = step.part, [places[one] for one in step.operands]
            if part.op == "name":
                places.append(index)
            elif part.op == "number":
                places.append(str(part.value))
            elif part.op == "table":
                assert isinstance(part.value, tuple)
                places.append(self._looked_up(part.value, operands[0], bits, lines))
            else:
                if part.op in ("//", "%", ">>") and any(operand.low < 0 for operand in part.operands):
                    raise LayoutError("this layout divides a value that can be negative, which is not supported in kernels")
                if part.op in ("<<", ">>") and bits == 64 and not operands[1].isdigit():
                    operands[1] = self._narrowed(operands[1], lines)
                places.append(self._fresh(f"b{bits}"))
                lines.append(f"{_OPERATIONS[part.op].format(bits)} {places[-1]}, {operands[0]}, {operands[1]};")
        found = places[-1]
        if bits == 32 and not found.lstrip("-").isdigit():
            wide = self._fresh("b64")
            lines.append(f"cvt.u64.u32 {wide}, {found};")
            found = wide
        return found

    def _looked_up(self, values: tuple[int, ...], index: str, bits: int, lines: list[str]) -> str:
        """Append PTX that reads or assembles an entry of a table; return its register."""
        known = self.tables.get(values)
        if known is None:
            return put_together(lines, values, index, self._fresh)
        found, multiply = self._fresh(f"b{bits}"), "mad.wide.u32" if bits == 32 else "mad.lo.s64"
        at = self._line(lines, multiply, index, str(known.nbytes), self._line(lines, "mov.u64", known.variable))
        lines.append(f"ld.global.nc.{known.type} {found}, [{at}];")
        return found

    def _narrowed(self, register: str, lines: list[str]) -> str:
        narrow = self._fresh("b32")
        lines.append(f"cvt.u32.u64 {narrow}, {register};")
        return narrow

    def _line(self, lines: list[str], operation: str, *operands: str) -> str:
        """Append an operation on 64 bits; return the register with its result."""
        made = self._fresh("b64")
        lines.append(f"{operation} {made}, {', '.join(operands)};")
        return made

    def _fresh(self, kind: str) -> str:
        """Return an unused register of a type."""
        number = self._declared.get(kind, 0)
        self._declared[kind] = number + 1
        return f"%{self._prefix}{kind}_{number}"
