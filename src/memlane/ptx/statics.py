"""Variables in shared memory that a function has for all its calls together, put in front of the function.

    .func f() {                          .shared .b32 s;
      .shared .b32 s;              ->    .func f() {
      st.shared.u32 [s], 1; ret;           st.shared.u32 [s], 1; ret;
    }                                    }

There is one of them however often the function is called, and copies of the function have to mean that one. The compiler puts the shared
array of a kernel into a function that alone uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from memlane.ptx.ir import Block, Function, Item, Label, Module, RegisterDecl, Statement, Variable


def statics_outside(module: Module) -> Module:
    """The module with such variables of its functions (not its kernels) outside, as far as their names mean nothing else in it; itself if
    there are none."""
    declared = Counter(_declared(module.items))
    items: list[Item] = []
    for item in module.items:
        if isinstance(item, Function) and item.body is not None and not item.is_entry:
            inside = item.body.statements
            moved = [one for one in inside if isinstance(one, Variable) and one.space == "shared" and declared[one.name] == 1]
            if moved:
                items += moved
                item = replace(item, body=replace(item.body, statements=tuple(one for one in inside if one not in moved)))
        items.append(item)
    return module if len(items) == len(module.items) else replace(module, items=tuple(items))


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
