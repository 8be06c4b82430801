"""Generate persistent kernels for several devices: one launch on each device makes many steps, and devices signal each other during it.

A kernel makes turns, as plans of `exchange` do: `every` steps, each of them every rule in order, and one exchange. The blocks of a launch
compute tile after tile of a rule and then synchronize at a grid barrier, so a step needs no launch and no exchange of its own. That pays
if steps are short: if the fields of a device stay in L2.

- The first rule of a turn reads what neighbours have sent. Its tiles at the borders come first, and wait for the neighbours' flags.
- The last rule of a turn computes the borders first. The blocks also store them into the halos of the neighbours, all fields at once; the
  last block to finish raises flags in the neighbours' memory. The other planes are computed meanwhile.

Ordering by flags. A device raises its flags for turn n after all its borders of turn n, so after all its reads of halos and all its stores
into those of the neighbours. It begins the borders of turn n + 1 after both neighbours' flags for turn n, so it reads halos that have
arrived. Its stores go to memory that no launch of the neighbour touches in the same turn, because fields have swapped; or the neighbour
signals by another flag that its last such launch is complete (`free_after`). If that is the last launch of the turn, borders are stored
after it, in a separate pass.

Counts of turns are kept in device memory and continue from launch to launch. The kernel has the text of `DirectKernel` as a function for
each rule, without promising that fields do not overlap, because the fields that it reads change while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil
from string import Template

from memlane.stencils.access import indented, range_parameters
from memlane.stencils.cell import REGISTER, STORED, plain
from memlane.stencils.code import StepKernel
from memlane.stencils.direct import DirectKernel
from memlane.stencils.geometry import RANGE
from memlane.stencils.problem import Problem
from memlane.stencils.turns import Turn, reach_of

SIGNAL_WORDS = 32
"""Words of a row of a device's memory for signals: a cache line, so that each flag has its own."""
FROM_LOW, FROM_HIGH, LOW_IS_FREE, HIGH_IS_FREE, STATE = range(5)
"""Rows of the memory for signals: neighbours have sent; halos of neighbours are free; the device's own words."""
SIGNAL_ROWS = 5
GAVE_UP = 3
"""First of the words of the last row that describe a wait that gave up: the number of its row + 1, the value seen, and the value
expected."""


def cannot_stay(problem: Problem) -> str:
    """Return why a problem cannot have a persistent kernel; empty if it can."""
    if problem.cut != (0,):
        return "the grid has to be cut along its first axis alone"
    if problem.grid.dimensions == 1:
        return "the grid has one axis, and a kernel that stays stores planes or rows"
    return ""


def free_after(turn: Turn, names: Sequence[str]) -> int:
    """Return the index of a turn's last launch that touches halos into which neighbours store `names` after the turn; -1 if none does."""
    after = turn.names_after(turn.rounds)
    sent = {after.get(name, name) for name in names}
    found = -1
    for at, one in enumerate(turn.launches):
        reaches = any(map(any, one.halo))
        read = {one.holders.get(name, name) for name in one.kernel.inputs if reaches or any(map(any, reach_of(one.kernel, name)))}
        written = {one.holders.get(name, name) for name in one.kernel.outputs if reaches}
        found = at if sent & (read | written) else found
    return found


class _TileFunction(DirectKernel):
    """Text of a function that computes a tile of one step of one rule."""

    def _signature(self) -> list[str]:
        given = ["const int block_x", "const int block_y", "const int block_z"]
        given += [f"{STORED[self.problem.dtype(name)]}* {plain(name)}_field" for name in (*self.outputs, *self.inputs)]
        given += [f"const {REGISTER[self.problem.grid.dtype]}* scalars, int step", *range_parameters(self.geometry)]
        return ["__device__ __forceinline__ void", f"make_tile({', '.join(given)}) {{"]

    def _block_order(self) -> list[str]:
        return []

    def tiles(self, planes: int) -> int:
        """Return the number of tiles for so many planes."""
        x, y, _ = self.grid
        return x * y * ceil(planes / self.variant.planes)


