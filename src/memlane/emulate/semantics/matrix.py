"""Matrices spread over the lanes of a warp: loads, stores, transposition, and the product `mma.sync`."""

from __future__ import annotations

import re

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.build import F64, FLOATS, I16, I32, I64, Value, constant, vector
from memlane.emulate.code.formats import narrow, widen
from memlane.emulate.layout import FULL
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.access import load, store
from memlane.emulate.runtime.matrices import BITS, Shape, multiply
from memlane.emulate.semantics.accesses import access
from memlane.emulate.semantics.floating import canonical
from memlane.emulate.semantics.memory import state_space
from memlane.emulate.semantics.table import semantics
from memlane.ptx import elements

_ROW_BYTES = 16


def _rows(k: Lowering) -> Value:
    """Wait for all lanes of the warp. Return a mask of the lanes whose addresses are used: eight for each matrix."""
    k.flow.wait_for_partners(constant(I32, FULL), constant(vector(I32), FULL))
    number = int(k.slot_of("num")[1:])
    return k.e.and_(k.active, constant(I32, (1 << (8 * number)) - 1))


def _shuffled(k: Lowering, parts: list[Value], places: list[int]) -> Value:
    """Return elements of several vectors, chosen by their indices in the concatenation."""
    e, joined = k.e, parts[0]
    for part in parts[1:]:
        count = joined.type.count
        padded = part
        if part.type.count < count:  # a shuffle joins vectors of one length
            indices = [min(index, part.type.count - 1) for index in range(count)]
            padded = e.shuffle_vector(part, ir.Constant(part.type, ir.Undefined), ir.Constant(ir.VectorType(I32, count), indices))
        indices = [*range(count), *(count + index for index in range(part.type.count))]
        joined = e.shuffle_vector(joined, padded, ir.Constant(ir.VectorType(I32, len(indices)), indices))
    return e.shuffle_vector(joined, ir.Constant(joined.type, ir.Undefined), ir.Constant(ir.VectorType(I32, len(places)), places))


