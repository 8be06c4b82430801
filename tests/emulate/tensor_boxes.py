"""Kernels that copy boxes by tensor maps, as the assembler takes them too, and what they should leave, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.launch import Target, TensorMap
from memlane.ptx import Module, parse
from tests.emulate.combined import COMBINED
from tests.emulate.running import HEAD

THREADS = 32
SWIZZLE_ROWS = {"none": (1, 1), "32B": (4, 2), "64B": (2, 4), "128B": (1, 8)}
"""How many rows of a box lie in one line of 128 bytes, and after how many lines the pattern is the same again."""

TILE_BYTES = 32 << 10
"""For the largest box, in a variable of fixed size: there are assemblers that align dynamic shared memory behind another such variable to
16 bytes, whatever it is declared to need, and boxes need 128."""

REDUCED = [
    ("add", "u4"),
    ("add", "f4"),
    ("add", "f2"),
    ("add", "f8"),
    ("add", "u8"),
    ("min", "i4"),
    ("min", "i8"),
    ("max", "u8"),
    ("min", "f2"),
    ("max", "f2"),
    ("inc", "u4"),
    ("dec", "u4"),
    ("and", "u4"),
    ("or", "u8"),
    ("xor", "i4"),
]


def _head(dimensions: int, name: str) -> str:
    coordinates = ", ".join(f"c{axis}" for axis in range(dimensions))
    params = ", ".join(f".param .s32 p{axis}" for axis in range(dimensions))
    reads = " ".join(f"ld.param.s32 c{axis}, [p{axis}];" for axis in range(dimensions))
    return f"""{HEAD}
