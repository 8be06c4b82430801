"""Emit the PTX that a traced warp runs besides its probes: take a slice at the start, write records, close the slice at the end.

It is predicated straight-line code where possible, so that ptxas has no reason to rearrange the kernel's own branches. The registers that
live through the kernel, without prefix:

    slice       address of the slice of the warp; 0 without a buffer
    next        place in the slice of the next record that the lane leads; in lane 0 the number of records it has led
    limit       end of the places that the lane may fill; 0 without a slice of the warp's own
    ask         as `limit` if the lane requests more places there; otherwise the largest number, as for lane 0
    chunk       places that it requests
    stride      bytes of a record, read at run time, so that a place is one multiplication and not four instructions
    unknown     the opaque zero: 0, which ptxas cannot prove
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memlane.instrument.buffer import (
    ENTRY_DTYPE,
    HEADER_BYTES,
    HEADER_DTYPE,
    HEADS,
    LAUNCH_DTYPE,
    RECORD_DTYPE,
    SLICE_DTYPE,
    SLICE_HEADER_BYTES,
    offset,
)
from memlane.instrument.options import TraceOptions
from memlane.instrument.runs import BESIDE
from memlane.instrument.sampling import WORDS_DTYPE, Sampling
from memlane.instrument.schemes import Scheme
from memlane.instrument.staging import STAGE_RECORDS, declare_stage, find_stage, leave_stage
from memlane.instrument.variables import LAUNCH, POINTER, WINDOW

_HEADER = {field: offset(HEADER_DTYPE, field) for field in HEADER_DTYPE.names or ()}
_LAUNCH = {field: offset(LAUNCH_DTYPE, field) for field in LAUNCH_DTYPE.names or ()}
_SLICE = {field: offset(SLICE_DTYPE, field) for field in SLICE_DTYPE.names or ()}
_EXECUTIONS = offset(WORDS_DTYPE, "executions")
_TIMES = SLICE_HEADER_BYTES + offset(RECORD_DTYPE, "start")
_LABELS = SLICE_HEADER_BYTES + offset(RECORD_DTYPE, "number")
_PACKED_SITES = 0xFFFF
LARGEST_RUN = STAGE_RECORDS
"""Maximum number of places that a leader reserves at once."""
_NEVER = 0xFFFFFFFF
_HEAD_BYTES = HEADER_DTYPE["heads"].base.itemsize * HEADER_DTYPE["heads"].shape[1]
assert ENTRY_DTYPE.itemsize == 32, "two vectors of four words"


def enter(prefix: str, scheme: Scheme, kernel: int, space: str, options: TraceOptions) -> str:
    """Return PTX for the start of a kernel: take a slice and describe the warp in it.

    Lane 0 exists in every warp, because warps are formed of consecutive threads, so it acts for the warp. It reads the two clocks last, so
    that the lifetime of a warp does not begin with the wait for its slice. The barrier makes its stores visible to the other lanes, which
    read `room` and `capacity`. `space`: state space of the variable with the entry of the buffer.
    """
    staged = options.stages
    r, label = f"%{prefix}", f"${prefix}"
    return f"""\
