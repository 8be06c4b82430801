"""The pass that lets probes that follow each other reserve the places of their records together.

Function in, function out; what is recorded, and where, stays the same.

    { who leads; place;  start access end; record }       { who leads; 2 places; start access end; record }
    add ...                                          ->   add ...
    { who leads; place;  start access end; record }       {                      start access end; record, one place on }

Between two such probes there is no branch, no label and nothing at which lanes meet, so the lanes that are active at the first are active
at the second: they have the same leader, which knows beforehand how many places it needs. That saves a vote, a comparison and a branch for
each access but the first, more than half of the instructions of a probe.
"""

from __future__ import annotations

from dataclasses import replace

from memlane.instrument.insert import placed
from memlane.instrument.warp import LARGEST_RUN, follow, lead, place, shared_by_a_run
from memlane.ptx import Block, Directive, Function, Instruction, Label, Location, Register, RegisterDecl, Statement, Variable, statements

_STRAIGHT = frozenset({"", "load", "store", "atomic", "reduction", "copy", "texture", "surface", "prefetch", "fence"})
"""Effects of instructions after which the same lanes are active."""
_OF_WINDOW = frozenset({"start", "end"})
"""Registers of a probe that are not those of its place."""


def together(function: Function, prefix: str) -> Function:
    """The traced function with the places of consecutive probes reserved by the first of them; `prefix` of the names of its probes."""
    assert function.body is not None
    body = _rewritten(function.body, prefix)
    if body is function.body:
        return function
    return replace(function, body=Block((*statements(shared_by_a_run(prefix)), *body.statements)))


def _rewritten(block: Block, prefix: str) -> Block:
    found = [_rewritten(one, prefix) if isinstance(one, Block) and not _is_probe(one, prefix) else one for one in block.statements]
    for run in _runs(block, prefix):
        for turn, at in enumerate(run):
            probe = found[at]
            assert isinstance(probe, Block)
            found[at] = _in_run(probe, prefix, turn, len(run))
    return block if all(new is old for new, old in zip(found, block.statements, strict=True)) else Block(tuple(found))


def _runs(block: Block, prefix: str) -> list[list[int]]:
    """Which statements of the block are probes that follow each other, two or more."""
    runs: list[list[int]] = []
    last: list[int] = []
    for at, one in enumerate(block.statements):
        if _is_probe(one, prefix):
            if not last or len(last) == LARGEST_RUN:
                last = []
                runs.append(last)
            last.append(at)
        elif not _is_straight(one):
            last = []
    return [run for run in runs if len(run) > 1]


def _is_straight(one: Statement) -> bool:
    if isinstance(one, Instruction):
        return one.form.effect in _STRAIGHT
    return isinstance(one, Variable | Directive | RegisterDecl)


def _is_probe(one: Statement, prefix: str) -> bool:
    """Whether the statement is the block of a probe that reserves one place in front of its access, with no branch but that to
    its own label."""
    if not isinstance(one, Block) or any(isinstance(part, Block) for part in one.statements):
        return False
    labels = [part.name for part in one.statements if isinstance(part, Label)]
    inside = [part for part in one.statements if isinstance(part, Instruction)]
    return len(labels) == 1 and labels[0].startswith(f"${prefix}placed_") and inside[0].opcode == "activemask"


def _in_run(probe: Block, prefix: str, turn: int, length: int) -> Block:
    """The probe in place `turn` of a run, with what it reserves, and how it goes on to the next place, replaced."""
    parts = probe.statements
    first = next(index for index, part in enumerate(parts) if isinstance(part, Instruction))
    label = next(part.name for part in parts if isinstance(part, Label))
    last = next(index for index, part in enumerate(parts) if _writes(part, f"%{prefix}record"))
    site, location = int(label.rpartition("_")[2]), _location(parts[first])
    text = lead(prefix, site) + place(prefix, site, length) if turn == 0 else follow(prefix, turn)
    kept = [part for part in parts[last + 1 :] if not _writes(part, f"%{prefix}next")]
    own = [part for part in parts[:first] if isinstance(part, RegisterDecl) and part.name.removeprefix(f"%{prefix}") in _OF_WINDOW]
    return Block((*own, *placed(text, location), *kept))


def _writes(one: Statement, register: str) -> bool:
    return isinstance(one, Instruction) and bool(one.operands) and one.operands[0] == Register(register)


def _location(one: Statement) -> Location | None:
    return one.location if isinstance(one, Instruction) else None
