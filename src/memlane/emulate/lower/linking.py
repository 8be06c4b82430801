"""Links a kernel and the functions that it calls into one body.

Each function appears once, so lanes that called it from different places run it together. It precedes its callers, so that lanes that did
not call wait for the others after the call. `calls` says what a call does.

Instructions keep their indices in their own function; those of the called functions, in the order of the module, follow the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from memlane.emulate.lower.body import Body, LiveOut, Segment, Step, flatten
from memlane.emulate.lower.call_registers import (
    allocates,
    completed,
    with_call_registers,
    with_registers,
    with_stack_register,
    without_callee_registers,
)
from memlane.emulate.lower.calls import STACK, Call, Return, Target
from memlane.emulate.lower.linked_function import LinkedFunction, fits_signature
from memlane.emulate.lower.parameters import Parameters
from memlane.emulate.lower.variables import function_addresses, lay_out_locals
from memlane.errors import PtxTypeError, UnsupportedPtx
from memlane.ptx import (
    CARRY,
    Address,
    Function,
    Instruction,
    Module,
    Operand,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
    addressed_functions,
    called_functions,
    called_name,
    instruction,
    rename_instruction,
)
from memlane.ptx.calls import callees
from memlane.ptx.parameters import Unit, items_of, parameter_accesses
from memlane.walks import Reachability, post_order, reachable


def link(module: Module, kernel: Function, services: Iterable[str], *, stop_at_memory: bool) -> tuple[Body, tuple[Instruction, ...]]:
    """Return the body of a kernel with all functions that it calls, and its instructions by index. `services` are functions without a body
    that the emulator provides."""
    own = tuple(kernel.instructions())
    if not any(one.form.effect == "call" for one in own) and not allocates(kernel):
        return flatten(kernel, stop_at_memory=stop_at_memory), own
    return _Linker(module, kernel, frozenset(services), stop_at_memory).link()


def linked_instructions(module: Module, kernel: Function) -> tuple[Instruction, ...]:
    """Return only the instructions by index, numbered as `link` numbers them."""
    own = tuple(kernel.instructions())
    if not any(one.form.effect == "call" for one in own):
        return own
    return own + tuple(one for function in called_functions(module, kernel) for one in completed(function).instructions())


def refuse_objects(module: Module) -> None:
    """Raise `UnsupportedPtx` for a module that calls assembled code."""
    if module.objects:
        files = ", ".join(name for name, _ in module.objects)
        raise UnsupportedPtx(
            f"{files}: assembled code runs only on a GPU, not on the emulator; link the .cu or .ptx file that it was made from"
        )


class _Linker:
    def __init__(self, module: Module, kernel: Function, services: frozenset[str], stop_at_memory: bool) -> None:
        self._module, self._services = module, services
        functions = (kernel, *called_functions(module, kernel))
        polling = _polling(module, functions)
        self._functions: dict[str, LinkedFunction] = {}
        self._instructions: list[Instruction] = []
        for function in functions:
            whole = function if function is kernel else completed(function)
            assert whole.body is not None
            body = flatten(whole, stop_at_memory=stop_at_memory, polling=polling)
            self._functions[function.name] = LinkedFunction(whole, body, len(self._instructions), function is kernel)
            self._instructions += whole.body.instructions()
        self._kernel = self._functions[kernel.name]
        self._parameters = Parameters()
        self._registers: dict[str, str] = {STACK: "b64"}
        self._addresses = function_addresses(module)

    def link(self) -> tuple[Body, tuple[Instruction, ...]]:
        """Return the linked body, and the instructions by index."""
        for linked in self._functions.values():
            self._read(linked)
        self._find_recursion()
        resolved = {linked.name: self._resolve(linked) for linked in self._functions.values()}
        segments = self._merge(resolved)
        variables = [
            replace(one, name=linked.rename(one.name))
            for linked in self._functions.values()
            for one in linked.body.variables
            if one.space != "param" and one.name not in linked.frame
        ]
        for linked in self._functions.values():
            self._registers.update({linked.rename(name): kind for name, kind in linked.body.registers.items()})
        return Body(segments, self._registers, tuple(variables)), tuple(self._instructions)

    # -- what functions do with parameters, and whom they call -------------------------------------------------------------------

    def _read(self, linked: LinkedFunction) -> None:
        for step in _steps(linked.body):
            one = step.instruction
            if one.form.effect == "call" and not step.resumes:
                self._read_call(linked, one)
            for name, offset, nbytes, count in parameter_accesses(one):
                if name in linked.parameters:
                    for number in range(count):
                        self._parameters.access((linked.name, name), offset + number * nbytes, nbytes)
        for name, variable in linked.parameters.items():
            if variable.space == "reg":
                self._parameters.access((linked.name, name), 0, variable.nbytes)

    def _read_call(self, linked: LinkedFunction, call: Instruction) -> None:
        for target in self._targets(linked, call):
            linked.callees.add(target.name)
            formals = (*target.function.results, *target.function.params)
            for formal, actual in zip(formals, (*items_of(call, "result"), *items_of(call, "arguments")), strict=True):
                if isinstance(actual, Symbol):
                    self._parameters.bind((linked.name, actual.name), (target.name, formal.name))
        for actual in items_of(call, "arguments"):
            if isinstance(actual, Symbol) and actual.name not in linked.parameters:
                raise UnsupportedPtx(f"the emulator does not model {actual.name} as the argument of a call", call.span)

    def _targets(self, linked: LinkedFunction, call: Instruction) -> list[LinkedFunction]:
        """Return the functions with a body that a call may reach. Raises PtxTypeError if the call does not match the function that it
        names."""
        name = called_name(call)
        if name in self._services:
            return []
        if name is not None:
            if name not in self._functions or self._functions[name].is_kernel:
                raise UnsupportedPtx(f"the emulator does not model {name}, a function without a body: {_REMEDY}", call.span)
            target = self._functions[name]
            if not fits_signature(linked, call, target.function):
                raise PtxTypeError(f"the arguments or results of this call do not match those of {name}", call.span)
            return [target]
        found = (self._functions[one.name] for one in addressed_functions(self._module))
        return [target for target in found if fits_signature(linked, call, target.function)]

    def _find_recursion(self) -> None:
        paths = Reachability(self._functions, lambda name: self._functions[name].callees)
        for name, linked in self._functions.items():
            if paths.is_on_cycle(name):
                linked.recursive = paths.component(name)
                linked.frame, linked.frame_bytes = lay_out_locals(linked.body.variables)

    # -- instructions --------------------------------------------------------------------------------------------------------------

    def _units(self, linked: LinkedFunction, name: str) -> list[tuple[Unit, str]]:
        """Return the pieces of a parameter, each with its register."""
        variable = linked.parameters[name]
        if variable.space == "reg":
            register = linked.rename(name)
            self._registers[register] = variable.type
            return [((0, variable.nbytes), register)]
        units = self._parameters.units((linked.name, name))
        found = [(unit, f"{linked.name}::{name}+{unit[0]}") for unit in units]
        self._registers.update({register: f"b{8 * nbytes}" for (_, nbytes), register in found})
        return found

    def _resolve(self, linked: LinkedFunction) -> list[Segment]:
        """Return the segments of a function, with parameters as registers and its calls and returns resolved."""
        segments = [
            replace(segment, steps=tuple(self._resolve_step(linked, step) for step in segment.steps)) for segment in linked.body.segments
        ]
        if not linked.recursive:
            return segments
        # A function that may be entered again keeps the registers that are live across a call on the stack.
        alone = [replace(segment, steps=tuple(without_callee_registers(step) for step in segment.steps)) for segment in segments]
        live = LiveOut(alone)
        needed = {segment.steps[-1].index: live.at_end(number) for number, segment in enumerate(alone) if _call_at_the_end(segment)}
        return [
            replace(
                segment,
                steps=tuple(self._with_saved_registers(linked, step, needed.get(step.index, frozenset())) for step in segment.steps),
            )
            for segment in segments
        ]

    def _with_saved_registers(self, linked: LinkedFunction, step: Step, needed: frozenset[str]) -> Step:
        link = step.link
        if not isinstance(link, Call) or linked.recursive.isdisjoint(target.name for target in link.targets):
            return step
        results = {register for target in link.targets for register, _ in target.results}
        link = replace(link, saved=tuple(sorted(needed - results - {STACK, CARRY})))
        return with_call_registers(step, link)

    def _resolve_step(self, linked: LinkedFunction, step: Step) -> Step:
        one = step.instruction
        guard = None if one.guard is None else replace(one.guard, register=linked.rename(one.guard.register))
        if one.form.effect == "call":
            return with_call_registers(replace(step, instruction=replace(one, guard=guard)), self._call(linked, one))
        if one.form.effect == "return" and not linked.is_kernel:
            results = [register for variable in linked.function.results for _, register in self._units(linked, variable.name)]
            self._registers[linked.return_register] = "b32"
            stack = [STACK] if linked.frame_bytes else []
            ended = with_registers(replace(one, guard=guard), stack, [linked.return_register, *results, *stack])
            return replace(step, instruction=ended, link=Return(linked.return_register, linked.frame_bytes))
        for name, offset, nbytes, count in parameter_accesses(one):
            if name in linked.parameters:
                one = self._resolve_parameter(linked, one, name, (offset, nbytes * count))
        if linked.frame:
            one = self._with_frame(linked, one)
        return replace(step, instruction=with_stack_register(rename_instruction(one, linked.rename)))

    def _resolve_parameter(self, linked: LinkedFunction, one: Instruction, name: str, span: Unit) -> Instruction:
        """Replace the address of a load or store of a parameter by the registers of the accessed pieces."""
        start, nbytes = span
        if start < 0 or start + nbytes > linked.parameters[name].nbytes:
            raise PtxTypeError(f"{one.name} goes beyond the parameter {name}", one.span)
        registers = [Register(register) for (offset, _), register in self._units(linked, name) if start <= offset < start + nbytes]
        position = one.form.operands["a"]
        operands = (*one.operands[:position], Vector(tuple(registers)), *one.operands[position + 1 :])
        form = replace(one.form, writes=one.form.writes | ({"a"} if one.form.effect == "store" else set()))
        return replace(one, operands=operands, form=form)

    def _with_frame(self, linked: LinkedFunction, one: Instruction) -> Instruction:
        """Rewrite an instruction of a recursive function to address its local variables on the stack."""
        register = Register(linked.frame_register)
        self._registers[register.name] = "b64"
        operands: list[Operand] = []
        for operand in one.operands:
            match operand:
                case Address(base=Symbol(name=name, offset=more), offset=offset) if name in linked.frame:
                    operands.append(Address(register, linked.frame[name] + more + offset))
                case Symbol(name=name, offset=more) if name in linked.frame:
                    if one.opcode != "mov":
                        raise UnsupportedPtx(
                            f"the emulator does not model {one.name} of a local variable of a recursive function", one.span
                        )
                    sum_ = instruction(f"add.u64 %d, %a, {linked.frame[name] + more};", one.guard, one.location)
                    return replace(sum_, operands=(one.operands[0], register, sum_.operands[2]), span=one.span)
                case _:
                    operands.append(operand)
        return replace(one, operands=tuple(operands))

    def _call(self, linked: LinkedFunction, call: Instruction) -> Call:
        arguments, results = items_of(call, "arguments"), items_of(call, "result")
        name = called_name(call)
        if name in self._services:
            passed = tuple(tuple(operand for _, operand in self._passed(linked, actual, None)) for actual in arguments)
            given = [register for actual in results for register in self._received(linked, actual, None)]
            return Call((), service=name or "", arguments=passed, results=tuple(given))
        targets = []
        for target in self._targets(linked, call):
            formals = (target.function.params, target.function.results)
            moves = [
                (register, operand)
                for formal, actual in zip(formals[0], arguments, strict=True)
                for register, operand in self._passed(linked, actual, (target, formal))
            ]
            received = [
                pair
                for formal, actual in zip(formals[1], results, strict=True)
                for pair in zip(self._received(linked, actual, (target, formal)), self._registers_of(target, formal), strict=True)
            ]
            self._registers[target.return_register] = "b32"
            if target.frame_bytes:
                self._registers[target.frame_register] = "b64"
            address = self._addresses[target.name]
            targets.append(
                Target(
                    target.name, address, tuple(moves), tuple(received), target.return_register, target.frame_register, target.frame_bytes
                )
            )
        pointer = None if name is not None else rename_instruction(call, linked.rename).operand("function")
        return Call(tuple(targets), pointer)

    def _registers_of(self, linked: LinkedFunction, variable: Variable) -> list[str]:
        return [register for _, register in self._units(linked, variable.name)]

    def _passed(self, linked: LinkedFunction, actual: Operand, formal: tuple[LinkedFunction, Variable] | None) -> list[tuple[str, Operand]]:
        """Return the registers of a parameter, each with the operand copied from the argument."""
        sources: list[Operand]
        if isinstance(actual, Symbol):
            sources = [Register(register) for _, register in self._units(linked, actual.name)]
        else:
            sources = [Register(linked.rename(actual.name)) if isinstance(actual, Register) else actual]
        targets = ["" for _ in sources] if formal is None else self._registers_of(*formal)
        if targets and len(targets) != len(sources):
            raise UnsupportedPtx(f"the emulator does not model how {linked.name} passes {actual}")
        return list(zip(targets, sources, strict=False))

    def _received(self, linked: LinkedFunction, actual: Operand, formal: tuple[LinkedFunction, Variable] | None) -> list[str]:
        """Return the caller's registers that receive a result; for a discarded result, registers that nothing reads."""
        if isinstance(actual, Symbol):
            return [register for _, register in self._units(linked, actual.name)]
        if isinstance(actual, Sink) and formal is not None:
            unread = {f"{linked.name}::_{register}": self._registers[register] for register in self._registers_of(*formal)}
            self._registers.update(unread)
            return list(unread)
        return [linked.rename(actual.name)] if isinstance(actual, Register) else []

    # -- segments --------------------------------------------------------------------------------------------------------------------

    def _merge(self, resolved: dict[str, list[Segment]]) -> tuple[Segment, ...]:
        """Return all segments under one numbering, callees before callers. A warp begins at segment 0, which leads to the kernel."""
        order = post_order([self._kernel.name], lambda name: sorted(self._functions[name].callees))
        number = 1
        for name in order:
            self._functions[name].first_segment = number
            number += len(resolved[name])
        begin = instruction("mov.u64 %d, a;")
        begin = replace(begin, operands=(Register(STACK), Symbol(STACK)))
        has_stack = any(linked.recursive or allocates(linked.function) for linked in self._functions.values())
        steps = (Step(0, begin, resumes=True),) if has_stack else ()
        return_points: dict[str, list[int]] = {name: [] for name in order}
        renumbered = [
            (name, self._renumbered(self._functions[name], segment, resolved[name], return_points))
            for name in order
            for segment in resolved[name]
        ]
        return (
            Segment(0, steps, (self._kernel.first_segment,)),
            *(replace(segment, returns=tuple(return_points[name])) if _returns(segment) else segment for name, segment in renumbered),
        )

    def _renumbered(self, linked: LinkedFunction, segment: Segment, own: Sequence[Segment], return_points: dict[str, list[int]]) -> Segment:
        """Return a segment with its final numbers. Appends to `at_end` the segments where called functions may return to."""
        base = linked.first_segment
        steps = tuple(replace(step, index=linked.first_index + step.index) for step in segment.steps)
        successors = tuple(base + goal for goal in segment.successors)
        call = _call_at_the_end(segment)
        if call is not None and not call.service:
            last = steps[-1]
            targets = tuple(replace(target, entry=self._functions[target.name].first_segment) for target in call.targets)
            steps = (*steps[:-1], replace(last, link=replace(call, targets=targets, resume=successors[0])))
            for target in targets:
                return_points[target.name].append(successors[0])
            otherwise = tuple(base + goal for goal in own[segment.successors[0]].successors)
            pointer_only = (successors[0],) if not targets else ()
            successors = (*(target.entry for target in targets), *pointer_only)
            if last.instruction.guard is not None:
                successors = (*successors, *otherwise)
        return Segment(base + segment.number, steps, successors, segment.polls, segment.polls_blocks)


