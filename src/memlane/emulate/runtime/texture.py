"""Reads textures: from handle and coordinates to a value, lane by lane.

Coordinates become positions in fixed point: whole texels for point sampling; for linear filtering texels with eight bits of fraction,
rounded to the nearest, which the programming guide gives as the precision of the weights. Only then does the address mode of its axis map a
position into the image, on integers, so that coordinates next to an edge lose nothing. The guide leaves open: a NaN coordinate counts as 0,
and so does one so large that `wrap` and `mirror` find no fraction in it (infinities too). Integer coordinates name a texel, whatever the
address mode, and read 0 outside the image. A single integer coordinate reads only linear memory, as the guide says of `tex1Dfetch`: from an
array an H200 returns 0 for every texel.

Filtered values are computed in f64, where the products of texels and weights are exact, and rounded once. Channels that a texel does not
have read as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.build import F16, F32, F64, I8, I16, I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.layout import BAD_TEXTURE, BLOCK, CONTEXT, SPACE_NUMBERS, TEXTURE, TEXTURE_WINDOW, WARP
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import Helper, helper, invoke
from memlane.launch.texture import ADDRESS_MODES

GEOMETRIES = ("1d", "2d", "3d", "a1d", "a2d", "cube")
LINEAR_MEMORY = 1 << 7
ANY_TEXTURE, ANY_SURFACE = 0xFF, 0xFF00
FORMATS = ("u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4", "unorm1", "snorm1", "unorm2", "snorm2")
"""Formats of a channel, by the numbers in `TEXTURE.format`; the last four are integers that are read as floats."""
CHANNELS = 4
_TEXEL = ir.ArrayType(I32, CHANNELS)
_FAR = float(1 << 40)
"""Positions farther out are clamped to this: every address mode gives them the same texel."""
_NO_FRACTION = float(1 << 24)
"""From this size on, floats have no fraction."""


def texture_kind(geometry: str) -> int:
    """Return the bit of `TEXTURE.kind` for a texture of a geometry."""
    return 1 << GEOMETRIES.index(geometry)


def surface_kind(geometry: str) -> int:
    """Return the bit of `TEXTURE.kind` for a surface of a geometry."""
    return 1 << (8 + GEOMETRIES.index(geometry))


def axes_of(geometry: str) -> int:
    """Return the number of coordinates of a geometry, without the layer."""
    return int(geometry.strip("ad")) if geometry != "cube" else 3


@helper("texture_find", POINTER, POINTER, I64, I32, I32, I32)
def find(e: Emit, warp: Value, handle: Value, wanted: Value, site: Value, lane: Value) -> None:
    """Return the record of a handle whose kind is among those `wanted`; report a fault and return null if there is none."""
    context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
    size = constant(I64, TEXTURE.itemsize)
    inner = e.sub(handle, constant(I64, TEXTURE_WINDOW))
    number = e.udiv(inner, size)
    known = e.icmp_unsigned("<", number, e.get(context, CONTEXT, "texture_count"))
    known = e.and_(known, e.icmp_unsigned("==", e.mul(number, size), inner))
    with e.if_then(known, likely=True):
        row = e.at(e.get_pointer(context, CONTEXT, "textures"), inner)
        fits = e.icmp_unsigned("!=", e.and_(e.get(row, TEXTURE, "kind"), wanted), constant(I32, 0))
        with e.if_then(fits, likely=True):
            e.ret(row)
    invoke(e, fault, warp, constant(I32, BAD_TEXTURE), site, lane, handle, wanted, constant(I32, SPACE_NUMBERS["tex"]))
    e.ret(e.inttoptr(constant(I64, 0), POINTER))


# -- texels ------------------------------------------------------------------------------------------------------------------------


def _decoded(e: Emit, place: Value, name: str) -> Value:
    """Return a channel at an address as 32 bits: integers sign- or zero-extended, and all that is read as a float as f32."""
    bits = 8 * int(name[-1])
    kind = {8: I8, 16: I16, 32: I32}[bits]
    word = e.load(place, typ=kind, align=1)
    if name == "f2":
        return e.bitcast(e.fpext(e.bitcast(word, F16), F32), I32)
    if bits == 32:
        return word
    if name in ("i1", "i2"):
        return e.sext(word, I32)
    if name in ("u1", "u2"):
        return e.zext(word, I32)
    signed = name.startswith("snorm")
    number = (e.sitofp if signed else e.uitofp)(word, F32)
    most = (1 << (bits - 1 if signed else bits)) - 1
    share = e.fdiv(number, ir.Constant(F32, float(most)))
    if signed:  # the least integer lies one step below -1
        share = e.select(e.fcmp_ordered("<", share, ir.Constant(F32, -1.0)), ir.Constant(F32, -1.0), share)
    return e.bitcast(share, I32)


def each_format(e: Emit, number: Value, formats: Sequence[str]) -> Iterator[str]:
    """Emit a branch for each format; yield its name with `e` at its block, which the caller must terminate."""
    other = e.append_basic_block("other")
    switch = e.switch(number, other)
    for index, name in enumerate(formats):
        here = e.append_basic_block(name)
        switch.add_case(constant(I32, index), here)
        e.position_at_end(here)
        yield name
    e.position_at_end(other)
    e.unreachable()


@helper("texture_channel", I32, POINTER, I32)
def channel(e: Emit, place: Value, number: Value) -> None:
    """Return a channel in the format of that number, as 32 bits."""
    for name in each_format(e, number, FORMATS):
        e.ret(_decoded(e, place, name))


@helper("texture_texel", VOID, POINTER, I64, I64, I64, POINTER)
def texel(e: Emit, row: Value, x: Value, y: Value, z: Value, out: Value) -> None:
    """Store the four channels of a texel into 4 i32 at `out`; zeros if a coordinate is negative. `z` is also the layer."""
    e.store(ir.Constant(_TEXEL, None), out)
    with e.if_then(e.icmp_signed("<", e.or_(x, e.or_(y, z)), constant(I64, 0)), likely=False):
        e.ret_void()
    width, height = (e.zext(e.get(row, TEXTURE, "extents", axis), I64) for axis in range(2))
    place = e.add(e.mul(e.add(e.mul(z, height), y), width), x)
    place = e.at(e.get_pointer(row, TEXTURE, "host"), e.mul(place, e.zext(e.get(row, TEXTURE, "texel_bytes"), I64)))
    channels = e.get(row, TEXTURE, "channels")
    size = e.zext(e.udiv(e.get(row, TEXTURE, "texel_bytes"), channels), I64)
    with e.count(channels) as index:
        source = e.at(place, e.mul(e.zext(index, I64), size))
        e.store(invoke(e, channel, source, e.get(row, TEXTURE, "format")), e.element(out, index, I32))


# -- positions ---------------------------------------------------------------------------------------------------------------------


@helper("texture_position", I64, POINTER, I32, F32, I32)
def position(e: Emit, row: Value, axis: Value, coordinate: Value, fraction: Value) -> None:
    """Return the texel number of a coordinate on an axis; or, with `fraction`, the number of the left of the two texels whose centres it
    lies between, times 256, plus the weight of the right one in 256ths."""

    def real(number: float) -> Value:
        return ir.Constant(F64, number)

    mode = e.get(row, TEXTURE, "modes", axis)
    extent = e.uitofp(e.get(row, TEXTURE, "extents", axis), F64)
    wide = e.fpext(coordinate, F64)
    nothing = e.fcmp_unordered("uno", wide, wide)
    repeats = e.or_(_is_mode(e, mode, "wrap"), _is_mode(e, mode, "mirror"))
    large = e.not_(e.fcmp_ordered("<", e.intrinsic("fabs", [wide]), real(_NO_FRACTION)))
    wide = e.select(e.or_(nothing, e.and_(repeats, large)), real(0.0), wide)
    normalized = e.icmp_unsigned("!=", e.get(row, TEXTURE, "normalized"), constant(I32, 0))
    wide = e.select(normalized, e.fmul(wide, extent), wide)
    wide = e.select(e.fcmp_ordered("<", wide, real(_FAR)), wide, real(_FAR))
    wide = e.select(e.fcmp_ordered(">", wide, real(-_FAR)), wide, real(-_FAR))
    # 256 (x - 1/2), rounded to the nearest integer, halves up
    fixed = e.fadd(e.fmul(wide, real(256.0)), real(-127.5))
    chosen = e.select(e.icmp_unsigned("!=", fraction, constant(I32, 0)), fixed, wide)
    e.ret(e.fptosi(e.intrinsic("floor", [chosen]), I64))


@helper("texture_fold", I64, POINTER, I32, I64)
def fold(e: Emit, row: Value, axis: Value, number: Value) -> None:
    """Map a texel number of an axis into the image by its address mode; return -1 for the border."""
    extent = e.zext(e.get(row, TEXTURE, "extents", axis), I64)
    mode, zero = e.get(row, TEXTURE, "modes", axis), constant(I64, 0)
    last = e.sub(extent, constant(I64, 1))
    inside = e.icmp_unsigned("<", number, extent)
    with e.if_then(inside, likely=True):
        e.ret(number)
    with e.if_then(_is_mode(e, mode, "border")):
        e.ret(constant(I64, -1))
    with e.if_then(_is_mode(e, mode, "clamp")):
        e.ret(e.select(e.icmp_signed("<", number, zero), zero, last))
    mirrors = _is_mode(e, mode, "mirror")
    period = e.select(mirrors, e.add(extent, extent), extent)
    rest = e.srem(number, period)
    rest = e.select(e.icmp_signed("<", rest, zero), e.add(rest, period), rest)
    e.ret(e.select(e.icmp_signed("<", rest, extent), rest, e.sub(e.sub(period, constant(I64, 1)), rest)))


def _is_mode(e: Emit, mode: Value, name: str) -> Value:
    return e.icmp_unsigned("==", mode, constant(I32, ADDRESS_MODES.index(name)))


# -- values ------------------------------------------------------------------------------------------------------------------------


class _Coordinates:
    """Coordinates of one lane: `pointer` points to 32 words for the layer, if the geometry has one, and 32 for each axis."""

    def __init__(self, e: Emit, geometry: str, pointer: Value, lane: Value) -> None:
        self._e, self._pointer, self._lane = e, pointer, lane
        self._layered = geometry.startswith("a")
        self.axes = axes_of(geometry)

    def _word(self, number: int, kind: ir.Type) -> Value:
        place = self._e.element(self._e.at(self._pointer, 4 * LANES * number), self._lane, I32)
        return self._e.load(place, typ=kind)

    def real(self, axis: int) -> Value:
        return self._word(axis + self._layered, F32)

    def whole(self, axis: int) -> Value:
        return self._e.sext(self._word(axis + self._layered, I32), I64)

    def layer(self, row: Value) -> Value:
        """Return the layer, clamped to the last one; 0 for a geometry without layers."""
        e = self._e
        if not self._layered:
            return constant(I64, 0)
        last = e.sub(e.zext(e.get(row, TEXTURE, "layers"), I64), constant(I64, 1))
        return e.intrinsic("umin", [e.zext(self._word(0, I32), I64), last])


class _OnCube(_Coordinates):
    """The point where the direction of one lane meets a cube map: the face of its longest coordinate is the layer, and the other two,
    divided by the longest, are the position on the face, from 0 to 1. Positions past the edge of a face read the face's last texel:
    filtering does not include neighbours on other faces."""

    def __init__(self, e: Emit, pointer: Value, lane: Value) -> None:
        super().__init__(e, "cube", pointer, lane)
        self.axes = 2  # of a face
        x, y, z = (e.fpext(self._word(axis, F32), F64) for axis in range(3))
        along_x, along_y, along_z = (e.intrinsic("fabs", [part]) for part in (x, y, z))
        is_x = e.and_(e.fcmp_ordered(">=", along_x, along_y), e.fcmp_ordered(">=", along_x, along_z))
        is_y = e.fcmp_ordered(">=", along_y, along_z)

        def chosen(of_x: Value, of_y: Value, of_z: Value) -> Value:
            return e.select(is_x, of_x, e.select(is_y, of_y, of_z))

        back = e.fcmp_ordered("<", chosen(x, y, z), ir.Constant(F64, 0.0))
        right = chosen(e.select(back, z, e.fneg(z)), x, e.select(back, e.fneg(x), x))
        down = chosen(e.fneg(y), e.select(back, e.fneg(z), z), e.fneg(y))
        longest = chosen(along_x, along_y, along_z)
        self._face = e.add(chosen(*(constant(I64, face) for face in (0, 2, 4))), e.zext(back, I64))
        self._place = [self._scaled(part, longest) for part in (right, down)]

    def _scaled(self, part: Value, longest: Value) -> Value:
        e, half = self._e, ir.Constant(F64, 0.5)
        return e.fptrunc(e.fadd(e.fmul(e.fdiv(part, longest), half), half), F32)

    def real(self, axis: int) -> Value:
        return self._place[axis]

    def layer(self, row: Value) -> Value:
        return self._face


def _coordinates(e: Emit, geometry: str, pointer: Value, lane: Value) -> _Coordinates:
    return _OnCube(e, pointer, lane) if geometry == "cube" else _Coordinates(e, geometry, pointer, lane)


_SAMPLE = (POINTER, POINTER, POINTER, I32, I32, POINTER)
"""Arguments: warp, handles (32 i64), coordinates, lanes, site, results (four times 32 i32)."""


def _scatter(e: Emit, found: Value, lane: Value, out: Value) -> None:
    for number in range(CHANNELS):
        e.store(e.load(e.at(found, 4 * number), typ=I32), e.element(e.at(out, 4 * LANES * number), lane, I32))


@cache
def sample(geometry: str, whole: bool) -> Helper:
    """Return the helper that reads a texture of a geometry by `whole` coordinates, which name a texel, or by floats."""
    wanted = LINEAR_MEMORY if whole and geometry == "1d" else texture_kind(geometry)

    def build(e: Emit, warp: Value, handles: Value, coordinates: Value, lanes: Value, site: Value, out: Value) -> None:
        found = e.local(_TEXEL, align=16)
        with e.each_lane(lanes) as lane:
            handle = e.load(e.element(handles, lane, I64), typ=I64)
            row = invoke(e, find, warp, handle, constant(I32, wanted), site, lane)
            here = _coordinates(e, geometry, coordinates, lane)
            with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(row, I64), constant(I64, 0)), likely=True):
                if whole:
                    _read_whole(e, row, here, found)
                else:
                    linear = e.icmp_unsigned("!=", e.get(row, TEXTURE, "linear"), constant(I32, 0))
                    with e.if_else(linear) as (mean, point):
                        with mean:
                            _read_mean(e, row, here, found)
                        with point:
                            _read_point(e, row, here, found)
                _scatter(e, found, lane, out)

    return Helper(f"memlane_sample_{geometry}_{'whole' if whole else 'real'}", VOID, _SAMPLE, build)


def _place(e: Emit, row: Value, here: _Coordinates, numbers: list[Value]) -> list[Value]:
    """Return x, y, and z or layer of a texel."""
    zero = constant(I64, 0)
    if here.axes == 3:
        return numbers
    return [*numbers, *[zero] * (2 - here.axes), here.layer(row)]


def _read_whole(e: Emit, row: Value, here: _Coordinates, out: Value) -> None:
    numbers = []
    for axis in range(here.axes):
        number = here.whole(axis)
        inside = e.icmp_unsigned("<", number, e.zext(e.get(row, TEXTURE, "extents", axis), I64))
        numbers.append(e.select(inside, number, constant(I64, -1)))
    invoke(e, texel, row, *_place(e, row, here, numbers), out)


def _read_point(e: Emit, row: Value, here: _Coordinates, out: Value) -> None:
    numbers = []
    for axis in range(here.axes):
        number = invoke(e, position, row, constant(I32, axis), here.real(axis), constant(I32, 0))
        numbers.append(invoke(e, fold, row, constant(I32, axis), number))
    invoke(e, texel, row, *_place(e, row, here, numbers), out)


def _neighbours(e: Emit, row: Value, here: _Coordinates) -> list[list[tuple[Value, Value]]]:
    """Return for each axis the two texels that a coordinate lies between, each with its weight in 256ths."""
    found = []
    for axis in range(here.axes):
        number = constant(I32, axis)
        fixed = invoke(e, position, row, number, here.real(axis), constant(I32, 1))
        left, weight = e.ashr(fixed, constant(I64, 8)), e.and_(fixed, constant(I64, 255))
        sides = [(left, e.sub(constant(I64, 256), weight)), (e.add(left, constant(I64, 1)), weight)]
        found.append([(invoke(e, fold, row, number, texel_number), share) for texel_number, share in sides])
    return found


def _read_mean(e: Emit, row: Value, here: _Coordinates, out: Value) -> None:
    axes = _neighbours(e, row, here)
    sums = [e.variable(ir.Constant(F64, 0.0)) for _ in range(CHANNELS)]
    for corner in range(1 << here.axes):
        chosen = [axes[axis][corner >> axis & 1] for axis in range(here.axes)]
        weight = chosen[0][1]
        for _, share in chosen[1:]:
            weight = e.mul(weight, share)
        with e.if_then(e.icmp_unsigned("!=", weight, constant(I64, 0))):  # zero times an infinity would be a NaN
            invoke(e, texel, row, *_place(e, row, here, [number for number, _ in chosen]), out)
            share = e.fmul(e.uitofp(weight, F64), ir.Constant(F64, 1.0 / 256**here.axes))
            for number, total in enumerate(sums):
                value = e.fpext(e.load(e.at(out, 4 * number), typ=F32), F64)
                total.set(e.fadd(total.get(), e.fmul(value, share)))
    for number, total in enumerate(sums):
        e.store(e.fptrunc(total.get(), F32), e.at(out, 4 * number))


@cache
def gather(geometry: str, component: int) -> Helper:
    """Return the helper for `tld4`: one channel of the four texels that linear filtering would read, counter-clockwise from the lower left
    (where y is larger)."""

    def build(e: Emit, warp: Value, handles: Value, coordinates: Value, lanes: Value, site: Value, out: Value) -> None:
        found = e.local(_TEXEL, align=16)
        with e.each_lane(lanes) as lane:
            handle = e.load(e.element(handles, lane, I64), typ=I64)
            row = invoke(e, find, warp, handle, constant(I32, texture_kind(geometry)), site, lane)
            here = _coordinates(e, geometry, coordinates, lane)
            with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(row, I64), constant(I64, 0)), likely=True):
                x, y = _neighbours(e, row, here)
                for number, (right, below) in enumerate([(0, 1), (1, 1), (1, 0), (0, 0)]):
                    invoke(e, texel, row, *_place(e, row, here, [x[right][0], y[below][0]]), found)
                    value = e.load(e.at(found, 4 * component), typ=I32)
                    e.store(value, e.element(e.at(out, 4 * LANES * number), lane, I32))

    return Helper(f"memlane_gather_{geometry}_{component}", VOID, _SAMPLE, build)


QUERIES = {"width": ("extents", 0), "height": ("extents", 1), "depth": ("extents", 2), "array_size": ("layers", 0)}
"""The field of the record that each word of `txq` and `suq` reads."""


@cache
def query(name: str, surface: bool) -> Helper:
    """Return the helper `(warp, handles, lanes, site, results)` that reads a property of a texture or surface. Extents that it does not
    have are 0."""
    field, index = QUERIES[name]

    def build(e: Emit, warp: Value, handles: Value, lanes: Value, site: Value, out: Value) -> None:
        wanted = constant(I32, ANY_SURFACE if surface else ANY_TEXTURE)
        with e.each_lane(lanes) as lane:
            row = invoke(e, find, warp, e.load(e.element(handles, lane, I64), typ=I64), wanted, site, lane)
            with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(row, I64), constant(I64, 0)), likely=True):
                place = e.element(out, lane, I32)
                e.store(e.get(row, TEXTURE, field, index), place)
                if field == "extents":
                    missing = e.icmp_unsigned("<=", e.get(row, TEXTURE, "dimensions"), constant(I32, index))
                    with e.if_then(missing):
                        e.store(constant(I32, 0), place)

    return Helper(f"memlane_query_{name}_{'surface' if surface else 'texture'}", VOID, (POINTER, POINTER, I32, I32, POINTER), build)
