"""Write kernels that apply forms of instructions to arrays of operands, one tuple per thread."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from operands import OTHERS, QUICK, UNARY, Bits, tuples, width

from cases import Case
from memlane.errors import CompileError
from memlane.launch import LoadedModule, Target
from memlane.ptx import Function, Instruction, Module, RegisterDecl, parse

THREADS = 128
FORMS_PER_KERNEL = 24
HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
_OWN = re.compile(r"@(?!!?x\d)")
"""This pattern matches `@` before the name of one of the form's own registers: not before a guard that is an operand."""
_FORM = re.compile(r"\bf(\d+)_")
_REFUSAL = re.compile(r"^\S+:(\d+): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Application:
    """One kernel: some forms that take the same kinds of operands, each applied to the same tuples."""

    name: str
    cases: tuple[Case, ...]
    count: int

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.cases[0].operands

    def operands(self) -> list[Bits]:
        return tuples(self.kinds, self.count)


def applications(cases: Sequence[Case], quick: bool) -> list[Application]:
    """Divide all cases into kernels of at most `FORMS_PER_KERNEL` forms."""
    found: list[Application] = []
    for kinds, same in groupby(sorted(cases, key=lambda case: case.operands), key=lambda case: case.operands):
        listed = list(same)
        count = QUICK if quick else UNARY if len(kinds) == 1 and kinds[0] != "pred" else OTHERS
        for start in range(0, len(listed), FORMS_PER_KERNEL):
            found.append(Application(f"k{len(found)}", tuple(listed[start : start + FORMS_PER_KERNEL]), count))
    return found


def module(applied: Sequence[Application]) -> Module:
    """Return a module with these kernels. A register `f7_0` belongs to the seventh form of its kernel."""
    return parse(HEAD + "\n".join(_kernel(one) for one in applied), "forms.ptx")


def form_number(line: str) -> int | None:
    """Return the number of the form that a line of PTX belongs to; None if it names none."""
    found = _FORM.search(line)
    return int(found[1]) if found else None


def _kernel(one: Application) -> str:
    lines = [*_entry(one), *_operand_loads(one)]
    plane = 0
    for number, case in enumerate(one.cases):
        kinds = {**{str(place): kind for place, kind in enumerate(case.results)}, **case.temporaries}
        lines += [f".reg .{register(kind)} f{number}_{name};" for name, kind in kinds.items()]
        lines.append(_OWN.sub(f"f{number}_", case.code))
        for place, kind in enumerate(case.results):
            lines += _result_store(f"f{number}_{place}", f"f{number}_s", kind, 8 * one.count * plane)
            plane += 1
    return "\n".join([*lines, "ret;", "}", ""])


def _entry(one: Application) -> list[str]:
    spaces = [space for space in ("local", "shared", "global", "generic") if any(f"_{space}]" in case.code for case in one.cases)]
    lines = []
    if {"global", "generic"} & set(spaces):
        lines.append(f".global .align 16 .b8 {one.name}_global[{16 * one.count}];")
    lines += [f".visible .entry {one.name}(.param .u64 operands, .param .u64 results)", "{"]
    lines += [".reg .b32 thread, block, index, other;", ".reg .b64 offset, inputs, outputs, place;"]
    lines += ["mov.u32 thread, %tid.x;", "mov.u32 block, %ctaid.x;", f"mad.lo.u32 index, block, {THREADS}, thread;"]
    lines += ["mul.wide.u32 offset, index, 8;", "ld.param.u64 inputs, [operands];", "add.u64 inputs, inputs, offset;"]
    lines += ["ld.param.u64 outputs, [results];", "add.u64 outputs, outputs, offset;"]
    for space in spaces:
        lines += _own_bytes(one, space)
    return lines + (_neighbours_operands(one) if _reads_operands(one) else [])


def _reads_operands(one: Application) -> bool:
    """Return whether some form reads memory that was written before the launch, where the first two operands of each thread follow the
    operands."""
    return any("[next_operands]" in case.code for case in one.cases)


def _neighbours_operands(one: Application) -> list[str]:
    """Return code that computes the address of the operands of the thread's neighbour."""
    start = 8 * one.count * len(one.kinds)
    lines = [".reg .b64 next_operands;", "ld.param.u64 place, [operands];", f"add.u64 place, place, {start};"]
    lines += ["xor.b32 other, thread, 1;", f"mad.lo.u32 other, block, {THREADS}, other;"]
    return [*lines, "mad.wide.u32 next_operands, other, 16, place;"]


def _own_bytes(one: Application, space: str) -> list[str]:
    """Return code for the addresses in a space of the thread's 16 bytes, its neighbour's, and those shared by every 8th thread."""
    names = [f"{which}_{space}" for which in ("own", "next", "eighth")]
    lines = [f".reg .b64 {', '.join(names)};"]
    if space == "local":
        return [*lines, ".local .align 16 .b8 stack[16];", "mov.u64 own_local, stack;"]
    if space == "shared":
        lines.append(f".shared .align 16 .b8 tile[{16 * THREADS}];")
    whole = "index" if space in ("global", "generic") else "thread"
    first = "tile" if space == "shared" else f"{one.name}_global"
    lines += [f"mov.u64 place, {first};", *(["cvta.global.u64 place, place;"] if space == "generic" else [])]
    for name, number in zip(names, ("thread", "thread ^ 1", "thread & 7"), strict=True):
        operation, _, mask = number.removeprefix("thread").strip().partition(" ")
        word = {"^": "xor", "&": "and", "": ""}[operation]
        lines.append(f"{word}.b32 other, thread, {mask};" if word else "mov.u32 other, thread;")
        if whole == "index":
            lines.append(f"mad.lo.u32 other, block, {THREADS}, other;")
        lines.append(f"mad.wide.u32 {name}, other, 16, place;")
    return lines


def register(kind: str) -> str:
    """Return the type of a register for values of this kind."""
    return "pred" if kind == "pred" else f"b{width(kind)}"


def _operand_loads(one: Application) -> Iterator[str]:
    for number, kind in enumerate(one.kinds):
        yield f".reg .{register(kind)} x{number};"
        place = f"[inputs+{8 * one.count * number}]"
        if kind == "pred":
            yield f".reg .b32 w{number};"
            yield f"ld.global.b32 w{number}, {place};"
            yield f"setp.ne.u32 x{number}, w{number}, 0;"
        else:
            yield f"ld.global.b{width(kind)} x{number}, {place};"


def _result_store(name: str, spare: str, kind: str, distance: int) -> Iterator[str]:
    place = f"[outputs+{distance}]"
    if kind == "pred":
        spare = f"{spare}{name.rpartition('_')[2]}"
        yield f".reg .b32 {spare};"
        yield f"selp.b32 {spare}, 1, 0, {name};"
        yield f"st.global.b32 {place}, {spare};"
    else:
        yield f"st.global.b{width(kind)} {place}, {name};"


# -- running ---------------------------------------------------------------------------------------------------------------------


def run(one: Application, loaded: LoadedModule, target: Target) -> list[list[Bits]]:
    """Return the results of each form: a list of arrays of bits for each."""
    operands = one.operands() or [np.zeros(1, np.uint64)]
    together = np.stack(operands[:2], axis=1).reshape(2, -1) if _reads_operands(one) else []
    inputs = target.array(np.stack([*operands, *together]))
    planes = sum(len(case.results) for case in one.cases)
    outputs = target.zeros((planes, one.count), np.uint64)
    loaded[one.name][one.count // THREADS, THREADS](inputs, outputs)
    found = iter(outputs.numpy())
    return [[next(found) for _ in case.results] for case in one.cases]


def without(one: Application, numbers: set[int]) -> Application:
    """Return the kernel without some of its forms."""
    return replace(one, cases=tuple(case for number, case in enumerate(one.cases) if number not in numbers))


def refused_forms(text: str, failure: CompileError) -> dict[int, str]:
    """Return the forms of a module of one kernel that the assembler refuses, with its words."""
    lines = text.split("\n")
    found: dict[int, str] = {}
    for place in _REFUSAL.finditer(failure.log):
        owner = next((number for line in reversed(lines[: int(place[1])]) if (number := form_number(line)) is not None), None)
        if owner is not None:
            found.setdefault(owner, place[2])
    return found


def owners(function: Function) -> list[int | None]:
    """Return the form of each instruction of a kernel: the form whose registers were declared last; None for the set-up."""
    assert function.body is not None
    found: list[int | None] = []
    current = None
    for statement in function.body.statements:
        if isinstance(statement, RegisterDecl):
            number = form_number(statement.name)
            current = current if number is None else number
        elif isinstance(statement, Instruction):
            found.append(current)
    return found
