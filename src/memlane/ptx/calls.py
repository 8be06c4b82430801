"""Who calls whom, and what is asked of a function and all that it calls."""

from __future__ import annotations

from collections.abc import Mapping

from memlane.ptx.ir import Function, Instruction, Module, Special, Symbol
from memlane.ptx.lexer import NAME
from memlane.ptx.once import once_for_each
from memlane.ptx.registers import names_in
from memlane.walks import reachable

SYSTEM_CALLS = frozenset({"vprintf", "__assertfail", "malloc", "free"})
"""Functions of the device's runtime, which no module defines. They may read arrays of the host and do not write to them."""


def called_name(call: Instruction) -> str | None:
    """The function that a `call` names; None if it goes through a pointer."""
    operand = call.operand("function")
    return operand.name if isinstance(operand, Symbol) else None


@once_for_each
def addressed_functions(module: Module) -> tuple[Function, ...]:
    """The device functions whose address is taken, by an instruction or by the initial value of a variable: those that a call through a
    pointer may reach. In the order of the module."""
    names: set[str] = set()
    for function in module.functions.values():
        for instruction in function.instructions():
            if instruction.opcode == "mov":
                names.update(name for operand in instruction.operands for name in names_in(operand))
    for variable in module.variables.values():
        if variable.initial is not None:
            names.update(NAME.findall(variable.initial))
    return tuple(function for name, function in module.functions.items() if name in names and not function.is_entry)


@once_for_each
def _call_graph(module: Module) -> Mapping[str, tuple[str, ...]]:
    """By function those that its own instructions may call."""
    return {name: callees(module, function) for name, function in module.functions.items()}


def called_functions(module: Module, function: Function) -> tuple[Function, ...]:
    """The functions with a body that `function` calls, directly or through others, in the order of the module."""
    found = reachable(callees(module, function), _call_graph(module).__getitem__)
    return tuple(one for name, one in module.functions.items() if name in found)


def special_registers(module: Module, function: Function) -> frozenset[str]:
    """The special registers that a function reads, itself or in functions that it calls."""
    instructions = (one for each in (function, *called_functions(module, function)) for one in each.instructions())
    return frozenset(operand.name for one in instructions for operand in one.operands if isinstance(operand, Special))


def callees(module: Module, function: Function) -> tuple[str, ...]:
    """Return the functions of the module that the instructions of `function` may call themselves."""
    names = dict.fromkeys(called_name(call) for call in function.instructions() if call.form.effect == "call")
    found = [name for name in names if name in module.functions]
    by_pointer = [one.name for one in addressed_functions(module)] if None in names else []
    return tuple(dict.fromkeys([*filter(None, found), *by_pointer]))
