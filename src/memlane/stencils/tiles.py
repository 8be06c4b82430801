"""Choose the tiles in which multiprocessors keep the cells of a device for many steps, and predict the time of a step.

The time of a step of a block is the sum of its cells, which pass through the pipelines of the multiprocessor one after another, its faces,
which all blocks store to L2 and read from there, and the synchronisation of blocks: fences, flags and the first loads after them. All are
fitted to a 7-point rule in single precision on one H200, in tiles of 256 cells by 8 to 32 rows by 2 to 16 planes: 3.1 us a step for 16,384
cells, 4.6 for 32,768 and 7.8 for 65,536. The tiles of several devices have fewer threads, because each block has a warp for the exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from memlane.chip import LANES, SECTOR_BYTES, Chip
from memlane.stencils.expression import Operation, parts
from memlane.stencils.geometry import Geometry, itemsize
from memlane.stencils.problem import Problem
from memlane.stencils.rows import rows_of
from memlane.stencils.variant import WARP, Variant, preferred_vector

_SLOTS, _SLOTS_AN_OPERATION = 6.0, 0.95
"""Slots of a lane that each cell takes, and each operation of the rule in addition; twice as many in double precision."""
_SYNC, _PLANE = 5.2, 0.2
"""Latencies of L2 from the last plane of a step to the first of the next one, and from plane to plane."""
_SIDES = 0.3
"""Cost of the rows next to those of a thread, as a share of the cells of one row."""
_FEW_WARPS = 2.0
"""Slowdown of blocks with few warps: this share divided by their number, relative to 16 warps."""
_SPILLED = 0.25
"""Additional time of cells that are not in shared memory, as a share."""
_SEAM = 0.04
"""Additional time where tiles do not divide a plane, as a share: two tiles have the same rows, and each cell is tested for them."""
_FACES = 1.5
"""How often each cell of a face moves at the rate at which L2 is read: it is stored once and read once, in part beside the rest."""
_CONSTANT_SHARE, _KEPT = 0.42, 0.7
"""What reads of fields that no step changes reach of the rates of L2 and DRAM, because so few warps have few of them under way (Himeno M on
two H200s), and the share of L2 up to which they find them there."""
_MOST_THREADS, _MOST_SPILLED, _OTHER_REGISTERS = 512, 0.25, 40


ARRIVALS = 4
"""Buffers in rotation at each end of a device for planes of its neighbour."""


@dataclass(frozen=True)
class Tile:
    """A box of cells that one multiprocessor keeps, and its threads."""

    vector: int
    """Cells along x of a thread."""
    segments: int
    """Warps side by side along x, which together have a row."""
    rows: int
    """Rows along y of a thread."""
    warps: int
    """Warps that follow each other along y."""
    planes: int
    """Planes of a tile along z."""
    stored: int
    """Planes that are stored in shared memory; the others stay in the memory of the field, and so in L2."""

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.rows * self.warps

    @property
    def threads(self) -> int:
        """Threads that compute. Where devices exchange, a block has one more row of threads."""
        return WARP * self.segments * self.warps

    @property
    def variant(self) -> Variant:
        """The variant of a kernel of one step that has the tile's shape."""
        return Variant(self.vector, (WARP * self.segments, self.warps), self.planes, self.rows, unroll=self.planes)

    def blocks(self, planes: int, rows: int) -> int:
        """Return the number of tiles, and so of blocks, for a part of so many planes."""
        return ceil(planes / self.planes) * ceil(rows / self.height)

    def __str__(self) -> str:
        spilled = f", {self.planes - self.stored} of them in L2" if self.planes > self.stored else ""
        threads = f"{WARP * self.segments} x {self.warps} threads of {self.vector} cells x {self.rows} rows"
        return f"tiles of {self.planes} planes{spilled} of {self.height} rows, {threads}"


def cannot_reside(problem: Problem) -> str:
    """Return why the cells of a problem cannot stay in shared memory; empty if they can."""
    if len(problem.rules) != 1:
        return "a step has several rules"
    (rule,) = problem.rules
    if problem.grid.dimensions != 3:
        return "the grid does not have three axes"
    if len(problem.swap) != 1 or len(problem.swap[0]) != 2 or rule.writes != problem.swap[0][:1]:
        return "more than two fields change"
    return ""


def best_tile(problem: Problem, planes: Sequence[int], chip: Chip) -> Tile | None:
    """Return the tile with the fastest step for devices with so many planes each; None if no tile holds their cells."""
    if cannot_reside(problem):
        return None
    return min(_tiles(problem, planes, chip), key=lambda one: (tile_us(problem, one, chip), one.planes), default=None)


