"""Steps on several devices by kernels that stay on them: one launch on each device makes many steps, and devices signal each other in it.

A kernel computes the planes at its borders first and stores them into its neighbours' halos, too; when all blocks have done so it raises
flags in the neighbours' memory. The other planes are computed meanwhile. Blocks that compute borders wait for the neighbours' flags of
the step before; behind each step stands a barrier of the grid. So a step has neither a launch nor an exchange of its own. That pays where
steps are short: where the fields of a device stay in L2.

What the flags order. A device raises its flags for step n behind all its borders of step n: what they read in its halos and what they
stored into those of the neighbours. It begins the borders of step n + 1 behind both neighbours' flags for step n. So it reads halos that
have arrived, and it stores into halos that the neighbour has read for the last time at step n, because two fields change places.

Counts of steps lie in memory of the devices and go on from launch to launch. The kernel is the text of `DirectKernel` as a function that
blocks call for one tile after another; its loads are plain ones, because what they read changes while it runs.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil
from string import Template

from memlane.stencils.access import range_parameters
from memlane.stencils.cell import REGISTER, STORED, plain
from memlane.stencils.direct import DirectKernel
from memlane.stencils.geometry import RANGE
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule
from memlane.stencils.variant import Variant

SIGNAL_WORDS = 32
"""Words of a row of the memory in which a device is signalled: a line of the cache, so that nothing else moves with a flag."""
FROM_LOW, FROM_HIGH, STATE = range(3)
"""Rows of it: the flags that the neighbours raise, and what the device keeps for itself."""
GAVE_UP = 3
"""The word of the last row, and those behind it, that say which wait gave up: 1 or 2 for the low or the high neighbour, what was seen, and
what was waited for."""


def cannot_stay(problem: Problem) -> str:
    """Return why no kernel can make many steps of a problem by staying on its device; empty if one can."""
    if len(problem.rules) != 1 or len(problem.swap) != 1 or len(problem.swap[0]) != 2 or problem.rules[0].writes != (problem.swap[0][0],):
        return "a step has to be one rule that writes one field, which changes places with the one that it reads"
    if problem.cut != (0,):
        return "the grid has to be cut along its first axis alone"
    return ""


class PersistentKernel(DirectKernel):
    """The text of a kernel that makes many steps by one rule, on one of several devices."""

    def __init__(self, problem: Problem, rule: Rule, variant: Variant, *, fmad: bool = True) -> None:
        super().__init__(problem, rule, variant, fmad=fmad)
        self.name = f"{plain(rule.name)}_persistent"

    @property
    def constants(self) -> list[str]:
        """The fields that a step reads and does not change."""
        return [name for name in self.inputs if name not in self.problem.swap[0]]

    @property
    def moving(self) -> tuple[str, str]:
        """The field that a step writes and the one that it reads."""
        return self.problem.swap[0][0], self.problem.swap[0][1]

    def tiles(self, planes: int) -> int:
        """Return into how many tiles so many planes are cut."""
        x, y, _ = self.grid
        return x * y * ceil(planes / self.variant.planes)

    # -- the text ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        return "\n".join([super().text, _WAITING, self._kernel()])

    def _signature(self) -> list[str]:
        given = ["const int block_x", "const int block_y", "const int block_z"]
        given += [f"{STORED[self.problem.dtype(name)]}* {plain(name)}_field" for name in (*self.outputs, *self.inputs)]
        given += [f"const {REGISTER[self.problem.grid.dtype]}* scalars, int step", *range_parameters(self.geometry)]
        return ["__device__ __forceinline__ void", f"make_tile({', '.join(given)}) {{"]

    def _block_order(self) -> list[str]:
        return []

    def _kernel(self) -> str:
        """Return the kernel, which calls the function for tile after tile, step after step."""
        (bx, by), one, (gx, gy, _) = self.block, self.variant, self.grid
        pointers = {self.moving[0]: "to", self.moving[1]: "of"}
        reach = {"origin": "origin", "read_first": "begin - before", "read_last": "behind - 1 + after"}
        reach |= {"range_first": "begin", "range_end": "behind"}
        return Template(_KERNEL).substitute(
            name=self.name, kind=STORED[self.problem.dtype(self.moving[0])], scalar=REGISTER[self.problem.grid.dtype], threads=bx * by,
            constants="".join(f"{STORED[self.problem.dtype(name)]}* {plain(name)}_field, " for name in self.constants),
            fields=", ".join(pointers.get(name, f"{plain(name)}_field") for name in (*self.outputs, *self.inputs)),
            places=", ".join(reach[which] for which in RANGE), planes=one.planes, gx=gx, gy=gy, bx=bx, rows=by * one.rows,
            cells=bx * one.vector, from_low=FROM_LOW * SIGNAL_WORDS, from_high=FROM_HIGH * SIGNAL_WORDS, state=STATE * SIGNAL_WORDS,
        )  # fmt: skip


_KERNEL = """\
extern "C" __global__ void __launch_bounds__($threads)
$name(
    $kind* first, $kind* second, ${constants}const $scalar* scalars, int row, int more_rows, int steps,
    int origin, int start, int stop, int low, int high, int before, int after,
    $kind* low_first, $kind* low_second, int low_origin, int low_planes, unsigned* low_flag,
    $kind* high_first, $kind* high_second, int high_origin, int high_planes, unsigned* high_flag,
    unsigned* signals, int has_low, int has_high, unsigned polls
) {
    const int tiles = $gx * $gy;
    const int low_tiles = tiles * ((low + $planes - 1) / $planes), borders = low_tiles + tiles * ((high + $planes - 1) / $planes);
    const int all = borders + tiles * ((stop - high - start - low + $planes - 1) / $planes);
    const int thread = threadIdx.y * $bx + threadIdx.x;
    unsigned* const state = signals + $state;
    const unsigned made = state[0];  // steps so far, on all devices
    for (int step = 0; step < steps; ++step) {
        $kind* const to = step % 2 ? second : first;
        $kind* const of = step % 2 ? first : second;
        $kind* const to_low = step % 2 ? low_second : low_first;
        $kind* const to_high = step % 2 ? high_second : high_first;
        const unsigned now = made + step;
        bool waited = false;
        for (int tile = blockIdx.x; tile < all; tile += gridDim.x) {
            const bool is_border = tile < borders;
            if (is_border && !waited) {
                if (thread == 0 && has_low) wait_for(signals + $from_low, now, 1, polls, state);
                if (thread == 0 && has_high) wait_for(signals + $from_high, now, 2, polls, state);
                __syncthreads();
                waited = true;
            }
            const int begin = tile < low_tiles ? start : is_border ? stop - high : start + low;
            const int behind = tile < low_tiles ? start + low : is_border ? stop : stop - high;
            const int part = tile - (tile < low_tiles ? 0 : is_border ? low_tiles : borders);
            const int block_x = part % $gx, block_y = part / $gx % $gy, block_z = part / tiles;
            make_tile(block_x, block_y, block_z, $fields, scalars, row + step * more_rows, $places);
            if (!is_border) continue;
            __syncthreads();
            const int z = begin + block_z * $planes, end = min(z + $planes, behind), y = block_y * $rows, x = block_x * $cells;
            for (int at = thread; at < (end - z) * $rows * $cells; at += $threads) {
                const int plane = z + at / ($rows * $cells), line = y + at / $cells % $rows, cell = x + at % $cells;
                if (line >= NY || cell >= NX) continue;
                const long long place = (long long)line * PITCH + cell;
                const $kind value = to[(long long)(plane - origin) * PLANE + place];
                if (plane < start + low_planes) to_low[(long long)(plane - low_origin) * PLANE + place] = value;
                if (plane >= stop - high_planes) to_high[(long long)(plane - high_origin) * PLANE + place] = value;
            }
            __syncthreads();
            if (thread == 0) {
                __threadfence_system();  // what the block stored is there before its count
                if (atomicAdd(state + 1, 1u) + 1 == (unsigned)borders * (now + 1)) {
                    __threadfence_system();
                    if (has_low) raise(low_flag, now + 1);
                    if (has_high) raise(high_flag, now + 1);
                }
            }
        }
        grid_barrier(state + 2, thread);
    }
    if (blockIdx.x == 0 && thread == 0) state[0] = made + steps;
}
"""

_WAITING = """\
__device__ __forceinline__ void raise(unsigned* flag, unsigned count) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(flag), "r"(count) : "memory");
}
// Polls a flag until it has been raised to a count. A device that has waited too long goes on at once, and says for whom it waited.
__device__ __forceinline__ void wait_for(const unsigned* flag, unsigned count, unsigned side, unsigned polls, unsigned* state) {
    unsigned seen;
    bool gone = *(volatile unsigned*)(state + 3) != 0;
    for (unsigned poll = 0; !gone; ++poll) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        if ((int)(seen - count) >= 0) return;
        if (poll < polls) continue;
        gone = true;
        if (atomicCAS(state + 3, 0u, side) == 0) {
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
