"""One `wgmma.mma_async` on operands that are laid out here, element by element, as the manual's canonical layouts say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.launch import Target
from memlane.ptx import Module, parse
from tests.emulate.test_formats import eight_bits

TILE_BYTES = 40960
_CODES = {
    name: {sign * float(value): bits | (0x80 if sign < 0 else 0) for bits, value in eight_bits(name).items() for sign in (-1, 1)}
    for name in ("e4m3", "e5m2")
}
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_MODES = {0: 0, 128: 1, 64: 2, 32: 3}


def encoded(matrix: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Elements as unsigned integers of their width; single bits by words."""
    if name == "b1":
        return np.ascontiguousarray(np.packbits(matrix.astype(np.uint8), axis=1, bitorder="little")).view(np.uint32)
    if name == "f16":
        return matrix.astype(np.float16).view(np.uint16)
    if name == "bf16":
        return (matrix.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if name == "tf32":
        return matrix.astype(np.float32).view(np.uint32)
    if name in ("s8", "u8"):
        return matrix.astype(np.int64).astype(np.uint8)
    return np.vectorize(_CODES[name].__getitem__)(matrix + 0.0).astype(np.uint8)


@dataclass(frozen=True)
class Layout:
    """Of a matrix of lines (rows of A, columns of B) by depth in shared memory."""

    swizzle: int
    """Bytes, 0 for none."""
    by_depth: bool = True
    """K-major."""
    leading: int = 0
    """Bytes; of K-major with a swizzle nobody asks for it."""
    stride: int = 0
    start: int = 0
    """Where it begins in the tile."""
    base: int = 0
    """By how many 128 bytes the pattern of the swizzle begins later than it would."""

    def places(self, lines: int, depth: int, nbytes: int) -> npt.NDArray[np.int64]:
        """Byte offset of each element in the tile."""
        i, k = np.arange(lines)[:, None], np.arange(depth)[None, :]
        per, wide = 16 // nbytes, max(1, self.swizzle // 16)
        if self.by_depth and not self.swizzle:
            found = i % 8 * 16 + i // 8 * self.stride + k % per * nbytes + k // per * self.leading
        elif self.by_depth:
            found = i % 8 * 16 * wide + i // 8 * self.stride + k * nbytes
        elif not self.swizzle:
            found = i % per * nbytes + i // per * self.stride + k % 8 * 16 + k // 8 * self.leading
        else:
            inside = i % per * nbytes + i // per % wide * 16
            found = inside + i // (per * wide) * self.leading + k % 8 * 16 * wide + k // 8 * self.stride
        found = found + self.start
        return found ^ (((found >> 7) - self.base) % wide << 4)

    @property
    def descriptor(self) -> int:
        """Of the matrix, but for where the tile begins."""
        leading = self.leading or 16
        return self.start >> 4 | leading >> 4 << 16 | self.stride >> 4 << 32 | self.base << 49 | _MODES[self.swizzle] << 62


@dataclass(frozen=True)
class Case:
    """One instruction."""

    columns: int
    d: str
    a: str
    b: str
    left: Layout | None
    """None: in registers."""
    right: Layout
    signs: tuple[int, int] = (1, 1)
    satfinite: bool = False

    @property
    def depth(self) -> int:
        return _DEPTHS[self.a]

    @property
    def registers(self) -> int:
        return self.columns // (4 if self.d == "f16" else 2)

    def text(self) -> str:
        """PTX: a block of 128 threads that fills the tile and its registers, multiplies once and writes D."""
        d = [f"%d{number}" for number in range(self.registers)]
        a = "{%a0, %a1, %a2, %a3}" if self.left is None else "%left"
        more = ""
        if self.a not in ("s8", "u8", "b1"):
            more = f", {self.signs[0]}, {self.signs[1]}"
        if self.a in ("f16", "bf16"):
            trans = [] if self.left is None else [int(not self.left.by_depth)]
            more += "".join(f", {one}" for one in (*trans, int(not self.right.by_depth)))
        name = f"m64n{self.columns}k{self.depth}.{self.d}.{self.a}.{self.b}{'.satfinite' * self.satfinite}{'.and.popc' * (self.a == 'b1')}"
        loads = "\n".join(f"ld.global.b32 {one}, [%start+{512 * number}];" for number, one in enumerate(d))
        stores = "\n".join(f"st.global.b32 [%out+{512 * number}], {one};" for number, one in enumerate(d))
        return f""".version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 image, .param .u64 start, .param .u64 factors,
                  .param .u64 left, .param .u64 right, .param .u32 adds) {{
    .reg .b32 %t, %n, %adds, %d<{self.registers}>, %a<4>, %w<4>;
    .reg .b64 %out, %image, %start, %factors, %left, %right, %mine, %from, %to, %base;
    .reg .pred %p;
    .shared .align 1024 .b8 tile[{TILE_BYTES}];
    ld.param.u64 %out, [out]; ld.param.u64 %image, [image]; ld.param.u64 %start, [start]; ld.param.u64 %factors, [factors];
    ld.param.u64 %left, [left]; ld.param.u64 %right, [right]; ld.param.u32 %adds, [adds];
    mov.u32 %t, %tid.x;
    mov.u64 %base, tile;
    mul.wide.u32 %mine, %t, 16;
    add.u64 %from, %image, %mine; add.u64 %to, %base, %mine;
    mov.u32 %n, 0;
FILL:
    ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%from];
    st.shared.v4.b32 [%to], {{%w0, %w1, %w2, %w3}};
    add.u64 %from, %from, 2048; add.u64 %to, %to, 2048; add.u32 %n, %n, 1;
    setp.lt.u32 %p, %n, {TILE_BYTES // 2048};
    @%p bra FILL;
    fence.proxy.async;
    bar.sync 0;
    mul.wide.u32 %mine, %t, 4;
    add.u64 %out, %out, %mine; add.u64 %start, %start, %mine; add.u64 %factors, %factors, %mine;
    {loads}
    ld.global.b32 %a0, [%factors]; ld.global.b32 %a1, [%factors+512];
    ld.global.b32 %a2, [%factors+1024]; ld.global.b32 %a3, [%factors+1536];
    shr.u64 %base, %base, 4; and.b64 %base, %base, 16383;
    add.u64 %left, %left, %base; add.u64 %right, %right, %base;
    setp.ne.u32 %p, %adds, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.{name} {{{", ".join(d)}}}, {a}, %right, %p{more};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    {stores}
    ret;
}}
"""

    def module(self) -> Module:
        return parse(self.text(), "wgmma.ptx")

    @property
    def line(self) -> str:
        """The product in the text."""
        return next(line for line in self.text().splitlines() if "wgmma.mma_async" in line)


def multiplied(
    target: Target,
    case: Case,
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    c: npt.NDArray[Any] | None,
    text: str = "",
    measured: Callable[..., object] = lambda call, *arguments: call(*arguments),
) -> npt.NDArray[Any]:
    """D (64 by columns) of a case; `c` is None where D is not added to. `a` is 64 by depth, `b` depth by columns. `text` may stand in the
    place of the case's own."""
    image = np.zeros(TILE_BYTES, np.uint8)
    factors = np.zeros((4, 128), np.uint32)
    for layout, matrix, name in ((case.left, a, case.a), (case.right, b.T, case.b)):
        bits = encoded(matrix, name)
        if layout is None:
            factors = in_registers(bits)
            continue
        places = layout.places(*bits.shape, bits.itemsize)
        for byte in range(bits.itemsize):
            image[places + byte] = (bits >> (8 * byte)).astype(np.uint8)
    dtype = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[case.d]
    before = np.full((64, case.columns), 77).astype(dtype) if c is None else c.astype(dtype)
    packed = 4 // before.itemsize
    rows, columns = of_result(case.columns)
    start = np.ascontiguousarray(before[rows, columns].reshape(case.registers, packed, 128).swapaxes(1, 2)).view(np.uint32)[..., 0]
    out = target.zeros((case.registers, 128), np.uint32)
    descriptors = [0 if layout is None else layout.descriptor for layout in (case.left, case.right)]
    arrays = [target.array(one) for one in (image, start, factors)]
    kernel = target.load(parse(text or case.text(), "wgmma.ptx"))["k"]
    measured(kernel[1, 128], out, *arrays, *(np.uint64(one) for one in descriptors), np.uint32(c is not None))
    found = np.zeros((64, case.columns), dtype)
    values = out.numpy().view(dtype).reshape(case.registers, 128, packed).swapaxes(1, 2).reshape(-1, 128)
    found[rows, columns] = values
    return found


def of_result(columns: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row and column of element i of D in thread t, by the manual's figure."""
    i, t = np.arange(columns // 2)[:, None], np.arange(128)[None, :]
    lane = t % 32
    return 16 * (t // 32) + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2


def in_registers(bits: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """The four registers of A in each thread, by the manual's figures."""
    per = 4 // bits.itemsize
    i, t = np.arange(4 * per)[:, None], np.arange(128)[None, :]
    lane = t % 32
    rows = 16 * (t // 32) + lane // 4 + 8 * (i // per % 2)
    depth = per * (lane % 4) + i % per + 4 * per * (i // (2 * per))
    return np.ascontiguousarray(bits[rows, depth].reshape(4, per, 128).swapaxes(1, 2)).view(np.uint32)[..., 0]
