"""What do the consumers of loads wait? The scheme `exposed`, on one warp and kernels whose overlap is known by construction.

A chain of loads, each needing the one before; eight independent loads and then their sum; a load with arithmetic behind it, each operation
needing the one before, of 0, 50 and 600 operations. And loops that fetch what their next turn needs, with so much arithmetic in a turn: one
keeps the value that is in use and the next one in two registers and copies at the end of a turn, the other fetches into the register that
it has just read.

Prediction, for a GPU of today (the emulator's model has to agree): in the chain all but 60 cycles of each load are exposed (what stands
between its clock read and its consumer). Of the eight loads together less than half is exposed of what they take one by one with a wait
behind each. Behind 50 operations the load is exposed 100 to 400 cycles less than behind none; behind 600 for less than 60 cycles, which
is the wait for a value that is there. What was fetched a turn of 600 operations ahead is exposed for less than 60 cycles, copied or not; of
what was fetched a turn of 50 operations ahead, 100 to 500 cycles are hidden (the turn, with the probes in it) and the rest is exposed, more
than 60 cycles of each load.

Whether it is known that the wait is what was timed, `proof.py` asks.
"""

from __future__ import annotations

import argparse

import numpy as np
from harness import Row
from running import measure, parser

from memlane.instrument import Selection
from memlane.measure import trace
from memlane.ptx import parse
from memlane.record import COMPLETE, Trace
from memlane.targets import target

SOURCES = [
    "src/memlane/ptx",
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/emulate/clock",
    "src/memlane/measure",
    "benchmarks/stalls.py",
]
FAR = 300_000
"""Bytes from one load to the next: other lines, other pages."""
WORDS = 1 << 20
STEPS = 10
NOTHING = 60

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 from)
{{
    .reg .u32 %i, %n, %s, %v<9>; .reg .u64 %a, %b, %o, %out; .reg .pred %q;
    ld.param.u64 %out, [out];
    ld.param.u64 %a, [from];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %out, %out, %o;
    mov.u32 %n, %tid.y;
    mul.wide.u32 %o, %n, 4;
    add.u64 %a, %a, %o;
    mov.u32 %s, 0;
    mov.u32 %n, 0;
    {body}
    st.global.u32 [%out], %s;
    ret;
}}
"""

CHAIN = f"""
    mov.u64 %b, %a;
again:
    ld.global.u32 %v1, [%b]; cvt.u64.u32 %o, %v1; add.u64 %b, %a, %o; add.u32 %n, %n, 1; setp.lt.u32 %q, %n, {STEPS}; @%q bra again;
    add.u32 %s, %s, %v1;"""
EIGHT = "".join(f"ld.global.u32 %v{n}, [%a+{FAR * n}];" for n in range(8)) + "".join(f"add.u32 %s, %s, %v{n};" for n in range(8))


def behind(operations: int) -> str:
    """Return the text of a load with so many operations between it and its consumer."""
    return "ld.global.u32 %v1, [%a];" + "mad.lo.u32 %i, %i, %i, 7;" * operations + "add.u32 %s, %i, %v1;"


def ahead(operations: int, copied: bool) -> str:
    """Return the text of a loop that fetches a turn ahead, from another line each time, with so many operations in a turn."""
    fetch, use = "ld.global.u32 %v{}, [%b];", "add.u32 %s, %s, %v1;"
    begin, end = (fetch.format(2) + use, "mov.u32 %v1, %v2;") if copied else (use + fetch.format(1), "")
    return f"""
    mov.u64 %b, %a; {fetch.format(1)}
again:
    add.u64 %b, %b, {FAR}; {begin} {"mad.lo.u32 %i, %i, %i, 7;" * operations} {end}
    add.u32 %n, %n, 1; setp.lt.u32 %q, %n, {STEPS}; @%q bra again;
    add.u32 %s, %s, %v1; add.u32 %s, %s, %i;"""


def recorded(body: str, options: argparse.Namespace, scheme: str = "exposed") -> Trace:
    """Return the loads of one warp, whose memory leads a chain from line to line."""
    where = target(options.target)
    memory = np.zeros(WORDS, np.uint32)
    memory[np.arange(STEPS) * FAR // 4] = (np.arange(STEPS) + 1) * FAR
    module = where.load(parse(PTX.format(body=body), "k.ptx"))
    return trace(module["k"][1, 32], where.zeros(32, "u4"), where.array(memory), scheme=scheme, selection=Selection(kinds={"load"}))


def cycles(trace_: Trace, name: str) -> float:
    """Return the sum over the loads: of `exposed`, or of all cycles."""
    table = trace_.table
    if name == "exposed":
        return float(np.sum(table["exposed"].to_numpy().astype(np.int64)))
    return float(np.sum(table["end"].to_numpy() - table["start"].to_numpy()))


def fetched(trace_: Trace, name: str) -> float:
    """Return the mean over the loads of the loop: of `exposed`, or of `hidden`, which is the rest of all cycles."""
    table = trace_.table
    loop = table["site"].to_numpy() == table["site"].to_numpy().max()
    exposed = table["exposed"].to_numpy().astype(np.int64)[loop]
    every = (table["end"].to_numpy() - table["start"].to_numpy())[loop]
    return float(np.mean(exposed if name == "exposed" else every - exposed))


def waits(options: argparse.Namespace) -> list[Row]:
    """Return the prediction for each kernel, with its measured numbers."""
    chain, eight, apart = recorded(CHAIN, options), recorded(EIGHT, options), recorded(EIGHT, options, "dependent")
    far, copied, near = (recorded(ahead(*one), options) for one in ((600, False), (600, True), (50, True)))
    none, fifty, many = (recorded(behind(operations), options) for operations in (0, 50, 600))

    def row(case: str, metric: str, value: float, reach: float, better: str, seen: Trace) -> Row:
        peer = {"loads": float(seen.table.num_rows), "cycles": cycles(seen, "all"), "exposed": cycles(seen, "exposed")}
        return Row(case, metric, value, "cycles", reach, better, peer, "proved" if _all_complete(seen) else "not all are complete")

    hidden = (cycles(chain, "all") - cycles(chain, "exposed")) / STEPS
    saved = (cycles(fifty, "all") - cycles(fifty, "exposed")) - (cycles(none, "all") - cycles(none, "exposed"))
    return [
        row("a chain", "hidden, of a load", hidden, NOTHING, "lower", chain),
        row("eight independent loads", "exposed, together", cycles(eight, "exposed"), cycles(apart, "all") / 2, "lower", eight),
        row("50 operations behind a load", "hidden by them", saved, 100, "higher", fifty),
        row("600 operations behind a load", "exposed", cycles(many, "exposed"), NOTHING, "lower", many),
        row("fetched a turn of 600 ahead", "exposed, of a load", fetched(far, "exposed"), NOTHING, "lower", far),
        row("the same, copied", "exposed, of a load", fetched(copied, "exposed"), NOTHING, "lower", copied),
        row("fetched a turn of 50 ahead", "hidden, of a load", fetched(near, "hidden"), 100, "higher", near),
        row("the same", "exposed, of a load", fetched(near, "exposed"), NOTHING, "higher", near),
    ]


def _all_complete(seen: Trace) -> bool:
    return all(site.completeness == COMPLETE for site in seen.sites)


def run_case(_: str, options: argparse.Namespace) -> list[Row]:
    return waits(options)


def main() -> None:
    options = parser(__doc__).parse_args()
    measure("stalls", ("waits",), run_case, options)


if __name__ == "__main__":
    main()
