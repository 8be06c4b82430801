"""Reserve time slots of a resource that serves one request at a time.

A ring is a bitmap of the next slots of the resource; a request takes the first free slot at or after its time. The result therefore hardly
depends on the order in which warps are simulated: a warp that ran ahead leaves the slots between its requests free for later requests,
which a counter of the next free slot would not. A request that is earlier than the latest one by more than a full ring finds no free slot
before that ring. The length of a slot is defined by the users (`issue`, `queues`).
"""

from __future__ import annotations

from memlane.emulate.code.build import I1, I32, I64, POINTER, Emit, Value, constant
from memlane.emulate.runtime.helper import helper

WORDS = 128
SLOTS = 64 * WORDS
"""Slots of a ring."""
ENTRY_BYTES = 16
RING_BYTES = WORDS * ENTRY_BYTES
"""Bytes of a ring. An entry is a word of 64 slots and the number of that word since time 0, both u64."""
STEP_BYTES = RING_BYTES + ENTRY_BYTES
"""Bytes from one ring to the next: a ring, and room for a count that its user keeps behind it."""


class _Cursor:
    """Cursor over the words of a ring, starting at a slot."""

    def __init__(self, e: Emit, ring: Value, slot: Value) -> None:
        self._e, self._ring = e, ring
        self._word = e.variable(e.lshr(slot, constant(I64, 6)))
        self._from = e.variable(e.shl(constant(I64, -1), e.and_(slot, constant(I64, 63))))

    def free(self) -> tuple[Value, Value, Value, Value]:
        """Return the current word's number, its entry, its taken slots, and its free slots at or after the start.

        An entry that holds an earlier word counts as empty; an entry that holds a later word has been overwritten: nothing is free.
        """
        e = self._e
        number = self._word.get()
        entry = _entry(e, self._ring, number)
        owner = e.load(e.at(entry, 8), typ=I64)
        taken = e.select(e.icmp_unsigned("==", owner, number), e.load(entry, typ=I64), constant(I64, 0))
        taken = e.select(e.icmp_unsigned(">", owner, number), constant(I64, -1), taken)
        return number, entry, taken, e.and_(e.not_(taken), self._from.get())

    def take(self, number: Value, entry: Value, taken: Value) -> None:
        self._e.store(taken, entry)
        self._e.store(number, self._e.at(entry, 8))

    def advance(self) -> None:
        self._word.set(self._e.add(self._word.get(), constant(I64, 1)))
        self._from.set(constant(I64, -1))


@helper("reserve", I64, POINTER, I64)
def reserve(e: Emit, ring: Value, slot: Value) -> None:
    """Take the first free slot of a ring at or after `slot`, and return it."""
    cursor = _Cursor(e, ring, slot)
    with e.while_(lambda: constant(I1, 1)):
        number, entry, taken, free = cursor.free()
        with e.if_then(e.icmp_unsigned("!=", free, constant(I64, 0)), likely=True):
            bit = e.lowest_bit(free)
            cursor.take(number, entry, e.or_(taken, e.shl(constant(I64, 1), bit)))
            e.ret(e.or_(e.shl(number, constant(I64, 6)), bit))
        cursor.advance()
    e.unreachable()


@helper("reserve_many", I64, POINTER, I64, I32)
def reserve_many(e: Emit, ring: Value, slot: Value, count: Value) -> None:
    """Take the first `count` (at least 1) free slots of a ring at or after `slot`, and return the last of them."""
    cursor = _Cursor(e, ring, slot)
    left = e.variable(e.zext(count, I64))
    last = e.variable(slot)
    with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I64, 0))):
        number, entry, taken, free = cursor.free()
        with e.if_then(e.icmp_unsigned("!=", free, constant(I64, 0)), likely=True):
            rest = e.variable(free)  # the free slots that stay free: the loop removes those taken, lowest first
            with e.while_(lambda rest=rest: e.and_(_is_some(e, left.get()), _is_some(e, rest.get()))):
                bits = rest.get()
                last.set(e.or_(e.shl(number, constant(I64, 6)), e.lowest_bit(bits)))
                rest.set(e.and_(bits, e.sub(bits, constant(I64, 1))))
                left.set(e.sub(left.get(), constant(I64, 1)))
            cursor.take(number, entry, e.or_(taken, e.xor(free, rest.get())))
        cursor.advance()
    e.ret(last.get())


@helper("first_free", I64, POINTER, I64)
def first_free(e: Emit, ring: Value, slot: Value) -> None:
    """Return the first free slot of a ring at or after `slot`, without taking it."""
    cursor = _Cursor(e, ring, slot)
    with e.while_(lambda: constant(I1, 1)):
        number, _, _, free = cursor.free()
        with e.if_then(e.icmp_unsigned("!=", free, constant(I64, 0)), likely=True):
            e.ret(e.or_(e.shl(number, constant(I64, 6)), e.lowest_bit(free)))
        cursor.advance()
    e.unreachable()


@helper("taken_before", I64, POINTER, I64)
def taken_before(e: Emit, ring: Value, slot: Value) -> None:
    """Return how many of the 64 slots in the word before that of `slot` are taken."""
    before = e.sub(e.lshr(slot, constant(I64, 6)), constant(I64, 1))
    entry = _entry(e, ring, before)
    is_there = e.icmp_unsigned("==", e.load(e.at(entry, 8), typ=I64), before)
    e.ret(e.select(is_there, e.popcount(e.load(entry, typ=I64)), constant(I64, 0)))


def bring_near(e: Emit, ring: Value, slot: Value) -> None:
    """Prefetch the entry of a slot into the host's caches."""
    e.prefetch(_entry(e, ring, e.lshr(slot, constant(I64, 6))))


def _entry(e: Emit, ring: Value, number: Value) -> Value:
    """Return the address of the entry that holds word `number`."""
    return e.at(ring, e.mul(e.and_(number, constant(I64, WORDS - 1)), constant(I64, ENTRY_BYTES)))


def _is_some(e: Emit, bits: Value) -> Value:
    return e.icmp_unsigned("!=", bits, constant(I64, 0))
