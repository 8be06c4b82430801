"""Where an address leads, whatever arithmetic made it: kernels of a few instructions whose array is laid out otherwise, run on the emulator
beside the element that each lane must get; and what `relayout` must refuse, because it cannot know."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import memlane as ml
from memlane.errors import RelayoutError
from memlane.launch import Target
from memlane.layout import Layout, Padded, RandomShift, XorSwizzle
from memlane.ptx import Module, parse
from memlane.rewrite.relayout import Tables

LANES, ELEMENTS = 32, 256
END = 4 * ELEMENTS
LANE = np.arange(LANES)
LAYOUTS: tuple[Layout, ...] = (Padded(16, 16), XorSwizzle(16, 16), RandomShift(16, 16, 5))

ADDRESSES: dict[str, tuple[str, str, object]] = {
    # Instructions, the operand in the brackets of the load, and the element that each lane gets. %at: the address of element 40 + lane
    # in 32 bits, %wide: in 64; %four: 4 * lane in 32 bits, %eight: in 64; %tile: the array's beginning, %end: one beyond its end.
    "a constant subtracted": ("sub.s32 %x, %at, 4;", "%x", LANE + 39),
    "a constant subtracted twice": ("sub.s32 %x, %at, 4; sub.u32 %x, %x, 36;", "%x", LANE + 30),
    "a constant subtracted in 64 bits": ("sub.s64 %y, %wide, 12;", "%y", LANE + 37),
    "a negative constant subtracted": ("sub.s32 %x, %at, -8;", "%x", LANE + 42),
    "a negative constant added": ("add.s32 %x, %at, -8;", "%x", LANE + 38),
    "a constant subtracted from a known place": ("mov.u32 %x, tile; add.s32 %x, %x, 80; sub.s32 %x, %x, 40;", "%x", 10 + 0 * LANE),
    "a constant subtracted, and more in the brackets": ("sub.s32 %x, %at, 16;", "%x+20", LANE + 41),
    "a constant subtracted in the brackets": ("mov.u32 %x, %at;", "%x-24", LANE + 34),
    "an offset subtracted": ("sub.s32 %x, %at, %four;", "%x", 40 + 0 * LANE),
    "an offset subtracted twice": ("sub.s64 %y, %wide, %eight; sub.s64 %y, %y, %eight; add.s64 %y, %y, 4;", "%y", 41 - LANE),
    "one beyond the end, minus an element": ("mov.u32 %x, %end;", "%x-4", 255 + 0 * LANE),
    "one beyond the end, minus what a register holds": ("sub.s32 %x, %end, %four;", "%x-4", 255 - LANE),
    "one beyond the end, subtracted in a register": ("sub.s32 %x, %end, 8; sub.s32 %x, %x, %four;", "%x", 254 - LANE),
    "a name and one beyond the end": ("mov.u32 %x, 0;", f"tile+{END - 4}", 255 + 0 * LANE),
    "before the beginning, and back": ("sub.s32 %x, %tile, 64; add.s32 %x, %x, %four;", "%x+68", LANE + 1),
    "around 2^32": ("add.s32 %x, %at, 0x80000000; add.s32 %x, %x, 0x80000000;", "%x", LANE + 40),
    "a number with the sign bit added": ("add.s64 %y, %wide, 0xfffffffffffffff4;", "%y", LANE + 37),
    "a product added": ("mad.lo.s32 %x, %lane, -4, %at;", "%x", 40 + 0 * LANE),
    "a product whose first factor is a constant": ("mad.lo.s32 %x, 4, %lane, %at;", "%x", 2 * LANE + 40),
    "a product of constants added": ("mad.lo.s32 %x, 3, -4, %at;", "%x", LANE + 37),
    "a wide product added": ("mad.wide.s32 %y, %lane, -4, %wide;", "%y+8", 42 + 0 * LANE),
    "low bits set": ("mov.u32 %x, tile; or.b32 %x, %x, 12;", "%x", 3 + 0 * LANE),
    "low bits cleared": ("and.b32 %x, %at, -16;", "%x", (LANE + 40) // 4 * 4),
    "low bits changed": ("xor.b32 %x, %at, 8;", "%x", (LANE + 40) ^ 2),
    "the one or the other": ("sub.s32 %x, %at, 8; setp.gt.u32 %p, %lane, 9; selp.b32 %x, %x, %at, %p;", "%x", LANE + 40 - 2 * (LANE > 9)),
    "depending on the path taken": ("mov.u32 %x, %at; setp.gt.u32 %p, %lane, 9; @%p sub.s32 %x, %at, 8;", "%x", LANE + 40 - 2 * (LANE > 9)),
    "generic, a constant subtracted": ("cvta.shared.u64 %y, %wide; sub.s64 %y, %y, 4;", "generic %y", LANE + 39),
    "generic, converted to as many bits": ("cvta.shared.u64 %y, %wide; cvt.s64.u64 %y, %y;", "generic %y", LANE + 40),
    "generic and back, a constant subtracted": (
        "cvta.shared.u64 %y, %wide; sub.s64 %y, %y, 4; cvta.to.shared.u64 %y, %y; cvt.u32.u64 %x, %y;",
        "%x",
        LANE + 39,
    ),
    "a number shifted out of its register": ("shl.b32 %x, %lane, -1; add.s32 %x, %at, %x;", "%x", LANE + 40),
    "a difference of addresses added": ("sub.s32 %x, %at, %tile; add.s32 %x, %tile, %x;", "%x", LANE + 40),
}


@cache
def emulator() -> Target:
    return ml.target("emulator:h200")


HEAD = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .b32 %lane, %v, %x, %at, %four, %tile, %end; .reg .b64 %y, %out, %wide, %eight, %begin; .reg .pred %p;
    .shared .align 16 .b8 before[48];
    .shared .align 16 .b8 tile[{size}];
    .shared .align 16 .b8 behind[48];
    mov.u32 %lane, %tid.x; ld.param.u64 %out, [out]; mad.wide.u32 %out, %lane, 4, %out;
    mov.u32 %tile, tile; mov.u64 %begin, tile; add.s32 %end, %tile, {size};
    shl.b32 %four, %lane, 2; cvt.u64.u32 %eight, %four;
    add.s32 %at, %tile, %four; add.s64 %wide, %begin, %eight;
{body}
    ret;
}}
"""


