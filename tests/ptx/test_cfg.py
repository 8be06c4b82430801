"""Basic blocks, dominators and loops: hand-drawn graphs, and random ones against definitions tried out by walking paths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memlane import ptx
from memlane.errors import PtxTypeError
from memlane.ptx import ControlFlow, Liveness
from tests.ptx.modules import CASES, kernel
from tests.steps import steps_of

DIAMOND = """
    setp.eq.s32 %p1, %r1, 0;
    @%p1 bra ELSE;
    mov.u32 %r2, 1;
    bra JOIN;
ELSE:
    mov.u32 %r2, 2;
JOIN:
    mov.u32 %r3, %r2;
    ret;
"""


def test_a_diamond() -> None:
    flow = ControlFlow(kernel(DIAMOND))
    assert flow.successors == ((2, 1), (3,), (3,), ())
    assert flow.predecessors == ((), (0,), (0,), (1, 2))
    assert flow.order == (0, 1, 2, 3)
    assert flow.immediate_dominators == (None, 0, 0, 0)
    assert flow.immediate_postdominators == (3, 3, 3, None)
    assert flow.back_edges == ()
    assert flow.loops == ()
    assert flow.blocks[2].labels == ("ELSE",)
    assert flow.blocks[3].labels == ("JOIN",)
    first, last = flow.blocks[0].instructions
    assert flow.blocks[0].terminator is last
    flat = list(flow.function.instructions())
    assert flat[flow.blocks[0].first] is first
    assert all(flat[block.first + at] is one for block in flow.blocks for at, one in enumerate(block.instructions))


def test_nested_loops_keep_their_bodies_together() -> None:
    flow = ControlFlow(
        kernel("OUTER: INNER: add.s32 %r1, %r1, 1; @%p1 bra INNER; mov.u32 %r2, 0; @%p2 bra OUTER; @!%p3 bra OUTER; mov.u32 %r3, 0; ret;")
    )
    assert flow.successors == ((0, 1), (0, 2), (0, 3), ())
    assert flow.order == (0, 1, 2, 3)
    assert flow.back_edges == ((0, 0), (1, 0), (2, 0))
    assert [(loop.head, loop.blocks) for loop in flow.loops] == [(0, frozenset({0, 1, 2}))]
    assert flow.immediate_postdominators == (1, 2, 3, None)


def test_the_body_of_a_loop_comes_before_what_is_behind_it() -> None:
    flow = ControlFlow(kernel("HEAD: @%p1 bra DONE; mov.u32 %r1, 1; bra HEAD; DONE: ret;"))
    assert flow.order == (0, 1, 2)
    assert flow.loops[0].blocks == {0, 1}


def test_guarded_exits_end_a_block_but_are_no_edge() -> None:
    for leave in ("exit", "ret", "trap"):
        flow = ControlFlow(kernel(f"mov.u32 %r1, 1; @%p1 {leave}; mov.u32 %r1, 2; ret;"))
        assert flow.successors == ((1,), ())
        assert flow.immediate_postdominators == (1, None)


def test_code_that_cannot_be_reached() -> None:
    flow = ControlFlow(kernel("bra END; mov.u32 %r1, 1; MIDDLE: bra MIDDLE; END: ret;"))
    assert flow.order == (0, 3)
    assert flow.rank == (0, -1, -1, 1)
    assert flow.immediate_dominators == (None, None, None, 0)
    assert flow.immediate_postdominators == (3, None, None, None)


def test_a_loop_that_never_ends_has_postdominators_all_the_same() -> None:
    flow = ControlFlow(kernel("@%p1 bra A; mov.u32 %r1, 1; A: mov.u32 %r1, 2; SPIN: bra SPIN;"))
    assert flow.immediate_postdominators == (2, 2, 3, None)


def test_an_indexed_branch_leads_to_its_whole_table() -> None:
    text = next(path for path in CASES if path.stem == "awkward").read_text()
    flow = ControlFlow(ptx.flatten_scopes(ptx.parse(text).kernels["kernel"]))
    branch = next(block.terminator for block in flow.blocks if block.terminator is not None and block.terminator.opcode == "brx")
    assert branch is not None
    at = {label: block.index for block in flow.blocks for label in block.labels}
    assert flow.targets(branch) == (at["$L__skip"], at["$L__end"])
    assert at["$L__skip"] == at["$L__twice"]


def test_bad_targets_and_bodies_are_refused() -> None:
    with pytest.raises(PtxTypeError, match="there is no label `nowhere` in `k`"):
        ControlFlow(kernel("bra nowhere;"))
    with pytest.raises(PtxTypeError, match="`T` is not a list of branch targets"):
        ControlFlow(kernel("T: brx.idx %r1, T;"))
    with pytest.raises(ValueError, match="flatten its scopes first"):
        ControlFlow(kernel("{ ret; }"))


def test_an_empty_body() -> None:
    flow = ControlFlow(kernel(""))
    assert (flow.blocks, flow.order, flow.immediate_postdominators) == ((), (), ())
    Liveness(flow)


graphs = st.integers(1, 9).flatmap(
    lambda size: st.lists(
        st.tuples(st.sampled_from(("fall", "goto", "branch", "exit")), st.integers(0, size - 1)), min_size=size, max_size=size
    )
)


def _text(graph: list[tuple[str, int]]) -> str:
    endings = {"fall": "", "goto": "bra L{};", "branch": "@%p1 bra L{};", "exit": "exit;"}
    blocks = [f"L{index}: mov.u32 %r1, {index}; {endings[kind].format(target)}" for index, (kind, target) in enumerate(graph)]
    return "\n".join(blocks) + "\nEND: ret;"


@given(graphs)
def test_dominators_by_definition(graph: list[tuple[str, int]]) -> None:
    flow = ControlFlow(kernel(_text(graph)))
    assert len(flow.blocks) == len(graph) + 1
    reachable = _reach(flow.successors, 0, None)
    assert set(flow.order) == reachable

    def dominators(block: int) -> set[int]:
        return {above for above in reachable - {block} if block not in _reach(flow.successors, 0, above)}

    for block in reachable:
        assert flow.immediate_dominators[block] == _nearest(dominators(block), dominators)
        assert {above for above in reachable if flow.dominates(above, block)} == dominators(block) | {block}


@given(graphs)
def test_postdominators_by_definition(graph: list[tuple[str, int]]) -> None:
    flow = ControlFlow(kernel(_text(graph)))
    reachable = _reach(flow.successors, 0, None)
    ends = {block for block in reachable if not flow.successors[block]}
    assume(all(ends & _reach(flow.successors, block, None) for block in reachable))  # else the definition says nothing

    def postdominators(block: int) -> set[int]:
        return {after for after in reachable - {block} if not ends & _reach(flow.successors, block, after)}

    for block in reachable:
        assert flow.immediate_postdominators[block] == _nearest(postdominators(block), postdominators)


@given(graphs)
def test_the_order_is_topological_but_for_back_edges_and_loops_close(graph: list[tuple[str, int]]) -> None:
    flow = ControlFlow(kernel(_text(graph)))
    for block in flow.order:
        for target in flow.successors[block]:
            assert flow.rank[target] > flow.rank[block] or (block, target) in flow.back_edges
    for loop in flow.loops:
        for block in loop.blocks:
            assert flow.dominates(loop.head, block)
            assert loop.head == block or loop.head in _reach(flow.successors, block, None)


def _reach(successors: tuple[tuple[int, ...], ...], start: int, without: int | None) -> set[int]:
    """Blocks reachable from `start` without going through `without`."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        block = waiting.pop()
        if block not in found and block != without:
            found.add(block)
            waiting.extend(successors[block])
    return found


