"""Track wgmma products in flight, and report accesses to their registers before they were waited for.

Each accumulator vector of the kernel's `wgmma.mma_async` instructions has a bit. A warp keeps the bits of ungrouped products and of its
latest groups, the newest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memlane.emulate.check.notes import note
from memlane.emulate.check.records import NOT_AWAITED, PRODUCT_GROUPS, WARP_STATE
from memlane.emulate.check.stamps import CheckedWarp
from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.runtime.helper import helper, invoke
from memlane.ptx import Instruction, Operand, Vector, is_product, registers_in, registers_read, registers_written

_MAX_VECTORS = 64


@dataclass(frozen=True)
class WgmmaRegisters:
    """A kernel's accumulator vectors: the bit of each, and the registers that belong to it."""

    bits: dict[Operand, int]
    places: dict[int, int]
    """Bit -> index of its first product among the instructions."""
    accumulators: dict[str, int]
    """Register -> bits of the products that accumulate in it."""
    operands: dict[str, int]
    """Register -> bits of the products that read it."""

    @classmethod
    def of(cls, instructions: Iterable[tuple[int, Instruction]]) -> WgmmaRegisters:
        """Assign bits to the accumulator vectors of a kernel; vectors after the 64th are not checked."""
        found = cls({}, {}, {}, {})
        for index, one in instructions:
            target = one.operand("d") if is_product(one) else None
            if target is None or (target not in found.bits and len(found.bits) == _MAX_VECTORS):
                continue
            bit = found.bits.setdefault(target, 1 << len(found.bits))
            found.places.setdefault(bit, index)
            for letter, registers in (("d", found.accumulators), ("a", found.operands)):
                operand = one.operand(letter)  # A descriptor, which is not a vector, is read when the product starts.
                for name in registers_in(operand) if isinstance(operand, Vector) else ():
                    registers[name] = registers.get(name, 0) | bit
        return found

    def own(self, one: Instruction) -> int:
        """Return the bit of a product; 0 for other instructions and for unchecked vectors."""
        target = one.operand("d") if is_product(one) else None
        return 0 if target is None else self.bits.get(target, 0)

    def touched(self, one: Instruction) -> int:
        """Return the bits of products in flight that an instruction conflicts with: it accesses their accumulators or writes registers that
        they read.

        The next product into the same accumulators may follow, and registers that a product only reads may be read.
        """
        found = 0
        for name in (*registers_read(one), *registers_written(one)):
            found |= self.accumulators.get(name, 0)
        for name in registers_written(one):
            found |= self.operands.get(name, 0)
        return found & ~self.own(one)


@helper("check_begin_product", VOID, POINTER, I64)
def begin_product(e: Emit, warp: Value, bit: Value) -> None:
    own = CheckedWarp(e, warp).own
    for field in ("begun", "under_way"):
        e.put(e.or_(e.get(own, WARP_STATE, field), bit), own, WARP_STATE, field)


@helper("check_close_group", VOID, POINTER)
def close_group(e: Emit, warp: Value) -> None:
    """Commit the started products as the newest group; the two oldest groups merge if there is no room."""
    own = CheckedWarp(e, warp).own
    groups = [e.get(own, WARP_STATE, "groups", number) for number in range(PRODUCT_GROUPS)]
    moved = [e.get(own, WARP_STATE, "begun"), *groups[:-1]]
    moved[-1] = e.or_(moved[-1], groups[-1])
    for number, group in enumerate(moved):
        e.put(group, own, WARP_STATE, "groups", number)
    e.put(0, own, WARP_STATE, "begun")


@helper("check_await_groups", VOID, POINTER, I32)
def await_groups(e: Emit, warp: Value, left: Value) -> None:
    """Complete all but the newest `left` groups."""
    own = CheckedWarp(e, warp).own
    under_way = e.get(own, WARP_STATE, "begun")
    for number in range(PRODUCT_GROUPS):
        group = e.get(own, WARP_STATE, "groups", number)
        group = e.select(e.icmp_unsigned("<", constant(I32, number), left), group, constant(I64, 0))
        e.put(group, own, WARP_STATE, "groups", number)
        under_way = e.or_(under_way, group)
    e.put(under_way, own, WARP_STATE, "under_way")


@helper("check_touch", VOID, POINTER, I32, I32, I64, I32)
def touch(e: Emit, warp: Value, lanes: Value, site: Value, bit: Value, product: Value) -> None:
    """Report lanes that touch registers of a product in flight, whose first instruction is `product`."""
    with e.if_then(e.icmp_unsigned("==", lanes, constant(I32, 0)), likely=False):
        e.ret_void()
    actor, zero = CheckedWarp(e, warp), constant(I32, 0)
    early = e.and_(e.get(actor.own, WARP_STATE, "under_way"), bit)
    with e.if_then(e.icmp_unsigned("!=", early, constant(I64, 0)), likely=False):
        lane = e.lowest_bit(lanes)
        kind = constant(I32, NOT_AWAITED)
        invoke(e, note, warp, kind, site, lane, constant(I64, 0), zero, zero, product, actor.warp_id(e), lane)
