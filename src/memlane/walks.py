"""Walks over graphs, which are given as a function from a node to those that it leads to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)
State = TypeVar("State")


def reachable(starts: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]], without: Collection[Node] = ()) -> set[Node]:
    """The nodes that a walk from `starts` comes to, these included, which never enters `without`."""
    found: set[Node] = set()
    work = list(starts)
    while work:
        node = work.pop()
        if node not in found and node not in without:
            found.add(node)
            work.extend(leads_to(node))
    return found


class UnsettledError(RuntimeError):
    """An analysis that goes on until nothing changes went on for longer than it can: a mistake in it, where it would not end."""


def settling(analysis: str, most: int) -> Iterator[int]:
    """Count the rounds, or the steps, of an analysis that goes on until nothing changes. Raises UnsettledError if more than `most` begin.

    `most` is what the analysis can take at most, by what it may change: then nothing that is right runs into it.
    """
    yield from range(most)
    raise UnsettledError(
        f"memlane could not determine {analysis}: no convergence after {most:,} rounds; this is a bug in memlane; please report it with "
        "the kernel"
    )


def flowed(
    analysis: str,
    starts: Mapping[int, State],
    leads_to: Callable[[int], Iterable[int]],
    through: Callable[[int, State], State],
    joined: Callable[[State, State], State | None],
    most: int,
) -> dict[int, State]:
    """Return what holds in front of each node of a graph: a forward analysis, repeated until nothing changes.

    `starts` gives what holds in front of some nodes, from which all others are reached. `through` gives what holds behind a node, `joined`
    what holds where one more state arrives, or None if it adds nothing. Nodes are taken in the order of their numbers, so that where these
    follow control most are met once, with all that leads to them. Raises UnsettledError after `most` steps: each node is met once, and
    again whenever something arrives, so the sum of what can arrive bounds them.
    """
    before = dict(starts)
    work = sorted(before)
    waiting = set(work)
    steps = settling(analysis, most)
    while work:
        next(steps)
        node = heappop(work)
        waiting.remove(node)
        after = through(node, before[node])
        for target in leads_to(node):
            new = joined(before[target], after) if target in before else after
            if new is not None:
                before[target] = new
                if target not in waiting:
                    waiting.add(target)
                    heappush(work, target)
    return before


def post_order(starts: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """The nodes that are reachable, each behind those that it leads to first: a walk in depth, without recursion."""
    seen: set[Node] = set()
    found: list[Node] = []
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        stack = [(start, iter(leads_to(start)))]
        while stack:
            node, targets = stack[-1]
            target = next((target for target in targets if target not in seen), None)
            if target is None:
                found.append(node)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(leads_to(target))))
    return found


def components(nodes: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]]) -> list[set[Node]]:
    """The sets of nodes that lead to each other, each set before those that it leads to (Kosaraju, as in Aho, Hopcroft and Ullman, "Data
    Structures and Algorithms", 1983)."""
    order = post_order(nodes, leads_to)
    against: dict[Node, list[Node]] = {node: [] for node in order}
    for node in order:
        for target in leads_to(node):
            against[target].append(node)
    taken: set[Node] = set()
    found = []
    for node in reversed(order):
        if node not in taken:
            component = reachable((node,), against.__getitem__, taken)
            taken |= component
            found.append(component)
    return found


def gathered(starts: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]], own: Callable[[Node], int]) -> dict[Node, int]:
    """Return, for each reachable node, the union of the sets of bits `own` of all nodes that it leads to, itself included."""
    found: dict[Node, int] = {}
    for component in reversed(components(starts, leads_to)):
        union = 0
        for node in component:
            union |= own(node)
            for to in leads_to(node):
                union |= found.get(to, 0)
        found.update(dict.fromkeys(component, union))
    return found


def unavoidable(start: Node, leads_to: Callable[[Node], Iterable[Node]], leaves: Callable[[Node], bool]) -> set[Node]:
    """Return the nodes that every walk from `start` to a node that `leaves` passes. Nodes that lead to themselves are left out.

    In the order of the components a node is one of them where no edge leads from before it to behind it.
    """
    reached = reachable((start,), leads_to)
    against: dict[Node, list[Node]] = {node: [] for node in reached}
    for node in reached:
        for target in leads_to(node):
            against[target].append(node)
    kept = reachable((node for node in reached if leaves(node)), against.__getitem__)
    if start not in kept:
        return set()
    ordered = components((start,), lambda node: [target for target in leads_to(node) if target in kept])
    place = {node: number for number, component in enumerate(ordered) for node in component}
    found: set[Node] = set()
    farthest = 0
    for number, component in enumerate(ordered):
        (node, *others) = component
        if farthest <= number and not others and node not in leads_to(node):
            found.add(node)
        for node in component:
            targets = [place[target] for target in leads_to(node) if target in kept]
            farthest = max([farthest, *targets, *([len(ordered)] if leaves(node) else [])])
    return found