.reg .b64 {r}buffer, {r}slice;
.reg .b32 {r}limit, {r}next, {r}ask, {r}chunk, {r}low, {r}high, {r}slices, {r}bytes, {r}capacity, {r}all, {r}stride, {r}unknown;
mov.u64 {r}slice, 0;
mov.u32 {r}limit, 0;
mov.u32 {r}next, 0;
mov.u32 {r}ask, {_NEVER};
mov.u32 {r}chunk, 1;
ld.{space}.v4.u32 {{{r}low, {r}high, {r}slices, {r}bytes}}, [{POINTER}];
ld.{space}.v4.u32 {{{r}capacity, {r}all, {r}stride, {r}unknown}}, [{POINTER}+16];
mov.b64 {r}buffer, {{{r}low, {r}high}};
{declare_stage(r) if staged else ""}{scheme.declare(r)}{{
.reg .b32 {r}lanes, {r}lane, {r}number;
.reg .pred {r}absent, {r}first, {r}own;
setp.eq.u64 {r}absent, {r}buffer, 0;
@{r}absent bra {label}entered;
{scheme.load(r)}activemask.b32 {r}lanes;
mov.u32 {r}lane, %laneid;
setp.eq.u32 {r}first, {r}lane, 0;
and.b32 {r}chunk, {r}lane, {r}unknown;
add.u32 {r}chunk, {r}chunk, 1;
mov.u32 {r}number, 0;
@!{r}first bra {label}told;
{_take(r, label, kernel, options)}{label}told:
shfl.sync.idx.b32 {r}number, {r}number, 0, 31, {r}lanes;
mad.wide.u32 {r}slice, {r}number, {r}bytes, {r}buffer;
add.u64 {r}slice, {r}slice, {HEADER_BYTES};
setp.ne.u32 {r}own, {r}number, 0;
selp.b32 {r}limit, {r}capacity, 0, {r}own;
selp.b32 {r}limit, {r}limit, 0, {r}first;
selp.b32 {r}ask, 0, {_NEVER}, {r}own;
selp.b32 {r}ask, {_NEVER}, {r}ask, {r}first;
{find_stage(r) if staged else ""}bar.warp.sync {r}lanes;
{label}entered:
}}
"""


def _take(r: str, label: str, kernel: int, options: TraceOptions) -> str:
    """Return PTX by which lane 0 takes a slice and describes the warp in it; leaves its number from 1, or 0 if there is none left.

    It is the slice that the host assigned to the warp, or else one from a counter: first the counter with the number of the warp in the
    launch, modulo their number, and then those that follow.
    """
    assigns = options.tagged and options.sampling.numbers_warps
    return f"""\
{{
.reg .b64 {r}block, {r}bx, {r}by, {r}width, {r}at, {r}taken, {r}of;
.reg .b32 {r}x, {r}y, {r}z, {r}nx, {r}ny, {r}nz, {r}warp, {r}head, {r}tries;
.reg .pred {r}again;
{_numbers(r, options.tagged)}{_assigned(r, label, options.sampling) if assigns else ""}mov.u32 {r}tries, 0;
cvt.u64.u32 {r}of, {r}slices;
{label}ask:
.pragma "nounroll";
and.b32 {r}head, {r}head, {HEADS - 1};
mad.wide.u32 {r}at, {r}head, {_HEAD_BYTES}, {r}buffer;
atom.global.add.u64 {r}taken, [{r}at+{_HEADER["heads"]}], 1;
cvt.u64.u32 {r}width, {r}head;
mad.lo.u64 {r}taken, {r}taken, {HEADS}, {r}width;
setp.lt.u64 {r}own, {r}taken, {r}of;
@{r}own bra {label}own;
add.u32 {r}head, {r}head, 1;
add.u32 {r}tries, {r}tries, 1;
setp.lt.u32 {r}again, {r}tries, {HEADS};
@{r}again bra {label}ask;
red.global.add.u64 [{r}buffer+{_HEADER["without_slice"]}], 1;
bra {label}told;
{label}own:
cvt.u32.u64 {r}number, {r}taken;
add.u32 {r}number, {r}number, 1;
{f"{label}known:{chr(10)}" if assigns else ""}mad.wide.u32 {r}slice, {r}number, {r}bytes, {r}buffer;
add.u64 {r}slice, {r}slice, {HEADER_BYTES};
{_describe(r, kernel, options.tagged)}}}
"""


def _assigned(r: str, label: str, sampling: Sampling) -> str:
    """Return PTX that takes the slice assigned to the warp, if the launch has slices of its own. It follows `_numbers`."""
    names = {"block": f"{r}x", "warp": f"{r}warp", "launch": f"{r}head", "warps": f"{r}nz"}
    return f"""\
