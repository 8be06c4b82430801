"""Reorder the instructions of a kernel approximately as an assembler does: loads as soon as their addresses are ready.

    scheduled(module).module     an equivalent module with its instructions in that order
    scheduled(module, "kernel", ranks)     the order of the assembled code of a kernel, if that is known

PTX has the order of the source, in which a value is often used right after its load. Assemblers move instructions inside stretches without
branches and barriers, so that many loads are in flight before the first use; a kernel whose warps wait for memory then takes a fraction of
the time. The pass is textbook list scheduling: among the ready instructions it takes the one with the longest latency-weighted path to the
end of the stretch. Memory accesses keep their order, except that loads pass each other, and accesses to different state spaces or to
read-only memory pass anything. Registers are assumed to be unlimited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from memlane.ptx import Block, Directive, Function, Instruction, Module, Statement, memory_access, values_read, values_written

_MOVES = frozenset({"", "load", "store", "texture"})
"""Effects of instructions that may be reordered; others end a stretch."""
_LATENCY = {"global": 300, "generic": 300, "local": 30, "shared": 24, "const": 24, "param": 24}
_OTHER_LATENCY = 5
_LAST = 1 << 60
LONGEST = 2000
"""Maximum instructions of a stretch that are scheduled together."""


Ranks = Sequence[int | None]
"""Position of each instruction in the assembled code; None if it has none."""


@dataclass(frozen=True)
class Scheduled:
    """A module with reordered instructions."""

    module: Module
    order: tuple[int, ...]
    """Original index of each instruction of the named kernel."""


def scheduled(module: Module, kernel: str = "", ranks: Ranks = ()) -> Scheduled:
    """Return the module with the instructions of its functions in an assembler's order; in `kernel`, in the order of `ranks` if given."""
    items, order = [], tuple[int, ...]()
    for item in module.items:
        if isinstance(item, Function) and item.body is not None:
            reordering = _Reordering(ranks if item.name == kernel else ())
            item = replace(item, body=reordering.of_block(item.body))
            order = tuple(reordering.order) if item.name == kernel else order
        items.append(item)
    return Scheduled(replace(module, items=tuple(items)), order)


