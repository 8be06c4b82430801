"""Fragments of matrices: loads, stores, and the product `wmma.mma`.

The manual leaves open which element lies in which register of which lane. Here a fragment consists of the tiles of `mma.sync` (see
`runtime.matrices`): those of A above each other, those of B beside each other, and those of C and D by rows. Where a fragment has more
registers than that takes, as f16 fragments have, the others repeat them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.build import F64, I32, I64, INTEGERS, Value, constant, vector
from memlane.emulate.layout import FULL
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.access import load, store
from memlane.emulate.runtime.address_wrapping import NARROW_SPACES, wrap_addresses
from memlane.emulate.runtime.matrices import BITS, COLUMNS, Shape, multiply
from memlane.emulate.semantics.accesses import access
from memlane.emulate.semantics.matrix import accumulators, write_accumulators
from memlane.emulate.semantics.memory import state_space
from memlane.emulate.semantics.table import semantics
from memlane.ptx import elements

_BITS = {**BITS, "f32": 32, "s32": 32}
ElementPosition = tuple[list[int], list[int]]
"""Row and column of one element of a fragment, by lane."""
_GROUPS, _MEMBERS = [lane // 4 for lane in range(LANES)], [lane % 4 for lane in range(LANES)]
"""Group and member of each lane: four neighbours are a group."""


@dataclass(frozen=True)
class _Fragments:
    """The tiles that make up a product of matrices."""

    tile: Shape
    down: int
    across: int

    def positions(self, matrix: str) -> list[ElementPosition]:
        """Return the positions of the elements of a fragment, in the order of the registers."""
        return list({"a": self._positions_in_a, "b": self._positions_in_b}.get(matrix, self._positions_in_sums)())

    def _positions_in_a(self) -> Iterator[ElementPosition]:
        rows, packed = self.tile.rows, self.tile.in_register
        for tile, register, element in product(range(self.down), range(self.tile.a_registers), range(packed)):
            down, along = (register % 2, register // 2) if rows == 16 else (0, register)
            yield (
                [rows * tile + 8 * down + group for group in _GROUPS],
                [packed * (member + 4 * along) + element for member in _MEMBERS],
            )

    def _positions_in_b(self) -> Iterator[ElementPosition]:
        packed = self.tile.in_register
        for tile, register, element in product(range(self.across), range(self.tile.b_registers), range(packed)):
            yield [packed * (member + 4 * register) + element for member in _MEMBERS], [COLUMNS * tile + group for group in _GROUPS]

    def _positions_in_sums(self) -> Iterator[ElementPosition]:
        for tile, element in product(range(self.down * self.across), range(self.tile.elements)):
            yield (
                [self.tile.rows * (tile // self.across) + 8 * (element // 2) + group for group in _GROUPS],
                [COLUMNS * (tile % self.across) + 2 * member + element % 2 for member in _MEMBERS],
            )

    def extent(self, matrix: str) -> tuple[int, int]:
        """Return the rows and columns of a matrix."""
        rows, columns, depth = self.tile.rows * self.down, COLUMNS * self.across, self.tile.depth
        return {"a": (rows, depth), "b": (depth, columns)}.get(matrix, (rows, columns))


def _fragments(k: Lowering, a: str, b: str) -> _Fragments:
    match = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", k.slot_of("shape"))
    if match is None or a not in BITS or b not in BITS:
        raise k.unsupported()
    rows, columns, depth = map(int, match.groups())
    tile = Shape(min(rows, 16), depth, a, b, k.slot_of("bitop"))
    if depth % (4 * tile.in_register):
        raise k.unsupported()
    return _Fragments(tile, rows // tile.rows, columns // COLUMNS)


def _element(k: Lowering) -> str:
    """Return the type of the factors, as far as the positions of the elements depend on it."""
    depth, name = k.slot_of("shape").partition("k")[2], k.slot_of("type")
    return (
        name if name in BITS and k.slot_of("matrix") in ("a", "b") else {"8": "tf32", "4": "f64", "32": "u4", "128": "b1"}.get(depth, "f16")
    )


@dataclass(frozen=True)
class _Piece:
    """Neighbouring elements of a fragment that one access of each lane moves."""

    first: int
    count: int
    position: ElementPosition


def _pieces(k: Lowering, matrix: str, bits: int) -> list[_Piece]:
    """Return the elements in the order of the registers; two short ones of a register form one piece if they are neighbours in memory."""
    kind = _element(k)
    positions = _fragments(k, kind, kind).positions(matrix)
    packed = 32 // bits if bits < 32 else 1
    along, across = (1, 0) if k.slot_of("layout") == "row" else (0, 1)
    together = all(
        positions[at + 1][along] == [line + 1 for line in positions[at][along]] and positions[at + 1][across] == positions[at][across]
        for at in range(len(positions) - 1)
        if (at + 1) % packed
    )
    step = packed if together else 1
    return [_Piece(at, step, positions[at]) for at in range(0, len(positions), step)]


def _pointers(k: Lowering, piece: _Piece, matrix: str, bits: int) -> Value:
    """Return a pointer to the 32 addresses of the elements of a piece."""
    e, kind = k.e, _element(k)
    by_rows = k.slot_of("layout") == "row"
    rows, columns = _fragments(k, kind, kind).extent(matrix)
    line, along = piece.position if by_rows else piece.position[::-1]
    stride: Value = constant(vector(I64), columns if by_rows else rows)
    if k.has("stride"):
        stride = e.zext(k.read("stride", "u32"), vector(I64))
    pointer, distance = k.address("a")
    lines, columns_ = (ir.Constant(vector(I64), numbers) for numbers in (line, along))
    numbers = e.add(e.mul(lines, stride), columns_)
    offset = e.lshr(e.mul(numbers, constant(vector(I64), bits)), constant(vector(I64), 3))
    address = e.add(e.add(e.load_lanes(pointer, I64), e.splat(distance)), offset)
    if k.instruction.form.addresses["a"] in NARROW_SPACES:
        address = wrap_addresses(e, address)
    e.store_lanes(address, k.scratch("elements", 256))
    return k.scratch("elements", 256)


@semantics("matrix/wmma.load")
def wmma_load(k: Lowering) -> None:
    k.flow.wait_for_partners(constant(I32, FULL), constant(vector(I32), FULL))
    e, space, matrix, nothing = k.e, state_space(k), k.slot_of("matrix"), constant(I64, 0)
    bits, targets = _BITS[k.slot_of("type")], elements(k.instruction.operand("d"))
    width = max(32, bits)
    registers: list[Value] = []
    filled = 0
    for number, piece in enumerate(_pieces(k, matrix, bits)):
        pointer, words, size = _pointers(k, piece, matrix, bits), k.scratch("data"), bits * piece.count
        with access(k, space, pointer, nothing, size // 8, 1, words, is_request=number == 0) as lanes:
            k.call(load(space, size, 1), k.warp, pointer, nothing, lanes, constant(I32, k.index), words)
        value = e.load_lanes(words, INTEGERS[size])
        value = value if size == width else e.zext(value, vector(INTEGERS[width]))
        if filled:
            registers[-1] = e.or_(registers[-1], e.shl(value, constant(value.type, filled)))
        else:
            registers.append(value)
        filled = (filled + size) % width
    if len(targets) % len(registers):
        raise k.unsupported()
    for number, target in enumerate(targets):
        k.write_operand(target, registers[number % len(registers)], f"b{width}")


@semantics("matrix/wmma.store")
def wmma_store(k: Lowering) -> None:
    k.flow.wait_for_partners(constant(I32, FULL), constant(vector(I32), FULL))
    e, space, nothing = k.e, state_space(k), constant(I64, 0)
    bits = _BITS[k.slot_of("type")]
    width = max(32, bits)
    registers = [k.bits_of(item, f"b{width}") for item in elements(k.instruction.operand("b"))]
    for number, piece in enumerate(_pieces(k, "d", bits)):
        pointer, words, size = _pointers(k, piece, "d", bits), k.scratch("data"), bits * piece.count
        register, begin = divmod(piece.first * bits, width)
        value = e.lshr(registers[register], constant(registers[register].type, begin))
        e.store_lanes(value if size == width else e.trunc(value, vector(INTEGERS[size])), words)
        with access(k, space, pointer, nothing, size // 8, 1, words, is_request=number == 0) as lanes:
            k.call(store(space, size, 1), k.warp, pointer, nothing, lanes, constant(I32, k.index), words)


@semantics("matrix/wmma.mma")
def wmma_mma(k: Lowering) -> None:
    """Multiply and accumulate, rounded as by `mma.sync`."""
    if k.slot_of("rnd") not in ("", "rn"):
        raise k.unsupported()
    k.flow.wait_for_partners(constant(I32, FULL), constant(vector(I32), FULL))
    e, a, b = k.e, k.slot_of("atype") or "f16", k.slot_of("btype") or "f16"
    parts = _fragments(k, a, b)
    tile = parts.tile
    bits = 64 if a == "f64" else 32
    left, right = ([k.bits_of(item, f"b{bits}") for item in elements(k.instruction.operand(letter))] for letter in "ab")
    start = accumulators(k)
    if len(start) != parts.down * parts.across * tile.elements:
        raise k.unsupported()
    kind = vector(I64 if tile.is_integer else F64)
    found: list[Value] = []
    for down in range(parts.down):
        for across in range(parts.across):
            for letter, registers, count, number in (("a", left, tile.a_registers, down), ("b", right, tile.b_registers, across)):
                for at, value in enumerate(registers[count * number : count * (number + 1)]):
                    e.store_lanes(value, e.at(k.scratch(letter, 2048), at * LANES * bits // 8))
            first = (parts.across * down + across) * tile.elements
            for at, value in enumerate(start[first : first + tile.elements]):
                e.store(value, e.at(k.scratch("c"), 8 * LANES * at), align=8)
            k.call(multiply(tile), k.scratch("a", 2048), k.scratch("b", 2048), k.scratch("c"), k.scratch("d"))
            found += [e.load(e.at(k.scratch("d"), 8 * LANES * at), typ=kind, align=8) for at in range(tile.elements)]
    write_accumulators(k, found)
