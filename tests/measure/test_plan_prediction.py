"""Predicted timelines of plans: against arithmetic by hand on the predictions of their launches, several chips, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import memlane as ml
from memlane.chip import Chip, Links, load
from memlane.errors import BadLaunch, BadPlan, ChipError
from memlane.launch import Target, module_digest
from memlane.plan import HostCall, KernelRef, Plan, planned
from memlane.targets import devices
from tests.launch.fake_target import FakeTarget
from tests.targets.test_plans import SIGNALS

CODE = ml.cuda(
    """
extern "C" __global__ void scale(float* data, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= factor;
}
extern "C" __global__ void walk(float* out, const int* next, int turns) {
    int at = threadIdx.x;
    for (int turn = 0; turn < turns; turn++) at = next[at];
    out[threadIdx.x] = at;
}
""",
    name="plan.cu",
)
N, CHUNKS = 1 << 14, 4
LINKS = Links(host_gb_per_s=50, host_us=2, pageable_gb_per_s=20, peer_gb_per_s=400, peer_us=3, device_us=1, launch_us=0.5, event_us=2.5)
COPY_NS = 2000 + 4 * N / CHUNKS / 50


def linked(name: str) -> Chip:
    return replace(load(name), links=LINKS)


def chunked(target: Target) -> Plan:
    """An upload in chunks with a kernel behind each, and a download behind that."""
    scale = target.load(CODE)["scale"]
    b = ml.PlanBuilder()
    host, array, back = b.array("host", N, "f4", "pinned"), b.array("array", N, "f4", 0), b.array("back", N, "f4", "pinned")
    for chunk in range(CHUNKS):
        part = slice(chunk * N // CHUNKS, (chunk + 1) * N // CHUNKS)
        arrived = b.copy(array[part], host[part], queue=1)
        touched = [array[part]]
        done = b.launch(
            scale,
            N // CHUNKS // 256,
            256,
            array[part],
            2.0,
            N // CHUNKS,
            after=[arrived],
            reads=touched,
            writes=touched,
            label=f"scale {chunk}",
        )
        b.copy(back[part], array[part], queue=2, after=[done])
    return b.plan()


def bound_chunks() -> ml.BoundPlan:
    target = devices("emulator:h200", 1)[0]
    return ml.BoundPlan(chunked(target), {"host": np.arange(N, dtype="f4")}, targets=[target], modules=[CODE])


def test_copies_hide_kernels_as_by_hand() -> None:
    """Uploads follow each other, each kernel stands behind its upload, downloads go on beside both: the last chunk is not hidden."""
    bound = bound_chunks()
    found = ml.predict(bound, chip=linked("h200"))
    target = devices("emulator:h200", 1)[0]
    alone = ml.predict(
        target.load(CODE)["scale"][N // CHUNKS // 256, 256], target.zeros(N // CHUNKS), 2.0, N // CHUNKS, chip=linked("h200")
    )
    kernel_ns = 1e3 * (alone.us - alone.launch_us)
    assert 0 < kernel_ns < COPY_NS
    assert 1e3 * found.us == pytest.approx(CHUNKS * COPY_NS + 500 + kernel_ns + COPY_NS)
    assert [span.kind for span in found.timeline.spans][:3] == ["copy", "launch", "copy"]
    assert found.timeline.is_modelled
    assert (np.asarray(bound.memory[bound.plan.buffers[2]]) == 2 * np.arange(N)).all()


def test_launches_that_are_alike_share_a_prediction() -> None:
    found = ml.predict(bound_chunks(), chip=linked("h200"))
    assert len(found.launches) == CHUNKS
    assert len({id(one.result) for one in found.launches}) == 1
    text = str(found)
    assert "scale 3" in text
    assert "s, 4 launches (h200, limited by" in text
    assert "Predicted, nothing was measured. Not modelled:" in text


def test_without_the_kernels_arrays_stay_as_they_were_and_times_are_the_same() -> None:
    bound = bound_chunks()
    quick = ml.predict(bound, chip=linked("h200"), run_kernels=False)
    assert quick.timeline == ml.predict(bound_chunks(), chip=linked("h200")).timeline
    assert (np.asarray(bound.memory[bound.plan.buffers[2]]) == np.arange(N)).all()


def test_each_device_has_its_own_chip() -> None:
    """The same kernel on two devices, each behind a copy from the other host buffer: each takes what its own chip does."""
    targets = devices("emulator:h200", 2)
    b = ml.PlanBuilder()
    for device in range(2):
        array = b.array(f"array{device}", N, "f4", device)
        b.launch(targets[device].load(CODE)["scale"], N // 256, 256, array, 2.0, N)
    memory = {f"array{device}": target.zeros(N, "f4") for device, target in enumerate(targets)}
    bound = ml.BoundPlan(b.plan(), memory, targets=targets, modules=[CODE])
    both = ml.predict(bound, chip=[linked("h200"), linked("gtx480")])
    assert both.chips == ("h200", "gtx480")
    for device, name in enumerate(both.chips):
        alone = ml.predict(targets[device].load(CODE)["scale"][N // 256, 256], targets[device].zeros(N), 2.0, N, chip=linked(name))
        span = both.timeline.spans[device]
        assert span.elapsed_ns == pytest.approx(500 + 1e3 * (alone.us - alone.launch_us), rel=0.05)
    assert both.timeline.spans[1].elapsed_ns > both.timeline.spans[0].elapsed_ns
    assert any(text.startswith("gtx480: ") for text in both.missing)
    with pytest.raises(BadPlan, match="the plan is bound to 2 devices, and `chip` names 3: name one for each, or one for all"):
        ml.predict(bound, chip=["h200", "h200", "h200"])


def chased(turns: Sequence[int]) -> float:
    """The predicted time of a plan whose kernels follow a chain of dependent loads, of so many each."""
    target = devices("emulator:h200", 1)[0]
    walk = target.load(CODE)["walk"]
    b = ml.PlanBuilder()
    out, after = b.array("out", 32, "f4", 0), b.array("next", 32, "i4", 0)
    with b.repeat(3) as loop:
        for count in turns:
            loop.launch(walk, 1, 32, out, after, count)
    memory = {"next": target.array(np.arange(32, dtype="i4"))}
    return ml.predict(ml.BoundPlan(b.plan(), memory, targets=[target], modules=[CODE]), chip=linked("h200")).us


def test_a_repeat_takes_what_its_turns_take_and_numbers_tell_launches_apart() -> None:
    few, many, both = chased([10]), chased([400]), chased([10, 400])
    assert many > 3 * few
    assert both == pytest.approx(few + many)


def test_a_host_function_takes_what_the_caller_says() -> None:
    b = ml.PlanBuilder()
    b.call("tests.targets.test_plans:halve", b.array("a", 1, "i4", "host"), b.array("b", 1, "i4", "host"))
    target = devices("emulator:h200", 1)[0]
    memory = {"a": np.array([4], "i4"), "b": np.array([1], "i4")}
    bound = ml.BoundPlan(b.plan(), memory, targets=[target])

    def call_ns(call: HostCall) -> float:
        return 7000.0

    assert (ml.predict(bound).us, ml.predict(bound, call_ns=call_ns).us) == (0, 7)


def test_what_cannot_be_predicted_says_why() -> None:
    kernel = KernelRef(module_digest(SIGNALS), "ping")
    b = ml.PlanBuilder()
    flags = [b.array(f"flag{device}", 1, "u4", device) for device in range(2)]
    b.together([(0, planned(kernel, 1, 1, flags[0], flags[1], 1)), (1, planned(kernel, 1, 1, flags[1], flags[0], 0))])
    targets = devices("emulator:h200", 2)
    memory = {f"flag{device}": target.zeros(1, "u4") for device, target in enumerate(targets)}
    bound = ml.BoundPlan(b.plan(), memory, targets=targets, modules=[SIGNALS])
    with pytest.raises(
        BadPlan, match=r"step 0: its kernels run together and wait for each other, so none is predicted by itself; BoundPlan"
    ):
        ml.predict(bound)
    with pytest.raises(ChipError, match=r"the chip file of a100 has no \[links\] host_us, which a prediction of the plan needs: measure"):
        ml.predict(bound_chunks(), chip="a100")
    target = devices("emulator:h200", 1)[0]
    with pytest.raises(BadLaunch, match="a launch is predicted for one chip"):
        ml.predict(target.load(CODE)["scale"][1, 32], target.zeros(32), 1.0, 32, chip=["h200"])  # type: ignore[call-overload]


def test_a_launch_that_the_chip_cannot_hold_names_its_step() -> None:
    target = devices("emulator:h200", 1)[0]
    b = ml.PlanBuilder()
    b.launch(target.load(CODE)["scale"], 1, 1024, b.array("array", 1024, "f4", 0), 2.0, 1024, label="wide")
    bound = ml.BoundPlan(b.plan(), {"array": target.zeros(1024, "f4")}, targets=[target], modules=[CODE])
    with pytest.raises(BadPlan, match=r"step 0 \(wide\): block.x is 1024; s1070 allows at most 512"):
        ml.predict(bound, chip=linked("s1070"))


def test_only_emulated_devices_are_predicted() -> None:
    fake = FakeTarget()
    bound = ml.BoundPlan(ml.PlanBuilder().plan(), {}, targets=[fake])
    with pytest.raises(BadPlan, match=r"times are predicted by the emulator, and the plan is bound to .*: bind it to ml.devices"):
        ml.predict(bound)
