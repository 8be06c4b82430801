"""Asynchronous stores and reductions that release (`st.async.release`, `red.async.release`) are counted, timed, traced and checked as those
that they stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import load as load_chip
from memlane.emulate import Emulator
from memlane.launch import Launch, Layers, Observation, Report
from memlane.measure import count, trace
from memlane.ptx import Module, parse
from memlane.record import ISSUE_ONLY

PLAIN = {
    "st.async.release.gpu.global.u32": "st.release.gpu.global.u32",
    "red.async.release.gpu.global.add.u32": "red.release.gpu.global.add.u32",
}


def module(instruction: str) -> Module:
    """Each thread stores to every third word, so that a warp touches 12 sectors."""
    return parse(
        f""".version 8.7
.target sm_100
.address_size 64
.visible .entry k(.param .u64 p) {{
    .reg .b64 %rd<3>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 12, %rd1;
    {instruction} [%rd2], %r1;
    ret;
}}
""",
        "k.ptx",
    )


def launch(instruction: str, words: int = 192) -> Launch:
    target = Emulator(load_chip("h200"))
    return target.load(module(instruction))["k"][1, 64].bind(target.zeros(words, "u4"))


def observed(one: Launch, layers: Layers) -> Observation:
    seen: list[Observation] = []
    one.kernel.target.launch(replace(one, layers=replace(layers, report=seen.append)))
    return seen[0]


@pytest.mark.parametrize("instruction", PLAIN)
def test_counts_and_times_are_those_of_the_plain_instruction(instruction: str) -> None:
    found, plain = (observed(launch(name), Layers(counts=True, clock=True)) for name in (instruction, PLAIN[instruction]))
    assert found.counts.keys() == plain.counts.keys()
    assert all(np.array_equal(found.counts[index], plain.counts[index]) for index in plain.counts)
    assert found.cycles == plain.cycles
    assert found.cycles is not None
    target = Emulator(load_chip("h200"))
    (site,) = count(target.load(module(instruction))["k"][1, 64], target.zeros(192, "u4")).sites
    assert (site.requests, site.lanes, site.sectors) == (2, 64, 24)


@pytest.mark.parametrize("stores", ["issued", "block", "device"])
@pytest.mark.parametrize("instruction", PLAIN)
def test_a_trace_has_their_issue_whatever_is_asked_for(instruction: str, stores: str) -> None:
    """No load and no fence of the thread waits for what is asynchronous."""
    target = Emulator(load_chip("h200"))
    out = target.zeros(192, "u4")
    made = trace(target.load(module(instruction))["k"][1, 64], out, stores=stores)
    assert out.numpy()[::3].tolist() == list(range(64))
    assert made.table["op"].to_pylist() == [instruction] * 2
    assert set(made.table["completeness"].to_pylist()) == {ISSUE_ONLY}
    assert made.table["sectors"].to_pylist() == [12, 12]


@pytest.mark.parametrize("instruction", PLAIN)
def test_the_checker_sees_where_they_go(instruction: str) -> None:
    seen: list[Report] = list(observed(launch(instruction, words=189), Layers(check=True)).reports)
    assert [(one.kind, one.who.thread) for one in seen] == [("out of bounds", (63, 0, 0))]
