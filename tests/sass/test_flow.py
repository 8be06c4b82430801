"""Control flow of listings written by hand, and of assembled code."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.sass import Flow, Register, Scoreboards, disassemble, has_variable_latency, waits_for
from memlane.sass import flow as flow_module
from memlane.walks import NoFixpointError
from tests.sass.code import EXAMPLES, breadth, listing, program


def flow(*functions: tuple[str, str]) -> Flow:
    return Flow(listing(*functions))


def test_branches_exits_and_falling_through() -> None:
    found = flow(
        ("k", "- - @P0 BRA `(.L_1)\n- - @!P1 EXIT\n- - BRA `(.L_1)\n- - NOP\n.L_1:\n- - BRA !P2, `(.L_2)\n- - EXIT\n.L_2:\n- - BRA `(.L_2)")
    )
    assert found.successors == ((4, 1), (2,), (4,), (4,), (6, 5), (), (6,))
    assert found.predecessors[4] == (0, 2, 3)


def test_a_diverged_warp_takes_either_way() -> None:
    assert flow(("k", "- - BRA.DIV UR4, `(.L_1)\n- - EXIT\n.L_1:\n- - EXIT")).successors[0] == (2, 1)


def test_convergence_leads_to_what_the_last_bssy_named() -> None:
    body = """
        - - BSSY B0, `(.L_a)
        - - @P0 BRA `(.L_x)
        - - NOP
        .L_x:
        - - BSYNC B0
        - - EXIT
        .L_a:
        - - BSSY B0, `(.L_b)
        - - BSYNC B0
        - - EXIT
        .L_b:
        - - EXIT
    """
    found = flow(("k", body))
    assert found.successors[3] == (5,)
    assert found.successors[6] == (8,)


def test_an_indirect_branch_goes_to_its_targets() -> None:
    found = flow(("k", '- - BRX R8 -0x120 (*"BRANCH_TARGETS .L_1,.L_2"*)\n.L_1:\n- - EXIT\n- - EXIT\n.L_2:\n- - EXIT'))
    assert found.successors[0] == (1, 3)


POINTERS = [
    ("k", "- - @P0 CALL.ABS.NOINC R6\n- - CALL.ABS.NOINC `(vprintf)\n- - EXIT"),
    ("f", "- - @P0 RET.ABS.NODEC R20 0x0\n- - RET.ABS.NODEC R20 0x0"),
    ("g", "- - CALL.ABS.NOINC R8\n- - RET.ABS.NODEC R20 0x0"),
]


def test_a_call_through_a_pointer_goes_to_every_function_that_returns() -> None:
    found = flow(*POINTERS)
    assert (set(found.successors[0]), set(found.successors[5])) == ({1, 3, 5}, {3, 5, 6})
    assert (set(found.successors[3]), set(found.successors[4]), set(found.successors[6])) == ({1, 4, 6}, {1, 6}, {1, 6})
    assert found.called == {0: {3, 4, 5, 6}, 5: {3, 4, 5, 6}}


def test_a_call_of_code_that_is_not_there_is_passed_over() -> None:
    found = flow(*POINTERS)
    assert found.successors[1] == (2,)
    assert [node for node in range(len(found.nodes)) if found.is_indirect_call(node)] == [0, 5]


def test_calls_return_behind_every_call_of_the_function() -> None:
    found = flow(
        ("f", "- - @P0 RET.ABS.NODEC R20 0x0\n- - RET.ABS.NODEC R20 0x0"),
        ("k", "- - CALL.ABS.NOINC `(f)\n- - NOP\n- - CALL.ABS.NOINC `(f)\n- - EXIT"),
    )
    assert found.successors == ((1, 3, 5), (3, 5), (0,), (4,), (0,), ())
    assert found.entries == {0, 2}
    assert (found.nodes_of("k"), found.entry("k")) == (range(2, 6), 2)


