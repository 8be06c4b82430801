"""Functions of the CUDA runtime that kernels call and no module defines: the host executes them (`emulate.host`)."""

from __future__ import annotations

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.build import I32, I64, VOID, Value, constant, vector
from memlane.emulate.layout import ASSERTION, CONTEXT
from memlane.emulate.lower.calls import Call
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.faults import fault
from memlane.emulate.semantics.call import SERVICES

PRINT, ASSERT_FAILED, ALLOCATE, FREE = range(4)
_SERVE = ir.FunctionType(VOID, [I64, I32, I32, I64])


def _call_host(k: Lowering, link: Call, service: int) -> Value:
    """Pass the arguments to the host; return a pointer to its results."""
    e, arguments = k.e, k.scratch("arguments", 8 * 8 * LANES)
    for number, registers in enumerate(link.arguments[:8]):
        value: Value = constant(vector(I64), 0)
        filled = 0
        for register in registers:
            width = 64 if not hasattr(register, "name") else min(64, k.registers.bits[register.name])
            value = e.or_(value, e.shl(e.zext(k.bits_of(register, f"b{width}"), vector(I64)), constant(vector(I64), filled)))
            filled += width
        e.store_lanes(value, e.at(arguments, number * 8 * LANES))
    pointers = [e.ptrtoint(pointer, I64) for pointer in (k.warp, arguments)]
    serve = e.get_pointer(k.context, CONTEXT, "service")
    e.call_through(serve, _SERVE, [pointers[0], constant(I32, service), k.active, pointers[1]])
    return arguments


def vprintf(k: Lowering, link: Call) -> None:
    """Lower `int vprintf(const char* format, void* arguments)`."""
    results = _call_host(k, link, PRINT)
    if link.results:
        k.set_register(link.results[0], k.e.trunc(k.e.load_lanes(results, I64), vector(I32)))


def assert_fail(k: Lowering, link: Call) -> None:
    """Lower `void __assertfail(const char* message, const char* file, unsigned line, const char* function, size_t character_bytes)`."""
    e, zero = k.e, constant(I32, 0)
    with e.if_then(e.icmp_unsigned("!=", k.active, zero)):
        _call_host(k, link, ASSERT_FAILED)
        k.call(fault, k.warp, constant(I32, ASSERTION), constant(I32, k.index), e.lowest_bit(k.active), constant(I64, 0), zero, zero)
        k.flow.pick_again()


def malloc(k: Lowering, link: Call) -> None:
    """Lower `void* malloc(size_t size)`."""
    results = _call_host(k, link, ALLOCATE)
    if link.results:
        k.set_register(link.results[0], k.e.load_lanes(results, I64))


def free(k: Lowering, link: Call) -> None:
    """Lower `void free(void* pointer)`."""
    _call_host(k, link, FREE)


SERVICES.update({"vprintf": vprintf, "__assertfail": assert_fail, "malloc": malloc, "free": free})
