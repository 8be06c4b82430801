"""What launches of a plan read and write: derived from their PTX, declared, and compared with what they do."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadPlan
from memlane.launch import Report
from memlane.measure import Checker
from memlane.plan import Launch, Plan, PlanBuilder, Step, check, races
from memlane.plan.json import from_json, to_json
from memlane.ptx import parse
from memlane.targets import BoundPlan, run

H200 = Emulator(load("h200"))
ADD = parse("""
.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .u64 sum, .param .u64 one, .param .u64 other, .param .u32 count)
{
  .reg .b64 s, o, x, a, b, c, far; .reg .b32 i, n, v, w; .reg .pred p;
  ld.param.u64 s, [sum]; ld.param.u64 o, [one]; ld.param.u64 x, [other]; ld.param.u32 n, [count];
  mov.u32 i, %ctaid.x; mov.u32 v, %ntid.x; mov.u32 w, %tid.x; mad.lo.u32 i, i, v, w; setp.ge.u32 p, i, n; @p ret;
  mul.wide.u32 far, i, 4; add.s64 a, s, far; add.s64 b, o, far; add.s64 c, x, far;
  ld.global.u32 v, [b]; ld.global.u32 w, [c]; add.u32 v, v, w; st.global.u32 [a], v; ret;
}
.visible .entry bump(.param .u64 of) { .reg .b64 a; ld.param.u64 a, [of]; red.global.add.u32 [a], 1; ret; }
""")
LOADED = H200.load(ADD)
N = 64


def two_sums() -> Plan:
    """Two kernels on two queues that read one array and write another each."""
    b = PlanBuilder()
    shared, first, second = (b.array(name, N, "u4") for name in ("shared", "first", "second"))
    b.launch(LOADED["add"], 1, N, first, shared, shared, N)
    b.launch(LOADED["add"], 1, N, second, shared, shared, N, queue=1)
    return b.plan()


def launches(plan: Plan) -> list[Launch]:
    return [step.action for step in plan.steps if isinstance(step, Step) and isinstance(step.action, Launch)]


def test_two_kernels_that_only_read_a_buffer_may_run_at_once() -> None:
    plan = two_sums()
    assert [(one.reads_through, one.writes_through) for one in launches(plan)] == [((1, 2), (0,))] * 2
    assert races(plan) == []
    done = run(plan, {"shared": H200.array(np.arange(N, dtype="u4"))}, targets=[H200], modules=[ADD])
    for name in ("first", "second"):  # which are only written, so that nothing has to lie there before
        np.testing.assert_array_equal(np.asarray(done[name]), 2 * np.arange(N))


def test_what_was_derived_is_part_of_the_plan() -> None:
    """So a process that has only the JSON, or the pickle, checks the same."""
    plan = two_sums()
    for copy in (from_json(to_json(plan)), pickle.loads(pickle.dumps(plan))):
        assert copy == plan
        assert races(copy) == []


def test_a_kernel_by_reference_counts_as_reading_and_writing_all() -> None:
    plan = two_sums()
    (first, second) = [replace(one, reads_through=None, writes_through=None) for one in launches(plan)]
    with pytest.raises(BadPlan, match="reads and writes the same bytes of buffer 'shared'"):
        check(Plan((Step(first, 0, 0), Step(second, 0, 1))))
    b = PlanBuilder()
    b.launch(LOADED["add"].ref, 1, N, *(b.array(name, N, "u4") for name in "abc"), N)
    assert launches(b.plan())[0].reads_through is None


def test_a_writer_beside_a_reader_is_still_a_race() -> None:
    b = PlanBuilder()
    one, other = b.array("one", N, "u4"), b.array("other", N, "u4")
    b.launch(LOADED["add"], 1, N, one, other, other, N)
    b.launch(LOADED["bump"], 1, 1, other, queue=1)
    with pytest.raises(BadPlan, match=r"step 0 reads and step 1 reads and writes the same bytes of buffer 'other'"):
        check(b.plan())


def test_a_buffer_in_two_arguments_is_read_and_written_where_one_of_them_is() -> None:
    b = PlanBuilder()
    one = b.array("one", N, "u4")
    b.launch(LOADED["add"], 1, N, one, one, one, N)
    (touch,) = launches(b.plan())[0].touches
    assert (touch.reads, touch.writes) == (True, True)


@pytest.mark.parametrize("through", [((0,), None), ((3,), ()), ((7,), ()), ((), (-1,)), (("1",), ())])
def test_positions_that_are_no_views_are_refused(through: tuple[tuple[int, ...], tuple[int, ...] | None]) -> None:
    with pytest.raises(BadPlan, match=r"through (which )?argument"):
        replace(launches(two_sums())[0], reads_through=through[0], writes_through=through[1])


def test_a_plan_that_says_less_than_the_kernel_may_do_is_refused_where_it_is_bound() -> None:
    """As one of JSON that somebody has changed."""
    plan = two_sums()
    text = to_json(plan).replace('"writes_through": [\n     0\n    ]', '"writes_through": []', 1)
    changed = from_json(text)
    assert changed != plan
    with pytest.raises(
        BadPlan, match=r"add may write through argument 1, first u4\[64\], but the plan says that it does not: make a new plan"
    ):
        run(changed, {"shared": H200.zeros(N, "u4")}, targets=[H200], modules=[ADD])


# -- declared views, compared ------------------------------------------------------------------------------------------------------------


def checked(plan: Plan, **bindings: np.ndarray) -> list[Report]:
    memory = {name: H200.array(array) for name, array in bindings.items()}
    with Checker() as checker:
        BoundPlan(plan, memory, targets=[H200], modules=[ADD]).run()
    return list(checker.reports)


def summed(reads: slice, writes: slice, label: str = "") -> Plan:
    b = PlanBuilder()
    to, of = b.array("to", 2 * N, "u4"), b.array("of", 2 * N, "u4")
    b.launch(LOADED["add"], 2, N, to, of, of, 2 * N, reads=[of[reads]], writes=[to[writes]], label=label)
    return b.plan()


EVERYTHING = slice(None)


def test_what_a_launch_touches_outside_of_what_it_declares_is_found() -> None:
    arrays = {"to": np.zeros(2 * N, "u4"), "of": np.ones(2 * N, "u4")}
    assert checked(summed(EVERYTHING, EVERYTHING), **arrays) == []
    (wrote,) = checked(summed(EVERYTHING, slice(0, 100), "sum"), **arrays)
    assert wrote.kind == "undeclared access"
    assert wrote.what == (
        "step 0 (sum) wrote byte 400 of buffer 'to' (block (1, 0, 0), thread (36, 0, 0), st.global.u32), but declares that it writes "
        "to u4[100]; 112 bytes lie outside"
    )
    assert wrote.place == "<ptx>:11"
    assert (wrote.memory, wrote.remedy) == ("to+400", "Add this range to writes= of the launch, or correct the index.")
    (read,) = checked(summed(slice(1, None), EVERYTHING), **arrays)
    assert "read byte 0 of buffer 'of' (block (0, 0, 0), thread (0, 0, 0), ld.global.u32), but declares" in read.what
    assert "declares that it reads of u4[127] at 4; 4 bytes lie outside" in read.what


def test_strided_views_and_rotated_buffers_are_compared_in_their_places() -> None:
    """Element 0 is declared, and not element 1; in the odd turn the two buffers have changed places."""
    b = PlanBuilder()
    one, other = b.array("one", N, "u4"), b.array("other", N, "u4")
    with b.repeat(2, rotate=[(one, other)]) as loop:
        loop.launch(LOADED["add"], 1, N, one, other, other, N, reads=[other], writes=[one[::2]])
    found = checked(b.plan(), one=np.zeros(N, "u4"), other=np.ones(N, "u4"))
    assert [report.what.partition(" (block")[0] for report in found] == [
        "step 0.0 in turn 0 wrote byte 4 of buffer 'one'",
        "step 0.0 in turn 1 wrote byte 4 of buffer 'other'",
    ]
    assert [report.count for report in found] == [2 * N, 2 * N]


def test_a_buffer_that_the_launch_is_not_given_is_compared_too() -> None:
    b = PlanBuilder()
    table, hidden = b.array("table", 1, "u8"), b.array("hidden", N, "u4")
    module = parse("""
