"""Which of the accesses of a line a finding is about: by the names of arrays, by columns, and by where a function was called."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from memlane.compile import cuda
from memlane.diagnose import Finding, explain
from memlane.instrument.sites import site_table
from memlane.launch import Target
from memlane.measure import trace
from memlane.report.findings import render_worst
from memlane.targets import target as named
from tests.diagnose.made import accesses, counted, site
from tests.diagnose.made import trace as made_trace

SOURCE = """\
__device__ float strided(const float* from, int i) { return from[32 * i]; }
__global__ void normalised(float* out, const float* in, const float* gamma, const float* beta, int n) {
    int i = threadIdx.x;
    out[i] = in[i] * gamma[n * i] + beta[n * i];
}
__global__ void gathered(float* out, const float* in) {
    int i = threadIdx.x;
    out[i] = in[i]; out[i + 32] = in[32 * i];
}
__global__ void called(float* out, const float* in) {
    out[threadIdx.x] = strided(in, threadIdx.x);
}
__device__ float table[1024];
__global__ void from_table(float* out, int n) {
    __shared__ float tile[32][32];
    tile[threadIdx.x][0] = table[n * threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[31 - threadIdx.x][0];
}
"""


@pytest.fixture(scope="module")
def target() -> Target:
    return named("emulator:h200")


@pytest.fixture(scope="module")
def kernels(target: Target) -> Any:
    return target.load(cuda(SOURCE, name="norm.cu"))


def told(kernels: Any, name: str, *arguments: object) -> list[Finding]:
    return explain(trace(kernels[name][1, 32], *arguments))


def test_arrays_of_one_line_are_told_by_their_names(target: Target, kernels: Any) -> None:
    """Only two of the three loads lie apart: what they move says so, and their names."""
    given = [target.zeros(n) for n in (32, 32, 1024, 1024)]
    found = {one.rule: one for one in told(kernels, "normalised", *given, 32)}
    one = found["uncoalesced-global"]
    assert (one.arrays, one.per_request, one.requests) == (("gamma", "beta"), 32, 2)
    assert "norm.cu:4  ld.global.f32 of gamma and beta in normalised: each request touches 32 sectors where 4 would do" in str(one)
    assert one.as_dict()["arrays"] == ["gamma", "beta"]


def test_accesses_of_one_array_in_one_column_are_told_by_what_they_move(target: Target, kernels: Any) -> None:
    """The compiler gives both loads the column in which the line begins."""
    (one,) = told(kernels, "gathered", target.zeros(64), target.zeros(1024))
    assert (one.rule, one.arrays, one.column) == ("uncoalesced-global", ("in",), None)
    assert (one.per_request, one.least_per_request, one.most_per_request) == (18, 4, 32)
    console = Console(width=200)
    with console.capture() as shown:
        console.print(render_worst([one]))
    assert "(ld.global.f32: 18 sectors per request on average, 4 to 32, ideally 4)" in shown.get()


def test_statements_of_one_line_are_told_by_their_columns() -> None:
    """As Triton's compiler tells them."""
    one, two = site(0), site(1, column=21)
    counts = [counted(one, 100, sectors=4, ideal_sectors=4), counted(two, 100, sectors=32, ideal_sectors=4)]
    made = made_trace([accesses(one, 300, (1, 1, 100)), accesses(two, 600, (1, 1, 100))], counts)
    (finding,) = (one for one in explain(made) if one.unit == "sectors")
    assert (finding.place, finding.column, finding.requests) == ("transpose.cu:4:21", 21, 100)
    assert (finding.transactions, finding.excess_transactions) == (3200, 2800)


def test_a_function_that_was_inlined_is_told_with_its_call(target: Target, kernels: Any) -> None:
    (one,) = told(kernels, "called", target.zeros(32), target.zeros(1024))
    assert (one.place, one.called_at, one.access) == ("norm.cu:1", ("norm.cu:11",), "in; called at norm.cu:11")


def test_variables_have_their_names(target: Target, kernels: Any) -> None:
    found = {one.rule: one for one in told(kernels, "from_table", target.zeros(32), 32)}
    assert found["uncoalesced-global"].arrays == ("table",)
    assert found["bank-conflict"].arrays == ("tile",)


@pytest.mark.numba
def test_the_table_of_a_sine_is_not_an_array_of_the_user(target: Target) -> None:
    """Its rows of 16 bytes begin where the compiler put them."""
    numba = pytest.importorskip("numba.cuda")
    assert numba
    from memlane.compile import numba as compiled

    def sines(out: Any, x: Any) -> None:
        i = numba.threadIdx.x
        out[i] = math.sin(x[i])

    kernel = target.load(compiled(sines, "void(float64[::1], float64[::1])"))["sines"]
    x = target.array(np.linspace(0, 6, 128))
    made = trace(kernel[1, 128], target.zeros(128, "f8"), x)
    tables = [site for site in made.sites if site.is_of_compiler]
    assert {site.array for site in tables} >= {"__cudart_sin_cos_coeffs"}
    assert [str(one) for one in explain(made) if set(one.arrays) - {"out", "x"}] == []


STRUCTURES = """\
struct Inner { const float* from; int stride; };
struct Problem { float* out; char kind; const float* in; int n; Inner inner; float3 scale; const float* tables[3]; };
__global__ void members(Problem p, const float* weights) {
    int i = threadIdx.x;
    p.out[i] = p.in[32 * i] + p.inner.from[i] * weights[i] + p.tables[1][32 * i];
}
__global__ void chosen(Problem p, int n) { p.out[threadIdx.x] = p.tables[n % 3][32 * threadIdx.x]; }
template <class T> struct Box { T* out; const T* in; };
__global__ void boxed(Box<float> b) { b.out[threadIdx.x] = b.in[32 * threadIdx.x]; }
"""


def test_members_of_a_structure_are_arrays_of_their_own(target: Target) -> None:
    """The offsets by hand: 0, 8 (kind), 16, 24, 32 and 40, 48 (three floats), 64 to 87."""
    arrays = [target.zeros(1024) for _ in range(6)]
    addresses = np.array([one.address for one in arrays], np.uint64)
    packed = np.zeros(88, np.uint8)
    for offset, address in zip((0, 16, 32, 64, 72, 80), addresses, strict=True):
        packed[offset : offset + 8] = np.frombuffer(address.tobytes(), np.uint8)
    kernels = target.load(cuda(STRUCTURES, name="members.cu"))
    found = explain(trace(kernels["members"][1, 32], packed.tobytes(), target.zeros(32), counts=True))
    apart = [one for one in found if one.rule == "uncoalesced-global"]
    assert {name for one in apart for name in one.arrays} == {"p.in", "p.tables[1]"}
    assert all("p.inner.from" not in str(one) for one in apart)


@pytest.mark.parametrize(("kernel", "arrays"), [("chosen", {"p"}), ("boxed", {"b"})])
def test_a_member_that_cannot_be_named_is_told_by_its_argument(kernel: str, arrays: set[str]) -> None:
    sites = site_table(cuda(STRUCTURES, name="members.cu")).sites
    assert {one.array for one in sites if kernel in one.kernel} <= arrays | {"p.out", ""}
