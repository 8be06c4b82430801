"""An array behind a pointer parameter laid out anew: the same results from the array in its new layout, or a refusal with the line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import memlane as ml
from memlane.errors import LayoutError, RelayoutError
from memlane.layout import Fields, Permuted, array_layout, column_major
from memlane.layout.expression import Expression, table

CODE = """
__device__ float squared(const float* row, int n) {
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += row[k] * row[k];
    return sum;
}

extern "C" __global__ void norms(const float* a, float* out, int rows, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) out[i] = squared(a + (long long)i * n, n) + a[i * n];
}

extern "C" __global__ void shift(float* a, int rows, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    float* end = a + (i + 1) * n;
    for (float* p = a + i * n; p < end; ++p) *p += by;
    atomicAdd(a + i * n, 1.0f);
}

extern "C" __global__ void bytes(const unsigned char* a, unsigned char* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[4 * i + 1];
}

extern "C" __global__ void wide(const float4* a, float4* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = a[i];
}

extern "C" __global__ void either(const float* a, const float* b, float* out, int which) {
    const float* chosen = which ? a : b;
    out[threadIdx.x] = chosen[threadIdx.x];
}

extern "C" __global__ void stored(const float* a, const float** table) { table[0] = a; }

struct Pair { const float* first; const float* second; };

extern "C" __global__ void members(Pair pair, float* out) { out[0] = pair.second[threadIdx.x]; }

extern "C" __global__ void doubles(const double* a, double* out) { out[threadIdx.x] = a[threadIdx.x]; }

