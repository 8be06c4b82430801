"""Walks over graphs against what matrices of the same graphs say."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.walks import (
    Chains,
    NoFixpointError,
    Reachability,
    bounded_rounds,
    components,
    on_every_path,
    positions,
    post_order,
    reachable,
    solve_forward,
    union_of_reachable,
)

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
def test_what_no_walk_avoids(nodes: int, edges: int, seed: int) -> None:
    """Without such a node no walk comes to the last one, or to any third one."""
    successors, leaving = graph(nodes, edges, seed), {*range(0, nodes, 3), nodes - 1}
    reached = np.flatnonzero(closure(successors, set())[0])
    on_circles = {node for node in range(nodes) if any(closure(successors, set())[target, node] for target in successors[node])}
    expected = {
        node
        for node in reached.tolist()
        if node not in on_circles and not leaving & (reachable((0,), successors.__getitem__, {node}) if node else set())
    }
    comes_out = bool(leaving & set(reached.tolist()))
    assert on_every_path(0, successors.__getitem__, leaving.__contains__) == (expected if comes_out else set())


@pytest.mark.parametrize(("nodes", "edges", "seed"), GRAPHS)
def test_what_flows_through_a_graph(nodes: int, edges: int, seed: int) -> None:
    """Each node adds its number; what arrives are the nodes that lead there."""
    successors, starts = graph(nodes, edges, seed), {0, nodes - 1}
    paths = closure(successors, set())
    steps = np.zeros((nodes, nodes), dtype=bool)
    for start, targets in enumerate(successors):
        steps[start, targets] = True
    reached = {node for node in range(nodes) if any(paths[start, node] or start == node for start in starts)}
    behind = {
        node: {other for other in reached if any(step and paths[to, node] for to, step in enumerate(steps[other]))} for node in reached
    }

    def joined(one: frozenset[int], other: frozenset[int]) -> frozenset[int] | None:
        return None if other <= one else one | other

    empty = frozenset[int]()
    found = solve_forward(
        "a", dict.fromkeys(starts, empty), successors.__getitem__, lambda node, before: before | {node}, joined, nodes * (1 + nodes)
    )
    assert found == behind


def test_a_flow_that_does_not_end_is_an_error() -> None:
    with pytest.raises(NoFixpointError, match="could not determine what comes round: no convergence after 9 rounds"):
        solve_forward("what comes round", {0: 0}, lambda _: (0,), lambda _, before: before + 1, lambda _, new: new, 9)


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


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Graphs of up to 12 nodes, many of which have one successor only."""
    nodes = draw(st.integers(1, 12))
    target = st.integers(0, nodes - 1)
    following = st.one_of(st.just([]), target.map(lambda one: [one]), st.lists(target, max_size=3))
    return [[(node + 1) % nodes] if draw(st.booleans()) else draw(following) for node in range(nodes)]


@given(graphs(), st.sets(st.integers(0, 11)))
def test_reachability_worked_out_once_is_that_of_plain_walks(successors: list[list[int]], without: set[int]) -> None:
    nodes = range(len(successors))
    paths = Reachability(nodes, successors.__getitem__)
    for start, targets in enumerate(successors):
        expected = reachable((start,), successors.__getitem__)
        assert {end for end in nodes if paths.leads(start, end)} == expected
        assert {end for end in nodes if paths.bit(end) & paths.reached(start)} == expected
        assert paths.is_on_cycle(start) == (start in reachable(targets, successors.__getitem__))
        avoiding = start not in without and start in reachable(targets, successors.__getitem__, without)
        assert paths.is_on_cycle(start, frozenset(without)) == avoiding


@given(graphs())
def test_what_is_gathered_is_of_all_that_plain_walks_come_to(successors: list[list[int]]) -> None:
    nodes = range(len(successors))
    found = union_of_reachable((0,), successors.__getitem__, lambda node: 1 << node)
    assert found.keys() == reachable((0,), successors.__getitem__)
    for node, bits in found.items():
        assert set(positions(bits)) == reachable((node,), successors.__getitem__)
    paths = Reachability(nodes, successors.__getitem__)
    for node in nodes:
        members = reachable((node,), successors.__getitem__)
        assert paths.component(node) == {other for other in members if node in reachable((other,), successors.__getitem__)}
        for other in nodes:
            both = members & reachable((other,), successors.__getitem__)
            assert reachable(paths.sources(paths.reached(node) & paths.reached(other)), successors.__getitem__) == both


@given(st.sets(st.integers(0, 500)))
def test_positions_are_those_of_the_bits(numbers: set[int]) -> None:
    assert list(positions(sum(1 << number for number in numbers))) == sorted(numbers)


@given(graphs(), st.sets(st.integers(0, 11)))
def test_chains_lead_where_plain_walks_lead(successors: list[list[int]], without: set[int]) -> None:
    nodes = range(len(successors))
    chains = Chains(nodes, successors.__getitem__)
    avoided = chains.of(without.intersection(nodes))
    for start, targets in enumerate(successors):
        assert {end for end in nodes if chains.leads(start, end)} == reachable((start,), successors.__getitem__)
        assert chains.is_on_cycle(start) == (start in reachable(targets, successors.__getitem__))
        if start not in without:
            (chain,) = chains.of((start,))
            avoiding = start in reachable(targets, successors.__getitem__, without)
            assert chains.paths.is_on_cycle(chain, without=avoided) == avoiding


@given(graphs())
def test_components_lead_to_each_other_and_come_before_what_they_lead_to(successors: list[list[int]]) -> None:
    reached = [reachable((node,), successors.__getitem__) for node in range(len(successors))]
    found = components(range(len(successors)), successors.__getitem__)
    assert sorted(node for one in found for node in one) == list(range(len(successors)))
    for one in found:
        assert all({other for other in reached[node] if node in reached[other]} == one for node in one)
    for before, after in combinations(found, 2):
        assert not reached[min(after)] & before


def test_what_does_not_settle_is_said_and_does_not_hang() -> None:
    counted = []
    with pytest.raises(
        NoFixpointError,
        match=r"^memlane could not determine the levels of k: no convergence after 1,000 rounds; this is a bug in memlane",
    ):
        counted.extend(bounded_rounds("the levels of k", 1_000))
    rounds = bounded_rounds("the levels of k", 3)
    assert [next(rounds) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(NoFixpointError):
        next(rounds)