.shared .align 1024 .b8 tile[{TILE_BYTES}];
.visible .entry {name}(.param .align 64 .b8 map[128], .param .u64 flat, .param .u32 bytes, {params}) {{
    .reg .pred p, q; .reg .b32 t, a, n, v, w, {coordinates}; .reg .b64 m, o, s;
    .shared .align 8 .b64 full;
    {reads}
    ld.param.u64 o, [flat]; ld.param.u32 n, [bytes]; mov.b64 m, map; cvta.param.u64 m, m;
    mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; shl.b32 a, t, 2; mov.u32 w, tile;
"""


def _walk(body: str) -> str:
    """`body` for each word of the box: `v` is its address in shared memory, `s` that in the flat array."""
    return f"""
loop:
    setp.ge.u32 q, a, n; @q bra done;
    add.u32 v, w, a; cvt.u64.u32 s, a; add.u64 s, o, s;
    {body}
    add.u32 a, a, {4 * THREADS}; bra loop;
done:"""


@cache
def load_program(dimensions: int, space: str = "shared::cluster", begin: int = 0) -> Module:
    """`load(map, flat, bytes, x, ...)`: fetch a box, `begin` bytes into shared memory, and write it to `flat` as it lies there."""
    coordinates = ", ".join(f"c{axis}" for axis in range(dimensions))
    text = f"""{_head(dimensions, "load")}
    add.u32 w, w, {begin};
    @p mbarrier.init.shared.b64 [full], 1;
    @p fence.mbarrier_init.release.cluster;
    @p prefetch.tensormap [m];
    @p mbarrier.arrive.expect_tx.shared.b64 _, [full], n;
    @p cp.async.bulk.tensor.{dimensions}d.{space}.global.tile.mbarrier::complete_tx::bytes [tile+{begin}], [m, {{{coordinates}}}], [full];
    bar.sync 0;
again:
    mbarrier.try_wait.parity.shared.b64 q, [full], 0;
    @!q bra again;
    {_walk("ld.shared.u32 v, [v]; st.global.u32 [s], v;")}
    ret;
}}"""
    text = text.replace(".version 8.0", ".version 8.6") if space == "shared::cta" else text
    return parse(text, f"load{dimensions}.ptx")


@cache
def store_program(dimensions: int, operation: str = "") -> Module:
    """`store(map, flat, bytes, x, ...)`: put `flat` into shared memory and copy it to a box, or let it be reduced there."""
    coordinates = ", ".join(f"c{axis}" for axis in range(dimensions))
    name = f"cp.reduce.async.bulk.tensor.{dimensions}d.global.shared::cta.{operation}" if operation else ""
    name = name or f"cp.async.bulk.tensor.{dimensions}d.global.shared::cta"
    text = f"""{_head(dimensions, "store")}
    {_walk("ld.global.u32 t, [s]; st.shared.u32 [v], t;")}
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @p {name}.tile.bulk_group [m, {{{coordinates}}}], [tile];
    @p cp.async.bulk.commit_group;
    @p cp.async.bulk.wait_group 0;
    ret;
}}"""
    return parse(text, f"store{dimensions}.ptx")


@dataclass(frozen=True)
class Case:
    """One copy: shapes and coordinates in the order of NumPy."""

    shape: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    dtype: str = "f4"
    swizzle: str = "none"
    steps: tuple[int, ...] | None = None
    element: str = ""
    fill: str = "zeros"
    padding: int = 0
    """Elements behind each row that do not belong to the array."""
    seed: int = field(default=1, compare=False)

    @property
    def taken(self) -> tuple[int, ...]:
        return tuple(-(-extent // step) for extent, step in zip(self.box, self.steps or (1,) * len(self.box), strict=True))

    def host(self) -> npt.NDArray[Any]:
        """The array with its padding: bytes at random, but numbers where they are floats."""
        shape = (*self.shape[:-1], self.shape[-1] + self.padding)
        random = np.random.default_rng(self.seed)
        if np.dtype(self.dtype).kind == "f":
            return random.integers(-100, 100, shape).astype(self.dtype)
        return random.integers(0, 256, (*shape, np.dtype(self.dtype).itemsize), np.uint8).view(self.dtype)[..., 0]

    def tensor_map(self, target: Target, array: Any) -> TensorMap:
        strides = array.numpy().strides if self.padding else None
        shape = self.shape if self.padding else None
        return target.tensor_map(
            array,
            self.box,
            element_strides=self.steps,
            swizzle=self.swizzle,
            fill=self.fill,
            element=self.element,
            shape=shape,
            strides=strides,
        )

    def indices(self) -> list[npt.NDArray[np.int64]]:
        return [
            start + step * np.arange(count)
            for start, step, count in zip(self.at, self.steps or (1,) * len(self.box), self.taken, strict=True)
        ]

    def inside(self) -> npt.NDArray[np.bool]:
        """Which elements of the box lie in the array."""
        found = np.ones((), np.bool)
        for index, extent in zip(self.indices(), self.shape, strict=True):
            found = found[..., None] & ((index >= 0) & (index < extent))
        return found

    def clipped(self) -> tuple[npt.NDArray[np.int64], ...]:
        return np.ix_(*(np.clip(index, 0, extent - 1) for index, extent in zip(self.indices(), self.shape, strict=True)))


def placed(box: npt.NDArray[Any], swizzle: str) -> npt.NDArray[np.uint8]:
    """The bytes of a box as they lie in shared memory: in each line of 128 bytes, pieces of 16 bytes that stand in the first one at place j
    stand at line r at place j ^ (r mod n), counted within their row."""
    in_line, period = SWIZZLE_ROWS[swizzle]
    rows = np.ascontiguousarray(box).reshape(-1, box.shape[-1]).view(np.uint8)
    pieces = rows.reshape(len(rows), -1, 16)
    moved = np.empty_like(pieces)
    for row, line in enumerate(pieces):
        for place, piece in enumerate(line):
            moved[row, place ^ (row // in_line % period)] = piece
    return moved.reshape(-1)


NAN = 0x7FF7
"""16 bits that an H200 puts again and again into what lies outside an array of floats of any width, where that is to be no number."""


def loaded_box(case: Case, host: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """What `load` should write."""
    outside = np.full(4, NAN if case.fill == "nan" else 0, np.uint16).view(host.dtype)[0]
    return placed(np.where(case.inside(), host[case.clipped()], outside), case.swizzle)


def stored_array(case: Case, host: npt.NDArray[Any], box: npt.NDArray[Any], operation: str = "") -> npt.NDArray[Any]:
    """The array after a box was stored, or combined with it by one of `COMBINED`: whole pieces of 16 bytes are, and so what is behind a row
    up to the next one, if it is there."""
    left, rows = host.reshape(-1).copy(), box.reshape(-1, box.shape[-1])
    per_piece, pitch = 16 // host.dtype.itemsize, host.shape[-1]
    for row, values in enumerate(rows):
        where = np.unravel_index(row, case.taken[:-1]) if len(case.shape) > 1 else ()
        *outer, start = (index[at] for index, at in zip(case.indices(), (*where, 0), strict=True))
        if all(at < extent for at, extent in zip(outer, case.shape, strict=False)) and start < case.shape[-1]:
            count = min(len(values), -(-(case.shape[-1] - start) // per_piece) * per_piece)
            begin = (int(np.ravel_multi_index(outer, host.shape[:-1])) * pitch if outer else 0) + start
            count = min(count, left.size - begin)
            old = left[begin : begin + count]
            left[begin : begin + count] = COMBINED[operation](old, values[:count]) if operation else values[:count]
    return left.reshape(host.shape)


def run_load(target: Target, case: Case, space: str = "shared::cluster") -> npt.NDArray[np.uint8]:
    """What `load` writes on a target."""
    array = target.array(case.host())
    tiles = case.tensor_map(target, array)
    out = target.zeros(tiles.tiling.box_bytes, np.uint8)
    kernel = target.load(load_program(len(case.shape), space))["load"]
    kernel[1, THREADS, target.default_stream, tiles.tiling.box_bytes](tiles, out, tiles.tiling.box_bytes, *reversed(case.at))
    return out.numpy()


def run_store(target: Target, case: Case, box: npt.NDArray[Any], operation: str = "", host: npt.NDArray[Any] | None = None):
    """The array after `store` of a box."""
    array = target.array(case.host() if host is None else host)
    tiles = case.tensor_map(target, array)
    kernel = target.load(store_program(len(case.shape), operation))["store"]
    flat = target.array(placed(box, case.swizzle))
    kernel[1, THREADS, target.default_stream, tiles.tiling.box_bytes](tiles, flat, flat.nbytes, *reversed(case.at))
    return array.numpy()


def stored(case: Case) -> Case:
    """The case as a store can have it, which may not begin in front of the array."""
    return replace(case, at=tuple(max(0, start) for start in case.at))


def cases() -> Sequence[Case]:
    """Boxes inside, at and beyond the edges; all swizzles; 1 to 5 dimensions; steps; types. They begin at multiples of 16 bytes."""
    found = [
        Case((1000,), (64,), (0,)),
        Case((1000,), (256,), (896,), "u1"),
        Case((1000,), (64,), (-20,), "f8"),
        Case((1000,), (64,), (2000,)),
        Case((64, 40), (8, 16), (60, 28)),
        Case((64, 40), (8, 16), (-3, -8), "i4"),
        Case((64, 40), (8, 4), (10, 38), "f8"),
        Case((50, 48), (16, 32), (45, 40), "u2", "64B", element="bf16"),
        Case((50, 48), (16, 64), (3, 8), "f2", "128B", fill="nan"),
        Case((50, 48), (32, 32), (-7, 16), "u1", "32B"),
        Case((50, 48), (32, 32), (31, -12), "f4", "128B", fill="nan"),
        Case((50, 48), (20, 16), (2, 4), "u4", "64B"),
        Case((50, 47), (9, 8), (44, 40), "f4", "32B", padding=5),
        Case((50, 48), (21, 16), (1, 4), "f4", steps=(4, 1)),
        Case((7, 9, 24), (3, 4, 16), (5, -2, 16), "u2", "32B"),
        Case((7, 9, 24), (5, 8, 16), (-1, 3, 4), "f4", "64B", steps=(2, 3, 1)),
        Case((4, 5, 6, 16), (2, 3, 4, 8), (3, -1, 4, 12)),
        Case((4, 5, 6, 16), (4, 1, 6, 16), (0, 4, -3, -2), "u8", "128B"),
        Case((3, 4, 5, 6, 16), (2, 2, 3, 4, 16), (1, 3, -1, 4, 8), "i2", "32B"),
        Case((3, 4, 5, 6, 16), (3, 2, 2, 2, 4), (-1, 2, 1, 0, 12), "f4", steps=(1, 2, 1, 2, 1)),
    ]
    return [replace(case, seed=number) for number, case in enumerate(found)]


@cache
def multicast_program(blocks: int) -> Module:
    """`share(map, flat, bytes, mask, x, y)`: the first block of a cluster fetches a box for all blocks in the mask; each of these writes
    what came to its row of `flat`."""
    text = f"""{HEAD}
