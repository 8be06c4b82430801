"""Generate kernels of one step: each thread marches along z with a vector of cells along x, and keeps planes that it reuses in registers.

Rows of neighbours come through the L1 cache. Boundary conditions are applied where values are read, without a separate pass.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil, prod

from memlane.stencils.access import (
    access_functions,
    call,
    combined,
    each,
    either,
    indented,
    march,
    march_begins,
    range_parameters,
    shifted,
    store_row,
)
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
from memlane.stencils.geometry import Geometry, range_name
from memlane.stencils.problem import Problem
from memlane.stencils.rows import RowRegisters
from memlane.stencils.rule import Rule
from memlane.stencils.sums import WORDS, words_of
from memlane.stencils.variant import WARP, Variant


class DirectKernel:
    """Text of a kernel that makes one step of one rule."""

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
        return self.grid_of(self.geometry.extents[0])

    def grid_of(self, planes: int, rows: int | None = None, cells: int | None = None) -> tuple[int, int, int]:
        """Return the blocks along x, y and z of a launch for so many planes, rows per plane and cells per row; by default for all."""
        _, ny, nx = (full if given is None else given for full, given in zip(self.geometry.extents, (planes, rows, cells), strict=True))
        (bx, by), one = self.variant.block, self.variant
        return ceil(nx / (bx * one.vector)), ceil(ny / (by * one.rows)), ceil(planes / one.planes)

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
    def words(self) -> dict[str, int]:
        """Number of words of 8 bytes of each reduction, in order."""
        return words_of(self.reductions, self.problem.exact_sums)

    @property
    def word_count(self) -> int:
        return sum(self.words.values())

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
                *self.geometry.constants(clamped=self.variant.rows > 1 or self._overruns),
                *access_functions(self.geometry, [self.problem.dtype(name) for name in self.rule.fields]),
                self.cell.text,
                *self._signature(),
                *indented(self._position(), 1),
                *indented(self._body(), 1),
                *indented(self._reduction(), 1),
                *indented(self._ending(), 1),
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
        given += range_parameters(self.geometry)
        given += ["double* __restrict__ partial"] if self.reductions else []
        given += self._more_parameters()
        bx, by = self.block
        return [f'extern "C" __global__ void __launch_bounds__({bx * by})', f"{self.name}({', '.join(given)}) {{"]

    def _more_parameters(self) -> list[str]:
        """Return additional parameters at the end of the kernel's list."""
        return []

    def _ending(self) -> list[str]:
        """Return the code that all threads of a block execute at the end."""
        return []

    def _places(self, name: str) -> list[tuple[str, str]]:
        """Return the destinations of a thread's cells of a field: pointers, each with the condition of the store."""
        return [(f"{plain(name)}_field", self._writes)]

    def _position(self) -> list[str]:
        by, rows = self.block[1], self.variant.rows
        lines = [
            *self._block_order(),
            *self._columns(),
            f"const int y = {self.geometry.begin(1)}"
            + (f"(block_y * {by} + threadIdx.y) * {rows};" if rows > 1 else f"block_y * {by} + threadIdx.y;"),
            march(self.geometry, "block_z", self.variant.planes),
            *march_begins(self.geometry, [*self.outputs, *self.inputs]),
            *scalar_loads(self.problem, self.rule),
        ]
        if self.geometry.keeps_cells:
            whose = "warp" if self._apart and self.registers.shuffles else "thread"
            lines.append(f"const bool is_inner = {self._is_inner()};  // no boundary along x and y keeps a cell of this {whose}")
        for name, kind in self.reductions.items():
            lines += self._exact_start(name) if self._is_exact(kind) else [f"double {plain(name)}_total = {_START[kind]};"]
        return lines

    def _is_exact(self, kind: str) -> bool:
        return self.problem.exact_sums and kind == "sum"

    def _exact_start(self, name: str) -> list[str]:
        bx, by = self.block
        thread = f"threadIdx.y * {bx} + threadIdx.x"
        words = f"{plain(name)}_words"
        return [
            f"__shared__ unsigned long long {words}[{WORDS}];",
            f"for (int i = {thread}; i < {WORDS}; i += {bx * by}) {words}[i] = 0;",
            "__syncthreads();",
            f"ExactSum {plain(name)}_total;",
        ]

    def _block_order(self) -> list[str]:
        """Return the code that maps a block's number, which determines the order of starts, to its part of the grid."""
        (x, y, _), group = self.grid, self.variant.group
        if any(self.geometry.cut[1:]):
            group = 0  # the number of blocks differs between launches
        if not 0 < group < y or self.blocks >= 1 << 31:
            return ["const int block_x = blockIdx.x, block_y = blockIdx.y, block_z = blockIdx.z;"]
        return [
            "const int number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);",
            f"const int of_group = {x * group} * gridDim.z, before = number / of_group * {group}, together = min({group}, {y} - before);",
            "const int within = number % of_group;",
            f"const int block_x = within % {x}, block_y = before + within / {x} % together, block_z = within / ({x} * together);",
        ]

    def _columns(self) -> list[str]:
        bx, vector = self.block[0], self.variant.vector
        begin, end = self.geometry.begin(2), self.geometry.end(2)
        if not self.registers.shuffles:
            return [f"const int x0 = {begin}(block_x * {bx} + threadIdx.x) * {vector};", f"const bool active = x0 < {end};"]
        whole = (self.geometry.extents[2] - 1) // vector * vector
        lanes = f"lane == {WARP - 1} || column + {vector} >= {end}"
        last, after = (f"({end} - 1 & -{vector})", f"({end} - 1 & -{vector}) + {vector}") if begin else (f"{whole}", f"{whole + vector}")
        return [
            f"const int column = {begin}(block_x * {bx} + threadIdx.x) * {vector}, lane = threadIdx.x % {WARP};",
            f"const bool active = column < {end};  // the other lanes of a warp take part in its shuffles",
            f"const int x0 = min(column, {last});",
            f"const bool leftmost = lane == 0, rightmost = {lanes};  // without a neighbouring lane",
            f"const int behind = min(column + ({WARP} - lane) * {vector}, {after});  // the first cell after those of the warp",
            *(f"const int beside_{one} = leftmost ? column - {one} : {shifted('behind', one - 1)};" for one in self.registers.distances()),
        ]

    def _body(self) -> list[str]:
        is_there = f"y < {self.geometry.end(1)}"
        lines = [f"if ({is_there}) {{" if self.registers.shuffles else f"if (active && {is_there}) {{"]
        lines += indented(self.registers.declared(), 1)
        update = self._update(near=not self.geometry.keeps_cells)
        if self._apart:
            update = either(self._near, self._update(near=True), update)
        results = [f"{kind} {plain(name)}_value{self._each_row}[{self.variant.vector}];" for name, kind in self.cell.results()]
        turn = [*self.registers.loads("z", newest=True), *results, *update, *self.registers.shift()]
        if self.variant.unroll == 1:
            return [*lines, "    for (int z = first; z < end; ++z) {", *indented(turn, 2), "    }", "}"]
        return [
            *lines,
            f"    for (int group = first; group < end; group += {self.variant.unroll}) {{"
            + ("  // the last turns may be too many" if self._overruns else ""),
            "#pragma unroll",
            f"        for (int u = 0; u < {self.variant.unroll}; ++u) {{  // so that each plane stays in its registers",
            "            const int z = group + u;",
            *indented(turn, 3),
            "        }",
            "    }",
            "}",
        ]

    @property
    def _overruns(self) -> bool:
        """Whether the last turns of an unrolled loop may lie after the end of the march."""
        extent, one = self.geometry.extents[0], self.variant
        return one.unroll > 1 and (one.planes % one.unroll != 0 or extent % one.planes != 0 or self.geometry.cut[0])

    @property
    def _writes(self) -> str:
        """Return the condition under which a thread has cells."""
        return "active && z < end" if self._overruns else "active"

    @property
    def _apart(self) -> bool:
        """Whether warps at a boundary have separate code. Where planes stay in their registers, a branch inside the common code would move
        registers; elsewhere the branch costs less than the longer code."""
        return self.geometry.keeps_cells and self.variant.unroll > 1

    @property
    def _near(self) -> str:
        """Return the condition under which no cell of the thread is kept by a boundary."""
        return " && ".join(["is_inner", *self.geometry.kept_test(0, "z")])

    @property
    def _each_row(self) -> str:
        return f"[{self.variant.rows}]" if self.variant.rows > 1 else ""

    def _result(self, name: str, row: int) -> str:
        """Return the name of the array of results of a row of the thread."""
        return f"{plain(name)}_value" + (f"[{row}]" if self.variant.rows > 1 else "")

    def _update(self, near: bool) -> list[str]:
        """Return the update of all cells of a thread and its stores; with `near`, no boundary keeps any of the cells."""
        lines = self._computed()
        for row in range(self.variant.rows):
            updated = "" if near else self._updated(row)
            last = [*self._stores(row, updated), *self._accumulate(row, updated)]
            behind = self._may_be_behind(row)
            lines += [f"if ({shifted('y', row)} < {self.geometry.end(1)}) {{", *indented(last, 1), "}"] if behind else last
        return lines

    def _computed(self) -> list[str]:
        """Return the calls that compute all cells of a thread."""
        lines = []
        for row in range(self.variant.rows):
            lines += ["#pragma unroll", f"for (int c = 0; c < {self.variant.vector}; ++c) {{"]
            values = [self.registers.value(name, self.geometry.offsets(offsets), row) for name, offsets in self.cell.arguments()]
            values += scalar_names(self.rule)
            values += [f"{self._result(name, row)}[c]" for name, _ in self.cell.results()]
            lines += [*indented(call(f"{plain(self.rule.name)}_cell", values), 1), "}"]
        return lines

    def _may_be_behind(self, row: int) -> bool:
        """Return whether a row of a thread may lie after those that a launch computes."""
        return row > 0 and (self.geometry.cut[1] or self.geometry.extents[1] % self.variant.rows != 0)

    def _updated(self, row: int) -> str:
        """Return the condition under which cell c of a row of the thread is updated; empty if it always is."""
        place = enumerate(("z", shifted("y", row), "x0 + c"))
        return " && ".join(test for axis, at in place for test in self.geometry.kept_test(axis, at))

    def _is_inner(self) -> str:
        """Return the condition under which no cell of the thread, or of its warp, is kept by a boundary along x or y."""
        (low, high), vector = self.geometry.fixed[2], self.variant.vector
        tests = [test for row in (0, self.variant.rows - 1) for test in self.geometry.kept_test(1, shifted("y", row))]
        tests += [f"x0 >= {low}"] if low else []
        tests += [f"x0 + {vector} <= NX - {high}"] if high else []
        inner = " && ".join(dict.fromkeys(tests)) or "true"
        return f"__all_sync(0xffffffff, {inner})" if self._apart and self.registers.shuffles else inner

    def _stores(self, row: int, updated: str) -> list[str]:
        lines, vector, y = [], self.variant.vector, shifted("y", row)
        for name in self.rule.writes:
            line = next(one.line for one in self.rule.body if one.is_field and one.name == name)
            value = self._result(name, row)
            previous = self.problem.previous.get(name)
            if updated and previous is None:
                for field, writes in self._places(name):
                    to = f"{field}[z * PLANE + ({y}) * PITCH + x0 + c]"
                    store = f"if ({writes} && x0 + c < NX && {updated}) narrow({to}, {value}[c]);"
                    lines += [*ascribed(self.rule, line, each(vector, store)), GENERATED]
                continue
            if updated and previous is not None:
                kept = self.registers.value(previous, (0, 0, 0), row)
                replaced = each(vector, f"if (!({updated})) {value}[c] = {kept};")
                lines += replaced if self._apart else [f"if (!({self._near})) {{", *indented(replaced, 1), "}"]
            for field, writes in self._places(name):
                stores = store_row(self.problem.dtype(name), field, value, ("z", y, "x0"), vector)
                lines += [f"if ({writes}) {{", *ascribed(self.rule, line, indented(stores, 1)), "}", GENERATED]
        return lines

    def _accumulate(self, row: int, updated: str) -> list[str]:
        ragged = self.geometry.extents[2] % self.variant.vector
        cells = f"x0 + c >= {range_name(3, 2)} && x0 + c < {self.geometry.end(2)}" if self.geometry.cut[2] else "x0 + c < NX"
        tests = [one for one in (self._writes, updated, cells if ragged or self.geometry.cut[2] else "") if one]
        lines = []
        for name, kind in self.reductions.items():
            total, value = f"{plain(name)}_total", f"{self._result(name, row)}[c]"
            added = f"{total}.add({value}, {plain(name)}_words)" if self._is_exact(kind) else f"{total} = {combined(kind, total, value)}"
            lines += each(self.variant.vector, f"if ({' && '.join(tests)}) {added};")
        return lines

    def _reduction(self) -> list[str]:
        bx, by = self.block
        thread, lines, position = f"threadIdx.y * {bx} + threadIdx.x", [], 0
        blocks = "gridDim.x * gridDim.y * gridDim.z"
        block = "(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x"
        for name, kind in self.reductions.items():
            total, words = f"{plain(name)}_total", f"{plain(name)}_words"
            if self._is_exact(kind):
                lines += [
                    f"{total}.spill({words});",
                    "__syncthreads();",
                    f"if (threadIdx.x == 0 && threadIdx.y == 0) carry_words({words});",
                    "__syncthreads();",
                    f"for (int i = {thread}; i < {WORDS}; i += {bx * by})",
                    f"    partial[({position}LL + i) * {blocks} + {block}] = __longlong_as_double((long long){words}[i]);",
                ]
            else:
                lines += [
                    f"block_reduce_{kind}<{bx * by}>({total}, {thread});",
                    f"if (threadIdx.x == 0 && threadIdx.y == 0) partial[{position}LL * {blocks}",
                    f"    + {block}] = {total};",
                ]
            position += self.words[name]
        return lines


_START = {"sum": "0.0", "min": "__longlong_as_double(0x7ff0000000000000LL)", "max": "__longlong_as_double(0xfff0000000000000ULL)"}


def scalar_loads(problem: Problem, rule: Rule) -> list[str]:
    """Return the loads of a step's scalars, which are contiguous in the order of the problem."""
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
