"""Change the layout of one of a kernel's arrays in the compiled code, without its source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import overload

import numpy as np
import numpy.typing as npt

from memlane.compile import parameter_names
from memlane.errors import BadLaunch, RelayoutError
from memlane.launch import Argument, DeviceArray, Kernel, pointer_parameters
from memlane.layout import ArrayLayout, Fields, Layout, same_places
from memlane.layout.array_spec import LayoutLike, array_layout, words_of_structure
from memlane.measure.twin import load_twin, rebound_to
from memlane.number_format import plural
from memlane.ptx import Module
from memlane.rewrite import relayout_module
from memlane.rewrite.parameters import relayout_parameter
from memlane.rewrite.relayout import Tables
from memlane.transfer import LaidOutArray

Shared = str | tuple[int, int] | None
"""An array by name, a byte range of the dynamic part, or None for the only array."""


@overload
def relayout(
    kernel: Kernel,
    layout: LayoutLike,
    *,
    shared: Shared = None,
    element_bytes: int | None = None,
    tables: Tables = "computed",
    parameter: int | str | None = None,
    shape: int | tuple[int, ...] | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Kernel: ...
@overload
def relayout(
    kernel: Module,
    layout: LayoutLike,
    *,
    shared: Shared = None,
    element_bytes: int | None = None,
    tables: Tables = "computed",
) -> Module: ...
def relayout(
    kernel: Kernel | Module,
    layout: LayoutLike,
    *,
    shared: Shared = None,
    element_bytes: int | None = None,
    tables: Tables = "computed",
    parameter: int | str | None = None,
    shape: int | tuple[int, ...] | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Kernel | Module:
    """Return the kernel with every access to one array mapped through `layout`. Launch it as the original.

        quick = ml.relayout(tiled, XorSwizzle(32, 32), shared="tile")
        quick[grid, block](out, a, n)

        turned = ml.relayout(assign, "column-major", parameter=0, shape=(n, 34), dtype="f4")
        turned[grid, block](ml.upload(target, points, layout="column-major"), centres, members, n, 34, 5)

    In shared memory: `kernel` is a kernel on a target, or a module, all of whose kernels that use the array are changed. `shared` is the
    array: its name in the source (`"tile"`, `"tiled::tile"`) or in PTX, `"dynamic[0:4096]"` or (0, 4096) for a byte range of the dynamic
    part; optional if there is only one. `layout` is a layout of the array, or of a tile if the array holds several consecutive tiles;
    `element_bytes` is the size of an element, by default the array's bytes per element of the layout. A layout that needs more room
    enlarges the array. Small tables of a layout become immediate operands, others lie in constant memory; `tables="constant"` puts all
    there, `tables="global"` all in global memory.

    In global memory: `parameter` is the argument that points to the array, which has `shape` and `dtype`: its position, or its name in the
    source (or in PTX); `layout` is what `ml.upload` takes. A structured `dtype` has the structures' fields. The array must have that layout
    when the kernel runs, and no other argument may point to it: launches that violate this raise BadLaunch.

    The result has the names and lines of the original, and works on the variables of its module (with copies of the current constants).
    Raises RelayoutError, with the line, if the address of the array escapes, an access would be split, or there is not enough room.
    """
    if parameter is not None:
        return _of_parameter(kernel, layout, parameter, shape, dtype)
    if not isinstance(layout, Layout):
        raise RelayoutError(f"pass a layout such as memlane.layout.XorSwizzle(32, 32), got {layout!r}")
    if isinstance(kernel, Module):
        return relayout_module(kernel, layout, shared=shared, element=element_bytes, tables=tables).module
    if not isinstance(kernel, Kernel):
        raise RelayoutError(f"pass a kernel of a loaded module, or a module, not a {type(kernel).__name__}")
    changed = relayout_module(kernel.module, layout, shared=shared, kernel=kernel.name, element=element_bytes, tables=tables)
    return loaded_beside(kernel, changed.module)


def _of_parameter(
    kernel: object, layout: LayoutLike, parameter: int | str, shape: int | tuple[int, ...] | None, dtype: npt.DTypeLike | None
) -> Kernel:
    if not isinstance(kernel, Kernel):
        raise RelayoutError(
            f"to change the layout of an array behind a parameter, pass a kernel of a loaded module, not a {type(kernel).__name__}"
        )
    if shape is None or dtype is None:
        raise RelayoutError("PTX has neither the shape nor the type of an array: pass shape= and dtype= of the array behind the parameter")
    extents, kind = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
    if kind.fields is not None and layout in ("soa", "column-major"):  # the layout that `ml.upload` gives structures
        kind, widths = words_of_structure(kind)
        layout = Fields((prod(extents), sum(widths)), widths)
        extents = layout.shape
    found, element = array_layout(layout, extents), kind.itemsize
    position, name = argument_of(kernel, parameter)
    changed = relayout_parameter(kernel.module, kernel.name, name, found, element)
    place = [one.name for one in kernel.function.params].index(name)
    rule = kernel.rule if isinstance(kernel.rule, RemappedArguments) else RemappedArguments(kernel.title, ())
    one = RemappedArgument(position, place, found, element, changed.alignment)
    return replace(loaded_beside(kernel, changed.module), rule=replace(rule, arrays=(*rule.arrays, one)))


def argument_of(kernel: Kernel, wanted: int | str) -> tuple[int, str]:
    """Return the position of a kernel's argument, and the PTX name of the parameter that holds its address.

    `wanted` is the position, the name in the source if known, or the name in PTX. Raises RelayoutError.
    """
    function, names = kernel.function, parameter_names(kernel.module, kernel.function)
    inside = [one.name for one in function.params]
    count = len(function.convention.arguments) if function.convention is not None else len(inside)
    pointers = pointer_parameters(function.params, function.convention, [True] * count) or []
    if isinstance(wanted, str):
        if wanted in inside:
            return next((at for at, place in enumerate(pointers) if place == inside.index(wanted)), 0), wanted
        if wanted not in names:
            listed = ", ".join(one for one in names if one) or ", ".join(inside)
            raise RelayoutError(f"{function.title} has no parameter {wanted!r}; it has: {listed or 'none'}")
        wanted = names.index(wanted)
    if isinstance(wanted, bool) or not 0 <= wanted < count:
        raise RelayoutError(f"{function.title} has parameters 0 to {count - 1}, no {wanted}")
    place = pointers[wanted]
    assert place is not None
    return wanted, inside[place]


@dataclass(frozen=True)
class RemappedArgument:
    """An argument whose array must have a given layout."""

    position: int
    parameter: int
    """Position of the PTX parameter that holds its address."""
    layout: ArrayLayout
    element_bytes: int
    alignment: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array in its layout."""
        return self.layout.size * self.element_bytes