def filled() -> str:
    """Each element has its number."""
    rows = [f"st.shared.u32 [%at+{4 * first}], %v; add.s32 %v, %v, {LANES};" for first in range(0, ELEMENTS, LANES)]
    return "mov.u32 %v, %lane;\n" + "\n".join(rows) + "\nbar.warp.sync -1; add.s32 %at, %at, 160; add.s64 %wide, %wide, 160;\n"


@cache
def module() -> Module:
    lines = []
    for number, (text, operand, _) in enumerate(ADDRESSES.values()):
        space = "" if operand.startswith("generic") else ".shared"
        place = operand.removeprefix("generic ")
        lines.append(f"{text}\nld{space}.u32 %v, [{place}]; st.global.u32 [%out+{4 * LANES * number}], %v;")
    return parse(HEAD.format(size=END, body=filled() + "\n".join(lines)), "addresses.ptx")


def results(of: Module) -> np.ndarray:
    out = emulator().zeros((len(ADDRESSES), LANES), np.int32)
    emulator().load(of)["k"][1, LANES](out)
    return out.numpy()


@cache
def relaid(layout: Layout) -> np.ndarray:
    return results(ml.relayout(module(), layout, shared="tile"))


@pytest.mark.parametrize("name", ADDRESSES)
def test_an_access_goes_where_its_element_is(name: str) -> None:
    number, expected = list(ADDRESSES).index(name), ADDRESSES[name][2]
    assert np.array_equal(results(module())[number], expected), "the kernel itself"
    for layout in LAYOUTS:
        assert np.array_equal(relaid(layout)[number], expected), layout


