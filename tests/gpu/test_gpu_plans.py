"""Plans on one GPU and on two, against the interpreter of bytes that the emulated ones are compared with."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from memlane.driver import Device, probe
from memlane.errors import BadPlan
from memlane.launch import Target, module_digest
from memlane.plan import Home, KernelRef, Plan, PlanBuilder, planned, races
from memlane.targets import BoundPlan, devices, run, target
from tests.targets.test_plans import KERNEL, MIX, SIGNALS, compared, halve, ordered_plans

pytestmark = pytest.mark.gpu

needs_two = pytest.mark.skipif(len(probe().devices) < 2, reason="this machine has no second GPU")


@pytest.fixture(scope="module")
def gpus(gpu: Device) -> tuple[Target, ...]:
    return devices("cuda")


@given(plan=ordered_plans(1))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_a_plan_leaves_the_bytes_of_an_interpreter(gpus: tuple[Target, ...], plan: Plan) -> None:
    if not races(plan):
        compared(plan, gpus[:1])


@needs_two
@given(plan=ordered_plans(2))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_a_plan_over_two_gpus_leaves_the_bytes_of_an_interpreter(gpus: tuple[Target, ...], plan: Plan) -> None:
    if not races(plan):
        compared(plan, gpus[:2])


@needs_two
def test_a_graph_copies_between_gpus_that_nobody_made_peers() -> None:
    pair = target("cuda:0"), target("cuda:1")
    b = PlanBuilder()
    of, to, back = b.array("of", 1000, "u1", 0), b.array("to", 1000, "u1", 1), b.array("back", 1000, "u1", 0)
    b.copy(back, to, after=[b.copy(to, of)])
    data = np.arange(1000).astype("u1")
    first, last = pair[0].array(data), pair[0].zeros(1000, "u1")
    bound = BoundPlan(b.plan(), {"of": first, "back": last}, targets=pair)
    bound.graph().replay()
    pair[0].sync()
    pair[1].sync()
    assert np.array_equal(last.numpy(), data)


@pytest.mark.parametrize("home", ["host", "pinned"])
def test_a_copy_reads_the_host_when_it_is_due(gpus: tuple[Target, ...], home: Home) -> None:
    """A graph may read ordinary memory when it is started; a host function has changed it by then."""
    b = PlanBuilder()
    value, device, back = b.array("value", 1, "i4", home), b.array("device", 1, "i4", 0), b.array("back", 1, "i4", home)
    doubled = b.call("tests.gpu.test_gpu_plans:double", value, reads=[value], writes=[value])
    there = b.copy(device, value, after=[doubled])
    here = b.copy(back, device, after=[there])
    b.call("tests.gpu.test_gpu_plans:double", back, after=[here], reads=[back], writes=[back])
    host = gpus[0].pinned(1, "i4")
    host[0] = 3
    bound = BoundPlan(b.plan(), {"value": host if home == "pinned" else np.array([3], "i4")}, targets=gpus[:1])
    for expected in (12, 24, 48):
        assert np.asarray(bound.run()["back"]).view("i4")[0] == expected


def double(value: Any) -> None:
    value *= 2


def chunked(n: int, chunks: int) -> Plan:
    b = PlanBuilder()
    host, device, back = b.array("host", n, "u2", "pinned"), b.array("device", n, "u2", 0), b.array("back", n, "u2", "pinned")
    for chunk in range(chunks):
        part = slice(chunk * n // chunks, (chunk + 1) * n // chunks)
        arrived = b.copy(device[part], host[part], queue=1)
        b.launch(KERNEL, 1, 1, device[part], 2, device[part], 2, 64, 1, after=[arrived], reads=[device[part]], writes=[device[part]])
        b.copy(back[part], device[part], queue=0)
    return b.plan()


def test_an_upload_in_chunks_works_on_each_while_the_next_arrives(gpus: tuple[Target, ...]) -> None:
    n = 1 << 20
    host = gpus[0].pinned(n, "u2")
    host[...] = np.arange(n, dtype="u2")
    bound = BoundPlan(chunked(n, 8), {"host": host}, targets=gpus[:1], modules=[MIX])
    for _ in range(2):
        back = np.asarray(bound.run()["back"]).view("u2").reshape(8, -1)
        expected = host.reshape(8, -1).copy()
        expected[:, :64] = 4 * expected[:, :64] + 1
        np.testing.assert_array_equal(back, expected)


def test_a_graph_with_times_says_when_each_step_ran(gpus: tuple[Target, ...]) -> None:
    """Copies of two megabytes on one queue: one behind the other, each for as long as a link takes."""
    n = 1 << 23
    host = gpus[0].pinned(n, "u2")
    host[...] = 0
    bound = BoundPlan(chunked(n, 8), {"host": host}, targets=gpus[:1], modules=[MIX])
    bound.run()
    spans = bound.time().spans
    copies = spans[0::3]
    assert all(span.end_ns > span.start_ns >= 0 for span in spans)
    assert all(first.end_ns <= second.start_ns + 1000 for first, second in itertools.pairwise(copies))
    rate = 2 * (n // 8) / np.median([span.elapsed_ns for span in copies])
    assert 5 < rate < 130  # GB/s of any link there is


def test_a_repeat_of_many_turns_is_one_graph_started_many_times(gpus: tuple[Target, ...]) -> None:
    b = PlanBuilder()
    a, c = b.array("a", 8, "u2", 0), b.array("c", 8, "u2", 0)
    with b.repeat(10_001, rotate=[(a, c)]) as loop:
        loop.launch(KERNEL, 1, 1, a, 2, c, 2, 8, 1, reads=[a, c], writes=[a])
    plan = b.plan()
    bound = BoundPlan(plan, {"a": gpus[0].zeros(8, "u2"), "c": gpus[0].zeros(8, "u2")}, targets=gpus[:1], modules=[MIX])
    done = bound.run()
    values = {"a": 0, "c": 0}
    for turn in range(10_001):
        to, of = ("a", "c") if turn % 2 == 0 else ("c", "a")
        values[to] = (3 * values[to] + values[of] + 1) % (1 << 16)
    assert {name: np.asarray(done[name]).tolist() for name in values} == {name: [value] * 8 for name, value in values.items()}


@pytest.mark.parametrize(("every", "turns", "left"), [(1, 5, 6), (2, 6, 3), (4, 8, 0)])
def test_a_repeat_ends_when_its_value_is_not_zero(gpus: tuple[Target, ...], every: int, turns: int, left: int) -> None:
    b = PlanBuilder()
    value, flag = b.array("value", 1, "i4", "host"), b.array("flag", (), "i4", "host")
    with b.repeat(1000, until=flag, every=every) as loop:
        loop.call("tests.targets.test_plans:halve", value, flag, reads=[value], writes=[value, flag])
    host = np.array([200], "i4")
    done = run(b.plan(), {"value": host}, targets=gpus[:1])
    assert (done.turns, host[0]) == ({(0,): turns}, left)
    assert halve is not None


def failing() -> None:
    raise ValueError("the host function failed")


def test_what_a_host_function_raises_is_raised_after_the_replay(gpus: tuple[Target, ...]) -> None:
    b = PlanBuilder()
    b.call("tests.gpu.test_gpu_plans:failing", reads=(), writes=())
    with pytest.raises(ValueError, match="the host function failed"):
        run(b.plan(), targets=gpus[:1])


@needs_two
def test_kernels_that_run_together_signal_each_other_across_gpus(gpus: tuple[Target, ...]) -> None:
    b = PlanBuilder()
    flags = [b.array(f"flag{device}", 1, "u4", device) for device in range(2)]
    kernel = KernelRef(module_digest(SIGNALS), "ping")
    b.together((device, planned(kernel, 1, 1, flags[device], flags[1 - device], int(device == 0))) for device in range(2))
    bound = {f"flag{device}": target.zeros(1, "u4") for device, target in enumerate(gpus[:2])}
    done = run(b.plan(), bound, targets=gpus[:2], modules=[SIGNALS])
    assert [int(np.asarray(done[f"flag{device}"])[0]) for device in range(2)] == [100, 100]


def test_replaying_a_plan_costs_what_its_graph_costs(gpus: tuple[Target, ...]) -> None:
    """Of 100 dependent steps: started 20 times through the bound graph and through the driver's own graph."""
    b = PlanBuilder()
    a = b.array("a", 8, "u2", 0)
    for _ in range(100):
        b.launch(KERNEL, 1, 1, a, 2, a, 2, 1, 1, reads=[a], writes=[a])
    gpu = gpus[0]
    assert isinstance(gpu, Device)
    bound = BoundPlan(b.plan(), {"a": gpu.zeros(8, "u2")}, targets=gpus[:1], modules=[MIX])
    graph = bound.graph()
    from memlane.driver.graph import DeviceGraph  # needs the packages of CUDA

    assert isinstance(graph.prepared, DeviceGraph)
    bare_graph = graph.prepared.built.graph

    def took(start: object) -> float:
        assert callable(start)
        start()
        gpu.sync()
        before = time.perf_counter()
        for _ in range(20):
            start()
        gpu.sync()
        return time.perf_counter() - before

    ours, bare = [], []
    for _ in range(10):
        ours.append(took(graph.replay))
        bare.append(took(lambda: bare_graph.launch(gpu.streams.queue(None).stream)))
    assert np.median(ours) / np.median(bare) < 1.05


@needs_two
def test_a_plan_for_devices_that_are_missing_is_refused(gpus: tuple[Target, ...]) -> None:
    b = PlanBuilder()
    b.copy(b.array("b", 8, "u2", 1), b.array("a", 8, "u2", 0))
    with pytest.raises(BadPlan, match="the plan uses device 1, but there are targets for only 1"):
        run(b.plan(), targets=gpus[:1])