cvt.u32.u64 {r}x, {r}block;
{sampling.number(f"{r}number", names, (f"{r}y", f"{r}z"))}ld.param.u32 {r}tries, [{LAUNCH}+{_LAUNCH["first"]}];
add.u32 {r}number, {r}number, {r}tries;
setp.ne.u32 {r}own, {r}tries, 0;
@{r}own bra {label}known;
mov.u32 {r}number, 0;
"""


def _numbers(r: str, tagged: bool) -> str:
    """Return PTX for linear numbers: of the block in its grid (`block`), of the warp in its block (`warp`) and in the launch (`head`, lower
    32 bits), and for the number of warps per block (`nz`)."""
    counted = f"mul.lo.u32 {r}nz, {r}nz, {r}ny;\nmad.lo.u32 {r}nz, {r}nz, {r}nx, 31;\nshr.u32 {r}nz, {r}nz, 5;\n"
    told = f"ld.param.u32 {r}nz, [{LAUNCH}+{_LAUNCH['warps']}];\n"
    return f"""\
mov.u32 {r}x, %ctaid.x;
mov.u32 {r}y, %ctaid.y;
mov.u32 {r}z, %ctaid.z;
mov.u32 {r}nx, %nctaid.x;
mov.u32 {r}ny, %nctaid.y;
cvt.u64.u32 {r}bx, {r}x;
cvt.u64.u32 {r}by, {r}y;
mul.wide.u32 {r}block, {r}z, {r}ny;
add.u64 {r}block, {r}block, {r}by;
cvt.u64.u32 {r}width, {r}nx;
mad.lo.u64 {r}block, {r}block, {r}width, {r}bx;
mov.u32 {r}x, %tid.x;
mov.u32 {r}y, %tid.y;
mov.u32 {r}z, %tid.z;
mov.u32 {r}nx, %ntid.x;
mov.u32 {r}ny, %ntid.y;
mov.u32 {r}nz, %ntid.z;
mad.lo.u32 {r}warp, {r}z, {r}ny, {r}y;
mad.lo.u32 {r}warp, {r}warp, {r}nx, {r}x;
shr.u32 {r}warp, {r}warp, 5;
{told if tagged else counted}cvt.u32.u64 {r}head, {r}block;
mad.lo.u32 {r}head, {r}head, {r}nz, {r}warp;
"""


def _describe(r: str, kernel: int, tagged: bool) -> str:
    """Return PTX that fills the header of the slice."""
    tag = f"ld.param.u32 {r}tag, [{LAUNCH}+{_LAUNCH['tag']}];\nst.global.u32 [{r}slice+{_SLICE['tag']}], {r}tag;\n" if tagged else ""
    return f"""\
{{
.reg .b64 {r}grid, {r}cycles, {r}ns;
.reg .b32 {r}sm{f", {r}tag" if tagged else ""};
{tag}mov.u64 {r}grid, %gridid;
st.global.v2.u64 [{r}slice+{_SLICE["gridid"]}], {{{r}grid, {r}block}};
mov.u32 {r}sm, %smid;
st.global.v4.u32 [{r}slice+{_SLICE["warp"]}], {{{r}warp, {r}sm, {kernel}, {r}lanes}};
st.global.v2.u32 [{r}slice+{_SLICE["room"]}], {{{r}all, {r}capacity}};
mov.u64 {r}cycles, %clock64;
mov.u64 {r}ns, %globaltimer;
st.global.u64 [{r}slice+{_SLICE["begin_cycles"]}], {r}cycles;
st.global.u64 [{r}slice+{_SLICE["begin_ns"]}], {r}ns;
}}
"""


def count_executions(prefix: str, sites: Iterable[int]) -> str:
    """Return PTX for the start of a kernel that declares, per site, the number of executions of a thread so far, and sets it to 0."""
    names = [f"%{prefix}seen_{site}" for site in sites]
    return "".join(f".reg .b32 {name};\nmov.u32 {name}, 0;\n" for name in names)


def _in_window(r: str, site: int) -> str:
    """Return PTX that counts an execution and clears `leads` outside the window, so that such executions are neither recorded nor counted
    as lost."""
    return f"""\
