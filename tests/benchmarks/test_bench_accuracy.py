"""The parts of the accuracy benchmark that decide what its numbers mean."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from accuracy import loads_by_sm, mean_cycles
from assembled import disassemble
from chase import QUICK_LEVELS, TIMES_DTYPE, Chase, read_times
from probing import recorded

from memlane.lab.latency.window import (
    CHAINS,
    FILLERS,
    ONE_OPERATION,
    SWITCHED_OFF,
    extrapolated,
    scheduled_window,
    with_fillers,
    with_pauses,
)
from memlane.ptx import Instruction
from memlane.targets import target

pytestmark = pytest.mark.slow

STEPS = 50


def crowd(sms: int = 2, warps: int = 8, latency: int = 90, gap: int = 10) -> tuple[Any, np.ndarray]:
    """Records of warps that each load `STEPS` times, on SMs whose clocks have other origins, and what they noted themselves."""
    rows, walked = [], []
    for sm in range(sms):
        for warp in range(warps):
            begin = 10**9 * sm + warp
            starts = begin + np.arange(STEPS) * (latency + gap)
            rows += [(sm, start, start + latency) for start in starts]
            walked.append((begin, starts[-1] + latency + gap, sm, 0))
    records = np.array(rows, [("sm", "u2"), ("start", "i8"), ("end", "i8")])
    return SimpleNamespace(records=records, lost=0), np.array(walked, TIMES_DTYPE)


def test_littles_law_holds_for_a_whole_trace() -> None:
    trace, walked = crowd()
    for load in loads_by_sm(trace.records, walked, STEPS):
        assert load.latency == 90
        assert load.outstanding == pytest.approx(8 * 0.9, rel=0.01)
        assert load.latency * load.rate == pytest.approx(load.outstanding, rel=0.01)


def test_lost_records_break_it() -> None:
    trace, walked = crowd()
    trace.records = trace.records[:300]  # of 400 on the first SM
    load = loads_by_sm(trace.records, walked[:8], STEPS)[0]
    assert load.latency * load.rate / load.outstanding == pytest.approx(4 / 3, rel=0.02)


def test_a_mean_over_some_of_the_loads_is_refused() -> None:
    trace, _ = crowd()
    with pytest.raises(RuntimeError, match="800 records for 801 loads, 0 lost"):
        mean_cycles(trace, 801)


@pytest.fixture(scope="module")
def chase() -> Chase:
    return Chase(target("emulator:h200"), 1 << 20)


@pytest.mark.slow
def test_walks_that_begin_apart_never_meet(chase: Chase) -> None:
    level = next(level for level in QUICK_LEVELS if level.name == "DRAM")
    ring = chase.ring(level)
    assert ring is not None
    arrived = []
    for position in (0, level.steps):
        launch, times = chase.launch(level, ring, position)
        chase.target.launch(launch)
        arrived.append((int(read_times(times)[0]["arrived"]) - ring.address) // level.row_bytes)
    assert arrived == [level.steps * level.stride % level.rows, 2 * level.steps * level.stride % level.rows]


def test_fillers_replace_the_timed_loads_and_nothing_else(chase: Chase) -> None:
    twin = chase.probed("dependent")
    places = set(twin.traced.positions["chase_global"].values())
    before = instructions(twin.traced.module)
    for filler in FILLERS:
        after = instructions(with_fillers(twin, "chase_global", filler).traced.module)[4:]  # behind what prepares the filler
        kept = [one for one in after if one not in before]
        assert len(kept) == max(1, filler) * len(places)
        assert len(after) - len(kept) == len(before) - len(places)


def instructions(module: Any) -> list[Instruction]:
    return list(module.functions["chase_global"].body.instructions())


@pytest.mark.slow
def test_the_window_is_shorter_than_any_access(chase: Chase) -> None:
    level = next(level for level in QUICK_LEVELS if level.name == "L1")
    launch, _ = chase.launch(level, chase.ring(level), 0)
    twin = chase.probed("dependent")
    mean = mean_cycles(recorded(launch, twin, level.steps), level.steps)
    records = {
        filler: mean_cycles(recorded(launch, with_fillers(twin, launch.kernel.name, filler), level.steps), level.steps)
        for filler in FILLERS
    }
    assert records[CHAINS[1]] - records[CHAINS[0]] == (CHAINS[1] - CHAINS[0]) * chase.target.chip.latency.sfu
    assert 0 < extrapolated(records) <= records[SWITCHED_OFF] < mean - 10


@pytest.mark.parametrize("scheme", ["dependent", "consume"])
def test_an_assembled_chain_is_its_operations_between_two_clock_reads(scheme: str, chase: Chase) -> None:
    """Nothing else that waits: no operand is fetched there, and no operation was moved or folded away."""
    module = with_fillers(chase.probed(scheme), "chase_global", CHAINS[0]).traced.module
    opcodes = re.findall(r"^\s*/\*\w+\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)", section(disassemble(module, "sm_90"), "chase_global"), re.MULTILINE)
    clocks = [place for place, opcode in enumerate(opcodes) if opcode == "CS2R"]
    windows = [opcodes[a + 1 : b] for a, b in itertools.pairwise(clocks) if "MUFU.RCP64H" in opcodes[a:b]]
    assert len(windows) == 5  # four times in the unrolled loop, once behind it
    for window in windows:
        assert window.count("MUFU.RCP64H") == CHAINS[0]
        beside = {
            "SEL",
            "LOP3",
            "STS",
            "MOV",
            "IMAD",
            "ISETP",
            "UISETP",
            "PLOP3",
            "VIADD",
            "IADD3",
            "HFMA2",
        }  # The last of these makes a zero.
        assert {opcode.partition(".")[0] for opcode in window} <= {"MUFU", *beside}


@pytest.mark.slow
def test_a_pause_lies_between_the_stores_of_a_record_and_the_next_clock_read(chase: Chase) -> None:
    """Nothing waits for the registers of the stores within a window then, and they left long ago."""
    for filler in (None, ONE_OPERATION):
        twin = with_pauses(chase.loaded, "chase_global", chase.options("dependent"))
        module = (twin if filler is None else with_fillers(twin, "chase_global", filler)).traced.module
        lines = section(disassemble(module, "sm_90"), "chase_global").splitlines()
        opcodes = [found[1] for line in lines if (found := re.match(r"^\s*/\*\w+\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)", line))]
        clocks = [at for at, opcode in enumerate(opcodes) if opcode == "CS2R"]
        timed = [start for start, end in itertools.pairwise(clocks) if end - start < 10 and "SEL" in opcodes[start:end]]
        assert len(timed) == 5
        for start in timed:
            since_store = opcodes[max(at for at in range(start) if opcodes[at].startswith("STG")) :]
            assert "BRA" in since_store[: since_store.index("CS2R")], "the loop of the pause"


@pytest.mark.slow
def test_the_control_words_bound_the_window(chase: Chase) -> None:
    """One cycle from the first clock read to the access and two from the wait to the second, and two more where the assembler moved an
    operation on predicates in between."""
    options = chase.options("dependent")
    for probed in (with_pauses(chase.loaded, "chase_global", options), chase.probed("dependent")):
        least, most = scheduled_window(probed, "chase_global", "sm_90")
        assert 3 <= least <= most <= 5


def section(listing: str, kernel: str) -> str:
    return listing.split(f".text.{kernel}:")[1].partition(".section")[0]
