"""Which branches may part the lanes of a warp, against what the kernels say by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.ptx import ControlFlow, Liveness, flatten_scopes
from memlane.ptx.divergence import blocks_with_diverged_iterations, diverging_branches
from memlane.ptx.ir import Instruction
from memlane.ptx.registers import registers_read, registers_written
from tests.instrument.kernels import kernel
from tests.steps import steps_of

HEAD = ".reg .u32 %i, %n, %k, %v; .reg .u64 %a, %o; .reg .pred %p, %q; ld.param.u64 %a, [p];"


def diverging(body: str) -> frozenset[int]:
    return diverging_branches(ControlFlow(flatten_scopes(kernel(f"{HEAD} {body}").kernels["k"])))


@pytest.mark.parametrize(
    ("condition", "varies"),
    [
        ("mov.u32 %n, %ctaid.x;", False),
        ("mov.u32 %n, %ntid.x;", False),
        ("mov.u32 %n, %tid.y;", True),
        ("mov.u32 %n, %laneid;", True),
        ("mov.u32 %n, %clock;", True),
        ("ld.global.u32 %n, [%a];", False),
        ("ld.volatile.global.u32 %n, [%a];", True),
        ("ld.u32 %n, [%a];", True),
        ("mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %o, %o, %a; ld.global.u32 %n, [%o];", True),
        ("atom.global.add.u32 %n, [%a], 1;", True),
        ("mov.u32 %i, %tid.x; setp.eq.u32 %p, %i, 0; mov.u32 %n, 1; @%p mov.u32 %n, 2;", True),
        ("addc.u32 %n, 1, 2;", True),
    ],
)
def test_where_a_condition_comes_from(condition: str, varies: bool) -> None:
    assert diverging(f"{condition} setp.eq.u32 %q, %n, 3; @%q bra done; st.global.u32 [%a], %n; done: ret;") == ({0} if varies else set())


LOOP = """
    mov.u32 %k, 0;
again: add.u32 %k, %k, 1; setp.lt.u32 %q, %k, {turns}; @%q bra again;
    setp.eq.u32 %q, %k, 5; @%q bra done; ret;
done: ret;
"""


def test_what_a_loop_counts_is_uniform_inside_and_may_vary_behind() -> None:
    assert diverging(LOOP.replace("{turns}", "7")) == set()
    assert diverging("mov.u32 %n, %tid.x;" + LOOP.replace("{turns}", "%n")) == {1, 2}


def test_values_that_lanes_bring_along_from_two_ways() -> None:
    """Only the constants differ; which of them a lane has depends on its way."""
    ways = "setp.eq.u32 %q, %n, 0; mov.u32 %v, 1; @%q bra join; mov.u32 %v, 2; join: setp.eq.u32 %q, %v, 1; @%q bra done; ret; done: ret;"
    assert diverging("mov.u32 %n, %tid.x;" + ways) == {0, 2}
    assert diverging("mov.u32 %n, %ctaid.x;" + ways) == set()


def test_lanes_that_left_bring_nothing_along() -> None:
    """A guard at the start, as most kernels have, does not make the loops behind it vary."""
    guard = "mov.u32 %n, %tid.x; setp.gt.u32 %p, %n, 9; @%p bra done;"
    assert diverging(guard + LOOP.replace("{turns}", "7")) == {0}


# -- against the definition ----------------------------------------------------------------------------------------------------------

lines = st.lists(
    st.one_of(
        st.sampled_from(["mov.u32 %i, %tid.x;", "@%q mov.u32 %n, 1;", "ld.global.u32 %v, [%a];"]),
        st.tuples(*[st.sampled_from("inkv")] * 3).map("add.u32 %{0[0]}, %{0[1]}, %{0[2]};".format),
        st.tuples(st.sampled_from("pq"), *[st.sampled_from("inkv")] * 2).map("setp.eq.u32 %{0[0]}, %{0[1]}, %{0[2]};".format),
    ),
    max_size=3,
)
label = st.integers(0, 7).map("L{}".format)
ends = st.one_of(
    st.tuples(st.sampled_from("pq"), label).map("@%{0[0]} bra {0[1]};".format),
    st.lists(label, min_size=1, max_size=3).map(lambda to: f"T: .branchtargets {', '.join(to)}; brx.idx %n, T;"),
    label.map("bra {};".format),
    st.sampled_from(["", "@%p ret;", "ret;"]),
)


@given(st.lists(st.tuples(lines, ends), min_size=8, max_size=8))
def test_branches_of_any_graph_diverge_as_defined(blocks: list[tuple[list[str], str]]) -> None:
    """The walks of the definition are made for each branch anew."""
    text = "\n".join(f"L{number}: {' '.join(inside)} {end.replace('T', f'T{number}')}" for number, (inside, end) in enumerate(blocks))
    flow = ControlFlow(flatten_scopes(kernel(f"{HEAD} {text} ret;").kernels["k"]))
    live = Liveness(flow)
    instructions = [one for block in flow.blocks for one in block.instructions]
    varying, diverging, known = {"%i"} & {name for one in instructions for name in _from_thread(one)}, set[int](), (-1, -1)
    while known != (len(varying), len(diverging)):
        known = len(varying), len(diverging)
        varying |= {name for one in instructions if varying & set(registers_read(one)) for name in registers_written(one)}
        for block in flow.blocks:
            sides = flow.successors[block.index]
            if len(sides) > 1 and block.terminator is not None and varying & set(registers_read(block.terminator)):
                diverging.add(block.index)
                between = set[int]().union(*(flow.reachable(side, flow.immediate_postdominators[block.index]) for side in sides))
                written = {name for number in between for one in flow.blocks[number].instructions for name in registers_written(one)}
                reached = [flow.reachable(side) for side in sides]
                both = {number for number in range(len(flow.blocks)) if sum(number in one for one in reached) > 1}
                varying |= {name for name in written if any(name in live.live_in(number) for number in both)}
    assert diverging_branches(flow) == diverging


def _from_thread(one: Instruction) -> tuple[str, ...]:
    return registers_written(one) if "%tid" in str(one) else ()


# -- how the work grows --------------------------------------------------------------------------------------------------------------

SHAPES = {
    "early exits": ("", "add.u32 %n, %n, {0}; setp.eq.u32 %q, %n, 9; @%q bra DONE; mov.u32 %v, %n;", "DONE: mov.u32 %k, %v; ret;"),
    "ways back": ("AGAIN:", "add.u32 %n, %n, {0}; setp.eq.u32 %q, %n, 9; @%q bra AGAIN;", "mov.u32 %k, %n; ret;"),
    "ifs": ("", "setp.eq.u32 %q, %n, {0}; @%q bra L{0}; mov.u32 %n, {0}; L{0}: add.u32 %v, %v, %n;", "ret;"),
    "loops": ("", "L{0}: add.u32 %n, %n, 1; setp.eq.u32 %q, %n, %v; @%q bra L{0}; @!%q bra L{0};", "ret;"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_number_of_branches(shape: str) -> None:
    """Four times as many in less than six times the steps; walks of each branch would need sixteen times as many."""
    first, each, last = SHAPES[shape]
    steps = []
    for number in (100, 400):
        body = "\n".join(each.format(one) for one in range(number))
        flow = ControlFlow(flatten_scopes(kernel(f"{HEAD} mov.u32 %n, %tid.x; {first} {body} {last}").kernels["k"]))
        steps.append(steps_of(lambda flow=flow: (diverging_branches(flow), blocks_with_diverged_iterations(flow))))
        assert len(diverging_branches(flow)) >= number
    assert 0 < steps[1] < 6 * steps[0]
