"""Emit the PTX of a run: adjacent probes in straight-line code, between which the active mask does not change.

A run reserves its places once, so one vote and one branch serve up to 16 accesses. The record of each access but the last is stored one
window late, right after the window of the *next* access and so as far as possible before the one after that: an access right after a store
waits for it in the load-store pipe, some 10 cycles for a load from shared memory on an H200. The work in between keeps the record of the
access between them, so nothing is delayed.

Registers of a run, without prefix:

    run_record          in the leader, the address of the first record of the run
    run_left            places reserved for the run, at most its length
    run_active          the active lanes
    run_leads           whether this lane is the leader
    run_start_0, run_label_0, run_end_0, run_stores_0       a pending record: its words but the last, and whether it is to be stored
    run_start_1, ...                                        the next pending record
"""

from __future__ import annotations

from memlane.instrument.buffer import RECORD_BYTES, RECORD_DTYPE, SLICE_HEADER_BYTES, offset

BESIDE = 0x1054
"""Selector of `prmt`: the lower half of the second operand, and above it that of the first."""
_NEVER = 0xFFFFFFFF
_TIMES = SLICE_HEADER_BYTES + offset(RECORD_DTYPE, "start")


def declare_runs(prefix: str) -> str:
    """Return PTX for the start of the kernel that declares the registers of runs."""
    r = f"%{prefix}"
    words = ", ".join(f"{r}run_{word}_{which}" for which in (0, 1) for word in ("start", "label", "end"))
    return f"""\
.reg .b64 {r}run_record;
.reg .b32 {r}run_left, {r}run_active, {words};
.reg .pred {r}run_leads, {r}run_stores_0, {r}run_stores_1;
"""


def begin(prefix: str, length: int) -> str:
    """Return PTX for after the vote of the first probe (`active`, `leads`), when the leader has its places, from `next` to below
    `limit`."""
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
    """Return PTX that replaces the vote and the reservation for the probe at index `turn` >= 1 of a run whose record is stored at once."""
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
    """Return PTX for after the second clock read of the probe at index `turn` that keeps its record in registers (`warp.record`)."""
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
    """Return PTX that stores the pending record of the probe at index `turn`."""
    r, which = f"%{prefix}", turn % 2
    words = f"{r}run_start_{which}, {r}run_label_{which}, {r}run_end_{which}, {r}run_active"
    return f"@{r}run_stores_{which} st.global.cs.v4.u32 [{r}run_record+{_TIMES + turn * RECORD_BYTES}], {{{words}}};\n"
