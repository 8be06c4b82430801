"""The PTX of a run: of probes that follow each other in a straight line, between which the same lanes are active.

A run reserves its places once, so one vote and one branch serve up to 16 accesses. And the record of each access but the last is stored
one window late, right behind that of the *next* access, from where it is as far as can be to the one after that: an access right behind a
store waits for it in the pipe of loads and stores, some 10 cycles of a load from shared memory on an H200. What lies between is the work
of keeping the record of the access between, so nothing waits for the sake of it.

Registers of a run, by their names without prefix:

    run_record          in the leader where the records of the run begin
    run_left            places that the run has got, of those it asked for
    run_active          the active lanes
    run_leads           whether this lane is the leader
    run_start_0, run_label_0, run_end_0, run_stores_0       a record that is still to be stored: its words but the last, and whether it is
    run_start_1, ...                                        the next one
"""

from __future__ import annotations

from memlane.instrument.buffer import RECORD_BYTES, RECORD_DTYPE, SLICE_HEADER_BYTES, offset

BESIDE = 0x1054
"""Of `prmt`: the lower half of the second operand, and above it that of the first."""
_NEVER = 0xFFFFFFFF
_TIMES = SLICE_HEADER_BYTES + offset(RECORD_DTYPE, "start")


def declare_runs(prefix: str) -> str:
    """Before the first instruction of the kernel."""
    r = f"%{prefix}"
    words = ", ".join(f"{r}run_{word}_{which}" for which in (0, 1) for word in ("start", "label", "end"))
    return f"""\
.reg .b64 {r}run_record;
.reg .b32 {r}run_left, {r}run_active, {words};
.reg .pred {r}run_leads, {r}run_stores_0, {r}run_stores_1;
"""


def begin(prefix: str, length: int) -> str:
    """Behind the vote of the first probe (`active`, `leads`), when the leader knows its places, from `next` to below `limit`."""
    r = f"%{prefix}"
    return f"""\
max.u32 {r}run_left, {r}limit, {r}next;
sub.u32 {r}run_left, {r}run_left, {r}next;
mov.u32 {r}run_active, {r}active;
mov.pred {r}run_leads, {r}leads;
setp.lt.and.u32 {r}fits, {r}next, {r}limit, {r}leads;
mad.wide.u32 {r}record, {r}next, {r}stride, {r}slice;
mov.u64 {r}run_record, {r}record;
@{r}leads add.u32 {r}next, {r}next, {length};
"""


def follow(prefix: str, turn: int) -> str:
    """What the probe in place `turn` of a run, from 1, has instead of a vote and a place, where its record is stored at once."""
    r = f"%{prefix}"
    return f"""\
.reg .b64 {r}record;
.reg .b32 {r}active;
.reg .pred {r}fits;
mov.u32 {r}active, {r}run_active;
setp.gt.and.u32 {r}fits, {r}run_left, {turn}, {r}run_leads;
add.u64 {r}record, {r}run_record, {turn * RECORD_BYTES};
"""


def keep(prefix: str, site: int, turn: int) -> str:
    """Behind the second clock read of the probe in place `turn`, from 0: what is to be stored (`warp.record`)."""
    r, which = f"%{prefix}", turn % 2
    return f"""\
.reg .b32 {r}start_high, {r}end_high;
mov.b64 {{{r}run_start_{which}, {r}start_high}}, {r}start;
mov.b64 {{{r}run_end_{which}, {r}end_high}}, {r}end;
prmt.b32 {r}run_label_{which}, {r}start_high, {site}, {BESIDE:#x};
setp.gt.and.u32 {r}run_stores_{which}, {r}run_left, {turn}, {r}run_leads;
setp.ne.and.u32 {r}run_stores_{which}, {r}end_high, {_NEVER}, {r}run_stores_{which};
"""


def store(prefix: str, turn: int) -> str:
    """Store the record of the probe in place `turn`."""
    r, which = f"%{prefix}", turn % 2
    words = f"{r}run_start_{which}, {r}run_label_{which}, {r}run_end_{which}, {r}run_active"
    return f"@{r}run_stores_{which} st.global.cs.v4.u32 [{r}run_record+{_TIMES + turn * RECORD_BYTES}], {{{words}}};\n"
