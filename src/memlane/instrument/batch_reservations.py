"""Merge the slot reservations of adjacent probes in straight-line code; the records and their places stay the same.

    { who leads; place;  start access end; record }       { who leads; 2 places; start access end; keep }
    add ...                                          ->   add ...
    { who leads; place;  start access end; record }       {                      start access record of the first; end; record }

Between two such probes there is no branch, no label and no synchronisation, so the active mask is the same at both: they have the same
leader, which knows in advance how many places it needs. That saves a vote, a comparison and a branch for each access but the first, more
than half of the instructions of a probe, and records need not be stored between the accesses (`runs`).

With stages (`staging`) every such probe is rewritten, because its record may go to shared memory instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from memlane.instrument.probe import Draft, NestedBlock, Node, Probe, RunReservation, SingleReservation
from memlane.instrument.runs import declare_runs
from memlane.instrument.warp import LARGEST_RUN, is_packed
from memlane.ptx import Directive, Instruction, RegisterDecl, Variable, statements

_STRAIGHT = frozenset({"", "load", "store", "atomic", "reduction", "copy", "texture", "surface", "prefetch", "fence"})
"""Effects of instructions that do not change the active mask."""


def batch_reservations(draft: Draft, staged: bool = False) -> Draft:
    """Return the kernel with the places of adjacent probes reserved by the first of them. `staged`: through a stage if the warp has one."""
    nodes = _with_runs(draft.nodes, staged)
    return draft if nodes is draft.nodes else draft.with_front(statements(declare_runs(draft.prefix)), nodes)


def _with_runs(nodes: tuple[Node, ...], staged: bool) -> tuple[Node, ...]:
    """Return the parts with the probes of each run rewritten, or the same tuple if there is no run."""
    found = [_with_runs_in(one, staged) if isinstance(one, NestedBlock) else one for one in nodes]
    for run in _runs(nodes, 1 if staged else 2):
        for at, probe in zip(run, _batch([probe for at in run if isinstance(probe := nodes[at], Probe)], staged), strict=True):
            found[at] = probe
    return nodes if all(new is old for new, old in zip(found, nodes, strict=True)) else tuple(found)


def _with_runs_in(block: NestedBlock, staged: bool) -> NestedBlock:
    """Return a block with the probes of its runs rewritten, or the same block if there is no run."""
    nodes = _with_runs(block.nodes, staged)
    return block if nodes is block.nodes else NestedBlock(nodes)


def _runs(nodes: Sequence[Node], least: int) -> list[list[int]]:
    """Return the indices of adjacent probes, in runs of at least `least`.

    A guarded probe forms a run by itself, because lanes diverge before it and reconverge after it.
    """
    runs: list[list[int]] = []
    last: list[int] = []
    for at, one in enumerate(nodes):
        if isinstance(one, Probe) and _can_join(one):
            if not last or len(last) == LARGEST_RUN or one.guard is not None:
                last = []
                runs.append(last)
            last.append(at)
            if one.guard is not None:
                last = []
        elif not _is_straight(one):
            last = []
    return [run for run in runs if len(run) >= least]


def _can_join(probe: Probe) -> bool:
    """Return whether a probe reserves its place before its access and its record is a single store."""
    return isinstance(probe.reservation, SingleReservation) and is_packed(probe.site, probe.reservation.counted)


def _is_straight(one: Node) -> bool:
    """Return whether a part leaves the active mask unchanged."""
    if isinstance(one, Instruction):
        return one.form.effect in _STRAIGHT
    return isinstance(one, Variable | Directive | RegisterDecl)


def _batch(probes: Sequence[Probe], staged: bool) -> Iterator[Probe]:
    """Yield the probes of a run: each but the first stores the previous record right after its window, and the last stores its own too.

    Records that go through a stage are stored at once.
    """
    for turn, probe in enumerate(probes):
        before = probes[turn - 1].site if turn and not staged else None
        yield replace(probe, reservation=RunReservation(turn, len(probes), before, staged))
