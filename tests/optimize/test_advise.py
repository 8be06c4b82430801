"""Which layout an array in global memory should have: tried, compared, and weighed against what the remap costs."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

import memlane as ml
from memlane.errors import LayoutError
from memlane.layout import column_major
from memlane.optimize.advise import LayoutAdvice, Tried, advise_layout
from memlane.transfer import upload

CODE = """
extern "C" __global__ void total(const float* rows, float* sums, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float sum = 0;
    #pragma unroll 1
    for (int k = 0; k < 64; ++k) sum += rows[i * 64 + k];
    sums[i] = sum;
}
extern "C" __global__ void scale(float* rows, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    #pragma unroll 1
    for (int k = 0; k < 64; ++k) rows[i * 64 + k] *= 2;
}
extern "C" __global__ void lost(const float* rows, const float* other, float* out, int which) {
    const float* chosen = which ? rows : other;
    out[threadIdx.x] = rows[threadIdx.x * 64] + chosen[0];
}
"""
COUNT = 256


@pytest.fixture(scope="module")
def kernels() -> object:
    return ml.target("emulator:h200", deterministic=True).load(ml.cuda(CODE, name="kernels.cu"))


def rows() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 9, (COUNT, 64)).astype("f4")


def test_a_row_for_each_thread_is_advised_to_lie_by_columns(kernels: object) -> None:
    target = kernels.target
    array, sums = target.array(rows()), target.zeros(COUNT)
    (advice,) = ml.advise_layout(kernels["total"][COUNT // 256, 256], array, sums, COUNT)
    assert (advice.parameter, advice.shape, advice.dtype) == (0, (COUNT, 64), "f4")
    assert advice.sectors == 8 * advice.ideal_sectors
    turned = next(one for one in advice.tried if one.layout == column_major((COUNT, 64)))
    assert turned.same
    assert turned.sectors == advice.ideal_sectors + COUNT * 4 // 32
    assert all(one.same for one in advice.tried)
    assert np.array_equal(array.numpy(), rows())
    assert not sums.numpy().any()
    pinned = target.pinned((COUNT, 64))
    plain, remapped = (upload(target, pinned, layout=one).transfer.time().elapsed_ns for one in ("row-major", turned.layout))
    assert turned.exposed_ns == pytest.approx(remapped - plain, rel=0.01)


def test_stores_are_compared_too(kernels: object) -> None:
    array = kernels.target.array(rows())
    (advice,) = advise_layout(kernels["scale"][COUNT // 256, 256], array, COUNT)
    assert all(one.same for one in advice.tried)
    assert np.array_equal(array.numpy(), rows())


def test_one_dimension_is_taken_for_rows_as_far_apart_as_lanes_read(kernels: object) -> None:
    target = kernels.target
    array, sums = target.array(rows().ravel()), target.zeros(COUNT)
    call = kernels["total"][COUNT // 256, 256]
    (advice,) = advise_layout(call, array, sums, COUNT)
    assert advice.shape == (COUNT, 64)
    assert "Argument 1 (rows) of total, f4[16384] (taken as f4[256, 64]), moves 8 times" in advice.verdict
    assert np.array_equal(array.numpy(), rows().ravel())
    (said,) = advise_layout(call, array, sums, COUNT, shapes={0: (COUNT, 64)})
    assert said.tried == advice.tried
    with pytest.raises(LayoutError, match=r"has 16,384 elements, which do not fill an array of shape \(3, 64\)"):
        advise_layout(call, array, sums, COUNT, shapes={0: (3, 64)})


LOOSE = """
extern "C" __global__ void squares(const float* a, float* out) { out[threadIdx.x] = a[threadIdx.x * threadIdx.x]; }
extern "C" __global__ void chosen(const float* a, const int* index, float* out) { out[threadIdx.x] = a[index[threadIdx.x]]; }
"""


def test_an_array_that_is_no_matrix_gets_a_remedy(kernels: object) -> None:
    target = kernels.target
    loose = target.load(ml.cuda(LOOSE, name="loose.cu"))
    a, out = target.zeros(1024), target.zeros(32)
    (advice,) = advise_layout(loose["squares"][1, 32], a, out)
    assert advice.verdict.endswith(
        "No layout could be tried: it has one dimension: pass an array of two or more, or pass its shape as shapes= of ml.advise_layout."
    )
    (advice,) = advise_layout(loose["chosen"][1, 32], a, target.array(np.arange(0, 1024, 32, dtype="i4")), out)
    assert "if these are known before the launch, memlane.transfer.gather copies the elements in the order" in advice.verdict


PARTICLES = """
struct Particle { float x, y, z, mass; };
extern "C" __global__ void heavy(const Particle* p, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = p[i].x * p[i].mass;
}
"""


def test_structures_are_tried_as_arrays_of_their_fields(kernels: object) -> None:
    kind = np.dtype([(name, "f4") for name in ("x", "y", "z", "mass")])
    host = np.random.default_rng(2).integers(0, 99, (COUNT, 4)).astype("f4").view(kind).reshape(-1)
    target = kernels.target
    heavy, out = target.load(ml.cuda(PARTICLES, name="particles.cu"))["heavy"], target.zeros(COUNT)
    (advice,) = advise_layout(heavy[1, COUNT], target.array(host), out)
    assert "V16[256] (taken as V4[256, 4]), moves 4 times the sectors it needs" in advice.verdict
    (tried,) = advice.tried
    assert tried.same
    assert tried.sectors == 3 * COUNT * 4 // 32
    assert np.array_equal(upload(target, host, layout=advice.layout(1)).numpy(), host)  # few launches pay for nothing
    for layout in ("soa", tried.layout):
        array = upload(target, host, layout=layout)
        assert np.array_equal(array.field("mass").numpy(), host["mass"])
        for shape, dtype in ((host.shape, kind), (COUNT, kind), ((COUNT, 4), "f4")):
            turned = ml.relayout(heavy, "soa", parameter="p", shape=shape, dtype=dtype)
            out.copy_from(np.zeros(COUNT, "f4"))
            turned[1, COUNT](array, out)
            assert np.array_equal(out.numpy(), host["x"] * host["mass"])


def test_what_cannot_be_followed_is_said(kernels: object) -> None:
    target = kernels.target
    array, other, out = target.array(rows()), target.zeros(4), target.zeros(32)
    (advice,) = advise_layout(kernels["lost"][1, 32], array, other, out, 0)
    assert not advice.tried
    assert "No layout could be tried: kernels.cu:" in advice.verdict
    assert "depending on the path taken" in advice.verdict


def test_nothing_is_said_of_arrays_that_are_read_well(kernels: object) -> None:
    copy = kernels.target.load(ml.cuda('extern "C" __global__ void copy(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }'))
    assert advise_layout(copy["copy"][1, 32], kernels.target.zeros((4, 8)), kernels.target.zeros((4, 8))) == ()


def test_when_it_pays() -> None:
    best = Tried(column_major((4, 4)), 10, 600.0, True, 2000.0, 900.0)
    advice = LayoutAdvice("k", "t", True, 0, (4, 4), "f4", 80, 10, (80, 1000.0), (best,), ())
    assert advice.best is best
    assert (advice.break_even(), advice.break_even(uploaded=False)) == (3, 5)
    assert "1.67 times as fast" in advice.verdict
    assert "pays off after 3 launches; on the device it takes 2 us and pays off after 5 launches" in advice.verdict
    assert replace(advice, tried=(replace(best, same=False),)).break_even() == inf
    assert replace(advice, tried=(replace(best, time_ns=990.0),)).best is None
    assert replace(advice, tried=(replace(best, exposed_ns=None),)).break_even() == 5
