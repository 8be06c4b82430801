"""Accesses that no probe can stand around are not passed over in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memlane.emulate import Emulator
from memlane.launch import LoadedModule, observing
from memlane.measure import Tracer, count, trace
from memlane.measure.device_counters import DeviceCounters
from memlane.ptx import parse
from memlane.record import Skipped, Trace
from memlane.report import counts_document, render_counts, render_findings, render_trace, summary_document, to_text

PTX = """\
.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 result) helper(.param .b64 at)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [at];
    ld.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 77;
    { .param .b64 on; .param .b32 back; st.param.b64 [on], %rd1; @%p1 call (back), helper, (on); }
    st.param.b32 [result], %r1;
    ret;
}
.visible .entry calls(.param .u64 data)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [data];
    { .param .b64 at; .param .b32 back; st.param.b64 [at], %rd1; call (back), helper, (at); ld.param.b32 %r1, [back]; }
    st.global.u32 [%rd1+4], %r1;
    ret;
}
.visible .entry only_calls(.param .u64 data)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [data];
    { .param .b64 at; .param .b32 back; st.param.b64 [at], %rd1; call (back), helper, (at); ld.param.b32 %r1, [back]; }
    ret;
}
.visible .entry plain(.param .u64 data)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [data];
    ld.global.u32 %r1, [%rd1];
    ret;
}
"""
HELPER = Skipped("helper", "ld.global.u32", "calls.ptx", 8, "called, not inlined: it calls itself", ("calls", "only_calls"))
NOTE = "Not examined: 1 x ld.global.u32 in helper (called, not inlined: it calls itself; calls.ptx:8)."


@pytest.fixture
def calls(target: Emulator) -> LoadedModule:
    return target.load(parse(PTX, "calls.ptx"))


def flowing(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("kernel", "skipped"), [("calls", (HELPER,)), ("only_calls", (HELPER,)), ("plain", ())])
def test_traces_and_counts_carry_what_was_skipped_in_their_kernels(calls: LoadedModule, kernel: str, skipped: tuple[Skipped, ...]) -> None:
    data = calls.target.zeros(2, np.uint32)
    assert trace(calls[kernel][1, 1], data).skipped == skipped
    assert count(calls[kernel][1, 1], data).skipped == skipped
    tally = DeviceCounters(calls)
    calls.target.launch(tally.counting_launch(0, calls[kernel][1, 1].bind(data)))
    assert [counts.skipped for _, counts in tally.collect()] == [skipped]


def test_two_accesses_of_one_line_are_two(target: Emulator) -> None:
    twice = PTX.replace("ld.global.u32 %r1, [%rd1];\n    setp", "ld.global.u32 %r1, [%rd1]; ld.global.u32 %r1, [%rd1];\n    setp")
    data, module = target.zeros(2, np.uint32), parse(twice, "calls.ptx")
    with observing(tracer := Tracer()):
        target.load(module)["calls"][1, 1](data)
        target.load(module)["only_calls"][1, 1](data)
    assert tracer.finish().skipped == (HELPER, HELPER)


def test_reports_tell_of_it(calls: LoadedModule, tmp_path: Path) -> None:
    data = calls.target.zeros(2, np.uint32)
    made, counts = trace(calls["calls"][1, 1], data), count(calls["calls"][1, 1], data)
    made.save(tmp_path / "calls.parquet")
    loaded = Trace.load(tmp_path / "calls.parquet")
    assert loaded.skipped == (HELPER,)
    assert NOTE in flowing(to_text(render_trace(loaded)))
    assert NOTE in flowing(to_text(render_counts(counts)))
    findings = flowing(to_text(render_findings([], clean=["calls"], skipped=loaded.skipped)))
    assert findings.index("calls: no problems found") < findings.index(NOTE)
    assert "no memory access that could be observed was executed" in flowing(to_text(render_findings([], skipped=loaded.skipped)))
    assert (
        summary_document(loaded)["skipped"][0]["function"] == counts_document(counts)["launches"][0]["skipped"][0]["function"] == "helper"
    )


def test_many_are_told_in_part(calls: LoadedModule) -> None:
    data = calls.target.zeros(2, np.uint32)
    counts = count(calls["plain"][1, 1], data)
    many = [Skipped("f(int)", "st.global.u8", "/src/f.cu", line // 2, "called, not inlined", ("plain",)) for line in range(40)]
    text = flowing(to_text(render_counts(type(counts)(**{**vars(counts), "skipped": tuple(many)})), 2000))
    assert "Not examined: 2 x st.global.u8 in f (called, not inlined; f.cu:0); 2 x" in text
    assert text.count(" x st.global.u8") == 8
    assert "f.cu:7); and 24 more." in text
