"""Products of small matrices whose elements are spread over the lanes of a warp.

For `mma.sync` with 16 or 8 rows, all element types have one layout. With g = lane / 4, t = lane % 4 and E elements of A or B in a register:

    A     register r, element e     row g + 8 (r % 2), column E t + e + 4 E (r / 2)      (of 8 rows: row g, one register)
    B     register r, element e     row E t + e + 4 E r, column g
    C, D  element i                 row g + 8 (i / 2), column 2 t + i % 2
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.build import F64, I8, I16, I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.code.formats import widen
from memlane.emulate.runtime.helper import Helper

COLUMNS = 8
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "b1": 1}
"""Bits of the elements of A and B."""


@dataclass(frozen=True)
class Shape:
    """Rows and depth of a product, and the types of its factors."""

    rows: int
    depth: int
    a: str
    b: str
    bitop: str = ""
    """Operation that combines two bits of `b1`, `and` or `xor`; the ones of the results are counted."""

    @property
    def in_register(self) -> int:
        """Return how many elements of A or B are in one register."""
        return 1 if self.a == "f64" else 32 // BITS[self.a]

    @property
    def a_registers(self) -> int:
        return self.b_registers * (self.rows // 8)

    @property
    def b_registers(self) -> int:
        return self.depth // (4 * self.in_register)

    @property
    def elements(self) -> int:
        """Return how many elements of C and D are in each lane."""
        return self.rows * COLUMNS // LANES

    @property
    def is_integer(self) -> bool:
        return self.a[0] in "us" or self.a == "b1"


@cache
def multiply(shape: Shape) -> Helper:
    """Return the helper for `D = A B + C`: takes pointers to the registers of A and B (register by register, 32 lanes each), and to the
    elements of C and D likewise, as f64 or i64. Products of short floats are added in f64; those of f64 one after another, each rounded
    once."""

    def build(e: Emit, a: Value, b: Value, c: Value, d: Value) -> None:
        element = I64 if shape.is_integer else F64
        rows = e.local(ir.ArrayType(I8, 8 * shape.rows * shape.depth), align=64)
        columns = e.local(ir.ArrayType(I8, 8 * COLUMNS * shape.depth), align=64)
        with e.count(constant(I32, LANES)) as lane:
            group, member = e.lshr(lane, constant(I32, 2)), e.and_(lane, constant(I32, 3))
            for source, target, registers, name, in_pairs in (
                (a, rows, shape.a_registers, shape.a, shape.rows == 16),
                (b, columns, shape.b_registers, shape.b, False),
            ):
                for register in range(registers):
                    line = e.add(group, constant(I32, 8 * (register % 2) if in_pairs else 0))
                    first = 4 * shape.in_register * (register // 2 if in_pairs else register)
                    place = e.add(e.mul(line, constant(I32, shape.depth)), constant(I32, first))
                    place = e.add(place, e.mul(member, constant(I32, shape.in_register)))
                    kind = I64 if name == "f64" else I32
                    word = e.load(e.element(source, e.add(lane, constant(I32, LANES * register)), kind), typ=kind)
                    e.store(_elements(e, word, name), e.element(target, place, element), align=8)
        with e.count(constant(I32, LANES)) as lane:
            group, member = e.lshr(lane, constant(I32, 2)), e.and_(lane, constant(I32, 3))
            for number in range(shape.elements):
                row = e.add(group, constant(I32, 8 * (number // 2)))
                column = e.add(e.shl(member, constant(I32, 1)), constant(I32, number % 2))
                row_start, column_start = (e.mul(line, constant(I32, shape.depth)) for line in (row, column))
                place = e.add(lane, constant(I32, LANES * number))
                start = e.load(e.element(c, place, element), typ=element)
                left, right = e.element(rows, row_start, element), e.element(columns, column_start, element)
                e.store(_dot(e, shape, left, right, start), e.element(d, place, element))

    return Helper(f"memlane_mma_m{shape.rows}k{shape.depth}_{shape.a}_{shape.b}{shape.bitop}", VOID, (POINTER,) * 4, build)


def _dot(e: Emit, shape: Shape, left: Value, right: Value, start: Value) -> Value:
    element = start.type
    if shape.a == "f64":
        total = start
        for number in range(shape.depth):
            factors = [e.load(e.at(pointer, 8 * number), typ=element) for pointer in (left, right)]
            total = e.intrinsic("fma", [*factors, total])
        return total
    a, b = (e.load(pointer, typ=ir.VectorType(element, shape.depth), align=8) for pointer in (left, right))
    if shape.is_integer:
        products = {"": e.mul, "and": e.and_, "xor": e.xor}[shape.bitop](a, b)
        return e.add(e.reduce("add", products), start)
    products = e.fmul(a, b)
    name = f"llvm.vector.reduce.fadd.v{shape.depth}f64"
    return e.call(e.declare(name, F64, [F64, products.type]), [start, products])


def _elements(e: Emit, word: Value, name: str) -> Value:
    """Return the elements of a register, lowest first, as f64 or i64."""
    if name == "f64":
        return e.bitcast(word, ir.VectorType(F64, 1))
    bits = BITS[name]
    count = 32 // bits
    if bits < 8:
        spread = e.lshr(_splat(e, word, count), ir.Constant(ir.VectorType(I32, count), [bits * number for number in range(count)]))
        parts = e.trunc(spread, ir.VectorType(ir.IntType(bits), count))
    else:
        parts = e.bitcast(word, ir.VectorType({8: I8, 16: I16, 32: I32}[bits], count))
    if name[0] in "us" or name == "b1":
        return (e.sext if name[0] == "s" else e.zext)(parts, ir.VectorType(I64, count))
    return e.fpext(widen(e, parts, name), ir.VectorType(F64, count))


def _splat(e: Emit, word: Value, count: int) -> Value:
    kind = ir.VectorType(I32, count)
    one = e.insert_element(ir.Constant(kind, ir.Undefined), word, constant(I32, 0))
    return e.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, count), None))
