"""Reads, writes and updates surfaces, lane by lane.

Coordinates are integers: in unformatted accesses x counts bytes, in formatted ones texels. Outside the image the instruction decides: it
ends the launch (`trap`), accesses the nearest texel (`clamp`), or reads zeros and writes nothing (`zero`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.atomic import fetch
from memlane.emulate.code.build import F32, I1, I8, I16, I32, I64, INTEGERS, POINTER, VOID, Emit, Value, constant
from memlane.emulate.code.formats import narrow
from memlane.emulate.layout import BEYOND, MISALIGNED, TEXTURE
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import Helper, helper, invoke
from memlane.emulate.runtime.texture import FORMATS, axes_of, each_format, find, surface_kind

_ACCESS = (POINTER, POINTER, POINTER, I32, I32, POINTER)
"""Arguments: warp, handles (32 i64), coordinates (32 i32 for the layer, if there is one, and for each axis), lanes, site, data (32 of each
element)."""


@dataclass(frozen=True)
class SurfaceMode:
    """The geometry of a surface, and what an instruction does outside of it."""

    geometry: str
    beyond: str
    """`trap`, `clamp` or `zero`."""


class _Access:
    """An access of `nbytes` by each lane, inside one helper (0: of a whole texel). In a `formatted` access x counts texels."""

    def __init__(
        self, e: Emit, mode: SurfaceMode, nbytes: int, warp: Value, handles: Value, coordinates: Value, site: Value, formatted: bool = False
    ) -> None:
        self._e, self._mode, self._nbytes, self._formatted = e, mode, nbytes, formatted
        self._warp, self._handles, self._coordinates, self._site = warp, handles, coordinates, site

    @contextmanager
    def lanes(self, mask: Value) -> Iterator[tuple[Value, Value, Value, Value]]:
        """Loop over the lanes; yield the lane number, the record of the surface, i1 whether it may access memory, and the pointer. Lanes
        with a fault are skipped."""
        e = self._e
        with e.each_lane(mask) as lane:
            handle = e.load(e.element(self._handles, lane, I64), typ=I64)
            kind = constant(I32, surface_kind(self._mode.geometry))
            row = invoke(e, find, self._warp, handle, kind, self._site, lane)
            with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(row, I64), constant(I64, 0)), likely=True):
                inside, pointer, goes_on = self._located(row, lane, handle)
                with e.if_then(goes_on, likely=True):
                    yield lane, row, inside, pointer

    def _located(self, row: Value, lane: Value, handle: Value) -> tuple[Value, Value, Value]:
        """Return whether the coordinates of a lane lie inside, the pointer that they give, and whether there was no fault."""
        e, beyond = self._e, self._mode.beyond
        texel_bytes = e.zext(e.get(row, TEXTURE, "texel_bytes"), I64)
        size = constant(I64, self._nbytes) if self._nbytes else texel_bytes
        numbers, limits = self._numbers(row, lane, texel_bytes, size)
        inside = constant(I1, 1)
        for number, limit in zip(numbers, limits, strict=True):
            inside = e.and_(inside, e.and_(e.icmp_signed(">=", number, constant(I64, 0)), e.icmp_signed("<=", number, limit)))
        if beyond == "clamp":
            zero = constant(I64, 0)
            fits = e.icmp_signed(">=", limits[0], zero)
            numbers = [
                e.intrinsic("smax", [e.intrinsic("smin", [number, limit]), zero]) for number, limit in zip(numbers, limits, strict=True)
            ]
            inside = fits
        goes_on = self._checked(inside, numbers, lane, handle, size)
        width, height = (e.zext(e.get(row, TEXTURE, "extents", axis), I64) for axis in range(2))
        x, y, z = numbers
        line = e.mul(e.add(e.mul(z, height), y), e.mul(width, texel_bytes))
        return inside, e.at(e.get_pointer(row, TEXTURE, "host"), e.add(line, x)), goes_on

    def _numbers(self, row: Value, lane: Value, texel_bytes: Value, size: Value) -> tuple[list[Value], list[Value]]:
        """Return bytes in x, lines, and layers or planes; and the largest of each that still lies inside."""
        e, geometry = self._e, self._mode.geometry
        layered, axes = geometry.startswith("a"), axes_of(geometry)
        words = [self._word(number, lane) for number in range(axes + layered)]
        given = [*words[layered:], *[constant(I64, 0)] * (3 - axes)]
        if self._formatted:
            given[0] = e.mul(given[0], texel_bytes)
        extents = [e.zext(e.get(row, TEXTURE, "extents", axis), I64) for axis in range(3)]
        if layered:
            given[2], extents[2] = words[0], e.zext(e.get(row, TEXTURE, "layers"), I64)
        one = constant(I64, 1)
        return given, [e.sub(e.mul(extents[0], texel_bytes), size), e.sub(extents[1], one), e.sub(extents[2], one)]

    def _word(self, number: int, lane: Value) -> Value:
        e = self._e
        return e.sext(e.load(e.element(e.at(self._coordinates, 4 * LANES * number), lane, I32), typ=I32), I64)

    def _checked(self, inside: Value, numbers: list[Value], lane: Value, handle: Value, size: Value) -> Value:
        """Return i1: whether the access may continue. An access outside with `trap`, and an x that is not a multiple of the access, are
        faults."""
        e = self._e
        goes_on = e.variable(constant(I1, 1))
        odd = e.icmp_unsigned("!=", e.urem(numbers[0], size), constant(I64, 0)) if self._nbytes > 1 else constant(I1, 0)
        if self._mode.beyond == "trap":
            with e.if_then(e.not_(inside), likely=False):
                self._fail(BEYOND, numbers, lane, handle)
                goes_on.set(constant(I1, 0))
        with e.if_then(e.and_(goes_on.get(), e.and_(inside, odd)), likely=False):
            self._fail(MISALIGNED, numbers, lane, handle)
            goes_on.set(constant(I1, 0))
        return goes_on.get()

    def _fail(self, kind: int, numbers: list[Value], lane: Value, handle: Value) -> None:
        """Report a fault with the number of the handle, and the coordinates truncated to 32 bits, for its message."""
        e = self._e
        x, y, z = (e.and_(number, constant(I64, 0xFFFFFFFF)) for number in numbers)
        packed = e.or_(e.shl(y, constant(I64, 32)), x)
        number = e.trunc(e.udiv(e.and_(handle, constant(I64, 0xFFFFFFFF)), constant(I64, TEXTURE.itemsize)), I32)
        invoke(e, fault, self._warp, constant(I32, kind), self._site, lane, packed, number, e.trunc(z, I32))


@cache
def load(mode: SurfaceMode, bits: int, count: int) -> Helper:
    """Return the helper that reads `count` elements for each lane; `data` receives 32 of the first element, then of the next."""
    element, nbytes = INTEGERS[bits], bits // 8

    def build(e: Emit, warp: Value, handles: Value, coordinates: Value, lanes: Value, site: Value, data: Value) -> None:
        access = _Access(e, mode, nbytes * count, warp, handles, coordinates, site)
        with access.lanes(lanes) as (lane, _, inside, pointer):
            targets = [e.element(e.at(data, LANES * nbytes * part), lane, element) for part in range(count)]
            for target in targets:
                e.store(constant(element, 0), target)
            with e.if_then(inside, likely=True):
                for part, target in enumerate(targets):
                    e.store(e.load(e.at(pointer, part * nbytes), typ=element, align=1), target)

    return Helper(f"memlane_suld_{mode.geometry}_{mode.beyond}_{bits}x{count}", VOID, _ACCESS, build)


@cache
def store(mode: SurfaceMode, bits: int, count: int) -> Helper:
    """Return the helper that writes `count` elements of `data` for each lane."""
    element, nbytes = INTEGERS[bits], bits // 8

    def build(e: Emit, warp: Value, handles: Value, coordinates: Value, lanes: Value, site: Value, data: Value) -> None:
        access = _Access(e, mode, nbytes * count, warp, handles, coordinates, site)
        with access.lanes(lanes) as (lane, _, inside, pointer), e.if_then(inside, likely=True):
            for part in range(count):
                value = e.load(e.element(e.at(data, LANES * nbytes * part), lane, element), typ=element)
                e.store(value, e.at(pointer, part * nbytes), align=1)

    return Helper(f"memlane_sust_{mode.geometry}_{mode.beyond}_{bits}x{count}", VOID, _ACCESS, build)


# -- formatted stores --------------------------------------------------------------------------------------------------------------


@helper("texture_encode", VOID, POINTER, I32, I32)
def encode(e: Emit, pointer: Value, number: Value, word: Value) -> None:
    """Store 32 bits as a channel in the format of that number, clamping integers to its range."""
    for name in each_format(e, number, FORMATS[:8]):
        e.store(_encoded(e, name, word), pointer, align=1)
        e.ret_void()


def _encoded(e: Emit, name: str, word: Value) -> Value:
    bits = 8 * int(name[1:])
    if name == "f2":
        one = narrow(e, e.bitcast(word, ir.VectorType(F32, 1)), "f16")
        return e.trunc(e.extract_element(one, constant(I32, 0)), I16)
    if bits == 32:
        return word
    kind = {8: I8, 16: I16}[bits]
    if name[0] == "u":
        return e.trunc(e.intrinsic("umin", [word, constant(I32, (1 << bits) - 1)]), kind)
    least, most = constant(I32, -(1 << (bits - 1))), constant(I32, (1 << (bits - 1)) - 1)
    return e.trunc(e.intrinsic("smax", [e.intrinsic("smin", [word, most]), least]), kind)


@cache
def store_texel(mode: SurfaceMode, count: int) -> Helper:
    """Return the helper that writes `count` words of `data` to each lane's texel, in its format. Words for channels that the texel lacks
    are dropped; channels without a word keep their values."""

    def build(e: Emit, warp: Value, handles: Value, coordinates: Value, lanes: Value, site: Value, data: Value) -> None:
        access = _Access(e, mode, 0, warp, handles, coordinates, site, formatted=True)
        with access.lanes(lanes) as (lane, row, inside, pointer), e.if_then(inside, likely=True):
            channels, number = e.get(row, TEXTURE, "channels"), e.get(row, TEXTURE, "format")
            size = e.udiv(e.get(row, TEXTURE, "texel_bytes"), channels)
            with e.count(e.intrinsic("umin", [channels, constant(I32, count)])) as part:
                index = e.add(e.mul(part, constant(I32, LANES)), lane)
                word = e.load(e.element(data, index, I32), typ=I32)
                invoke(e, encode, e.at(pointer, e.zext(e.mul(part, size), I64)), number, word)

    return Helper(f"memlane_sust_p_{mode.geometry}_{mode.beyond}_{count}", VOID, _ACCESS, build)


# -- reductions --------------------------------------------------------------------------------------------------------------------


@cache
def reduce(mode: SurfaceMode, operation: str, bits: int, formatted: bool) -> Helper:
    """Return the helper that combines each lane's word of `data` with memory, one lane after another. `operation` is one of LLVM's
    `atomicrmw`."""
    element = INTEGERS[bits]

    def build(e: Emit, warp: Value, handles: Value, coordinates: Value, lanes: Value, site: Value, data: Value) -> None:
        access = _Access(e, mode, bits // 8, warp, handles, coordinates, site, formatted)
        with access.lanes(lanes) as (lane, _, inside, pointer), e.if_then(inside, likely=True):
            value = e.load(e.element(data, lane, element), typ=element)
            fetch(e, operation, pointer, value)

    name = f"memlane_sured_{mode.geometry}_{mode.beyond}_{operation}{bits}{'_p' if formatted else ''}"
    return Helper(name, VOID, _ACCESS, build)
