"""Enumerate variants of the kernels of a rule, and estimate their speed by a model of the chip.

The time of a launch is the longest of three: the bytes that it must move, at the rate of a copy; the instructions that it issues; and, for
several steps, the march of a block, each turn of which waits for memory and for the other warps. The bytes are one read of each field and
one write of each result, over the steps of the launch. Tiles of several steps also compute the cells by which they overlap, and read them
from L2, half of them from memory again; the same holds for fields that no step changes, which each step of a launch reads again. A few
numbers are fitted to kernels that were measured on an H200 (a 7-point rule in three dimensions, a 5-point rule in two,
Himeno's): the share of the rate of a copy that kernels of one step reach, the share of the rate of L2 that kernels of several steps
reach, and the instructions for each operation of the rule, for each cell of a launch and for each turn of a thread. The instructions were
fitted again to times of 2026-11-27 of the 7-point rule at 256^3, 512^3, 1024^3 and their halves (benchmarks/results/h200/
stencil_scaling.json has most of them), within 4 %, and of the 5-point rule at 8192^2 and 16384^2. In double precision the kernels of
several steps take 1.2 times the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from memlane.chip import LANES, SECTOR_BYTES, Chip
from memlane.stencils.expression import Operation, parts
from memlane.stencils.geometry import Geometry, itemsize
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule
from memlane.stencils.schedule import FusedSchedule, Stream, cannot_fuse
from memlane.stencils.variant import Variant, preferred_vector

_DIRECT_SHARE = 0.88
"""Share of the rate of a copy that kernels of one step reach: measured 0.82 to 0.95 on an H200."""
_L2_SHARE = 0.75
"""Share of the rate of reads from L2 that kernels of several steps reach."""
_SLOTS = 0.45
"""Instructions for each operation of the rule in kernels of several steps. A product and a sum are often one instruction."""
_SLOTS_A_FETCH = 4
"""Cost of an instruction that fetches a value from another lane or from shared memory, or stores one there, in slots of arithmetic."""
_SLOTS_A_LAUNCH = {True: 22, False: 32}
"""Additional instructions for each cell of a launch of several steps, waiting included, for grids without and with an axis y."""
_SLOTS_A_TURN = 20
"""Additional instructions of a thread in each turn of a launch of several steps, for addresses, tests and the loop.

