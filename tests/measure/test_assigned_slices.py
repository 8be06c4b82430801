"""Slices of the trace buffer that the host gives to launches that run once, beside those that warps of other launches ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memlane.chip import load as load_chip
from memlane.emulate import Emulator
from memlane.instrument import Sampling, TraceOptions
from memlane.launch import Launch, LoadedModule, observing
from memlane.measure import Tracer, arena, readout
from memlane.ptx import parse

LOOP = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry turns(.param .u64 data, .param .u32 count)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r5, [count];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ctaid.y;
    mov.u32 %r4, %nctaid.x;
    mad.lo.u32 %r2, %r3, %r4, %r2;
    mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r1, %r2, %r4, %r1;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
AGAIN:
    ld.global.u32 %r6, [%rd2];
    add.u32 %r6, %r6, 1;
    st.global.u32 [%rd2], %r6;
    sub.u32 %r5, %r5, 1;
    setp.gt.u32 %p, %r5, 0;
    @%p bra AGAIN;
    ret;
}
"""
GRID, THREADS, TURNS = (5, 3), 96, 2
WARPS = 5 * 3 * 3
SAMPLES = {
    "all": Sampling(),
    "warps": Sampling(every=4, seed=3),
    "warps by 7": Sampling(every=7),
    "blocks": Sampling(every=2, whole_blocks=True),
    "blocks by 3": Sampling(every=3, seed=1, whole_blocks=True),
    "executions": Sampling.of(executions="1", every=3),
}


@pytest.fixture
def kernels() -> LoadedModule:
    return Emulator(load_chip("h200")).load(parse(LOOP, "turns.ptx"))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each buffer that is read: how many slices were asked for, and how many assigned."""
    found: list[tuple[int, int]] = []
    real = readout.filled_part

    def watched(target: Any, address: int, layout: Any, header: Any, assigned: int = 0) -> Any:
        found.append((readout.slices_asked(header), assigned))
        return real(target, address, layout, header, assigned)

    monkeypatch.setattr(arena, "filled_part", watched)
    return found


def launch(kernels: LoadedModule) -> Launch:
    data = kernels.target.zeros(WARPS * 32, "u4")
    return kernels["turns"][GRID, THREADS].bind(data, TURNS)


def rows(tracer: Tracer) -> dict[int, list[tuple[int, ...]]]:
    """By launch of the trace: its rows, without times."""
    made = tracer.finish()
    assert made.lost == 0
    names = ("launch", "block", "warp", "site", "execution", "active_mask")
    found: dict[int, list[tuple[int, ...]]] = {}
    for number, *row in sorted(zip(*(made.table[name].to_pylist() for name in names), strict=True)):
        found.setdefault(number, []).append(tuple(row))
    return found


@pytest.mark.parametrize("large", [False, True], ids=["whole slices", "cut slices"])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_rows_from_slices_of_either_kind(
    kernels: LoadedModule, seen: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, name: str, large: bool
) -> None:
    if large:
        monkeypatch.setattr(readout, "SMALL_SLICE_BYTES", 0)
    options, found = TraceOptions(sampling=SAMPLES[name]), []
    for start in (lambda one: kernels.target.start(one), lambda one: kernels.target.graph([one]).replay()):
        with observing(tracer := Tracer(options)):
            start(launch(kernels))
        found.append(rows(tracer))
    assert found[0] == found[1]
    assert len(found[0][0]) == len({row[:2] for row in found[0][0]}) * 2 * (1 if name == "executions" else TURNS)
    (none, assigned), (asked, nothing) = seen
    assert (none, nothing) == (0, 0)
    assert asked == len({row[:2] for row in found[0][0]})
    assert assigned >= asked


@pytest.mark.parametrize("spare", [0, 1 << 24])
def test_launches_of_both_kinds_share_a_buffer_and_lose_nothing(kernels: LoadedModule, monkeypatch: pytest.MonkeyPatch, spare: int) -> None:
    """A graph that is started twice asks twice; with no room to spare buffers follow each other."""
    monkeypatch.setitem(arena.SPARE_BYTES, True, spare)
    target = kernels.target
    with observing(tracer := Tracer(TraceOptions(sampling=SAMPLES["warps"]), records_per_warp=8)):
        target.start(launch(kernels))
        graph = target.graph([launch(kernels), launch(kernels)])
        graph.replay()
        target.start(launch(kernels))
        if spare:
            graph.replay()
        target.start(launch(kernels))
    found = rows(tracer)
    assert len(found) == (7 if spare else 5)
    assert len({tuple(one) for one in found.values()}) == 1, "each run records what every other does"


@pytest.mark.parametrize("window", [{"blocks": "1-3"}, {"warps": "1"}, {"sms": "0-200"}])
def test_warps_of_windows_ask_for_their_slices(kernels: LoadedModule, seen: list[tuple[int, int]], window: dict[str, Any]) -> None:
    with observing(tracer := Tracer(TraceOptions(sampling=Sampling.of(**window)))):
        kernels.target.start(launch(kernels))
    assert rows(tracer)
    assert seen[0][1] == 0
    assert seen[0][0] > 0


def test_what_another_library_captures_asks_for_its_slices(
    kernels: LoadedModule, seen: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(kernels.target), "is_recording", lambda self, stream: True)
    with observing(tracer := Tracer(TraceOptions())):
        kernels.target.start(launch(kernels))
    assert len(rows(tracer)[0]) == WARPS * 2 * TURNS
    assert seen == [(WARPS, 0)]


@pytest.mark.parametrize("sampling", SAMPLES.values(), ids=SAMPLES.keys())
def test_warps_have_numbers_of_their_own_below_what_is_reserved(sampling: Sampling) -> None:
    """By arithmetic on the host: what `Sampling.number` writes for the kernel."""
    draw = sampling.draw
    size = 3 if sampling.whole_blocks else 1
    drawn = list(range(WARPS)) if draw is None else np.concatenate(list(draw.among(0, WARPS // size))).tolist()
    numbers = [
        number if draw is None else number // draw.every * size + inside for number in drawn for inside in range(size if draw else 1)
    ]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < sampling.places(15, 3)
