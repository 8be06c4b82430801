"""Walk graphs given as a function from a node to its successors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)
State = TypeVar("State")


def reachable(starts: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]], without: Collection[Node] = ()) -> set[Node]:
    """Return the nodes reachable from `starts`, including these, along paths that never enter `without`."""
    found: set[Node] = set()
    work = list(starts)
    while work:
        node = work.pop()
        if node not in found and node not in without:
            found.add(node)
            work.extend(leads_to(node))
    return found


class NoFixpointError(RuntimeError):
    """Raised when a fixpoint iteration exceeds its bound, which indicates a bug in the analysis."""


def bounded_rounds(analysis: str, most: int) -> Iterator[int]:
    """Count the iterations of a fixpoint computation. Raises UnsettledError if more than `most` begin.

    `most` must bound the iterations of a correct analysis, by the number of possible changes.
    """
    yield from range(most)
    raise NoFixpointError(
        f"memlane could not determine {analysis}: no convergence after {most:,} rounds; this is a bug in memlane; please report it with "
        "the kernel"
    )


def solve_forward(
    analysis: str,
    starts: Mapping[int, State],
    leads_to: Callable[[int], Iterable[int]],
    through: Callable[[int, State], State],
    joined: Callable[[State, State], State | None],
    most: int,
) -> dict[int, State]:
    """Return the state before each node: a forward dataflow analysis, iterated to a fixpoint.

    `starts` gives the state before some nodes, from which all others are reached. `through` is the transfer function of a node; `joined`
    merges an arriving state into a node's state, or returns None if it adds nothing. Nodes are taken in the order of their numbers, so that
    most are visited once, with all predecessors, if numbers follow control flow. Raises UnsettledError after `most` steps: each node is
    visited once, and again whenever its state changes, so the sum of possible changes bounds them.
    """
    before = dict(starts)
    work = sorted(before)
    waiting = set(work)
    steps = bounded_rounds(analysis, most)
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
    """Return the reachable nodes in post-order of a depth-first search, without recursion."""
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
    """Return the strongly connected components in topological order: each before those that it leads to.

    This is Kosaraju's algorithm, as in Aho, Hopcroft and Ullman, "Data Structures and Algorithms", 1983.
    """
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


def union_of_reachable(starts: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]], own: Callable[[Node], int]) -> dict[Node, int]:
    """Return, for each reachable node, the union of the bit sets `own` of all nodes reachable from it, itself included."""
    found: dict[Node, int] = {}
    for component in reversed(components(starts, leads_to)):
        union = 0
        for node in component:
            union |= own(node)
            for to in leads_to(node):
                union |= found.get(to, 0)
        found.update(dict.fromkeys(component, union))
    return found


def on_every_path(start: Node, leads_to: Callable[[Node], Iterable[Node]], leaves: Callable[[Node], bool]) -> set[Node]:
    """Return the nodes on every path from `start` to a node that `leaves`. Nodes on cycles are left out.

    In topological order of the components, a node qualifies if no edge leads from before it to after it.
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
    """Yield the positions of the bits that are set, ascending."""
    for place, byte in enumerate(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        while byte:
            lowest = byte & -byte
            yield 8 * place + lowest.bit_length() - 1
            byte ^= lowest


class Reachability(Generic[Node]):
    """Reachability between the nodes of a graph, computed once for the whole graph.

    Nodes that reach each other form a strongly connected component. Each component has the set of the components that it reaches as the
    bits of one integer, so a query costs a shift.
    """

    def __init__(self, nodes: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]]) -> None:
        """Compute the components. `leads_to` must return only nodes among `nodes`."""
        self._leads_to = leads_to
        self._component_of: dict[Node, int] = {}
        self._members: list[set[Node]] = []
        """Nodes of each component; each component has a larger number than those that it leads to."""
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
        """Return whether `end` is reachable from `start`, by a path of any length including 0."""
        return bool(self._reached[self._component_of[start]] >> self._component_of[end] & 1)

    def bit(self, node: Node) -> int:
        """Return the bit of a node in node sets, which all nodes of its component share."""
        return 1 << self._component_of[node]

    def reached(self, start: Node) -> int:
        """Return the nodes reachable from `start`, itself included, as a bit set."""
        return self._reached[self._component_of[start]]

    def component(self, node: Node) -> frozenset[Node]:
        """Return the nodes of a node's strongly connected component."""
        return frozenset(self._members[self._component_of[node]])

    def sources(self, bits: int) -> Iterator[Node]:
        """Yield few nodes that together reach all nodes of a bit set; if the set is closed under successors, they reach no others."""
        while bits:
            first = bits.bit_length() - 1  # no component with a smaller number leads to it
            yield next(iter(self._members[first]))
            bits &= ~self._reached[first]

    def is_on_cycle(self, node: Node, without: frozenset[Node] = frozenset()) -> bool:
        """Return whether a path of at least one step leads from a node to itself without entering `without`."""
        component = self._component_of[node]
        members = self._members[component]
        if node in without or (len(members) == 1 and node not in self._leads_to(node)):
            return False
        inside = without & members if without else without
        return not inside or node in self._cycles(component, inside)

    def _cycles(self, component: int, without: frozenset[Node]) -> frozenset[Node]:
        """Return the nodes of a component that lie on cycles after removing `without`."""
        if (without, component) not in self._around:
            left = self._members[component] - without

            def leads_to(node: Node) -> list[Node]:
                return [to for to in self._leads_to(node) if to in left]

            found = components(left, leads_to)
            cycles = (cycle for cycle in found if len(cycle) > 1 or any(node in leads_to(node) for node in cycle))
            self._around[without, component] = frozenset[Node]().union(*cycles)
        return self._around[without, component]


