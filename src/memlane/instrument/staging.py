"""Emit the PTX that buffers the records of a warp in shared memory and writes them out with all its lanes.

Each warp of a block has a stage of `STAGE_RECORDS` after the kernel's own dynamic shared memory, if its launch has provided one: the size
of dynamic shared memory is then 8 more than a multiple of 16 bytes, and otherwise never (`stage_bytes`). So kernels in flight need not
agree.

A record goes to the stage if all lanes of the warp are active: then lane 0 leads, and every lane knows the fill count, which it keeps in a
register. Records of partial warps go to the buffer directly, as all records do without a stage. The stage is written out when the next
records do not fit, before their clock reads, and when lane 0 exits: each active lane writes a record, so that 16 records are one store.
Only then do they take places in the slice of the warp, so none stays empty.

Registers that live through the kernel besides those of `warp`:

    stage         generic address of the stage, minus the size of a slice header
    stage_at      address of its first record in shared memory
    stage_lanes   the lanes of the warp, or 0 without a stage
    staged        number of records in it
"""

from __future__ import annotations

from memlane.instrument.buffer import RECORD_BYTES, SLICE_HEADER_BYTES
from memlane.instrument.schemes import DYNAMIC

STAGE_RECORDS = 16
_STAGE_BYTES = STAGE_RECORDS * RECORD_BYTES
_ALIGNMENT = 16
_MARK = 8
"""Remainder of the dynamic shared memory of a launch with stages, modulo the alignment."""


