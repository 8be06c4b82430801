"""Follow groups of diverged lanes through the machine code until they reconverge.

A group waits at convergence barriers that it had set with others. So the search goes over states: an instruction, and the barriers at
which the lanes there still have to wait. Straight-line code is taken together as a stretch. States do not depend on where the lanes
diverged, so what each state reaches is computed once for all starts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from memlane.sass import Instruction
from memlane.walks import positions, reachable, union_of_reachable

_YIELDS = frozenset({"YIELD", "NANOSLEEP"})
"""Opcodes at which lanes yield: the lanes that wait for them at a barrier are released."""
_BARRIER_NUMBERS = range(16)

_State = tuple[int, frozenset[int]]
"""The first instruction of a stretch, and the barriers at which the lanes that reach it still have to wait."""
Start = tuple[int, frozenset[int]]
"""The instruction at which a group begins, and the barriers at which its lanes will wait."""


def barriers_in(one: Instruction) -> list[int]:
    """Return the numbers of the convergence barriers that an instruction names."""
    return [item.register.number for item in one.operands if item.register is not None and item.register.bank == "B"]


class LaneGroups:
    """Groups of diverged lanes in one routine. Sets of instructions are integers with one bit per stretch."""

    def __init__(
        self, nodes: Sequence[Instruction], following: Callable[[int], Sequence[int]], inside: Sequence[int], starts: Iterable[Start]
    ) -> None:
        """Prepare the search from `starts`, the places where a group may begin.

        `inside`: the instructions of the routine, by number, its entry first; `following`: returns the successors of one.
        """
        self._nodes = nodes
        self._following = following
        self._starts = list(dict.fromkeys(starts))
        self._stretches = self._make_stretches(inside)
        self._places = {first: place for place, first in enumerate(self._stretches)}
        self._firsts = tuple(self._stretches)

    # -- answers ------------------------------------------------------------------------------------------------------------------

    def reached(self, starts: Sequence[Start]) -> list[int]:
        """Return, for each group of lanes, the stretches that it may reach before it is together with the others again.

        A group began at one of `starts`, or was released from a barrier that other lanes had left.
        """
        found, waited, begun, all_begun = list[int](), 0, [[start] for start in starts], list[_State]()
        while begun:
            found += [_union(self._reached[state] for state in group) for group in begun]
            all_begun += [state for group in begun for state in group]
            left = _union(self._left_barriers[state] for state in all_begun) & ~waited
            begun = [behind for number in positions(left) if (behind := self._resumed(number, all_begun))]
            waited |= left
        return found

    def _resumed(self, number: int, begun: Iterable[_State]) -> list[_State]:
        """Return the states in which lanes resume that waited at barrier `number`, in groups that began at the states `begun`."""
        scoreboards = _union(self._waiting[state] for state in begun) & self._waiting_at[number]
        return list(dict.fromkeys(state for place in positions(scoreboards) for state in self._released(self._waiting_states[place])))

    def containing(self, nodes: Iterable[int]) -> int:
        """Return the set of stretches that contain the given instructions."""
        place = {node: self._places[first] for first, stretch in self._stretches.items() for node in stretch}
        return _union(1 << place[node] for node in nodes)

    def instructions(self, bits: int) -> Iterator[int]:
        """Yield the instructions of a set."""
        for place in positions(bits):
            yield from self._stretches[self._firsts[place]]

    # -- stretches ----------------------------------------------------------------------------------------------------------------

    def _make_stretches(self, inside: Sequence[int]) -> dict[int, list[int]]:
        """Return the stretches by their first instructions."""
        entered = Counter(to for node in inside for to in self._following(node))
        goes_on = {}
        begun = {inside[0], *(node for node, _ in self._starts)}
        for node in inside:
            following = self._following(node)
            if len(following) == 1 and entered[following[0]] == 1 and following[0] not in begun and not self._changes_barriers(node):
                goes_on[node] = following[0]
        found = {}
        for first in sorted(set(inside) - set(goes_on.values())):
            stretch = [first]
            while stretch[-1] in goes_on:
                stretch.append(goes_on[stretch[-1]])
            found[first] = stretch
        return found

    def _changes_barriers(self, node: int) -> bool:
        """Return whether lanes may wait, or leave barriers, at an instruction."""
        return self._waits_at(node) is not None or self._joins_all(node) or bool(self._barriers_left_at(node))

    def _waits_at(self, node: int) -> int | None:
        one = self._nodes[node]
        return barriers_in(one)[0] if one.opcode == "BSYNC" else None

    def _joins_all(self, node: int) -> bool:
        one = self._nodes[node]
        return one.opcode == "WARPSYNC" and "ALL" in one.modifiers

    def _barriers_left_at(self, node: int) -> Sequence[int]:
        """Return the barriers that all lanes leave, set or move at an instruction, or from which they release others there.

        A guarded `BREAK`, which only some lanes execute, does not count: those lanes diverge at the jump behind it.
        """
        one = self._nodes[node]
        if one.opcode in _YIELDS:
            return _BARRIER_NUMBERS
        return barriers_in(one) if one.opcode in ("BSSY", "BMOV") or (one.opcode == "BREAK" and one.guard is None) else ()

    # -- states -------------------------------------------------------------------------------------------------------------------

    def _successor_states(self, state: _State) -> list[_State]:
        """Return the successor states of a state; empty where its lanes join the others."""
        first, awaited = state
        node = self._stretches[first][-1]
        if self._waits_at(node) in awaited or self._joins_all(node):
            return []
        behind = awaited.difference(self._barriers_left_at(node))
        return [(to, behind) for to in self._following(node)]

    def _released(self, state: _State) -> list[_State]:
        """Return the states in which lanes resume that waited at a barrier which others had left."""
        first, awaited = state
        node = self._stretches[first][-1]
        number = self._waits_at(node)
        return [(to, awaited - {number}) for to in self._following(node)] if number in awaited else []

    @cached_property
    def _next_states(self) -> Mapping[_State, list[_State]]:
        """Successors of every state that any group may reach."""
        found: dict[_State, list[_State]] = {}

        def all_behind(state: _State) -> list[_State]:
            found[state] = self._successor_states(state)
            return found[state] or self._released(state)

        reachable(self._starts, all_behind)
        return found

    def _gathered(self, own: Callable[[_State], int]) -> Mapping[_State, int]:
        return union_of_reachable(self._next_states, self._next_states.__getitem__, own)

    @cached_property
    def _reached(self) -> Mapping[_State, int]:
        """Stretches that lanes may reach from each state, as bits."""
        return self._gathered(lambda state: 1 << self._places[state[0]])

    @cached_property
    def _left_barriers(self) -> Mapping[_State, int]:
        """Barriers, as bits, that lanes may leave from each state on although they were still to wait at them."""
        return self._gathered(
            lambda state: _union(1 << one for one in self._barriers_left_at(self._stretches[state[0]][-1]) if one in state[1])
        )

    @cached_property
    def _waiting_states(self) -> Sequence[_State]:
        """States at which lanes wait for others."""
        return [state for state in self._next_states if self._released(state)]

    @cached_property
    def _waiting(self) -> Mapping[_State, int]:
        """Places in `_waiting_states` that lanes may reach from each state, as bits."""
        numbers = {state: 1 << number for number, state in enumerate(self._waiting_states)}
        return self._gathered(lambda state: numbers.get(state, 0))

    @cached_property
    def _waiting_at(self) -> Mapping[int, int]:
        """Places in `_waiting_states` at which lanes wait at each barrier, as bits."""
        found: dict[int, int] = defaultdict(int)
        for number, (first, _) in enumerate(self._waiting_states):
            barrier = self._waits_at(self._stretches[first][-1])
            assert barrier is not None
            found[barrier] |= 1 << number
        return found


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found