.reg .b32 {r}execution, {r}since, {r}length;
ld.const.u32 {r}since, [{WINDOW}+{_EXECUTIONS}];
ld.const.u32 {r}length, [{WINDOW}+{_EXECUTIONS + 4}];
mov.u32 {r}execution, {r}seen_{site};
add.u32 {r}seen_{site}, {r}seen_{site}, 1;
sub.u32 {r}since, {r}execution, {r}since;
setp.lt.and.u32 {r}leads, {r}since, {r}length, {r}leads;
"""


def reserve(prefix: str, site: int, counted: bool = False) -> str:
    """Return PTX for before the first clock read: elect the leader and reserve its place. `counted`: only for executions in the window."""
    return lead(prefix, site, counted) + place(prefix, site)


def lead(prefix: str, site: int, counted: bool = False) -> str:
    """Return PTX that elects the lowest active lane as leader. Leaves `active`, `leads` and, if `counted`, `execution`."""
    r = f"%{prefix}"
    return f"""\
.reg .b32 {r}active, {r}below;
.reg .pred {r}leads;
activemask.b32 {r}active;
mov.u32 {r}below, %lanemask_lt;
and.b32 {r}below, {r}below, {r}active;
setp.eq.u32 {r}leads, {r}below, 0;
{_in_window(r, site) if counted else ""}"""


def place(prefix: str, site: int | str, run: int = 1, found: str = "") -> str:
    """Return PTX that finds the address of the leader's next record. Leaves `fits`, in a leader that has a place, and the address in
    `record`.

    With a `run`, it reserves that many places, and the PTX `found` replaces the computation of the address.

    Lane 0 has places from the beginning. Any other leader takes a chunk of the overflow places, by an atomic addition in the rare branch,
    one place first and then twice as many each time: so a warp whose lane 0 has exited or waits elsewhere does not access memory for each
    record, and at most every other place stays empty. The addition is 64 bits wide: ptxas would first sum a 32-bit one over the warp, with
    shuffles, although only one lane executes it. It would also multiply a value that it knows to be warp-uniform by the number of lanes, so
    `chunk` starts as 1 + lane & 0. All of this precedes the access, between it and the stores of the previous record: an access right after
    these stores would wait for them in the load-store pipe, some 9 cycles on an H200.
    """
    r, label = f"%{prefix}", f"${prefix}"
    last, declared = f"{r}next", ""
    if run > 1:
        last, declared = f"{r}last", f".reg .b32 {r}last;\nadd.u32 {r}last, {r}next, {run - 1};\n"
    found = (
        found
        or f"""\
setp.lt.and.u32 {r}fits, {r}next, {r}limit, {r}leads;
mad.wide.u32 {r}record, {r}next, {r}stride, {r}slice;
"""
    )
    return f"""\
.reg .b64 {r}wide, {r}record;
.reg .b32 {r}room, {r}first;
.reg .pred {r}other, {r}fits;
{declared}setp.ge.and.u32 {r}other, {last}, {r}ask, {r}leads;
@!{r}other bra {label}placed_{site};
{_more_places(r, run)}{label}placed_{site}:
{found}"""


def _more_places(r: str, run: int) -> str:
    """Return PTX by which a leader takes the next chunk of overflow places, at least `run`; `ask` becomes unreachable when there are no
    more."""
    at_least = f"max.u32 {r}chunk, {r}chunk, {run};\n" if run > 1 else ""
    return f"""\
{at_least}cvt.u64.u32 {r}wide, {r}chunk;
atom.global.add.u64 {r}wide, [{r}slice+{_SLICE["overflow"]}], {r}wide;
cvt.u32.u64 {r}next, {r}wide;
ld.global.v2.u32 {{{r}room, {r}first}}, [{r}slice+{_SLICE["room"]}];
add.u32 {r}next, {r}next, {r}first;
add.u32 {r}limit, {r}next, {r}chunk;
setp.gt.u32 {r}other, {r}limit, {r}room;
min.u32 {r}limit, {r}limit, {r}room;
max.u32 {r}limit, {r}limit, {r}next;
selp.b32 {r}ask, {_NEVER}, {r}limit, {r}other;
shl.b32 {r}chunk, {r}chunk, 1;
min.u32 {r}chunk, {r}chunk, {LARGEST_RUN};
"""


@dataclass(frozen=True, slots=True)
class RecordText:
    """PTX that stores a record, in parts."""

    pack: str
    """Assembles its words."""
    times: str
    """The store of start, end and site."""
    labels: str
    """The store of the other fields; empty if there are none."""
    advance: str
    """Advances to the next place."""


def is_packed(site: int, counted: bool = False, exposed: str = "") -> bool:
    """Return whether one store holds the record."""
    return not (counted or exposed or site > _PACKED_SITES)


def record(prefix: str, site: int, counted: bool = False, exposed: str = "", anywhere: bool = False) -> RecordText:
    """Return PTX for after the second clock read that writes the record to the reserved place.

    `exposed`: register with the cycles of the window that the consumer waited; `anywhere`: the place may lie in shared memory.

    A store of 16 bytes keeps the load-store pipe busy for some 4 cycles, however few lanes it has. So the fields of every record are packed
    into one store: the lower 32 bits of both clock reads, the next 16 bits of the start above the site number, and the active lanes.
    Records with more fields take two, with both times in full. All clock reads stay 64 bits wide, because something depends on their upper
    halves: ptxas may turn a shorter one into another instruction, of variable latency. Records are stored as evict-first, to leave the
    caches to the kernel.
    """
    r = f"%{prefix}"
    store, advance = f"@{r}fits st{'' if anywhere else '.global'}.cs", f"@{r}leads add.u32 {r}next, {r}next, 1;\n"
    if not is_packed(site, counted, exposed):
        words = f"{site + 1}, {r}active, {exposed or 0}, {f'{r}execution' if counted else 0}"
        times = f"{store}.v2.u64 [{r}record+{_TIMES}], {{{r}start, {r}end}};\n"
        return RecordText("", times, f"{store}.v4.u32 [{r}record+{_LABELS}], {{{words}}};\n", advance)
    pack = f"""\
