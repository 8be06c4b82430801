"""Defines helpers, the functions of the runtime, and compiles them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import llvmlite.ir as ir

from memlane.emulate.code.build import Emit, Value
from memlane.emulate.code.jit import LOCK, compile_optimised, engine, fingerprint, without_garbage_collection
from memlane.emulate.code.store import Entry, digest, keep, present_store
from memlane.emulate.code.text import CodeFunction


@dataclass(frozen=True, eq=False)
class Helper:
    """One function of the runtime. `build` writes its body; a body that is left open returns nothing.

    The name determines the body, together with the source of memlane: machine code is cached under it, also for other processes.
    """

    name: str
    result: ir.Type
    arguments: tuple[ir.Type, ...]
    build: Callable[..., None]


def helper(name: str, result: ir.Type, *arguments: ir.Type) -> Callable[[Callable[..., None]], Helper]:
    """Turn the decorated function, which takes an `Emit` and the arguments, into a helper."""
    return lambda build: Helper(f"memlane_{name}", result, arguments, build)


class Program(ir.Module):  # type: ignore[misc]
    """An LLVM module that records the helpers it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.required: dict[str, Helper] = {}

    def define(self, helper: Helper) -> None:
        """Write the helper's function into this module."""
        known = self.globals.get(helper.name)
        function = known if known is not None else CodeFunction(self, ir.FunctionType(helper.result, helper.arguments), helper.name)
        emit = Emit(function.append_basic_block("entry"))
        helper.build(emit, *function.args)
        if not emit.block.is_terminated:
            emit.ret_void()


def invoke(emit: Emit, helper: Helper, *arguments: Value) -> Value:
    """Call a helper from the program that `emit` writes."""
    emit.module.required[helper.name] = helper
    return emit.call(emit.declare(helper.name, helper.result, helper.arguments), arguments)


_compiled: set[str] = set()
"""Names of the helpers whose machine code is loaded."""


def compile_helpers(wanted: Iterable[Helper]) -> None:
    """Load the machine code of helpers from the store, or compile it now."""
    with LOCK:
        for one in wanted:
            if one.name not in _compiled:
                engine().add(_object_file(one), one.name)
                _compiled.add(one.name)  # not before: another thread, or a retry after an error, relies on it


def load_helpers(names: Iterable[str]) -> bool:
    """Load the machine code of helpers by name; return False if the store lacks one."""
    store = present_store()
    with LOCK:
        for name in names:
            if name not in _compiled:
                entry = None if store is None else store.get(_key(name))
                if entry is None:
                    return False
                engine().add(entry.code, name)
                _compiled.add(name)
        return True


def _object_file(one: Helper) -> bytes:
    store = present_store()
    entry = None if store is None else store.get(_key(one.name))
    if entry is None:
        with without_garbage_collection():
            entry = Entry({"name": one.name}, compile_optimised(_text(one)))
        keep(_key(one.name), entry)
    return entry.code


def _key(name: str) -> str:
    return digest("helper", fingerprint(), name)


def _text(one: Helper) -> str:
    """Return an LLVM module with the helper, and internal copies of those that it calls: so its code does not depend on which helpers were
    compiled before."""
    program = Program()
    program.define(one)
    waiting, known = list(program.required.values()), {one.name}
    while waiting:
        inner = waiting.pop()
        if inner.name not in known:
            known.add(inner.name)
            program.define(inner)
            program.globals[inner.name].linkage = "internal"
            waiting.extend(program.required.values())
    return str(program)


def address_of(helper: Helper) -> int:
    """Return the entry address of a helper; compile it first if necessary."""
    with LOCK:
        compile_helpers([helper])
        return engine().address(helper.name)