.shared .align 1024 .b8 tile[{TILE_BYTES}];
.visible .entry share(
    .param .align 64 .b8 map[128], .param .u64 flat, .param .u32 bytes, .param .u32 mask, .param .s32 x, .param .s32 y
) .reqnctapercluster {blocks}, 1, 1 {{
    .reg .pred p, q, named; .reg .b16 h; .reg .b32 t, a, n, v, w, b, k, c0, c1; .reg .b64 m, o, s;
    .shared .align 8 .b64 full;
    ld.param.s32 c0, [x]; ld.param.s32 c1, [y]; ld.param.u32 k, [mask]; cvt.u16.u32 h, k;
    ld.param.u64 o, [flat]; ld.param.u32 n, [bytes]; mov.b64 m, map; cvta.param.u64 m, m;
    mov.u32 t, %tid.x; shl.b32 a, t, 2; mov.u32 w, tile; mov.u32 b, %cluster_ctarank;
    shr.u32 v, k, b; and.b32 v, v, 1; setp.ne.u32 named, v, 0;
    setp.eq.u32 p, t, 0;
    @p mbarrier.init.shared.b64 [full], 1;
    @p fence.mbarrier_init.release.cluster;
    @p mbarrier.arrive.expect_tx.shared.b64 _, [full], n;
    barrier.cluster.arrive; barrier.cluster.wait;
    setp.eq.and.u32 q, b, 0, p;
    @q cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
        [tile], [m, {{c0, c1}}], [full], h;
    @!named bra leave;
again:
    mbarrier.try_wait.parity.shared.b64 q, [full], 0;
    @!q bra again;
    mad.wide.u32 o, b, n, o;
    {_walk("ld.shared.u32 v, [v]; st.global.u32 [s], v;")}
leave:
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
}}"""
    return parse(text, "share.ptx")


def run_multicast(target: Target, case: Case, blocks: int, mask: int) -> npt.NDArray[np.uint8]:
    """What `share` writes, a row for each block."""
    tiles = case.tensor_map(target, target.array(case.host()))
    nbytes = tiles.tiling.box_bytes
    out = target.zeros((blocks, nbytes), np.uint8)
    kernel = target.load(multicast_program(blocks))["share"]
    kernel[blocks, THREADS, target.default_stream, nbytes](tiles, out, nbytes, mask, *reversed(case.at))
    return out.numpy()


COPIED = f"""{HEAD}
.visible .entry copied(.param .align 64 .b8 map[128], .param .u64 room, .param .s32 at_x, .param .s32 at_y) {{
    .reg .pred q; .reg .b32 x, y, z; .reg .b64 m, g, v;
    .shared .align 128 .b8 tile[1024]; .shared .align 8 .b64 full;
    ld.param.u64 g, [room]; ld.param.s32 x, [at_x]; ld.param.s32 y, [at_y]; add.s32 z, y, 8;
    mov.b64 m, map; cvta.param.u64 m, m;
    prefetch.tensormap [m];
    {" ".join(f"ld.param.b64 v, [map+{at}]; st.global.b64 [g+{at}], v;" for at in range(0, 128, 8))}
    fence.proxy.tensormap::generic.release.gpu;
    fence.proxy.tensormap::generic.acquire.gpu [g], 128;
    cp.async.bulk.prefetch.tensor.2d.L2.global [g, {{x, y}}];
    mbarrier.init.shared.b64 [full], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 1024;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [g, {{x, y}}], [full];
again:
    mbarrier.try_wait.parity.shared.b64 q, [full], 0;
    @!q bra again;
    cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [m, {{x, y}}], [tile];
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [g, {{x, z}}], [tile];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}}""".replace(".version 8.0", ".version 8.3")
"""One thread copies a tensor map to global memory and uses both: it doubles a box of 8 by 32 floats, and copies it to the one below."""


def run_copied(target: Target, case: Case) -> npt.NDArray[np.float32]:
    """The array afterwards."""
    array, room = target.array(case.host()), target.zeros(128, np.uint8)
    target.load(parse(COPIED, "copied.ptx"))["copied"][1, 1](case.tensor_map(target, array), room, *reversed(case.at))
    return array.numpy()


MADE = f"""{HEAD}
.visible .entry made(.param .u64 array, .param .u64 room, .param .u64 flat, .param .u32 width, .param .u32 height, .param .u64 pitch) {{
    .reg .pred p, q; .reg .b32 t, x, y, w, h, v; .reg .b64 a, g, m, s, o;
    .shared .align 1024 .b8 tile[512]; .shared .align 128 .b8 map[128]; .shared .align 8 .b64 full;
    ld.param.u64 a, [array]; ld.param.u64 g, [room]; ld.param.u64 o, [flat]; ld.param.u64 s, [pitch];
    ld.param.u32 w, [width]; ld.param.u32 h, [height];
    mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; mov.u32 x, 4; mov.u32 y, 2;
    mov.u32 v, map; mad.lo.u32 v, t, 4, v; st.shared.u32 [v], 0; mov.u64 m, map;
    bar.warp.sync -1;
    @!p bra ready;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [m], a;
    tensormap.replace.tile.rank.shared::cta.b1024.b32 [m], 1;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [m], 0, 16;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [m], 1, 15;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [m], 0, w;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [m], 1, h;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [m], 0, s;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [m], 0, 1;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [m], 1, 2;
    tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [m], 7;
    tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [m], 0;
    tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [m], 2;
    tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [m], 0;
ready:
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [g], [m], 128;
    fence.proxy.tensormap::generic.acquire.gpu [g], 128;
    @p mbarrier.init.shared.b64 [full], 1;
    @p fence.mbarrier_init.release.cluster;
    @p mbarrier.arrive.expect_tx.shared.b64 _, [full], 512;
    @p cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [g, {{x, y}}], [full];
    bar.warp.sync -1;
again:
    mbarrier.try_wait.parity.shared.b64 q, [full], 0;
    @!q bra again;
    mov.u32 v, tile; mad.lo.u32 v, t, 16, v; mad.wide.u32 o, t, 16, o;
    .reg .b32 e0, e1, e2, e3;
    ld.shared.v4.u32 {{e0, e1, e2, e3}}, [v]; st.global.v4.u32 [o], {{e0, e1, e2, e3}};
    ret;
}}""".replace(".version 8.0\n.target sm_90\n", ".version 8.3\n.target sm_90a\n")
"""A warp makes a tensor map in shared memory, copies it to global memory, and fetches every second of 15 rows of 16 floats from (4, 2)."""
MADE_CASE = Case((12, 24), (15, 16), (2, 4), swizzle="64B", steps=(2, 1))


def run_made(target: Target) -> npt.NDArray[np.uint8]:
    """What it fetched."""
    array, room, out = target.array(MADE_CASE.host()), target.zeros(128, np.uint8), target.zeros(512, np.uint8)
    target.load(parse(MADE, "made.ptx"))["made"][1, 32](array, room, out, 24, 12, 96)
    return out.numpy()
