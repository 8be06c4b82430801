"""Barriers that are objects in shared memory (`mbarrier`), each one word of 64 bits.

Bits 0 to 19: arrivals that the phase still waits for; 20 to 39: arrivals of a phase; 40 to 60: bytes that the phase still waits for,
temporarily negative at times; 61: the parity of the phase. The manual leaves the word opaque, except for `mbarrier.pending_count`.

For the clock layer, each barrier has a time, `arrivals` (CONTEXT) bytes before its word: the arrival of the last event that counts on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from memlane.emulate.code.build import I1, I32, I64, POINTER, Emit, Value, constant
from memlane.emulate.layout import BLOCK, CONTEXT, SHARED_WINDOW, WARP, WINDOW_BYTES
from memlane.emulate.runtime.helper import Helper
from memlane.emulate.runtime.window import Window, address_of_lane
from memlane.emulate.runtime.workers import note_progress

COUNT_BITS, BYTES_BITS = 20, 21
_EXPECTED, _BYTES, _PHASE = COUNT_BITS, 2 * COUNT_BITS, 2 * COUNT_BITS + BYTES_BITS

OPERATIONS = (
    *("init", "inval", "expect_tx", "complete_tx", "test_wait", "test_parity"),
    *("arrive", "arrive_expect_tx", "arrive_drop", "arrive_drop_expect_tx"),
)
WAITS = ("test_wait", "test_parity")


def _field(e: Emit, word: Value, start: int, bits: int) -> Value:
    return e.and_(e.lshr(word, constant(I64, start)), constant(I64, (1 << bits) - 1))


def _with(e: Emit, word: Value, start: int, bits: int, value: Value) -> Value:
    """Return the word with a new value of a field, which wraps."""
    mask = (1 << bits) - 1
    kept = e.and_(word, constant(I64, ~(mask << start)))
    return e.or_(kept, e.shl(e.and_(value, constant(I64, mask)), constant(I64, start)))


def _with_bytes(e: Emit, word: Value, by: Value) -> Value:
    return _with(e, word, _BYTES, BYTES_BITS, e.add(_field(e, word, _BYTES, BYTES_BITS), by))


def _arrived(e: Emit, word: Value, count: Value) -> Value:
    return _with(e, word, 0, COUNT_BITS, e.sub(_field(e, word, 0, COUNT_BITS), count))


def _is_complete(e: Emit, word: Value) -> Value:
    pending, left = _field(e, word, 0, COUNT_BITS), _field(e, word, _BYTES, BYTES_BITS)
    return e.icmp_unsigned("==", e.or_(pending, left), constant(I64, 0))


def _next_phase(e: Emit, word: Value) -> Value:
    """Return the word of the next phase, which waits for as many arrivals again."""
    turned = e.xor(word, constant(I64, 1 << _PHASE))
    return _with(e, turned, 0, COUNT_BITS, _field(e, word, _EXPECTED, COUNT_BITS))


def _changed(e: Emit, operation: str, word: Value, count: Value) -> Value:
    """Return the word after an operation, before the phase is checked for completion. `count` are arrivals, or bytes."""
    one = constant(I64, 1)
    if operation == "init":
        return e.or_(count, e.shl(count, constant(I64, _EXPECTED)))
    if operation == "expect_tx":
        return _with_bytes(e, word, count)
    if operation == "complete_tx":
        return _with_bytes(e, word, e.neg(count))
    if operation.endswith("expect_tx"):
        word, count = _with_bytes(e, word, count), one
    if operation.startswith("arrive_drop"):
        word = _with(e, word, _EXPECTED, COUNT_BITS, e.sub(_field(e, word, _EXPECTED, COUNT_BITS), count))
    return _arrived(e, word, count)


@cache
def mbarrier(operation: str, space: str, is_timed: bool = False) -> Helper:
    """Return the helper `(warp, addresses, offset, lanes, site, given, out, when)`: `given` points to 32 i64, a count, a number of bytes, a
    state or a parity; `out` receives the words before the operation, or whether the phase that a wait asks for is over.

    If `is_timed`, an operation counts on the barrier at the time `when`, and a wait for a phase that is over returns the time of the last
    such event.
    """

    def build(
        e: Emit, warp: Value, addresses: Value, distance: Value, mask: Value, site: Value, given: Value, out: Value, when: Value
    ) -> None:
        latest = e.variable(constant(I64, 0))
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret(latest.get())
        window = Window(e, warp, space, site, address_of_lane(e, addresses, distance, e.lowest_bit(mask)), 8)
        context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
        with e.each_lane(mask) as lane, window.lane(lane, address := address_of_lane(e, addresses, distance, lane)) as place:
            operand, answer = e.load(e.element(given, lane, I64), typ=I64), e.element(out, lane, I64)
            if operation in WAITS:
                is_over = _is_over(e, operation, e.load(place, typ=I64), operand)
                e.store(is_over, answer)
            elif operation != "inval":
                e.store(e.load(place, typ=I64), answer)
            if is_timed and operation != "inval":
                with _arrival(e, context, space, address, place) as arrival:
                    known = constant(I64, 0) if operation == "init" else e.load(arrival, typ=I64)
                    if operation in WAITS:
                        latest.set(e.intrinsic("smax", [latest.get(), e.mul(is_over, known)]))
                    else:
                        e.store(e.intrinsic("smax", [known, when]), arrival)
            if operation not in (*WAITS, "inval"):
                _change(e, operation, place, operand, context)
        e.ret(latest.get())

    arguments = (POINTER, POINTER, I64, I32, I32, POINTER, POINTER, I64)
    return Helper(f"memlane_mbarrier_{operation}_{space}{'_timed' if is_timed else ''}", I64, arguments, build)


def _is_over(e: Emit, operation: str, word: Value, operand: Value) -> Value:
    """1 where the phase that a wait asks for is over, else 0."""
    asked = _field(e, operand, _PHASE, 1) if operation == "test_wait" else e.and_(operand, constant(I64, 1))
    return e.xor(_field(e, word, _PHASE, 1), asked)


def _change(e: Emit, operation: str, place: Value, operand: Value, context: Value) -> None:
    """Do an operation on the word at a host address, and turn to the next phase where that completes this one."""
    new = _changed(e, operation, e.load(place, typ=I64), operand)
    e.store(new, place)
    if operation not in ("init", "expect_tx"):
        with e.if_then(_is_complete(e, new)):
            e.store(_next_phase(e, new), place)
            note_progress(e, context)


@contextmanager
def _arrival(e: Emit, context: Value, space: str, address: Value, place: Value) -> Iterator[Value]:
    """Yield a pointer to the time of the barrier at a host address; the code in the `with` block is skipped for a barrier outside shared
    memory, which a generic address may name."""
    inner = e.sub(address, constant(I64, SHARED_WINDOW))
    is_shared = e.icmp_unsigned("<", inner, constant(I64, WINDOW_BYTES)) if space == "generic" else constant(I1, 1)
    with e.if_then(is_shared, likely=True):
        yield e.at(place, e.neg(e.get(context, CONTEXT, "arrivals")))