def _nearest(candidates: set[int], beyond: Callable[[int], set[int]]) -> int | None:
    """The one of `candidates` beyond which all the others lie; they form a chain."""
    nearest = [candidate for candidate in candidates if candidates - {candidate} <= beyond(candidate)]
    assert len(nearest) == min(1, len(candidates))
    return nearest[0] if nearest else None


def test_the_work_for_a_kernel_grows_with_its_length_not_faster() -> None:
    """Four times the instructions in less than five times the steps; a quadratic algorithm would need sixteen times as many.

    Loops are left out: those of this kernel lie in one another, so that naming all of their blocks is quadratic in itself.
    """
    short, long = (_analysis_steps(length) for length in (600, 2400))
    assert 0 < long < 5 * short


def _analysis_steps(length: int) -> int:
    pieces = [
        f"L{index}: add.s32 %r1, %r1, {index}; xor.b32 %r2, %r1, %r2; setp.lt.s32 %p1, %r1, %r2; @%p1 bra L{max(0, index - 7)};"
        for index in range(length)
    ]
    function = kernel("\n".join(pieces) + "\nret;")

    def analyse() -> None:
        flow = ControlFlow(function)
        assert flow.immediate_dominators[-1] is not None
        assert flow.immediate_postdominators[0] == 1
        Liveness(flow)

    return steps_of(analyse)


