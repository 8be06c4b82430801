"""The pass that lets probes that follow each other reserve the places of their records together.

Function in, function out; what is recorded, and where, stays the same.

    { who leads; place;  start access end; record }       { who leads; 2 places; start access end; record }
    add ...                                          ->   add ...
    { who leads; place;  start access end; record }       {                      start access end; record, one place on }

Between two such probes there is no branch, no label and nothing at which lanes meet, so the lanes that are active at the first are active
at the second: they have the same leader, which knows beforehand how many places it needs. That saves a vote, a comparison and a branch for
each access but the first, more than half of the instructions of a probe.

With stages (`staging`) every such probe is rewritten, for its record may go to shared memory instead.
"""

from __future__ import annotations

from dataclasses import replace

from memlane.instrument.insert import placed
from memlane.instrument.staging import place_in_stage
from memlane.instrument.warp import LARGEST_RUN, follow, lead, place, shared_by_a_run
from memlane.ptx import (
    Block,
    Directive,
    Function,
    Instruction,
    Label,
    Location,
    Register,
    RegisterDecl,
    Statement,
    Variable,
    instruction_text,
    statements,
)

_STRAIGHT = frozenset({"", "load", "store", "atomic", "reduction", "copy", "texture", "surface", "prefetch", "fence"})
"""Effects of instructions after which the same lanes are active."""
_OF_WINDOW = frozenset({"start", "end"})
"""Registers of a probe that are not those of its place."""


def together(function: Function, prefix: str, staged: bool = False) -> Function:
    """The traced function with the places of consecutive probes reserved by the first of them; `prefix` of the names of its probes.
    `staged`: through a stage where the warp has one."""
    assert function.body is not None
    body = _rewritten(function.body, prefix, staged)
    if body is function.body:
        return function
    return replace(function, body=Block((*statements(shared_by_a_run(prefix)), *body.statements)))


def _rewritten(block: Block, prefix: str, staged: bool) -> Block:
    found = [_rewritten(one, prefix, staged) if isinstance(one, Block) and not _is_probe(one, prefix) else one for one in block.statements]
    for run in _runs(block, prefix, 1 if staged else 2):
        for turn, at in enumerate(run):
            probe = found[at]
            assert isinstance(probe, Block)
            found[at] = _in_run(probe, prefix, turn, len(run), staged)
    return block if all(new is old for new, old in zip(found, block.statements, strict=True)) else Block(tuple(found))


def _runs(block: Block, prefix: str, least: int) -> list[list[int]]:
    """Which statements of the block are probes that follow each other, so many or more."""
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
    return [run for run in runs if len(run) >= least]


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
    alone = sum(_is_of_record(part, prefix) for part in inside) == 1  # What has more to say does not go through stages.
    return alone and len(labels) == 1 and labels[0].startswith(f"${prefix}placed_") and inside[0].opcode == "activemask"


def _in_run(probe: Block, prefix: str, turn: int, length: int, staged: bool) -> Block:
    """The probe in place `turn` of a run, with what it reserves, and how it goes on to the next place, replaced."""
    parts = probe.statements
    first = next(index for index, part in enumerate(parts) if isinstance(part, Instruction))
    label = next(part.name for part in parts if isinstance(part, Label))
    last = next(index for index, part in enumerate(parts) if _writes(part, f"%{prefix}record"))
    site, location = int(label.rpartition("_")[2]), _location(parts[first])
    text = follow(prefix, turn) if turn else lead(prefix, site) + _places(prefix, site, length, staged)
    kept = [part for part in parts[last + 1 :] if not _writes(part, f"%{prefix}next")]
    if staged:
        kept = [one for part in kept for one in (_anywhere(part) if _is_of_record(part, prefix) else (part,))]
    own = [part for part in parts[:first] if isinstance(part, RegisterDecl) and part.name.removeprefix(f"%{prefix}") in _OF_WINDOW]
    return Block((*own, *placed(text, location), *kept))


def _places(prefix: str, site: int, length: int, staged: bool) -> str:
    direct = place(prefix, site, length)
    return place_in_stage(prefix, site, length, direct) if staged else direct


def _is_of_record(one: Statement, prefix: str) -> bool:
    """Whether the statement stores a part of the record."""
    return isinstance(one, Instruction) and one.opcode == "st" and one.guard is not None and one.guard.register == f"%{prefix}fits"


def _anywhere(store: Statement) -> tuple[Statement, ...]:
    """The store to a generic address."""
    assert isinstance(store, Instruction)
    return placed(instruction_text(store).replace("st.global.", "st.", 1) + "\n", store.location)


def _writes(one: Statement, register: str) -> bool:
    return isinstance(one, Instruction) and bool(one.operands) and one.operands[0] == Register(register)


def _location(one: Statement) -> Location | None:
    return one.location if isinstance(one, Instruction) else None
