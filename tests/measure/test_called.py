"""Accesses of functions that a kernel calls: traced and counted at their lines like those of the kernel, for each way to call them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from memlane import measure
from memlane.audit import exactness, prove
from memlane.audit.assembled_module import AssembledModule
from memlane.audit.reconvergence import Reconvergence
from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.instrument import SCHEMES, Selection, site_table
from memlane.instrument import trace as instrument
from memlane.launch import LoadedModule, observing
from memlane.measure import Tracer, count, trace
from memlane.measure.device_counters import DeviceCounters
from memlane.ptx import Module
from memlane.record import COMPLETE, EXACT, HINT, ISSUE_ONLY, Call, Counts, Trace
from memlane.report import render_counts, render_trace, to_text
from memlane.sass import disassemble
from memlane.sass.listing import parse_listing
from tests.instrument.kernels import kernel
from tests.sass.code import cubin_of

SOURCE = """\
struct Window { const float* data; int first, last; };
__device__ __noinline__ float at(const float* data, int i) { return data[i]; }
__device__ __noinline__ float sum(Window w, int step) {
    float total = 0;
    #pragma unroll 1
    for (int i = w.first; i < w.last; i += step)
        total += at(w.data, i);
    return total;
}
__device__ __noinline__ void put(float* out, int i, float value) {
    if (value < 100)
        return;
    out[i] = value;
}
extern "C" __global__ void k(float* out, const float* data, int n) {
    int i = threadIdx.x;
    float total = sum(Window{data, i, n}, 16);
    put(out, i, total);
    if (i & 1)
        put(out, i + 64, at(data, n + i));
    out[i + 128] = total;
}
"""
THREADS, N = 64, 128
DATA = np.arange(N + THREADS, dtype=np.float32)


@pytest.fixture(scope="module")
def compiled() -> Module:
    return cuda(SOURCE, name="called.cu")


@pytest.fixture
def loaded(compiled: Module, target: Emulator) -> LoadedModule:
    return target.load(compiled)


def expected_output() -> npt.NDArray[np.float32]:
    out = np.zeros(192, np.float32)
    for i in range(THREADS):
        total = DATA[i:N:16].sum()
        out[i] = total if total >= 100 else 0
        out[i + 64] = DATA[N + i] if i & 1 else 0
        out[i + 128] = total
    return out


LANES = {
    2: sum(len(range(i, N, 16)) for i in range(THREADS)) + THREADS // 2,
    13: sum(int(DATA[i:N:16].sum() >= 100) for i in range(THREADS)) + THREADS // 2,
    21: THREADS,
}
"""By line: how many threads access memory there, each as often as it does."""
REQUESTS = {
    2: sum(max(len(range(i, N, 16)) for i in range(first, first + 32)) for first in (0, 32)) + 2,
    13: sum(any(DATA[i:N:16].sum() >= 100 for i in range(first, first + 32)) for first in (0, 32)) + 2,
    21: 2,
}


def counted_on_the_device(loaded: LoadedModule, *arguments: object) -> Counts:
    """By the road of a GPU, with counting instructions in the kernel."""
    tally = DeviceCounters(loaded)
    loaded.target.launch(tally.counting_launch(0, loaded["k"][1, THREADS].bind(*arguments)))
    [(_, counts)] = tally.collect()
    return counts


def test_counts_by_hand_on_both_roads(loaded: LoadedModule) -> None:
    out, data = loaded.target.zeros(192, np.float32), loaded.target.array(DATA)
    seen = count(loaded["k"][1, THREADS], out, data, N)
    assert np.array_equal(out.numpy(), expected_output())
    out.copy_from(np.zeros(192, np.float32))
    generated = counted_on_the_device(loaded, out, data, N)
    assert np.array_equal(out.numpy(), expected_output())
    assert generated.sites == seen.sites
    assert generated.branches == seen.branches
    assert {one.site.line: one.lanes for one in seen.by_line()} == LANES
    assert {one.site.line: one.requests for one in seen.by_line()} == REQUESTS
    assert seen.skipped == ()
    assert [row["called"] for row in seen.to_table()] == [one.site.called for one in seen.sites]
    assert "sum (called.cu:17) > at (called.cu:7)" in [one.site.called for one in seen.sites]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_traces_record_each_access_and_change_nothing(loaded: LoadedModule, scheme: str) -> None:
    out, data = loaded.target.zeros(192, np.float32), loaded.target.array(DATA)
    made = trace(loaded["k"][1, THREADS], out, data, N, scheme=scheme)
    assert np.array_equal(out.numpy().view(np.uint32), expected_output().view(np.uint32))
    lines = Counter(made.sites[site].line for site in made.table["site"].to_pylist())
    assert lines == REQUESTS
    assert made.lost == 0


def test_a_site_for_each_way_to_call(loaded: LoadedModule, tmp_path: Path) -> None:
    table = site_table(loaded.module)
    ways = Counter(tuple((one.function.partition("(")[0], one.line) for one in site.calls) for site in table.sites)
    assert set(ways) == {(("sum", 17), ("at", 7)), (("put", 18),), (("put", 20),), (("at", 20),), ()}
    assert set(ways.values()) == {1}
    assert {site.line for site in table.sites} == {2, 13, 21}
    assert table.sites[-1].calls == ()
    assert {one.file for site in table.sites for one in site.calls} == {"called.cu"}
    out, data = loaded.target.zeros(192, np.float32), loaded.target.array(DATA)
    made = trace(loaded["k"][1, THREADS], out, data, N)
    made.save(tmp_path / "called.parquet")
    again = Trace.load(tmp_path / "called.parquet")
    assert [site.calls for site in again.sites] == [site.calls for site in table.sites]
    assert again.sites[0].calls[0] == Call("sum(Window, int)", "called.cu", 17)


def test_reports_tell_the_line_of_the_function(loaded: LoadedModule) -> None:
    out, data = loaded.target.zeros(192, np.float32), loaded.target.array(DATA)
    for text in (
        to_text(render_trace(trace(loaded["k"][1, THREADS], out, data, N))),
        to_text(render_counts(count(loaded["k"][1, THREADS], out, data, N))),
    ):
        assert [int(line) for line in re.findall(r"^ +(\d+)(?:  .*)?$", text, re.MULTILINE)] == [2, 13, 21]
        assert "Not examined" not in text
        ways = "2 by sum (called.cu:17) > at (called.cu:7), at (called.cu:20); called.cu:13 by put (called.cu:18), put (called.cu:20)."
        assert f"Called, summed over the calls: called.cu:{ways}" in " ".join(text.split())


def test_a_trace_inside_a_count_sees_the_same(loaded: LoadedModule) -> None:
    out, data = loaded.target.zeros(192, np.float32), loaded.target.array(DATA)
    alone = count(loaded["k"][1, THREADS], out, data, N)
    with observing(counter := measure.Counter()), observing(tracer := Tracer()):
        loaded["k"][1, THREADS](out, data, N)
    (nested,) = counter.finish()
    assert nested.sites == alone.sites
    counts = tracer.finish().launches[0].counts
    assert counts is not None
    assert [(one.site.line, one.site.calls, one.lanes, one.sectors) for one in counts] == [
        (one.site.line, one.site.calls, one.lanes, one.sectors) for one in alone.sites
    ]


def test_some_warps_and_executions(loaded: LoadedModule) -> None:
    """A kernel that is traced in part has its body twice, and what it calls in both."""
    out, data = loaded.target.zeros(192, np.float32), loaded.target.array(DATA)
    made = trace(
        loaded["k"][1, THREADS], out, data, N, warps="1", executions="0-1", selection=Selection(lines=frozenset({("called.cu", 2)}))
    )
    assert np.array_equal(out.numpy(), expected_output())
    assert made.table.num_rows == 3, "two turns of the loop, and the call behind it"


# -- the assembled code -----------------------------------------------------------------------------------------------------------


def test_counts_are_exact_where_the_assembler_calls_the_function_as_the_text_does(loaded: LoadedModule) -> None:
    cubin_of(loaded.module)  # Skips where nothing can be assembled.
    out, data = loaded.target.zeros(192, np.float32), loaded.target.array(DATA)
    found = count(loaded["k"][1, THREADS], out, data, N).checked
    assert {(one.site.line, one.exactness) for one in found.sites} == {(2, EXACT), (13, EXACT), (21, EXACT)}


CALLS_IN_A_LOOP = kernel(
    """
    .reg .u32 %i, %v; .reg .u64 %a; .reg .pred %q;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; and.b32 %i, %i, 3;
