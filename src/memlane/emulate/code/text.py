"""Names and prints the instructions of functions with little overhead.

A kernel with layers is some 10,000 instructions, and llvmlite names and formats each through a dozen calls, which took more time than LLVM
itself. Instructions that are not in the table, or carry flags, attributes or metadata, are left to llvmlite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from llvmlite.ir import instructions as kinds

_Write = Callable[[Any], str]


class CodeFunction(ir.Function):  # type: ignore[misc]
    """A function of a module, like llvmlite's; values without a name get one at once."""

    def __init__(self, module: ir.Module, kind: ir.FunctionType, name: str) -> None:
        super().__init__(module, kind, name)
        self.scope = _Names(self.args)

    def descr_body(self, buf: list[str]) -> None:
        """Append the text of the blocks."""
        for block in self.blocks:
            buf.append(f"{block.get_reference()[1:]}:\n")
            buf += [f"  {instruction_text(one)}\n" for one in block.instructions]


class _Names:
    """The names of a function's values and blocks, as llvmlite asks for them."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._used = {one.name for one in arguments}
        self._next: dict[str, int] = {}
        self._values = 0

    def register(self, name: str, deduplicate: bool = False) -> str:
        """Return a name that is unique in the function; with `deduplicate` it may differ from `name`. Raises ValueError for a name in use
        otherwise."""
        if not name:
            self._values += 1
            return f"v.{self._values}"
        unique = name
        while unique in self._used:
            if not deduplicate:
                raise ValueError(f"two values of a function are called {name}")
            self._next[name] = self._next.get(name, 0) + 1
            unique = f"{name}.{self._next[name]}"
        self._used.add(unique)
        return unique


def instruction_text(one: Any) -> str:
    """Return the text of an instruction."""
    write = _TABLE.get(type(one))
    return str(one) if write is None or one.metadata or one.flags else write(one)


def _typed(value: Any) -> str:
    return f"{value.type} {value.get_reference()}"


def _arithmetic(one: Any) -> str:
    return f"{one.get_reference()} = {one.opname} {one.type} {', '.join([value.get_reference() for value in one.operands])}"


def _of_typed(one: Any) -> str:
    return f"{one.get_reference()} = {one.opname} {', '.join([_typed(value) for value in one.operands])}"


def _cast(one: Any) -> str:
    return f"{one.get_reference()} = {one.opname} {_typed(one.operands[0])} to {one.type}"


def _comparison(one: Any) -> str:
    left, right = one.operands
    return f"{one.get_reference()} = {one.opname} {one.op} {_typed(left)}, {right.get_reference()}"


def _address(one: Any) -> str:
    bounds = " inbounds" if one.inbounds else ""
    operands = ", ".join([_typed(value) for value in one.operands])
    return f"{one.get_reference()} = getelementptr{bounds} {one.source_etype}, {operands}"


def _load(one: Any) -> str:
    return f"{one.get_reference()} = load {one.type}, {_typed(one.operands[0])}{_alignment(one)}"


def _store(one: Any) -> str:
    value, pointer = one.operands
    return f"store {_typed(value)}, {_typed(pointer)}{_alignment(one)}"


def _alignment(one: Any) -> str:
    return "" if one.align is None else f", align {one.align}"


def _branch(one: Any) -> str:
    return f"{one.opname} {', '.join([_typed(value) for value in one.operands])}"


def _call(one: Any) -> str:
    callee, kind = one.callee, one.callee.function_type
    if one.cconv or one.tail or one.fastmath or one.attributes or one.arg_attributes or kind.var_arg:
        return str(one)
    result = "" if isinstance(one.type, ir.VoidType) else f"{one.get_reference()} = "
    arguments = ", ".join([_typed(value) for value in one.args])
    return f"{result}call {kind.return_type} {callee.get_reference()}({arguments})"


_TABLE: dict[type, _Write] = {
    kinds.Instruction: _arithmetic,
    kinds.CastInstr: _cast,
    kinds.ICMPInstr: _comparison,
    kinds.FCMPInstr: _comparison,
    kinds.SelectInstr: _of_typed,
    kinds.ExtractElement: _of_typed,
    kinds.InsertElement: _of_typed,
    kinds.ShuffleVector: _of_typed,
    kinds.GEPInstr: _address,
    kinds.LoadInstr: _load,
    kinds.StoreInstr: _store,
    kinds.Branch: _branch,
    kinds.ConditionalBranch: _branch,
    kinds.CallInstr: _call,
}
