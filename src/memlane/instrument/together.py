"""The pass that lets probes that follow each other reserve the places of their records together.

Function in, function out; what is recorded, and where, stays the same.

    { who leads; place;  start access end; record }       { who leads; 2 places; start access end; keep }
    add ...                                          ->   add ...
    { who leads; place;  start access end; record }       {                      start access record of the first; end; record }

Between two such probes there is no branch, no label and nothing at which lanes meet, so the lanes that are active at the first are active
at the second: they have the same leader, which knows beforehand how many places it needs. That saves a vote, a comparison and a branch for
each access but the first, more than half of the instructions of a probe, and records need not be stored between the accesses (`runs`).

With stages (`staging`) every such probe is rewritten, for its record may go to shared memory instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memlane.instrument.insert import placed
from memlane.instrument.runs import begin, declare_runs, follow, keep, store
from memlane.instrument.staging import place_in_stage
from memlane.instrument.warp import LARGEST_RUN, lead, place
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
    return replace(function, body=Block((*statements(declare_runs(prefix)), *body.statements)))


def _rewritten(block: Block, prefix: str, staged: bool) -> Block:
    found = [_rewritten(one, prefix, staged) if isinstance(one, Block) and not _is_probe(one, prefix) else one for one in block.statements]
    for run in _runs(block, prefix, 1 if staged else 2):
        probes = [_parts(one, prefix) for one in (found[at] for at in run) if isinstance(one, Block)]
        for at, probe in zip(run, _staged(probes, prefix) if staged else _in_a_row(probes, prefix), strict=True):
            found[at] = probe
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


@dataclass(frozen=True)
class _Probe:
    """The parts of a probe that reserves one place in front of its access."""

    own: tuple[Statement, ...]
    """Declarations of the clocks."""
    window: tuple[Statement, ...]
    """From before the first clock read to behind the second."""
    record: tuple[Statement, ...]
    site: int
    location: Location | None


def _parts(block: Block, prefix: str) -> _Probe:
    parts = block.statements
    first = next(index for index, part in enumerate(parts) if isinstance(part, Instruction))
    label = next(part.name for part in parts if isinstance(part, Label))
    last = next(index for index, part in enumerate(parts) if _writes(part, f"%{prefix}record"))
    packing = next(index for index, part in enumerate(parts) if _declares(part, f"%{prefix}start_low"))
    own = tuple(part for part in parts[:first] if isinstance(part, RegisterDecl) and part.name.removeprefix(f"%{prefix}") in _OF_WINDOW)
    return _Probe(own, parts[last + 1 : packing], parts[packing:], int(label.rpartition("_")[2]), _location(parts[first]))


def _in_a_row(probes: Sequence[_Probe], prefix: str) -> Iterator[Block]:
    """The probes of a run: each stores the record of the one before right behind its window, the last its own too."""
    for turn, probe in enumerate(probes):
        at, last = probe.location, turn + 1 == len(probes)
        earlier = placed(store(prefix, turn - 1), at) if turn else ()
        if not turn:
            text = lead(prefix, probe.site) + place(prefix, probe.site, len(probes), begin(prefix, len(probes)))
        else:
            text = follow(prefix, turn) if last else ""
        own = _stored(probe, prefix) if last else placed(keep(prefix, probe.site, turn), at)
        yield Block((*probe.own, *placed(text, at), *probe.window, *earlier, *own))


def _stored(probe: _Probe, prefix: str) -> tuple[Statement, ...]:
    """Its record, stored at once; its place is taken already."""
    return tuple(part for part in probe.record if not _writes(part, f"%{prefix}next"))


def _staged(probes: Sequence[_Probe], prefix: str) -> Iterator[Block]:
    """The probes of a run whose records go through the stage of the warp."""
    for turn, probe in enumerate(probes):
        text = follow(prefix, turn)
        if not turn:
            direct = place(prefix, probe.site, len(probes), begin(prefix, len(probes)))
            text = lead(prefix, probe.site) + place_in_stage(prefix, probe.site, len(probes), direct)
        stored = (one for part in _stored(probe, prefix) for one in (_anywhere(part) if _is_of_record(part, prefix) else (part,)))
        yield Block((*probe.own, *placed(text, probe.location), *probe.window, *stored))


def _is_of_record(one: Statement, prefix: str) -> bool:
    """Whether the statement stores a part of the record."""
    return isinstance(one, Instruction) and one.opcode == "st" and one.guard is not None and one.guard.register == f"%{prefix}fits"


def _anywhere(store: Statement) -> tuple[Statement, ...]:
    """The store to a generic address."""
    assert isinstance(store, Instruction)
    return placed(instruction_text(store).replace("st.global.", "st.", 1) + "\n", store.location)


def _writes(one: Statement, register: str) -> bool:
    return isinstance(one, Instruction) and bool(one.operands) and one.operands[0] == Register(register)


def _declares(one: Statement, register: str) -> bool:
    return isinstance(one, RegisterDecl) and one.name == register


def _location(one: Statement) -> Location | None:
    return one.location if isinstance(one, Instruction) else None
