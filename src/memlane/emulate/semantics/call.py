"""Calls of device functions, and returns from them."""

from __future__ import annotations

from collections.abc import Callable

from memlane.emulate.code.build import I32, I64, INTEGERS, Value, constant, vector
from memlane.emulate.layout import BAD_CALL
from memlane.emulate.layout import STACK as NO_STACK_LEFT
from memlane.emulate.lower.calls import SAVED_BYTES, STACK, Call, Return, Target
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.access import load, store
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.warp_splits import park, send
from memlane.emulate.semantics.table import semantics
from memlane.ptx import Immediate

_DEFAULT_ALIGNMENT = 8
_STACK_ALIGNMENT = 16

SERVICES: dict[str, Callable[[Lowering, Call], None]] = {}
"""Device functions of the CUDA runtime that the emulator provides, by name."""


@semantics("control/call")
def call(k: Lowering) -> None:
    link = k.step.link
    assert isinstance(link, Call)
    if k.resumes:
        return _finish_call(k, link)
    if link.service:
        SERVICES[link.service](k, link)
        k.flow.save()
        return k.flow.go(k.flow.successors[0])
    if link.saved or any(target.frame for target in link.targets):
        _push(k, link)
    _pass_arguments(k, link)
    k.flow.save()
    if link.pointer is not None:
        return _call_through_pointer(k, link, k.value(link.pointer, "b64"))
    return k.flow.go(link.targets[0].entry) if k.instruction.guard is None else k.flow.split(k.active)


def _pass_arguments(k: Lowering, link: Call) -> None:
    """Copy the arguments to the parameters. All are read before the first is written, because a recursive function may pass on its own
    parameters."""
    moves = [
        (register, k.bits_of(source, f"b{k.registers.bits[register]}")) for target in link.targets for register, source in target.arguments
    ]
    for register, value in moves:
        k.set_register(register, value)
    for target in link.targets:
        k.set_register(target.return_register, constant(vector(I32), link.resume))


def _call_through_pointer(k: Lowering, link: Call, pointer: Value) -> None:
    """Let each lane continue at the function that its pointer names."""
    e, left = k.e, k.active
    k.flow.skip_if_idle(k.flow.successors[-1])
    for target in link.targets:
        lanes = e.and_(k.active, _lanes_to(k, target, pointer))
        left = e.and_(left, e.not_(lanes))
        k.call(park, k.warp, lanes, constant(I32, target.entry))
    with e.if_then(e.icmp_unsigned("!=", left, constant(I32, 0)), likely=False):
        e.store_lanes(pointer, k.scratch("a"))
        lane = e.lowest_bit(left)
        _fail(k, BAD_CALL, left, e.load(e.element(k.scratch("a"), lane, I64), typ=I64))
    k.flow.pick_again()


def _lanes_to(k: Lowering, target: Target, pointer: Value) -> Value:
    return k.e.mask_of(k.e.icmp_unsigned("==", pointer, constant(pointer.type, target.address)))


def _fail(k: Lowering, kind: int, lanes: Value, address: Value) -> None:
    zero = constant(I32, 0)
    k.call(fault, k.warp, constant(I32, kind), constant(I32, k.index), k.e.lowest_bit(lanes), address, zero, zero)


# -- the stack -------------------------------------------------------------------------------------------------------------------


def _require_stack(k: Lowering, end: Value) -> None:
    """Fault in the lanes whose stack would end beyond their local memory."""
    e = k.e
    over = e.and_(k.active, e.mask_of(e.icmp_unsigned(">", end, constant(end.type, k.frame.local_bytes))))
    with e.if_then(e.icmp_unsigned("!=", over, constant(I32, 0)), likely=False):
        _fail(k, NO_STACK_LEFT, over, constant(I64, 0))
        k.flow.pick_again()


@semantics("miscellaneous/stacksave")
def stacksave(k: Lowering) -> None:
    k.write_operand(k.instruction.operands[0], k.register(STACK), "u64")


@semantics("miscellaneous/stackrestore")
def stackrestore(k: Lowering) -> None:
    k.set_register(STACK, k.value(k.instruction.operands[0], "u64"))


