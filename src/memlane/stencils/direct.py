"""Kernels of one step: each thread has a vector of cells along x and marches along z with the planes that it needs again in registers.

Rows of neighbours come through the L1 cache. Boundaries are handled where values are read, so there is no pass of their own for them.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil, prod

from memlane.stencils.access import access_functions, call, combined, each, indented, shifted, store_row
from memlane.stencils.cell import (
    GENERATED,
    REGISTER,
    STORED,
    CellFunction,
    ascribed,
    plain,
    scalar_name,
    scalar_names,
)
from memlane.stencils.geometry import Geometry
from memlane.stencils.problem import Problem
from memlane.stencils.rows import RowRegisters
from memlane.stencils.rule import Rule
from memlane.stencils.variant import WARP, Variant


class DirectKernel:
    """The text of a kernel that makes one step by one rule."""

    def __init__(self, problem: Problem, rule: Rule, variant: Variant, *, fmad: bool = True, reduces: bool = False) -> None:
        self.problem, self.rule, self.variant = problem, rule, variant
        self.geometry = Geometry(problem, rule)
        self.cell = CellFunction(problem, rule, fmad, reduces and bool(rule.reductions))
        self.registers = RowRegisters(self.geometry, variant)
        self.reductions = self.cell.reductions
        self.name = f"{plain(rule.name)}_{'reducing' if self.reductions else 'step'}"

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along x, y and z."""
        nz, ny, nx = self.geometry.extents
        (bx, by), one = self.variant.block, self.variant
        return ceil(nx / (bx * one.vector)), ceil(ny / by), ceil(nz / one.planes)

    @property
    def block(self) -> tuple[int, int]:
        return self.variant.block

    shared_bytes = 0
    """Dynamic shared memory of a block."""

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    @property
    def finish_name(self) -> str:
        """The kernel that reduces the partial values of the blocks."""
        return f"{plain(self.rule.name)}_finish"

    @property
    def inputs(self) -> list[str]:
        return list(self.geometry.reads())

    @property
    def outputs(self) -> list[str]:
        return list(self.rule.writes)

    @cached_property
    def text(self) -> str:
        """The definition of the kernel and of the functions that it calls."""
        return "\n".join(
            [
                f"// {self.rule.name}: {self.variant}",
                *self.geometry.constants(),
                *access_functions(self.geometry, [self.problem.dtype(name) for name in self.rule.fields]),
                self.cell.text,
                *self._signature(),
                *indented(self._position(), 1),
                *indented(self._body(), 1),
                *indented(self._reduction(), 1),
                "}",
                "",
            ]
        )

    # -- parts -------------------------------------------------------------------------------------------------------------------

    def _signature(self) -> list[str]:
        dtype = self.problem.dtype
        given = [f"{STORED[dtype(name)]}* __restrict__ {plain(name)}_field" for name in self.outputs]
        given += [f"const {STORED[dtype(name)]}* __restrict__ {plain(name)}_field" for name in self.inputs]
        given += [f"const {REGISTER[self.problem.grid.dtype]}* __restrict__ scalars, int step"]
        given += ["double* __restrict__ partial"] if self.reductions else []
        bx, by = self.block
        return [f'extern "C" __global__ void __launch_bounds__({bx * by})', f"{self.name}({', '.join(given)}) {{"]

    def _position(self) -> list[str]:
        by = self.block[1]
        lines = [
            *self._block_order(),
            *self._columns(),
            f"const int y = block_y * {by} + threadIdx.y;",
            f"const int first = block_z * {self.variant.planes}, end = min(first + {self.variant.planes}, NZ);",
            *scalar_loads(self.problem, self.rule),
        ]
        for name, kind in self.reductions.items():
            lines.append(f"double {plain(name)}_total = {_START[kind]};")
        return lines

    def _block_order(self) -> list[str]:
        """Return which part of the grid a block has: blocks start in the order of their numbers."""
        (x, y, z), group = self.grid, self.variant.group
        if not 0 < group < y or self.blocks >= 1 << 31:
            return ["const int block_x = blockIdx.x, block_y = blockIdx.y, block_z = blockIdx.z;"]
        return [
            "const int number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);",
            f"const int before = number / {x * group * z} * {group}, together = min({group}, {y} - before);",
            f"const int within = number % {x * group * z};",
            f"const int block_x = within % {x}, block_y = before + within / {x} % together, block_z = within / ({x} * together);",
        ]

    def _columns(self) -> list[str]:
        bx, vector = self.block[0], self.variant.vector
        if not self.registers.shuffles:
            return [f"const int x0 = (block_x * {bx} + threadIdx.x) * {vector};", "const bool active = x0 < NX;"]
        last = (self.geometry.extents[2] - 1) // vector * vector
        return [
            f"const int column = (block_x * {bx} + threadIdx.x) * {vector}, lane = threadIdx.x % {WARP};",
            "const bool active = column < NX;  // the other lanes of a warp take part in its shuffles",
            f"const int x0 = min(column, {last});",
            f"const bool leftmost = lane == 0, rightmost = lane == {WARP - 1} || column + {vector} >= NX;  // without a neighbouring lane",
            f"const int behind = min(column + ({WARP} - lane) * {vector}, {last + vector});  // the first cell after those of the warp",
            *(f"const int beside_{one} = leftmost ? column - {one} : {shifted('behind', one - 1)};" for one in self.registers.distances()),
        ]

    def _body(self) -> list[str]:
        lines = ["if (y < NY) {" if self.registers.shuffles else "if (active && y < NY) {"]
        lines += indented(self.registers.declared(), 1)
        lines += [f"#pragma unroll {self.variant.unroll}"] if self.variant.unroll > 1 else []
        lines += ["    for (int z = first; z < end; ++z) {"]
        lines += indented([*self.registers.loads("z", newest=True), *self._compute(), *self.registers.shift()], 2)
        return [*lines, "    }", "}"]

    def _compute(self) -> list[str]:
        vector = self.variant.vector
        lines = [f"{kind} {plain(name)}_value[{vector}];" for name, kind in self.cell.results()]
        lines += ["#pragma unroll", f"for (int c = 0; c < {vector}; ++c) {{"]
        values = [self.registers.value(name, self.geometry.offsets(offsets)) for name, offsets in self.cell.arguments()]
        values += scalar_names(self.rule)
        values += [f"{plain(name)}_value[c]" for name, _ in self.cell.results()]
        lines += indented(call(f"{plain(self.rule.name)}_cell", values), 1)
        lines.append("}")
        return [*lines, *self._stores(), *self._accumulate()]

    def _updated(self) -> str:
        """Return the condition under which cell c of the thread is updated; empty where all are."""
        return " && ".join(test for axis, at in enumerate(("z", "y", "x0 + c")) for test in self.geometry.kept_test(axis, at))

    def _all_updated(self) -> str:
        """Return the condition under which all cells of the thread are updated."""
        (low, high), vector = self.geometry.fixed[2], self.variant.vector
        tests = [*self.geometry.kept_test(0, "z"), *self.geometry.kept_test(1, "y")]
        tests += [f"x0 >= {low}"] if low else []
        return " && ".join([*tests, *([f"x0 + {vector} <= NX - {high}"] if high else [])])

    def _stores(self) -> list[str]:
        lines, vector = [], self.variant.vector
        for name in self.rule.writes:
            line = next(one.line for one in self.rule.body if one.is_field and one.name == name)
            updated = self._updated()
            previous = self.problem.previous.get(name)
            if updated and previous is None:
                lines += self._scalar_stores(name, line, updated)
                continue
            if updated and previous is not None:
                kept = self.registers.value(previous, (0, 0, 0))
                lines += [f"if (!({self._all_updated()})) {{"]
                lines += indented(each(vector, f"if (!({updated})) {plain(name)}_value[c] = {kept};"), 1)
                lines.append("}")
            stores = store_row(self.problem.dtype(name), f"{plain(name)}_field", f"{plain(name)}_value", ("z", "y", "x0"), vector)
            lines += ["if (active) {", *ascribed(self.rule, line, indented(stores, 1)), "}", GENERATED]
        return lines

    def _scalar_stores(self, name: str, line: int, updated: str) -> list[str]:
        to = f"{plain(name)}_field[z * PLANE + y * PITCH + x0 + c]"
        store = f"if (active && x0 + c < NX && {updated}) narrow({to}, {plain(name)}_value[c]);"
        return [*ascribed(self.rule, line, each(self.variant.vector, store)), GENERATED]

    def _accumulate(self) -> list[str]:
        tests = [one for one in ("active", self._updated(), "x0 + c < NX" if self.geometry.extents[2] % self.variant.vector else "") if one]
        lines = []
        for name, kind in self.reductions.items():
            added = combined(kind, f"{plain(name)}_total", f"{plain(name)}_value[c]")
            lines += each(self.variant.vector, f"if ({' && '.join(tests)}) {plain(name)}_total = {added};")
        return lines

    def _reduction(self) -> list[str]:
        bx, by = self.block
        lines = []
        for position, (name, kind) in enumerate(self.reductions.items()):
            lines += [
                f"block_reduce_{kind}<{bx * by}>({plain(name)}_total, threadIdx.y * {bx} + threadIdx.x);",
                f"if (threadIdx.x == 0 && threadIdx.y == 0) partial[{position}LL * gridDim.x * gridDim.y * gridDim.z",
                f"    + (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = {plain(name)}_total;",
            ]
        return lines


_START = {"sum": "0.0", "min": "__longlong_as_double(0x7ff0000000000000LL)", "max": "__longlong_as_double(0xfff0000000000000ULL)"}


def scalar_loads(problem: Problem, rule: Rule) -> list[str]:
    """Return the loads of a step's scalars, which lie side by side in the order of the problem."""
    places, count = {}, 0
    for name, length in problem.scalars.items():
        places[name] = count
        count += 1 if length is None else length
    lines = []
    for name, length in rule.scalars.items():
        for index in range(1 if length is None else length):
            variable = scalar_name(name, None if length is None else index)
            at = f"step * {count} + {places[name] + index}"
            lines.append(f"const {REGISTER[problem.grid.dtype]} {variable} = scalars[{at}];")
    return lines