def _transposed(k: Lowering, matrix: Value) -> Value:
    """Transpose an 8 by 8 matrix, where lane 4 r + c holds elements 2 c and 2 c + 1 of row r."""
    halves = k.e.bitcast(matrix, ir.VectorType(I16, 2 * LANES))
    places = [8 * (2 * (lane % 4) + half) + lane // 4 for lane in range(LANES) for half in range(2)]
    return k.e.bitcast(_shuffled(k, [halves], places), vector(I32))


@semantics("matrix/ldmatrix")
def ldmatrix(k: Lowering) -> None:
    """Load matrices; lane 8 m + r gives the address of row r of matrix m."""
    e, space = k.e, state_space(k)
    lanes = _rows(k)
    pointer, distance = k.address("a")
    words = k.scratch("data")
    k.active = lanes
    with access(k, space, pointer, distance, 4, _ROW_BYTES // 4, words) as lanes:
        k.call(load(space, 32, 4), k.warp, pointer, distance, lanes, constant(I32, k.index), words)
    k.change_mask(k.mask)
    parts = [e.load_lanes(e.at(words, 4 * LANES * number), I32) for number in range(4)]
    for number, target in enumerate(elements(k.instruction.operand("d"))):
        matrix = _shuffled(k, parts, [LANES * (lane % 4) + 8 * number + lane // 4 for lane in range(LANES)])
        k.write_operand(target, _transposed(k, matrix) if k.instruction.has("trans") else matrix, "b32")


@semantics("matrix/stmatrix")
def stmatrix(k: Lowering) -> None:
    e, space = k.e, state_space(k)
    lanes = _rows(k)
    matrices = [k.bits_of(item, "b32") for item in elements(k.instruction.operand("b"))]
    if k.instruction.has("trans"):
        matrices = [_transposed(k, matrix) for matrix in matrices]
    words = k.scratch("data")
    for number in range(4):
        places = [LANES * (row // 8 % len(matrices)) + 4 * (row % 8) + number for row in range(LANES)]
        e.store_lanes(_shuffled(k, matrices, places), e.at(words, 4 * LANES * number))
    pointer, distance = k.address("a")
    k.active = lanes
    with access(k, space, pointer, distance, 4, _ROW_BYTES // 4, words) as lanes:
        k.call(store(space, 32, 4), k.warp, pointer, distance, lanes, constant(I32, k.index), words)
    k.change_mask(k.mask)


@semantics("convert/movmatrix")
def movmatrix(k: Lowering) -> None:
    k.flow.wait_for_partners(constant(I32, FULL), constant(vector(I32), FULL))
    k.write("d", _transposed(k, k.read("a")))


# -- products --------------------------------------------------------------------------------------------------------------------


@semantics("matrix/mma")
def mma(k: Lowering) -> None:
    """Multiply and accumulate. In f16 and f32 the sum is rounded once at its end, where the hardware also rounds or truncates in
    between."""
    k.flow.wait_for_partners(constant(I32, FULL), constant(vector(I32), FULL))
    if (k.slot_of("shape"), BITS.get(k.slot_of("atype"))) == ("m8n8k4", 16):
        return _multiply_in_groups(k)
    e, shape = k.e, _shape(k)
    for letter, registers in (("a", shape.a_registers), ("b", shape.b_registers)):
        items = elements(k.instruction.operand(letter))
        if len(items) != registers:
            raise k.unsupported()
        bits = 64 if shape.a == "f64" else 32
        for number, item in enumerate(items):
            e.store_lanes(k.bits_of(item, f"b{bits}"), e.at(k.scratch(letter, 2048), number * LANES * bits // 8))
    for number, value in enumerate(accumulators(k)):
        e.store(value, e.at(k.scratch("c"), 8 * LANES * number), align=8)
    k.call(multiply(shape), k.scratch("a", 2048), k.scratch("b", 2048), k.scratch("c"), k.scratch("d"))
    kind = vector(I64 if shape.is_integer else F64)
    found = [e.load(e.at(k.scratch("d"), 8 * LANES * number), typ=kind, align=8) for number in range(shape.elements)]
    return write_accumulators(k, found)


def _multiply_in_groups(k: Lowering) -> None:
    """Multiply `m8n8k4` of short floats: lanes 4 q to 4 q + 3 and those 16 above form a group, which has matrices of its own."""
    e = k.e
    left, right = (_short_elements(k, letter) for letter in "ab")
    start, found = accumulators(k), list[Value]()
    for number in range(8):
        places = [_place_in_sum(lane, number, k.slot_of("dtype")) for lane in range(LANES)]
        total = start[number]
        if k.slot_of("ctype") != k.slot_of("dtype"):
            total = _shuffled(k, start, [_register_of_sum(lane, *place, k.slot_of("ctype")) for lane, place in enumerate(places)])
        for depth in range(4):
            rows = [_register_of_factor(lane, row, depth, k.slot_of("alayout") == "row") for lane, (row, _) in enumerate(places)]
            columns = [_register_of_factor(lane, column, depth, k.slot_of("blayout") == "col") for lane, (_, column) in enumerate(places)]
            total = e.fadd(total, e.fmul(_shuffled(k, left, rows), _shuffled(k, right, columns)))
        found.append(total)
    write_accumulators(k, found)


def _short_elements(k: Lowering, letter: str) -> list[Value]:
    """Return the short floats of an operand as f64, in the order of the registers."""
    e, name = k.e, k.slot_of(f"{letter}type")
    words = [k.bits_of(item, "b32") for item in elements(k.instruction.operand(letter))]
    if len(words) != 2:
        raise k.unsupported()
    return [e.fpext(widen(e, e.lshr(word, constant(word.type, shift)), name), vector(F64)) for word in words for shift in (0, 16)]


def _register_of_factor(lane: int, line: int, depth: int, together: bool) -> int:
    """Return where an element of A or B is among the registers of all lanes. `line`: its row in A, or its column in B; `together`: whether
    one lane holds a whole line."""
    group = lane & 12
    owner, number = (line % 4, depth) if together else (depth, line % 4)
    return LANES * number + group + owner + 16 * (line // 4)


def _register_of_sum(lane: int, row: int, column: int, kind: str) -> int:
    """Return where an element of C or D is among the registers of all lanes."""
    owner, number = (row % 4, column) if kind == "f16" else ((row & 1) + (column & 2), (row & 2) + (column & 5))
    return LANES * number + (lane & 12) + owner + 16 * (row // 4)


def _place_in_sum(lane: int, number: int, kind: str) -> tuple[int, int]:
    """Return the row and the column of an element of C or D."""
    half = 4 * (lane // 16)
    if kind == "f16":
        return lane % 4 + half, number
    return (lane & 1) + (number & 2) + half, (number & 4) + (lane & 2) + (number & 1)


def _shape(k: Lowering) -> Shape:
    words = k.instruction
    match = re.fullmatch(r"m(8|16)n8k(\d+)", k.slot_of("shape"))
    a, b = k.slot_of("atype"), k.slot_of("btype")
    if match is None or k.slot_of("rnd") not in ("", "rn") or a not in BITS or b not in BITS or ("b1" in (a, b)) != words.has("popc"):
        raise k.unsupported()
    shape = Shape(int(match[1]), int(match[2]), a, b, k.slot_of("bitop"))
    if shape.depth % (4 * shape.in_register) or BITS[a] != BITS[b]:
        raise k.unsupported()
    return shape


def accumulators(k: Lowering) -> list[Value]:
    """Return the elements of C as f64 or i64."""
    e, items, name = k.e, elements(k.instruction.operand("c")), k.slot_of("ctype")
    if name == "f16":
        return [
            e.fpext(widen(e, e.lshr(k.bits_of(item, "b32"), constant(vector(I32), shift)), "f16"), vector(F64))
            for item in items
            for shift in (0, 16)
        ]
    if name == "f64":
        return [k.value(item, "f64") for item in items]
    if name == "f32":
        return [e.fpext(k.value(item, "f32"), vector(F64)) for item in items]
    return [e.sext(k.bits_of(item, "b32"), vector(I64)) for item in items]


def write_accumulators(k: Lowering, found: list[Value]) -> None:
    e, items, name = k.e, elements(k.instruction.operand("d")), k.slot_of("dtype")
    if name == "f16":
        halves = [narrow(e, value, "f16") for value in found]
        found = [e.or_(low, e.shl(high, constant(vector(I32), 16))) for low, high in zip(halves[::2], halves[1::2], strict=True)]
    elif name == "f32":
        found = [canonical(k, e.fptrunc(value, vector(FLOATS[32]))) for value in found]
    elif name == "s32":
        if k.instruction.has("satfinite"):
            limits = [constant(vector(I64), bound) for bound in (-(1 << 31), (1 << 31) - 1)]
            found = [e.intrinsic("smin", [e.intrinsic("smax", [value, limits[0]]), limits[1]]) for value in found]
        found = [e.trunc(value, vector(I32)) for value in found]
    for item, value in zip(items, found, strict=True):
        k.write_operand(item, value, "f64" if name == "f64" else "b32")
