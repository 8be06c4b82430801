"""One warp's part of a warpgroup's product, `wgmma.mma_async`.

D has 64 rows. Warp w of the four owns rows 16 w to 16 w + 15 and needs those rows of A and the whole of B, nothing from the other warps: so
each warp computes its part when it reaches the instruction, and the four need not synchronise.

Operands in shared memory are named by a descriptor of 64 bits, lengths in units of 16 bytes:

    bits  0 to 13   address of the matrix                 bits 49 to 51   base offset
    bits 16 to 29   leading dimension byte offset (LBO)   bits 62, 63     swizzle: 0 none, 1 of 128, 2 of 64, 3 of 32 bytes
    bits 32 to 45   stride dimension byte offset (SBO)

Memory is read in chunks of 16 bytes. Let a line be a row of A, or a column of B, and j count eight lines at a time. With W chunks in a row
of the swizzle's pattern (1, 2, 4, 8), chunk h of line i along the depth, or chunk j of eight lines at depth k, begins at

    K-major             SBO j + 16 W i + 16 h                                      i < 8, h < 2; without swizzle LBO h in place of 16 h
    MN-major            LBO (j / W) + 16 (j % W) + SBO (k / 8) + 16 W (k % 8)      without swizzle SBO j + LBO (k / 8) + 16 k

after the address. The number of the chunk in its 128 bytes is then XORed with that of the 128 bytes in the pattern. The pattern begins
where the address minus the base offset is a multiple of 128 W bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.build import F16, F32, F64, I8, I16, I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.code.formats import narrow, widen
from memlane.emulate.layout import BLOCK, CONTEXT, NO_WARPGROUP, OUTSIDE, SPACE_NUMBERS, WARP
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import Helper, invoke
from memlane.emulate.runtime.matrices import BITS

LINES = 8
CHUNK_BYTES = 16
CHUNKS = 16
"""Chunks in eight lines: their depth is always 32 bytes."""
WARPS = 4
_ROWS = 16
_WIDE = ir.VectorType(I32, CHUNKS)


def element_bits(name: str) -> int:
    """Return the bits that are multiplied at a time."""
    return 32 if name == "b1" else BITS[name]


@dataclass(frozen=True)
class Operand:
    """The type and location of A or B."""

    type: str
    place: str
    """`k` or `mn` for shared memory, K-major or MN-major; or `registers`."""

    @property
    def name(self) -> str:
        return f"{self.type}_{self.place}"


@dataclass(frozen=True)
class Product:
    """All that determines the code of a product; the number of columns does not."""

    a: Operand
    b: Operand
    d: str
    negated: bool = False
    saturates: bool = False

    @property
    def depth(self) -> int:
        """Return the depth in elements; single bits are taken 32 at a time, as whole words."""
        return 256 // element_bits(self.a.type)

    @property
    def is_integer(self) -> bool:
        return self.d == "s32"

    @property
    def name(self) -> str:
        return f"{self.d}_{self.a.name}_{self.b.name}{'_negated' * self.negated}{'_sat' * self.saturates}"


@cache
def group_multiply(product: Product) -> Helper:
    """Return the helper `(warp, lanes, site, a, b, d, blocks, adds)`: D = A B, and + D if `adds` is not 0, for the rows of this warp.

    `b` is a descriptor; `a` too, or a host pointer to four registers of 32 lanes. `d` points to the registers of D, 32 lanes each: four for
    each of the `blocks` of eight columns, or two of pairs of f16.
    """

    def build(e: Emit, warp: Value, lanes: Value, site: Value, a: Value, b: Value, d: Value, blocks: Value, adds: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", lanes, constant(I32, 0)), likely=False):
            e.ret_void()
        _require_group(e, warp, site)
        kind = _vector(product)
        left = e.local(ir.ArrayType(kind, 2 * product.depth), align=64)
        right = e.local(ir.ArrayType(kind, product.depth), align=64)
        if product.a.place == "registers":
            _unpack(e, product, e.inttoptr(a, POINTER), left)
        else:
            first = e.shl(e.and_(e.get(warp, WARP, "number"), constant(I32, WARPS - 1)), constant(I32, 1))
            for half in range(2):
                number = e.add(first, constant(I32, half))
                _load_lines(e, product, product.a, (warp, site), a, number, e.at(left, half * _bytes(kind)), 2)
        keeps = e.icmp_unsigned("!=", adds, constant(I32, 0))
        with e.count(blocks) as block:
            _load_lines(e, product, product.b, (warp, site), b, block, right, 1)
            tile = e.at(d, e.mul(e.zext(block, I64), constant(I64, _tile_bytes(product))))
            _multiply(e, product, left, right, tile, keeps)

    return Helper(f"memlane_wgmma_{product.name}", VOID, (POINTER, I32, I32, I64, I64, POINTER, I32, I32), build)


def _require_group(e: Emit, warp: Value, site: Value) -> None:
    """Report a fault and return from the helper if the warp's warpgroup is not complete."""
    context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
    number = e.get(warp, WARP, "number")
    last = e.mul(e.or_(number, constant(I32, WARPS - 1)), constant(I32, LANES))
    with e.if_then(e.icmp_unsigned("<", e.get(context, CONTEXT, "threads"), e.add(last, constant(I32, LANES))), likely=False):
        zero = constant(I32, 0)
        invoke(e, fault, warp, constant(I32, NO_WARPGROUP), site, zero, constant(I64, 0), zero, zero)
        e.ret_void()


