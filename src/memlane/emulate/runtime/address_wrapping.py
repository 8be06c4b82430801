"""Wraps addresses of state spaces with 32-bit addresses, whatever the width of the registers that hold them.

The PTX manual lets an address stand in a register of 32 or 64 bits, zero-extends a short one, and truncates one that is wider than the
addresses of its space. The assembler computes the whole sum of base and immediate in 32 bits there: `[%r1+8]` with %r1 = -8 is `[0]`, and
so is `[%rd1]` with %rd1 = 2^32.
"""

from __future__ import annotations

from memlane.emulate.code.build import Emit, Value, constant

NARROW_SPACES = frozenset({"shared", "local", "param"})
"""Spaces with 32-bit addresses, as `form.addresses` names them; so `shared` is also `shared::cluster`."""
WRAPPING_SPACES = NARROW_SPACES | {"const"}
"""Spaces whose sums with a 32-bit base register wrap. Addresses of constant memory have 32 bits on a GPU, and 64 here."""
_LOW_WORD = 0xFFFFFFFF
_NEAR = 1 << 39


def lower_words(e: Emit, addresses: Value) -> Value:
    """Return the lower 32 bits of 32 i64, or of one."""
    return e.and_(addresses, constant(addresses.type, _LOW_WORD))


def wrap_addresses(e: Emit, addresses: Value) -> Value:
    """Return addresses of a narrow space, with a 64-bit base, without the overflow of 32 bits: 32 i64, or one.

    An address of another space stays unchanged, so that the access is outside. A GPU would truncate it too, but there the lower half is
    outside nearly always, while the spaces of the emulator all begin with a lower half of 0.
    """
    near = e.icmp_unsigned("<", e.add(addresses, constant(addresses.type, _NEAR)), constant(addresses.type, 2 * _NEAR))
    return e.select(near, lower_words(e, addresses), addresses)


def with_upper_half(e: Emit, low: Value, other: Value) -> Value:
    """Return addresses with the lower halves of `low` and the upper halves of `other`, both 32 i64."""
    return e.or_(low, e.and_(other, constant(low.type, ~_LOW_WORD)))
