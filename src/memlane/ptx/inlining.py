"""Inline device functions that access memory into the kernels that call them.

Valid module in, valid module out, and the kernels compute the same.

    .func (.param .b32 back) f(.param .b64 at) {      .reg .b64 %arg0_0;  .reg .b32 %arg1_0;
      ld.param.u64 %rd1, [at];                        mov.b64 %arg0_0, %rd1;
      ld.global.u32 %r1, [%rd1];                      {
      st.param.b32 [back], %r1;                         mov.b64 %rd1, %arg0_0;
      ret;                                              ld.global.u32 %r1, [%rd1];
    }                                             ->    mov.b32 %arg1_0, %r1;
    ...                                               $arg2_back:
    st.param.b64 [a], %rd1;                           }
    call (b), f, (a);                                 mov.b32 %r1, %arg1_0;
    ld.param.b32 %r1, [b];

Every call gets a copy of its own, with its own registers, labels and local arrays (`embedding`). The copy keeps the lines of the function,
and the line table says where it was inlined. A function that makes no access is still called, because inlining it would gain nothing. So
are those that cannot be inlined, with the reason. A second run changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from memlane.ptx.access import memory_accesses
from memlane.ptx.calls import addressed_functions, called_name
from memlane.ptx.demangle import demangle
from memlane.ptx.embedding import Body, Embedding, Names, Origin, passed_by
from memlane.ptx.ir import (
    Block,
    Directive,
    Function,
    Immediate,
    Instruction,
    Item,
    Label,
    Module,
    Register,
    RegisterDecl,
    Sink,
    Statement,
    Symbol,
    Variable,
)
from memlane.ptx.lexer import NAME
from memlane.ptx.location import file_of
from memlane.ptx.once import once_for_each
from memlane.ptx.parameter_registers import can_use_registers
from memlane.ptx.parameters import items_of, parameter_accesses
from memlane.ptx.registers import Scope, names_in
from memlane.ptx.scopes import flatten_scopes, outer_names
from memlane.ptx.static_variables import hoist_shared_variables
from memlane.walks import reachable

MOST_INSTRUCTIONS = 4096
"""Upper bound of the instructions of a kernel into which functions are inlined."""


@dataclass(frozen=True)
class Inlined:
    """A module with device functions inlined into its kernels."""

    module: Module
    """The module itself if nothing was inlined."""
    origins: Mapping[str, tuple[Origin, ...]]
    """Origin of each instruction of the changed kernels, by PTX name of the kernel."""
    left: Mapping[str, str]
    """Reason why a function with accesses is still called, by its PTX name."""

    def origin(self, kernel: str, instruction: int) -> Origin:
        """Return the origin of an instruction of a kernel, by its index."""
        return self.origins[kernel][instruction] if kernel in self.origins else Origin(kernel, instruction)


@once_for_each
def inline_calls(module: Module) -> Inlined:
    """Return the module with the functions that access memory inlined where possible."""
    if not any(one.form.effect == "call" for kernel in module.kernels.values() for one in kernel.instructions()):
        return Inlined(module, {}, {})
    inliner = _Inliner(hoist_shared_variables(module))
    try:
        found = inliner.inlined()
    except RecursionError:
        return Inlined(module, {}, inliner.not_inlined("it is called through hundreds of functions"))
    return found if found.origins else replace(found, module=module)


class _Inliner:
    def __init__(self, module: Module) -> None:
        self._module = module
        functions = module.functions.values()
        self._calls = {one.name: {called_name(call) for call in one.instructions() if call.form.effect == "call"} for one in functions}
        self._accessing = {one.name for one in functions if any(map(_accesses_memory, one.instructions()))}
        self._names = Names(_free_stem(module))
        self._bodies: dict[str, Body] = {}
        self._left: dict[str, str] = {}
        self._obstacles: dict[str, str] = {}
        self._captures: dict[tuple[str, str], str] = {}
        self._accessing_with_callees: dict[str, bool] = {}
        self._taken: set[str] = set()

    def inlined(self) -> Inlined:
        """Return the module with inlined functions, the origins, and the reasons for those left out."""
        bodies = {name: self._body(kernel) for name, kernel in self._module.kernels.items()}
        changed = {name: body for name, body in bodies.items() if any(one.calls for _, origins in body.lines for one in origins)}
        if not changed:
            return Inlined(self._module, {}, self._left)
        kernels = {name: replace(body.function, body=Block(body.statements)) for name, body in changed.items()}
        removed = self._unreferenced(kernels)
        items: list[Item] = []
        for item in self._module.items:
            if not isinstance(item, Function):
                items.append(item)
            elif item.name not in removed:
                items.append(kernels.get(item.name, item) if item.body is not None else item)
        items = _in_declaration_order(items, changed)
        origins = {name: tuple(one for _, origins in body.lines for one in origins) for name, body in changed.items()}
        return Inlined(replace(self._module, items=_with_strings(items, self._names.strings)), origins, self._left)

    def not_inlined(self, reason: str) -> Mapping[str, str]:
        """Return `reason` for each function with accesses, none of which is inlined."""
        return dict.fromkeys((name for name in self._accessing if name not in self._module.kernels), reason)

    def _body(self, function: Function) -> Body:
        """Return a function with its callees inlined."""
        if function.name not in self._bodies:
            body = _flat(function)
            chosen = self._chosen(body)
            self._taken |= {callee.function.name for callee in chosen.values()}
            self._bodies[function.name] = Embedding(body, chosen, self._names).embedded() if chosen else body
        return self._bodies[function.name]

    # -- which calls -----------------------------------------------------------------------------------------------------------------

    def _chosen(self, body: Body) -> dict[int, Body]:
        """Return the bodies to be inlined into a function, by place among its lines."""
        size, chosen, staying = body.size, dict[int, Body](), set[str]()
        operands = _CallOperands(body)
        for place, (call, _) in enumerate(body.lines):
            if not isinstance(call, Instruction) or call.form.effect != "call":
                continue
            name = called_name(call)
            callee = self._module.functions.get(name or "")
            reason = self._obstacle(operands, call, callee) if callee is not None and self._may_access_memory(callee.name) else None
            if callee is None or reason is None:
                staying |= _passed_names(call)
            elif reason or size + self._body(callee).size > MOST_INSTRUCTIONS:
                self._left.setdefault(callee.name, reason or f"the kernel would have more than {MOST_INSTRUCTIONS:,} instructions")
                staying |= _passed_names(call)
            else:
                chosen[place] = self._body(callee)
                size += self._body(callee).size
        return self._without_shared(body, chosen, staying)

    def _without_shared(self, body: Body, chosen: dict[int, Body], staying: set[str]) -> dict[int, Body]:
        """Return the chosen calls that share no parameter with a call that stays: such a parameter must stay a variable."""
        while shared := [place for place in chosen if staying & _passed_names(body.lines[place][0])]:
            for place in shared:
                self._left.setdefault(chosen.pop(place).function.name, "its call shares a parameter with a call that is not inlined")
                staying |= _passed_names(body.lines[place][0])
        return chosen

    def _may_access_memory(self, name: str) -> bool:
        """Return whether a function or one of its callees accesses memory."""
        if name not in self._accessing_with_callees:
            self._accessing_with_callees[name] = not self._accessing.isdisjoint({name, *self._reached(name)})
        return self._accessing_with_callees[name]

    def _reached(self, name: str) -> set[str]:
        """Return the functions that `name` calls by name, directly or through others."""

        def named(function: str) -> list[str]:
            return [one for one in self._calls.get(function, ()) if one is not None]

        return reachable(named(name), named)

    def _obstacle(self, operands: _CallOperands, call: Instruction, callee: Function) -> str:
        """Return why a function cannot be inlined at a call; empty if it can."""
        if callee.name not in self._obstacles:
            self._obstacles[callee.name] = "it calls itself" if callee.name in self._reached(callee.name) else _function_obstacle(callee)
        obstacle = self._obstacles[callee.name] or operands.obstacle(call, callee)
        pair = operands.body.function.name, callee.name
        if not obstacle and pair not in self._captures:
            self._captures[pair] = self._capture(operands.body, self._body(callee))
        return obstacle or self._captures[pair]

    @staticmethod
    def _capture(body: Body, callee: Body) -> str:
        """Return why a name of the module that the callee uses would be captured by the caller, or an empty string."""
        own = {one.name for one in (*callee.function.params, *callee.function.results)}
        scope = Scope.of(callee.statements)
        named = {one.name for one in callee.statements if isinstance(one, Variable | Label)}
        free = {name for name in outer_names(callee.statements) if name not in own | named and not scope.declares(name)}
        theirs = Scope.of(body.statements)
        declared = {one.name for one in (*body.statements, *body.function.params) if isinstance(one, Variable | Label)}
        captured = sorted(name for name in free if name in declared or theirs.declares(name))
        return f"its {_display_name(captured[0])} has a different meaning in {body.function.title}" if captured else ""

    # -- what stays ------------------------------------------------------------------------------------------------------------------

    def _unreferenced(self, kernels: Mapping[str, Function]) -> set[str]:
        """Return the functions that were inlined and are no longer referenced."""
        if addressed_functions(self._module):
            return set()  # The addresses of functions depend on the functions next to them.
        texts = " ".join(item.text for item in self._module.items if isinstance(item, Directive) and file_of(item.text) is None)
        words = set(NAME.findall(texts))
        removed = {name for name in self._taken if words.isdisjoint(_labels_of(self._module.functions[name]))}
        removed = {name for name in removed if "visible" not in self._module.functions[name].linkage}
        while True:
            staying = [kernels.get(name, one) for name, one in self._module.functions.items() if name not in removed]
            called = {called_name(call) for one in staying for call in one.instructions() if call.form.effect == "call"}
            if removed.isdisjoint(called):
                return removed
            removed = {name for name in removed if name not in called}


def _flat(function: Function) -> Body:
    flat = flatten_scopes(function)
    assert flat.body is not None
    lines: list[tuple[Statement, tuple[Origin, ...]]] = []
    number = 0
    for statement in flat.body.statements:
        lines.append((statement, (Origin(function.name, number),) if isinstance(statement, Instruction) else ()))
        number += isinstance(statement, Instruction)
    return Body(flat, tuple(lines))


def _accesses_memory(one: Instruction) -> bool:
    """Return whether an instruction accesses memory other than parameters, or waits for such accesses."""
    return one.opcode in ("cp", "wgmma") or any(access.space != "param" for access in memory_accesses(one))


def _passed_names(call: Statement) -> set[str]:
    assert isinstance(call, Instruction)
    return {one.name for letter in ("result", "arguments") for one in items_of(call, letter) if isinstance(one, Symbol)}


def _display_name(name: str) -> str:
    """Return a name as the programmer wrote it.

    A parameter, whose PTX name is only the function's with a number, is given by its position from 1.
    """
    parameter = re.fullmatch(r".+_param_(\d+)", name)
    return f"parameter {int(parameter[1]) + 1}" if parameter else demangle(name)


def _function_obstacle(callee: Function) -> str:
    """Return why a function cannot be inlined anywhere; empty if it can."""
    body = _flat(callee)
    formals = {one.name for one in (*callee.params, *callee.results) if one.space == "param"}
    for statement in body.statements:
        if isinstance(statement, Variable) and statement.space not in ("param", "local"):
            return f"it has {_display_name(statement.name)} in {statement.space} memory, which all its calls share"
        if not isinstance(statement, Instruction):
            continue
        if statement.opcode == "alloca":
            return "it allocates memory on the stack"
        if odd := [name for name in _impossible_uses(statement) if name in formals]:
            return f"it does more with {_display_name(odd[0])} than load or store it"
    return ""


def _impossible_uses(one: Instruction) -> list[str]:
    """Return the names that an instruction uses in a way that is impossible for registers."""
    if any(True for _ in parameter_accesses(one)):
        return [] if can_use_registers(one) else [name for name, *_ in parameter_accesses(one)]
    return [name for operand in one.operands for name in names_in(operand)]


class _CallOperands:
    """The variables that a function passes to its callees."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self._variables = {one.name: one for one in body.statements if isinstance(one, Variable) and one.space == "param"}
        self._odd: dict[str, int] = {}
        """Names used in a way that is impossible for registers, each with the number of such names found before it."""
        for one in body.statements:
            if isinstance(one, Instruction) and one.form.effect != "call":
                for name in _impossible_uses(one):
                    self._odd.setdefault(name, len(self._odd))

    def obstacle(self, call: Instruction, callee: Function) -> str:
        """Return why the operands of a call cannot become registers; empty if they can."""
        if any(
            len(items_of(call, letter)) != len(formals) for letter, formals in (("result", callee.results), ("arguments", callee.params))
        ):
            return "a call passes it a different number of arguments"
        for formal, actual in passed_by(call, callee):
            if isinstance(actual, Symbol):
                known = self._variables.get(actual.name)
                if actual.offset or known is None or known.nbytes != formal.nbytes:
                    return f"a call passes {_display_name(actual.name)} for its {_display_name(formal.name)}"
            elif formal.shape is not None or not isinstance(actual, Register | Immediate | Sink):
                return f"a call passes no variable for its {_display_name(formal.name)}"
        odd = [name for name in _passed_names(call) if name in self._odd]
        return f"a call does more with {_display_name(min(odd, key=self._odd.__getitem__))} than pass it" if odd else ""