The steps of a turn share them. ptxas makes 37 instructions for each cell and step of a 7-point rule from 2 steps with 2 cells a thread,
and 15 with 16 cells.
"""
_SEAM_MISSES = 0.5
"""Share of the overlap of tiles, which is read twice, that comes from DRAM again instead of L2."""
_STEP_CYCLES = 225
"""Cycles of each step of a turn with few cells in kernels of several steps, barrier included."""
_TOGETHER = 8
"""Power by whose sum the longer of instructions and turns is taken: where both take equally long, neither hides the other entirely."""
RESIDENT, EVICTED = 0.70, 0.84
"""Shares of L2: fields up to the first stay in L2 between launches, fields from the second on do not stay at all."""
RATED_SHARE = 0.88
"""Share of the rated bandwidth that copies are assumed to reach on chips without a measurement."""


@dataclass(frozen=True)
class Estimate:
    """A variant, its modelled rate in cells per second, and what limits it."""

    variant: Variant
    cells_per_s: float
    limit: str

    def __str__(self) -> str:
        return f"{self.variant}: {self.cells_per_s / 1e9:,.0f} Gcell/s expected, limited by {self.limit}"


def default_variant(problem: Problem, rule: Rule) -> Variant:
    """Return the variant for launches of one step: short marches, which keep many blocks in flight and balance the load."""
    nz, ny, _ = Geometry(problem, rule).extents
    vector = preferred_vector(problem, rule)
    if ny == 1:
        return Variant(vector, (256, 1), _planes(4, nz))
    cells, alone = sum(map(len, rule.reads.values())), len(rule.reads) == 1
    if not alone:
        return Variant(vector, (32, _threads(4, ny)), _planes(8, nz))
    rows = min(2 if vector > 2 else 4, ny)  # rows that a thread reads for several of its own come from memory once
    return Variant(vector, (32, _threads(4, ny)), _planes(8, nz), rows, ahead=2 if cells > 20 else 1)


_MOST_BLOCKS = 65535
"""Blocks of a launch along y and along z."""


def _planes(wanted: int, nz: int) -> int:
    """Return the number of planes through which a block marches: more than requested where there would be too many blocks."""
    return max(min(wanted, nz), ceil(nz / _MOST_BLOCKS))


def _threads(wanted: int, ny: int) -> int:
    """Return the number of threads of a block along y."""
    return min(max(wanted, ceil(ny / _MOST_BLOCKS)), 32)


def direct_variants(problem: Problem, rule: Rule) -> list[Variant]:
    """Return the candidate variants of one step, the default one first."""
    first = default_variant(problem, rule)
    nz, ny, _ = Geometry(problem, rule).extents
    if ny == 1:
        shapes = [((256, 1), 4, 1, 0), ((128, 1), 8, 1, 0), ((256, 1), 8, 1, 1)]
    elif len(rule.reads) == 1:
        shapes = [((32, 4), 4, 2, 0), ((32, 4), 8, 3, 1), ((32, 4), 8, 1, 0), ((32, 2), 8, 2, 2), ((32, 4), 8, 2, 0), ((32, 8), 8, 1, 1)]
    else:
        shapes = [((32, 8), 8, 1, 0), ((32, 8), 8, 1, 1), ((64, 4), 8, 1, 0), ((32, 4), 16, 1, 1), ((32, 4), 8, 1, 1), ((32, 4), 8, 2, 0)]
    others = [
        Variant(first.vector, (x, _threads(y, ny)), _planes(planes, nz), min(rows, ny), ahead=ahead)
        for (x, y), planes, rows, ahead in shapes
    ]
    return list(dict.fromkeys([first, *others]))


def fused_variants(problem: Problem, rule: Rule) -> list[Variant]:
    """Return the candidate variants of several steps; none where steps cannot share a launch."""
    nz, ny, _ = Geometry(problem, rule).extents
    vector = preferred_vector(problem, rule)
    if ny == 1:
        shapes = [(vector, 4, 1, steps, planes, ahead) for steps, ahead in ((4, 3), (6, 3), (8, 3), (10, 2)) for planes in (128, 256)]
    else:
        cut = [(vector, 12, 4, 2), (vector, 12, 4, 3), (vector, 12, 3, 4), (vector, 16, 2, 4), (max(1, vector // 2), 16, 1, 2)]
        shapes = [(cells, warps, rows, steps, planes, 0) for cells, warps, rows, steps in cut for planes in (16, 32, 64, 128, 256)]
    found: dict[Variant, None] = {}
    for cells, warps, rows, steps, planes, ahead in shapes:
        variant = Variant(cells, (32, warps), _planes(planes, nz), rows, steps, ahead)
        if not cannot_fuse(problem, steps) and (kernel := FusedSchedule(problem, rule, variant)).is_possible and _fits(kernel):
            found[_rotating(kernel)] = None
    return list(found)


_REGISTERS, _MOST_REGISTERS, OTHER_REGISTERS = 65536, 255, 8
"""Registers of a multiprocessor, the most of a thread, and those that a kernel needs beside values."""


def _fits(kernel: FusedSchedule) -> bool:
    """Return whether the values of a thread fit in its registers: kernels that spill are several times slower."""
    return kernel.value_registers + OTHER_REGISTERS <= min(_MOST_REGISTERS, _REGISTERS // (LANES * kernel.warps))


_MOST_TURNS = 3
"""Turns of the loop along z at once: Himeno's rule, with four planes in registers, makes 84.9 Gcell/s on an H200 by three of them, and 72.3
by one."""


def _rotating(kernel: FusedSchedule) -> Variant:
    """Return the variant with its loop unrolled by the number of planes in registers, or nearly so, such that registers never move and no
    turn is wasted."""
    variant, turns = kernel.variant, min(kernel.depth(Stream(kernel.problem.swap[0], 1)), _MOST_TURNS)
    around = kernel.steps * (kernel.reach[0][0] + kernel.lag)
    return replace(variant, unroll=turns, planes=variant.planes + -(variant.planes + around) % turns)


def beside_border(problem: Problem, rule: Rule, variant: Variant, chip: Chip) -> Variant:
    """Return a variant whose planes per block let all blocks end together if one border of the part is launched before them.

    A border has few planes, and as many tiles as one layer of the other blocks. If the last layer does not fit next to it, that layer
    starts when the border has ended, and should be thinner than the others accordingly."""
    kernel = FusedSchedule(problem, rule, variant)
    around, border = kernel.steps * (kernel.reach[0][0] + kernel.lag), kernel.steps * max(kernel.reach[0])
    between = kernel.geometry.extents[0] - border
    blocks, room = kernel.blocks // kernel.grid[2], places(kernel, chip)
    layers = room // blocks
    if layers < 2 or ceil(between / variant.planes) != layers or between < layers * (2 * border + around):
        return variant

    def turns(planes: int) -> int:
        first, last = (-(-(each + around) // variant.unroll) * variant.unroll for each in (planes, between - (layers - 1) * planes))
        return max(first, last + border + around)

    return replace(variant, planes=min(range(between // layers, ceil((between + border + around) / layers) + 1), key=turns))


def estimates(problem: Problem, rule: Rule, chip: Chip) -> list[Estimate]:
    """Return the estimates of all candidate variants, the fastest first."""
    found = [estimate(problem, rule, one, chip) for one in [default_variant(problem, rule), *fused_variants(problem, rule)]]
    return sorted(found, key=lambda one: -one.cells_per_s)


def estimate(problem: Problem, rule: Rule, variant: Variant, chip: Chip) -> Estimate:
    """Estimate the speed of a variant by the model."""
    bandwidth = 1e9 * (chip.copy_gb_per_s or RATED_SHARE * chip.dram_gb_per_s)
    moving = sum(itemsize(problem.dtype(name)) for name in rule.reads if name not in problem.constant)
    kept = sum(itemsize(problem.dtype(name)) for name in rule.reads if name in problem.constant)
    written = sum(itemsize(problem.dtype(name)) for name in rule.writes)
    if variant.steps == 1:
        return Estimate(variant, _DIRECT_SHARE * bandwidth / (moving + kept + written), "memory")
    kernel = FusedSchedule(problem, rule, variant)
    useful, waves = _useful(kernel), _waves(kernel, chip)
    byte_s = (moving * (1 + _SEAM_MISSES * (1 / _inside(kernel) - 1)) + kept + written) / variant.steps / (_DIRECT_SHARE * bandwidth)
    if (sectors := chip.bandwidth.rate("l2", "read")) is not None:
        from_l2 = _L2_SHARE * sectors * SECTOR_BYTES * 1e6 * chip.clock_mhz
        byte_s = max(byte_s, ((moving / useful + written) / variant.steps + kept / useful) / from_l2)
    operations = sum(isinstance(part, Operation) for one in rule.body if not one.reduces for part in parts(one.value))
    flat = kernel.flat or problem.grid.dimensions == 1
    issued = chip.sm_count * chip.schedulers * LANES * 1e6 * chip.clock_mhz
    double = 2 if any(problem.dtype(name) == "f8" for name in rule.writes) else 1  # half as many of them a clock
    cells = kernel.rows * kernel.vector
    slots = operations * double * _SLOTS + _SLOTS_A_FETCH * (kernel.fetches + kernel.stores) / cells
    issue_s = (slots + (_SLOTS_A_LAUNCH[flat] + _SLOTS_A_TURN / cells) / variant.steps) / useful / issued / waves
    turns_s = 0.0 if flat else _turns_us(kernel, chip) / (1e6 * problem.grid.cells * variant.steps)
    times = {"memory": byte_s / waves, "instructions": issue_s, "the turns of a block": turns_s}
    limit = max(times, key=lambda one: times[one])
    marching_s = (issue_s**_TOGETHER + turns_s**_TOGETHER) ** (1 / _TOGETHER)
    return Estimate(variant, 1 / max(times[limit], marching_s), limit)


def missed_share(nbytes: float, chip: Chip) -> float:
    """Return the share of the bytes that comes from DRAM if fields of so many bytes are used repeatedly."""
    share = nbytes / chip.l2_bytes if chip.l2_bytes else 2.0
    return min(max((share - RESIDENT) / (EVICTED - RESIDENT), 0.0), 1.0)


def places(kernel: FusedSchedule, chip: Chip) -> int:
    """Return the number of blocks that are resident on the chip at the same time."""
    threads = LANES * kernel.warps
    registers = chip.registers_per_sm // (threads * (kernel.value_registers + OTHER_REGISTERS))
    return max(1, min(chip.max_threads_per_sm // threads, registers)) * chip.sm_count


def _turns_us(kernel: FusedSchedule, chip: Chip) -> float:
    """Return the time of the turns of the blocks' marches in microseconds, where turns have few cells."""
    problem, variant = kernel.problem, kernel.variant
    missed = missed_share(problem.grid.cells * sum(itemsize(problem.dtype(name)) for name in problem.fields), chip)
    memory = chip.latency.l2 + missed * (chip.latency.dram - chip.latency.l2)
    return (variant.steps * _STEP_CYCLES + memory) * _turns(kernel, places(kernel, chip)) / chip.clock_mhz