again:
    { .param .b64 at; .param .b32 back; st.param.b64 [at], %a; call (back), load, (at); ld.param.b32 %v, [back]; }
    add.u64 %a, %a, 128; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 8; @%q bra again;
    st.global.u32 [%a], %v; ret;
    """,
    before=".func (.param .b32 back) load(.param .b64 at) { .reg .u64 %a; .reg .u32 %v, %w;"
    " ld.param.u64 %a, [at]; ld.global.u32 %v, [%a]; ld.global.u32 %w, [%a]; add.u32 %v, %v, %w; st.param.b32 [back], %v; ret; }",
)


def test_what_the_assembler_made_of_an_access_of_a_function_is_told() -> None:
    """It loads once what the function loads twice, and calls the function in a loop as the text does."""
    found = exactness(CALLS_IN_A_LOOP, cubin_of(CALLS_IN_A_LOOP))
    reason = "ptxas made no access for it: its value was already known, or nothing uses it"
    assert [(one.verdict, one.reason) for one in found] == [(EXACT, ""), (HINT, reason), (EXACT, "")]
    traced = instrument(CALLS_IN_A_LOOP)
    assert [one.completeness for one in prove(traced, cubin_of(traced.module))][::2] == [COMPLETE, ISSUE_ONLY]


def test_a_function_that_the_assembler_inlined_is_no_evidence() -> None:
    program = disassemble(cubin_of(CALLS_IN_A_LOOP))
    found = exactness(CALLS_IN_A_LOOP, replace(program, functions={"k": program.functions["k"]}))
    reason = "ptxas inlined the function, so the accesses of its calls cannot be told apart"
    assert [(one.verdict, one.reason) for one in found] == [(HINT, reason), (HINT, reason), (EXACT, "")]


@pytest.mark.parametrize("waits", [True, False])
def test_lanes_that_come_back_apart_make_a_hint_of_what_is_behind_the_call(waits: bool) -> None:
    """Without the barrier in the function that its lanes wait at, those that returned early go on alone."""
    text = """\
	.section .text.put,"ax",@progbits