@pytest.mark.parametrize("path", [*EXAMPLES, None], ids=lambda path: "breadth" if path is None else path.stem)
def test_all_but_padding_is_reached(path: Path | None) -> None:
    """What the assembler left in the code can be reached, so an edge that is missing would show."""
    code = disassemble(breadth()) if path is None else program(path.read_text())
    found = Flow(code)
    reached, work = set(found.entries), list(found.entries)
    while work:
        for successor in found.successors[work.pop()]:
            if successor not in reached:
                reached.add(successor)
                work.append(successor)
    left = [one.text for node, one in enumerate(found.nodes) if node not in reached and one.opcode != "NOP"]
    # Behind the end of every function stands a branch to itself.
    assert all(text.startswith("BRA") for text in left)
    assert len(left) <= len(code.functions)


# -- waiting ----------------------------------------------------------------------------------------------------------------------


def waiting(body: str) -> Scoreboards:
    return Scoreboards(flow(("k", body)))


def test_unwaited_stops_at_the_wait() -> None:
    found = waiting("3 - LDG.E R2, desc[UR4][R4.64]\n- 1 NOP\n- - NOP\n- 3 IADD3 R3, R2, 0x1, RZ\n- - EXIT")
    assert found.unwaited(0) == {1, 2}


def test_one_path_without_a_wait_is_enough() -> None:
    found = waiting("0 - LDG.E R2, desc[UR4][R4.64]\n- - @P0 BRA `(.L_1)\n- 0 MOV R3, R2\n.L_1:\n- - CS2R R6, SR_CLOCKLO\n- - EXIT")
    assert 3 in found.unwaited(0)


def test_a_guard_does_not_lift_a_wait() -> None:
    assert waiting("0 - LDG.E R2, desc[UR4][R4.64]\n- 0 @P0 MOV R3, R2\n- - EXIT").unwaited(0) == frozenset()


@pytest.mark.parametrize(
    ("text", "scoreboards"),
    [
        ("DEPBAR.LE SB0, 0x0", {0}),
        ("DEPBAR.LE SB0, 0x1", set()),
        ("DEPBAR.LE SB5, 0x2, {4,3}", {3, 4}),
        ("DEPBAR {2,1}", {1, 2}),
        ("MOV R2, R3", set()),
    ],
)
def test_depbar(text: str, scoreboards: set[int]) -> None:
    (one,) = listing(("k", f"- - {text}")).functions["k"].instructions
    assert set(waits_for(one)) == scoreboards


@pytest.mark.parametrize(("count", "done"), [(0, [True, True, True]), (1, [True, True, False]), (2, [True, False, False])])
def test_fetches_complete_in_order(count: int, done: list[bool]) -> None:
    fetches = "5 - TEX.LL RZ, R{}, R8, R25, UR4, 0x0, 1D, 0x1\n"
    found = waiting(
        "".join(fetches.format(number) for number in (10, 12, 14)) + f"- - DEPBAR.LE SB5, 0x{count:x}\n- - CS2R R2, SR_CLOCKLO\n- - EXIT"
    )
    assert [4 not in found.unwaited(fetch) for fetch in range(3)] == done


def test_loads_do_not_complete_in_order() -> None:
    found = waiting("5 - LDG.E R2, desc[UR4][R4.64]\n5 - LDG.E R3, desc[UR4][R6.64]\n- - DEPBAR.LE SB5, 0x1\n- - EXIT")
    assert 3 in found.unwaited(0)


def test_the_last_of_a_pipe_speaks_for_those_before_it() -> None:
    found = waiting("- - LDS R2, [R4]\n1 - LDG.E R5, desc[UR4][R6.64]\n2 - LDS R3, [R4+0x4]\n- 1 NOP\n- 2 MOV R9, R2\n- - EXIT")
    assert found.unwaited(0) == {1, 2, 3}
    assert has_variable_latency(found.flow.nodes[0])
    assert not has_variable_latency(found.flow.nodes[4])


def test_nobody_speaks_for_a_load_from_global_memory() -> None:
    found = waiting("- - LDG.E R2, desc[UR4][R4.64]\n1 - LDG.E R5, desc[UR4][R6.64]\n- 1 MOV R9, R2\n- - EXIT")
    assert found.unwaited(0) == {1, 2, 3}


def test_raised_looks_back_to_the_last_wait() -> None:
    loads = "2 - LDG.E R2, desc[UR4][R4.64]\n- 2 NOP\n2 - LDG.E R3, desc[UR4][R4.64]\n1 - LDG.E R7, desc[UR4][R4.64]\n"
    found = waiting(f"{loads}- 2 MOV R8, R3\n- - EXIT")
    assert found.raised(4, 2) == {2}
    assert found.raised(4, 1) == {3}


