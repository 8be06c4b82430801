"""Walks over graphs against what matrices of the same graphs say."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.walks import post_order, reachable

GRAPHS = [(nodes, edges, seed) for nodes in (1, 2, 7, 20) for edges in (0, nodes, 3 * nodes) for seed in range(5)]


def graph(nodes: int, edges: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    found: list[list[int]] = [[] for _ in range(nodes)]
    for start, end in random.integers(nodes, size=(edges, 2)).tolist():
        found[start].append(end)
    return found


def closure(successors: list[list[int]], without: set[int]) -> np.ndarray:
    """[i, j]: whether there is a path from i to j that enters nothing of `without`, itself a path."""
    nodes = len(successors)
    steps = np.eye(nodes, dtype=np.int64)
    for start, targets in enumerate(successors):
        steps[start, targets] = 1
    steps[:, list(without)] = 0
    paths = steps.copy()
    for _ in range(nodes):
        paths = np.minimum(paths @ steps, 1)
    return paths > 0


@pytest.mark.parametrize(("nodes", "edges", "seed"), GRAPHS)
def test_what_is_reachable(nodes: int, edges: int, seed: int) -> None:
    successors, without = graph(nodes, edges, seed), set(range(1, nodes, 5))
    paths = closure(successors, without)
    for start in range(nodes):
        expected = set() if start in without else set(np.flatnonzero(paths[start]).tolist())
        assert reachable((start,), successors.__getitem__, without) == expected
        left = [[target for target in targets if target not in without] for targets in successors]
        assert set(post_order({start} - without, left.__getitem__)) == expected
    assert reachable((), successors.__getitem__) == set()


@pytest.mark.parametrize(("nodes", "edges", "seed"), GRAPHS)
def test_in_post_order_what_a_node_leads_to_stands_before_it_unless_it_leads_back(nodes: int, edges: int, seed: int) -> None:
    successors = graph(nodes, edges, seed)
    paths = closure(successors, set())
    order = post_order(range(nodes), successors.__getitem__)
    assert sorted(order) == list(range(nodes))
    place = {node: number for number, node in enumerate(order)}
    for start, targets in enumerate(successors):
        for target in targets:
            assert place[target] < place[start] or paths[target, start]


def test_targets_are_walked_in_their_order() -> None:
    assert post_order("a", {"a": "bc", "b": "d", "c": "d", "d": ""}.__getitem__) == ["d", "b", "c", "a"]
    assert post_order("a", {"a": "cb", "b": "d", "c": "d", "d": ""}.__getitem__) == ["d", "c", "b", "a"]