def _in_declaration_order(items: list[Item], changed: Iterable[str]) -> list[Item]:
    """Return the items of a module with each changed kernel moved behind the items that it now names.

    PTX knows only names declared in front of their use.
    """
    for kernel in changed:
        place, body = next((at, one.body) for at, one in enumerate(items) if isinstance(one, Function) and one.name == kernel and one.body)
        used = {name for one in body.instructions() for operand in one.operands for name in names_in(operand)}
        known = {one.name for one in items[:place] if not isinstance(one, Directive)}
        later = [at for at, one in enumerate(items) if at > place and not isinstance(one, Directive) and one.name in used - known]
        if later:
            items = [*items[:place], *items[place + 1 : later[-1] + 1], items[place], *items[later[-1] + 1 :]]
    return items


def _labels_of(function: Function) -> set[str]:
    """Return the names by which debug sections may refer to a function."""
    assert function.body is not None
    return {function.name, *(one.name for one in function.body.statements if isinstance(one, Label))}


def _free_stem(module: Module) -> str:
    """Return `arg`, `arg_`, ...: the first with which no name of the module begins, its `%` or `$` ignored."""
    bodies = (one.body for one in module.functions.values() if one.body is not None)
    statements = (one for body in bodies for one in body.walk())
    taken = {one.name.lstrip("%$") for one in statements if isinstance(one, RegisterDecl | Variable | Label)}
    stem = "arg"
    while any(name.startswith(stem) for name in taken):
        stem += "_"
    return stem


def _with_strings(items: list[Item], strings: Mapping[str, str]) -> tuple[Item, ...]:
    """Return the items of a module with the names of functions added to the strings of its line table."""
    used = " ".join(
        one.text
        for item in items
        if isinstance(item, Function) and item.body is not None
        for one in item.body.walk()
        if isinstance(one, Directive) and "inlined_at" in one.text
    )
    wanted = {label: function for function, label in strings.items() if re.search(rf"{re.escape(label)}\b", used)}
    if not wanted:
        return tuple(items)
    text = "".join(f"{label}:\n.b8 {','.join(map(str, function.encode()))},0\n" for label, function in wanted.items())
    for place, item in enumerate(items):
        if isinstance(item, Directive) and re.match(r"\.section\s+\.debug_str\b", item.text):
            head, brace, rest = item.text.rpartition("}")
            return (*items[:place], Directive(f"{head.rstrip()}\n{text}{brace}{rest}"), *items[place + 1 :])
    return (*items, Directive(f".section\t.debug_str\n{{\n{text}}}"))
