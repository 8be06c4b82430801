"""A kernel with one of its arrays in shared memory laid out otherwise, without its source."""

from __future__ import annotations

from typing import overload

import numpy as np
import numpy.typing as npt

from memlane.errors import RelayoutError
from memlane.launch import Kernel
from memlane.layout import Layout
from memlane.layout.array_spec import LayoutLike, array_layout
from memlane.measure.twin import load_twin, rebound_to
from memlane.ptx import Module
from memlane.rewrite import relayout_module
from memlane.rewrite.parameters import relayout_parameter
from memlane.rewrite.relayout import Tables

Shared = str | tuple[int, int] | None
"""An array by name, a range of bytes of the dynamic part, or the only one there is."""


@overload
def relayout(
    kernel: Kernel,
    layout: LayoutLike,
    *,
    shared: Shared = None,
    element_bytes: int | None = None,
    tables: Tables = "computed",
    parameter: int | str | None = None,
    shape: tuple[int, ...] | None = None,
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
    shape: tuple[int, ...] | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Kernel | Module:
    """The kernel, every access of which to one array goes through `layout`; to be launched as the original.

        quick = ml.relayout(tiled, XorSwizzle(32, 32), shared="tile")
        quick[grid, block](out, a, n)
        turned = ml.relayout(assign, "column-major", parameter=0, shape=(n, 34), dtype="f4")
        turned[grid, block](ml.upload(target, points, layout="column-major"), centres, members, n, 34, 5)

    In shared memory: `kernel` is a kernel on a target, or a module, all of whose kernels that use the array are changed. `shared` is the
    array: its name in the source (`"tile"`, `"tiled::tile"`) or in PTX, `"dynamic[0:4096]"` or (0, 4096) for a range of bytes of the
    dynamic part; it may be left out where there is only one. `layout` is a layout of the array, or of a tile of which the array has several
    one behind the other; `element_bytes` are those of an element, by default what the array has for each of the layout. A layout that takes
    more room enlarges the array. Small tables of a layout are put together from immediate operands, others lie in constant
    memory; with `tables="constant"` all do, with `tables="global"` they lie in global memory.

    In global memory: `parameter` is the position or PTX name of the pointer to the array, which has `shape` and `dtype`; `layout` is what
    `ml.upload` takes. The array has to lie in that layout when the kernel runs, and no other argument may lead to it.

    The result has the names and lines of the original, and works on the variables of its module (its constants are those of now). Raises
    RelayoutError, with the line, where the address of the array escapes, an access is torn, or there is not enough room.
    """
    if parameter is not None:
        return _of_parameter(kernel, layout, parameter, shape, dtype)
    if not isinstance(layout, Layout):
        raise RelayoutError(f"a layout is wanted, such as memlane.layout.XorSwizzle(32, 32), got {layout!r}")
    if isinstance(kernel, Module):
        return relayout_module(kernel, layout, shared=shared, element=element_bytes, tables=tables).module
    if not isinstance(kernel, Kernel):
        raise RelayoutError(f"a kernel of a loaded module or a module is wanted, got a {type(kernel).__name__}")
    changed = relayout_module(kernel.module, layout, shared=shared, kernel=kernel.name, element=element_bytes, tables=tables)
    return loaded_beside(kernel, changed.module)


def _of_parameter(
    kernel: object, layout: LayoutLike, parameter: int | str, shape: tuple[int, ...] | None, dtype: npt.DTypeLike | None
) -> Kernel:
    if not isinstance(kernel, Kernel):
        raise RelayoutError(f"a kernel of a loaded module is wanted to lay out an array behind a parameter, got a {type(kernel).__name__}")
    if shape is None or dtype is None:
        raise RelayoutError("PTX knows neither the shape nor the type of an array: say shape= and dtype= of the one behind the parameter")
    changed = relayout_parameter(kernel.module, kernel.name, parameter, array_layout(layout, tuple(shape)), np.dtype(dtype).itemsize)
    return loaded_beside(kernel, changed.module)


def loaded_beside(kernel: Kernel, changed: Module) -> Kernel:
    """The kernel of a changed module, loaded where the original is, and working on its variables."""
    twin = load_twin(kernel.loaded, rebound_to(kernel.loaded, changed))
    twin.copy_constants()
    return twin.loaded[kernel.name]
