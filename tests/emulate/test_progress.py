"""A long launch says how far it is, whatever runs it, and can be stopped by who listens."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from memlane.emulate import Emulator
from memlane.emulate.run import interrupt, progress
from memlane.launch import Kernel, Launch, Layers, following
from memlane.ptx import parse
from tests.emulate.running import emulator, program
from tests.emulate.test_layers import observe

SLOW = """
    mov.u32 %r1, 0;
again:
    ld.global.u32 %r2, [%mine];
    add.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, TURNS;
    @%p1 bra again;
    st.global.u32 [%mine], 7;
"""


def _slow(target: Emulator, turns: int) -> Kernel:
    return target.load(parse(program(SLOW.replace("TURNS", str(turns))), "slow.ptx"))["k"]


def _heard(blocks: int, turns: int, layers: Layers) -> list[int]:
    target, heard = emulator(), []

    def tell(launch: Launch, done: int) -> None:
        assert launch.blocks == blocks
        heard.append(done)

    out = target.zeros(32, np.uint64)
    with following(tell):
        observe(_slow(target, turns)[blocks, 32], out, layers=layers)
    assert out.numpy().tolist() == [7] * 32
    return heard


def _heard_of_a_long_one(blocks: int, turns: int, layers: Layers) -> tuple[int, list[int]]:
    """The blocks of a launch that is told of more than once, and what is told: on a fast machine, or one that has much else to do, it takes
    more of them."""
    for times in (1, 4, 16, 64):
        heard = _heard(times * blocks, turns, layers)
        if len(set(heard)) >= 2:
            break
    return times * blocks, heard


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at a launch is told of, and looks follow each other closely."""
    monkeypatch.setattr(interrupt, "_POLL_S", 0.005)
    monkeypatch.setattr(progress, "REPORT_INTERVAL_S", 0.0)


# With the clock 4224 blocks of a warp run side by side on an H200, and end nearly at once.
@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(("blocks", "turns", "layers"), [(1000, 10_000, Layers()), (16_000, 20, Layers(counts=True, clock=True))])
def test_the_blocks_that_have_ended_are_told(blocks: int, turns: int, layers: Layers) -> None:
    blocks, heard = _heard_of_a_long_one(blocks, turns, layers)
    assert heard == sorted(heard)
    assert len(set(heard)) >= 2
    assert all(0 <= done <= blocks for done in heard)


@pytest.mark.usefixtures("often")
def test_a_launch_of_another_thread_tells_too() -> None:
    told: list[tuple[int, list[int]]] = []
    thread = threading.Thread(target=lambda: told.append(_heard_of_a_long_one(1000, 10_000, Layers())))
    thread.start()
    thread.join()
    ((blocks, heard),) = told
    assert len(set(heard)) >= 2
    assert max(heard) <= blocks


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(("tick_s", "told"), [(0.0, False), (0.04, True)])
def test_a_short_launch_tells_nothing(monkeypatch: pytest.MonkeyPatch, tick_s: float, told: bool) -> None:
    """By a clock that stands still, and by one that goes on at each look."""
    ticks = itertools.count()
    monkeypatch.setattr(progress, "REPORT_INTERVAL_S", 0.1)
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: tick_s * next(ticks)))
    for times in (1, 4, 16, 64):
        looks = next(ticks)
        heard = _heard(1000 * times, 10_000, Layers())
        if next(ticks) - looks > 10:
            break
    assert next(ticks) - looks > 10
    assert bool(heard) is told


def test_what_a_listener_raises_stops_the_launch() -> None:
    target, heard = emulator(), []

    def tell(launch: Launch, done: int) -> None:
        heard.append(done)
        raise KeyboardInterrupt("no more")

    out = target.zeros(32, np.uint64)
    slow = _slow(target, 10_000)
    with following(tell), pytest.raises(KeyboardInterrupt, match="no more"):
        slow[100_000, 32](out)
    assert len(heard) == 1
    slow[1, 32](out)
    assert out.numpy().tolist() == [7] * 32