def _inside(kernel: FusedSchedule) -> float:
    """Return the share of the cells of a plane of all tiles that are results."""
    _, ny, nx = kernel.geometry.extents
    blocks_x, blocks_y, _ = kernel.grid
    tiles = blocks_x * (kernel.warps if kernel.flat else 1)
    return nx * ny / (tiles * LANES * kernel.vector * blocks_y * (1 if kernel.flat else kernel.warps * kernel.rows))


def _useful(kernel: FusedSchedule) -> float:
    """Return the share of the cells that tiles compute that are results."""
    nz, blocks_z = kernel.geometry.extents[0], kernel.grid[2]
    return _inside(kernel) * nz / (nz + blocks_z * kernel.steps * (kernel.reach[0][0] + kernel.lag))


def _waves(kernel: FusedSchedule, chip: Chip) -> float:
    """Return the share of the time for which all multiprocessors are busy: the last wave of blocks leaves some idle."""
    room = chip.sm_count * (1 if not kernel.flat else max(1, 16 // kernel.warps))
    thick, thin, a_layer = _layers(kernel)
    return (thick * (kernel.grid[2] - 1) + thin) * a_layer / (room * _turns(kernel, room))


def _layers(kernel: FusedSchedule) -> tuple[int, int, int]:
    """Return the turns of the blocks of a layer, those of the last layer, and the blocks of a layer.

    A last layer of more than half of the turns counts like the others, as when the model was fitted.
    """
    nz, around = kernel.geometry.extents[0], kernel.steps * (kernel.reach[0][0] + kernel.lag)
    planes = min(kernel.variant.planes, nz)
    thick, thin = planes + around, nz - (kernel.grid[2] - 1) * planes + around
    return thick, thick if 2 * thin > thick else thin, kernel.blocks // kernel.grid[2]


def _turns(kernel: FusedSchedule, room: int) -> int:
    """Return after how many turns all blocks have ended if `room` of them run at the same time: those of a thin last layer also fill the
    places that the wave before leaves."""
    thick, thin, a_layer = _layers(kernel)
    waves, rest = divmod(a_layer * (kernel.grid[2] - 1), room)
    left = a_layer - ((room - rest) * (thick // thin) if rest else 0)
    return (waves + bool(rest)) * thick + ceil(max(0, left) / room) * thin