class PersistentKernel:
    """The text of a kernel that makes many steps on one of several devices, with an exchange after every `every` of them or fewer."""

    def __init__(self, problem: Problem, kernels: Sequence[StepKernel], every: int, *, fmad: bool = True) -> None:
        """Take the one-step kernel of each rule, in order; all get the block shape of the first."""
        self.problem = problem
        self.block = kernels[0].block
        cuts = [replace(one.variant, block=self.block) for one in kernels]
        self.functions = [_TileFunction(problem, one.rule, cut, fmad=fmad) for one, cut in zip(kernels, cuts, strict=True)]
        self.turn = Turn(problem, tuple(self.functions), every)
        """Longest turn that the kernel makes."""
        self.name = f"{'_'.join(plain(one.rule.name) for one in kernels)}_persistent"
        turns = [Turn(problem, tuple(self.functions), rounds) for rounds in range(1, every + 1)]
        self.sent = [name for name in problem.fields if any(name in turn.needs for turn in turns)]
        """The fields that neighbours may need."""

    def signal_rows(self, planes: int) -> int:
        """Return the rows of the memory for signals of a device with so many planes."""
        return SIGNAL_ROWS

    @property
    def memories(self) -> list[str]:
        """Names whose memory the sent fields may have after some number of steps."""
        names = {other for name in self.sent for other in self._cycle(name)}
        return [name for name in self.problem.fields if name in names]

    def blocks(self, planes: int) -> int:
        """Return the largest useful number of blocks for a part of so many planes."""
        tiles = []
        for function, (low, high) in zip(self.functions, self._halos(self.turn.rounds - 1), strict=True):
            most = planes + low + high
            tiles.append(function.tiles(most) + 2 * function.tiles(1))  # borders have separate tiles
        return max(tiles)

    def _halos(self, left: int) -> list[tuple[int, int]]:
        """Return the planes of halo that each rule computes when `left` more steps of a turn follow."""
        launches, rules = self.turn.launches, len(self.functions)
        first = len(launches) - (left + 1) * rules
        return [one.halo[0] for one in launches[first : first + rules]]

    def _cycle(self, name: str) -> tuple[str, ...]:
        return next((group for group in self.turn.rotation if name in group), (name,))

    # -- the text ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        parts = []
        for at, function in enumerate(self.functions):
            parts += [f"namespace rule_{at} {{", function.text, "}"]
        return "\n".join([*parts, WAITING, self._kernel()])

    def _kernel(self) -> str:
        """Return the kernel, which calls the functions for tile after tile, step after step."""
        (bx, by), problem = self.block, self.problem
        pointers = [f"{self._type(name)}* {side}{plain(name)}_memory" for side in ("", "low_", "high_")
                    for name in (self.memories if side else problem.fields)]  # fmt: skip
        return Template(_KERNEL).substitute(
            name=self.name, threads=bx * by, bx=bx, scalar=REGISTER[problem.grid.dtype],
            pointers=",\n    ".join(pointers), widths="".join(f"int down_{plain(name)}, int up_{plain(name)}, " for name in self.sent),
            state=STATE * SIGNAL_WORDS, present="\n".join(indented(self._present(), 2)),
            rules="\n".join(self._rule(at) for at in range(len(self.functions))),
        )  # fmt: skip

    def _type(self, name: str) -> str:
        return STORED[self.problem.dtype(name)]

    def _present(self) -> list[str]:
        """Return the definitions of the memory that each field has in a step, and of that which sent fields have behind it."""
        lines = [f"const int at_{count} = step % {count};" for count in sorted({len(group) for group in self.turn.rotation})]
        lines += [f"{self._type(name)}* const {plain(name)}_field = {self._memory(name, '', 0)};" for name in self.problem.fields]
        for side in ("", "low_", "high_"):
            lines += [f"{self._type(name)}* const {side}{plain(name)}_sent = {self._memory(name, side, 1)};" for name in self.sent]
        return lines

    def _memory(self, name: str, side: str, more: int) -> str:
        """Return the memory that a name has after the steps so far and some more."""
        group = self._cycle(name)
        names = [f"{side}{plain(group[(group.index(name) + more + step) % len(group)])}_memory" for step in range(len(group))]
        return _chosen(f"at_{len(group)}", names)

    def _rule(self, at: int) -> str:
        """Return the code of one rule in a step."""
        function, last = self.functions[at], len(self.functions) - 1
        (bx, by), one, (gx, gy, _) = self.block, function.variant, function.grid
        halos = [self._halos(left)[at] for left in range(self.turn.rounds)]
        before, behind = next(launch.reach[0] for launch in self.turn.launches if launch.kernel is function)
        reach = {"origin": "origin", "read_first": f"from - {before}", "read_last": f"to - 1 + {behind}"}
        reach |= {"range_first": "from", "range_end": "to"}
        return Template(_RULE).substitute(
            at=at, rules=len(self.functions), rule=function.rule.name, waits="position == 0" if at == 0 else "false",
            sends="left == 0" if at == last else "false", before=before, behind=behind,
            below=_chosen("left", [str(low) for low, _ in halos]), above=_chosen("left", [str(high) for _, high in halos]),
            fields=", ".join(f"{plain(name)}_field" for name in (*function.outputs, *function.inputs)),
            places=", ".join(reach[which] for which in RANGE), planes=one.planes, gx=gx, gy=gy, rows=by * one.rows, cells=bx * one.vector,
            threads=bx * by, stores="\n".join(indented(self._stores(at), 6)) if at == last else "",
            from_low=FROM_LOW * SIGNAL_WORDS, from_high=FROM_HIGH * SIGNAL_WORDS, wait_from_low=FROM_LOW + 1,
            wait_from_high=FROM_HIGH + 1, low_is_free=LOW_IS_FREE * SIGNAL_WORDS, high_is_free=HIGH_IS_FREE * SIGNAL_WORDS,
            wait_low_is_free=LOW_IS_FREE + 1, wait_high_is_free=HIGH_IS_FREE + 1,
        )  # fmt: skip

    def _stores(self, at: int) -> list[str]:
        """Return the stores of a cell of the borders into the halos of the neighbours."""
        lines = []
        for name in map(plain, self.sent):
            value = f"{name}_sent[(long long)(plane - origin) * rule_{at}::PLANE + place]"
            for side, test in (("low", f"plane < start + down_{name}"), ("high", f"plane >= stop - up_{name}")):
                lines.append(f"if ({test}) {side}_{name}_sent[(long long)(plane - {side}_origin) * rule_{at}::PLANE + place] = {value};")
        return lines


