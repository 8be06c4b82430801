"""Write kernels in PTX that issue one form of `wgmma` a known number of times, or one form of asynchronous copy once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

TILE_BYTES = 49152
RIGHT = 16384
"""Offset of B in the tile; A begins at 0."""
PRODUCTS = 8
"""Instructions of a product in one turn of its kernel."""
DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "s8": 32, "b1": 256}
MODES = {0: 0, 128: 1, 64: 2, 32: 3}

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


@dataclass(frozen=True)
class Layout:
    """The layout of a matrix in shared memory, as its descriptor says."""

    swizzle: int = 0
    """Swizzle in bytes, 0 for none."""
    by_depth: bool = True
    """True if the matrix is K-major."""
    leading: int = 128
    stride: int = 256
    start: int = 0
    base: int = 0

    @property
    def name(self) -> str:
        return f"{'k' if self.by_depth else 'mn'}{self.swizzle}"

    def descriptor(self, begin: int) -> int:
        """Return the descriptor of a matrix `begin` bytes behind the beginning of the tile, which is added at run time."""
        place = begin + self.start
        return place >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | self.base << 49 | MODES[self.swizzle] << 62


def packed(swizzle: int, by_depth: bool = True) -> Layout:
    """Return the densest layout of that kind."""
    width = swizzle or 16
    if by_depth:
        return Layout(swizzle, True, 128, 256 if not swizzle else 8 * width)
    if not swizzle:
        return Layout(0, False, 128, 256)
    return Layout(swizzle, False, 16 * width, 8 * width)


@dataclass(frozen=True)
class Product:
    """One form of `wgmma.mma_async`."""

    columns: int
    type: str
    left: Layout | None
    """Layout of A; None if A is in registers."""
    right: Layout
    d: str = "f32"
    note: str = ""

    @property
    def name(self) -> str:
        """Return the name of its kernel."""
        left = "reg" if self.left is None else self.left.name
        return f"wgmma_n{self.columns}_{self.d}_{self.type}_{left}_{self.right.name}{'_' * bool(self.note)}{self.note}"

    def text(self) -> str:
        """Return a kernel of one warpgroup, `(out, turns)`. `out` gets each warp's cycles from the first product to the end of the last."""
        count = self.columns // (4 if self.d == "f16" else 2)
        d = ", ".join(f"%d{number}" for number in range(count))
        a = "{%a0, %a1, %a2, %a3}" if self.left is None else "%left"
        more = "" if self.type in ("s8", "b1") else ", 1, 1"
        if self.type in ("f16", "bf16"):
            more += "".join(f", {int(not one.by_depth)}" for one in (self.left, self.right) if one is not None)
        kind = f"m64n{self.columns}k{DEPTHS[self.type]}.{self.d}.{self.type}.{self.type}{'.and.popc' * (self.type == 'b1')}"
        product = f"wgmma.mma_async.sync.aligned.{kind} {{{d}}}, {a}, %right, %yes{more};"
        zeros = " ".join(f"mov.b32 %d{number}, 0;" for number in range(count))
        left = 0 if self.left is None else self.left.descriptor(0)
        return f"""
.visible .entry {self.name}(.param .u64 out, .param .u32 turns) .reqntid 128, 1, 1 {{
    .reg .b32 %t, %n, %d<{count}>, %a<4>, %base32;
    .reg .b64 %out, %left, %right, %base, %mine, %from, %to;
    .reg .pred %p, %yes;
    .shared .align 1024 .b8 tile[{TILE_BYTES}];
    ld.param.u64 %out, [out]; ld.param.u32 %n, [turns];
    mov.u32 %t, %tid.x; mov.u64 %base, tile; shr.u64 %base, %base, 4; and.b64 %base, %base, 16383;
    mov.b64 %left, {left:#x}; mov.b64 %right, {self.right.descriptor(RIGHT):#x};
    add.u64 %left, %left, %base; add.u64 %right, %right, %base;
    mov.b32 %a0, %n; add.u32 %a1, %n, 1; add.u32 %a2, %n, 2; add.u32 %a3, %n, 3;
    {zeros}
    setp.eq.u32 %yes, %n, %n;
    bar.sync 0;
    mov.u64 %from, %clock64;
TURN:
    .pragma "nounroll";
    wgmma.fence.sync.aligned;
    {chr(10).join([product] * PRODUCTS)}
    wgmma.commit_group.sync.aligned;
    sub.u32 %n, %n, 1;
    setp.ne.u32 %p, %n, 0;
    @%p bra TURN;
    wgmma.wait_group.sync.aligned 0;
    mov.u64 %to, %clock64;
    sub.u64 %to, %to, %from;
    shr.u32 %t, %t, 5; mul.wide.u32 %mine, %t, 16; add.u64 %mine, %out, %mine;
    st.global.u64 [%mine], %to; st.global.b32 [%mine+8], %d0;
    ret;
}}
"""


