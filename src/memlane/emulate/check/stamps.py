"""Keep the checker's logical time: a number that grows with every turn of a warp and every synchronisation.

Each stamp belongs to one warp.
"""

from __future__ import annotations

from memlane.emulate.check.records import KEPT_STAMPS, LAUNCH, MOST_WARPS, STATE_BYTES, WARP_STATE
from memlane.emulate.code.build import I64, Emit, Value, constant
from memlane.emulate.layout import BLOCK, CONTEXT, WARP


class CheckedWarp:
    """The records of a warp that the checker's code uses."""

    def __init__(self, e: Emit, warp: Value) -> None:
        self.warp = warp
        self.block = e.get_pointer(warp, WARP, "block")
        self.context = e.get_pointer(self.block, BLOCK, "context")
        self.launch = e.get_pointer(self.context, CONTEXT, "check")
        self.state = e.get_pointer(self.block, BLOCK, "check")
        self.number = e.get(warp, WARP, "number")
        self.own = warp_state(e, self.state, self.number)

    def warp_id(self, e: Emit) -> Value:
        """Return block and warp as one i64."""
        return warp_id(e, self.block, self.number)


def warp_state(e: Emit, state: Value, number: Value) -> Value:
    """Return the address of the state of warp `number`, at the end of its block's state."""
    first = e.at(state, STATE_BYTES - MOST_WARPS * WARP_STATE.itemsize)
    return e.at(first, e.mul(e.zext(number, I64), constant(I64, WARP_STATE.itemsize)))


def warp_id(e: Emit, block: Value, number: Value) -> Value:
    """Return block and warp as one i64."""
    return e.add(e.mul(e.get(block, BLOCK, "number"), constant(I64, MOST_WARPS)), e.zext(number, I64))


def now(e: Emit, launch: Value) -> Value:
    """Return the present stamp; i64."""
    return e.get(launch, LAUNCH, "stamp")


def advance(e: Emit, launch: Value) -> Value:
    """Take a new stamp for the running warp, and return it."""
    stamp = e.bump(launch, LAUNCH, "stamp")
    e.store(e.get(launch, LAUNCH, "running"), owner_address(e, launch, stamp))
    return stamp


def owner_address(e: Emit, launch: Value, stamp: Value) -> Value:
    """Return the address of a stamp's owner."""
    return e.element(e.get_pointer(launch, LAUNCH, "owners"), e.and_(stamp, constant(I64, KEPT_STAMPS - 1)), I64)
