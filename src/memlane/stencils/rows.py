"""Choose the cells of each field that a thread holds in registers in a kernel of one step, and generate their loads.

A thread has, for each row of neighbours, a few planes of a vector of cells and the cells next to it. The vector is loaded as a whole; cells
beside it come from the neighbouring lanes where these hold them, and from memory at the ends of a warp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from memlane.stencils.access import indented, load_cell, load_row, shifted
from memlane.stencils.cell import GENERATED, REGISTER, ascribed, plain
from memlane.stencils.expression import Read, parts
from memlane.stencils.geometry import Geometry, Offset3
from memlane.stencils.variant import WARP, Variant


@dataclass(frozen=True)
class Row:
    """Values of one field that a thread holds at one distance along y: planes `first` to `last`, cells `-low` to `vector + high`."""

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


def rows_of(reads: dict[str, tuple[Offset3, ...]], variant: Variant, early: Mapping[str, int] | None = None) -> list[Row]:
    """Return the rows that a thread holds; its own, through which it marches, are read some planes early. `early` says for some fields
    which plane the newest one is at least."""
    found, vector = [], variant.vector
    for name, around in reads.items():
        offsets = {(dz, dy + row, dx) for dz, dy, dx in around for row in range(variant.rows)}
        for dy in sorted({one[1] for one in offsets}):
            needed: dict[int, tuple[int, int]] = {}
            for dz, _, dx in (one for one in offsets if one[1] == dy):
                for cell in range(dx, dx + vector):
                    least, most = needed.get(cell, (dz, (early or {}).get(name, dz)))
                    needed[cell] = min(least, dz), max(most, dz)
            body = [needed[cell] for cell in range(vector) if cell in needed]
            if body:  # the vector is loaded as a whole
                whole = min(one[0] for one in body), max(one[1] for one in body) + (variant.ahead if 0 <= dy < variant.rows else 0)
                needed |= dict.fromkeys(range(vector), whole)
            first, last = min(one[0] for one in needed.values()), max(one[1] for one in needed.values())
            found.append(Row(name, dy, first, last, max(0, -min(needed)), max(0, max(needed) - vector + 1), needed))
    return found


class RowRegisters:
    """Generator of the declarations and loads of the registers for the rows that a thread reads."""

    def __init__(self, geometry: Geometry, variant: Variant, early: Mapping[str, int] | None = None, way: int = 1) -> None:
        """`way`: 1 where a thread marches up, -1 where it marches down. Planes count along the march."""
        self.geometry, self.variant, self.way = geometry, variant, way
        self.problem, self.rule = geometry.problem, geometry.rule
        reads = {name: tuple((way * dz, dy, dx) for dz, dy, dx in several) for name, several in geometry.reads().items()}
        self.rows = rows_of(reads, variant, early)

    @property
    def shuffles(self) -> bool:
        """Whether the cells beside the vector of a thread come from the neighbouring lanes."""
        return self.variant.block[0] % WARP == 0

    def distances(self) -> list[int]:
        """Return the distances from the vector of a thread at which cells of both sides are loaded together."""
        return sorted({one for row in self.rows for newest in (True, False) for one in self._paired(row, newest)})

    def declared(self) -> list[str]:
        """Return the declarations of the registers, and the loads before the march."""
        return [*self.declarations(), *self.loads("first", newest=False)]

    def declarations(self) -> list[str]:
        """Return the declarations of the registers."""
        vector, lines = self.variant.vector, []
        for row in self.rows:
            kind = REGISTER[self.problem.dtype(row.field)]
            lines.append(f"{kind} {row.name}[{row.depth}][{row.low + vector + row.high}];")
        for name, kind in {plain(row.field): REGISTER[self.problem.dtype(row.field)] for row in self.rows}.items():
            lines += [f"{kind} {name}_edge;"] if self.distances() else []
        return lines

    def loads(self, at: str, newest: bool) -> list[str]:
        """Return the loads of the newest plane of each row, or of the earlier planes, which only the start of a block needs."""
        lines = []
        for row in self.rows:
            body = row.planes.get(0) if 0 in row.planes else None
            planes = () if body is None else (body[1],) if newest else range(body[0], body[1])
            for plane in planes:
                loads = self._load_row(row, plane, at)
                if newest and self.variant.ahead and 0 <= row.dy < self.variant.rows and plane > row.last - self.variant.ahead:
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
        return self._ascribed(row.field, (plane, row.dy), self._vector(row, plane, at, f"{row.name}[{plane - row.first}]"))

    def _vector(self, row: Row, plane: int, at: str, to: str) -> list[str]:
        """Return the statements that read the vector of a row into a plane of its registers."""
        where = *self._row_at(row, plane, at), "x0"
        dtype, field = self.problem.dtype(row.field), f"{plain(row.field)}_field"
        return load_row(self.geometry, dtype, field, to, row.low, where, self.variant.vector)

    def _cell(self, row: Row, plane: int, at: str, to: str, cell: int, x: str = "") -> list[str]:
        """Return the statement that reads a cell of a row, by its distance from the first of the thread, or at `x`."""
        x = x or shifted("x0", cell)
        where = *self._row_at(row, plane, at), self.geometry.held(x, 2)
        return load_cell(self.geometry, self.problem.dtype(row.field), f"{plain(row.field)}_field", to, where)

    def _row_at(self, row: Row, plane: int, at: str) -> tuple[str, str]:
        """Return the plane and the row of memory where a row of neighbours is read."""
        return self.geometry.held(shifted(at, self.way * plane)), self.geometry.held(shifted("y", row.dy), 1)

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
        vector, array = self.variant.vector, f"{row.name}[{plane - row.first}]"
        left, right = f"{array}[{row.low - distance}]", f"{array}[{row.low + vector + distance - 1}]"
        edge = f"{plain(row.field)}_edge"
        # Each lane loads: the first one the cell before those of the warp, all others the one behind them. A branch would cost more.
        loads = self._cell(row, plane, at, edge, -distance, f"beside_{distance}")
        chosen = [f"if (leftmost) {left} = {edge};", f"if (rightmost) {right} = {edge};"]
        if self.geometry.cut[2] or ceil(self.geometry.extents[2] / vector) % WARP == 1:  # then the first lane has no neighbours
            chosen[1] = f"if (rightmost && !leftmost) {right} = {edge};"
            loads.append(f"if (rightmost && leftmost) {self._cell(row, plane, at, right, vector + distance - 1)[0]}")
        return [
            f"{left} = __shfl_up_sync(0xffffffff, {array}[{row.low + vector - distance}], 1);",
            f"{right} = __shfl_down_sync(0xffffffff, {array}[{row.low + distance - 1}], 1);",
            *self._ascribed(row.field, (plane, row.dy), loads),
            *chosen,
        ]

    def _load_cell(self, row: Row, plane: int, cell: int, at: str, newest: bool) -> list[str]:
        array, vector = f"{row.name}[{plane - row.first}]", self.variant.vector
        to = f"{array}[{cell + row.low}]"
        loads = self._cell(row, plane, at, to, cell)
        lanes, element = divmod(cell, vector)
        body = row.planes.get(0)
        is_there = body is not None and body[0] <= plane <= (body[1] if newest else body[1] - 1)  # the newest plane comes in the loop
        if not self.shuffles or not is_there or abs(lanes) >= WARP:
            return self._ascribed(row.field, (plane, row.dy), loads)
        way = "down" if lanes > 0 else "up"
        behind = f"column + {lanes * vector} >= {self.geometry.end(2)}"
        own = f"lane >= {WARP - lanes} || {behind}" if lanes > 0 else f"lane < {-lanes}"
        shuffle = f"{to} = __shfl_{way}_sync(0xffffffff, {array}[{element + row.low}], {abs(lanes)});"
        return [shuffle, *self._ascribed(row.field, (plane, row.dy), [f"if ({own}) {loads[0]}"])]

    def _ascribed(self, field: str, row: tuple[int, int], statements: list[str]) -> list[str]:
        plane, dy = self.way * row[0], row[1]
        read = next((one for own in range(self.variant.rows) if (one := (plane, dy - own)) in self._read_rows(field)), (plane, dy))
        return ascribed(self.rule, line_of_read(self.geometry, field, read), statements)

    def _read_rows(self, field: str) -> set[tuple[int, int]]:
        return {self.geometry.offsets(one)[:2] for one in self.rule.reads.get(field, ())}

    def shift(self) -> list[str]:
        lines = []
        for row in self.rows:
            if row.depth > 1:
                cells = row.low + self.variant.vector + row.high
                copy = f"for (int c = 0; c < {cells}; ++c) {row.name}[p][c] = {row.name}[p + 1][c];"
                lines += ["#pragma unroll", f"for (int p = 0; p < {row.depth - 1}; ++p)", "#pragma unroll", f"    {copy}"]
        return lines

    def value(self, name: str, offset: Offset3, own: int = 0) -> str:
        """Return the register with the value that cell `c` of one of the thread's rows reads at a distance along z, y and x."""
        dz, dy, dx = offset
        row = next(one for one in self.rows if one.field == name and one.dy == dy + own)
        return f"{row.name}[{self.way * dz - row.first}][{shifted('c', row.low + dx)}]"


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
