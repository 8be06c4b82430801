"""Generate the loads of a thread's rows and the rows next to them in tiles: from shared memory, L2, or a neighbouring device."""

from __future__ import annotations

from memlane.stencils.access import chunk, chunk_type, each, indented, shifted
from memlane.stencils.cell import REGISTER, STORED, plain
from memlane.stencils.geometry import Geometry
from memlane.stencils.rows import Row, RowRegisters, rows_of
from memlane.stencils.tiles import Tile
from memlane.stencils.variant import Variant


class TileRows(RowRegisters):
    """Registers of a thread whose block holds the changing field in a tile."""

    def __init__(self, geometry: Geometry, variant: Variant, tile: Tile, moving: str, way: int) -> None:
        # A plane is overwritten in the turn of the march that computes it, so all threads read it one turn earlier.
        super().__init__(geometry, variant, {moving: 1}, way)
        self.tile, self.moving = tile, moving
        self.other_distances: list[int] = []
        """The distances in the other way of the march, which the kernel has in common."""
        reads = {name: tuple((way * dz, dy, dx) for dz, dy, dx in several) for name, several in geometry.reads().items()}
        self._last = {(row.field, row.dy): row.last for row in rows_of(reads, variant)}

    def distances(self) -> list[int]:
        """Return the distances from the vector of a thread at which cells of both sides are loaded together, in either way of the march."""
        return sorted({*super().distances(), *self.other_distances})

    def sides(self) -> list[str]:
        """Return the definitions about rows of other threads: their places in the tile, and whether they are in it."""
        lines = []
        for row in self.rows:
            if row.field != self.moving or 0 <= row.dy < self.tile.rows:
                continue
            name, y = _side(row), shifted("y", row.dy)
            outside = [test.replace("y", y, 1) for test, _ in self.geometry.numbers(1)]
            inside = [f"row_{name} >= 0 && row_{name} < {self.tile.height}", *(f"!({test})" for test in outside)]
            lines.append(f"const int row_{name} = inside_y({y}) - tile_y, beside_{name} = (inside_y({y}) - y) * PITCH;")
            lines.append(f"const bool holds_{name} = {' && '.join(inside)};  // a row of this tile")
        return [*lines, *(f"const int edge_{one} = inside_x(beside_{one});" for one in self.distances())]

    def _in_block(self, row: Row, plane: int, at: str) -> tuple[str, str, str]:
        """Return the condition under which a row lies in a plane of the block, its plane from the first of the block upwards, and the
        distance of the row from the first one of the thread in the memory of the field."""
        index = shifted("i", plane) if at == "z" else str(plane)
        own = 0 <= row.dy < self.tile.rows
        offset = f"{row.dy} * PITCH" if own else f"beside_{_side(row)}"
        return f"{index} < {self.tile.planes}", index if self.way > 0 else f"-({index})", offset

    def _in_tile(self, row: Row, plane: int, at: str) -> tuple[str, str, str]:
        """Return the condition under which a row lies in shared memory, its plane in the tile, and its row."""
        index = shifted("i", plane) if at == "z" else str(plane)
        own = 0 <= row.dy < self.tile.rows
        test = f"{index} < {self.tile.stored}"
        place = shifted(f"(int)threadIdx.y * {self.tile.rows}", row.dy) if own else f"row_{_side(row)}"
        return test if own else f"{test} && holds_{_side(row)}", index, place

    def _vector(self, row: Row, plane: int, at: str, to: str) -> list[str]:
        far = super()._vector(row, plane, at, to)
        if row.field != self.moving:
            return far
        dtype, vector = self.problem.dtype(row.field), self.variant.vector
        cells = chunk(dtype, vector)
        kind = chunk_type(dtype, cells)
        if at == "first" and plane < 0:
            if not self.geometry.cut[0]:
                return far
            if 0 <= row.dy < self.tile.rows:
                return ["if (!is_end || !at) {  // else it arrives from a neighbouring device", *indented(far, 1), "}"]
            place = _arrived(plane, f"inside_y({shifted('y', row.dy)})", "x0")
            lines = [f"{REGISTER[dtype]} beside[{vector}];", f"arrived_cells({place}, beside);"]
            lines += [*each(vector, f"{to}[{row.low} + c] = beside[c];"), *far[vector // cells :]]  # constants outside faces
            return ["if (is_end && at) {  // a plane of a neighbouring device", *indented(lines, 1), "} else {", *indented(far, 1), "}"]
        test, index, place = self._in_tile(row, plane, at)
        near = [
            f"unpack(*tile_row<{kind}>(tile, {index}, {place}, {shifted('x0', first)}), {to} + {row.low + first});"
            for first in range(0, vector, cells)
        ]
        test_block, index, offset = self._in_block(row, plane, at)
        loads = [
            f"unpack(*cells_of<{kind}>({plain(row.field)}_cells, {index}, {offset} + {first}), {to} + {row.low + first});"
            for first in range(0, vector, cells)
        ]
        lines = [f"if ({test}) {{", *indented(near, 1), f"}} else if ({test_block}) {{", *indented([*loads, *far[len(loads) :]], 1)]
        return [*lines, *self._behind_block(row, plane, far)]

    def arrived(self) -> tuple[list[str], bool]:
        """Return the loads of the thread's own rows of planes that arrive from a neighbouring device, and whether they must precede all
        others, because cells next to those of the thread come from the lanes that have them."""
        own = [row for row in self.rows if row.field == self.moving and 0 <= row.dy < self.tile.rows and row.first < 0]
        planes = -min((row.first for row in own), default=0)
        if not self.geometry.cut[0] or not planes:
            return [], False
        vector = self.variant.vector
        lines = [f"{REGISTER[self.problem.dtype(self.moving)]} halo[{planes}][{self.tile.rows}][{vector}];"]
        lines.append(f"arrived_rows<{planes}>(arrivals, y, x0, halo);")
        for row in own:
            for plane in range(max(row.first, row.planes.get(0, (0, 0))[0]), 0):
                lines += each(vector, f"{row.name}[{plane - row.first}][{row.low} + c] = halo[{-plane - 1}][{row.dy}][c];")
        has_sides = any(least < 0 and not 0 <= cell < vector for row in own for cell, (least, _) in row.planes.items())
        return ["if (is_end && at) {", *indented(lines, 1), "}"], has_sides

    def _behind_block(self, row: Row, plane: int, far: list[str]) -> list[str]:
        """Return the end of an alternative that loads what lies in a plane behind those of the block, where the last turn needs it."""
        is_used = plane <= self._last[row.field, row.dy]
        return ["} else {", *indented(far, 1), "}"] if is_used else ["}"]

    def _cell(self, row: Row, plane: int, at: str, to: str, cell: int, x: str = "") -> list[str]:
        far = super()._cell(row, plane, at, to, cell, x)
        if row.field != self.moving:
            return far
        inside, x = (f"edge_{-cell}", x) if x else (f"inside_x({shifted('x0', cell)})", shifted("x0", cell))
        dtype, y = self.problem.dtype(row.field), shifted("y", row.dy)
        behind = [test.replace("x", x, 1) for test, _ in self.geometry.numbers(2)]
        number = f"outside_{dtype}({shifted(at, self.way * plane)}, {y}, {x})"
        if at == "first" and plane < 0:
            if not self.geometry.cut[0]:
                return far
            behind += [test.replace("y", y, 1) for test, _ in self.geometry.numbers(1)]
            value = f"arrived_cell({_arrived(plane, f'inside_y({y})', inside)})"
            return [f"if (is_end && at) {{ {to} = {_unless(behind, number, value)}; }} else {{ {' '.join(far)} }}"]
        test, index, place = self._in_tile(row, plane, at)
        value = _unless(behind, number, f"widened(*tile_row<{STORED[dtype]}>(tile, {index}, {place}, {inside}))")
        test_block, index, offset = self._in_block(row, plane, at)
        in_rows = [test.replace("y", y, 1) for test, _ in self.geometry.numbers(1)]
        spilled = f"widened(*cells_of<{STORED[dtype]}>({plain(row.field)}_cells, {index}, {offset} + {inside} - x0))"
        lines = [f"if ({test}) {{ {to} = {value}; }} else if ({test_block}) {{ {to} = {_unless([*behind, *in_rows], number, spilled)};"]
        return [" ".join([*lines, *self._behind_block(row, plane, far)])]


def _unless(tests: list[str], otherwise: str, value: str) -> str:
    """Return an expression that is `otherwise` if any of the tests is true."""
    return f"({' || '.join(tests)}) ? {otherwise} : {value}" if tests else value


def _arrived(plane: int, y: str, x: str) -> str:
    """Return the address of a cell of a plane of the neighbour; planes count from the end of the device."""
    return f"arrivals, {-plane - 1}, {y}, {x}"


def _side(row: Row) -> str:
    return f"{'m' if row.dy < 0 else 'p'}{abs(row.dy)}"
