"""What may have written a register, against walks from instruction to instruction that remember nothing."""

from __future__ import annotations

import random

import pytest

from memlane.sass import Flow, Register, Scoreboards, effects
from tests.sass.code import listing

_REGISTERS = tuple(Register("R", number) for number in (2, 3, 4, 5))


def code(seed: int, length: int = 60) -> str:
    """Moves with and without guards, joined by branches to anywhere."""
    chosen = random.Random(seed)
    lines = []
    for number in range(length):
        guard = chosen.choice(("", "", "", "@P0 ", "@!P1 "))
        lines.append(f".L_{number}:")
        match chosen.randrange(8):
            case 0 | 1:
                lines.append(f"- - @P{chosen.randrange(2)} BRA `(.L_{chosen.randrange(length)})")
            case 2:
                lines.append(f"- - ISETP.NE.AND P{chosen.randrange(2)}, PT, R{chosen.choice((2, 9))}, RZ, PT")
            case 3:
                lines.append(f"0 - {guard}LDG.E.64 R{chosen.choice((2, 4))}, desc[UR4][R6.64]")
            case _:
                lines.append(f"- - {guard}MOV R{chosen.choice((2, 3, 4, 5))}, R{chosen.choice((2, 3, 8))}")
    return "\n".join([*lines, "- - EXIT"])


def walked(flow: Flow, node: int, register: Register) -> set[int]:
    """Back over every edge until something without a guard writes the register; a guard hides what is before it only if the reader has it
    too and comes behind it in straight code in which nothing writes the predicate."""
    found: set[int] = set()
    seen: set[tuple[int, bool]] = set()
    work = [(one, is_straight(flow, one, node)) for one in flow.predecessors[node]]
    while work:
        state = place, straight = work.pop()
        if state in seen:
            continue
        seen.add(state)
        one = flow.nodes[place]
        hidden = False
        if register in effects(one).writes:
            found.add(place)
            guarded = one.guard is not None and straight and one.guard == flow.nodes[node].guard
            hidden = one.guard is None or (guarded and not _changes(flow, one.guard.register, place, node))
        if not hidden:
            work.extend((before, straight and is_straight(flow, before, place)) for before in flow.predecessors[place])
    return found


def is_straight(flow: Flow, before: int, node: int) -> bool:
    return before + 1 == node and flow.successors[before] == (node,) and flow.predecessors[node] == (before,)


def _changes(flow: Flow, predicate: Register | None, first: int, last: int) -> bool:
    return any(predicate in effects(flow.nodes[node]).writes for node in range(first, last))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_for_blocks_is_what_walks_find(seed: int) -> None:
    flow = Flow(listing(("k", code(seed))))
    asked = [(node, register) for node in range(len(flow.nodes)) for register in _REGISTERS]
    random.Random(seed).shuffle(asked)  # What is kept must not depend on what was asked first.
    waiting = Scoreboards(flow)
    found = {key: waiting.definitions(*key) for key in asked}
    assert found == {key: walked(flow, *key) for key in asked}
    assert any(len(one) > 2 for one in found.values())
