"""Change the layout of an array in shared memory.

    mul.wide.u32 %rd6, %r5, 4;            mul.wide.u32 %rd6, %r5, 4;
    add.s64 %rd8, %rd7, %rd6;             add.s64 %rd8, %rd7, %rd6;
    ld.shared.f32 %f1, [%rd8];     ->     shr.u32 %at_b32_1, %r5, 5;                the element index is %r5
                                          ...                                       its place in the layout
                                          mov.u32 %at_b32_0, tile;
                                          add.s32 %at_b32_4, %at_b32_0, %at_b32_3;
                                          ld.shared.f32 %f1, [%at_b32_4];           and the access there

Takes a valid module and returns a valid one. The kernel still computes its original addresses; only the accesses use new ones (and ptxas
removes what becomes dead code). The element index is taken from the operands of the address if they are still in registers (`terms`), else
from the address minus the start of the array. Constant addresses are mapped at compile time and cost nothing; a register is mapped once
while it holds the same address; and if the distance of two addresses is the same everywhere, the second is the first plus a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from memlane.chip import CONSTANT_BYTES, STATIC_SHARED_BYTES
from memlane.errors import RelayoutError
from memlane.layout import Layout
from memlane.number_format import plural
from memlane.ptx import (
    Block,
    Function,
    Item,
    Location,
    Module,
    RegisterDecl,
    Variable,
    called_functions,
    verify,
)
from memlane.ptx.edit import with_items
from memlane.rewrite.arrays import SharedArray, find_array, hiding_declaration, shared_arrays, static_bytes
from memlane.rewrite.emit import LookUp, can_be_computed
from memlane.rewrite.placement import Placement, element_bytes
from memlane.rewrite.provenance import ArrayAccess, Provenance, cached_accesses_to_shared
from memlane.rewrite.writer import Writer, constant_offset

Tables = Literal["computed", "constant", "global"]
"""Where the tables of a layout are stored. `computed`: assembled from immediate operands if small enough, else in constant memory;
`constant`:
always in constant memory, which serves one address at a time, so lanes of different rows are serialised; `global`: in global memory."""


@dataclass(frozen=True)
class RelayoutResult:
    """Module with a new layout of an array."""

    module: Module
    array: SharedArray
    layout: Layout
    element_bytes: int
    tiles: int
    """Number of tiles of the layout in the array."""
    accesses: int
    """Number of instructions that access the array."""
    folded: int
    """Number of these with a constant address, mapped at compile time."""
    shared: int
    """Number of these that reuse an address computed for an earlier access."""
    added_bytes: int
    """Bytes that the layout needs in addition to those of the array."""


def relayout_module(
    module: Module,
    layout: Layout,
    *,
    shared: str | tuple[int, int] | None = None,
    kernel: str | None = None,
    element: int | None = None,
    tables: Tables = "computed",
) -> RelayoutResult:
    """Map every access to one array in shared memory through `layout`.

    `shared`: the array, as in `find_array`. `kernel`: PTX name of the kernel to change; None: all that use the array. `element`: bytes per
    element; None: the size of the array divided by the elements of the layout. Raises RelayoutError if the pass cannot prove that the
    kernel computes the same, with the line that prevents it.
    """
    if module.address_size != 64:
        raise RelayoutError(f"{module.name} has addresses of {plural(module.address_size, 'bit')}; only .address_size 64 can be changed")
    one = None if kernel is None else module.kernels[kernel]
    array = find_array(module, shared, one)
    functions = _functions(module, array, one)
    found = {name: _accesses(module, function, array) for name, function in functions.items()}
    accesses = [access for known in found.values() for access in known]
    if not accesses:
        raise RelayoutError(f"there is no access to {array.title} whose address memlane can follow")
    array, placement = _placement(array, layout, element, _scalar_bytes(accesses))
    for name, known in found.items():
        _check(module, functions[name], known, array, placement)
    names, tabled = _look_ups(module, placement, accesses, tables)
    writers = {name: Writer(functions[name], known, array, placement, names).rewrite() for name, known in found.items() if known}
    changed = _with_items(module, array, placement, {name: writer.function for name, writer in writers.items()}, tabled)
    verify(changed)
    _check_room(module, changed, array, placement, functions)
    return RelayoutResult(
        changed, array, layout, placement.element, placement.tiles, len(accesses), sum(one.folded for one in writers.values()),
        sum(one.shared for one in writers.values()), placement.room - placement.nbytes,
    )  # fmt: skip


# -- what may be done ------------------------------------------------------------------------------------------------------------


def _functions(module: Module, array: SharedArray, kernel: Function | None) -> dict[str, Function]:
    """Return the functions that may name the array. Raises RelayoutError if another kernel calls one of them."""
    if array.function:
        return {array.function: module.functions[array.function]}
    if kernel is None:
        return dict(module.functions)
    called = {one.name: one for one in called_functions(module, kernel) if _uses_array(module, one, array)}
    for other in module.kernels.values():
        both = [one.title for one in called_functions(module, other) if one.name in called] if other is not kernel else []
        if both:
            raise RelayoutError(
                f"{both[0]}, which accesses {array.title}, is also called by {other.title}; change the module instead of one kernel"
            )
    return {kernel.name: kernel, **called}


def _uses_array(module: Module, function: Function, array: SharedArray) -> bool:
    """Return whether a function uses the array."""
    return any(one.same_memory(array) for one in shared_arrays(module, function))


def _accesses(module: Module, function: Function, array: SharedArray) -> tuple[ArrayAccess, ...]:
    """Return the accesses to the array. Raises RelayoutError if its address, or its name, is used in another way."""
    if (hiding := hiding_declaration(function, array)) is not None:
        raise RelayoutError(
            f"the layout of {array.title} cannot be changed: {function.title} declares something else named {hiding.name}; "
            "rename one of them",
            function.span if isinstance(hiding, RegisterDecl) else hiding.span,
        )
    whole = next((one for one in shared_arrays(module) if one.same_memory(array)), array)
    arrays = [one for one in shared_arrays(module) if not one.same_memory(array)]
    provenance: Provenance = cached_accesses_to_shared(module, function, [*arrays, whole])
    for problem in provenance.problems:
        if whole in problem.arrays:
            others = ", ".join(sorted(one.title for one in problem.arrays if one != whole))
            reason = problem.reason + (f" ({others})" if others else "")
            raise refusal(module, function, problem.index, f"the layout of {array.title} cannot be changed: {reason}")
    return tuple(one for one in provenance.accesses if one.pointer.array == whole)


def _scalar_bytes(accesses: Sequence[ArrayAccess]) -> int:
    """Return the widest scalar of the accesses: a scalar may be a part of an element, and several elements have a vector type."""
    return max(one.scalar for one in accesses) or min(one.nbytes for one in accesses)


def _placement(array: SharedArray, layout: Layout, element: int | None, scalar: int) -> tuple[SharedArray, Placement]:
    """Return the map, and the array with its size: for the whole dynamic part that of the layout. Raises RelayoutError if it does not
    fit."""
    if array.is_dynamic and not array.nbytes:
        bytes_each = element or scalar
        array = replace(array, nbytes=layout.rows * layout.columns * bytes_each)
        array = replace(array, title=f"dynamic[{array.first}:{array.first + array.nbytes}]")
    bytes_each, tiles = element_bytes(layout, array.nbytes, scalar, element, array.title)
    placement = Placement(layout, bytes_each, tiles)
    if array.is_dynamic and placement.room > array.nbytes:
        raise RelayoutError(
            f"{layout} takes {plural(placement.room, 'byte')}, and {array.title} has {array.nbytes}: the dynamic shared memory after "
            "it is not known to be free; use a layout of the same size, such as an XOR swizzle"
        )
    return array, placement


def _check(module: Module, function: Function, accesses: Sequence[ArrayAccess], array: SharedArray, placement: Placement) -> None:
    """Raise RelayoutError for an access that the layout splits, that may cross an end of the array, or that is out of bounds."""
    instructions = list(function.instructions())
    torn = {nbytes: placement.torn_at(nbytes) for nbytes in {one.nbytes for one in accesses}}
    for one in accesses:
        instruction = instructions[one.index]
        at = torn[one.nbytes]
        if at is not None:
            raise refusal(
                module, function, one.index,
                f"{placement.layout} splits `{instruction.name}`, which accesses {plural(one.nbytes, 'byte')} of {array.title} at "
                f"once: those from byte {at} on would not be contiguous",
            )  # fmt: skip
        if array.is_dynamic and (array.first % one.nbytes or array.nbytes % one.nbytes):
            raise refusal(
                module, function, one.index,
                f"`{instruction.name}` accesses {plural(one.nbytes, 'byte')} at once, which may cross an end of {array.title}",
            )  # fmt: skip
        offset = constant_offset(one, instruction)
        if offset is not None and not array.is_dynamic and not 0 <= offset <= array.nbytes - one.nbytes:
            raise refusal(
                module, function, one.index,
                f"`{instruction.name}` accesses byte {offset} of {array.title}, which has only {plural(array.nbytes, 'byte')}",
            )  # fmt: skip


def _check_room(before: Module, after: Module, array: SharedArray, placement: Placement, functions: Mapping[str, Function]) -> None:
    """Raise RelayoutError if the layout makes static shared memory exceed its limit."""
    for kernel in after.kernels.values():
        whole = static_bytes(after, kernel)
        if whole > STATIC_SHARED_BYTES and whole > static_bytes(before, before.kernels[kernel.name]):
            raise RelayoutError(
                f"{placement.layout} takes {plural(placement.room, 'byte')} where {array.title} has {array.nbytes}, which makes "
                f"{plural(whole, 'byte')} of static shared memory in {kernel.title}; {STATIC_SHARED_BYTES} are allowed: use a layout "
                "without padding"
            )


def refusal(module: Module, function: Function, index: int, message: str) -> RelayoutError:
    """Return an error with the source line of an instruction."""
    instruction = list(function.instructions())[index]
    return RelayoutError(message, instruction.span, _origin(module, instruction.location))


def _origin(module: Module, location: Location | None) -> str:
    while location is not None and module.files.get(location.file) not in module.sources and location.inlined_into is not None:
        location = location.inlined_into
    return f"{module.files[location.file]}:{location.line}" if location is not None and location.file in module.files else ""


# -- tables and variables --------------------------------------------------------------------------------------------------------


def _look_ups(
    module: Module, placement: Placement, accesses: Sequence[ArrayAccess], tables: Tables
) -> tuple[dict[tuple[int, ...], LookUp], list[Variable]]:
    """Return how each table of the maps is read, and the variables that hold them."""
    if tables not in ("computed", "constant", "global"):
        raise RelayoutError(f"the tables of a layout are computed, or are in constant or global memory, not in {tables!r}")
    found: dict[tuple[int, ...], LookUp] = {}
    variables: list[Variable] = []
    numbers = count()
    for nbytes in sorted({one.nbytes for one in accesses}):
        for step in placement.program(nbytes).steps:
            values = step.part.value
            if step.part.op != "table" or values in found:
                continue
            assert isinstance(values, tuple)
            if tables == "computed" and can_be_computed(values):
                continue
            kind, size = next(
                (kind, size) for kind, size, most in (("u8", 1, 1 << 8), ("u16", 2, 1 << 16), ("u32", 4, 1 << 31)) if max(values) < most
            )
            name = next(name for name in (f"memlane_layout_{number}" for number in numbers) if name not in module.variables)
            space = "global" if tables == "global" else "const"
            found[values] = LookUp(name, space, kind, size)
            initial = "{" + ", ".join(map(str, values)) + "}"
            variables.append(Variable(space, kind, name, (len(values),), align=4, initial=initial))
    room = sum(one.nbytes for one in (*module.variables.values(), *variables) if one.space == "const")
    if tables != "global" and variables and room > CONSTANT_BYTES:
        raise RelayoutError(
            f"the tables of {placement.layout} would bring constant memory to {plural(room, 'byte')}, but it has {CONSTANT_BYTES:,}; pass "
            'tables="global"'
        )
    return found, variables


def _with_items(
    module: Module, array: SharedArray, placement: Placement, functions: Mapping[str, Function], tables: Sequence[Variable]
) -> Module:
    """Return the module with functions replaced, the array enlarged and the tables declared before everything else."""

    def enlarged(variable: Variable) -> Variable:
        return replace(variable, shape=(-(-max(placement.room, array.nbytes) // variable.element_bytes),))

    def item(one: Item) -> Item:
        return enlarged(one) if isinstance(one, Variable) and one.name in array.names else one

    if array.is_dynamic:
        return with_items(module, functions, tables)
    if array.function:
        declaring = functions.get(array.function, module.functions[array.function])
        return with_items(module, {**functions, array.function: _redeclared(declaring, array.names[0], enlarged)}, tables)
    return with_items(replace(module, items=tuple(map(item, module.items))), functions, tables)


def _redeclared(function: Function, name: str, enlarged: Callable[[Variable], Variable]) -> Function:
    """Return the function with its declaration of a variable enlarged."""
    assert function.body is not None

    def block(old: Block) -> Block:
        return Block(
            tuple(
                block(one) if isinstance(one, Block) else enlarged(one) if isinstance(one, Variable) and one.name == name else one
                for one in old.statements
            )
        )

    return replace(function, body=block(function.body))