def stage_bytes(shared_bytes: int, warps: int) -> int:
    """Return the dynamic shared memory of a launch that needs `shared_bytes` itself and has a stage for each warp of a block."""
    return -(-shared_bytes // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT + warps * _STAGE_BYTES + _MARK


def unstaged_bytes(shared_bytes: int) -> int:
    """Return the dynamic shared memory of a launch without stages, which must not have the remainder that marks stages."""
    return shared_bytes + _MARK if shared_bytes % _ALIGNMENT == _MARK else shared_bytes


def declare_stage(r: str) -> str:
    """Return PTX for the start of a kernel that declares the registers of a stage, with their values without one."""
    return f"""\
.reg .b64 {r}stage;
.reg .b32 {r}stage_at, {r}stage_lanes, {r}staged;
mov.u64 {r}stage, 0;
mov.u32 {r}stage_at, 0;
mov.u32 {r}stage_lanes, 0;
mov.u32 {r}staged, 0;
"""


def find_stage(r: str) -> str:
    """Return PTX that determines whether the warp has a stage, and its address, if the warp has a slice of its own (`own`)."""
    return f"""\
{{
.reg .b64 {r}wide;
.reg .b32 {r}x, {r}y, {r}z, {r}nx, {r}ny, {r}nz, {r}size, {r}rest;
.reg .pred {r}given;
mov.u32 {r}size, %dynamic_smem_size;
and.b32 {r}rest, {r}size, {_ALIGNMENT - 1};
setp.eq.and.u32 {r}given, {r}rest, {_MARK}, {r}own;
mov.u32 {r}x, %tid.x;
mov.u32 {r}y, %tid.y;
mov.u32 {r}z, %tid.z;
mov.u32 {r}nx, %ntid.x;
mov.u32 {r}ny, %ntid.y;
mov.u32 {r}nz, %ntid.z;
mad.lo.u32 {r}y, {r}z, {r}ny, {r}y;
mad.lo.u32 {r}x, {r}y, {r}nx, {r}x;
shr.u32 {r}x, {r}x, 5;
mul.lo.u32 {r}ny, {r}ny, {r}nz;
mad.lo.u32 {r}nx, {r}nx, {r}ny, 31;
shr.u32 {r}nx, {r}nx, 5;
mul.lo.u32 {r}nx, {r}nx, {_STAGE_BYTES};
setp.ge.and.u32 {r}given, {r}size, {r}nx, {r}given;
selp.b32 {r}stage_lanes, {r}lanes, 0, {r}given;
sub.u32 {r}size, {r}size, {_MARK};
sub.u32 {r}size, {r}size, {r}nx;
mov.u32 {r}stage_at, {DYNAMIC};
add.u32 {r}stage_at, {r}stage_at, {r}size;
and.b32 {r}stage_at, {r}stage_at, {-_ALIGNMENT};
mad.lo.u32 {r}stage_at, {r}x, {_STAGE_BYTES}, {r}stage_at;
cvt.u64.u32 {r}wide, {r}stage_at;
cvta.shared.u64 {r}stage, {r}wide;
sub.u64 {r}stage, {r}stage, {SLICE_HEADER_BYTES};
}}
"""


def place_in_stage(prefix: str, site: int, run: int, direct: str) -> str:
    """Return PTX by which the leader of `active` reserves the next `run` records: in the stage, or by the PTX `direct`."""
    r, label = f"%{prefix}", f"${prefix}"
    return f"""\
.reg .b32 {r}after;
.reg .pred {r}whole, {r}roomy;
setp.eq.u32 {r}whole, {r}active, {r}stage_lanes;
@{r}whole bra.uni {label}whole_{site};
{direct}bra.uni {label}staged_{site};
{label}whole_{site}:
add.u32 {r}after, {r}staged, {run};
setp.le.u32 {r}roomy, {r}after, {STAGE_RECORDS};
@{r}roomy bra.uni {label}roomy_{site};
{write_out(prefix)}{label}roomy_{site}:
mov.pred {r}fits, {r}leads;
mov.pred {r}run_leads, {r}leads;
mov.u32 {r}run_active, {r}active;
mov.u32 {r}run_left, {run};
mad.wide.u32 {r}record, {r}staged, {r}stride, {r}stage;
mov.u64 {r}run_record, {r}record;
add.u32 {r}staged, {r}staged, {run};
{label}staged_{site}:
"""


def write_out(prefix: str) -> str:
    """Return PTX by which the lanes of `active` write out the stage; lane 0 is among them and leads."""
    r, label = f"%{prefix}", f"${prefix}"
    return f"""\
{{
.reg .b64 {r}to, {r}piece_to;
.reg .b32 {r}width, {r}taken, {r}bound, {r}pieces, {r}piece, {r}from, {r}a, {r}b, {r}c, {r}d;
.reg .pred {r}done;
bar.warp.sync {r}active;
shfl.sync.idx.b32 {r}taken, {r}next, 0, 31, {r}active;
shfl.sync.idx.b32 {r}bound, {r}limit, 0, 31, {r}active;
max.u32 {r}bound, {r}bound, {r}taken;
sub.u32 {r}pieces, {r}bound, {r}taken;
min.u32 {r}pieces, {r}pieces, {r}staged;
mad.wide.u32 {r}to, {r}taken, {r}stride, {r}slice;
popc.b32 {r}width, {r}active;
mov.u32 {r}piece, %lanemask_lt;
and.b32 {r}piece, {r}piece, {r}active;
popc.b32 {r}piece, {r}piece;
{label}write:
.pragma "nounroll";
setp.ge.u32 {r}done, {r}piece, {r}pieces;
@{r}done bra {label}written;
mad.lo.u32 {r}from, {r}piece, {RECORD_BYTES}, {r}stage_at;
mad.wide.u32 {r}piece_to, {r}piece, {RECORD_BYTES}, {r}to;
ld.shared.v4.u32 {{{r}a, {r}b, {r}c, {r}d}}, [{r}from];
st.global.cs.v4.u32 [{r}piece_to+{SLICE_HEADER_BYTES}], {{{r}a, {r}b, {r}c, {r}d}};
add.u32 {r}piece, {r}piece, {r}width;
bra {label}write;
{label}written:
bar.warp.sync {r}active;
@{r}leads add.u32 {r}next, {r}next, {r}staged;
mov.u32 {r}staged, 0;
}}
"""


def leave_stage(prefix: str) -> str:
    """Return PTX for before the end of a warp is stored: the lanes of `active`, if they include lane 0, write out the rest."""
    r, label = f"%{prefix}", f"${prefix}"
    return f"""\
.reg .b32 {r}one;
.reg .pred {r}none;
and.b32 {r}one, {r}active, 1;
min.u32 {r}one, {r}one, {r}staged;
setp.eq.u32 {r}none, {r}one, 0;
@{r}none bra.uni {label}empty;
{write_out(prefix)}{label}empty:
"""
