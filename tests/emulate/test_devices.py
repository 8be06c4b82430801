"""Several emulated devices: memory of their own, peers that reach it, and nothing that runs on another one by mistake."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadAccess, BadLaunch, DeviceError
from memlane.launch import Layers, Observation
from memlane.ptx import parse
from memlane.targets import devices, target
from tests.launch.fake_target import FakeTarget

ADD = parse("""
.version 8.0
.target sm_90
.address_size 64

.visible .entry add(.param .u64 out, .param .u64 in) {
  .reg .b64 o, i, t; .reg .b32 x, y;
  mov.u32 x, %tid.x; mul.wide.u32 t, x, 4;
  ld.param.u64 o, [out]; ld.param.u64 i, [in]; add.u64 o, o, t; add.u64 i, i, t;
  ld.global.u32 x, [i]; ld.global.u32 y, [o]; add.u32 x, x, y; st.global.u32 [o], x; ret;
}
""")


@pytest.fixture
def pair() -> tuple[Emulator, Emulator]:
    first, second = Emulator(load("h200")), Emulator(load("h200"), device=1)
    first.enable_peer(second)
    return first, second


def test_each_device_has_a_name_and_addresses_of_its_own() -> None:
    first, second = target("emulator:h200"), target("emulator:h200:1")
    assert (first.name, second.name) == ("emulator:h200", "emulator:h200:1")
    assert second is target("emulator:h200:1")
    assert second is not first
    assert first is target("emulator:h200:0")
    a, b = first.zeros(64), second.zeros(64)
    assert a.address != b.address


def test_a_launch_of_another_device_is_refused_by_name_and_writes_nothing() -> None:
    first, second = Emulator(load("h200")), Emulator(load("h200"), device=1)
    ours, theirs = first.array(np.zeros(32, "u4")), second.array(np.ones(32, "u4"))
    launch = second.load(ADD)["add"][1, 32].bind(theirs, theirs)
    with pytest.raises(BadLaunch, match=r"^add was loaded on emulator:h200:1: load its module on emulator:h200 to launch it there$"):
        first.launch(launch)
    assert ours.numpy().sum() == 0
    with pytest.raises(BadLaunch, match=r"^add was loaded on another emulator:h200: "):
        Emulator(load("h200")).launch(first.load(ADD)["add"][1, 32].bind(ours, ours))


def test_an_array_of_a_device_that_is_no_peer_is_refused() -> None:
    first, second = Emulator(load("h200")), Emulator(load("h200"), device=1)
    kernel = first.load(ADD)["add"][1, 32]
    with pytest.raises(BadLaunch, match=r"argument 2 of add is on emulator:h200:1, but the kernel is on emulator:h200; copy it with "):
        kernel.bind(first.zeros(32, "u4"), second.zeros(32, "u4"))


def test_a_kernel_reads_and_writes_memory_of_a_peer(pair: tuple[Emulator, Emulator]) -> None:
    first, second = pair
    out, given = second.array(np.full(32, 7, "u4")), second.array(np.arange(32, dtype="u4"))
    first.load(ADD)["add"][1, 32](out, given)
    np.testing.assert_array_equal(out.numpy(), np.arange(32) + 7)
    # In one direction only.
    with pytest.raises(BadLaunch, match="is on emulator:h200, but the kernel is on emulator:h200:1"):
        second.load(ADD)["add"][1, 32].bind(first.zeros(32, "u4"), given)


def test_what_a_peer_allocates_and_frees_later_is_seen(pair: tuple[Emulator, Emulator]) -> None:
    """The table of allocations is kept between launches; it must not outlive what it shows."""
    first, second = pair
    kernel = first.load(ADD)["add"][1, 32]
    kernel(first.zeros(32, "u4"), first.zeros(32, "u4"))
    late = second.array(np.ones(32, "u4"))
    out = first.zeros(32, "u4")
    launch = kernel.bind(out, late)
    first.launch(launch)
    assert out.numpy().sum() == 32
    address = late.address
    del launch, late
    gc.collect()
    with pytest.raises(BadAccess, match=f"{address:#x}"):
        kernel(out, _Freed(address))


class _Freed:
    """An address of which the memory is gone."""

    def __init__(self, address: int) -> None:
        self.address = address


@pytest.fixture(autouse=True)
def _addresses_as_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Emulator.device_pointer
    monkeypatch.setattr(
        Emulator,
        "device_pointer",
        lambda self, value: (value.address, 128, "freed") if isinstance(value, _Freed) else known(self, value),
    )


def test_the_checker_knows_the_memory_of_peers(pair: tuple[Emulator, Emulator]) -> None:
    """Launches of two devices follow each other here, so what one wrote is no race for the other; what was never written shows."""
    first, second = pair
    second.enable_peer(first)
    seen: list[Observation] = []
    shared, fresh = second.array(np.ones(32, "u4")), second.empty(32, "u4")

    def checked(on: Emulator, *arguments: object) -> list[str]:
        launch = on.load(ADD)["add"][1, 32].bind(*arguments)
        on.launch(replace(launch, layers=Layers(check=True, report=seen.append)))
        return [report.kind for report in seen[-1].reports or ()]

    own = first.zeros(32, "u4")
    assert checked(first, shared, own) == []
    assert checked(second, shared, own) == []
    assert checked(first, own, shared) == []
    assert checked(first, own, fresh) == ["never written"]


def test_devices_are_peers_of_each_other() -> None:
    found = devices("emulator:h200", 4)
    assert [one.name for one in found] == ["emulator:h200", "emulator:h200:1", "emulator:h200:2", "emulator:h200:3"]
    assert all(one.reaches(other) for one in found for other in found)
    assert devices("emulator:a100") == (target("emulator:a100"),)


def test_what_is_no_device_or_no_peer_is_said(pair: tuple[Emulator, Emulator]) -> None:
    with pytest.raises(DeviceError, match=r"^got 0 devices: pass 1 or more$"):
        devices("emulator:h200", 0)
    with pytest.raises(DeviceError, match=r"^there is no emulated device 32: their numbers are 0 to 31$"):
        target("emulator:h200:32")
    with pytest.raises(
        DeviceError, match=r"^another emulator:h200 and emulator:h200 are not peers, because both use the addresses of device 0: give"
    ):
        pair[0].enable_peer(Emulator(load("h200")))
    with pytest.raises(
        DeviceError, match="emulator:h200 and fake are not peers: an emulated device can access only the memory of emulated devices"
    ):
        pair[0].enable_peer(FakeTarget())
    with pytest.raises(DeviceError, match=r"^fake and emulator:h200 are not peers"):
        FakeTarget().enable_peer(pair[0])
