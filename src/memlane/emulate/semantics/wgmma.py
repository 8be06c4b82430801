"""Products of a warpgroup, `wgmma`, and the instructions that order them.

A product completes immediately, computed by each warp for its own rows when it reaches the instruction: the four warps of the group do not
synchronise for it, and a group is complete before it is waited for. What is asynchronous on a GPU shows in two ways only, and both are
errors there: code that touches D before `wgmma.wait_group` finds the result here, and a write to an operand in shared memory before the
wait is not too early here. Sums are rounded as those of `mma.sync`, once at the end.
"""

from __future__ import annotations

import re

from memlane.chip import LANES
from memlane.emulate.check.hooks import check_groups
from memlane.emulate.code.build import I32, I64, Value, constant, vector
from memlane.emulate.layout import FULL
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.matrices import BITS
from memlane.emulate.runtime.warpgroup import LINES, Operand, Product, group_multiply, operand_addresses
from memlane.emulate.semantics.accesses import check_operand_read, count_product_access
from memlane.emulate.semantics.table import semantics
from memlane.errors import PtxTypeError
from memlane.ptx import Immediate, Vector, elements

_MOST_REGISTERS = 128
_FACTORS = {
    "f16": {"f16": "f16", "bf16": "", "e4m3": "e4m3 e5m2", "e5m2": "e4m3 e5m2"},
    "f32": {"f16": "f16", "bf16": "bf16", "tf32": "tf32", "e4m3": "e4m3 e5m2", "e5m2": "e4m3 e5m2"},
    "s32": {"s8": "s8 u8", "u8": "s8 u8", "b1": "b1"},
}
"""Types that B may have, by the types of D and of A."""


@semantics("matrix/wgmma.fence", "matrix/wgmma.commit_group", "matrix/wgmma.wait_group")
def order(k: Lowering) -> None:
    """Do nothing, because every product is complete; the checker tracks which are not complete on a GPU."""
    check_groups(k)


@semantics("matrix/wgmma.mma_async")
def mma_async(k: Lowering) -> None:
    k.flow.wait_for_partners(constant(I32, FULL), constant(vector(I32), FULL))
    e, product, columns = k.e, _product(k), _columns(k)
    held = elements(k.instruction.operand("d"))
    if len(held) != columns // (4 if product.d == "f16" else 2):
        raise _wrong(k, f"D has {len(held)} registers")
    registers = k.scratch("accumulators", 4 * LANES * _MOST_REGISTERS)
    for number, item in enumerate(held):
        e.store_lanes(k.bits_of(item, "b32"), e.at(registers, 4 * LANES * number))
    left, right = _left(k, product), _descriptor(k, "b")
    if product.a.place != "registers":
        _check(k, product.a.place, left, 64 // LINES)
    _check(k, product.b.place, right, columns // LINES)
    adds = e.and_(k.read("scale_d"), constant(I32, 1))  # the same in all lanes of the group
    site, blocks = constant(I32, k.index), constant(I32, columns // LINES)
    k.call(group_multiply(product), k.warp, k.active, site, left, right, registers, blocks, adds)
    count_product_access(k)
    for number, item in enumerate(held):
        k.write_operand(item, e.load_lanes(e.at(registers, 4 * LANES * number), I32), "b32")


def _columns(k: Lowering) -> int:
    match = re.fullmatch(r"m64n(\d+)k(\d+)", k.slot_of("shape"))
    assert match is not None
    columns, depth = int(match[1]), int(match[2])
    if depth != 256 // BITS.get(k.slot_of("atype"), 1):
        raise _wrong(k, f"a depth of {depth} is none of {k.slot_of('atype')}")
    if k.slot_of("dtype") == "s32" and columns > 24 and columns % 16:
        raise _wrong(k, f"integers have no products of {columns} columns")
    return columns


def _product(k: Lowering) -> Product:
    a, b, d = (k.slot_of(f"{letter}type") for letter in "abd")
    if b not in _FACTORS[d].get(a, "").split():
        raise _wrong(k, f"there is no product of {a} and {b} in {d}")
    in_registers = isinstance(k.instruction.operand("a"), Vector)
    turned = {letter: _immediate(k, f"trans_{letter}", 0, (0, 1)) == 1 for letter in "ab"}
    if any(turned.values()) and BITS.get(a) != 16:
        raise _wrong(k, f"operands of {a} are K-major")
    signs = [_immediate(k, f"scale_{letter}", 1, (1, -1)) for letter in "ab"]
    left = "registers" if in_registers else "mn" if turned["a"] else "k"
    return Product(
        Operand(a, left),
        Operand(b, "mn" if turned["b"] else "k"),
        d,
        negated=signs[0] != signs[1],
        saturates=k.instruction.has("satfinite"),
    )


def _immediate(k: Lowering, letter: str, default: int, choice: tuple[int, int]) -> int:
    operand = k.instruction.operand(letter)
    if operand is None:
        return default
    if not isinstance(operand, Immediate) or operand.value not in choice:
        raise _wrong(k, f"{letter.replace('_', '-')} is {choice[0]} or {choice[1]}")
    return operand.value


def _left(k: Lowering, product: Product) -> Value:
    """Return the descriptor of A, or a pointer to its registers."""
    e, operand = k.e, k.instruction.operand("a")
    if product.a.place != "registers":
        return _descriptor(k, "a")
    items = elements(operand)
    if len(items) != 4:
        raise _wrong(k, f"A has {len(items)} registers")
    for number, item in enumerate(items):
        e.store_lanes(k.bits_of(item, "b32"), e.at(k.scratch("a", 2048), 4 * LANES * number))
    return e.ptrtoint(k.scratch("a", 2048), I64)


def _descriptor(k: Lowering, letter: str) -> Value:
    """Return a descriptor, which is the same in all lanes of the group."""
    operand = k.instruction.operand(letter)
    assert operand is not None
    return k.e.extract_element(k.bits_of(operand, "b64"), constant(I32, 0))


def _check(k: Lowering, place: str, descriptor: Value, blocks: int) -> None:
    """Check the reads of an operand: each lane of this warp is taken to read a chunk of 16 bytes, and then another."""
    if not k.layers.check:
        return
    e, whole, words = k.e, k.active, k.scratch("data")
    places = k.scratch("chunks", 8 * LANES)
    for first in range(0, blocks, 2):
        k.call(operand_addresses(place), descriptor, constant(I32, first), places)
        k.active = e.and_(whole, constant(I32, FULL if first + 1 < blocks else 0xFFFF))
        check_operand_read(k, places, constant(I64, 0), 4, 4, words)
    k.active = whole


def _wrong(k: Lowering, what: str) -> PtxTypeError:
    return PtxTypeError(f"{k.instruction.name}: {what}", k.instruction.span)
