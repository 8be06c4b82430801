"""Move static variables of device functions to module scope, in front of the function.

    .func f() {                          .shared .b32 s;
      .shared .b32 s;              ->    .func f() {
      st.shared.u32 [s], 1; ret;           st.shared.u32 [s], 1; ret;
    }                                    }

All calls of the function share one instance, and inlined copies of the function have to refer to that one. The compiler puts the shared
array of a kernel into a function that alone uses it. Variables in global and constant memory are moved when a text is parsed, so that no
pass has to search functions for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from memlane.ptx.ir import Block, Function, Instruction, Item, Label, Module, RegisterDecl, Statement, Variable
from memlane.ptx.lexer import NAME
from memlane.ptx.registers import rename_instruction


def hoist_shared_variables(module: Module) -> Module:
    """Return the module with the shared variables of its functions (not its kernels) moved to module scope.

    Variables whose name is declared elsewhere too stay. Returns the module itself if there are none to move.
    """
    declared = Counter(_declared(module.items))
    items: list[Item] = []
    for item in module.items:
        if isinstance(item, Function) and item.body is not None and not item.is_entry:
            inside = item.body.statements
            hoisted = [one for one in inside if isinstance(one, Variable) and one.space == "shared" and declared[one.name] == 1]
            if hoisted:
                items += hoisted
                item = replace(item, body=replace(item.body, statements=tuple(one for one in inside if one not in hoisted)))
        items.append(item)
    return module if len(items) == len(module.items) else replace(module, items=tuple(items))


def hoist_static_variables(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items with variables in global and constant memory that functions declare moved in front of these functions.

    A name that is declared elsewhere too gets a number.
    """
    if not any(_is_static(one) for item in items if isinstance(item, Function) for one in item.walk()):
        return items
    hoister = _Hoister(items)
    found: list[Item] = []
    for item in items:
        if isinstance(item, Function) and item.body is not None:
            item = replace(item, body=hoister.block(item.body, {}))
            found += hoister.take_hoisted()
        found.append(item)
    return tuple(found)


def _is_static(one: Statement) -> bool:
    return isinstance(one, Variable) and one.space in ("global", "const")


class _Hoister:
    """Removes such variables from blocks, and gives them unique names."""

    def __init__(self, items: tuple[Item, ...]) -> None:
        self._declared = Counter(_declared(items))
        self._hoisted: list[Variable] = []

    def take_hoisted(self) -> list[Variable]:
        """Return the variables removed since the last call."""
        hoisted, self._hoisted = self._hoisted, []
        return hoisted

    def block(self, block: Block, outer: Mapping[str, str]) -> Block:
        """Return the block without its static variables. `outer` maps old to new names around the block."""
        labels = {one.name for one in block.statements if isinstance(one, Label)}
        names = {old: new for old, new in outer.items() if old not in labels}
        kept: list[Statement] = []
        for one in block.statements:
            if isinstance(one, Variable | RegisterDecl):  # before it the name is that of a block around
                names.pop(one.name, None)
            if isinstance(one, Variable) and _is_static(one):
                names[one.name] = self._unique_name(one.name)
                initial = None if one.initial is None else NAME.sub(lambda found: names.get(found[0], found[0]), one.initial)
                self._hoisted.append(replace(one, name=names[one.name], initial=initial))
            elif isinstance(one, Block):
                kept.append(self.block(one, names))
            elif isinstance(one, Instruction):
                kept.append(rename_instruction(one, lambda name: names.get(name, name)) if names else one)
            else:
                kept.append(one)
        return Block(tuple(kept))

    def _unique_name(self, name: str) -> str:
        """Return the name itself if it is declared once, else one that is not declared."""
        if self._declared[name] == 1:
            return name
        number = 1
        while f"{name}__{number}" in self._declared:
            number += 1
        self._declared[f"{name}__{number}"] += 1
        return f"{name}__{number}"


def _declared(items: Iterable[Item | Statement]) -> Iterator[str]:
    for one in items:
        if isinstance(one, Variable | RegisterDecl | Label):
            yield one.name
        elif isinstance(one, Block):
            yield from _declared(one.statements)
        elif isinstance(one, Function):
            yield one.name
            yield from (each.name for each in (*one.params, *one.results))
            yield from _declared(one.body.statements if one.body is not None else ())