.version 8.0
.target sm_90
.address_size 64
.visible .entry through(.param .u64 table) { .reg .b64 t, x; ld.param.u64 t, [table]; ld.global.u64 x, [t]; st.global.u32 [x+8], 7; ret; }
""")
    b.launch(H200.load(module)["through"], 1, 1, table)
    b.launch(LOADED["bump"], 1, 1, hidden, after=[])
    memory = {"hidden": H200.zeros(N, "u4")}
    memory["table"] = H200.array(np.array([memory["hidden"].address], "u8"))
    with Checker() as checker:
        run(b.plan(), memory, targets=[H200], modules=[module, ADD])
    (report,) = checker.reports
    assert "wrote byte 8 of buffer 'hidden'" in report.what
    assert "declares that it writes nothing of it" in report.what


def test_parts_of_words_are_told_apart_only_as_far_as_the_shadow_remembers() -> None:
    module = parse("""
.version 8.0
.target sm_90
.address_size 64
.visible .entry bytes(.param .u64 to) { .reg .b64 t, x, y; .reg .b32 i; ld.param.u64 t, [to]; mov.u32 i, %tid.x; cvt.u64.u32 x, i;
  add.s64 y, t, x; st.global.u8 [y], 7; ret; }
""")
    b = PlanBuilder()
    to = b.array("to", 16, "u1")
    b.launch(H200.load(module)["bytes"], 1, 8, to, reads=[], writes=[to[:4]])
    with Checker() as checker:
        run(b.plan(), targets=[H200], modules=[module])
    (report,) = checker.reports
    assert "buffer 'to', or one just before it (block (0, 0, 0), thread (7, 0, 0), st.global.u8)" in report.what
    assert "at least 1 byte lies outside" in report.what
