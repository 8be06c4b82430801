"""However a kernel computes an address, the access goes where the layout has the element: random ways to say the same place."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import memlane as ml
from memlane.layout import Layout, Padded, RandomShift, XorSwizzle
from memlane.ptx import parse
from memlane.rewrite import relayout_module

LANES, ELEMENTS = 32, 256
WAYS = 14


class Ways:
    """PTX of random loads from `tile`, each with the element that every lane gets."""

    def __init__(self, random: Random) -> None:
        self.random, self.lines, self.expected = random, [], []
        self._count = 0

    def fresh(self, kind: str) -> str:
        self._count += 1
        return f"%{kind}x{self._count}"

    def add(self, text: str) -> None:
        self.lines.append(text)

    def one(self) -> None:
        """A load of element a * lane + b, or of its neighbour behind a constant."""
        random = self.random
        a, b = random.choice([1, 2, 4, 7]), random.randrange(20)
        behind = random.choice([0, 0, 1, 3])
        address = random.choice([self.wide, self.narrow, self.multiplied, self.in_two_steps, self.long, self.behind_a_branch, self.generic])
        register, space = address(a, b)
        value = self.fresh("r")
        self.add(f"ld{space}.u32 {value}, [{register}+{4 * behind}];")
        self.add(f"mad.lo.s32 %sum, %sum, 31, {value};")
        self.expected.append(a * np.arange(LANES) + b + behind)

    def index(self, a: int, b: int) -> str:
        product, total = self.fresh("r"), self.fresh("r")
        self.add(f"mul.lo.s32 {product}, %lane, {a};")
        self.add(f"add.s32 {total}, {product}, {b};")
        return total

    def wide(self, a: int, b: int) -> tuple[str, str]:
        offset, address = self.fresh("d"), self.fresh("d")
        self.add(f"mul.wide.{self.random.choice('us')}32 {offset}, {self.index(a, b)}, 4;")
        self.add(f"add.s64 {address}, {offset}, %tile;")
        return address, ".shared"

    def narrow(self, a: int, b: int) -> tuple[str, str]:
        """In 32 bits, where the upper two of the index are lost."""
        lifted, offset, address = self.fresh("r"), self.fresh("r"), self.fresh("r")
        self.add(f"add.s32 {lifted}, {self.index(a, b)}, {self.random.choice([0, 1, 2, 3]) << 30};")
        self.add(f"shl.b32 {offset}, {lifted}, 2;")
        self.add(f"add.s32 {address}, {offset}, tile;")
        return address, ".shared"

    def multiplied(self, a: int, b: int) -> tuple[str, str]:
        start, address = self.fresh("d"), self.fresh("d")
        self.add(f"add.s64 {start}, %tile, {4 * b};")
        self.add(f"mad.wide.u32 {address}, %lane, {4 * a}, {start};")
        return address, ".shared"

    def in_two_steps(self, a: int, b: int) -> tuple[str, str]:
        """With a register that is below 0."""
        first, second, middle, address = self.fresh("d"), self.fresh("d"), self.fresh("d"), self.fresh("d")
        less, more = self.index(a, b - 40), self.index(0, 40)
        self.add(f"mul.wide.s32 {first}, {less}, 4;")
        self.add(f"mul.wide.u32 {second}, {more}, 4;")
        self.add(f"add.s64 {middle}, %tile, {first};")
        self.add(f"add.s64 {address}, {middle}, {second};")
        return address, ".shared"

    def long(self, a: int, b: int) -> tuple[str, str]:
        wide, offset, address, narrow = self.fresh("d"), self.fresh("d"), self.fresh("d"), self.fresh("r")
        self.add(f"cvt.s64.s32 {wide}, {self.index(a, b)};")
        self.add(f"shl.b64 {offset}, {wide}, 2;")
        self.add(f"add.s64 {address}, %tile, {offset};")
        if self.random.random() < 0.5:
            return address, ".shared"
        self.add(f"cvt.u32.u64 {narrow}, {address};")
        return narrow, ".shared"

    def behind_a_branch(self, a: int, b: int) -> tuple[str, str]:
        """Odd lanes come another way, and what the address is made of changes behind it."""
        offset, address, label = self.fresh("d"), self.fresh("d"), f"L{self._count}"
        index = self.index(a, b)
        self.add(f"mul.wide.u32 {offset}, {index}, 4;")
        self.add(f"add.s64 {address}, %tile, {offset};")
        self.add(f"@%odd bra {label};")
        self.add(f"add.s64 {offset}, {offset}, 4;")
        self.add(f"{label}:")
        return address, ".shared"

    def generic(self, a: int, b: int) -> tuple[str, str]:
        address, _ = self.wide(a, b)
        everywhere = self.fresh("d")
        self.add(f"cvta.shared.u64 {everywhere}, {address};")
        return everywhere, ""


def program(seed: int) -> tuple[str, np.ndarray]:
    """A kernel, and the elements that it adds up for each lane."""
    ways = Ways(Random(seed))
    for _ in range(WAYS):
        ways.one()
    body = "\n    ".join(ways.lines)
    text = f"""
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .b32 %lane, %sum, %v, %parity;
    .reg .b64 %tile, %at, %out, %end;
    .reg .pred %odd, %more;
    .reg .b32 %rx<400>;
    .reg .b64 %dx<400>;
    .shared .align 16 .b8 tile[{ELEMENTS * 4}];
    mov.u32 %lane, %tid.x;
    mov.u64 %tile, tile;
    and.b32 %parity, %lane, 1;
    setp.eq.u32 %odd, %parity, 1;
    mov.u32 %sum, 0;
    mad.wide.u32 %at, %lane, 4, %tile;
    mov.u32 %v, %lane;
