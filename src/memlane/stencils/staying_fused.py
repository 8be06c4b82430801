"""Kernels of several steps that stay on several devices: turn after turn of launches of `fused`, which exchange planes while they compute.

Each block keeps its part of the grid, a column of tiles through some planes, for all turns, and all blocks are on the device at the same
time. Between two turns a block waits for the blocks around it, as in `resident`. Blocks at the ends of a device march inwards, so what
they send has arrived when the neighbour begins its next turn; planes travel as there, word by word with a count. There are no launches for
borders, and no exchange between launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil
from string import Template

from memlane.chip import Chip
from memlane.stencils.access import access_functions, indented, shifted
from memlane.stencils.cell import REGISTER, STORED, plain
from memlane.stencils.choice import estimate, fused_variants
from memlane.stencils.direct import scalar_loads
from memlane.stencils.fused import FusedKernel
from memlane.stencils.geometry import itemsize
from memlane.stencils.persistent import FROM_HIGH, FROM_LOW, GAVE_UP, SIGNAL_ROWS, SIGNAL_WORDS, STATE, WAITING
from memlane.stencils.problem import Problem
from memlane.stencils.resident_text import SENDING
from memlane.stencils.rule import Rule
from memlane.stencils.schedule import FusedSchedule, Stream, cannot_fuse
from memlane.stencils.tiles import ARRIVALS
from memlane.stencils.variant import WARP, Variant


def cannot_stay_fused(problem: Problem, rule: Rule, variant: Variant, planes: int) -> str:
    """Return why no kernel can make turns of several steps by staying on devices of so many planes; empty if one can."""
    if why := cannot_fuse(problem, variant.steps):
        return why
    if problem.grid.dimensions != 3 or problem.cut != (0,):
        return "the grid is not cut along the first of three axes"
    if len(problem.swap) != 1 or len(problem.swap[0]) != 2 or rule.writes != problem.swap[0][:1]:
        return "more than two fields change"
    schedule = FusedSchedule(problem, rule, variant)
    if problem.grid.shape[2] % variant.vector or variant.vector * itemsize(problem.dtype(problem.swap[0][0])) < 4:
        return "rows are no multiple of what a thread has"
    low, high, y_low, y_high = schedule.halo
    deep = variant.steps * max(schedule.reach[0])
    if schedule.width < max(low, high) or schedule.height < max(y_low, y_high):
        return "a tile has fewer cells than the steps reach"
    if planes <= variant.planes:
        return "both ends of a device would be in one block"
    if min(planes % variant.planes or variant.planes, variant.planes) < deep:
        return f"a block has fewer planes than the {deep} that the steps reach"
    return ""


class _Turn(FusedKernel):
    """The text of a function that makes the turns of a block, upwards or downwards."""

    @property
    def moving(self) -> str:
        return self.problem.swap[0][1]

    @cached_property
    def body(self) -> list[str]:
        """The statements of a turn."""
        return [*self._position(), *self._queues(), *self._loop()]

    def _block_order(self) -> list[str]:
        return []

    def _beginning(self) -> list[str]:
        return []

    def _rows_in_shared(self) -> list[str]:
        _, clear, *rest = super()._rows_in_shared()[:1], *super()._rows_in_shared()[1:]
        return ["if (!at) {", *indented([clear, *rest], 1), "}"]

    _is_end = False
    """Whether the text is that of turns in which blocks at the ends of a device receive and send."""

    def _queues(self) -> list[str]:
        self._is_end = True
        lines = super()._queues()
        self._is_end = False
        return lines

    def _loop(self) -> list[str]:
        """Return the march in two parts: the turns in which blocks at the ends receive and send planes, and all others. A load that may
        come from a neighbour is waited for at once, so it would slow down all turns."""
        begin, behind = self._around
        turns = begin + behind + self.steps * self.reach[0][1]
        ends = -(-turns // self.variant.unroll) * self.variant.unroll
        self._is_end = True
        at_end = self._turns(f"first - {begin}", f"first - {begin} + {ends}")
        self._is_end = False
        lines = [f"int next = first - {begin};", "if (is_end) {", *indented(at_end, 1), f"    next += {ends};", "}"]
        return [*lines, *self._turns("next", f"end + {behind}")]

    def _load(self, cycle: tuple[str, ...], z: str, plane: int = 0) -> list[str]:
        lines = super()._load(cycle, z, plane)
        if not self._is_end:
            return lines
        rows, to = self.rows, Stream(cycle, 0).name
        numbers = ", ".join(f"inside_y({shifted('y0', row)})" for row in range(rows))
        place = f"arrivals, first - 1 - ({z}), rows, min(x_read, NX - {self.vector})"
        arrived = [
            f"const int rows[{rows}] = {{{numbers}}};",
            f"arrived_in<1, {rows}>({place}, {to} + {plane}, count, polls, state, is_low);",
        ]
        return [f"if (arrives && {z} < first) {{  // a plane of a neighbouring device", *indented(arrived, 1), "} else {", *lines, "}"]

    def _put(self, field: str, dtype: str, value: str, z: str, y: str) -> list[str]:
        stores, planes = super()._put(field, dtype, value, z, y), self.steps * self.reach[0][1]
        if not self._is_end or not planes:
            return stores
        return [*stores, f"if (is_end && {z} < first + {planes}) send_cells(departures, {z} - first, {y}, x0, {value}, count + 1);"]


class StayingFusedKernel:
    """The text of a kernel that makes many turns of several steps on one of several devices."""

    def __init__(self, problem: Problem, rule: Rule, variant: Variant, *, fmad: bool = True) -> None:
        self.problem, self.rule, self.variant = problem, rule, variant
        self.ways = tuple(_Turn(problem, rule, variant, fmad=fmad, way=way) for way in (1, -1))
        self.new, self.moving = problem.swap[0]
        self.name = f"{plain(rule.name)}_{variant.steps}_steps_staying"
        self.block = self.ways[0].block

    def __str__(self) -> str:
        return f"blocks of {self.variant}"

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return max(one.shared_bytes for one in self.ways)

    @property
    def across(self) -> tuple[int, int]:
        """Blocks along x and y."""
        x, y, _ = self.ways[0].grid
        return x, y

    def blocks_of(self, planes: int) -> int:
        """Return how many blocks a part of so many planes has."""
        x, y = self.across
        return x * y * ceil(planes / self.variant.planes)

    def signal_rows(self, planes: int) -> int:
        """Return the rows of the memory in which a device is signalled, as those of kernels in `resident`."""
        x, y = self.across
        return SIGNAL_ROWS + 2 * x * y + self.blocks_of(planes)

    @property
    def arrival_shape(self) -> tuple[int, ...]:
        """The shape of the memory for planes of neighbours, as in `resident`."""
        _, ny, nx = self.ways[0].geometry.extents
        depth = max(1, self.variant.steps * max(self.ways[0].reach[0]))
        return 2, ARRIVALS, depth, ny, nx * itemsize(self.problem.dtype(self.moving)) // 4

    @cached_property
    def parameters(self) -> list[tuple[str, str]]:
        """The parameters of the kernel and their types."""
        dtype, constant = self.problem.dtype, self.problem.constant
        found = [(f"{plain(name)}_memory", f"const {STORED[dtype(name)]}* __restrict__" if name in constant else f"{STORED[dtype(name)]}*")
                 for name in self.problem.fields]  # fmt: skip
        found += [("scalars", f"const {REGISTER[self.problem.grid.dtype]}*")]
        found += [(name, "int") for name in ("row", "more_rows", "steps", "origin", "start", "stop", "has_low", "has_high")]
        found += [(name, "unsigned*") for name in ("low_signals", "high_signals", "signals")]
        found += [(name, "unsigned long long*") for name in ("to_low", "to_high", "from_others")]
        return [*found, ("polls", "unsigned")]

    @cached_property
    def text(self) -> str:
        problem, up, dtype = self.problem, self.ways[0], self.problem.dtype(self.moving)
        (gx, gy), geometry = self.across, up.geometry
        words = up.vector * itemsize(dtype) // 4
        _, _, depth, _, row = self.arrival_shape
        filled = {
            "T": STORED[dtype], "R": REGISTER[dtype], "vector": up.vector, "row": row, "words": words, "rows": 1,
            "pair": 2 if words % 2 == 0 else 1, "wait_from_low": FROM_LOW + 1, "wait_from_high": FROM_HIGH + 1, "gave_up": GAVE_UP,
        }  # fmt: skip
        constants = [
            f"const {STORED[problem.dtype(name)]}* const {plain(name)}_field = {plain(name)}_memory - (long long)origin * PLANE;"
            for name in problem.fields if name in problem.constant
        ]  # fmt: skip
        wraps = geometry.conditions[1][0] == "periodic", geometry.conditions[2][0] == "periodic"
        body = Template(_KERNEL).substitute(
            filled, name=self.name, threads=WARP * up.warps, new=plain(self.new), u=plain(self.moving), gx=gx, gy=gy,
            parameters=",\n    ".join(f"{kind} {name}" for name, kind in self.parameters), planes=self.variant.planes,
            constants="\n".join(indented([*constants, *scalar_loads(problem, self.rule)], 1)), together=self.variant.steps,
            shared=f"extern __shared__ {REGISTER[up.shared_dtype]} shared_rows[];",
            up="\n".join(indented(up.body, 3)), down="\n".join(indented(self.ways[1].body, 3)),
            before=up.steps * up.reach[0][0], behind=up.steps * up.reach[0][1],
            wraps_y=str(wraps[0]).lower(), wraps_x=str(wraps[1]).lower(), width=up.width, height=up.height,
            from_low=SIGNAL_ROWS, from_high=SIGNAL_ROWS + gx * gy, own=SIGNAL_ROWS + 2 * gx * gy, signal_words=SIGNAL_WORDS,
            state=STATE * SIGNAL_WORDS, arrivals=ARRIVALS, end_words=ARRIVALS * depth * geometry.extents[1] * row,
            arrival_words=depth * geometry.extents[1] * row,
        )  # fmt: skip
        dtypes = [problem.dtype(name) for name in self.rule.fields]
        parts = [
            f"// {self.rule.name}: {self.variant}",
            *geometry.constants(clamped=True),
            *access_functions(geometry, [*dtypes, up.shared_dtype]),
            up.cell.text,
            WAITING,
            Template(SENDING).substitute(filled),
            body,
        ]
        return "\n".join(parts)


def best_staying(problem: Problem, planes: Sequence[int], steps: int, chip: Chip) -> Variant | None:
    """Return the fastest variant of so many steps whose blocks stay on devices of so many planes; None where there is none."""
    rule = problem.rules[0]
    like = replace(problem, grid=replace(problem.grid, shape=(max(planes), *problem.grid.shape[1:])), cut=())
    found: dict[Variant, float] = {}
    for one in fused_variants(like, rule) if not cannot_fuse(problem, steps) else ():
        layers = max(2, round(max(planes) / one.planes))
        variant = replace(one, planes=ceil(max(planes) / layers))
        whole = replace(problem, cut=(0,))
        if one.steps != steps or any(cannot_stay_fused(whole, rule, variant, each) for each in planes):
            continue
        if FusedSchedule(like, rule, variant).blocks <= chip.sm_count:  # all of them are there at the same time
            found[variant] = 1 / estimate(like, rule, variant, chip).cells_per_s
    return min(found, key=lambda one: found[one], default=None)


_KERNEL = """\
// Waits until the blocks around a block have made so many turns, and those of neighbouring devices all but two of them.
__device__ __forceinline__ void wait_around(
    unsigned* signals, unsigned count, int block_x, int block_y, int block_z, int blocks_z, bool has_low, bool has_high, int thread,
    unsigned polls
) {
    constexpr bool WRAPS_X = $wraps_x, WRAPS_Y = $wraps_y;
    const int at = thread % 32;
    if (thread >= 64 || at >= 27) return;
    const int from_x = block_x + at % 3 - 1, x = WRAPS_X ? (from_x + $gx) % $gx : from_x;
    const int from_y = block_y + at / 3 % 3 - 1, y = WRAPS_Y ? (from_y + $gy) % $gy : from_y;
    if (x < 0 || x >= $gx || y < 0 || y >= $gy) return;
    if (thread < 32) {
        const int z = block_z + at / 9 - 1;
        if (z < 0 || z >= blocks_z) return;
        const unsigned* const flag = signals + ($own + (z * $gy + y) * $gx + x) * $signal_words;
        unsigned seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        } while ((int)(seen - count) < 0);
    } else if (at < 9 && (has_low || has_high)) {
        const unsigned* const flag = signals + ((has_low ? $from_low : $from_high) + y * $gx + x) * $signal_words;
        wait_for(flag, count - 2, has_low ? $wait_from_low : $wait_from_high, polls, signals + $state);
    }
}
extern "C" __global__ void __launch_bounds__($threads)
$name(
    $parameters
) {
    unsigned cooperative;  // reading %envreg1 is what makes a launch cooperative: all blocks are on the device at the same time
    asm volatile("mov.u32 %0, %%envreg1;" : "=r"(cooperative));
    $shared
    const int block_x = blockIdx.x % $gx, block_y = blockIdx.x / $gx % $gy, block_z = blockIdx.x / ($gx * $gy);
    const int blocks_z = gridDim.x / ($gx * $gy), thread = threadIdx.y * 32 + threadIdx.x;
    const int read_first = start - $before, read_last = stop - 1 + $behind, range_first = start, range_end = stop, step = row;
    const bool is_low = has_low && block_z == 0, is_high = has_high && block_z == blocks_z - 1, is_end = is_low || is_high;
    unsigned* const state = signals + $state;
    unsigned* const own = signals + ($own + blockIdx.x) * $signal_words;
    const unsigned made = *(volatile unsigned*)own;  // turns so far, of all blocks on all devices
$constants
    const $T* ${u}_field = ${u}_memory - (long long)origin * PLANE;
    $T* ${new}_field = ${new}_memory - (long long)origin * PLANE;
    const int turns = steps / $together;
    for (int at = 0; at < turns; ++at) {
        const unsigned count = made + at;
        wait_around(signals, count, block_x, block_y, block_z, blocks_z, is_low, is_high, thread, polls);
        __syncthreads();
        unsigned long long* const arrivals = from_others + (is_low ? 0 : $end_words) + count % $arrivals * $arrival_words;
        unsigned long long* const departures = (is_low ? to_low + $end_words : to_high) + (count + 1) % $arrivals * $arrival_words;
        const bool arrives = is_end && at;
        if (block_z + 1 < blocks_z) {  // blocks at the ends march inwards
$up
        } else {
$down
        }
        __syncthreads();
        if (thread == 0) {
            __threadfence();  // what the block stored is there before its count
            *(volatile unsigned*)own = count + 1;
            // Nothing that the block stored is meant for other devices: they are told that it has read what they sent.
            const int number = block_y * $gx + block_x;
            if (is_low) *(volatile unsigned*)(low_signals + ($from_high + number) * $signal_words) = count + 1;
            if (is_high) *(volatile unsigned*)(high_signals + ($from_low + number) * $signal_words) = count + 1;
        }
        $T* const moved = const_cast<$T*>(${u}_field);
        ${u}_field = ${new}_field, ${new}_field = moved;
    }
    if (!is_end) return;
    // What comes next reads the halo.
    unsigned long long* const arrivals = from_others + (is_low ? 0 : $end_words) + (made + turns) % $arrivals * $arrival_words;
    constexpr int ACROSS = $width / $vector;
    for (int item = thread; item < (is_low ? $before : $behind) * $height * ACROSS; item += $threads) {
        const int plane = item / ($height * ACROSS), y = block_y * $height + item / ACROSS % $height;
        const int x = block_x * $width + item % ACROSS * $vector;
        if (y >= NY || x >= NX) continue;
        $R cells[$vector];
        arrived_cells(arrivals, plane, y, x, cells, made + turns, polls, state, is_low);
        $T* const halo = const_cast<$T*>(${u}_field) + ((is_low ? start - 1 - plane : stop + plane) * PLANE + y * PITCH + x);
        for (int c = 0; c < $vector; ++c) narrow(halo[c], cells[c]);
    }
}
"""