@dataclass(frozen=True)
class RemappedArguments:
    """Check of the arguments of a kernel with remapped arrays: each has its layout, and no other argument points to it."""

    title: str
    arrays: tuple[RemappedArgument, ...]

    def values(self, values: tuple[object, ...]) -> tuple[object, ...]:
        """Return the values with remapped arrays in the shape that the kernel computes with."""
        given = list(values)
        for one in self.arrays:
            value = given[one.position]
            if not isinstance(value, LaidOutArray) or value.layout is None:
                continue
            if not same_places(value.layout, one.layout):
                raise BadLaunch(
                    f"argument {one.position + 1} of {self.title} has the layout {value.layout}, but the kernel was changed for "
                    f"{one.layout}: upload the array in that layout"
                )
            given[one.position] = DeviceArray(value.target, value.address, one.layout.shape, value.dtype, value)
        return tuple(given)

    def packed(self, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """Return the arguments with all the memory of remapped arrays. Raises BadLaunch for too small, misaligned or aliased arrays."""
        found = list(arguments)
        for one in self.arrays:
            argument = found[one.parameter]
            if argument.memory is None:
                continue
            address, nbytes = argument.memory
            owner = argument.owner
            room = owner.nbytes if isinstance(owner, LaidOutArray) and owner.address == address else nbytes
            if room < one.nbytes:
                raise BadLaunch(
                    f"argument {one.position + 1} of {self.title} has {plural(room, 'byte')}, and {one.layout} takes {one.nbytes:,}: "
                    "upload the array in that layout"
                )
            if address % one.alignment:
                raise BadLaunch(
                    f"argument {one.position + 1} of {self.title} begins at {address:#x}, but the kernel accesses "
                    f"{plural(one.alignment, 'byte')} at once and needs an array that begins at a multiple of that size"
                )
            found[one.parameter] = replace(argument, memory=(address, room))
        self._check_apart(found)
        return tuple(found)

    def _check_apart(self, arguments: list[Argument]) -> None:
        for one in self.arrays:
            mine = arguments[one.parameter].memory
            for place, other in enumerate(arguments):
                theirs = other.memory
                if place == one.parameter or mine is None or theirs is None:
                    continue
                if (
                    theirs[0] < mine[0] + one.nbytes
                    and mine[0] < theirs[0] + theirs[1]
                    and not self._agrees(one, place, mine[0], theirs[0])
                ):
                    raise BadLaunch(
                        f"the array of parameter {place} of {self.title}, {other.text}, overlaps with that of parameter "
                        f"{one.parameter}, which has the layout {one.layout}: the kernel would look for its elements in the wrong "
                        "places through the other parameter; pass separate arrays, or give both parameters the same layout"
                    )

    def _agrees(self, one: RemappedArgument, place: int, mine: int, theirs: int) -> bool:
        """Return whether another parameter points to the same array and is changed for the same layout."""
        other = next((array for array in self.arrays if array.parameter == place), None)
        return other is not None and mine == theirs and other.element_bytes == one.element_bytes and other.layout == one.layout


def loaded_beside(kernel: Kernel, changed: Module) -> Kernel:
    """Return the kernel of a changed module, loaded on the original's target and bound to its variables."""
    twin = load_twin(kernel.loaded, rebound_to(kernel.loaded, changed))
    twin.copy_constants()
    return twin.loaded[kernel.name]