def tile_us(problem: Problem, tile: Tile, chip: Chip) -> float:
    """Return the time of a step of a device whose blocks have a tile each, without losses between devices."""
    rule, (new, moving) = problem.rules[0], problem.swap[0]
    double = 2 if itemsize(problem.dtype(new)) == 8 else 1
    operations = sum(isinstance(part, Operation) for one in rule.body if not one.reduces for part in parts(one.value))
    lanes = chip.schedulers * LANES
    cell = double * (_SLOTS + _SLOTS_AN_OPERATION * operations) / lanes
    cell *= (1 + _SIDES / tile.rows) * (1 + _FEW_WARPS * (WARP / tile.threads - 1 / 16))
    cells, cycles = tile.height * problem.grid.shape[2] * tile.planes, (_SYNC + _PLANE * tile.planes) * chip.latency.l2
    constant = sum(itemsize(problem.dtype(name)) for name in rule.reads if name != moving)
    if constant * cells * chip.sm_count > _KEPT * chip.l2_bytes:
        rate = _CONSTANT_SHARE * 1e3 * (chip.copy_gb_per_s or chip.dram_gb_per_s)
        cell = max(cell, constant * chip.sm_count * chip.clock_mhz / rate)
    if (sectors := chip.bandwidth.rate("l2", "read")) is not None:
        moved = chip.sm_count / (sectors * SECTOR_BYTES)  # cycles for a byte of each block
        cell = max(cell, constant * moved / _CONSTANT_SHARE)
        depth, height, _ = (max(pair) for pair in Geometry(problem, rule).radius)
        faces = 2 * problem.grid.shape[2] * (depth * tile.height + height * tile.planes)
        cycles += _FACES * faces * itemsize(problem.dtype(moving)) * moved
    cell *= 1 + _SPILLED * (tile.planes - tile.stored) / tile.planes + (_SEAM if problem.grid.shape[1] % tile.height else 0.0)
    return (cycles + cells * cell) / chip.clock_mhz


def _tiles(problem: Problem, planes: Sequence[int], chip: Chip) -> Iterator[Tile]:
    """Yield the tiles with which a device needs no more blocks than the chip has multiprocessors."""
    rule, (_, moving) = problem.rules[0], problem.swap[0]
    geometry, (_, ny, nx) = Geometry(problem, rule), problem.grid.shape
    vector = next(cells for cells in (4, 2, 1) if cells <= preferred_vector(problem, rule) and nx % cells == 0)
    width = itemsize(problem.dtype(moving))
    if problem.cut and vector * width < 4:  # devices send each other whole words
        return
    segments, row_bytes = ceil(nx / (WARP * vector)), nx * width
    depth, height = (max(1, *geometry.radius[axis]) for axis in range(2))
    beside = int(bool(problem.cut))  # rows of threads behind those that compute
    for rows in (4, 2, 1):
        registers = _registers(geometry, Variant(vector, (WARP * segments, 1), rows=rows), moving)
        for warps in range(1, min(_MOST_THREADS // (WARP * segments) - beside, ny // rows) + 1):
            if registers > min(chip.max_registers_per_thread, chip.registers_per_sm // (WARP * segments * (warps + beside))):
                continue
            across = ceil(ny / (rows * warps))
            if rows * warps < height or across > chip.sm_count or not reads_next_only(ny, rows * warps, height):
                continue
            least = max(ceil(max(planes) / (chip.sm_count // across)), depth)
            # Each end of a device with a neighbour belongs to one tile.
            most = min(planes) - (depth if problem.cut else 0)
            thick = range(least, min(most, least + 2 * depth) + 1)
            layers = next((one for one in thick if all(reads_next_only(count, one, depth) for count in planes)), None)
            stored = chip.max_shared_bytes // (rows * warps * row_bytes)
            # What a neighbouring device reads is sent from shared memory.
            if layers is not None and stored >= depth and layers - stored <= _MOST_SPILLED * layers:
                yield Tile(vector, segments, rows, warps, layers, min(layers, stored))


def reads_next_only(cells: int, size: int, reach: int) -> bool:
    """Return whether tiles along an axis read from the tiles next to them only.

    The last tile ends with the cells and so may begin inside the one before it. If less than the reach lies outside that one, the last tile
    also reads from the tile before both, and the one before it from the tile behind both.
    """
    tiles = ceil(cells / size)
    return tiles == 1 or cells - (tiles - 1) * size >= reach


def _registers(geometry: Geometry, variant: Variant, moving: str) -> int:
    """Estimate the registers that a thread needs."""
    held = rows_of(geometry.reads(), variant, {moving: 1})
    double = 2 if itemsize(geometry.problem.dtype(moving)) == 8 else 1
    return (
        double * (sum(row.depth * (row.low + variant.vector + row.high) for row in held) + variant.rows * variant.vector) + _OTHER_REGISTERS
    )
