"""A kernel and the functions that it calls, made one body.

Every function is there once, whoever calls it: lanes that called it from different places run it together. It lies before those who call
it, so that lanes that did not call wait for the others behind the call. `calls` says what a call does.

Instructions keep their indices in their own function; those of the called functions, in the order of the module, follow the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from memlane.emulate.lower.body import Body, LiveOut, Place, Step, flatten
from memlane.emulate.lower.calls import STACK, Call, Return, Target
from memlane.emulate.lower.parameters import Parameters
from memlane.emulate.lower.part import Part, fits
from memlane.emulate.lower.variables import function_addresses, lay_out_locals
from memlane.emulate.lower.wiring import of_this_activation, wired_call, with_registers
from memlane.errors import PtxTypeError, UnsupportedPtx
from memlane.ptx import (
    CARRY,
    Address,
    Block,
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
    """The body of a kernel with all that it calls, and its instructions by index. `services` are functions without a body that the
    emulator provides."""
    own = tuple(kernel.instructions())
    if not any(one.form.effect == "call" for one in own):
        return flatten(kernel, stop_at_memory=stop_at_memory), own
    return _Linker(module, kernel, frozenset(services), stop_at_memory).link()


def linked_instructions(module: Module, kernel: Function) -> tuple[Instruction, ...]:
    """The instructions by index alone, as `link` numbers them."""
    own = tuple(kernel.instructions())
    if not any(one.form.effect == "call" for one in own):
        return own
    return own + tuple(one for function in called_functions(module, kernel) for one in _with_return(function).instructions())


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
        self._parts: dict[str, Part] = {}
        self._instructions: list[Instruction] = []
        for function in functions:
            whole = function if function is kernel else _with_return(function)
            assert whole.body is not None
            body = flatten(whole, stop_at_memory=stop_at_memory, polling=polling)
            self._parts[function.name] = Part(whole, body, len(self._instructions), function is kernel)
            self._instructions += whole.body.instructions()
        self._kernel = self._parts[kernel.name]
        self._parameters = Parameters()
        self._registers: dict[str, str] = {STACK: "b64"}
        self._addresses = function_addresses(module)

    def link(self) -> tuple[Body, tuple[Instruction, ...]]:
        """All of it."""
        for part in self._parts.values():
            self._read(part)
        self._find_circles()
        wired = {part.name: self._wired(part) for part in self._parts.values()}
        places = self._merged(wired)
        variables = [
            replace(one, name=part.rename(one.name))
            for part in self._parts.values()
            for one in part.body.variables
            if one.space != "param" and one.name not in part.frame
        ]
        for part in self._parts.values():
            self._registers.update({part.rename(name): kind for name, kind in part.body.registers.items()})
        return Body(places, self._registers, tuple(variables)), tuple(self._instructions)

    # -- what functions do with parameters, and whom they call -------------------------------------------------------------------

    def _read(self, part: Part) -> None:
        for step in _steps(part.body):
            one = step.instruction
            if one.form.effect == "call" and not step.resumes:
                self._read_call(part, one)
            for name, offset, nbytes, count in parameter_accesses(one):
                if name in part.parameters:
                    for number in range(count):
                        self._parameters.access((part.name, name), offset + number * nbytes, nbytes)
        for name, variable in part.parameters.items():
            if variable.space == "reg":
                self._parameters.access((part.name, name), 0, variable.nbytes)

    def _read_call(self, part: Part, call: Instruction) -> None:
        for target in self._targets(part, call):
            part.callees.add(target.name)
            formals = (*target.function.results, *target.function.params)
            for formal, actual in zip(formals, (*items_of(call, "result"), *items_of(call, "arguments")), strict=True):
                if isinstance(actual, Symbol):
                    self._parameters.bind((part.name, actual.name), (target.name, formal.name))
        for actual in items_of(call, "arguments"):
            if isinstance(actual, Symbol) and actual.name not in part.parameters:
                raise UnsupportedPtx(f"the emulator does not model {actual.name} as the argument of a call", call.span)

    def _targets(self, part: Part, call: Instruction) -> list[Part]:
        """The functions with a body that a call may reach; PtxTypeError if it does not fit the one that it names."""
        name = called_name(call)
        if name in self._services:
            return []
        if name is not None:
            if name not in self._parts or self._parts[name].is_kernel:
                raise UnsupportedPtx(f"the emulator does not model {name}, a function without a body: {_REMEDY}", call.span)
            target = self._parts[name]
            if not fits(part, call, target.function):
                raise PtxTypeError(f"the arguments or results of this call do not match those of {name}", call.span)
            return [target]
        found = (self._parts[one.name] for one in addressed_functions(self._module))
        return [target for target in found if fits(part, call, target.function)]

    def _find_circles(self) -> None:
        paths = Reachability(self._parts, lambda name: self._parts[name].callees)
        for name, part in self._parts.items():
            if paths.comes_back(name):
                part.recursive = paths.component(name)
                part.frame, part.frame_bytes = lay_out_locals(part.body.variables)

    # -- instructions --------------------------------------------------------------------------------------------------------------

    def _units(self, part: Part, name: str) -> list[tuple[Unit, str]]:
        """The parts of a parameter, each with its register."""
        variable = part.parameters[name]
        if variable.space == "reg":
            register = part.rename(name)
            self._registers[register] = variable.type
            return [((0, variable.nbytes), register)]
        units = self._parameters.units((part.name, name))
        found = [(unit, f"{part.name}::{name}+{unit[0]}") for unit in units]
        self._registers.update({register: f"b{8 * nbytes}" for (_, nbytes), register in found})
        return found

    def _wired(self, part: Part) -> list[Place]:
        """The places of a function with parameters as registers, and what its calls and returns need to know."""
        places = [replace(place, steps=tuple(self._wired_step(part, step) for step in place.steps)) for place in part.body.places]
        if not part.recursive:
            return places
        # What a function that may be entered again needs behind a call lies on the stack meanwhile.
        alone = [replace(place, steps=tuple(of_this_activation(step) for step in place.steps)) for place in places]
        live = LiveOut(alone)
        needed = {place.steps[-1].index: live.behind(number) for number, place in enumerate(alone) if _call_at_the_end(place)}
        return [
            replace(place, steps=tuple(self._saving(part, step, needed.get(step.index, frozenset())) for step in place.steps))
            for place in places
        ]

    def _saving(self, part: Part, step: Step, needed: frozenset[str]) -> Step:
        link = step.link
        if not isinstance(link, Call) or part.recursive.isdisjoint(target.name for target in link.targets):
            return step
        results = {register for target in link.targets for register, _ in target.results}
        link = replace(link, saved=tuple(sorted(needed - results - {STACK, CARRY})))
        return wired_call(step, link)

    def _wired_step(self, part: Part, step: Step) -> Step:
        one = step.instruction
        guard = None if one.guard is None else replace(one.guard, register=part.rename(one.guard.register))
        if one.form.effect == "call":
            return wired_call(replace(step, instruction=replace(one, guard=guard)), self._call(part, one))
        if one.form.effect == "return" and not part.is_kernel:
            results = [register for variable in part.function.results for _, register in self._units(part, variable.name)]
            self._registers[part.place] = "b32"
            stack = [STACK] if part.frame_bytes else []
            ended = with_registers(replace(one, guard=guard), stack, [part.place, *results, *stack])
            return replace(step, instruction=ended, link=Return(part.place, part.frame_bytes))
        for name, offset, nbytes, count in parameter_accesses(one):
            if name in part.parameters:
                one = self._wired_access(part, one, name, (offset, nbytes * count))
        if part.frame:
            one = self._framed(part, one)
        return replace(step, instruction=rename_instruction(one, part.rename))

    def _wired_access(self, part: Part, one: Instruction, name: str, span: Unit) -> Instruction:
        """A load or store of a parameter: its address becomes the registers of that part of it."""
        start, nbytes = span
        if start < 0 or start + nbytes > part.parameters[name].nbytes:
            raise PtxTypeError(f"{one.name} goes beyond the parameter {name}", one.span)
        registers = [Register(register) for (offset, _), register in self._units(part, name) if start <= offset < start + nbytes]
        place = one.form.operands["a"]
        operands = (*one.operands[:place], Vector(tuple(registers)), *one.operands[place + 1 :])
        form = replace(one.form, writes=one.form.writes | ({"a"} if one.form.effect == "store" else set()))
        return replace(one, operands=operands, form=form)

    def _framed(self, part: Part, one: Instruction) -> Instruction:
        """An instruction of a recursive function with its local variables on the stack."""
        register = Register(part.frame_register)
        self._registers[register.name] = "b64"
        operands: list[Operand] = []
        for operand in one.operands:
            match operand:
                case Address(base=Symbol(name=name, offset=more), offset=offset) if name in part.frame:
                    operands.append(Address(register, part.frame[name] + more + offset))
                case Symbol(name=name, offset=more) if name in part.frame:
                    if one.opcode != "mov":
                        raise UnsupportedPtx(
                            f"the emulator does not model {one.name} of a local variable of a recursive function", one.span
                        )
                    sum_ = instruction(f"add.u64 %d, %a, {part.frame[name] + more};", one.guard, one.location)
                    return replace(sum_, operands=(one.operands[0], register, sum_.operands[2]), span=one.span)
                case _:
                    operands.append(operand)
        return replace(one, operands=tuple(operands))

    def _call(self, part: Part, call: Instruction) -> Call:
        arguments, results = items_of(call, "arguments"), items_of(call, "result")
        name = called_name(call)
        if name in self._services:
            passed = tuple(tuple(operand for _, operand in self._passed(part, actual, None)) for actual in arguments)
            given = [register for actual in results for register in self._received(part, actual, None)]
            return Call((), service=name or "", arguments=passed, results=tuple(given))
        targets = []
        for target in self._targets(part, call):
            formals = (target.function.params, target.function.results)
            moves = [
                (register, operand)
                for formal, actual in zip(formals[0], arguments, strict=True)
                for register, operand in self._passed(part, actual, (target, formal))
            ]
            received = [
                pair
                for formal, actual in zip(formals[1], results, strict=True)
                for pair in zip(self._received(part, actual, (target, formal)), self._registers_of(target, formal), strict=True)
            ]
            self._registers[target.place] = "b32"
            if target.frame_bytes:
                self._registers[target.frame_register] = "b64"
            address = self._addresses[target.name]
            targets.append(
                Target(target.name, address, tuple(moves), tuple(received), target.place, target.frame_register, target.frame_bytes)
            )
        pointer = None if name is not None else rename_instruction(call, part.rename).operand("function")
        return Call(tuple(targets), pointer)

    def _registers_of(self, part: Part, variable: Variable) -> list[str]:
        return [register for _, register in self._units(part, variable.name)]

    def _passed(self, part: Part, actual: Operand, formal: tuple[Part, Variable] | None) -> list[tuple[str, Operand]]:
        """The registers of a parameter with what they get from an argument."""
        sources: list[Operand]
        if isinstance(actual, Symbol):
            sources = [Register(register) for _, register in self._units(part, actual.name)]
        else:
            sources = [Register(part.rename(actual.name)) if isinstance(actual, Register) else actual]
        targets = ["" for _ in sources] if formal is None else self._registers_of(*formal)
        if targets and len(targets) != len(sources):
            raise UnsupportedPtx(f"the emulator does not model how {part.name} passes {actual}")
        return list(zip(targets, sources, strict=False))

    def _received(self, part: Part, actual: Operand, formal: tuple[Part, Variable] | None) -> list[str]:
        """The registers of the caller that get a result; of one that is thrown away, registers that nothing reads."""
        if isinstance(actual, Symbol):
            return [register for _, register in self._units(part, actual.name)]
        if isinstance(actual, Sink) and formal is not None:
            unread = {f"{part.name}::_{register}": self._registers[register] for register in self._registers_of(*formal)}
            self._registers.update(unread)
            return list(unread)
        return [part.rename(actual.name)] if isinstance(actual, Register) else []

    # -- places ----------------------------------------------------------------------------------------------------------------------

    def _merged(self, wired: dict[str, list[Place]]) -> tuple[Place, ...]:
        """All places under one numbering, callees before callers. A warp begins at place 0, which leads to the kernel."""
        order = post_order([self._kernel.name], lambda name: sorted(self._parts[name].callees))
        number = 1
        for name in order:
            self._parts[name].first_place = number
            number += len(wired[name])
        begin = instruction(f"mov.u64 {STACK}, {STACK[1:]};")
        begin = replace(begin, operands=(Register(STACK), Symbol(STACK)))
        steps = (Step(0, begin, resumes=True),) if any(part.recursive for part in self._parts.values()) else ()
        behind: dict[str, list[int]] = {name: [] for name in order}
        placed = [(name, self._placed(self._parts[name], place, wired[name], behind)) for name in order for place in wired[name]]
        return (
            Place(0, steps, (self._kernel.first_place,)),
            *(replace(place, returns=tuple(behind[name])) if _returns(place) else place for name, place in placed),
        )

    def _placed(self, part: Part, place: Place, own: Sequence[Place], behind: dict[str, list[int]]) -> Place:
        """A place with its final numbers. Notes in `behind` where the functions that it calls may return to."""
        base = part.first_place
        steps = tuple(replace(step, index=part.first_index + step.index) for step in place.steps)
        successors = tuple(base + goal for goal in place.successors)
        call = _call_at_the_end(place)
        if call is not None and not call.service:
            last = steps[-1]
            targets = tuple(replace(target, entry=self._parts[target.name].first_place) for target in call.targets)
            steps = (*steps[:-1], replace(last, link=replace(call, targets=targets, resume=successors[0])))
            for target in targets:
                behind[target.name].append(successors[0])
            otherwise = tuple(base + goal for goal in own[place.successors[0]].successors)
            pointer_only = (successors[0],) if not targets else ()
            successors = (*(target.entry for target in targets), *pointer_only)
            if last.instruction.guard is not None:
                successors = (*successors, *otherwise)
        return Place(base + place.number, steps, successors, place.polls, place.polls_blocks)


_REMEDY = "link the file that defines it: memlane.link(...), or --link FILE on the command line"
"""What to do about a function that is declared only."""


def _steps(body: Body) -> Iterator[Step]:
    for place in body.places:
        yield from place.steps


def _returns(place: Place) -> bool:
    return bool(place.steps) and isinstance(place.steps[-1].link, Return)


def _call_at_the_end(place: Place) -> Call | None:
    last = place.steps[-1] if place.steps else None
    return last.link if last is not None and isinstance(last.link, Call) and not last.resumes else None


def _polling(module: Module, functions: Sequence[Function]) -> frozenset[str | None]:
    """The functions that read what other threads may just have written, or call such; None is among them if one is called by a pointer."""

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


def _with_return(function: Function) -> Function:
    """A function whose text ends with a return, as running off its end means."""
    assert function.body is not None
    statements = function.body.statements
    last = statements[-1] if statements else None
    if isinstance(last, Instruction) and last.guard is None and last.form.effect in ("return", "exit", "trap", "branch"):
        return function
    return replace(function, body=Block((*statements, instruction("ret;"))))