_REMEDY = "link the file that defines it: memlane.link(...), or --link FILE on the command line"
"""The remedy for a function that is declared but not defined."""


def _steps(body: Body) -> Iterator[Step]:
    for segment in body.segments:
        yield from segment.steps


def _returns(segment: Segment) -> bool:
    return bool(segment.steps) and isinstance(segment.steps[-1].link, Return)


def _call_at_the_end(segment: Segment) -> Call | None:
    last = segment.steps[-1] if segment.steps else None
    return last.link if last is not None and isinstance(last.link, Call) and not last.resumes else None


def _polling(module: Module, functions: Sequence[Function]) -> frozenset[str | None]:
    """Return the functions that read memory that other threads may just have written, directly or through calls. None is among them if one
    is called through a pointer."""

    def polls(function: Function) -> bool:
        words = ("volatile", "relaxed", "acquire", "mmio")
        return any(
            one.form.effect == "atomic" or (one.form.effect == "load" and any(one.has(word) for word in words))
            for one in function.instructions()
        )

    callers: dict[str, list[str]] = {one.name: [] for one in functions}
    for one in functions:
        for callee in callees(module, one):
            callers[callee].append(one.name)
    found = reachable([one.name for one in functions if polls(one)], callers.__getitem__)
    by_pointer = not found.isdisjoint(one.name for one in addressed_functions(module))
    return frozenset({*found, None} if by_pointer else found)
