"""Kernels of one step: each thread has a vector of cells along x and marches along z with the planes that it needs again in registers.

Rows of neighbours come through the L1 cache. Boundaries are handled where values are read, so there is no pass of their own for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from memlane.stencils.access import access_functions, call, combined, each, indented, load_cell, load_row, shifted, store_row
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
from memlane.stencils.expression import Read, parts
from memlane.stencils.geometry import Geometry, Offset3, itemsize
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule

WARP = 32


@dataclass(frozen=True)
class Variant:
    """How a kernel of a rule is cut: what changes its speed and not its result."""

    vector: int = 4
    """Cells along x of a thread."""
    block: tuple[int, int] = (32, 8)
    """Threads of a block along x and y."""
    planes: int = 8
    """Planes along z through which a block marches."""
    rows: int = 1
    """Rows along y of a thread, in kernels of several steps."""
    steps: int = 1
    """Steps of one launch."""
    ahead: int = 0
    """Planes that kernels of one step load before they are needed."""
    unroll: int = 1
    """Planes that the loop along z handles in one turn, so that registers need not move from plane to plane; 1 lets the compiler choose."""
    group: int = 0
    """Blocks along y that start before those that follow them along z, in kernels of one step, so that L2 still holds the planes which
    blocks share along z; 0: all of them."""

    def __str__(self) -> str:
        shape = f"{self.steps} step{'s' if self.steps > 1 else ''}, {self.block[0]} x {self.block[1]} threads"
        rows = f" x {self.rows} rows" if self.rows > 1 else ""
        turns = f", {self.ahead} ahead" if self.ahead else ""
        turns += f", {self.unroll} planes a turn" if self.unroll > 1 else ""
        turns += f", z before y in groups of {self.group} blocks" if self.group else ""
        return f"{shape} of {self.vector} cells{rows}, {self.planes} planes a block{turns}"


@dataclass(frozen=True)
class Row:
    """The values of one field that a thread holds at one distance along y: planes `first` to `last`, cells `-low` to `vector + high`."""

    field: str
    dy: int
    first: int
    last: int
    low: int
    high: int
    planes: dict[int, tuple[int, int]]
    """For each cell, by its distance from the first of the thread, the first and the last plane in which it is needed."""

    @property
    def name(self) -> str:
        return f"{plain(self.field)}_row_{'m' if self.dy < 0 else 'p' if self.dy else ''}{abs(self.dy)}"

    @property
    def depth(self) -> int:
        return self.last - self.first + 1


def rows_of(reads: dict[str, tuple[Offset3, ...]], vector: int, ahead: int = 0) -> list[Row]:
    """Return the rows that a thread of `vector` cells holds; those that it marches through are read `ahead` planes early."""
    found = []
    for name, offsets in reads.items():
        for dy in sorted({one[1] for one in offsets}):
            needed: dict[int, tuple[int, int]] = {}
            for dz, _, dx in (one for one in offsets if one[1] == dy):
                for cell in range(dx, dx + vector):
                    least, most = needed.get(cell, (dz, dz))
                    needed[cell] = min(least, dz), max(most, dz)
            body = [needed[cell] for cell in range(vector) if cell in needed]
            if body:  # the vector is loaded as a whole
                whole = min(one[0] for one in body), max(one[1] for one in body) + (ahead if dy == 0 else 0)
                needed |= dict.fromkeys(range(vector), whole)
            first, last = min(one[0] for one in needed.values()), max(one[1] for one in needed.values())
            found.append(Row(name, dy, first, last, max(0, -min(needed)), max(0, max(needed) - vector + 1), needed))
    return found


class DirectKernel:
    """The text of a kernel that makes one step by one rule."""

    def __init__(self, problem: Problem, rule: Rule, variant: Variant, *, fmad: bool = True, reduces: bool = False) -> None:
        self.problem, self.rule, self.variant = problem, rule, variant
        self.geometry = Geometry(problem, rule)
        self.cell = CellFunction(problem, rule, fmad, reduces and bool(rule.reductions))
        self.rows = rows_of(self.geometry.reads(), variant.vector, variant.ahead)
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

    @property
    def shuffles(self) -> bool:
        """Whether the cells beside the vector of a thread come from the neighbouring lanes."""
        return self.block[0] % WARP == 0

    def _columns(self) -> list[str]:
        bx, vector = self.block[0], self.variant.vector
        if not self.shuffles:
            return [f"const int x0 = (block_x * {bx} + threadIdx.x) * {vector};", "const bool active = x0 < NX;"]
        last = (self.geometry.extents[2] - 1) // vector * vector
        return [
            f"const int column = (block_x * {bx} + threadIdx.x) * {vector}, lane = threadIdx.x % {WARP};",
            "const bool active = column < NX;  // the other lanes of a warp take part in its shuffles",
            f"const int x0 = min(column, {last});",
            f"const bool leftmost = lane == 0, rightmost = lane == {WARP - 1} || column + {vector} >= NX;  // without a neighbouring lane",
            f"const int behind = min(column + ({WARP} - lane) * {vector}, {last + vector});  // the first cell after those of the warp",
            *(f"const int beside_{one} = leftmost ? column - {one} : {shifted('behind', one - 1)};" for one in self._distances()),
        ]

    def _distances(self) -> list[int]:
        """Return the distances from the vector of a thread at which cells of both sides are loaded together."""
        return sorted({one for row in self.rows for newest in (True, False) for one in self._paired(row, newest)})

    def _body(self) -> list[str]:
        lines = ["if (y < NY) {" if self.shuffles else "if (active && y < NY) {"]
        lines += indented(self._registers(), 1)
        lines += [f"#pragma unroll {self.variant.unroll}"] if self.variant.unroll > 1 else []
        lines += ["    for (int z = first; z < end; ++z) {"]
        lines += indented([*self._loads("z", newest=True), *self._compute(), *self._shift()], 2)
        return [*lines, "    }", "}"]

    def _registers(self) -> list[str]:
        vector, lines = self.variant.vector, []
        for row in self.rows:
            kind = REGISTER[self.problem.dtype(row.field)]
            lines.append(f"{kind} {row.name}[{row.depth}][{row.low + vector + row.high}];")
        for name, kind in {plain(row.field): REGISTER[self.problem.dtype(row.field)] for row in self.rows}.items():
            lines += [f"{kind} {name}_edge;"] if self._distances() else []
        return [*lines, *self._loads("first", newest=False)]

    def _loads(self, at: str, newest: bool) -> list[str]:
        """Return the loads of the newest plane of each row, or of those before it, which only the start of a block needs."""
        lines = []
        for row in self.rows:
            body = row.planes.get(0) if 0 in row.planes else None
            planes = () if body is None else (body[1],) if newest else range(body[0], body[1])
            for plane in planes:
                loads = self._load_row(row, plane, at)
                if newest and self.variant.ahead and row.dy == 0 and plane > row.last - self.variant.ahead:
                    limit = f"{shifted('end', self.geometry.radius[0][1])}"
                    loads = [f"if ({shifted(at, plane)} < {limit}) {{", *indented(loads, 1), "}"]
                lines += loads
            paired = self._paired(row, newest)
            for distance, together in paired.items():
                for plane in together:
                    lines += self._load_pair(row, plane, distance, at)
            for cell, (least, most) in sorted(row.planes.items()):
                if 0 <= cell < self.variant.vector or max(-cell, cell - self.variant.vector + 1) in paired:
                    continue
                for plane in (most,) if newest else range(least, most):
                    lines += self._load_cell(row, plane, cell, at, newest)
        return [*lines, GENERATED] if lines else []

    def _load_row(self, row: Row, plane: int, at: str) -> list[str]:
        where = shifted(at, plane), shifted("y", row.dy), "x0"
        field, to = f"{plain(row.field)}_field", f"{row.name}[{plane - row.first}]"
        loads = load_row(self.geometry, self.problem.dtype(row.field), field, to, row.low, where, self.variant.vector)
        return self._ascribed(row.field, (plane, row.dy), loads)

    def _paired(self, row: Row, newest: bool) -> dict[int, list[int]]:
        """Return the planes in which the two cells at a distance from a thread's vector are loaded together, by the lanes that have no
        neighbour there; by distance."""
        found: dict[int, list[int]] = {}
        body, vector = row.planes.get(0), self.variant.vector
        if body is None or not self.shuffles:
            return {}
        for distance in range(1, vector + 1):
            left, right = row.planes.get(-distance), row.planes.get(vector + distance - 1)
            if left is None or left != right:
                continue
            planes = [left[1]] if newest else list(range(*left))
            there = range(body[0], body[1] + (1 if newest else 0))  # the newest plane comes in the loop
            if all(plane in there for plane in planes):
                found[distance] = planes
        return found

    def _load_pair(self, row: Row, plane: int, distance: int, at: str) -> list[str]:
        dtype, vector = self.problem.dtype(row.field), self.variant.vector
        array, field = f"{row.name}[{plane - row.first}]", f"{plain(row.field)}_field"
        left, right = f"{array}[{row.low - distance}]", f"{array}[{row.low + vector + distance - 1}]"
        where, behind = (shifted(at, plane), shifted("y", row.dy)), shifted("x0", vector + distance - 1)
        edge = f"{plain(row.field)}_edge"
        # Each lane loads: the first one the cell before those of the warp, all others the one behind them. A branch would cost more.
        loads = load_cell(self.geometry, dtype, field, edge, (*where, f"beside_{distance}"))
        chosen = [f"if (leftmost) {left} = {edge};", f"if (rightmost) {right} = {edge};"]
        if ceil(self.geometry.extents[2] / vector) % WARP == 1:  # then a first lane has no neighbour at either side
            chosen[1] = f"if (rightmost && !leftmost) {right} = {edge};"
            loads.append(f"if (rightmost && leftmost) {load_cell(self.geometry, dtype, field, right, (*where, behind))[0]}")
        return [
            f"{left} = __shfl_up_sync(0xffffffff, {array}[{row.low + vector - distance}], 1);",
            f"{right} = __shfl_down_sync(0xffffffff, {array}[{row.low + distance - 1}], 1);",
            *self._ascribed(row.field, (plane, row.dy), loads),
            *chosen,
        ]

    def _load_cell(self, row: Row, plane: int, cell: int, at: str, newest: bool) -> list[str]:
        where = shifted(at, plane), shifted("y", row.dy), shifted("x0", cell)
        field, array = f"{plain(row.field)}_field", f"{row.name}[{plane - row.first}]"
        to, vector = f"{array}[{cell + row.low}]", self.variant.vector
        loads = load_cell(self.geometry, self.problem.dtype(row.field), field, to, where)
        lanes, element = divmod(cell, vector)
        body = row.planes.get(0)
        is_there = body is not None and body[0] <= plane <= (body[1] if newest else body[1] - 1)  # the newest plane comes in the loop
        if not self.shuffles or not is_there or abs(lanes) >= WARP:
            return self._ascribed(row.field, (plane, row.dy), loads)
        way = "down" if lanes > 0 else "up"
        own = f"lane >= {WARP - lanes} || column + {lanes * vector} >= NX" if lanes > 0 else f"lane < {-lanes}"
        shuffle = f"{to} = __shfl_{way}_sync(0xffffffff, {array}[{element + row.low}], {abs(lanes)});"
        return [shuffle, *self._ascribed(row.field, (plane, row.dy), [f"if ({own}) {loads[0]}"])]

    def _ascribed(self, field: str, row: tuple[int, int], statements: list[str]) -> list[str]:
        return ascribed(self.rule, line_of_read(self.geometry, field, row), statements)

    def _compute(self) -> list[str]:
        vector = self.variant.vector
        lines = [f"{kind} {plain(name)}_value[{vector}];" for name, kind in self.cell.results()]
        lines += ["#pragma unroll", f"for (int c = 0; c < {vector}; ++c) {{"]
        values = [self._value(name, self.geometry.offsets(offsets)) for name, offsets in self.cell.arguments()]
        values += scalar_names(self.rule)
        values += [f"{plain(name)}_value[c]" for name, _ in self.cell.results()]
        lines += indented(call(f"{plain(self.rule.name)}_cell", values), 1)
        lines.append("}")
        return [*lines, *self._stores(), *self._accumulate()]

    def _value(self, name: str, offset: Offset3) -> str:
        dz, dy, dx = offset
        row = next(one for one in self.rows if one.field == name and one.dy == dy)
        return f"{row.name}[{dz - row.first}][{shifted('c', row.low + dx)}]"

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
                kept = self._value(previous, (0, 0, 0))
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

    def _shift(self) -> list[str]:
        lines = []
        for row in self.rows:
            if row.depth > 1:
                cells = row.low + self.variant.vector + row.high
                copy = f"for (int c = 0; c < {cells}; ++c) {row.name}[p][c] = {row.name}[p + 1][c];"
                lines += ["#pragma unroll", f"for (int p = 0; p < {row.depth - 1}; ++p)", "#pragma unroll", f"    {copy}"]
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


def line_of_read(geometry: Geometry, field: str, row: tuple[int, int] | None = None) -> int:
    """Return the line of a rule that reads a field, in the given row (z and y) if it is one of those named there."""
    found = 0
    for assignment in geometry.rule.body:
        for part in parts(assignment.value):
            if isinstance(part, Read) and part.name == field:
                line = part.span.line if part.span else assignment.line
                if row is None or geometry.offsets(part.offsets)[:2] == row:
                    return line
                found = found or line
    return found or geometry.rule.body[-1].line


def preferred_vector(problem: Problem, rule: Rule) -> int:
    """Return the cells of a thread so that the widest field is accessed by 16 bytes."""
    return max(1, 16 // max(itemsize(problem.dtype(name)) for name in rule.fields))