REFUSED: dict[str, tuple[str, str]] = {
    "subtracted from a number": ("sub.s32 %x, 4096, %at; ld.shared.u32 %v, [%x];", "`sub.s32` computes with its address"),
    "negated": ("neg.s32 %x, %at; ld.shared.u32 %v, [%x];", "`neg.s32` computes with its address"),
    "two addresses added": ("add.s32 %x, %at, %tile; ld.shared.u32 %v, [%x];", "`add.s32` computes with its address"),
    "shifted": ("shl.b32 %x, %at, 1; ld.shared.u32 %v, [%x];", "`shl.b32` computes with its address"),
    "times three": ("mad.lo.s32 %x, %at, 3, %tile; ld.shared.u32 %v, [%x];", "`mad.lo.s32` computes with its address"),
    "bits beyond the alignment set": ("or.b32 %x, %at, 16; ld.shared.u32 %v, [%x];", "`or.b32` computes with its address"),
    "bits beyond the alignment cleared": ("and.b32 %x, %at, -32; ld.shared.u32 %v, [%x];", "`and.b32` computes with its address"),
    "bits changed by a register": ("xor.b32 %x, %at, %four; ld.shared.u32 %v, [%x];", "`xor.b32` computes with its address"),
    "the upper half": ("mad.hi.s32 %x, %lane, 4, %at; ld.shared.u32 %v, [%x];", "`mad.hi.s32` computes with its address"),
    "cut to 16 bits": (".reg .b16 %h; cvt.u16.u32 %h, %at; cvt.u32.u16 %x, %h; ld.shared.u32 %v, [%x];", "`cvt.u16.u32` computes"),
    "generic, cut to 32 bits": ("cvta.shared.u64 %y, %wide; cvt.u32.u64 %x, %y; ld.shared.u32 %v, [%x];", "`cvt.u32.u64` computes"),
    "minus another array": ("mov.u32 %x, behind; sub.s32 %x, %at, %x; ld.shared.u32 %v, [%at];", "`sub.s32` computes with its address"),
    "that or another array": (
        "mov.u32 %x, behind; setp.gt.u32 %p, %lane, 3; selp.b32 %x, %x, %at, %p; ld.shared.u32 %v, [%x];",
        "belongs to this array or to something else",
    ),
    "that or a number": ("mov.u32 %x, %at; setp.gt.u32 %p, %lane, 3; @%p mov.u32 %x, 0; ld.shared.u32 %v, [%x];", "or to something else"),
    "from a number": ("ld.shared.u32 %v, [%at]; mov.u32 %x, 64; ld.shared.u32 %v, [%x];", "comes from an unknown source"),
    "from a difference": ("sub.s32 %x, %at, %tile; ld.shared.u32 %v, [%x];", "comes from an unknown source"),
    "generic, from a number": ("cvta.shared.u64 %y, 64; ld.u32 %v, [%y]; ld.shared.u32 %v, [%at];", "comes from an unknown source"),
    "generic, from a difference": (
        "sub.s64 %y, %wide, %begin; cvta.shared.u64 %y, %y; ld.u32 %v, [%y]; ld.shared.u32 %v, [%at];",
        "comes from an unknown source",
    ),
    "a barrier at a difference": (
        "sub.s32 %x, %at, %tile; mbarrier.init.shared.b64 [%x], 1; ld.shared.u32 %v, [%at];",
        "comes from an unknown source",
    ),
    "added as a floating-point number": ("add.ftz.f32 %x, %at, %four; ld.shared.u32 %v, [%x];", "`add.ftz.f32` computes with its address"),
    "added to a floating-point product": (
        "mad.rn.f32 %x, %four, %lane, %at; ld.shared.u32 %v, [%x];",
        "`mad.rn.f32` computes with its address",
    ),
    "subtracted from as a floating-point number": ("sub.f32 %x, %at, %x; ld.shared.u32 %v, [%x];", "`sub.f32` computes with its address"),
    "converted from a floating-point number": (
        "cvt.rzi.u32.f32 %x, %at; ld.shared.u32 %v, [%x];",
        "`cvt.rzi.u32.f32` computes with its address",
    ),
    "added in two halves": ("add.u16x2 %x, %at, %four; ld.shared.u32 %v, [%x];", "`add.u16x2` computes with its address"),
    "added up to the greatest number": ("add.sat.s32 %x, %at, %four; ld.shared.u32 %v, [%x];", "`add.sat.s32` computes with its address"),
    "from memory": ("ld.shared.u32 %x, [%at]; ld.shared.u32 %v, [%x];", "comes from an unknown source"),
    "kept in memory": ("st.shared.u32 [behind], %at; ld.shared.u32 %v, [%at];", "its address is stored to memory"),
    "compared with a number": ("setp.lt.u32 %p, %at, 4096; ld.shared.u32 %v, [%at];", "compared with something other"),
    "compared with another array": ("mov.u32 %x, behind; setp.lt.u32 %p, %at, %x; ld.shared.u32 %v, [%at];", "compared with something"),
}  # fmt: skip
"""Instructions, and a part of the reason why the array stays where it is."""


