"""When is each kind of access done? Times of the kinds that `docs/stamps.md` defines, beside what they have to agree with.

One warp goes 32 times through a loop. In each turn it stores to lines of global memory that it has just loaded past L1, so that they are
in L2, and to shared memory; loads fragments of matrices beside plain vectors; and copies fresh lines asynchronously, with the wait right
behind the copy. Medians over the turns, per kind, with the empty window of the probe in (some 10 cycles on an H200).

Prediction, for an H200:

- A store is issued in 5 to 15 cycles; its block sees it after the fence of the block, at most 50; the device after a load past L1 that
  comes behind it, 290 to 400: no less than such a load alone (some 290 with the window).
- In shared memory a store is read back in 25 to 50 cycles. A reduction is read back from L2 as a store is.
- A fragment of four matrices takes as long as 16 bytes a lane loaded side by side do, within 15 cycles.
- A copy is issued in some 30 cycles at most; from its issue to the end of the wait it takes what a load of fresh lines takes, within a
  half more.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np
from harness import Row, write
from running import parser

from memlane.lab.result import machine
from memlane.launch import Target
from memlane.measure import trace
from memlane.ptx import parse
from memlane.record import Trace
from memlane.targets import target

SOURCES = [
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/emulate",
    "src/memlane/driver",
    "src/memlane/measure",
    "benchmarks/kinds.py",
]
TURNS = 32
LINE_BYTES = 512
"""Bytes of global memory that the warp touches per iteration, 16 per lane."""

PTX = f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry kinds(.param .u64 data, .param .u64 fresh)
{{
    .reg .pred %p; .reg .b32 %r<20>; .reg .b64 %rd<9>;
    .shared .align 128 .b8 words[4096];
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [fresh];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 16;
    add.u64 %rd1, %rd1, %rd3;
    add.u64 %rd2, %rd2, %rd3;
    mov.u32 %r2, words;
    mad.lo.u32 %r2, %r1, 16, %r2;
    mov.u32 %r3, 0;
TURN:
    ld.relaxed.gpu.global.u32 %r4, [%rd1];
    ld.relaxed.gpu.global.u32 %r5, [%rd1];
    st.global.u32 [%rd1], %r3;
    red.global.add.u32 [%rd1+4], %r1;
    st.shared.u32 [%r2], %r4;
    ld.shared.v4.u32 {{%r6, %r7, %r8, %r9}}, [%r2];
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r2];
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r14}}, [%r2];
    ld.global.v4.u32 {{%r15, %r16, %r17, %r18}}, [%rd2];
    add.u64 %rd2, %rd2, {LINE_BYTES};
    cp.async.cg.shared.global [%r2+2048], [%rd2], 16;
    cp.async.wait_all;
    add.u64 %rd2, %rd2, {LINE_BYTES};
    add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r8; add.u32 %r6, %r6, %r9; add.u32 %r6, %r6, %r10; add.u32 %r6, %r6, %r11;
    add.u32 %r6, %r6, %r12; add.u32 %r6, %r6, %r13; add.u32 %r6, %r6, %r14; add.u32 %r6, %r6, %r15; add.u32 %r6, %r6, %r16;
    add.u32 %r6, %r6, %r17; add.u32 %r6, %r6, %r18; add.u32 %r6, %r6, %r5;
    st.shared.u32 [%r2+4], %r6;
    add.u64 %rd1, %rd1, {LINE_BYTES};
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p, %r3, {TURNS};
    @%p bra TURN;
    ret;
}}
"""


def medians(made: Trace) -> Mapping[str, float]:
    """Return the median cycles of the first site of each operation, and as `copy to wait` those from the issue of a copy to the end of its
    wait."""
    rows = made.table.to_pylist()
    first: dict[str, int] = {}
    for site in made.sites:
        first.setdefault(site.op, site.id)
    # The second load of a line finds it in L2; the first may come from further away.
    first["ld.relaxed.gpu.global.u32"] = [site.id for site in made.sites if site.op == "ld.relaxed.gpu.global.u32"][1]
    found = {op: statistics.median(row["end"] - row["start"] for row in rows if row["site"] == site) for op, site in first.items()}
    issues, ends = (
        [row[name] for row in rows if row["site"] == first[op]]
        for op, name in (("cp.async.cg.shared.global", "start"), ("cp.async.wait_all", "end"))
    )
    found["copy to wait"] = statistics.median(end - start for start, end in zip(issues, ends, strict=True))
    return found


def measured(where: Target, stores: str) -> Mapping[str, float]:
    """Return the medians of the second run, which finds the code in its caches."""
    call = where.load(parse(PTX, "kinds.ptx"))["kinds"][1, 32]
    for _ in range(2):
        data, fresh = (where.zeros(2 * (TURNS + 1) * LINE_BYTES, np.uint8) for _ in range(2))
        made = trace(call, data, fresh, stores=stores)
    return medians(made)


def rows_of(found: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """Return the rows for the medians, which are given by the event until which stores were timed."""
    issued, block, device = (found[stores] for stores in ("issued", "block", "device"))
    past_l1 = issued["ld.relaxed.gpu.global.u32"]
    vectors, fresh = issued["ld.shared.v4.u32"], issued["ld.global.v4.u32"]

    def row(case: str, value: float, reach: float | None = None, better: str = "lower", **peer: float) -> Row:
        note = "" if reach is None or (value >= reach if better == "higher" else value <= reach) else "not as predicted"
        return Row(case, "median cycles", value, "cycles", reach, better, peer, note)

    return [
        row("load past L1, from L2", past_l1),
        row("store, issued", issued["st.global.u32"], 30),
        row("store, seen by the block", block["st.global.u32"], 50),
        row("store, seen by the device", device["st.global.u32"], past_l1, "higher", load_past_l1=past_l1),
        row("reduction, issued", issued["red.global.add.u32"], 30),
        row("reduction, seen by the device", device["red.global.add.u32"], past_l1, "higher", load_past_l1=past_l1),
        row("store to shared memory, issued", issued["st.shared.u32"], 30),
        row("store to shared memory, seen by the block", block["st.shared.u32"], 60),
        row("16 bytes a lane from shared memory", vectors),
        row("four matrices", issued["ldmatrix.sync.aligned.m8n8.x4.shared.b16"], vectors + 15, vectors=vectors),
        row("one matrix", issued["ldmatrix.sync.aligned.m8n8.x1.shared.b16"], vectors + 15, vectors=vectors),
        row("load of fresh lines", fresh),
        row("asynchronous copy, issued", issued["cp.async.cg.shared.global"], 50),
        row("asynchronous copy, to the end of its wait", issued["copy to wait"], 1.5 * fresh, load=fresh),
    ]


def main() -> None:
    options = parser(__doc__).parse_args()
    where = target(options.target)
    found = {stores: measured(where, stores) for stores in ("issued", "block", "device")}
    on = machine(where)
    write("kinds", rows_of(found), chip=on.chip, driver=on.driver, cuda=on.cuda, directory=options.out)


if __name__ == "__main__":
    main()
