"""Traced and counted launches work on the variables of the module that the plain ones work on."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.audit import prove
from memlane.emulate import Emulator
from memlane.instrument import TraceOptions
from memlane.launch import DeviceArray, LoadedModule, Observer, observing
from memlane.measure import Counter, Tracer, count, time, trace
from memlane.measure.device_counters import DeviceCounters
from memlane.measure.instrumented_module import probe
from memlane.measure.memory import Snapshot
from memlane.ptx import parse
from tests.sass.code import cubin_of

PTX = """\
.version 8.0
.target sm_90
.address_size 64
.visible .global .u32 total;
.visible .const .u32 step = 1;
.visible .entry advance(.param .u64 out)
{
    .reg .b64 %rd<3>; .reg .b32 %r<4>;
    ld.param.u64 %rd1, [out];
    ld.const.u32 %r1, [step];
    ld.global.u32 %r2, [total];
    add.u32 %r2, %r2, %r1;
    st.global.u32 [total], %r2;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


@pytest.fixture
def counting(target: Emulator) -> LoadedModule:
    return target.load(parse(PTX, "advance.ptx"))


@pytest.fixture
def out(target: Emulator) -> DeviceArray:
    return target.zeros(1, np.uint32)


def total(loaded: LoadedModule) -> int:
    held = np.empty(1, np.uint32)
    loaded.target.read(loaded.target.symbol(loaded, "total")[0], held)
    return int(held[0])


def set_step(loaded: LoadedModule, value: int) -> None:
    loaded.target.write(loaded.target.symbol(loaded, "step")[0], np.array([value], np.uint32))


@pytest.mark.parametrize("observer", [Tracer(only_launch=1), Counter(only_launch=1)], ids=["trace", "count"])
def test_plain_and_observed_launches_share_a_device_variable(counting: LoadedModule, out: DeviceArray, observer: Observer) -> None:
    seen = []
    with observing(observer):
        for _ in range(3):
            counting["advance"][1, 1](out)
            seen.append(out.numpy()[0])
    assert (seen, total(counting)) == ([1, 2, 3], 3)


def test_a_traced_launch_sees_what_the_host_wrote_to_constant_memory(counting: LoadedModule, out: DeviceArray) -> None:
    with observing(Tracer()):
        for step in (5, 70, 900):
            set_step(counting, step)
            counting["advance"][1, 1](out)
    assert total(counting) == 975


def test_variables_in_traced_graphs(target: Emulator, counting: LoadedModule, out: DeviceArray) -> None:
    set_step(counting, 4)
    with observing(tracer := Tracer()):
        graph = target.graph([counting["advance"][1, 1].bind(out)] * 2)
    graph.replay()
    counting["advance"][1, 1](out)
    graph.replay()
    assert total(counting) == 20
    assert len(tracer.finish().launches) == 4


def test_every_single_measurement_is_one_launch_to_the_variables(counting: LoadedModule, out: DeviceArray) -> None:
    made = trace(counting["advance"][1, 1], out)
    assert total(counting) == 1
    assert [one.requests for one in made.launches[0].counts] == [1, 1, 1, 1], "positions of the accesses in the twin are right"
    spaces, sectors = (made.table[name].to_pylist() for name in ("space", "sectors"))
    assert sorted(zip(spaces, sectors, strict=True), key=str) == [("const", None), *[("global", 1)] * 3], "constants have no sectors"
    count(counting["advance"][1, 1], out)
    assert total(counting) == 2
    time(counting["advance"][1, 1], out)
    assert total(counting) == 2, "timing leaves no trace"


def test_the_kernel_that_counts_by_itself_works_on_them_too(target: Emulator, counting: LoadedModule, out: DeviceArray) -> None:
    launch = counting["advance"][1, 1].bind(out)
    tally = DeviceCounters(counting)
    set_step(counting, 3)
    target.launch(tally.counting_launch(0, launch))
    set_step(counting, 4)
    before = Snapshot(launch)
    target.launch(tally.counting_launch(1, launch))
    assert total(counting) == 7
    before.restore()
    assert total(counting) == 3
    assert [[site.requests for site in counts.sites] for _, counts in tally.collect()] == [[1, 1, 1, 1]] * 2


@pytest.mark.parametrize("scheme", ["dependent", "exposed"])
def test_loads_are_proved_where_registers_hold_the_addresses_of_variables(counting: LoadedModule, scheme: str) -> None:
    """What sets those registers stands in front of everything else, so the parts of all probes have moved."""
    traced = probe(counting, TraceOptions.of(scheme)).traced
    proofs = {proof.site: proof.completeness for proof in prove(traced, cubin_of(traced.module))}
    assert [proofs[site.id] for site in traced.sites if (site.kind, site.space) == ("load", "global")] == ["complete"]
