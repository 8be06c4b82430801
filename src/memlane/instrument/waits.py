"""Classify waits for asynchronous copies and products, and find the waits at which each copy completes.

A copy (`cp.async`, a bulk copy) is complete for a thread when that thread has waited for it, and there are three ways to wait. Products of
a warpgroup (`wgmma.mma_async`) have a fourth:

    group           cp.async.wait_group, cp.async.wait_all           for copies of the thread, by commit groups
    bulk group      cp.async.bulk.wait_group                         for bulk copies out of shared memory, by commit groups
    barrier         mbarrier.try_wait, mbarrier.test_wait            for bulk copies into shared memory, whose bytes count there, and for
                                                                     those of a thread that executed `cp.async.mbarrier.arrive`
    products        wgmma.wait_group                                 for products, which read shared memory meanwhile, by commit groups

Group waits block the thread until at most the given number of groups is pending. A barrier wait returns a predicate that says whether a
phase is complete, so a kernel polls it in a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from memlane.ptx import Instruction, Register
from memlane.record import Site

GROUP, BULK_GROUP, BARRIER, PRODUCTS = "group", "bulk group", "barrier", "products"

_SPACES = {GROUP: "shared", BULK_GROUP: "global", BARRIER: "shared", PRODUCTS: "shared"}


def wait_of(instruction: Instruction) -> str:
    """Return `GROUP`, `BULK_GROUP`, `BARRIER` or `PRODUCTS`; empty for an instruction that waits for none of these."""
    if instruction.opcode == "cp" and instruction.has("async") and (instruction.has("wait_group") or instruction.has("wait_all")):
        return BULK_GROUP if instruction.has("bulk") else GROUP
    if instruction.opcode == "mbarrier" and (instruction.has("try_wait") or instruction.has("test_wait")):
        return BARRIER
    return PRODUCTS if instruction.opcode == "wgmma" and instruction.has("wait_group") else ""


def space_of(wait: str) -> str:
    """Return the state space of what a wait waits for: the destination of copies, the operands of products, or the barrier itself."""
    return _SPACES[wait]


def result_predicate(instruction: Instruction) -> str:
    """Return the predicate register in which a barrier wait returns whether the phase is complete; empty if there is none."""
    target = instruction.operand("p")
    return target.name if isinstance(target, Register) else ""


def is_bulk(instruction: Instruction) -> bool:
    """Return whether an instruction is a copy whose byte count is per instruction and not per lane."""
    return instruction.form.effect == "copy" and instruction.has("bulk")


def completions(instructions: Sequence[Instruction], sites: Mapping[int, Site]) -> Mapping[int, str]:
    """Map the index of each copy among the kernel's `instructions` to the sentence that says where it completes. `sites`: the kernel's
    sites."""
    waits: dict[str, list[int]] = {}
    for index, one in enumerate(instructions):
        if wait_of(one):
            waits.setdefault(wait_of(one), []).append(index)
    arrives = any(one.opcode == "cp" and one.has("mbarrier") and one.has("arrive") for one in instructions)
    found = {}
    for index, site in sites.items():
        if site.kind == "copy":
            ways = _possible_waits(instructions[index], arrives)
            found[index] = _where_complete([sites[wait] for way in ways for wait in waits.get(way, ()) if wait in sites], site)
    return found


def _possible_waits(copy: Instruction, arrives: bool) -> tuple[str, ...]:
    """Return the kinds of wait that can complete a copy. `arrives`: whether the kernel makes barriers track the copies of its threads."""
    if is_bulk(copy):
        return (BULK_GROUP,) if copy.has("bulk_group") else (BARRIER,)
    return (GROUP, BARRIER) if arrives else (GROUP,)


def _where_complete(waits: Sequence[Site], copy: Site) -> str:
    """Return a sentence that lists the waits at which a copy completes."""
    places = dict.fromkeys(str(one.line) if one.file == copy.file else f"{PurePath(one.file).name}:{one.line}" for one in waits)
    if not places:
        return "a copy completes at its wait, and this kernel has no wait for it"
    return f"a copy completes at its wait: line {', '.join(places)}"
