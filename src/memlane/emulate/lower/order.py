"""Orders segments: loops contiguous and before what follows them, both sides of a branch before their join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def nested_order(successors: Sequence[Sequence[int]], entry: int) -> list[int]:
    """Return the nodes reachable from `entry`, with every strongly connected component contiguous and, without the edges into its head,
    ordered likewise.

    This is the weak topological order of Bourdoncle (1993), flat.
    """
    result: list[int] = []
    work: list[tuple[list[int], set[int], int]] = [([entry], set(range(len(successors))), -1)]
    while work:
        (head,), allowed, banned = work.pop()
        parts = list(_components(successors, head, allowed, banned))
        if len(parts) == 1 and len(parts[0]) == 1:
            result.append(parts[0][0])
            continue
        for part in parts:
            # A component whose head is the node we came from has lost its back edges: it falls into smaller components next time.
            first = part[0]
            work.append(([first], set(part) if len(part) > 1 else {first}, first))
        # Components come out in reverse order, as the stack needs them.
    return result


def _components(successors: Sequence[Sequence[int]], head: int, allowed: set[int], banned: int) -> Iterator[list[int]]:
    """Return the strongly connected components reachable from `head` inside `allowed`, ignoring edges into `banned`, in reverse topological
    order; each component begins with the node reached first. (Tarjan's algorithm without recursion.)"""
    order: dict[int, int] = {head: 0}
    low = {head: 0}
    stack, on_stack = [head], {head: 0}
    """Nodes whose component is not complete, each with its index in the stack."""
    path: list[tuple[int, Iterator[int]]] = [(head, iter(successors[head]))]
    while path:
        node, rest = path[-1]
        for target in rest:
            if target not in allowed or target == banned:
                continue
            if target not in order:
                order[target] = low[target] = len(order)
                on_stack[target] = len(stack)
                stack.append(target)
                path.append((target, iter(successors[target])))
                break
            if target in on_stack:
                low[node] = min(low[node], order[target])
        else:
            path.pop()
            if path:
                parent = path[-1][0]
                low[parent] = min(low[parent], low[node])
            if low[node] == order[node]:
                place = on_stack[node]
                part = stack[place:]
                del stack[place:]
                for one in part:
                    del on_stack[one]
                yield part
