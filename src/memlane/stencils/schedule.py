"""Schedule the steps of a launch of several steps: the planes, rows and cells of a tile that each computes, and the values kept of each.

The steps march along z, one behind another. A thread keeps the planes of its own columns that later steps need, and publishes the rows that
other warps read in shared memory. Tiles overlap by the reach of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from memlane.stencils.cell import plain
from memlane.stencils.geometry import Geometry, Offset3, itemsize
from memlane.stencils.problem import Problem, spares
from memlane.stencils.rule import Rule
from memlane.stencils.variant import WARP, Variant


def cannot_fuse(problem: Problem, steps: int) -> str:
    """Return why steps of a problem cannot share a launch; empty where they can."""
    if len(problem.rules) != 1:
        return "a step of several rules has a launch for each"
    (rule,) = problem.rules
    unswapped = [name for name in rule.writes if name not in problem.previous]
    if unswapped or not rule.writes:
        return f"{unswapped[0] if unswapped else 'nothing'} does not take the place of another field after a step"
    if any(len(cycle) - 1 > steps for cycle in problem.swap):
        return "a swap is longer than the steps of a launch"
    for axis, (pair, extent) in enumerate(zip(problem.grid.conditions, problem.grid.shape, strict=True)):
        reach = rule.footprint.radius[axis]
        if reach and "reflecting" in pair:
            return f"axis {axis} has a reflecting face"
        if "periodic" in pair and steps * reach > extent:
            return f"{steps} steps reach {steps * reach} cells along axis {axis}, which has {extent} and is periodic"
    return ""


@dataclass(frozen=True)
class Stream:
    """Values of one cycle of fields after `step` steps of a launch; step 0 has the initial values."""

    cycle: tuple[str, ...]
    step: int

    @property
    def name(self) -> str:
        return f"{plain(self.cycle[1])}_{self.step}"


class FusedSchedule:
    """Schedule of a kernel of several steps of one rule: the cells that it computes in each turn, and the values that it keeps."""

    def __init__(self, problem: Problem, rule: Rule, variant: Variant) -> None:
        self.problem, self.rule, self.variant = problem, rule, variant
        self.geometry = Geometry(problem, rule)
        self.steps, self.rows, self.vector = variant.steps, variant.rows, variant.vector
        self.warps = variant.block[1]
        self.reads = {name: [self.geometry.offsets(one) for one in several] for name, several in rule.reads.items()}
        for name in problem.previous.values():  # source of the values of kept cells
            self.reads[name] = sorted({*self.reads.get(name, []), (0, 0, 0)})

    # -- the schedule ------------------------------------------------------------------------------------------------------------

    @cached_property
    def lag(self) -> int:
        """Planes by which a step lags behind the previous one. Its own rows may come from the same turn of the loop, rows of other warps
        only from the previous turn."""
        needed = [0]
        for cycle in self.problem.swap:
            for dz, dy, _ in self.reads.get(cycle[1], []):
                needed.append(dz + (1 if dy else 0))
        return max(needed)

    def age(self, place: int, dz: int) -> int:
        """Return the age in turns of the plane at distance `dz` that a step reads of the field at `place` of its cycle."""
        return place * self.lag - dz

    def depth(self, stream: Stream) -> int:
        """Return the number of planes of a stream that a thread keeps."""
        ages = [0]
        for place, name in enumerate(stream.cycle):
            if place and stream.step + place <= self.steps:
                ages += [self.age(place, dz) for dz, _, _ in self.reads.get(name, [])]
        return max(ages) + 1 + self.early(stream)

    def early(self, stream: Stream) -> int:
        """Return the number of planes of a stream that a thread has before a step reads them: initial values are loaded ahead."""
        return self.variant.ahead if stream.step == 0 else 0

    def ring(self, cycle: tuple[str, ...]) -> int:
        """Return the number of planes in shared memory of the rows that other warps read; 0 if there are none."""
        ages = [self.age(place, dz) for place, name in enumerate(cycle) if place for dz, dy, _ in self.reads.get(name, []) if dy]
        return max(ages) + 1 if ages else 0

    @cached_property
    def reach(self) -> tuple[tuple[int, int], ...]:
        """The reach of a step before and behind a cell along z, y and x in the fields that change."""
        names = [name for cycle in self.problem.swap for name in cycle[1:]]
        offsets = [(0, 0, 0), *(one for name in names for one in self.reads.get(name, []))]
        return tuple((max(-one[axis] for one in offsets), max(one[axis] for one in offsets)) for axis in range(3))

    @cached_property
    def halo(self) -> tuple[int, int, int, int]:
        """Cells of a tile that are not results: along x at both sides, in whole vectors, and along y."""
        (_, (y_low, y_high), (x_low, x_high)), one = self.reach, self.vector
        low, high = (ceil(self.steps * reach / one) * one for reach in (x_low, x_high))
        return low, high, self.steps * y_low, self.steps * y_high

    @property
    def flat(self) -> bool:
        """Whether the grid has one row in y, so that each warp of a block has a tile of its own."""
        return self.geometry.extents[1] == 1 and self.geometry.axes[1] is None

    @property
    def width(self) -> int:
        """Results of a tile along x."""
        return WARP * self.vector - self.halo[0] - self.halo[1]

    @property
    def height(self) -> int:
        """Results of a tile along y."""
        return 1 if self.flat else self.warps * self.rows - self.halo[2] - self.halo[3]

    @property
    def is_possible(self) -> bool:
        """Whether a tile has results at all, and its rows fit in shared memory."""
        return self.width > 0 and self.height > 0 and (not self.flat or self.rows == 1) and self.shared_bytes <= 220 << 10

    @property
    def value_registers(self) -> int:
        """Least number of 32-bit registers of a thread: its planes of all streams, the cells of a step, and the values that these read of
        fields that steps do not change."""
        cells, moving = self.rows * self.vector, {name for cycle in self.problem.swap for name in cycle}
        held = 0
        for cycle in self.problem.swap:
            planes = 1 + sum(self.depth(Stream(cycle, step)) for step in range(self.steps))
            held += planes * max(1, itemsize(self.problem.dtype(cycle[0])) // 4)
        held += sum(max(1, itemsize(self.problem.dtype(name)) // 4) for name in self.rule.reads if name not in moving)
        return held * cells

    @property
    def fetches(self) -> int:
        """Instructions of a thread in each step that bring values from other lanes, from shared memory, or of fields that steps do not
        change."""
        moving = {name for cycle in self.problem.swap for name in cycle}
        found = 0
        for name, offsets in self.reads.items():
            words, (_, (y_low, y_high), _) = max(1, itemsize(self.problem.dtype(name)) // 4), bounds(offsets)
            for dz in {one[0] for one in offsets}:
                for row in range(y_low, self.rows + y_high):
                    cells = {dx + cell for one, dy, dx in offsets if one == dz and 0 <= row - dy < self.rows for cell in range(self.vector)}
                    beside = len(cells - set(range(self.vector)))
                    whole = bool(cells) and (name not in moving or not 0 <= row < self.rows)
                    found += beside * words + (ceil(self.vector * words / 4) if whole else 0)
        return found

    @property
    def stores(self) -> int:
        """Instructions of a thread in each step that store the rows that other warps read to shared memory."""
        words = max(1, itemsize(self.shared_dtype) // 4)
        return len(self.published) * ceil(self.vector * words / 4) * sum(self.ring(cycle) > 0 for cycle in self.problem.swap)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along x, y and z."""
        return self.grid_of(self.geometry.extents[0])

    def grid_of(self, planes: int, rows: int | None = None, cells: int | None = None) -> tuple[int, int, int]:
        """Return the blocks along x, y and z of a launch for so many planes, rows per plane and cells per row; by default for all."""
        _, ny, nx = (full if given is None else given for full, given in zip(self.geometry.extents, (planes, rows, cells), strict=True))
        tiles = ceil(nx / self.width)
        return (
            (ceil(tiles / self.warps) if self.flat else tiles),
            1 if self.flat else ceil(ny / self.height),
            ceil(planes / self.variant.planes),
        )

    @property
    def block(self) -> tuple[int, int]:
        return WARP, self.warps

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    @property
    def inputs(self) -> list[str]:
        moving = [name for cycle in self.problem.swap for name in cycle[1:]]
        return [*moving, *(name for name in self.rule.reads if name not in moving)]

    @property
    def outputs(self) -> list[str]:
        return [name for cycle in self.problem.swap for name in spares(cycle)]

    @cached_property
    def published(self) -> list[int]:
        """The rows of a thread that other warps read."""
        (low, high), rows = self.reach[1], self.rows
        return sorted({*range(min(high, rows)), *range(max(0, rows - low), rows)})

    @cached_property
    def rings(self) -> dict[str, tuple[int, int]]:
        """Offset in shared memory, in cells, and number of planes of the ring, for each stream with rows there."""
        found, at = {}, 0
        for cycle in self.problem.swap:
            planes = self.ring(cycle)
            for step in range(self.steps) if planes else ():
                found[Stream(cycle, step).name] = at, planes
                at += planes * self.warps * len(self.published) * WARP * self.vector
        return found

    @property
    def shared_bytes(self) -> int:
        count = sum(planes for _, planes in self.rings.values()) * self.warps * len(self.published) * WARP * self.vector
        return count * (itemsize(self.shared_dtype))

    @property
    def shared_dtype(self) -> str:
        """The type of the values in shared memory."""
        return "f8" if "f8" in {self.problem.dtype(name) for name in self.rule.writes} else "f4"


def bounds(offsets: list[Offset3]) -> tuple[tuple[int, int], ...]:
    """Return the least and the greatest offset along z, y and x, with the cell itself among them."""
    all_ = [(0, 0, 0), *offsets]
    return tuple((min(one[axis] for one in all_), max(one[axis] for one in all_)) for axis in range(3))