def positions(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, ascending."""
    for place, byte in enumerate(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        while byte:
            lowest = byte & -byte
            yield 8 * place + lowest.bit_length() - 1
            byte ^= lowest


class Reachability(Generic[Node]):
    """Which nodes of a graph lead to which, worked out once for the whole graph.

    Nodes that lead to each other form a component. Each component has the set of those that it leads to as the bits of one integer, so a
    question costs a shift.
    """

    def __init__(self, nodes: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]]) -> None:
        """`leads_to` gives only nodes that are among `nodes`."""
        self._leads_to = leads_to
        self._component_of: dict[Node, int] = {}
        self._members: list[set[Node]] = []
        """By component its nodes; each component is numbered behind those that it leads to."""
        self._reached: list[int] = []
        self._around: dict[tuple[frozenset[Node], int], frozenset[Node]] = {}
        for component in reversed(components(nodes, leads_to)):
            number = len(self._members)
            self._members.append(component)
            self._component_of.update(dict.fromkeys(component, number))
            reached = 1 << number
            for below in {self._component_of[to] for node in component for to in leads_to(node)} - {number}:
                reached |= self._reached[below]
            self._reached.append(reached)

    def leads(self, start: Node, end: Node) -> bool:
        """Whether a walk from `start`, which may have no step, comes to `end`."""
        return bool(self._reached[self._component_of[start]] >> self._component_of[end] & 1)

    def bit(self, node: Node) -> int:
        """The bit of a node in sets of nodes. Those have it too that it leads to and that lead to it."""
        return 1 << self._component_of[node]

    def reached(self, start: Node) -> int:
        """The nodes that a walk from `start` comes to, this one included, as a set of bits."""
        return self._reached[self._component_of[start]]

    def component(self, node: Node) -> frozenset[Node]:
        """Return the nodes that a node leads to and that lead to it, itself included."""
        return frozenset(self._members[self._component_of[node]])

    def sources(self, bits: int) -> Iterator[Node]:
        """Yield few nodes that together lead to all nodes of a set of bits. Where each node of the set leads to others of it only, so do
        they."""
        while bits:
            first = bits.bit_length() - 1  # No component of a lesser number leads to it.
            yield next(iter(self._members[first]))
            bits &= ~self._reached[first]

    def comes_back(self, node: Node, without: frozenset[Node] = frozenset()) -> bool:
        """Whether a walk of one step or more leads from a node to itself and enters none of `without`."""
        component = self._component_of[node]
        members = self._members[component]
        if node in without or (len(members) == 1 and node not in self._leads_to(node)):
            return False
        inside = without & members if without else without
        return not inside or node in self._cycles(component, inside)

    def _cycles(self, component: int, without: frozenset[Node]) -> frozenset[Node]:
        """The nodes of a component that lead to themselves with some left out."""
        if (without, component) not in self._around:
            left = self._members[component] - without

            def leads_to(node: Node) -> list[Node]:
                return [to for to in self._leads_to(node) if to in left]

            found = components(left, leads_to)
            cycles = (cycle for cycle in found if len(cycle) > 1 or any(node in leads_to(node) for node in cycle))
            self._around[without, component] = frozenset[Node]().union(*cycles)
        return self._around[without, component]


class Chains(Generic[Node]):
    """The nodes of a graph in chains, which are entered at the front and left at the end only, and which of them lead to which.

    Instructions are many, and most of them have one that follows; so questions about them are put to their chains.
    """

    def __init__(self, nodes: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]]) -> None:
        """`leads_to` gives only nodes that are among `nodes`."""
        behind = {node: tuple(dict.fromkeys(leads_to(node))) for node in nodes}
        entered = Counter(to for targets in behind.values() for to in targets)
        self._follower = {node: to[0] for node, to in behind.items() if len(to) == 1 and entered[to[0]] == 1}
        self._place: dict[Node, tuple[int, int]] = {}
        """By node its chain, and its place in that."""
        followers = set(self._follower.values())
        fronts = [node for node in behind if node not in followers]
        # What is left has no front: rings that nothing leads into.
        ends = [self._chained(front, number) for number, front in enumerate(fronts)]
        for node in behind:
            if node not in self._place:
                ends.append(self._chained(node, len(ends)))
        next_chains = [tuple(self._place[to][0] for to in behind[end]) for end in ends]
        self.paths: Reachability[int] = Reachability(range(len(ends)), next_chains.__getitem__)
        """Which chains lead to which."""

    def _chained(self, front: Node, number: int) -> Node:
        """Put a node and what follows it into the chain of a number; the end of that."""
        node: Node | None = front
        place = 0
        while node is not None and node not in self._place:
            self._place[node] = number, place
            end, place = node, place + 1
            node = self._follower.get(node)
        return end

    def leads(self, start: Node, end: Node) -> bool:
        """Whether a walk from `start`, which may have no step, comes to `end`."""
        (first, place), (last, there) = self._place[start], self._place[end]
        if first == last:
            return place <= there or self.paths.comes_back(first)
        return self.paths.leads(first, last)

    def comes_back(self, node: Node) -> bool:
        """Whether a walk of one step or more leads from a node to itself."""
        return self.paths.comes_back(self._place[node][0])

    def of(self, nodes: Iterable[Node]) -> frozenset[int]:
        """The chains that some nodes lie in. A walk that passes one node of a chain on its way back to it passes them all."""
        return frozenset(self._place[node][0] for node in nodes)
