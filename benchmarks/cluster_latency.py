"""How long does an access to the shared memory of another block of the cluster take?

One thread of the block of rank 0 follows a chain of addresses that lies in the shared memory of the block of rank 1, or in its own: each
load gives the address of the next, and the time of a chain over its loads is that of one. Chains of 64 and of 320 loads are timed, and the
difference counts, so that what a chain costs once drops out. Atomics add nothing to the word in which they find the next address.

Prediction (written before the first run). A load from a neighbour takes 170 to 220 cycles, nearer than L2: 180 is published for another
GPU of the same compute capability. One by a 32-bit address of `shared::cluster` takes up to 30 more, since the assembler asks at each
access where the window begins. Atomics of a neighbour take 20 to 60 more than loads. The own memory by a generic address with its rank
takes as long as a neighbour's, since the assembled access is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from harness import Row, write
from running import machine, parser

from memlane.launch import Target
from memlane.ptx import parse
from memlane.targets import target as named_target

SOURCES = ["benchmarks/cluster_latency.py", "src/memlane/emulate/observe/accounting.py"]

SHORT, LONG = 64, 320
_SLOTS, _STEP = 64, 5
"""Words of the chain, 8 bytes each, and the number of words that it moves forward per step."""

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry chain(.param .u64 out, .param .u32 rank)
{
    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .TYPE %at;
    .shared .align 8 .b64 slots[64];
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [rank];
    mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %tid.x; ADDRESS
    barrier.cluster.arrive; barrier.cluster.wait;
    setp.ne.u32 %p1, %r2, 0; setp.ne.or.u32 %p1, %r3, 0, %p1; @%p1 bra DONE;
    mov.u32 %r4, 0;
FILL:
    add.u32 %r5, %r4, 5; and.b32 %r5, %r5, 63; shl.b32 %r5, %r5, 3; shl.b32 %r6, %r4, 3;
    cvt.TYPE_FROM.u32 %from, %r6; add.TYPE_FROM %from, %from, %base; cvt.TYPE_FROM.u32 %to, %r5; add.TYPE_FROM %to, %to, %base;
    stSPACE.TYPE [%from], %to;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 64; @%p2 bra FILL;
    mov.TYPE %at, %base;
    mov.u64 %rd2, %clock64;
    CHAIN
    mov.u64 %rd3, %clock64;
    cvt.u64.TYPE_FROM %rd4, %at; st.global.u64 [%rd1+8], %rd4;
    sub.u64 %rd2, %rd3, %rd2; st.global.u64 [%rd1], %rd2;
DONE:
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
}
"""
GENERIC = ".reg .b64 %base, %from, %to; mov.u64 %rd5, slots; cvta.shared.u64 %rd5, %rd5; mapa.u64 %base, %rd5, %r1;"
WINDOW = ".reg .b32 %base, %from, %to; mov.u32 %r7, slots; mapa.shared::cluster.u32 %base, %r7, %r1;"

WAYS = {
    "load, generic": ("u64", "", GENERIC, "ld.volatile.u64 %at, [%at];"),
    "load, shared::cluster": ("u32", ".shared::cluster", WINDOW, "ld.volatile.shared::cluster.u32 %at, [%at];"),
    "atomic, generic": ("u64", "", GENERIC, "atom.add.u64 %at, [%at], 0;"),
}
"""Type of an address, space, how its first one is made, and one step of the chain."""


def text(way: str, steps: int) -> str:
    """Return the kernel that goes so many steps."""
    kind, space, address, step = WAYS[way]
    made = KERNEL.replace("ADDRESS", address).replace("TYPE_FROM", kind).replace("TYPE", kind).replace("SPACE", space)
    return made.replace("CHAIN", "\n    ".join([step] * steps))


def cycles(target: Target, way: str, rank: int, steps: int, rounds: int) -> float:
    """Return the shortest time of a chain."""
    kernel = target.load(parse(text(way, steps), "chain.ptx"))["chain"]
    out, best = target.zeros(2, np.uint64), np.inf
    for _ in range(rounds):
        kernel[2, 32, None, 0, 2](out, np.uint32(rank))
        best = min(best, float(out.numpy()[0]))
    return best


def rows(target: Target, rounds: int, chosen: str | None) -> Iterator[Row]:
    for way in [chosen] if chosen else WAYS:
        for rank, whose in ((1, "a neighbour's memory"), (0, "the own memory")):
            long, short = (cycles(target, way, rank, steps, rounds) for steps in (LONG, SHORT))
            yield Row(f"{way}, {whose}", "latency", (long - short) / (LONG - SHORT), "cycles")


def main() -> None:
    options = parser(__doc__).parse_args()
    found = list(rows(named_target(options.target), 1 if options.quick else 9, options.case))
    write("cluster_latency", found, **machine(options))


if __name__ == "__main__":
    main()