extern "C" __global__ void unused(const float* a, float* out) { out[0] = 1; }
"""
ROWS, COLUMNS = 96, 20


@pytest.fixture(scope="module")
def kernels() -> object:
    return ml.target("emulator:h200").load(ml.cuda(CODE, name="kernels.cu"))


def host() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 9, (ROWS, COLUMNS)).astype("f4")


@pytest.mark.parametrize("layout", ["column-major", "tiled(8, 4)", "tiled(7, 3)", "pad(3)", "diagonal"])
def test_results_are_the_same_from_the_array_in_its_layout(kernels: object, layout: str) -> None:
    target, a = kernels.target, host()
    norms = ml.relayout(kernels["norms"], layout, parameter=0, shape=a.shape, dtype=a.dtype)
    out = target.zeros(ROWS)
    norms[3, 32](ml.upload(target, a, layout=layout), out, ROWS, COLUMNS)
    assert np.array_equal(out.numpy(), (a * a).sum(axis=1) + a[:, 0])


@pytest.mark.parametrize("layout", ["column-major", "pad(5)"])
def test_stores_loops_over_pointers_and_atomics_follow(kernels: object, layout: str) -> None:
    target, a = kernels.target, host()
    array = ml.upload(target, a, layout=layout)
    ml.relayout(kernels["shift"], layout, parameter="shift_param_0", shape=a.shape, dtype="f4")[3, 32](array, ROWS, COLUMNS, 2.0)
    a += 2
    a[:, 0] += 1
    assert np.array_equal(ml.download(array), a)


def test_parts_of_an_element_move_with_it(kernels: object) -> None:
    words = np.random.default_rng(2).integers(0, 1 << 30, (8, 12), dtype=np.int32)
    out = kernels.target.zeros(96, "u1")
    picked = ml.relayout(kernels["bytes"], "column-major", parameter=0, shape=words.shape, dtype="i4")
    picked[3, 32](ml.upload(kernels.target, words, layout="column-major"), out, 96)
    assert np.array_equal(out.numpy(), (words.ravel() >> 8 & 255).astype("u1"))


def test_elements_that_stay_together_may_be_accessed_together(kernels: object) -> None:
    a = np.arange(4 * 6 * 4, dtype="f4").reshape(4, 6, 4)
    layout = Permuted(a.shape, (1, 0, 2))
    out = kernels.target.zeros(a.size)
    ml.relayout(kernels["wide"], layout, parameter=0, shape=a.shape, dtype="f4")[1, 32](
        ml.upload(kernels.target, a, layout=layout), out, 24
    )
    assert np.array_equal(out.numpy(), a.ravel())


MIXED = """
struct Mixed { float x; double m; short id; };
extern "C" __global__ void weigh(const Mixed* p, double* out) {
    out[threadIdx.x] = p[threadIdx.x].m * p[threadIdx.x].x + p[threadIdx.x].id;
}
"""


def test_structures_of_several_widths_are_laid_out_by_their_widest_word(kernels: object) -> None:
    kind = np.dtype([("x", "f4"), ("m", "f8"), ("id", "i2")], align=True)
    host = np.zeros(32, kind)
    host["x"], host["m"], host["id"] = 1.5, np.arange(32), np.arange(32)[::-1]
    target = kernels.target
    weigh, out = target.load(ml.cuda(MIXED, name="mixed.cu"))["weigh"], target.zeros(32, "f8")
    sentence = (
        r"splits: they would not be contiguous; to keep words of 8 bytes together, upload with memlane.layout.Fields\(\(32, 3\), "
        r"\(1, 1, 1\)\), and pass the same layout to relayout with its shape and dtype='V8'"
    )
    with pytest.raises(RelayoutError, match=sentence):
        ml.relayout(weigh, "soa", parameter="p", shape=host.shape, dtype=host.dtype)
    layout = Fields((32, 3), (1, 1, 1))
    array = ml.upload(target, host, layout=layout)
    ml.relayout(weigh, layout, parameter="p", shape=layout.shape, dtype="V8")[1, 32](array, out)
    assert np.array_equal(out.numpy(), host["m"] * 1.5 + host["id"])
    assert ml.download(array).tobytes() == host.tobytes()


def test_an_array_of_more_than_32_bits_is_computed_in_64(kernels: object) -> None:
    """Nothing of that size is made: the text shows the width of the arithmetic."""
    small = ml.relayout(kernels["norms"], "column-major", parameter=0, shape=(1000, 20), dtype="f4")
    large = ml.relayout(kernels["norms"], "column-major", parameter=0, shape=(1 << 31, 20), dtype="f4")
    assert "rem.u32" in str(ml_text(small))
    assert "rem.u64" in str(ml_text(large))
    assert "rem.u64" not in str(ml_text(small))


class Shifted(Permuted):
    """Places of which a part is shifted by what another index says; too large an array to be laid out so."""

    def offset(self, place: Sequence[Expression]) -> Expression:
        row, column = place
        return row * 32 + (column >> (row & 1))


class Divided(Permuted):
    """Places that are made of what can be negative."""

    def offset(self, place: Sequence[Expression]) -> Expression:
        row, column = place
        return row * 20 + (column - 8) // 3 + 4


def test_shifts_of_64_bits_are_by_numbers_of_32(kernels: object) -> None:
    """The assembler takes no other; of a constant nothing is to be made."""
    changed = ml.relayout(kernels["norms"], Shifted((1 << 31, 20), (0, 1)), parameter=0, shape=(1 << 31, 20), dtype="f4")
    text = ml_text(changed)
    by = set(re.findall(r"sh[lr]\.[bu]64\s+\S+, \S+, (%\w+);", text))
    assert by
    for register in by:
        assert re.search(rf"cvt\.u32\.u64\s+{register}, %", text), "it is filled"
    constant = ml_text(ml.relayout(kernels["norms"], "tiled(8, 4)", parameter=0, shape=(1 << 31, 20), dtype="f4"))
    assert re.search(r"sh[lr]\.[bu]64\s+\S+, \S+, \d", constant)
    assert not re.search(r"cvt\.u32\.u64\s+\S+, \d", constant)


@dataclass(frozen=True)
class Tabled(Permuted):
    """The first place of each column by a table; a larger array than is made."""

    farthest: int = 0

    def offset(self, place: Sequence[Expression]) -> Expression:
        row, column = place
        return table([self.farthest * (one == 19) + 32 * one for one in range(20)], column) + row


@pytest.mark.parametrize(
    ("farthest", "kind"), [(255, "u16"), (65535, "u16"), (65536, "s32"), ((1 << 31) - 1, "s32"), (1 << 31, "s64"), (1 << 40, "s64")]
)
def test_a_table_has_room_for_its_greatest_value(kernels: object, farthest: int, kind: str) -> None:
    layout = Tabled((32, 20), (0, 1), farthest - 32 * 19)
    text = ml_text(ml.relayout(kernels["norms"], layout, parameter=0, shape=(32, 20), dtype="f4"))
    assert re.search(rf"\.global \.align 8 \.{kind} memlane_layout_0\[20\] = .*{farthest}}}", text)
    assert f"ld.global.nc.{kind}" in text


class Bytes(Permuted):
    """Places by a table that is too long to be computed."""

    def offset(self, place: Sequence[Expression]) -> Expression:
        row, column = place
        return table([255 - one for one in range(256)], column) + row * 256


def test_a_long_table_of_small_values_is_one_of_bytes(kernels: object) -> None:
    target, a = kernels.target, np.arange(2 * 256, dtype="f4").reshape(2, 256)
    norms = ml.relayout(kernels["norms"], Bytes(a.shape, (0, 1)), parameter=0, shape=a.shape, dtype="f4")
    assert re.search(r"\.global \.align 8 \.u8 memlane_layout_0\[256\]", ml_text(norms))
    out = target.zeros(2)
    norms[1, 32](target.array(a[:, ::-1].copy()), out, 2, 256)
    assert np.allclose(out.numpy(), (a * a).sum(axis=1) + a[:, 0])


def test_a_layout_that_divides_what_can_be_negative_is_refused(kernels: object) -> None:
    with pytest.raises(LayoutError, match="divides a value that can be negative, which is not supported in kernels"):
        ml.relayout(kernels["norms"], Divided((96, 20), (0, 1)), parameter=0, shape=(96, 20), dtype="f4")


def ml_text(kernel: object) -> str:
    from memlane.ptx import print_module

    return print_module(kernel.module)


@pytest.mark.parametrize(
    ("kernel", "options", "sentence"),
    [
        (
            "stored",
            {},
            r"kernels.cu:36: the layout of the array of parameter 'stored_param_0' cannot be changed: its address is stored to memory",
        ),
        ("either", {}, r"kernels.cu:32: .* an address of this array or something else"),
        ("wide", {}, r"kernels.cu:28: `ld.* accesses 16 bytes of .* splits"),
        ("unused", {}, "makes no access through parameter 'unused_param_0'"),
        ("members", {}, "parameter 'members_param_0' of members.* is not a pointer, so it has no array whose layout could change"),
        ("doubles", {"dtype": "V12"}, "accesses 8 bytes, which may cross the boundary between two elements of 12"),
        ("norms", {"parameter": 9}, "has parameters 0 to 3, no 9"),
        ("norms", {"parameter": "b"}, "has no parameter 'b'; it has: a, out, rows, n$"),
        ("norms", {"shape": None}, "pass shape= and dtype="),
        ("norms", {"layout": "soap"}, "unknown array layout 'soap'"),
    ],
)
def test_what_cannot_be_followed_is_refused(kernels: object, kernel: str, options: dict[str, object], sentence: str) -> None:
    wish = {"layout": "column-major", "parameter": 0, "shape": (8, 12), "dtype": "f4"} | options
    with pytest.raises((RelayoutError, LayoutError), match=sentence):
        ml.relayout(kernels[kernel], wish.pop("layout"), **wish)


def test_the_layouts_are_those_of_uploads() -> None:
    assert array_layout("column-major", (3, 4)) == column_major((3, 4))
