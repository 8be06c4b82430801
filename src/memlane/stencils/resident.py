"""Generate kernels that keep the cells of a device in shared memory for many steps: each block has a tile.

A block holds a box of cells, whole rows of some planes, and marches through its planes in every step, with the planes that a cell reads in
registers. It overwrites the tile in place: a plane is read one turn of the march before it is written, with a block barrier in between. So
cells are read from memory once per launch. A step moves only faces of tiles: a block also stores the cells that others read to the field's
memory, which stays in L2, and reads the cells that it needs of others from there. Planes that do not fit into shared memory stay in L2 too.

Blocks of a device signal each other, without a grid barrier: after a step a block raises its own flag, and it begins the next step when the
blocks around it have raised theirs. Flags count steps and continue from launch to launch.

Blocks at the ends march inwards, so they compute the planes to send first. One more warp of these blocks waits for other blocks and devices
before each step, and sends: as soon as the planes are in shared memory it copies them to the memory of the neighbour, by a bulk copy
where the chip has those, waits until they are there, and raises a flag of the neighbour, while the others compute. So the threads that
compute neither store over a link nor wait for one. If they stored each word together with a count of steps, planes would need no flag, but
twice the bytes: 9.0 us a step instead of 5.9 on four H200s (256^3, 2026-11-26).

Reuse of memory. Steps alternate between two buffers. A block begins step n + 1 when the blocks around it have made step n, so these have
read the results of step n - 1 in the buffer that step n + 1 overwrites. No block is more than one step ahead of another around it. Sent
planes rotate through four buffers. A block that begins step n has received what the blocks across the end sent in step n - 1, before which
they had read what it sent in step n - 2. If they send nothing, it knows that they have begun step n - 2. So it may send again.

If planes or rows are not a multiple of a tile, the last tile begins earlier and shares cells with the previous one. Both compute them, to
the same bits. Therefore a block also waits for the blocks at its edges, even if no cell is read across an edge: they may store cells that
the blocks next to them share.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil, prod
from string import Template

from memlane.stencils.access import access_functions, chunk, chunk_type, each, indented, packed, shifted
from memlane.stencils.cell import GENERATED, REGISTER, STORED, ascribed, plain, scalar_names
from memlane.stencils.direct import DirectKernel, scalar_loads
from memlane.stencils.geometry import itemsize
from memlane.stencils.persistent import FROM_HIGH, FROM_LOW, SIGNAL_ROWS, SIGNAL_WORDS, STATE, WAITING
from memlane.stencils.problem import Problem
from memlane.stencils.resident_text import EXCHANGE, KERNEL, TILE_ROW
from memlane.stencils.rule import Rule
from memlane.stencils.tile_rows import TileRows
from memlane.stencils.tiles import ARRIVALS, Tile
from memlane.stencils.variant import WARP


class ResidentKernel(DirectKernel):
    """Text of a kernel that makes many steps of one rule on one of several devices, with an exchange after each."""

    def __init__(self, problem: Problem, rule: Rule, tile: Tile, *, fmad: bool = True) -> None:
        super().__init__(problem, rule, tile.variant, fmad=fmad)
        self.tile, (self.new, self.moving) = tile, problem.swap[0]
        self._ways = {way: TileRows(self.geometry, self.variant, tile, self.moving, way) for way in (1, -1)}
        up, down = self._ways[1], self._ways[-1]
        up.other_distances = down.other_distances = [*up.distances(), *down.distances()]
        self.registers: TileRows = up
        self.name = f"{plain(rule.name)}_resident"

    def __str__(self) -> str:
        return str(self.tile)

    @property
    def block(self) -> tuple[int, int]:
        """The threads that compute, and where devices exchange, a row behind them for the warp that waits for other blocks and sends."""
        bx, by = self.tile.variant.block
        return bx, by + self.geometry.cut[0]

    @property
    def shared_bytes(self) -> int:  # type: ignore[override]
        """Bytes of dynamic shared memory of a block, for the planes of its tile that are stored there."""
        return self.tile.stored * self.tile.height * self.geometry.extents[2] * itemsize(self.problem.dtype(self.moving))

    def blocks_of(self, planes: int) -> int:
        """Return the number of tiles, and so of blocks, for a part of so many planes."""
        return self.tile.blocks(planes, self.geometry.extents[1])

    @property
    def across(self) -> int:
        """Tiles of a plane."""
        return ceil(self.geometry.extents[1] / self.tile.height)

    def signal_rows(self, planes: int) -> int:
        """Return the rows of the memory for signals: those of any persistent kernel, one for each neighbouring block of either device,
        and one for each own block."""
        return SIGNAL_ROWS + 2 * self.across + self.blocks_of(planes)

    @property
    def arrival_shape(self) -> tuple[int, ...]:
        """The shape of the memory for planes of neighbours, in cells: for each end, in turn, planes of rows."""
        return 2, ARRIVALS, max(1, *self.geometry.radius[0]), *self.geometry.extents[1:]

    @property
    def arrival_type(self) -> str:
        """The type of the memory for planes of neighbours."""
        return self.problem.dtype(self.moving)

    # -- the text ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        problem, tile, cut = self.problem, self.tile, self.geometry.cut[0]
        scalars = ", ".join(f"{one} = {{}}" for one in scalar_names(self.rule))
        arrival = prod(self.arrival_shape[2:])
        before, behind = self.geometry.radius[0]
        body = Template(KERNEL).substitute(
            name=self.name, rule=plain(self.rule.name), bx=self.block[0], T=STORED[problem.dtype(self.moving)],
            parameters=",\n    ".join(f"{kind} {name}" for name, kind in self._parameters), names=", ".join(dict(self._parameters)),
            new=plain(self.new), u=plain(self.moving), constants="\n".join(indented(self._constants(), 1)),
            scalars=f"    {REGISTER[problem.grid.dtype]} {scalars};" if scalars else "",
            scalar_loads="\n".join(indented(self._scalars(), 3)), across=self.across, height=tile.height, planes=tile.planes,
            stored=tile.stored, rows=tile.rows, reach=self._reach[0], reach_y=self._reach[1],
            columns="\n".join(indented(["const int block_x = 0;", *self._columns()], 1)),
            sides="\n".join(indented(self.registers.sides(), 1)),
            fill="\n".join(indented(self._own("fill"), 3)), empty="\n".join(indented(self._own("empty"), 3)),
            march_up="\n".join(indented(self._march(1), 3)), march_down="\n".join(indented(self._march(-1), 3)),
            wraps=_BOOL[self._wraps(1)], wraps_z=_BOOL[self._wraps(0)], whole=self._whole(), before=before, behind=behind,
            halo="\n".join(indented(self._halo(), 5)), is_cut=_BOOL[cut],
            from_low=SIGNAL_ROWS, from_high=SIGNAL_ROWS + self.across, own=SIGNAL_ROWS + 2 * self.across, signal_words=SIGNAL_WORDS,
            state=STATE * SIGNAL_WORDS, arrivals=ARRIVALS, end_cells=ARRIVALS * arrival, arrival_cells=arrival,
            wait="" if cut else f"        {_WAIT}", role="\n".join(indented(self._role(), 1)), block_threads=prod(self.block),
            R=REGISTER[problem.dtype(self.moving)], vector=tile.vector,
            wait_from_low=FROM_LOW + 1, wait_from_high=FROM_HIGH + 1,
        )  # fmt: skip
        parts = [
            f"// {self.rule.name}: {self.tile}",
            *self.geometry.constants(clamped=True),
            *access_functions(self.geometry, [problem.dtype(name) for name in self.rule.fields]),
            self.cell.text,
            Template(TILE_ROW).substitute(row=f"{tile.height} * NX"),
            WAITING,
            self._exchange(),
            body,
        ]  # fmt: skip
        return "\n".join(parts)

    def _role(self) -> list[str]:
        """Return the call of the function of the warp that waits and sends, in a kernel that has one."""
        if not self.geometry.cut[0]:
            return []
        _, by = self.tile.variant.block
        call = f"{plain(self.rule.name)}_exchange(tile, tile_y, {', '.join(dict(self._parameters))});"
        test = f"if (threadIdx.y == {by}) {{  // behind the threads that compute"
        return [test, f"    if (threadIdx.x < {WARP}) {call}", "    return;", "}"]

    def _exchange(self) -> str:
        """Return the functions that send planes to a neighbour and read what it has sent."""
        dtype, tile = self.problem.dtype(self.moving), self.tile
        cells, row_bytes = chunk(dtype, tile.vector), self.geometry.extents[2] * itemsize(dtype)
        loads = [
            f"unpack(*reinterpret_cast<const {chunk_type(dtype, cells)}*>(place_of(arrivals, plane, y, {shifted('x0', first)})), "
            f"cells + {first});"
            for first in range(0, tile.vector, cells)
        ]
        pieces = {16: "uint4", 8: "uint2", 4: "unsigned"}
        return Template(EXCHANGE).substitute(
            T=STORED[dtype], R=REGISTER[dtype], vector=tile.vector, rows=tile.rows, height=tile.height, threads=tile.threads,
            all_threads=tile.threads + WARP * self.geometry.cut[0], loads="\n".join(indented(loads, 1)),
            is_bulk="__CUDA_ARCH__ >= 900" if row_bytes % 16 == 0 else "0",
            piece=next((name for size, name in pieces.items() if row_bytes % size == 0), STORED[dtype]),
        )  # fmt: skip

    @property
    def _reach(self) -> tuple[int, int]:
        """Planes and rows at the faces of a tile that other blocks may read."""
        return max(self.geometry.radius[0]), max(self.geometry.radius[1])

    def _wraps(self, axis: int) -> bool:
        """Return whether the last tile along an axis and the first one are neighbours."""
        return self.geometry.conditions[axis][0] == "periodic" and not self.geometry.cut[axis]

    @cached_property
    def _parameters(self) -> list[tuple[str, str]]:
        """Parameters of the kernel, with their types."""
        dtype, constant = self.problem.dtype, self.problem.constant
        found = [(f"{plain(name)}_memory", f"const {STORED[dtype(name)]}* __restrict__" if name in constant else f"{STORED[dtype(name)]}*")
                 for name in self.problem.fields]  # fmt: skip
        found += [("scalars", f"const {REGISTER[self.problem.grid.dtype]}*")]
        found += [(name, "int") for name in ("row", "more_rows", "steps", "origin", "start", "stop", "has_low", "has_high")]
        found += [(name, "unsigned*") for name in ("low_signals", "high_signals", "signals")]
        found += [(name, f"{STORED[dtype(self.moving)]}*") for name in ("to_low", "to_high", "from_others")]
        return [*found, ("polls", "unsigned")]

    def _constants(self) -> list[str]:
        """Return the definitions of the fields that no step changes."""
        fields = [name for name in self.problem.fields if name in self.problem.constant]
        return [f"const {STORED[self.problem.dtype(name)]}* const {plain(name)}_field = {plain(name)}_memory - (long long)origin * PLANE;"
                for name in fields]  # fmt: skip

    def _scalars(self) -> list[str]:
        """Return the loads of the scalars of a step, which are equal for all steps if a launch has one row of them."""
        return [line.removeprefix(f"const {REGISTER[self.problem.grid.dtype]} ") for line in scalar_loads(self.problem, self.rule)]

    def _whole(self) -> str:
        """Return the condition under which no boundary along z and y keeps a cell of a tile."""
        ends = (("begin", f"begin + {self.tile.planes}", "NZ"), ("tile_y", f"tile_y + {self.tile.height}", "NY"))
        tests = []
        for (low, high), (begin, end, extent) in zip(self.geometry.fixed[:2], ends, strict=True):
            tests += [f"{begin} >= {low}"] if low else []
            tests += [f"{end} <= {extent} - {high}"] if high else []
        return " && ".join(tests) or "true"

    def _own(self, way: str) -> list[str]:
        """Return the accesses with which a thread fills its rows of a plane of the tile, or stores them to memory."""
        dtype, lines = self.problem.dtype(self.moving), []
        cells = chunk(dtype, self.tile.vector)
        kind = chunk_type(dtype, cells)
        for row in range(self.tile.rows):
            for first in range(0, self.tile.vector, cells):
                at = f"tile_row<{kind}>(tile, i, {shifted(f'(int)threadIdx.y * {self.tile.rows}', row)}, {shifted('x0', first)})"
                memory = f"cells_of<{kind}>({plain(self.moving)}_cells, IS_UP ? i : -i, {row} * PITCH + {first})"
                lines.append(f"*{at} = *{memory};" if way == "fill" else f"*{memory} = *{at};")
        return lines

    def _halo(self) -> list[str]:
        """Return the stores of a plane that has arrived into the halo, which begins behind the first plane of the march."""
        dtype, lines = self.problem.dtype(self.moving), []
        cells = chunk(dtype, self.tile.vector)
        for row in range(self.tile.rows):
            for first in range(0, self.tile.vector, cells):
                memory = (
                    f"cells_of<{chunk_type(dtype, cells)}>({plain(self.moving)}_cells, IS_UP ? -1 - i : 1 + i, {row} * PITCH + {first})"
                )
                lines.append(f"*{memory} = {packed(dtype, cells, f'halo[i][{row}] + {first}')};")
        return lines

    def _march(self, way: int) -> list[str]:
        """Return a step of a block: the registers, and the turns through its planes, upwards or downwards."""
        self.registers = self._ways[way]
        results = [f"{kind} {plain(name)}_value{self._each_row}[{self.variant.vector}];" for name, kind in self.cell.results()]
        turn = [*self.registers.loads("z", newest=True), *results, *self._update(near=False), *self.registers.shift(), "meet();"]
        arrived, is_first = self.registers.arrived()
        lines = [
            *self.registers.declarations(),
            *(arrived if is_first else []),
            *self.registers.loads("first", newest=False),
            *([] if is_first else arrived),
            "meet();  // the first plane is overwritten when all have read it",
            "#pragma unroll",
            f"for (int i = 0; i < {self.tile.planes}; ++i) {{",
            f"    const int z = first {'+' if way > 0 else '-'} i;",
            "    const bool at_seam = z >= seam && z < seam_end;",
            *indented(turn, 1),
            "}",
        ]
        self.registers = self._ways[1]
        return lines

    def _may_be_behind(self, row: int) -> bool:
        return False  # all rows of a tile are rows of the grid

    def _update(self, near: bool) -> list[str]:
        lines = self._computed()
        for row in range(self.variant.rows):
            lines += [*self._kept(row), *self._into_tile(row), *self._into_memory(row)]
        return [*lines, *self._sent()]

    def _kept(self, row: int) -> list[str]:
        """Return the replacement of cells that a boundary keeps. In a tile that no boundary along z and y touches, these are only the
        cells at the ends of rows."""
        updated, lines, (low, high), vector = self._updated(row), [], self.geometry.fixed[2], self.tile.vector
        if not updated:
            return []
        value, kept = self._result(self.new, row), self.registers.value(self.moving, (0, 0, 0), row)
        for cell in range(vector):
            tests = [f"x0 + {cell} >= {low}"] if cell < low else []
            tests += [f"x0 + {cell} < NX - {high}"] if cell >= vector - high else []
            replaced = f"{value}[{cell}] = {kept.replace('[c', f'[{cell}')};"
            lines += [f"if (!({' && '.join(tests)})) {replaced}"] if tests else []
        every = each(vector, f"if (!({updated})) {value}[c] = {kept};")
        return ["if constexpr (IS_WHOLE) {", *indented(lines, 1), "} else {", *indented(every, 1), "}"]

    def _into_tile(self, row: int) -> list[str]:
        dtype, value, lines = self.problem.dtype(self.moving), self._result(self.new, row), []
        cells = chunk(dtype, self.tile.vector)
        for first in range(0, self.tile.vector, cells):
            place = f"i, {shifted(f'(int)threadIdx.y * {self.tile.rows}', row)}, {shifted('x0', first)}"
            lines.append(f"*tile_row<{chunk_type(dtype, cells)}>(tile, {place}) = {packed(dtype, cells, f'{value} + {first}')};")
        return [f"if (i < {self.tile.stored}{self._and_active}) {{", *indented(lines, 1), "}"]

    @property
    def _and_active(self) -> str:
        """Return the condition under which a thread has cells, where some have none, as a further one."""
        tile = self.tile
        return "" if WARP * tile.segments * tile.vector == self.geometry.extents[2] else " && active"

    def _into_memory(self, row: int) -> list[str]:
        """Return the stores of cells that other blocks read, and of planes that are not in shared memory."""
        (planes, rows), tile, dtype = self._reach, self.tile, self.problem.dtype(self.moving)
        value, y = self._result(self.new, row), shifted("y", row)
        line = next(one.line for one in self.rule.body if one.is_field)
        tests = [f"i >= {min(tile.stored, tile.planes - planes)}", f"i < {planes}", "at_seam"]
        if rows:
            within = shifted(f"(int)threadIdx.y * {tile.rows}", row)
            tests += [f"{within} < {rows}", f"{within} >= {tile.height - rows}"]
        if rows and self.geometry.extents[1] % tile.height:
            tests.append(f"({y} >= seam_y && {y} < seam_y_end)")
        cells, index = chunk(dtype, tile.vector), "i" if self.registers.way > 0 else "-i"
        stores = [
            f"*cells_of<{chunk_type(dtype, cells)}>({plain(self.new)}_cells, {index}, {row} * PITCH + {first}) = "
            f"{packed(dtype, cells, f'{value} + {first}')};"
            for first in range(0, tile.vector, cells)
        ]
        return [f"if (({' || '.join(tests)}){self._and_active}) {{", *ascribed(self.rule, line, indented(stores, 1)), GENERATED, "}"]

    def _sent(self) -> list[str]:
        """Return the signal to the warp that sends: the planes that a neighbouring device reads are in shared memory."""
        before, behind = self.geometry.radius[0]
        planes = behind if self.registers.way > 0 else before
        return [f"if (i == {planes - 1} && is_end) planes_are_made();"] if self.geometry.cut[0] and planes else []


_WAIT = "wait_around(signals, made + at, block_y, block_z, last_z, false, false, thread, polls);"
_BOOL = {True: "true", False: "false"}