class _Reordering:
    """The reordering of one function."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._seen = 0
        self.order: list[int] = []
        """Original index of each instruction placed so far."""

    def of_block(self, block: Block) -> Block:
        result: list[Statement] = []
        stretch: list[Instruction] = []
        for statement in block.statements:
            if isinstance(statement, Instruction) and _may_move(statement) and len(stretch) < LONGEST:
                stretch.append(statement)
            elif isinstance(statement, Directive) and statement.text.lstrip().startswith(".loc"):
                continue  # each instruction carries its own location
            else:
                result += self._placed(stretch)
                is_first = isinstance(statement, Instruction) and _may_move(statement)
                stretch = [statement] if is_first and isinstance(statement, Instruction) else []
                if isinstance(statement, Block):
                    result.append(self.of_block(statement))
                elif isinstance(statement, Instruction) and not is_first:
                    result += self._placed([statement])
                elif not is_first:
                    result.append(statement)
        return replace(block, statements=(*result, *self._placed(stretch)))

    def _placed(self, stretch: Sequence[Instruction]) -> list[Instruction]:
        """Return the instructions of a stretch in their new order."""
        first, self._seen = self._seen, self._seen + len(stretch)
        ranks = self._ranks[first : self._seen]
        places = list(_by_ranks(stretch, ranks) if ranks else _by_latency(stretch))
        self.order += [first + place for place in places]
        return [stretch[place] for place in places]


def _may_move(instruction: Instruction) -> bool:
    return instruction.form.effect in _MOVES and not instruction.has("volatile") and not instruction.has("sync")


def _by_ranks(stretch: Sequence[Instruction], ranks: Ranks) -> Iterator[int]:
    """Yield the instruction indices in the order of their ranks, as far as dependencies allow."""
    after = _dependences(stretch)
    waits = [0] * len(stretch)
    wanted = [_LAST if rank is None else rank for rank in _complete_ranks(ranks, after)]
    for followers in after:
        for follower in followers:
            waits[follower] += 1
    ready = [(wanted[number], number) for number in range(len(stretch)) if not waits[number]]
    heapify(ready)
    while ready:
        _, number = heappop(ready)
        yield number
        for follower in after[number]:
            waits[follower] -= 1
            if not waits[follower]:
                heappush(ready, (wanted[follower], follower))


def _complete_ranks(ranks: Ranks, after: Sequence[dict[int, int]]) -> list[int | None]:
    """Return the ranks lowered to those of dependent instructions; instructions without a rank get one in the same way."""
    found = list(ranks)
    for number in range(len(found) - 1, -1, -1):
        known = [rank for rank in (found[number], *(found[follower] for follower in after[number])) if rank is not None]
        found[number] = min(known, default=None)
    return found


def _by_latency(stretch: Sequence[Instruction]) -> Iterator[int]:
    """Yield the instruction indices in list-scheduling order, by the longest path to the end."""
    if len(stretch) < 3 or not any(one.form.effect in ("load", "texture") for one in stretch):
        yield from range(len(stretch))
        return
    after = _dependences(stretch)
    waits = [0] * len(stretch)
    for followers in after:
        for follower in followers:
            waits[follower] += 1
    critical_paths = _critical_paths(stretch, after)
    earliest, now = [0] * len(stretch), 0
    ready = [(-critical_paths[number], number) for number in range(len(stretch)) if not waits[number]]
    ready.sort()
    coming: list[tuple[int, int]] = []
    while ready or coming:
        while coming and (coming[0][0] <= now or not ready):
            when, number = heappop(coming)
            now = max(now, when) if not ready else now
            heappush(ready, (-critical_paths[number], number))
        _, number = heappop(ready)
        yield number
        now += 1
        for follower, latency in after[number].items():
            earliest[follower] = max(earliest[follower], now + latency - 1)
            waits[follower] -= 1
            if not waits[follower]:
                heappush(coming, (earliest[follower], follower))


def _critical_paths(stretch: Sequence[Instruction], after: Sequence[dict[int, int]]) -> list[int]:
    """Return the longest path from each instruction to the end of the stretch, in cycles."""
    critical_paths = [1] * len(stretch)
    for number in range(len(stretch) - 1, -1, -1):
        critical_paths[number] = max([1, *(latency + critical_paths[follower] for follower, latency in after[number].items())])
    return critical_paths


def _dependences(stretch: Sequence[Instruction]) -> list[dict[int, int]]:
    """Return the dependences of each instruction: later instructions that must stay after it -> the cycles between them."""
    after: list[dict[int, int]] = [{} for _ in stretch]
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    stores: dict[str, int] = {}
    loads: dict[str, list[int]] = {}

    def add_dependence(first: int, second: int, latency: int) -> None:
        after[first][second] = max(after[first].get(second, 1), latency)

    for number, one in enumerate(stretch):
        for name in values_read(one):
            if name in writer:
                add_dependence(writer[name], number, _latency(stretch[writer[name]]))
        for name in values_written(one):
            if name in writer:
                add_dependence(writer[name], number, 1)
            for reader in readers.get(name, ()):
                if reader != number:
                    add_dependence(reader, number, 1)
        access = memory_access(one)
        if access is not None and access.space not in ("param", "const") and not access.read_only:
            for space in _may_alias(access.space):
                if space in stores:
                    add_dependence(stores[space], number, 1)
                if one.form.effect == "store":
                    for load in loads.get(space, ()):
                        add_dependence(load, number, 1)
            if one.form.effect == "store":
                stores[access.space] = number
                loads[access.space] = []
            else:
                loads.setdefault(access.space, []).append(number)
        for name in values_read(one):
            readers.setdefault(name, []).append(number)
        for name in values_written(one):
            writer[name], readers[name] = number, []
    return after


def _may_alias(space: str) -> tuple[str, ...]:
    """Return the state spaces that may alias this one."""
    return ("global", "shared", "local", "generic") if space == "generic" else (space, "generic")


def _latency(instruction: Instruction) -> int:
    if instruction.form.effect == "texture":
        return _LATENCY["global"]
    access = memory_access(instruction)
    return _OTHER_LATENCY if access is None else _LATENCY.get(access.space, _LATENCY["global"])