def _vector(product: Product) -> ir.VectorType:
    return ir.VectorType(I32 if product.is_integer else F64, LINES)


def _bytes(kind: ir.VectorType) -> int:
    return LINES * (4 if kind.element == I32 else 8)


def _tile_bytes(product: Product) -> int:
    """Return the bytes of the registers that hold eight columns of D."""
    return 4 * LANES * (2 if product.d == "f16" else 4)


# -- the factors -----------------------------------------------------------------------------------------------------------------


def chunk_addresses(e: Emit, place: str, descriptor: Value, block: Value) -> Value:
    """Return the shared-memory addresses of the 16 chunks of eight lines: 16 i32. K-major: both of line 0, of line 1, ...; MN-major: by
    depth."""

    def splat(value: Value) -> Value:
        one = e.insert_element(ir.Constant(_WIDE, ir.Undefined), value, constant(I32, 0))
        return e.shuffle_vector(one, ir.Constant(_WIDE, ir.Undefined), ir.Constant(ir.VectorType(I32, CHUNKS), None))

    def field(first: int) -> Value:
        part = e.and_(e.lshr(descriptor, constant(I64, first)), constant(I64, (1 << 14) - 1))
        return e.shl(e.trunc(part, I32), constant(I32, 4))

    def bits(first: int, count: int) -> Value:
        return e.trunc(e.and_(e.lshr(descriptor, constant(I64, first)), constant(I64, (1 << count) - 1)), I32)

    start, leading, stride, base = field(0), field(16), field(32), bits(49, 3)
    mode = bits(62, 2)
    plain = e.icmp_unsigned("==", mode, constant(I32, 0))
    shift = e.select(plain, constant(I32, 0), e.sub(constant(I32, 4), mode))  # log2 of W: 3 in mode 1, 2 in mode 2, 1 in mode 3
    row = e.shl(constant(I32, CHUNK_BYTES), shift)
    if place == "k":
        line, half = _numbers([n // 2 for n in range(CHUNKS)]), _numbers([n % 2 for n in range(CHUNKS)])
        along = e.select(plain, leading, constant(I32, CHUNK_BYTES))
        begin = e.add(start, e.mul(block, stride))
        places = e.add(e.mul(line, splat(row)), e.mul(half, splat(along)))
    else:
        depth, far = _numbers([n % 8 for n in range(CHUNKS)]), _numbers([n // 8 for n in range(CHUNKS)])
        inside = e.shl(e.and_(block, e.sub(e.shl(constant(I32, 1), shift), constant(I32, 1))), constant(I32, 4))
        beyond = e.mul(e.lshr(block, shift), leading)
        begin = e.add(start, e.select(plain, e.mul(block, stride), e.add(inside, beyond)))
        places = e.add(e.mul(depth, splat(row)), e.mul(far, splat(e.select(plain, leading, stride))))
    places = e.add(places, splat(begin))
    pattern = e.sub(e.lshr(places, constant(_WIDE, 7)), splat(base))
    mask = splat(e.sub(e.shl(constant(I32, 1), shift), constant(I32, 1)))
    return e.xor(places, e.shl(e.and_(pattern, mask), constant(_WIDE, 4)))


def _numbers(values: list[int]) -> Value:
    return ir.Constant(_WIDE, values)


def _load_lines(
    e: Emit, product: Product, operand: Operand, who: tuple[Value, Value], descriptor: Value, block: Value, out: Value, step: int
) -> None:
    """Load eight lines of an operand from shared memory: a vector of them for each depth, every `step` vectors from `out` on."""
    places = chunk_addresses(e, operand.place, descriptor, block)
    memory = _shared_memory(e, who, places)
    bits = element_bits(operand.type)
    packed = {8: I8, 16: I16, 32: I32}[bits]
    chunks = []
    for number in range(CHUNKS):
        place = e.zext(e.extract_element(places, constant(I32, number)), I64)
        chunk = e.load(e.at(memory, place), typ=ir.VectorType(packed, 128 // bits), align=CHUNK_BYTES)
        chunks.append(chunk)
    if operand.place == "mn":
        vectors = chunks
    else:
        vectors = [line for half in range(2) for line in _transposed(e, chunks[half::2])]
    kind = _vector(product)
    for number, vector in enumerate(vectors):
        e.store(_converted(e, vector, operand.type), e.at(out, number * step * _bytes(kind)), align=_bytes(kind))


def _shared_memory(e: Emit, who: tuple[Value, Value], places: Value) -> Value:
    """Return the host address of shared memory; report a fault and return from the helper if a chunk lies outside."""
    warp, site = who
    block = e.get_pointer(warp, WARP, "block")
    length = e.get(e.get_pointer(block, BLOCK, "context"), CONTEXT, "shared_bytes")
    last = e.zext(e.reduce("umax", places), I64)
    outside = e.icmp_unsigned(">", e.add(last, constant(I64, CHUNK_BYTES)), length)
    with e.if_then(outside, likely=False):
        space = constant(I32, SPACE_NUMBERS["shared"])
        invoke(e, fault, warp, constant(I32, OUTSIDE), site, constant(I32, 0), last, constant(I32, CHUNK_BYTES), space)
        e.ret_void()
    return e.get_pointer(block, BLOCK, "shared")


def _transposed(e: Emit, rows: list[Value]) -> list[Value]:
    """Transpose eight vectors, the columns of a matrix, into its rows."""
    joined = rows
    while len(joined) > 1:
        pairs = zip(joined[::2], joined[1::2], strict=True)
        count = 2 * joined[0].type.count
        everything = ir.Constant(ir.VectorType(I32, count), list(range(count)))
        joined = [e.shuffle_vector(low, high, everything) for low, high in pairs]
    whole, width = joined[0], rows[0].type.count
    nothing = ir.Constant(whole.type, ir.Undefined)
    chosen = [ir.Constant(ir.VectorType(I32, LINES), [width * line + column for line in range(LINES)]) for column in range(width)]
    return [e.shuffle_vector(whole, nothing, places) for places in chosen]


def _converted(e: Emit, bits: Value, name: str) -> Value:
    """Return elements as f64, in which their products are exact, or as i32."""
    if name == "b1":
        return bits
    if name[0] in "us":
        return (e.sext if name[0] == "s" else e.zext)(bits, ir.VectorType(I32, bits.type.count))
    return e.fpext(widen(e, bits, name), ir.VectorType(F64, bits.type.count))


def _unpack(e: Emit, product: Product, registers: Value, out: Value) -> None:
    """Unpack A from four registers of each lane, laid out as `mma.sync` has them, into the layout of `_load_lines`."""
    kind, name = _vector(product), product.a.type
    packed = 32 // element_bits(name)
    element = {8: I8, 16: I16, 32: I32}[element_bits(name)]
    for register in range(4):
        words = e.load(e.at(registers, 4 * LANES * register), typ=ir.VectorType(element, LANES * packed), align=4)
        for member in range(4):
            for part in range(packed):
                lanes = [packed * (4 * group + member) + part for group in range(LINES)]
                column = e.shuffle_vector(words, ir.Constant(words.type, ir.Undefined), ir.Constant(ir.VectorType(I32, LINES), lanes))
                depth = packed * member + part + 4 * packed * (register // 2)
                place = e.at(out, (2 * depth + register % 2) * _bytes(kind))
                e.store(_converted(e, column, name), place, align=_bytes(kind))


# -- the product -----------------------------------------------------------------------------------------------------------------


def _multiply(e: Emit, product: Product, left: Value, right: Value, tile: Value, keeps: Value) -> None:
    """Compute eight columns of D: each row is a vector, to which the products are added depth by depth."""
    kind = _vector(product)
    before = [_row(e, product, tile, row) for row in range(_ROWS)]
    nothing = ir.Constant(kind, None)
    kept = [e.select(keeps, one, nothing) for one in before]
    # An integer that is to be clamped must not overflow before the last addition: the products alone cannot.
    totals = [e.variable(nothing if product.is_integer else one) for one in kept]
    with e.count(constant(I32, product.depth)) as depth:
        line = e.load(e.element(right, depth, kind), typ=kind, align=_bytes(kind))
        column = e.element(left, e.shl(depth, constant(I32, 1)), kind)
        for row, total in enumerate(totals):
            factor = e.load(e.at(column, row * _bytes(kind) // LINES), typ=kind.element)
            if product.negated:
                factor = e.neg(factor) if product.is_integer else e.fneg(factor)
            one = e.insert_element(ir.Constant(kind, ir.Undefined), factor, constant(I32, 0))
            spread = e.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, LINES), None))
            if product.is_integer:
                one = e.popcount(e.and_(spread, line)) if product.a.type == "b1" else e.mul(spread, line)
                total.set(e.add(total.get(), one))
            else:
                total.set(e.intrinsic("fma", [spread, line, total.get()]))
    for row, (old, total) in enumerate(zip(kept, totals, strict=True)):
        found = total.get()
        if product.is_integer:
            found = e.intrinsic("sadd.sat", [old, found]) if product.saturates else e.add(old, found)
        _set_row(e, product, tile, row, found)


_PAIRS = ir.Constant(ir.VectorType(I32, LINES), [number // 2 + 4 * (number % 2) for number in range(LINES)])
_EVERY_OTHER = [ir.Constant(ir.VectorType(I32, 4), [2 * number + odd for number in range(4)]) for odd in range(2)]


def _row_places(e: Emit, product: Product, tile: Value, row: int) -> list[Value]:
    """Return the starts of the registers with the elements of a row of eight columns: four lanes have two each, in one register or in
    two."""
    half, group = divmod(row, LINES)
    registers = [half] if product.d == "f16" else [2 * half, 2 * half + 1]
    return [e.at(tile, 4 * (LANES * register + 4 * group)) for register in registers]


def _row(e: Emit, product: Product, tile: Value, row: int) -> Value:
    places, kind = _row_places(e, product, tile, row), _vector(product)
    if product.d == "f16":
        return e.fpext(e.fpext(e.load(places[0], typ=ir.VectorType(F16, LINES), align=4), ir.VectorType(F32, LINES)), kind)
    element = I32 if product.is_integer else F32
    halves = [e.load(place, typ=ir.VectorType(element, 4), align=4) for place in places]
    row_ = e.shuffle_vector(halves[0], halves[1], _PAIRS)
    return row_ if product.is_integer else e.fpext(row_, kind)


def _set_row(e: Emit, product: Product, tile: Value, row: int, value: Value) -> None:
    places = _row_places(e, product, tile, row)
    if product.d == "f16":
        e.store(e.trunc(narrow(e, value, "f16"), ir.VectorType(I16, LINES)), places[0], align=4)
        return
    if product.d == "f32":
        short = ir.VectorType(F32, LINES)
        bits = e.bitcast(e.fptrunc(value, short), ir.VectorType(I32, LINES))
        value = e.select(e.fcmp_unordered("uno", value, value), constant(bits.type, 0x7FFFFFFF), bits)
    for place, chosen in zip(places, _EVERY_OTHER, strict=True):
        e.store(e.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), chosen), place, align=4)


@cache
def operand_addresses(place: str) -> Helper:
    """Return the helper `(descriptor, block, out)`, which stores the 32 chunk addresses of two blocks of eight lines as addresses of 32
    lanes."""

    def build(e: Emit, descriptor: Value, block: Value, out: Value) -> None:
        for number in range(2):
            places = chunk_addresses(e, place, descriptor, e.add(block, constant(I32, number)))
            e.store(e.zext(places, ir.VectorType(I64, CHUNKS)), e.at(out, 8 * CHUNKS * number), align=8)

    return Helper(f"memlane_wgmma_addresses_{place}", VOID, (I64, I32, POINTER), build)