def products() -> Iterator[Product]:
    """Yield all forms of products that are measured."""
    wide = packed(128)
    for columns in (8, 16, 24, 32, 40, 64, 96, 128, 192, 248, 256):
        yield Product(columns, "f16", wide, wide)
        yield Product(columns, "f16", None, wide)
    for swizzle in (0, 32, 64):
        for columns in (8, 64, 256):
            yield Product(columns, "f16", packed(swizzle), packed(swizzle))
        yield Product(64, "f16", None, packed(swizzle))
    for swizzle in (0, 32, 64, 128):
        turned = packed(swizzle, False)
        yield Product(64, "f16", turned, wide)
        yield Product(64, "f16", wide, turned)
        yield Product(64, "f16", turned, turned)
        yield Product(128, "f16", turned, turned)
        yield Product(64, "bf16", None, turned)
    yield Product(64, "f16", wide, wide, "f16")
    yield Product(256, "f16", wide, wide, "f16")
    for kind, d in (("bf16", "f32"), ("tf32", "f32"), ("e4m3", "f32"), ("s8", "s32"), ("b1", "s32")):
        for columns in (8, 64, 256):
            yield Product(columns, kind, wide, wide, d)
            yield Product(columns, kind, None, wide, d)
        yield Product(64, kind, packed(0), packed(0), d)
    yield from _odd()


def _odd() -> Iterator[Product]:
    """Return unusual layouts, to find any conflicts."""
    wide, plain = packed(128), packed(0)
    ways = {
        "far": replace(plain, leading=1024, stride=128),
        "apart": replace(plain, leading=144, stride=512),
        "same": replace(plain, leading=0, stride=0),
        "same_bank": replace(plain, leading=2048, stride=1024),
        "behind": replace(plain, start=16),
        "halfway": replace(plain, start=64),
        "swizzle_apart": replace(wide, stride=1040),
        "swizzle_same": replace(wide, stride=0),
        "second": replace(wide, start=32),
        "last": replace(wide, start=96),
        "odd_chunk": replace(wide, start=16),
        "crossing": replace(wide, start=112),
        "base": replace(wide, start=128, base=1),
        "no_base": replace(wide, start=128),
        "w64_crossing": replace(packed(64), start=48),
        "w32_crossing": replace(packed(32), start=16),
        "mn_apart": replace(packed(0, False), leading=144, stride=272),
        "mn_swizzle_same": replace(packed(128, False), leading=0, stride=0),
        "mn_swizzle_near": replace(packed(64, False), leading=512, stride=4096),
    }
    for note, layout in ways.items():
        yield Product(64, "f16", None, layout, note=note)
        if note in ("same", "behind", "apart", "crossing", "same_bank", "mn_apart"):
            yield Product(64, "f16", layout, wide, note=f"left_{note}")


# -- copies of lanes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaneCopy:
    """One form of `cp.async`, by one warp."""

    nbytes: int
    cache: str
    """Its cache operator, `ca` or `cg`."""
    masked: bool = False
    """True if lanes may fill what they copy with zeros: their size is then 0, as Triton does for masked lanes."""

    @property
    def name(self) -> str:
        return f"cp_async_{self.cache}_{self.nbytes}{'_masked' * self.masked}"

    def text(self) -> str:
        """Return a kernel `(in, table, mask)`. `table`: offsets by lane in shared and global memory, and whether it reads; `mask`: lanes
        that copy."""
        size = f"{self.nbytes}, %n" if self.masked else f"{self.nbytes}"
        return f"""
.visible .entry {self.name}(.param .u64 in, .param .u64 table, .param .u32 mask) {{
    .reg .b32 %t, %s, %g, %f, %n, %m, %base; .reg .b64 %in, %table, %mine; .reg .pred %p, %q;
    .shared .align 1024 .b8 tile[{TILE_BYTES}];
    ld.param.u64 %in, [in]; ld.param.u64 %table, [table]; ld.param.u32 %m, [mask]; mov.u32 %t, %tid.x;
    mul.wide.u32 %mine, %t, 4; add.u64 %table, %table, %mine;
    ld.global.u32 %s, [%table]; ld.global.u32 %g, [%table+128]; ld.global.u32 %f, [%table+256];
    cvt.u64.u32 %mine, %g; add.u64 %in, %in, %mine; mov.u32 %base, tile; add.u32 %s, %s, %base;
    shr.u32 %m, %m, %t; and.b32 %m, %m, 1; setp.ne.u32 %p, %m, 0;
    setp.ne.u32 %q, %f, 0; selp.b32 %n, {self.nbytes}, 0, %q;
    @%p cp.async.{self.cache}.shared.global [%s], [%in], {size};
    cp.async.wait_all;
    bar.warp.sync -1;
    ret;
}}
"""


