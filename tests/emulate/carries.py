"""A kernel that keeps the carry flag over what may stand between the instruction that writes it and the one that reads it."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from memlane.launch import Target
from memlane.ptx import Module, parse

FIELDS = ("barrier", "guard", "branch", "turns", "access", "exchange", "borrow over a branch")

TEXT = f"""
.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) {{
    .reg .pred odd, low; .reg .b32 t, n, x, y, u, f<8>; .reg .b64 o, i; .shared .align 4 .b32 tile[64];
    ld.param.u64 o, [out]; ld.param.u64 i, [in]; mov.u32 t, %tid.x;
    mad.wide.u32 i, t, 8, i; mad.wide.u32 o, t, 32, o; ld.global.v2.u32 {{x, y}}, [i];
    and.b32 u, t, 1; setp.eq.u32 odd, u, 1; setp.lt.u32 low, t, 40;
    add.cc.u32 u, x, y; bar.sync 0; addc.u32 f0, 0, 0;
    add.cc.u32 u, x, y; @odd sub.cc.u32 u, x, y; addc.u32 f1, 0, 0;
    add.cc.u32 u, x, y; @odd bra ODD; sub.cc.u32 u, y, x; bra BOTH;
ODD: @low bra BOTH; sub.cc.u32 u, 0, y;
BOTH: addc.u32 f2, 0, 0;
    mov.u32 f3, 0; and.b32 n, t, 3; add.cc.u32 u, x, y;
TURN: addc.cc.u32 f3, f3, x; sub.u32 n, n, 1; setp.ge.s32 odd, n, 0; @odd bra TURN;
    addc.u32 f3, f3, 0;
    shl.b32 n, t, 2; mov.u32 u, tile; add.u32 n, n, u; sub.cc.u32 u, x, y; st.shared.u32 [n], y; ld.shared.u32 f4, [n]; subc.u32 f4, x, f4;
    add.cc.u32 u, x, y; shfl.sync.bfly.b32 f5, x, 1, 31, -1; addc.u32 f5, f5, 0;
    sub.cc.u32 u, x, y; @low bra LOW; add.u32 u, u, 1;
LOW: subc.u32 f6, x, y;
    {" ".join(f"st.global.u32 [o+{4 * place}], f{place};" for place in range(len(FIELDS)))}
    ret;
}}
"""


@cache
def module() -> Module:
    """The kernel `k(out, in)` for 64 threads."""
    return parse(TEXT, "carries.ptx")


def inputs() -> npt.NDArray[np.uint32]:
    """Two numbers for each thread: of any size, near 0 from both sides, and equal ones."""
    random = np.random.default_rng(7)
    x = random.integers(0, 1 << 32, 64, np.uint32)
    y = np.where(np.arange(64) % 5 == 0, x, random.integers(0, 1 << 32, 64, np.uint32))
    small = np.arange(64) % 7 == 1
    return np.stack([np.where(small, np.uint32(0) - np.arange(64, dtype=np.uint32), x), np.where(small, np.arange(64), y)], axis=1).astype(
        np.uint32
    )


def answer(thread: int, x: int, y: int) -> list[int]:
    """What one thread leaves, by `FIELDS`, in plain integers."""
    word, odd = 1 << 32, thread % 2 == 1
    carry, no_borrow = int(x + y >= word), int(x >= y)
    if not odd:
        branch = int(y >= x)
    else:
        branch = carry if thread < 40 else int(y == 0)
    total = 0
    flag = carry
    for _ in range(thread % 4 + 1):
        total, flag = (total + x + flag) % word, (total + x + flag) // word
    difference = (x - y - 1 + no_borrow) % word
    return [carry, no_borrow if odd else carry, branch, (total + flag) % word, difference, carry, difference]


def answers() -> npt.NDArray[np.uint32]:
    """What each thread leaves, by `FIELDS`."""
    rows = [answer(thread, int(x), int(y)) for thread, (x, y) in enumerate(inputs())]
    given = inputs()[:, 0]
    for thread, row in enumerate(rows):
        row[5] = (row[5] + int(given[thread ^ 1])) % (1 << 32)
    return np.array(rows, np.uint32)


def run(target: Target, chosen: Module | None = None) -> npt.NDArray[np.uint32]:
    """What the kernel, or a version of it, leaves on a target."""
    out = target.zeros((64, 8), np.uint32)
    target.load(chosen or module())["k"][1, 64](out, target.array(inputs()))
    return out.numpy()[:, : len(FIELDS)]
