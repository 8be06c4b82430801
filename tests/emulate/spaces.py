"""A kernel that asks of addresses in which space they lie, as the assembler takes it too."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from memlane.launch import Target
from memlane.ptx import Module, parse

ASKED = ("const", "global", "shared", "local", "param::entry")
WHERE = ("const", "global", "shared", "local", "param", "global variable")
"""What the addresses are of."""


@cache
def program() -> Module:
    """`k(out, value)`: for each of `WHERE` a word for each of `ASKED`."""
    body = []
    for place in range(len(WHERE)):
        for number, space in enumerate(ASKED):
            at = 4 * (place * len(ASKED) + number)
            body.append(f"isspacep.{space} p, a{place}; selp.u32 t, 1, 0, p; st.global.u32 [o+{at}], t;")
    return parse(
        f""".version 8.3
.target sm_90
.address_size 64
.const .align 8 .b64 table[4] = {{1, 2, 3, 4}};
.global .align 8 .b64 variable;
.visible .entry k(.param .u64 out, .param .align 8 .b8 value[16]) {{
    .reg .pred p; .reg .b32 t; .reg .b64 o, a<{len(WHERE)}>;
    .shared .align 8 .b64 inner; .local .align 8 .b64 own;
    ld.param.u64 o, [out];
    mov.u64 a0, table; add.u64 a0, a0, 24; cvta.const.u64 a0, a0;
    mov.u64 a1, o;
    mov.u64 a2, inner; cvta.shared.u64 a2, a2;
    mov.u64 a3, own; cvta.local.u64 a3, a3;
    mov.b64 a4, value; cvta.param.u64 a4, a4;
    mov.u64 a5, variable; cvta.global.u64 a5, a5;
    {" ".join(body)}
    ret;
}}""",
        "spaces.ptx",
    )


def answers(target: Target) -> npt.NDArray[np.uint32]:
    """By `WHERE` and `ASKED`: 1 for yes."""
    out = target.zeros((len(WHERE), len(ASKED)), np.uint32)
    target.load(program())["k"][1, 1](out, bytes(16))
    return out.numpy()