R2 = Register("R", 2)


def test_definitions() -> None:
    found = waiting("- - MOV R2, R3\n- - @P0 MOV R2, R4\n- - IADD3 R5, R2, R2, RZ\n- - MOV R2, R7\n- - EXIT")
    assert found.definitions(2, R2) == {0, 1}
    assert found.definitions(4, R2) == {3}


def test_the_same_guard_hides_what_was_before() -> None:
    body = "- - CS2R R2, SR_CLOCKLO\n- - @P0 MOV R2, R4\n{}- - @P0 STG.E desc[UR4][R6.64], R2\n- - EXIT"
    assert waiting(body.format("")).definitions(2, R2) == {1}
    # Not if the predicate has changed in between.
    assert waiting(body.format("- - ISETP.NE.AND P0, PT, R9, RZ, PT\n")).definitions(3, R2) == {0, 1}


@pytest.mark.parametrize(
    ("between", "same"),
    [
        ("- - ISETP.NE.AND P0, PT, R9, RZ, PT\n- - ISETP.NE.AND P0, PT, R28.reuse, RZ, PT\n", True),
        ("- - ISETP.NE.AND P0, PT, R9, RZ, PT\n", False),
        ("- - ISETP.NE.AND P0, PT, R28, 0x1, PT\n", False),
        ("- - ISETP.EQ.AND P0, PT, R28, RZ, PT\n", False),
        ("- - @P1 ISETP.NE.AND P0, PT, R28, RZ, PT\n", False),
        ("- - IADD3 R28, R28, 0x1, RZ\n- - ISETP.NE.AND P0, PT, R28, RZ, PT\n", False),
        ("- - PLOP3.LUT P0, PT, P3, P4, PT, 0xa8, 0x0\n", False),
    ],
)
def test_a_predicate_that_is_made_again_is_the_same(between: str, same: bool) -> None:
    before = "- - CS2R R2, SR_CLOCKLO\n- - ISETP.NE.AND P0, PT, R28, RZ, PT\n- - @P0 MOV R2, R4\n"
    found = waiting(f"{before}{between}- - @P0 STG.E desc[UR4][R6.64], R2\n- - EXIT")
    store = len(found.flow.nodes) - 2
    assert found.definitions(store, R2) == ({2} if same else {0, 2})


def test_a_predicate_from_another_block_is_not_known() -> None:
    body = (
        "- - CS2R R2, SR_CLOCKLO\n- - ISETP.NE.AND P0, PT, R28, RZ, PT\n.L_1:\n- - @P0 MOV R2, R4\n- - ISETP.NE.AND P0, PT, R28, RZ, PT\n"
    )
    assert waiting(f"{body}- - @P0 STG.E desc[UR4][R6.64], R2\n- - @P1 BRA `(.L_1)\n- - EXIT").definitions(4, R2) == {0, 2}


def test_definitions_across_a_loop() -> None:
    found = waiting("- - MOV R2, R3\n.L_1:\n- - IADD3 R2, R2, 0x1, RZ\n- - @P0 BRA `(.L_1)\n- - EXIT")
    assert found.definitions(1, R2) == {0, 1}


def test_pairs_are_defined_by_their_first_register() -> None:
    found = waiting("0 - LDG.E.64 R2, desc[UR4][R4.64]\n- 0 MOV R9, R3\n- - EXIT")
    assert found.definitions(1, Register("R", 3)) == {0}


# -- definitions across calls -----------------------------------------------------------------------------------------------------

SLOW = "- - IADD3 R3, R4, 0x1, RZ\n- - RET.ABS.NODEC R20 0x0"
CALLER = """
    - - MOV R2, R8
    - - MOV R20, 32@lo((k + .L_x_0@srel))
    - - MOV R21, 32@hi((k + .L_x_0@srel))
    - - CALL.ABS.NOINC `(slow)
    .L_x_0:
    - - IADD3 R5, R2, R3, RZ
    - - MOV R2, R9
    - - MOV R20, 32@lo((k + .L_x_1@srel))
    - - MOV R21, 32@hi((k + .L_x_1@srel))
    - - CALL.ABS.NOINC `(slow)
    .L_x_1:
    - - IADD3 R5, R2, R3, RZ
    - - EXIT
"""