def _chosen(index: str, values: Sequence[str]) -> str:
    """Return the expression that is the value with an index."""
    if len(set(values)) == 1:
        return values[0]
    return "".join(f"{index} == {at} ? {value} : " for at, value in enumerate(values[:-1])) + values[-1]


_KERNEL = """\
extern "C" __global__ void __launch_bounds__($threads)
$name(
    $pointers,
    const $scalar* scalars, int row, int more_rows, int steps, int every,
    int origin, int start, int stop, int low_origin, int high_origin, int has_low, int has_high, int low_border, int high_border,
    ${widths}int free_after, int is_late, unsigned* low_signals, unsigned* high_signals, unsigned* signals, unsigned polls
) {
    const int thread = threadIdx.y * $bx + threadIdx.x;
    unsigned* const state = signals + $state;
    const unsigned made = state[0];  // turns so far, on all devices
    const bool exchanges = low_border + high_border > 0;
    for (int step = 0; step < steps; ++step) {
        const int position = step % every, left = every - 1 - position;
        const unsigned turn = made + step / every;
$present
$rules
    }
    if (blockIdx.x == 0 && thread == 0) state[0] = made + steps / every;
}
"""

_RULE = """\
        {  // $rule
            const int begin = start - (has_low ? $below : 0), end = stop + (has_high ? $above : 0);
            const bool waits = exchanges && $waits, sends = exchanges && $sends;
            int low = 0, high = 0;  // planes of the borders
            if (waits) low = start + $before - begin, high = end - stop + $behind;
            if (sends) low = max(low, low_border), high = max(high, high_border);
            low = has_low ? low : 0, high = has_high ? high : 0;
            if (low + high > end - begin) low = end - begin, high = 0;
            const int tiles = $gx * $gy;
            const int low_tiles = tiles * ((low + $planes - 1) / $planes), borders = low_tiles + tiles * ((high + $planes - 1) / $planes);
            const int all = borders + tiles * ((end - high - begin - low + $planes - 1) / $planes);
            const int passes = sends && is_late ? 2 : 1;
            bool has_arrived = !waits, is_free = !sends || free_after < 0;
            for (int pass = 0; pass < passes; ++pass) {
                for (int tile = blockIdx.x; tile < (pass ? borders : all); tile += gridDim.x) {
                    const bool is_border = tile < borders;
                    if (is_border && !has_arrived) {
                        if (thread == 0 && has_low) wait_for(signals + $from_low, turn, $wait_from_low, polls, state);
                        if (thread == 0 && has_high) wait_for(signals + $from_high, turn, $wait_from_high, polls, state);
                        __syncthreads();
                        has_arrived = true;
                    }
                    const int from = tile < low_tiles ? begin : is_border ? end - high : begin + low;
                    const int to = tile < low_tiles ? begin + low : is_border ? end : end - high;
                    const int part = tile - (tile < low_tiles ? 0 : is_border ? low_tiles : borders);
                    const int block_x = part % $gx, block_y = part / $gx % $gy, block_z = part / tiles;
                    if (!pass) rule_$at::make_tile(block_x, block_y, block_z, $fields, scalars, row + step * more_rows, $places);
                    if (!is_border || !sends || pass + 1 < passes) continue;
                    if (!is_free) {
                        if (thread == 0 && has_low) wait_for(signals + $low_is_free, turn + 1, $wait_low_is_free, polls, state);
                        if (thread == 0 && has_high) wait_for(signals + $high_is_free, turn + 1, $wait_high_is_free, polls, state);
                        is_free = true;
                    }
                    __syncthreads();
                    const int z = from + block_z * $planes, z_end = min(z + $planes, to), y = block_y * $rows, x = block_x * $cells;
                    for (int at = thread; at < (z_end - z) * $rows * $cells; at += $threads) {
                        const int plane = z + at / ($rows * $cells), line = y + at / $cells % $rows, cell = x + at % $cells;
                        if (line >= rule_$at::NY || cell >= rule_$at::NX) continue;
                        const long long place = (long long)line * rule_$at::PITCH + cell;
$stores
                    }
                    __syncthreads();
                    if (thread == 0) {
                        __threadfence_system();  // what the block stored is there before its count
                        if (atomicAdd(state + 1, 1u) + 1 == (unsigned)borders) {
                            state[1] = 0;  // nobody counts before the next turn
                            __threadfence_system();
                            if (has_low) raise(low_signals + $from_high, turn + 1);
                            if (has_high) raise(high_signals + $from_low, turn + 1);
                        }
                    }
                }
                if (!has_arrived && blockIdx.x == 0) {  // behind the barrier all that was sent is there
                    if (thread == 0 && has_low) wait_for(signals + $from_low, turn, $wait_from_low, polls, state);
                    if (thread == 0 && has_high) wait_for(signals + $from_high, turn, $wait_from_high, polls, state);
                    has_arrived = true;
                }
                grid_barrier(state + 2, thread);
                if (!pass && exchanges && free_after == position * $rules + $at && blockIdx.x == 0 && thread == 0) {
                    __threadfence_system();
                    if (has_low) raise(low_signals + $high_is_free, turn + 1);
                    if (has_high) raise(high_signals + $low_is_free, turn + 1);
                }
            }
        }"""

