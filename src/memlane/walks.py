"""Walks over graphs, which are given as a function from a node to those that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


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