def lane_copies() -> Iterator[LaneCopy]:
    """Yield all forms of lane copies that are measured."""
    for nbytes, cache in ((4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")):
        for masked in (False, True):
            yield LaneCopy(nbytes, cache, masked)


# -- copies of blocks of memory --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BulkCopy:
    """One form of `cp.async.bulk`, or with a tensor map `cp.async.bulk.tensor`, by one thread."""

    way: str
    """`load`, `store`, or the operation of a reduction, as `add.u32`."""
    nbytes: int
    start: int = 0
    """Offset in the tile."""
    far: int = 0
    """Bytes behind the beginning of the array."""
    box: tuple[int, int] = (0, 0)
    """Rows and columns of the box, in f32, for a copy with a tensor map."""
    swizzle: str = "none"
    at: tuple[int, int] = (0, 0)
    """Row and column of the box."""

    @property
    def name(self) -> str:
        shape = f"_{self.box[0]}x{self.box[1]}_{self.swizzle}_at{self.at[0]}x{self.at[1]}".replace("-", "m") if self.box[0] else ""
        return f"bulk_{self.way.replace('.', '_')}_{self.nbytes}_s{self.start}_g{self.far}{shape}"

    def text(self) -> str:
        box = f"[%map, {{{self.at[1]}, {self.at[0]}}}]"
        far = box if self.box[0] else "[%in]"
        kind = "bulk.tensor.2d" if self.box[0] else "bulk"
        size = "" if self.box[0] else f", {self.nbytes}"
        tile = ".tile" if self.box[0] else ""
        if self.way == "load":
            copy = (
                f"@%p cp.async.{kind}.shared::cluster.global{tile}.mbarrier::complete_tx::bytes [tile+{self.start}], {far}{size}, [full];"
            )
        elif self.way == "store":
            copy = f"@%p cp.async.{kind}.global.shared::cta{tile}.bulk_group {far}, [tile+{self.start}]{size};"
        elif self.box[0]:
            copy = f"@%p cp.reduce.async.{kind}.global.shared::cta.{self.way}{tile}.bulk_group {far}, [tile+{self.start}];"
        else:
            copy = f"@%p cp.reduce.async.bulk.global.shared::cta.bulk_group.{self.way} {far}, [tile+{self.start}]{size};"
        arrives = self.way == "load"
        expect = f"@%p mbarrier.arrive.expect_tx.shared.b64 _, [full], {self.nbytes};" if arrives else ""
        wait = "AGAIN: mbarrier.try_wait.parity.shared.b64 %q, [full], 0; @!%q bra AGAIN;"
        wait = wait if arrives else "@%p cp.async.bulk.commit_group; @%p cp.async.bulk.wait_group 0;"
        return f"""
.visible .entry {self.name}(.param .align 64 .b8 map[128], .param .u64 in) {{
    .reg .b32 %t; .reg .b64 %in, %map; .reg .pred %p, %q;
    .shared .align 1024 .b8 tile[{TILE_BYTES - 1024}];
    .shared .align 8 .b64 full;
    ld.param.u64 %in, [in]; mov.b64 %map, map; cvta.param.u64 %map, %map; mov.u32 %t, %tid.x;
    add.u64 %in, %in, {self.far};
    setp.eq.u32 %p, %t, 0;
    @%p mbarrier.init.shared.b64 [full], 1;
    @%p fence.mbarrier_init.release.cluster;
    {expect}
    fence.proxy.async.shared::cta;
    {copy}
    {wait}
    ret;
}}
"""


def bulk_copies() -> Iterator[BulkCopy]:
    """Yield all forms of bulk copies that are measured."""
    for way in ("load", "store", "add.u32"):
        for nbytes in (16, 128, 4096):
            yield BulkCopy(way, nbytes)
    for way in ("load", "store", "add"):
        for columns, swizzle in ((4, "none"), (32, "none"), (32, "128B")):
            yield BulkCopy(way, 32 * columns * 4, box=(32, columns), swizzle=swizzle)


def products_text() -> str:
    """Return the module with the products and the copies of lanes."""
    return HEAD + "".join(one.text() for one in (*products(), *lane_copies()))


def bulk_text() -> str:
    """Return the module with the bulk copies."""
    return HEAD + "".join(one.text() for one in bulk_copies())
