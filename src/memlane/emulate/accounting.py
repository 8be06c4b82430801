"""What the counting and clock layers add to the code of a memory instruction or a branch."""

from __future__ import annotations

from memlane.emulate.build import I32, Value, constant
from memlane.emulate.caches import ATOMIC, LOAD, LOAD_PAST_L1, STORE
from memlane.emulate.lowering import Lowering
from memlane.emulate.runtime.accounting import accounting, count_branch

_KINDS = {"store": STORE, "atomic": ATOMIC, "reduction": ATOMIC}


def account(k: Lowering, space: str, pointer: Value, distance: Value, nbytes: int) -> None:
    """Account for the access of `k.active` to `nbytes` a lane at these addresses, as far as a layer asks for it. Parameters are none."""
    if not (k.layers.counts or k.layers.clock) or k.instruction.form.addresses["a"] == "param":
        return
    known = "global" if space == "const" and k.layers.clock else space
    helper = accounting(k.chip, k.layers, known, _kind(k))
    complete = k.call(helper, k.warp, pointer, distance, k.active, constant(I32, nbytes), constant(I32, k.index), k.start)
    k.completes(complete)


def _kind(k: Lowering) -> str:
    instruction = k.instruction
    effect = instruction.form.effect
    if effect != "load":
        return _KINDS[effect]
    beyond = any(instruction.has(word) for word in ("volatile", "relaxed", "acquire", "mmio")) and not instruction.has("cta")
    return LOAD_PAST_L1 if beyond or any(instruction.has(word) for word in ("cg", "cv")) else LOAD


def account_branch(k: Lowering, taken: Value) -> None:
    """Count a branch of `k.mask`, of which the lanes in `taken` go to its target."""
    if k.layers.counts:
        k.call(count_branch, k.warp, constant(I32, k.index), k.mask, taken)
