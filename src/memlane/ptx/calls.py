"""Build the call graph of a module, and answer questions about a function together with all its callees."""

from __future__ import annotations

from collections.abc import Mapping

from memlane.ptx.ir import Function, Instruction, Module, Special, Symbol
from memlane.ptx.lexer import NAME
from memlane.ptx.once import once_for_each
from memlane.ptx.registers import names_in
from memlane.walks import reachable

SYSTEM_CALLS = frozenset({"vprintf", "__assertfail", "malloc", "free"})
"""Functions of the device runtime, which no module defines. They may read host arrays but do not write to them."""


def called_name(call: Instruction) -> str | None:
    """Return the function that a `call` names; None for a call through a pointer."""
    operand = call.operand("function")
    return operand.name if isinstance(operand, Symbol) else None


@once_for_each
def addressed_functions(module: Module) -> tuple[Function, ...]:
    """Return the device functions whose address is taken, in the order of the module.

    An instruction or the initial value of a variable takes it. A call through a pointer may reach any of these functions.
    """
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
    """Return the direct callees of each function."""
    return {name: callees(module, function) for name, function in module.functions.items()}


def called_functions(module: Module, function: Function) -> tuple[Function, ...]:
    """Return the functions with a body that `function` calls, directly or through others, in the order of the module."""
    found = reachable(callees(module, function), _call_graph(module).__getitem__)
    return tuple(one for name, one in module.functions.items() if name in found)


def special_registers(module: Module, function: Function) -> frozenset[str]:
    """Return the special registers that a function and its callees read."""
    instructions = (one for each in (function, *called_functions(module, function)) for one in each.instructions())
    return frozenset(operand.name for one in instructions for operand in one.operands if isinstance(operand, Special))


def callees(module: Module, function: Function) -> tuple[str, ...]:
    """Return the functions of the module that the instructions of `function` may call directly."""
    names = dict.fromkeys(called_name(call) for call in function.instructions() if call.form.effect == "call")
    found = [name for name in names if name in module.functions]
    by_pointer = [one.name for one in addressed_functions(module)] if None in names else []
    return tuple(dict.fromkeys([*filter(None, found), *by_pointer]))
