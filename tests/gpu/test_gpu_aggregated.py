"""Atomics that one lane does for its warp, on a device: the same bits with probes as without, all of them complete, and how long they take.

Prediction for an H200, written before the first run. An atomic that one lane does by itself takes some 390 cycles in L2 and 30 in shared
memory (`docs/latency.md`). Where one lane does it for all, lanes ask for their numbers, find the leader and count themselves before it, and
the result is handed on behind it: by the control words some 60 to 90 cycles more, so 25 to 160 are allowed. Where each lane adds its own,
five sums are handed from lane to lane before it: some 180 more, 120 to 320 are allowed. Were the second clock read before the hand-over,
the first of these would be some 40, and the second some 150.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from memlane.driver import Device
from memlane.launch import Target
from memlane.measure import count, trace
from memlane.ptx import Module, parse
from memlane.record import COMPLETE, HINT, PROVED, Trace
from tests.audit.aggregates import BODIES, FRAME, module
from tests.audit.test_warp_aggregation import lanes_of

pytestmark = pytest.mark.gpu

WARP = 32
TURNS = 24
SLOWEST = 8
"""Turns that are not looked at: the first ones, and those that something else held up."""

TIMED = """
    mov.b64 %rd5, 0; st.shared.b64 [timed_sum], %rd5; mov.u32 %r3, 0; bar.sync 0;
again:
    {atom}.add.u32 %r2, [{word}], 1; xor.b32 %r4, %r2, %r3;
    {atom}.add.u32 %r6, [{word}+4], %r1; xor.b32 %r4, %r4, %r6;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra skip;
    {atom}.inc.u32 %r7, [{word}], 0xffffffff; xor.b32 %r4, %r4, %r7;
skip:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %r5; @%p2 bra again;
    st.global.u32 [%rd4], %r4;
"""
"""The same addend, each lane its own, and one lane by itself: `inc` is never done by one lane for others."""


def timed(space: str) -> Module:
    word = "%rd2" if space == "global" else "timed_sum"
    text = FRAME.format(name="timed", body=TIMED.format(atom=f"atom.{space}", word=word))
    return parse(f".version 8.0\n.target sm_90\n.address_size 64\n{text}", "timed.ptx")


def both(name: str, where: Target) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Trace]:
    """What a kernel and its traced twin leave in memory, one warp each, and the trace."""
    call = where.load(module())[name][1, WARP]
    found = []
    for traced in (False, True):
        out, counter = where.array(np.full(4 * WARP, -1, np.int64)), where.zeros(1, np.int64)
        made = trace(call, out, counter, np.uint32(3)) if traced else call(out, counter, np.uint32(3))
        found.append(np.concatenate((out.numpy(), counter.numpy())))
    assert isinstance(made, Trace)
    return found[0], found[1], made


def is_chain(found: list[int], added: list[int], total: int) -> bool:
    """Whether each lane found what others had added before it, in some order."""
    at = 0
    for value, addend in sorted(zip(found, added, strict=True)):
        if value != at:
            return False
        at += addend
    return at == total


@pytest.mark.parametrize("name", BODIES)
def test_tracing_changes_no_bit_and_every_lane_is_recorded(name: str, gpu: Device, emulator: Target) -> None:
    plain, traced, made = both(name, gpu)
    modelled, _, _ = both(name, emulator)
    if name == "places_of_some":  # Each lane adds for itself, in what order is up to the hardware.
        for one in (plain, traced, modelled):
            assert is_chain((one[:21] & 0xFFFFFFFF).tolist(), list(range(21)), int(one[-1]))
    else:  # Lanes that come to the atomic in different turns may come in any order.
        kept = sorted if name == "tickets_again" else list
        assert kept(plain) == kept(traced) == kept(modelled)
    assert made.lost == 0
    (site,) = (one for one in made.sites if one.kind == "atomic" and any(row["site"] == one.id for row in made.table.to_pylist()))
    assert (site.completeness, site.evidence, site.reason) == (COMPLETE, PROVED, "")
    masks = sorted(row["active_mask"] for row in made.table.to_pylist() if row["site"] == site.id)
    assert masks == sorted(lanes_of(name, 0))


@pytest.mark.parametrize("name", ["tickets", "tickets_of_some", "places"])
def test_counts_are_those_of_the_emulator(name: str, gpu: Device, emulator: Target) -> None:
    found = []
    for where in (gpu, emulator):
        call = where.load(module((name,)))[name][1, 2 * WARP]
        counted = count(call, where.array(np.full(8 * WARP, -1, np.int64)), where.zeros(1, np.int64), np.uint32(3))
        (site,) = (one for one in counted.checked.sites if one.site.is_atomic)
        found.append((site.requests, site.lanes, site.addresses))
        assert site.exactness == HINT
    assert found[0] == found[1]


@pytest.mark.parametrize("space", ["global", "shared"])
def test_the_time_is_that_of_the_atomic_and_of_what_lanes_do_for_it(space: str, gpu: Device) -> None:
    call = gpu.load(timed(space))["timed"][1, WARP]
    made = trace(call, gpu.zeros(4 * WARP, np.int64), gpu.zeros(1, np.int64), np.uint32(TURNS))
    sites = sorted(one.id for one in made.sites if one.kind == "atomic")
    assert {one.completeness for one in made.sites if one.id in sites} == {COMPLETE}
    rows = made.table.to_pylist()
    cycles = [[row["end"] - row["start"] for row in rows if row["site"] == site] for site in sites]
    assert [len(one) for one in cycles] == [TURNS] * 3
    same, own, alone = (float(np.median(sorted(one)[: TURNS - SLOWEST])) for one in cycles)
    assert 25 <= same - alone <= 160
    assert 120 <= own - alone <= 320
