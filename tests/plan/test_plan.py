"""What a plan is made of: views like NumPy's, a builder, a table, JSON, and a sentence for what cannot be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.errors import BadPlan
from memlane.plan import (
    Buffer,
    Copy,
    HostCall,
    KernelRef,
    Launch,
    Plan,
    PlanBuilder,
    Repeat,
    Span,
    Step,
    Timeline,
    Together,
    View,
    executions,
    from_json,
    planned,
    to_json,
)

KERNEL = KernelRef("module", "work")


def slices() -> st.SearchStrategy[object]:
    ends = st.none() | st.integers(-6, 6)
    return st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, -1, -2])) | st.integers(-3, 2) | st.just(...)


@given(st.lists(slices(), min_size=1, max_size=3).filter(lambda parts: parts.count(...) < 2))
def test_slices_are_those_of_numpy(parts: list[object]) -> None:
    """By the byte at which each element lies: an array whose elements are these bytes is sliced alike."""
    whole = Buffer("b", 4 * 5 * 3 * 2 + 8).view("i2", (4, 5, 3), offset=8)
    places = 8 + 2 * np.arange(4 * 5 * 3).reshape(4, 5, 3)
    expected = places[tuple(parts)]
    part = whole[tuple(parts)]
    assert part.shape == expected.shape
    found = [part.offset + sum(i * s for i, s in zip(index, part.strides, strict=True)) for index in np.ndindex(*part.shape)]
    assert found == np.asarray(expected).reshape(-1).tolist()
    if found:
        assert part.bounds == (min(found), max(found) + 2)


def test_an_index_by_an_array_or_beyond_the_end_is_refused_and_reads_nothing() -> None:
    view = Buffer("b", 16).view("i4")
    with pytest.raises(BadPlan, match=r"index a view of b with integers and slices, not with \[0, 1\]"):
        view[[0, 1]]
    with pytest.raises(BadPlan, match=r"no such part of b i4\[4\]: index 4 is out of bounds"):
        view[4]


def test_strided_views_overlap_only_where_they_share_a_byte() -> None:
    """Even and odd columns lie between the same bytes."""
    whole = Buffer("b", 64).view("i2", (4, 8))
    assert not whole[:, ::2].overlaps(whole[:, 1::2])
    assert whole[:, ::2].overlaps(whole[:, 2])
    assert not whole[0].overlaps(whole[1])
    assert not whole[0:0].overlaps(whole)
    assert not whole.overlaps(Buffer("c", 64).view("i2", (4, 8)))


def chunked() -> Plan:
    b = PlanBuilder()
    host, device, total = b.array("host", 1024, "f4", "pinned"), b.array("device", 1024, "f4", 0), b.array("total", (), "f4", "host")
    for chunk in range(2):
        part = slice(chunk * 512, chunk * 512 + 512)
        arrived = b.copy(device[part], host[part], queue=1, label=f"upload {chunk}")
        b.launch(KERNEL, 4, (128,), device[part], 512, 0.5, after=[arrived])
    with b.repeat(10, rotate=[(device, b.array("other", 1024, "f4", 0))], until=total, every=2) as loop:
        stepped = loop.launch(KERNEL, (4, 2), 128, device, queue=3)
        asked = loop.call("numpy:sum", total, after=[stepped])
        loop.carry(asked, to=[stepped])
    return b.plan()


def test_a_plan_prints_as_a_table() -> None:
    assert str(chunked()).splitlines() == [
        "  0  device 0  queue 1  upload 0: copy 2,048 B host -> device",
        "  1  device 0  queue 0  work grid 4 block 128  after 0",
        "  2  device 0  queue 1  upload 1: copy 2,048 B host -> device",
        "  3  device 0  queue 0  work grid 4 block 128  after 2",
        "  4  repeat 10 times, rotating device <- other, until total f4[] is not zero (every 2)",
        "       0  device 0  queue 3  work grid 4x2 block 128  after 1 of the previous turn",
        "       1  host      queue 0  call numpy:sum  after 0",
    ]


def test_a_plan_knows_its_buffers_devices_and_peers() -> None:
    plan = chunked()
    assert [buffer.name for buffer in plan.buffers] == ["host", "device", "total", "other"]
    assert plan.devices == (0,)
    near, far = Buffer("near", 8, 0), Buffer("far", 8, 3)
    reach = planned(KERNEL, 1, 1, near.view(), far.view())
    assert Plan((Step(reach, 0),)).peers == ((0, 3),)
    assert Plan((Step(Copy(far.view(), near.view()), 0),)).peers == ()
    assert Plan((Step(Together(((0, reach), (3, planned(KERNEL, 1, 1, far.view()))))),)).peers == ((0, 3),)


def test_a_repeat_says_where_its_result_lies() -> None:
    a, b, c = (Buffer(name, 8) for name in "abc")
    turning = Repeat((), 7, ((a, b, c),))
    assert [turning.holder(a, turn) for turn in range(4)] == [a, b, c, a]
    assert turning.holder(c) == a  # after seven turns one place on
    assert Repeat((), 6, ((a, b), (c, Buffer("d", 8)))).period == 2


def test_json_names_each_buffer_once_and_leaves_out_what_is_as_usual() -> None:
    text = to_json(chunked())
    whole = json.loads(text)
    assert [one["name"] for one in whole["buffers"]] == ["host", "device", "total", "other"]
    assert whole["steps"][0] == {
        "is": "Step",
        "action": {
            "is": "Copy",
            "destination": {"is": "View", "buffer": {"buffer": "device"}, "dtype": "f4", "shape": [512], "strides": [4]},
            "source": {"is": "View", "buffer": {"buffer": "host"}, "dtype": "f4", "shape": [512], "strides": [4]},
        },
        "device": 0,
        "queue": 1,
        "label": "upload 0",
    }
    assert from_json(text) == chunked()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "this is not a plan: "),
        ("[]", "this is not a plan that memlane can read: it has no version in 'memlane_plan', but must have 1"),
        ('{"memlane_plan": 2}', "this is not a plan that memlane can read: it has version 2 in 'memlane_plan', but must have 1"),
        ('{"memlane_plan": 1}', "this plan is damaged: buffers is missing"),
        (
            '{"memlane_plan": 1, "buffers": [], "steps": [{"is": "Jump"}]}',
            "steps[0] of this plan is of kind 'Jump', which version 1 does not support",
        ),
        ('{"memlane_plan": 1, "buffers": [], "steps": [{"buffer": "x"}]}', 'this plan is damaged: steps[0] is {"buffer": "x"}'),
        ('{"memlane_plan": 1, "buffers": [{"name": "a", "nbytes": "4"}], "steps": []}', 'this plan is damaged: buffers[0].nbytes is "4"'),
        ('{"memlane_plan": 1, "buffers": [{"name": "a"}], "steps": []}', "this plan is damaged: buffers[0] has no nbytes"),
        ('{"memlane_plan": 1, "buffers": [{"name": "a", "nbytes": 1e999}], "steps": []}', "this plan is damaged: buffers[0].nbytes is Inf"),
        ('{"memlane_plan": 1, "buffers": [{"name": "a", "nbytes": 4, "x": 1}], "steps": []}', "buffers[0] of this plan has 'x', which"),
        ('{"memlane_plan": 1, "buffers": [], "steps": ' + "[" * 100_000, "this is not a plan: "),
        ('{"memlane_plan": 1, "buffers": [], "steps": [{"is": "Step", "action": 3}]}', "this plan is damaged: "),
    ],
)
def test_a_text_that_is_no_plan_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(BadPlan) as caught:
        from_json(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


a8, b8, host8 = Buffer("a", 8, 0), Buffer("b", 8, 0), Buffer("h", 8, "host")
copy = Copy(b8.view(), a8.view())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Buffer("", 8), "a buffer needs a name, so that memory can be bound to it"),
        (lambda: Buffer("a", -1), "buffer 'a' cannot have -1 bytes"),
        (lambda: Buffer("a", 8, "disk"), "buffer 'a' cannot be placed on 'disk'; pass a device number, 'host' or 'pinned'"),
        (
            lambda: a8.view("f4", 3),
            "a f4[3] covers bytes 0 to 12 of buffer 'a', which has 8: make the buffer larger or the view smaller",
        ),
        (lambda: View(a8, "f4", (2,), (-4,)), "covers bytes -4 to 4 of buffer 'a', which has 8"),
        (lambda: View(a8, "O", (1,), (8,)), "a view of a cannot have elements of type O"),
        (lambda: View(a8, "u1", (1, 1), (8,)), "a view of a has 2 axes and 1 stride"),
        (lambda: Copy(a8.view("f4"), b8.view("f8")), "a copy needs two views of the same shape and element size, not b f8[1] and a f4[2]"),
        (lambda: Copy(a8.view()[:5], a8.view()[3:]), "a copy cannot read what it writes: a u1[5] at 3 and a u1[5] overlap"),
        (lambda: Launch(KERNEL, (1, 1, 1), (1, 1, 1), reads=()), "work declares what it reads but not what it writes: pass both"),
        (lambda: HostCall("sum", ()), "name a host function as package.module:function, not 'sum'"),
        (
            lambda: HostCall("m:f", (a8.view(),)),
            "host function m:f cannot use a u1[8], which is on device 0: copy it to a buffer on the host",
        ),
        (lambda: Together(((0, planned(KERNEL, 1, 1)),) * 2), "kernels that run together need one device each, got [0, 0]"),
        (lambda: Step(planned(KERNEL, 1, 1)), "the launch of work grid 1 block 1 needs a device"),
        (lambda: Step(copy), "copy 8 B a -> b needs a device to run on"),
        (
            lambda: Step(planned(KERNEL, 1, 1, host8.view()), 0),
            "cannot access h u1[8], which is in pageable host memory: make it pinned, or copy it",
        ),
        (lambda: Plan((Step(copy, 0, after=(1,)),)), "step 0 of the plan waits for step 1, which does not exist"),
        (
            lambda: Plan((Step(copy, 0, after=(1,)), Step(copy, 0))),
            "step 0 of the plan waits for step 1, which comes after it: put step 1 first",
        ),
        (
            lambda: Plan((Step(copy, 0, after=(2,)), Step(copy, 0, after=(0,)), Step(copy, 0, after=(1,)))),
            "steps 0, 1 and 2 of the plan wait for each other in a cycle, so none of them can start",
        ),
        (lambda: Plan((Step(copy, 0, after=(0,)),)), "step 0 of the plan waits for itself"),
        (
            lambda: Plan((Step(copy, 0, after_last_turn=(0,)),)),
            "step 0 of the plan waits for a previous turn, but is not in a repeat",
        ),
        (
            lambda: Plan((Step(copy, 0), Step(Copy(Buffer("b", 9).view()[:8], a8.view()), 0))),
            "the plan has two buffers with the name 'b': ",
        ),
        (lambda: Repeat((), -1), "a repeat cannot run -1 times"),
        (lambda: Repeat((), 1, ((a8,),)), "a group of rotating buffers needs two or more different buffers, not (a)"),
        (lambda: Repeat((), 1, ((a8, host8),)), "rotating buffers must have the same size and home, unlike a, h"),
        (lambda: Repeat((), 1, ((a8, b8), (b8, a8))), "a buffer can rotate in one group only"),
        (lambda: Repeat((), 1, until=a8.view("f8")[0]), "the end condition of a repeat must be a single element on the host, not a f8[]"),
        (
            lambda: Repeat((), 9, ((a8, b8),), until=host8.view("f8")[0], every=3),
            "after a repeat that may end after any 3 turns, or after 9, it is not known which of 2 rotating buffers holds the result: ",
        ),
        (lambda: planned(KERNEL, (1, 0), 1), "a grid, block or cluster has one to three extents of at least 1, not (1, 0)"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(BadPlan) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_builder_keeps_steps_on_their_side_of_a_repeat() -> None:
    b = PlanBuilder()
    first = b.copy(b8.view(), a8.view())
    with b.repeat(2) as loop:
        with pytest.raises(
            BadPlan, match="copy 8 B a -> b was added outside a repeat whose block is still open: add it through the builder of the repeat"
        ):
            b.copy(b8.view(), a8.view())
        with pytest.raises(BadPlan, match="a step cannot wait across the boundary of a repeat"):
            loop.copy(b8.view(), a8.view(), after=[first])
        loop.copy(b8.view(), a8.view())
    assert len(b.plan().steps) == 2


def test_steps_wait_for_one_step_or_for_a_whole_repeat() -> None:
    b = PlanBuilder()
    first = b.copy(b8.view(), a8.view())
    with b.repeat(2, after=first) as loop:
        with pytest.raises(BadPlan, match="a step cannot wait for a repeat whose block is still open: add the step after the block"):
            loop.copy(b8.view(), a8.view(), after=loop)
        loop.copy(b8.view(), a8.view(), queue=1)
        loop.copy(b8.view(), a8.view(), queue=2)
    b.copy(b8.view(), a8.view(), queue=3, after=[loop])
    b.copy(b8.view(), a8.view(), queue=3, after=first)
    plan = b.plan()
    assert [item.after for item in plan.steps] == [(), (0,), (1,), (0,)]
    assert executions(plan)[5].waits == (3, 4)


def test_arrays_have_names_of_their_own_in_repeats_too() -> None:
    b = PlanBuilder()
    b.array("t", 64, "f4", 0)
    with b.repeat(2) as loop, pytest.raises(BadPlan, match=r"^the plan already has an array 't': use a different name$"):
        loop.array("t", 64, "f4", 0)


def test_steps_of_another_plan_and_what_is_no_kernel_are_refused() -> None:
    b = PlanBuilder()
    with pytest.raises(BadPlan, match=r"^a step cannot wait for a step of another plan: add both with the same builder$"):
        b.copy(b8.view(), a8.view(), after=PlanBuilder().copy(b8.view(), a8.view()))
    with pytest.raises(BadPlan, match=r"^a launch needs a kernel of a loaded module, or its ref, not a str$"):
        b.launch("scale", 1, 1)  # type: ignore[arg-type]


def test_a_timeline_prints_in_the_order_of_time_with_turns() -> None:
    spans = (Span("late", "copy", ((0, 1),), 2000, 3000), Span("heat", "launch", ((0, 0),), 0, 2000, turns=(7,)))
    assert str(Timeline(spans, is_modelled=True)).splitlines()[1:] == [
        "     0.00 us      2.00 us   device 0 queue 0: heat, turn 7",
        "     2.00 us      3.00 us * device 0 queue 1: late",
        "3 us in total, modelled",
    ]
