"""Copies of boxes that a GPU is asked for, and what NumPy says of them; `tensor_sweep` runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memlane.launch import SWIZZLES, Target, Tiling
from memlane.ptx import parse, print_module
from tests.emulate.tensor_boxes import (
    MADE_CASE,
    REDUCED,
    THREADS,
    Case,
    cases,
    load_program,
    loaded_box,
    run_copied,
    run_load,
    run_made,
    run_multicast,
    run_store,
    stored,
    stored_array,
)
from tests.measure.tiles import IMAGE, doubling

ILLEGAL, MISALIGNED = "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS"
SAME, UNKNOWN = "same", "unknown"


@dataclass(frozen=True)
class Trial:
    """A copy, and what it says: `same`, or where it differs. One that is provoked has the error that a GPU is to give."""

    group: str
    label: str
    run: Callable[[Target], str]
    error: str = ""

    @property
    def is_alone(self) -> bool:
        """Whether it has a process of its own, because it may well fail."""
        return bool(self.error) or self.group == UNKNOWN


def _compared(left: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> str:
    ours, theirs = left.reshape(-1).view(np.uint8), wanted.reshape(-1).view(np.uint8)
    wrong = np.flatnonzero(ours != theirs)
    return SAME if not len(wrong) else f"differs in {len(wrong)} bytes: {wrong[:8]} are {ours[wrong[:8]]}, not {theirs[wrong[:8]]}"


def _loaded(case: Case, space: str = "shared::cluster") -> Callable[[Target], str]:
    return lambda target: _compared(run_load(target, case, space), loaded_box(case, case.host()))


def _stored(case: Case) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        host = case.host()
        box = np.random.default_rng(case.seed + 100).integers(-100, 100, case.taken).astype(host.dtype)
        return _compared(run_store(target, case, box), stored_array(case, host, box))

    return run


def _reduced(operation: str, dtype: str, padding: int = 0) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        width = 40 - padding
        case = Case((30, width), (8, 16), (25, 32), dtype, padding=padding)
        random = np.random.default_rng(5)
        host, box = (random.integers(0, 60, shape).astype(dtype) for shape in ((30, 40), case.box))
        return _compared(run_store(target, case, box, operation, host), stored_array(case, host, box, operation))

    return run


def _tiny() -> Callable[[Target], str]:
    """Sums of the smallest numbers, which atomics in global memory would flush."""

    def run(target: Target) -> str:
        case = Case((8, 16), (8, 16), (0, 0))
        host = np.full((8, 16), np.finfo(np.float32).smallest_subnormal, np.float32)
        return _compared(run_store(target, case, 2 * host, "add", host), 3 * host)

    return run


def _turned(begin: int) -> Callable[[Target], str]:
    """A box that begins inside the pattern of its swizzle: pieces change places by their address."""

    def run(target: Target) -> str:
        case = Case((50, 48), (16, 32), (2, 4), swizzle="128B")
        tiles, out = case.tensor_map(target, target.array(case.host())), target.zeros(2048, np.uint8)
        target.load(load_program(2, begin=begin))["load"][1, THREADS](tiles, out, out.nbytes, 4, 2)
        plain = loaded_box(replace(case, swizzle="none"), case.host()).reshape(16, 8, 16)
        wanted = np.empty_like(plain)
        for row in range(16):
            for piece in range(8):
                wanted[row, piece ^ ((row + begin // 128) % 8)] = plain[row, piece]
        return _compared(out.numpy(), wanted)

    return run


def _promoted(promotion: str) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        case = cases()[4]
        tiles = target.tensor_map(target.array(case.host()), case.box, promotion=promotion)
        out = target.zeros(tiles.tiling.box_bytes, np.uint8)
        target.load(load_program(2))["load"][1, THREADS](tiles, out, out.nbytes, *reversed(case.at))
        return _compared(out.numpy(), loaded_box(case, case.host()))

    return run


def _shared_out(mask: int) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        case = Case((50, 48), (8, 32), (45, -4), swizzle="128B")
        box = loaded_box(case, case.host())
        wanted = np.stack([box if mask >> rank & 1 else np.zeros_like(box) for rank in range(4)])
        return _compared(run_multicast(target, case, 4, mask), wanted)

    return run


def _copied(target: Target) -> str:
    case = Case((40, 64), (8, 32), (7, 20))
    wanted = case.host()
    wanted[15:23, 20:52] = wanted[7:15, 20:52]
    wanted[7:15, 20:52] *= 2
    return _compared(run_copied(target, case), wanted)


def _made(target: Target) -> str:
    return _compared(run_made(target), loaded_box(MADE_CASE, MADE_CASE.host()))


def _doubled(target: Target) -> str:
    call, tiles, results, out = doubling(target)
    call(tiles, results)
    return _compared(out.numpy(), 2 * IMAGE)


HEALTHY = """.version 8.0
.target sm_90
.address_size 64
.visible .entry healthy(.param .u64 array) {
    .reg .b32 t; .reg .b64 a;
    ld.param.u64 a, [array]; mov.u32 t, %tid.x; mad.wide.u32 a, t, 4, a; mul.lo.u32 t, t, 3; st.global.u32 [a], t; ret;
}"""


def _healthy(target: Target) -> str:
    out = target.zeros(THREADS, np.uint32)
    target.load(parse(HEALTHY, "healthy.ptx"))["healthy"][1, THREADS](out)
    return _compared(out.numpy(), 3 * np.arange(THREADS, dtype=np.uint32))


def _misplaced(target: Target) -> str:
    tiles, out = target.tensor_map(target.zeros((64, 32), np.float32), (8, 16)), target.zeros(512, np.uint8)
    target.load(load_program(2, begin=16))["load"][1, THREADS](tiles, out, 512, 0, 0)
    return _compared(out.numpy(), np.zeros(512, np.uint8))


def _prefetched(target: Target) -> str:
    """A box that no load could have is only prefetched, then another is loaded."""
    case = Case((64, 64), (8, 16), (0, 0))
    text, old = print_module(load_program(2)), "prefetch.tensormap [m];"
    assert old in text
    text = text.replace("{c0, c1}", "{0, 0}").replace(old, "cp.async.bulk.prefetch.tensor.2d.L2.global [m, {c0, c1}];")
    tiles, out = case.tensor_map(target, target.array(case.host())), target.zeros(512, np.uint8)
    target.load(parse(text, "prefetch.ptx"))["load"][1, THREADS](tiles, out, 512, 1, 0)
    return _compared(out.numpy(), loaded_box(case, case.host()))


def _narrow(swizzle: str, width: int) -> Callable[[Target], str]:
    """Rows narrower than a swizzle, which tensor maps are not made for: they may lie close, and pieces change places by their address."""

    def run(target: Target) -> str:
        array = target.array(np.repeat(np.arange(64 * 16, dtype=np.uint32).reshape(64, 16), 4, axis=1))
        tiling = Tiling(array.address, "u32", (64, 64), (256,), (width, 16), (1, 1), swizzle)
        out = target.zeros(tiling.box_bytes, np.uint8)
        target.load(load_program(2))["load"][1, THREADS](target.encode_tensor_map(tiling), out, tiling.box_bytes, 0, 0)
        pieces = (16 * np.arange(16)[:, None] + np.arange(width // 4)).reshape(-1)
        places = np.arange(len(pieces))
        wanted = np.empty_like(pieces)
        wanted[places ^ (places >> 3 & SWIZZLES[swizzle] // 16 - 1)] = pieces
        found = out.numpy().view(np.uint32)[::4]
        return SAME if np.array_equal(found, wanted) else f"lies as {found.tolist()}"

    return run


def trials() -> list[Trial]:
    """Those that are to be right, class after class, and last those that are provoked."""
    found = [Trial("none", "a kernel without tensor maps", _healthy)]
    plain = Case((64, 64), (16, 16), (0, 0))
    known = (plain, *(case for case in cases() if case.fill == "zeros"))
    simple = sorted((case for case in known if case.swizzle == "none" and case.steps is None), key=lambda case: len(case.shape))
    for name, of_class in (
        ("plain", simple),
        ("swizzle", [case for case in known if case.swizzle != "none" and case.steps is None]),
        ("steps", [case for case in known if case.steps is not None]),
    ):
        found += [Trial(f"load, {name}, {len(case.shape)}d", _named(case), _loaded(case)) for case in of_class]
        found += [Trial(f"store, {name}, {len(case.shape)}d", _named(stored(case)), _stored(stored(case))) for case in of_class]
    blind = [case for case in cases() if case.fill == "nan"]
    blind += [Case((4, 16), (1, 16), (0, x), dtype, fill="nan", element=element) for dtype, element, x in NANS]
    found += [Trial("load, filled with nan", _named(case), _loaded(case)) for case in blind]
    found += [
        Trial(f"reduce, {dtype}", f"{operation} of {dtype}", _reduced(operation, dtype)) for operation, dtype in sorted(REDUCED, key=_dtype)
    ]
    found += [Trial("reduce, whole pieces", "add of f4, rows of 140 bytes", _reduced("add", "f4", 5))]
    found += [Trial("reduce, f4", "add of subnormal f4", _tiny())]
    found += [Trial("swizzle by address", f"box at byte {begin}", _turned(begin)) for begin in (128, 256, 640)]
    found += [Trial("own block", _named(case), _loaded(case, "shared::cta")) for case in simple[:3]]
    found += [Trial("l2", promotion, _promoted(promotion)) for promotion in ("64B", "128B", "256B")]
    found += [Trial("several blocks", f"mask {mask:#06b}", _shared_out(mask)) for mask in (0b1111, 0b0110)]
    found += [Trial("map copied by the kernel", "2 x 8 x 32", _copied), Trial("map made by the kernel", "8 x 16", _made)]
    found += [Trial("cuda", "tiles doubled", _doubled)]
    found += [Trial("larger than the array", _named(case), _loaded(case)) for case in (Case((6, 16), (8, 32), (0, 0)),)]
    for dtype, x in (("f4", 1), ("u1", 8)):
        case = Case((64, 64), (8, 16), (0, x), dtype)
        found += [Trial("provoked", f"load, {_named(case)}", _loaded(case), ILLEGAL)]
    for at in ((0, 2), (0, -4), (-8, 0)):
        case = Case((64, 64), (8, 16), at)
        found += [Trial("provoked", f"store, {_named(case)}", _stored(case), ILLEGAL)]
    found += [Trial("provoked", "load, 16 bytes into shared memory", _misplaced, MISALIGNED)]
    found += [Trial("provoked", "add of i8", _reduced("add", "i8"), ILLEGAL)]
    found += [Trial("provoked", "prefetch of f4[64,64] at 0,1", _prefetched, ILLEGAL)]
    found += [Trial(UNKNOWN, "xor of i8", _reduced("xor", "i8"))]
    found += [
        Trial(UNKNOWN, f"rows of {4 * width} bytes, {swizzle}", _narrow(swizzle, width)) for swizzle, width in (("64B", 8), ("128B", 8))
    ]
    return [*found, Trial("none", "a kernel without tensor maps, at the end", _healthy)]


def _dtype(reduced: tuple[str, str]) -> str:
    return reduced[1]


NANS = (("f2", "", 96), ("u2", "bf16", 96), ("f4", "", 96), ("f8", "", 96))


def _named(case: Case) -> str:
    shape, box, at = (",".join(map(str, one)) for one in (case.shape, case.box, case.at))
    steps = f" steps {','.join(map(str, case.steps))}" if case.steps else ""
    return f"{case.element or case.dtype}[{shape}] box {box} at {at}{steps} {case.swizzle if case.swizzle != 'none' else ''}".rstrip()
