"""Which addresses are known as sums of registers, and which are not: what makes a layout cheap, and what would make it wrong."""

from __future__ import annotations

import pytest

from memlane.errors import LayoutError
from memlane.layout.expression import Expression, name
from memlane.layout.program import Program
from memlane.ptx import ControlFlow, parse
from memlane.rewrite.emit import emit
from memlane.rewrite.terms import Sums, Term, Terms

TEXT = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .b32 %r<9>; .reg .b64 %x, %y, %z, %w, %b; .reg .b16 %h; .reg .pred %p;
    .shared .align 16 .b8 tile[1024]; .shared .align 16 .b8 other[64];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u64 %b, tile;
    {body}
    ld.shared.u32 %r8, [%x];
    ret;
}}
"""
R1, R2 = Term("%r1", 32), Term("%r2", 32)


def of(term: Term, factor: int) -> Term:
    return Term(term.register, term.bits, factor)


KNOWN = {
    "the beginning": ("mov.u64 %x, tile;", Terms()),
    "a place behind it": ("mov.u64 %x, tile+12;", Terms((), 12)),
    "an index times a number": ("mul.wide.u32 %y, %r1, 4; add.s64 %x, %b, %y;", Terms((of(R1, 4),))),
    "the other way round": ("mul.wide.s32 %y, %r1, 4; add.s64 %x, %y, %b;", Terms((of(R1, 4),))),
    "multiplied and added": ("mad.wide.u32 %x, %r1, 12, %b;", Terms((of(R1, 12),))),
    "numbers multiplied and added": ("mad.wide.u32 %x, 3, 12, %b;", Terms((), 36)),
    "two indices and a number": (
        "mul.wide.u32 %y, %r1, 128; add.s64 %z, %b, %y; mad.wide.u32 %w, %r2, 4, %z; add.s64 %x, %w, -8;",
        Terms((of(R1, 128), of(R2, 4)), -8),
    ),
    "a signed index made wider": ("cvt.s64.s32 %y, %r1; shl.b64 %z, %y, 3; add.s64 %x, %b, %z;", Terms((of(R1, 8),))),
    "an unsigned one": ("cvt.u64.u32 %y, %r1; shl.b64 %z, %y, 31; add.s64 %x, %b, %z;", Terms((of(R1, 1 << 31),))),
    "an index shifted in 32 bits": ("shl.b32 %r3, %r1, 2; mul.wide.u32 %y, %r3, 2; add.s64 %x, %b, %y;", Terms((of(R1, 8),), 0, False)),
    "and a place in 64 bits added to it": (
        "shl.b32 %r3, %r1, 2; mul.wide.u32 %y, %r3, 2; add.s64 %z, %b, %y; mad.wide.u32 %x, %r2, 4, %z;",
        Terms((of(R1, 8), of(R2, 4)), 0, False),
    ),
    "added to a place in 64 bits": (
        "mad.wide.u32 %z, %r2, 4, %b; shl.b32 %r3, %r1, 2; mul.wide.u32 %y, %r3, 2; add.s64 %x, %z, %y;",
        Terms((of(R2, 4), of(R1, 8)), 0, False),
    ),
    "a sum in 32 bits": (
        "mov.u32 %r3, tile; mad.lo.s32 %r4, %r1, 4, %r3; cvt.u64.u32 %x, %r4;",
        Terms((of(R1, 4),), 0, False),
    ),
    "a register of 64 bits": ("add.s64 %y, %b, 1; ld.param.u64 %z, [out]; add.s64 %x, %b, %z;", Terms((Term("%z", 64),))),
    "shifted too far": ("cvt.u64.u32 %y, %r1; shl.b64 %z, %y, 32; add.s64 %x, %b, %z;", Terms((Term("%z", 64),))),
    "the upper half of a product": ("mul.hi.u32 %r3, %r1, 4; cvt.u64.u32 %y, %r3; add.s64 %x, %b, %y;", Terms((Term("%r3", 32),))),
    "made of 16 bits": (
        "cvt.u16.u32 %h, %r1; mul.wide.u16 %r3, %h, 4; cvt.u64.u32 %y, %r3; add.s64 %x, %b, %y;",
        Terms((Term("%r3", 32),)),
    ),
    "made of a double product": ("mul.wide.u32 %y, %r1, %r2; add.s64 %x, %b, %y;", Terms((Term("%y", 64),))),
}
UNKNOWN = {
    "of another array": "mov.u64 %x, other;",
    "three registers": "mad.wide.u32 %y, %r1, 4, %b; mad.wide.u32 %z, %r2, 4, %y; mad.wide.u32 %x, %r3, 4, %z;",
    "written twice": "mov.u64 %x, tile; add.s64 %x, %x, 4;",
    "an index that is written twice": "mov.u32 %r2, 7; mad.wide.u32 %x, %r2, 4, %b;",
    "under a guard": "@%p mov.u64 %x, tile;",
    "a way around it": "@%p bra over; mov.u64 %x, tile; over:",
    "an index with a way around it": "@%p bra over; mov.u32 %r3, 7; over: mad.wide.u32 %x, %r3, 4, %b;",
    "times a register": "mad.wide.u32 %x, %r1, %r2, %b;",
    "the upper half": "mad.hi.s64 %x, %y, 4, %b;",
    "an index of 16 bits": "cvt.u16.u32 %h, %r1; mov.b64 %y, {%h, %h, %h, %h}; add.s64 %x, %y, %z;",
    "subtracted": "sub.s64 %x, %b, 4;",
}  # fmt: skip


def sum_of(body: str) -> Terms | None:
    function = parse(TEXT.format(body=body), "k.ptx").functions["k"]
    flow = ControlFlow(function)
    used = next(one for block in flow.blocks for one in block.instructions if one.name == "ld.shared.u32")
    return Sums(function, flow, ("tile",)).of("%x", used)


@pytest.mark.parametrize("case", KNOWN)
def test_what_an_address_is_the_sum_of(case: str) -> None:
    body, expected = KNOWN[case]
    assert sum_of(body) == expected


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_no_sum(case: str) -> None:
    assert sum_of(UNKNOWN[case]) is None


def test_sums_of_elements() -> None:
    whole = Terms((Term("%r1", 32, 8), Term("%r2", 32, 4)), 12)
    assert whole.divided(4) == Terms((Term("%r1", 32, 2), Term("%r2", 32, 1)), 3)
    assert whole.divided(8) is None
    assert Terms((), 12).divided(8) is None


def emitted(value: Expression) -> str:
    fresh = iter(range(100))
    return emit(Program(value), "%i", lambda kind: f"%{kind}{next(fresh)}", {}, "")[0]


def test_what_has_no_form_in_unsigned_numbers_is_refused() -> None:
    index = name("i", 16)
    for value in ((index - 5) // 3, (index - 5) % 3, (index - 5) >> 1):
        with pytest.raises(ValueError, match="of a value that can be negative"):
            emitted(value)
    assert "shr.u32" in emitted((index + 5) >> 1)
    with pytest.raises(LayoutError, match=r"intermediate values up to [\d,]+ of an address do not fit into 32 bits"):
        emitted(index * (1 << 28))
