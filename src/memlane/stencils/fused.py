"""Generate kernels of several steps: a tile of columns marches along z, and each step lags a few planes behind the previous one.

A warp holds rows of 32 vectors of cells in registers, so neighbours along x come by shuffles; rows of other warps come through shared
memory. Every step calls the same cell function as kernels of one step, and boundary conditions are applied between the steps, so the
results are bit-identical.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from memlane.stencils.access import (
    access_functions,
    body_loads,
    call,
    chunk,
    chunk_type,
    each,
    either,
    has_numbers,
    indented,
    local_planes,
    march,
    march_begins,
    outside_name,
    packed,
    place_of_reads,
    range_parameters,
    shifted,
    store_row,
)
from memlane.stencils.cell import GENERATED, REGISTER, STORED, CellFunction, ascribed, plain, scalar_names
from memlane.stencils.direct import scalar_loads
from memlane.stencils.geometry import RANGE, Offset3, itemsize
from memlane.stencils.problem import Problem, spares
from memlane.stencils.rows import line_of_read
from memlane.stencils.rule import Rule
from memlane.stencils.schedule import FusedSchedule, Stream, bounds
from memlane.stencils.variant import WARP, Variant


class FusedKernel(FusedSchedule):
    """Text of a kernel that makes several steps of one rule."""

    reductions: dict[str, str] = {}
    finish_name = ""
    words: ClassVar[dict[str, int]] = {}
    word_count = 0

    def __init__(self, problem: Problem, rule: Rule, variant: Variant, *, fmad: bool = True) -> None:
        super().__init__(problem, rule, variant)
        self.cell = CellFunction(problem, rule, fmad, False)
        self.name = f"{plain(rule.name)}_{self.steps}_steps"

    @cached_property
    def text(self) -> str:
        dtypes = [self.problem.dtype(name) for name in self.rule.fields]
        body = [*self._position(), *self._queues(), *self._loop()]
        return "\n".join(
            [
                f"// {self.rule.name}: {self.variant}",
                *self.geometry.constants(clamped=True, is_local=True),
                *access_functions(self.geometry, [*dtypes, self.shared_dtype]),
                self.cell.text,
                *self._signature(),
                *indented(body, 1),
                "}",
                "",
            ]
        )

    def _signature(self) -> list[str]:
        dtype = self.problem.dtype
        given = [f"{STORED[dtype(name)]}* __restrict__ {plain(name)}_field" for name in self.outputs]
        given += [f"const {STORED[dtype(name)]}* __restrict__ {plain(name)}_field" for name in self.inputs]
        given += [f"const {REGISTER[self.problem.grid.dtype]}* __restrict__ scalars, int step", *range_parameters(self.geometry)]
        return [f'extern "C" __global__ void __launch_bounds__({WARP * self.warps})', f"{self.name}({', '.join(given)}) {{"]

    def _position(self) -> list[str]:
        low, _, y_low, _ = self.halo
        tile = f"(blockIdx.x * {self.warps} + threadIdx.y)" if self.flat else "blockIdx.x"
        lines = [
            f"const int tile_x = {self.geometry.begin(2)}{tile} * {self.width} - {low}, x0 = tile_x + threadIdx.x * {self.vector};",
            *([] if self.is_torn else place_of_reads(self.geometry, self.vector)),
            "const int y0 = 0;"
            if self.flat
            else f"const int y0 = {self.geometry.begin(1)}blockIdx.y * {self.height} - {y_low} + threadIdx.y * {self.rows};",
            *local_planes(self.geometry),
            march(self.geometry, "blockIdx.z", self.variant.planes),
            *march_begins(self.geometry, [*self.outputs, *self.inputs], (1, 2)),
            *scalar_loads(self.problem, self.rule),
        ]
        tests = [f"x0 >= {self._border(2)[0]}", f"x0 + {self.vector} <= NX - {self._border(2)[1]}"]
        if not self.flat:
            tests += [f"y0 >= {self._border(1)[0]}", f"y0 + {self.rows} <= NY - {self._border(1)[1]}"]
        inner = " && ".join(tests)
        lines.append(f"const bool is_inner = __all_sync(0xffffffff, {inner});  // no boundary along x and y changes cells of this warp")
        if self.rings:
            count = self.shared_bytes // itemsize(self.shared_dtype)
            thread = f"threadIdx.y * {WARP} + threadIdx.x"
            lines += [
                f"extern __shared__ {REGISTER[self.shared_dtype]} shared_rows[];  // rows that other warps read",
                "// The first turns read planes that no turn has made. Nothing of them gets into results.",
                f"for (int at = {thread}; at < {count}; at += {WARP * self.warps}) shared_rows[at] = 0;",
                "__syncthreads();",
            ]
        return lines

    def _plane_of_grid(self, z: str) -> str:
        """Return the plane of the grid that `z` counts."""
        return f"({z} + {RANGE[0]})" if self.geometry.cut[0] else z

    @property
    def is_torn(self) -> bool:
        """Whether the vector of a thread may wrap around the end of a row."""
        is_around = "periodic" in self.geometry.conditions[2] and not self.geometry.cut[2]
        return is_around and self.geometry.extents[2] % self.vector != 0

    def _queues(self) -> list[str]:
        lines = []
        for cycle in self.problem.swap:
            kind = REGISTER[self.problem.dtype(cycle[0])]
            for step in range(self.steps):
                stream = Stream(cycle, step)
                lines.append(f"{kind} {stream.name}[{self.depth(stream)}][{self.rows}][{self.vector}] = {{}};")
            for early in range(self.variant.ahead + 1):
                lines += self._load(cycle, shifted("first", early - self.steps * self.reach[0][0]), self.variant.ahead - early)
        return lines

    def _loop(self) -> list[str]:
        begin, behind = self.steps * self.reach[0][0], self.steps * self.lag
        unroll, (low, high) = self.variant.unroll, self._border(0)
        body: list[str] = [f"const int turn = i - first + {begin};"] if self.rings else []
        if self._keeps and self.flat:  # one test per turn; if a turn has many cells, two copies of it would take too many registers
            near = f"is_inner && {self._plane_of_grid('i')} - {behind} >= {low} && {self._plane_of_grid('i')} < NZ - {high}"
            body += either(near, self._turn(keeps=False), self._turn(keeps=True))
        else:
            body += self._turn(keeps=self._keeps)
        body += ["__syncthreads();"] if self.rings else []
        counter = "i" if unroll == 1 else "group"
        # If the compiler knows the first value, it moves most of the registers that a thread keeps in each iteration.
        start = [f"int {counter} = first - {begin};", f'asm volatile("" : "+r"({counter}));  // its value is unknown to the compiler']
        if unroll == 1:
            return [*start, f"for (; i < end + {behind}; ++i) {{", *indented(body, 1), "}"]
        return [
            *start,
            f"for (; group < end + {behind}; group += {unroll}) {{  // the last turns may be one too many",
            "#pragma unroll",
            f"    for (int u = 0; u < {unroll}; ++u) {{  // so that each plane stays in its registers",
            "        const int i = group + u;",
            *indented(body, 2),
            "    }",
            "}",
        ]

    # -- one turn of the loop ----------------------------------------------------------------------------------------------------

    @property
    def _keeps(self) -> bool:
        """Whether boundaries keep or replace cells."""
        return any(self._keep_cells(cycle, 1, "z_1") or self._kept(Stream(cycle, 0), "i", None) for cycle in self.problem.swap)

    def _turn(self, keeps: bool) -> list[str]:
        """Return all steps of a turn; each computes an earlier plane than the previous step."""
        last_read = max(1, min(self.steps, max(len(cycle) for cycle in self.problem.swap) - 1))
        lines: list[str] = []
        for cycle in self.problem.swap:  # the newest plane of the initial values was loaded in the previous turn, or earlier
            stream = Stream(cycle, 0)
            lines += [*(self._kept(stream, "i", None) if keeps else []), *self._publish(stream)]
        for step in range(1, self.steps + 1):
            lines += self._step(step, keeps)
            if step == last_read:
                for cycle in self.problem.swap:
                    lines += [*self._shift(Stream(cycle, 0)), *self._load(cycle, shifted("i", 1 + self.variant.ahead))]
        return lines

    def _load(self, cycle: tuple[str, ...], z: str, plane: int = 0) -> list[str]:
        """Return the load of a plane of the initial values, placed after the last read of the oldest plane."""
        lines = []
        for row in range(self.rows):
            lines += self._load_row(cycle[1], f"{Stream(cycle, 0).name}[{plane}][{row}]", 0, z, shifted("y0", row))
        return lines

    def _load_row(self, field: str, to: str, first: int, z: str, y: str) -> list[str]:
        dtype, name = self.problem.dtype(field), f"{plain(field)}_field"
        line, z, y = line_of_read(self.geometry, field), self.geometry.held(z), self.geometry.held(y, 1)
        if not self.is_torn:
            return [*ascribed(self.rule, line, body_loads(dtype, name, to, first, (z, y, "x_read"), self.vector)), GENERATED]
        near = indented(body_loads(dtype, name, to, first, (z, y, "x0"), self.vector), 1)
        far = f"    for (int c = 0; c < {self.vector}; ++c) {to}[{first} + c] = widened(*cell_at({name}, {z}, {y}, x0 + c));"
        head = f"if (x0 >= 0 && x0 + {self.vector} <= NX) {{"
        return [head, *ascribed(self.rule, line, near), "} else {", *ascribed(self.rule, line, [far]), "}", GENERATED]

    def _shift(self, stream: Stream) -> list[str]:
        depth = self.depth(stream)
        if depth == 1:
            return []
        copy = f"for (int c = 0; c < {self.vector}; ++c) {stream.name}[p][r][c] = {stream.name}[p - 1][r][c];"
        return [
            "#pragma unroll", f"for (int p = {depth - 1}; p > 0; --p)", "#pragma unroll",
            f"    for (int r = 0; r < {self.rows}; ++r)", "#pragma unroll", f"        {copy}",
        ]  # fmt: skip

    def _step(self, step: int, keeps: bool) -> list[str]:
        """Return the code of one step: the neighbourhoods of the cells, their update, and its stores."""
        z = f"z_{step}"
        lines = [f"const int {z} = i - {step * self.lag};  // step {step}"]
        for cycle in self.problem.swap:
            if step < self.steps:
                lines += self._shift(Stream(cycle, step))
        lines.append("{")
        inner: list[str] = []
        for name, offsets in self.reads.items():
            inner += self._neighbourhood(name, offsets, step, z)
        kept = [line for cycle in self.problem.swap for line in self._keep_cells(cycle, step, z)] if keeps else []
        inner += [f"{kind} {plain(name)}_value[{self.rows}][{self.vector}];" for name, kind in self.cell.results()]
        if kept and not self.flat:
            low, high = self._border(0)
            plane = self._plane_of_grid(z)
            inner += either(f"is_inner && {plane} >= {low} && {plane} < NZ - {high}", self._update(), [*self._update(), *kept])
        else:
            inner += [*self._update(), *kept]
        for cycle in self.problem.swap:
            inner += self._store(cycle, step, z)
            if step < self.steps:
                stream = Stream(cycle, step)
                inner += self._rows(f"{stream.name}[0][r][c] = {plain(cycle[0])}_value[r][c];")
                inner += self._publish(stream)
        return [*lines, *indented(inner, 1), "}"]

    def _neighbourhood(self, name: str, offsets: list[Offset3], step: int, z: str) -> list[str]:
        """Return an array of the values of a field around the cells of a thread, by plane, row and cell."""
        place = next(((cycle, cycle.index(name)) for cycle in self.problem.swap if name in cycle), None)
        stream = None if place is None or step - place[1] < 0 else Stream(place[0], step - place[1])
        (z_low, z_high), (y_low, y_high), (x_low, x_high) = bounds(offsets)
        array = f"{plain(name)}_around"
        extents = f"[{z_high - z_low + 1}][{self.rows + y_high - y_low}][{self.vector + x_high - x_low}]"
        lines = [f"{REGISTER[self.problem.dtype(name)]} {array}{extents};"]
        for dz in range(z_low, z_high + 1):
            for row in range(y_low, self.rows + y_high):
                cells = {dx for one, dy, dx in offsets if one == dz and 0 <= row - dy < self.rows}
                if not cells:
                    continue
                to = f"{array}[{dz - z_low}][{row - y_low}]"
                if stream is None:
                    source = name if place is None else place[0][1 - (step - place[1])]
                    lines += self._direct(source, to, -x_low, z, dz, row, cells)
                else:
                    assert place is not None
                    lines += self._own(stream, self.age(place[1], dz), row, to, -x_low)
                    lines += self._shuffled(to, -x_low, cells)
        return lines

    def _direct(self, name: str, to: str, low: int, z: str, dz: int, row: int, cells: set[int]) -> list[str]:
        """Return the loads of a row of a field that steps do not change, or of one from before the launch."""
        at = shifted(z, dz), shifted("y0", row)
        lines = self._load_row(name, to, low, *at)
        for edge in sorted({dx + cell for dx in cells for cell in range(self.vector)} - set(range(self.vector))):
            where = self.geometry.held(at[0]), self.geometry.held(at[1], 1), self.geometry.held(shifted("x0", edge), 2)
            place = f"*cell_at({plain(name)}_field, {', '.join(where)})"
            lines += ascribed(self.rule, line_of_read(self.geometry, name), [f"{to}[{edge + low}] = widened({place});"])
        for edge in sorted({dx + cell for dx in cells for cell in range(self.vector)} if has_numbers(self.geometry) else ()):
            behind = f"{self._plane_of_grid(at[0])}, {at[1]}, {shifted('x0', edge)}"
            lines.append(
                f"if ({self._outside(*at, shifted('x0', edge))}) {to}[{edge + low}] = {outside_name(self.problem.dtype(name))}({behind});"
            )
        return lines

    def _own(self, stream: Stream, age: int, row: int, to: str, low: int) -> list[str]:
        """Return the copy of a row of a stream: the thread's own, or that of another warp."""
        if 0 <= row < self.rows:
            return each(self.vector, f"{to}[{low} + c] = {stream.name}[{age + self.early(stream)}][{row}][c];")
        warps, local = divmod(row, self.rows)
        begin, planes = self.rings[stream.name]
        other = f"min(max((int)threadIdx.y {'+' if warps > 0 else '-'} {abs(warps)}, 0), {self.warps - 1})"
        plane = f"(turn + {planes - age}) % {planes}" if planes > 1 else "0"
        cells = chunk(self.shared_dtype, self.vector)
        places = [self._shared(begin, plane, other, self.published.index(local), at, "const ") for at in range(0, self.vector, cells)]
        return [f"unpack(*{place}, {to} + {low + number * cells});" for number, place in enumerate(places)]

    def _shared(self, begin: int, plane: str, warp: str, row: int, first: int, const: str = "") -> str:
        """Return a pointer to the cells from `first` of the vector of the thread's lane, in a row in shared memory. Simultaneous accesses
        of the lanes are contiguous."""
        cells = chunk(self.shared_dtype, self.vector)
        at = f"(({plane}) * {self.warps} + {warp}) * {len(self.published)} + {row}"
        place = (
            f"shared_rows + {begin} + (({at}) * {self.vector // cells} + {first // cells}) * {WARP * cells} + (int)threadIdx.x * {cells}"
        )
        return f"reinterpret_cast<{const}{chunk_type(self.shared_dtype, cells)}*>({place})"

    def _shuffled(self, to: str, low: int, cells: set[int]) -> list[str]:
        """Return the shuffles that fetch the cells next to the vector of a thread."""
        lines = []
        for cell in sorted({dx + one for dx in cells for one in range(self.vector)} - set(range(self.vector))):
            lanes, element = divmod(cell, self.vector)
            way = "down" if lanes > 0 else "up"
            lines.append(f"{to}[{cell + low}] = __shfl_{way}_sync(0xffffffff, {to}[{element + low}], {abs(lanes)});")
        return lines

    def _update(self) -> list[str]:
        values = []
        for name, given in self.cell.arguments():
            dz, dy, dx = self.geometry.offsets(given)
            (z_low, _), (y_low, _), (x_low, _) = bounds(self.reads[name])
            values.append(f"{plain(name)}_around[{dz - z_low}][{shifted('r', dy - y_low)}][{shifted('c', dx - x_low)}]")
        values += [*scalar_names(self.rule), *(f"{plain(name)}_value[r][c]" for name, _ in self.cell.results())]
        called = call(f"{plain(self.rule.name)}_cell", values)
        loops = [
            "#pragma unroll",
            f"for (int r = 0; r < {self.rows}; ++r)",
            "#pragma unroll",
            f"    for (int c = 0; c < {self.vector}; ++c)",
        ]
        return [*loops, *indented(called, 2)]

    # -- boundaries --------------------------------------------------------------------------------------------------------------

    def _outside(self, z: str, y: str, x: str) -> str:
        """Return the condition under which a cell lies outside a face with a constant value."""
        found = []
        for axis, at in enumerate((self._plane_of_grid(z), y, x)):
            found += [test.replace("zyx"[axis], at, 1) for test, _ in self.geometry.numbers(axis)]
        return " || ".join(found)

    def _kept(self, stream: Stream, z: str, value: str | None) -> list[str]:
        """Return the replacement of cells outside faces with constant values."""
        if not has_numbers(self.geometry):
            return []
        to = f"{stream.name}[{self.early(stream)}][r][c]" if value is None else f"{value}[r][c]"
        where = f"{self._plane_of_grid(z)}, y0 + r, x0 + c"
        name = outside_name(self.problem.dtype(stream.cycle[0]))
        return self._rows(f"if ({self._outside(z, 'y0 + r', 'x0 + c')}) {to} = {name}({where});")

    def _border(self, axis: int) -> tuple[int, int]:
        """Return how many cells at the low and the high side of an axis a boundary keeps or replaces."""
        return self.geometry.fixed[axis]

    def _keep_cells(self, cycle: tuple[str, ...], step: int, z: str) -> list[str]:
        """Return the code that applies boundaries to the cells of a step: fixed cells keep their value, cells outside get the constant."""
        value = f"{plain(cycle[0])}_value"
        tests = [
            *self.geometry.kept_test(0, self._plane_of_grid(z)),
            *self.geometry.kept_test(1, "y0 + r"),
            *self.geometry.kept_test(2, "x0 + c"),
        ]
        lines = []
        if tests:
            (z_low, _), (y_low, _), (x_low, _) = bounds(self.reads[cycle[1]])
            kept = f"{plain(cycle[1])}_around[{-z_low}][{shifted('r', -y_low)}][{shifted('c', -x_low)}]"
            lines += self._rows(f"if (!({' && '.join(tests)})) {value}[r][c] = {kept};")
        return [*lines, *self._kept(Stream(cycle, step), z, value)]

    # -- where results go --------------------------------------------------------------------------------------------------------

    def _rows(self, statement: str) -> list[str]:
        loops = (f"for (int r = 0; r < {self.rows}; ++r)", f"    for (int c = 0; c < {self.vector}; ++c) {statement}")
        return [line for loop in loops for line in ("#pragma unroll", loop)]

    def _publish(self, stream: Stream) -> list[str]:
        """Return the stores of the newest plane of a stream into shared memory, of the rows that other warps read."""
        if stream.name not in self.rings:
            return []
        begin, planes = self.rings[stream.name]
        lines = []
        cells = chunk(self.shared_dtype, self.vector)
        for position, row in enumerate(self.published):
            for first in range(0, self.vector, cells):
                to = self._shared(begin, f"turn % {planes}", "(int)threadIdx.y", position, first)
                lines.append(f"*{to} = {packed(self.shared_dtype, cells, f'{stream.name}[{self.early(stream)}][{row}] + {first}')};")
        return lines

    def _store(self, cycle: tuple[str, ...], step: int, z: str) -> list[str]:
        """Return the store of a step whose values remain after the launch: the last one, and earlier ones that the cycle keeps."""
        back = self.steps - step
        if back >= len(cycle) - 1:
            return []
        low, high, y_low, y_high = self.halo
        name, dtype = spares(cycle)[back], self.problem.dtype(cycle[0])
        tests = [f"{z} >= first && {z} < end"]
        tests += [f"threadIdx.x >= {low // self.vector}"] if low else []
        tests += [f"threadIdx.x < {WARP - high // self.vector}"] if high else []
        tests.append(f"x0 < {self.geometry.end(2)}")
        line = next(one.line for one in self.rule.body if one.is_field and one.name == cycle[0])
        lines = [f"if ({' && '.join(tests)}) {{"]
        for row in range(self.rows):
            of_tile = "" if self.flat else f"{shifted(f'(int)threadIdx.y * {self.rows}', row)}"
            inside = (
                f"if ({of_tile} >= {y_low} && {of_tile} < {self.warps * self.rows - y_high} && "
                f"{shifted('y0', row)} < {self.geometry.end(1)}) "
                if of_tile
                else ""
            )
            place = z, shifted("y0", row), "x0"
            stores = store_row(dtype, f"{plain(name)}_field", f"{plain(cycle[0])}_value[{row}]", place, self.vector)
            lines += [f"    {inside}{{", *ascribed(self.rule, line, indented(stores, 2)), "    }", GENERATED]
        return [*lines, "}"]