class Chains(Generic[Node]):
    """The nodes of a graph grouped into chains, entered only at the front and left only at the end, and reachability between them.

    Most instructions have a single successor, so queries about them are answered by their chains.
    """

    def __init__(self, nodes: Iterable[Node], leads_to: Callable[[Node], Iterable[Node]]) -> None:
        """Build the chains. `leads_to` must return only nodes among `nodes`."""
        behind = {node: tuple(dict.fromkeys(leads_to(node))) for node in nodes}
        entered = Counter(to for targets in behind.values() for to in targets)
        self._follower = {node: to[0] for node, to in behind.items() if len(to) == 1 and entered[to[0]] == 1}
        self._place: dict[Node, tuple[int, int]] = {}
        """Node -> its chain, and its position there."""
        followers = set(self._follower.values())
        fronts = [node for node in behind if node not in followers]
        # The remaining nodes have no front: cycles without an entry.
        ends = [self._chained(front, number) for number, front in enumerate(fronts)]
        for node in behind:
            if node not in self._place:
                ends.append(self._chained(node, len(ends)))
        next_chains = [tuple(self._place[to][0] for to in behind[end]) for end in ends]
        self.paths: Reachability[int] = Reachability(range(len(ends)), next_chains.__getitem__)
        """Reachability between chains."""

    def _chained(self, front: Node, number: int) -> Node:
        """Put a node and its followers into chain `number`; return the last one."""
        node: Node | None = front
        place = 0
        while node is not None and node not in self._place:
            self._place[node] = number, place
            end, place = node, place + 1
            node = self._follower.get(node)
        return end

    def leads(self, start: Node, end: Node) -> bool:
        """Return whether `end` is reachable from `start`, by a path of any length including 0."""
        (first, place), (last, there) = self._place[start], self._place[end]
        if first == last:
            return place <= there or self.paths.is_on_cycle(first)
        return self.paths.leads(first, last)

    def is_on_cycle(self, node: Node) -> bool:
        """Return whether a path of at least one step leads from a node to itself."""
        return self.paths.is_on_cycle(self._place[node][0])

    def of(self, nodes: Iterable[Node]) -> frozenset[int]:
        """Return the chains of some nodes. A cycle through one node of a chain passes all of them."""
        return frozenset(self._place[node][0] for node in nodes)