@semantics("miscellaneous/alloca")
def alloca(k: Lowering) -> None:
    """Allocate at the end of the stack, which stays a multiple of the largest alignment of any variable."""
    e, top = k.e, k.register(STACK)
    align = k.instruction.operand("align")
    boundary = align.value if isinstance(align, Immediate) else _DEFAULT_ALIGNMENT
    start = _aligned(k, top, boundary)
    size = e.intrinsic("umin", [k.value(k.instruction.operands[1], "u64"), constant(top.type, 1 << 32)])  # more does not overflow
    end = _aligned(k, e.add(start, size), _STACK_ALIGNMENT)
    _require_stack(k, end)
    k.write("d", start)
    k.set_register(STACK, end)


def _aligned(k: Lowering, address: Value, boundary: int) -> Value:
    return k.e.and_(k.e.add(address, constant(address.type, boundary - 1)), constant(address.type, -boundary))


def _push(k: Lowering, link: Call) -> None:
    """Save the registers that are live across the call, and allocate the local variables of the function."""
    e, top = k.e, k.register(STACK)
    frame_bytes = max(target.frame_bytes for target in link.targets)
    _require_stack(k, e.add(top, constant(top.type, link.stack_bytes + frame_bytes)))
    for number, name in enumerate(link.saved):
        value = k.register(name)
        if k.registers.bits[name] == 1:
            value = e.sext(e.lanes_of(value), vector(I32))
        e.store_lanes(value, k.scratch("data"))
        e.store_lanes(top, k.scratch("addresses", 256))
        helper = store("local", value.type.element.width, 1)
        distance = constant(I64, SAVED_BYTES * number)
        k.call(helper, k.warp, k.scratch("addresses", 256), distance, k.active, constant(I32, k.index), k.scratch("data"))
    top = e.add(top, constant(top.type, link.stack_bytes))
    for target in link.targets:
        if target.frame:
            k.set_register(target.frame, top)
    # The targets of a call through a pointer may need frames of different sizes: each releases what it takes.
    for target in link.targets:
        if target.frame_bytes:
            mine = e.add(top, constant(top.type, target.frame_bytes))
            chosen = e.lanes_of(_lanes_to(k, target, k.value(link.pointer, "b64"))) if link.pointer is not None else None
            top = mine if chosen is None else e.select(chosen, mine, top)
    k.set_register(STACK, top)


def _finish_call(k: Lowering, link: Call) -> None:
    """Continue after the return: take the results, then restore what was saved."""
    if link.service:
        return
    found = [[(register, k.register(source)) for register, source in target.results] for target in link.targets]
    if link.saved:
        _pop(k, link)
    for target, results in zip(link.targets, found, strict=True):
        for register, value in results:
            if link.pointer is not None and len(link.targets) > 1:
                here = k.e.lanes_of(_lanes_to(k, target, k.value(link.pointer, "b64")))
                value = k.e.select(here, value, k.register(register))
            k.set_register(register, value)


def _pop(k: Lowering, link: Call) -> None:
    e = k.e
    top = e.sub(k.register(STACK), constant(vector(I64), link.stack_bytes))
    e.store_lanes(top, k.scratch("addresses", 256))
    for number, name in enumerate(link.saved):
        bits = k.registers.bits[name]
        element = INTEGERS[32 if bits == 1 else bits]
        distance = constant(I64, SAVED_BYTES * number)
        helper = load("local", element.width, 1)
        k.call(helper, k.warp, k.scratch("addresses", 256), distance, k.active, constant(I32, k.index), k.scratch("data"))
        value = e.load_lanes(k.scratch("data"), element)
        k.set_register(name, e.mask_of(e.icmp_unsigned("!=", value, constant(value.type, 0))) if bits == 1 else value)
    k.set_register(STACK, top)


def return_to_caller(k: Lowering, link: Return) -> None:
    """Let each lane continue after its call."""
    if link.frame_bytes:
        k.set_register(STACK, k.e.sub(k.register(STACK), constant(vector(I64), link.frame_bytes)))
    places = k.register(link.return_register)
    k.flow.pause()
    k.e.store_lanes(places, k.scratch("a"))
    k.call(send, k.warp, k.active, k.scratch("a"))
    k.flow.pick_again()