put:
	//## File ".nv_debug_ptx_txt.1", line 1
        /*0000*/ {wait} ;                       /* 0x0000000000000000 */
                                                /* 0x0000000000000000 */
        /*0010*/ @P0 BRA `(.L_x_3) ;            /* 0x0000000000000000 */
                                                /* 0x0000000000000000 */
        /*0020*/ STG.E desc[UR4][R2.64], R0 ;   /* 0x0000000000000000 */
                                                /* 0x0000000000000000 */
.L_x_3:
        /*0030*/ {join} ;                       /* 0x0000000000000000 */
                                                /* 0x0000000000000000 */
        /*0040*/ RET.ABS.NODEC R20 0x0 ;        /* 0x0000000000000000 */
                                                /* 0x0000000000000000 */
	.section .text.k,"ax",@progbits
k:
	//## File ".nv_debug_ptx_txt.1", line 2
        /*0000*/ CALL.ABS.NOINC `(put) ;        /* 0x0000000000000000 */
                                                /* 0x0000000000000000 */
        /*0010*/ STG.E desc[UR4][R4.64], R0 ;   /* 0x0000000000000000 */
                                                /* 0x0000000000000000 */
        /*0020*/ EXIT ;                         /* 0x0000000000000000 */
                                                /* 0x0000000000000000 */
"""
    wait, join = ("BSSY B0, `(.L_x_3)", "BSYNC B0") if waits else ("NOP", "NOP")
    program = parse_listing(text.replace("{wait}", wait).replace("{join}", join))
    code = AssembledModule(kernel("ret;"), program)
    store = next(node for node in code.flow.nodes_of("k") if code.flow.nodes[node].opcode == "STG")
    reason = Reconvergence(code).diverged("k").get(store, "")
    assert ("together" in reason) is not waits
