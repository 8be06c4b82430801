"""Accesses of functions that a kernel calls: traced and counted at their lines like those of the kernel, for each way to call them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from memlane import measure
from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.instrument import SCHEMES, site_table
from memlane.launch import LoadedModule, observing
from memlane.measure import Tracer, count, trace
from memlane.measure.tallied import Tally
from memlane.ptx import Module
from memlane.record import Call, Counts, Trace
from memlane.report import render_counts, render_trace, to_text

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
    tally = Tally(loaded)
    loaded.target.launch(tally.counting(0, loaded["k"][1, THREADS].bind(*arguments)))
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
        assert "Not looked at" not in text


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