.reg .b32 {r}start_low, {r}start_high, {r}end_low, {r}end_high;
mov.b64 {{{r}start_low, {r}start_high}}, {r}start;
mov.b64 {{{r}end_low, {r}end_high}}, {r}end;
prmt.b32 {r}start_high, {r}start_high, {site}, {BESIDE:#x};
setp.ne.and.u32 {r}fits, {r}end_high, {_NEVER}, {r}fits;
"""
    times = f"{store}.v4.u32 [{r}record+{_TIMES}], {{{r}start_low, {r}start_high, {r}end_low, {r}active}};\n"
    return RecordText(pack, times, "", advance)


def leave(prefix: str, staged: bool = False) -> str:
    """Return PTX for before every exit: the lanes that exit together update the end of the warp, lane 0 reports how many records it led,
    and the others how many of theirs got no place."""
    r, label = f"%{prefix}", f"${prefix}"
    return f"""\
{{
.reg .b64 {r}cycles, {r}ns, {r}led, {r}where;
.reg .b32 {r}active, {r}below, {r}lane, {r}count;
.reg .pred {r}leads, {r}first, {r}own, {r}more;
activemask.b32 {r}active;
mov.u32 {r}below, %lanemask_lt;
and.b32 {r}below, {r}below, {r}active;
setp.ne.u64 {r}first, {r}slice, 0;
setp.eq.and.u32 {r}leads, {r}below, 0, {r}first;
{leave_stage(prefix) if staged else ""}mov.u32 {r}lane, %laneid;
setp.eq.u32 {r}own, {r}lane, 0;
setp.gt.u32 {r}more, {r}next, {r}limit;
sub.u32 {r}count, {r}next, {r}limit;
selp.b32 {r}count, {r}count, 0, {r}more;
selp.b32 {r}count, {r}next, {r}count, {r}own;
setp.ne.and.u32 {r}first, {r}count, 0, {r}first;
cvt.u64.u32 {r}led, {r}count;
selp.b64 {r}where, {_SLICE["attempted"]}, {_SLICE["lost"]}, {r}own;
add.u64 {r}where, {r}where, {r}slice;
@!{r}leads bra {label}follows;
mov.u64 {r}cycles, %clock64;
mov.u64 {r}ns, %globaltimer;
red.global.max.u64 [{r}slice+{_SLICE["end_cycles"]}], {r}cycles;
red.global.max.u64 [{r}slice+{_SLICE["end_ns"]}], {r}ns;
{label}follows:
@{r}first red.global.add.u64 [{r}where], {r}led;
}}
"""