WAITING = """\
__device__ __forceinline__ void raise(unsigned* flag, unsigned count) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(flag), "r"(count) : "memory");
}
// Polls a flag until it has been raised to a count. A device that has waited too long goes on at once, and says for whom it waited.
__device__ __noinline__ void wait_for(const unsigned* flag, unsigned count, unsigned row, unsigned polls, unsigned* state) {
    unsigned seen;
    bool gone = *(volatile unsigned*)(state + 3) != 0;
    for (unsigned poll = 0; !gone; ++poll) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        if ((int)(seen - count) >= 0) return;
        if (poll < polls) continue;
        gone = true;
        if (atomicCAS(state + 3, 0u, row) == 0) {
            state[4] = seen;
            state[5] = count;
        }
    }
}
// All blocks of the launch meet. They are on the device at the same time: reading %envreg1 is what makes a launch cooperative. The first
// block adds what the others leave to the next multiple of 2^31, so the highest bit changes when all have arrived.
__device__ __forceinline__ void grid_barrier(unsigned* word, int thread) {
    __syncthreads();
    if (thread == 0) {
        unsigned cooperative;
        asm volatile("mov.u32 %0, %%envreg1;" : "=r"(cooperative));
        __threadfence();
        const unsigned before = atomicAdd(word, blockIdx.x ? 1u : 0x80000000u - (gridDim.x - 1));
        while (((before ^ *(volatile unsigned*)word) & 0x80000000u) == 0) {}
        __threadfence();
    }
    __syncthreads();
}
"""
