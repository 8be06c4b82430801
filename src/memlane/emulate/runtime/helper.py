"""A function of the runtime, and the program that collects those it calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import llvmlite.ir as ir

from memlane.emulate.code.build import Emit, Value
from memlane.emulate.code.jit import LOCK, engine


@dataclass(frozen=True, eq=False)
class Helper:
    """One function of the runtime. `build` writes its body; a body that is left open returns nothing."""

    name: str
    result: ir.Type
    arguments: tuple[ir.Type, ...]
    build: Callable[..., None]


def helper(name: str, result: ir.Type, *arguments: ir.Type) -> Callable[[Callable[..., None]], Helper]:
    """Make the decorated body, which takes an `Emit` and the arguments, a helper."""
    return lambda build: Helper(f"memlane_{name}", result, arguments, build)


class Program(ir.Module):  # type: ignore[misc]
    """An LLVM module that remembers the helpers it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.required: dict[str, Helper] = {}

    def define(self, helper: Helper) -> None:
        """Write the helper's function into this module."""
        known = self.globals.get(helper.name)
        function = known if known is not None else ir.Function(self, ir.FunctionType(helper.result, helper.arguments), helper.name)
        emit = Emit(function.append_basic_block("entry"))
        helper.build(emit, *function.args)
        if not emit.block.is_terminated:
            emit.ret_void()


def invoke(emit: Emit, helper: Helper, *arguments: Value) -> Value:
    """Call a helper from the program that `emit` writes."""
    emit.module.required[helper.name] = helper
    return emit.call(emit.declare(helper.name, helper.result, helper.arguments), arguments)


_compiled: set[str] = set()
"""Names of the helpers whose machine code is there."""


def compile_helpers(wanted: Sequence[Helper]) -> None:
    """Compile the helpers that are not there yet, and those that they call."""
    with LOCK:
        program = Program()
        waiting = list(wanted)
        fresh: set[str] = set()
        while waiting:
            one = waiting.pop()
            if one.name not in _compiled and one.name not in fresh:
                fresh.add(one.name)
                program.define(one)
                waiting.extend(program.required.values())
        if fresh:
            engine().add(str(program), fresh)
            _compiled.update(fresh)  # not before: another thread, or a second try after an error, goes by it


def address_of(helper: Helper) -> int:
    """Entry address of a helper, compiled now if need be."""
    with LOCK:
        compile_helpers([helper])
        return engine().address(helper.name)