FILL:
    st.shared.u32 [%at], %v;
    add.s64 %at, %at, {4 * LANES};
    add.s32 %v, %v, {LANES};
    setp.lt.u32 %more, %v, {ELEMENTS};
    @%more bra FILL;
    bar.warp.sync -1;
    {body}
    ld.param.u64 %out, [out];
    mad.wide.u32 %end, %lane, 4, %out;
    st.global.u32 [%end], %sum;
    ret;
}}
"""
    return text, np.array(ways.expected)


@pytest.mark.parametrize("layout", [Padded(16, 16, 1), XorSwizzle(16, 16), RandomShift(8, 32, 3)], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_every_way_leads_to_the_element(seed: int, layout: Layout) -> None:
    text, elements = program(seed)
    relaid = relayout_module(parse(text), layout)
    assert relaid.accesses == WAYS + 1
    target = ml.target("emulator:h200")
    out = target.zeros(LANES, np.uint32)
    target.load(relaid.module)["k"][1, LANES](out)
    expected = np.zeros(LANES, np.uint32)
    for one in elements:
        expected = expected * np.uint32(31) + one.astype(np.uint32)
    assert np.array_equal(out.numpy(), expected)


def test_an_address_outlives_what_it_was_made_of() -> None:
    """`%x` moves on in each turn, and every other turn leaves the address of the turn before."""
    text = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %turn, %x, %sum, %v, %half;
    .reg .b64 %tile, %at, %out, %own, %offset;
    .reg .pred %odd, %more;
    .shared .align 16 .b8 tile[128];
    mov.u64 %tile, tile;
    mov.u32 %v, %tid.x;
    mad.wide.u32 %own, %v, 4, %tile;
    st.shared.u32 [%own], %v;
    bar.warp.sync -1;
    mov.u32 %sum, 0;
    mov.u32 %turn, 0;
LOOP:
    add.s32 %x, %turn, 5;
    and.b32 %half, %turn, 1;
    setp.eq.u32 %odd, %half, 1;
    @%odd bra KEEP;
    mul.wide.u32 %offset, %x, 4;
    add.s64 %at, %tile, %offset;
KEEP:
    ld.shared.u32 %half, [%at];
    mad.lo.s32 %sum, %sum, 7, %half;
    add.s32 %turn, %turn, 1;
    setp.lt.u32 %more, %turn, 6;
    @%more bra LOOP;
    ld.param.u64 %out, [out];
    st.global.u32 [%out], %sum;
    ret;
}
"""
    expected = 0
    for turn in range(6):
        expected = expected * 7 + (turn // 2 * 2 + 5)
    target = ml.target("emulator:h200")
    out = target.zeros(1, np.uint32)
    target.load(relayout_module(parse(text), RandomShift(4, 8, 1)).module)["k"][1, 32](out)
    assert out.numpy().tolist() == [expected]


def test_addresses_that_wrap_lead_to_the_element() -> None:
    """Bases in front of the array, or 4 GiB behind it, in registers of 32 bits: constant and known to the running kernel alone."""
    text = f"""
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .b32 %lane, %base, %at, %sum, %v;
    .reg .b64 %out, %wide;
    .shared .align 16 .b8 tile[{ELEMENTS * 4}];
    mov.u32 %lane, %tid.x;
    mov.u32 %base, tile;
    mad.lo.u32 %at, %lane, 4, %base;
    {" ".join(f"add.u32 %v, %lane, {first}; st.shared.u32 [%at+{4 * first}], %v;" for first in range(0, ELEMENTS, LANES))}
    bar.warp.sync -1;
    sub.u32 %at, %at, 4096;
    ld.shared.u32 %sum, [%at+4100];
    add.u32 %at, %at, 0xfffffff0;
    ld.shared.u32 %v, [%at+4128];
    mad.lo.s32 %sum, %sum, 31, %v;
    ld.shared.u32 %v, [%at+0x200001020];
    mad.lo.s32 %sum, %sum, 31, %v;
    add.u32 %base, %base, 0xfffffff8;
    ld.shared.u32 %v, [%base+52];
    mad.lo.s32 %sum, %sum, 31, %v;
    cvt.u64.u32 %wide, %at;
    ld.shared.u32 %v, [%wide+4136];
    mad.lo.s32 %sum, %sum, 31, %v;
    ld.param.u64 %out, [out];
    mad.wide.u32 %out, %lane, 4, %out;
    st.global.u32 [%out], %sum;
    ret;
}}
"""
    lane = np.arange(LANES, dtype=np.uint32)
    expected = np.zeros(LANES, np.uint32)
    for element in (lane + 1, lane + 4, lane + 4, np.full(LANES, 11), lane + 6):
        expected = expected * np.uint32(31) + element.astype(np.uint32)
    target = ml.target("emulator:h200")
    module = parse(text)
    for version in (module, relayout_module(module, Padded(16, 16, 1)).module, relayout_module(module, XorSwizzle(16, 16)).module):
        out = target.zeros(LANES, np.uint32)
        target.load(version)["k"][1, LANES](out)
        assert out.numpy().tolist() == expected.tolist()