MULTIPLES: dict[str, tuple[str, int]] = {
    # What puts 0 into %x for the first lane, and for the others the number that follows.
    "a sum that saturates": ("shl.b32 %x, %lane, 6; add.sat.s32 %x, %x, 0x7fffffc0; and.b32 %x, %x, 60;", 60),
    "a difference that saturates": ("shl.b32 %x, %lane, 6; sub.sat.s32 %x, %x, -2147483584; and.b32 %x, %x, 60;", 60),
    "the upper half": ("min.u32 %x, %lane, 1; mul.lo.u32 %x, %x, 60; cvt.u64.u32 %y, %x; shl.b64 %y, %y, 32; mov.b64 {_, %x}, %y;", 60),
    "a converted bfloat16": (
        "min.u32 %x, %lane, 1; mul.lo.u32 %x, %x, 0x4270; .reg .b16 %h; cvt.u16.u32 %h, %x; cvt.rzi.u32.bf16 %x, %h;",
        60,
    ),
    "a product of two bfloat16": (
        "min.u32 %x, %lane, 1; mul.lo.u32 %x, %x, 0x40; add.u32 %x, %x, 0x3f80; mul.rn.bf16x2 %x, %x, %x; and.b32 %x, %x, 60;",
        16,
    ),
}


@pytest.mark.parametrize("name", MULTIPLES)
def test_what_is_not_a_multiple_of_its_parts(name: str) -> None:
    """The distance of two places, the second of which is the first of a row for all lanes but one, depends on the place of the first."""
    text, number = MULTIPLES[name]
    body = f"""{filled()} {text} add.s32 %x, %tile, %x; ld.shared.u32 %v, [%x]; ld.shared.u32 %v, [%x+{64 - number}];
        st.global.u32 [%out], %v;"""
    out = emulator().zeros(LANES, np.int32)
    emulator().load(ml.relayout(parse(HEAD.format(size=END, body=body), "rows.ptx"), Padded(16, 16), shared="tile"))["k"][1, LANES](out)
    assert out.numpy().tolist() == [16 - number // 4] + [16] * (LANES - 1)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused(name: str) -> None:
    body, reason = REFUSED[name]
    with pytest.raises(RelayoutError) as caught:
        ml.relayout(parse(HEAD.format(size=END, body=body), "refused.ptx"), LAYOUTS[0], shared="tile")
    assert str(caught.value).startswith("refused.ptx:")
    assert reason in str(caught.value)


OTHER = """
.version 9.0
.target sm_90
.address_size 64
.shared .align 16 .b8 t1[1024];
.visible .entry named(.param .u64 out) {{
    .reg .b32 %v; .reg .b64 %out; ld.param.u64 %out, [out];
    st.shared.u32 [t1+1020], 3; ld.shared.u32 %v, [t1+1020]; st.global.u32 [%out], %v;
    ret;
}}
.visible .entry other(.param .u64 {parameter}) {{
    .reg .b32 %v, %x; .reg .b64 %out; ld.param.u64 %out, [{parameter}];
{body}
    st.global.u32 [%out], %v;
    ret;
}}
"""
HIDDEN: dict[str, tuple[str, int]] = {
    # The body of another kernel than the one that uses the array of the module, and the line that declares what has its name there.
    "a local variable": (".local .b8 t1[1024]; st.local.u32 [t1+1020], 4; ld.local.u32 %v, [t1+1020];", 13),
    "a local variable of a block": ("mov.u32 %x, t1;\n{ .local .b8 t1[8]; st.shared.u32 [%x+4], 4; ld.shared.u32 %v, [%x+4]; }", 14),
    "a register of a block": ("mov.u32 %x, t1;\n{ .reg .b32 t1; add.u32 t1, %x, 4; st.shared.u32 [t1], 4; mov.u32 %v, t1; }", 11),
    "a register of several": ("mov.u32 %x, t1; { .reg .b32 t<3>; ld.shared.u32 %v, [%x]; }", 11),
    "a label": ("t1: mov.u32 %v, 4;", 13),
    "the parameter": ("mov.u32 %v, 4;", 11),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_something_else_of_the_name_of_the_array_is_not_taken_for_it(name: str) -> None:
    body, line = HIDDEN[name]
    whole = parse(OTHER.format(parameter="t1" if name == "the parameter" else "out", body=body), "named.ptx")
    with pytest.raises(RelayoutError, match="the layout of t1 cannot be changed: other declares something else named t") as caught:
        ml.relayout(whole, LAYOUTS[0], shared="t1")
    assert str(caught.value).startswith(f"named.ptx:{line}:")
    out = emulator().zeros(1, np.int32)
    ml.relayout(emulator().load(whole)["named"], LAYOUTS[0], shared="t1")[1, 1](out)
    assert out.numpy().tolist() == [3]


def test_names_of_blocks_do_not_lead_to_the_array() -> None:
    """Two variables of one name in blocks beside each other, whose accesses by that name stay where they are."""
    block = "{{ .shared .align 4 .b8 spare[64]; st.shared.u32 [spare+8], {0}; ld.shared.u32 %x, [spare+8]; add.u32 %v, %v, %x; }}\n"
    body = filled() + "ld.shared.u32 %v, [%at];\n" + block.format(1000) + block.format(2000) + "st.global.u32 [%out], %v;"
    out = emulator().zeros(LANES, np.int32)
    emulator().load(ml.relayout(parse(HEAD.format(size=END, body=body), "blocks.ptx"), Padded(16, 16), shared="tile"))["k"][1, LANES](out)
    assert out.numpy().tolist() == (LANE + 3040).tolist()


@pytest.mark.parametrize(
    ("body", "byte"),
    [("ld.shared.u32 %v, [%end];", END), (f"ld.shared.u32 %v, [tile+{END}];", END), ("ld.shared.u32 %v, [%tile-4];", -4)],
)
def test_elements_that_the_array_does_not_have(body: str, byte: int) -> None:
    """One beyond the end, or before the beginning: what such an access gets belongs to something else."""
    with pytest.raises(RelayoutError, match=f"`ld.shared.u32` accesses byte {byte} of tile, which has only {END:,} bytes"):
        ml.relayout(parse(HEAD.format(size=END, body=body), "k.ptx"), LAYOUTS[0], shared="tile")


@pytest.mark.parametrize(
    "body",
    [
        """mov.u32 %v, -1; setp.gt.u32 %p, %lane, 9; @%p ld.shared.u32 %v, [%at];
        setp.le.u32 %p, %lane, 9; @%p ld.shared.u32 %v, [%at]; st.global.u32 [%out], %v;""",
        """add.u32 %x, %lane, 40; setp.gt.u32 %p, %lane, 9; @%p st.shared.u32 [%at], %x;
        setp.le.u32 %p, %lane, 9; @%p st.shared.u32 [%at], %x; bar.warp.sync -1; ld.shared.u32 %v, [%at]; st.global.u32 [%out], %v;""",
    ],
    ids=["loads", "stores"],
)
@pytest.mark.parametrize("tables", ["computed", "constant", "global"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_an_address_that_some_lanes_made_is_not_there_for_others(layout: Layout, tables: Tables, body: str) -> None:
    """Both accesses are under one predicate register, which holds for other lanes at the second; a table is read under it too."""
    body = filled() + body
    changed = ml.relayout(parse(HEAD.format(size=END, body=body), "guards.ptx"), layout, shared="tile", tables=tables)
    out = emulator().zeros(LANES, np.int32)
    emulator().load(changed)["k"][1, LANES](out)
    assert out.numpy().tolist() == (LANE + 40).tolist()


def test_static_shared_memory_may_be_filled_to_its_end() -> None:
    """48 KiB with what the layout adds, and not a byte more."""
    body = "add.u32 %x, %at, 0; ld.shared.u32 %v, [%x]; st.global.u32 [%out], %v;"
    added = 4 * 16 * 16
    layout = Padded(16, 16)
    rest = 49152 - 48 - 4 * 16 * 17
    whole = HEAD.format(size=added, body=body).replace(".b8 before[48]", f".b8 before[{rest}]")
    used = "ld.shared.u32 %v, [before]; ld.shared.u32 %v, [behind];"
    whole = whole.replace("    mov.u32 %lane", f"    {used}\n    mov.u32 %lane")
    ml.relayout(parse(whole, "full.ptx"), layout, shared="tile")
    with pytest.raises(RelayoutError, match="static shared memory in k; 49152 are allowed"):
        ml.relayout(parse(whole.replace(f"before[{rest}]", f"before[{rest + 16}]"), "full.ptx"), layout, shared="tile")