def test_the_work_for_many_ways_to_one_label_grows_with_their_number() -> None:
    def analyse(exits: int) -> None:
        flow = ControlFlow(kernel("@%p1 bra EXIT;\n" * exits + "EXIT: ret;"))
        assert flow.immediate_dominators[-1] == 0
        assert flow.dominates(0, exits)
        assert flow.immediate_postdominators[0] == exits

    short, long = (steps_of(lambda exits=exits: analyse(exits)) for exits in (300, 1200))
    assert 0 < long < 5 * short


# -- liveness ------------------------------------------------------------------------------------------------------------------


def test_liveness_of_a_diamond() -> None:
    live = Liveness(ControlFlow(kernel(DIAMOND)))
    assert live.live_in(0) == {"%r1"}
    assert live.live_in(1) == live.live_in(2) == frozenset()
    assert live.live_out(1) == live.live_in(3) == {"%r2"}
    assert live.live_out(3) == frozenset()


def test_a_guarded_write_leaves_the_old_value_live() -> None:
    live = Liveness(ControlFlow(kernel("bra A; A: @%p1 mov.u32 %r1, 1; st.shared.u32 [%r2], %r1; ret;")))
    assert live.live_in(1) == {"%p1", "%r1", "%r2"}


def test_a_loop_carries_its_registers() -> None:
    live = Liveness(ControlFlow(kernel("mov.u32 %r1, 0; L: add.s32 %r1, %r1, %r2; setp.lt.s32 %p1, %r1, 9; @%p1 bra L; ret;")))
    assert live.live_in(0) == {"%r2"}
    assert live.live_in(1) == live.live_out(0) == {"%r1", "%r2"}


@given(graphs, st.lists(st.sampled_from(("", "mov.u32 %r5, %r6;", "mov.u32 %r6, 1;", "@%p2 mov.u32 %r6, %r5;")), min_size=9, max_size=9))
def test_liveness_by_walking_every_path(graph: list[tuple[str, int]], extra: list[str]) -> None:
    lines = _text(graph).split("\n")
    text = "\n".join(f"{line.partition(';')[0]}; {more} {line.partition(';')[2]}" for line, more in zip(lines[:-1], extra, strict=False))
    flow = ControlFlow(kernel(text + "\n" + lines[-1]))
    live = Liveness(flow)
    for block in range(len(flow.blocks)):
        for name in ("%r5", "%r6"):
            assert (name in live.live_in(block)) == _read_before_written(flow, block, name)


def _read_before_written(flow: ControlFlow, start: int, name: str) -> bool:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        block = waiting.pop()
        if block in seen:
            continue
        seen.add(block)
        for instruction in flow.blocks[block].instructions:
            text = ptx.instruction_text(instruction)
            if text.endswith(f", {name};"):
                return True
            if text.startswith(f"mov.u32 {name},"):
                break
        else:
            waiting.extend(flow.successors[block])
    return False