def held(caller: str, *functions: tuple[str, str]) -> list[set[str]]:
    """Behind each of the two calls: the instructions that may have written R2."""
    found = flow(("k", caller), *functions)
    known = Scoreboards(found)
    behind = [node for node in found.nodes_of("k") if found.nodes[node].opcode == "IADD3"]
    return [{found.nodes[one].text for one in known.definitions(node, R2)} for node in behind]


def test_what_a_function_leaves_alone_is_that_of_its_caller() -> None:
    assert held(CALLER, ("slow", SLOW)) == [{"MOV R2, R8"}, {"MOV R2, R9"}]


def test_what_a_function_writes_is_not() -> None:
    slow = SLOW.replace("IADD3 R3", "@P3 IADD3 R2")
    assert held(CALLER, ("slow", slow)) == [{"@P3 IADD3 R2, R4, 0x1, RZ", "MOV R2, R8", "MOV R2, R9"}] * 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("MOV R20, 32@lo((k + .L_x_1@srel))", "NOP"),
        ("MOV R20, 32@lo((k + .L_x_1@srel))", "@P0 MOV R20, 32@lo((k + .L_x_1@srel))"),
        ("MOV R20, 32@lo((k + .L_x_1@srel))", "MOV R20, 32@lo((k + .L_x_0@srel))"),
        ("MOV R21, 32@hi((k + .L_x_1@srel))", "MOV R21, 32@lo((k + .L_x_1@srel))"),
        ("MOV R20, 32@lo((k + .L_x_1@srel))", "MOV R20, 32@lo((k + .L_x_1@srel))\n- - IADD3.X R20, R20, R9, RZ"),
    ],
    ids=["missing", "guarded", "another", "halves", "changed"],
)
def test_another_return_address_leads_to_every_call(old: str, new: str) -> None:
    """Behind the call that hands it over; the other one is as it was."""
    assert held(CALLER.replace(old, new), ("slow", SLOW))[-1] == {"MOV R2, R8", "MOV R2, R9"}


@pytest.mark.parametrize(
    "slow",
    [SLOW.replace("R3", "R21"), SLOW.replace("RET.ABS.NODEC R20", "RET.ABS.NODEC R22"), f"- - CALL.ABS.NOINC R6 0x0\n{SLOW}"],
    ids=["written", "elsewhere", "unknown"],
)
def test_a_function_that_may_return_elsewhere_leads_to_every_call(slow: str) -> None:
    assert held(CALLER, ("slow", slow)) == [{"MOV R2, R8", "MOV R2, R9"}] * 2


def test_functions_that_call_functions() -> None:
    inner = "- - MOV {0}, R4\n- - RET.ABS.NODEC R30 0x0"
    outer = """
        - - MOV R30, 32@lo((slow + .L_x_2@srel))
        - - MOV R31, 32@hi((slow + .L_x_2@srel))
        - - CALL.ABS.NOINC `({})
        .L_x_2:
        - - RET.ABS.NODEC R20 0x0
    """
    assert held(CALLER, ("slow", outer.format("inner")), ("inner", inner.format("R3"))) == [{"MOV R2, R8"}, {"MOV R2, R9"}]
    assert held(CALLER, ("slow", outer.format("inner")), ("inner", inner.format("R2"))) == [{"MOV R2, R4"}] * 2
    # What calls itself is not followed.
    assert held(CALLER, ("slow", "- - @P0 RET.ABS.NODEC R20 0x0" + outer.format("slow"))) == [{"MOV R2, R8", "MOV R2, R9"}] * 2


def test_barriers_that_never_settle_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    body = ".L_1:\n- - BSSY B0, `(.L_2)\n- - NOP\n.L_2:\n- - BSYNC B0\n- - @P0 BRA `(.L_1)\n- - EXIT"
    assert flow(("k", body)).successors[2] == (2,)
    monkeypatch.setattr(flow_module, "_merged", lambda _, new: new)
    with pytest.raises(NoFixpointError, match="could not determine where lanes converge: no convergence after"):
        flow(("k", body))
