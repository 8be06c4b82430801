"""How far groups of lanes go before they are together again, against walks that are made for each group anew, and how the work grows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.lane_groups import LaneGroups, Start, barriers_in
from memlane.audit.reconvergence import Reconvergence
from memlane.walks import reachable
from tests.instrument.kernels import kernel
from tests.sass.code import listing
from tests.steps import steps_of

label = st.integers(0, 9).map("`(.L_{})".format)
barrier = st.integers(0, 2).map("B{}".format)
lines = st.one_of(
    st.sampled_from(["NOP", "NOP", "EXIT", "@P0 EXIT", "YIELD", "WARPSYNC.ALL", "BMOV.32 B0, R1", "BMOV.32 R1, B1"]),
    label.map("BRA {}".format),
    label.map("@P0 BRA {}".format),
    st.tuples(barrier, label).map("BSSY {0[0]}, {0[1]}".format),
    barrier.map("BSYNC {}".format),
    barrier.map("@P1 BSYNC {}".format),
    barrier.map("BREAK {}".format),
    barrier.map("@P1 BREAK {}".format),
)


@given(st.lists(lines, min_size=10, max_size=10), st.lists(st.tuples(st.integers(0, 9), st.frozensets(st.integers(0, 2))), max_size=3))
def test_groups_go_as_far_as_walks_of_each(text: list[str], starts: list[Start]) -> None:
    code = AssembledModule(
        kernel("ret;"), listing(("k", "\n".join(f".L_{at}:\n- - {line}" for at, line in enumerate(text)) + "\n- - EXIT"))
    )
    flow = code.flow
    inside = list(dict.fromkeys(one for at in (0, *(at for at, _ in starts)) for one in reachable((at,), flow.successors.__getitem__)))
    inside.sort(key=lambda node: node != 0)
    groups = LaneGroups(flow.nodes, flow.successors.__getitem__, inside, starts)
    assert [set(groups.instructions(one)) for one in groups.reached(starts)] == walked(code, starts)
    for node in inside:
        assert node in groups.instructions(groups.containing([node]))


def walked(code: AssembledModule, starts: Sequence[Start]) -> list[set[int]]:
    """The instructions that each group comes to: those that begin at `starts`, and then those that waited at barriers that others left."""
    nodes, successors = code.flow.nodes, code.flow.successors

    def left(node: int) -> set[int]:
        if nodes[node].opcode == "YIELD":
            return set(range(16))
        leaves = nodes[node].opcode in ("BSSY", "BMOV") or (nodes[node].opcode == "BREAK" and nodes[node].guard is None)
        return set(barriers_in(nodes[node])) if leaves else set()

    def waits(state: Start) -> bool:
        return nodes[state[0]].opcode == "BSYNC" and barriers_in(nodes[state[0]])[0] in state[1]

    def onwards(state: Start) -> list[Start]:
        if waits(state) or nodes[state[0]].opcode == "WARPSYNC":
            return []
        return [(to, state[1] - left(state[0])) for to in successors[state[0]]]

    groups, done = [reachable((start,), onwards) for start in starts], set[int]()
    while True:
        states = set[Start]().union(*groups)
        now = sorted({number for node, awaited in states for number in left(node) & awaited} - done)
        if not now:
            return [{node for node, _ in group} for group in groups]
        done.update(now)
        for number in now:
            there = [state for state in states if waits(state) and barriers_in(nodes[state[0]]) == [number]]
            behind = [(to, awaited - {number}) for node, awaited in there for to in successors[node]]
            groups += [reachable(behind, onwards)] if behind else []


SHAPES = {
    "early exits": ("BSSY B0, `(.L_end)", "ST R{0}; @P0 BRA `(.L_out)", ".L_out:; ST R0; BSYNC B0; .L_end:; EXIT"),
    "breaks": (
        "BSSY B0, `(.L_end)",
        "@P0 BRA `(.L_{0}); BREAK B0; BRA `(.L_out); .L_{0}:; ST R{0}",
        "BSYNC B0; .L_end:; ST R0; .L_out:; ST R1; EXIT",
    ),
    "ways back": ("BSSY B0, `(.L_end); .L_again:", "ST R{0}; @P0 BRA `(.L_again)", "BSYNC B0; .L_end:; EXIT"),
    "ifs": ("BSSY B0, `(.L_end)", "@P0 BRA `(.L_{0}); ST R{0}; .L_{0}:", "BSYNC B0; .L_end:; EXIT"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_number_of_branches(shape: str) -> None:
    """Four times as many in less than six times the steps; walks from each branch would need sixteen times as many."""
    first, each, last = SHAPES[shape]
    steps = []
    for number in (100, 400):
        body = "; ".join((first, *(each.format(one) for one in range(number)), last)).split(";")
        text = "\n".join(line.strip() if line.endswith(":") else f"- - {line.strip()}" for line in body)
        code = AssembledModule(kernel("ret;"), listing(("k", text.replace("ST R", "STG.E desc[UR4][R2.64], R"))))
        found = Reconvergence(code)
        steps.append(steps_of(lambda found=found: found.diverged("k")))
        assert found.diverged("k")
    assert 0 < steps[1] < 6 * steps[0]


@pytest.mark.parametrize(("source", "apart"), [("LDC R3, c[0x0][0x210]", False), ("S2R R3, SR_TID.X", True)])
def test_a_condition_may_come_from_many_instructions(source: str, apart: bool) -> None:
    """Each depends on the one before, and on two registers: neither as deep as there are instructions nor twice as much work for each."""
    chain = "\n".join(("- - FFMA R3, R3, R4, R3", "- - FADD R4, R3, R4")[turn % 2] for turn in range(4_000))
    back = "RET.ABS.NODEC R20 0x0"
    end = f"FSETP.GT.AND P0, PT, R3, R4, PT\n- - @P0 BRA `(.L_a)\n- - {back}\n.L_a:\n- - NOP\n- - {back}"
    function = f"- - {source}\n- - MOV R4, R3\n{chain}\n- - {end}"
    code = AssembledModule(
        kernel("ret;"), listing(("k", "- - CALL.ABS.NOINC `(f)\n- - STG.E desc[UR4][R2.64], R3\n- - EXIT"), ("f", function))
    )
    assert bool(Reconvergence(code).diverged("k")) == apart
