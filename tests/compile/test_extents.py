"""Extents of arrays in shared memory, read from the text of a program."""

from __future__ import annotations

import pytest

from memlane.compile.extents import Rows, is_dynamic, written_rows

TEXT = """
#define T 16
#define PAIR(a) (a)
constexpr int HALO = 2, WIDE = T * 2;
template <typename E, int R = 3>
__global__ void f() {
    __shared__ float tile[T][T + 2 * R], line[64];
    __shared__ E other[4][WIDE - 1u];
    __shared__ float4 wide[8][T / 2];
    __shared__ int unknown[4][PAIR(3)];
    extern __shared__ double pool[];
}
__global__ void g() { __shared__ short tile[2][HALO << 3][5]; }
"""


@pytest.mark.parametrize(
    ("kernel", "name", "rows"),
    [
        ("void f<float, 2>(float*)", "tile", Rows(20, 4)),
        ("void f<int, 5>()", "tile", Rows(26, 4)),
        ("g()", "tile", Rows(5, 2)),
        ("void f<float, 2>()", "other", Rows(31, None)),
        ("void f<float, 2>()", "wide", Rows(8, 16)),
        pytest.param("void f<float, 2>()", "line", None, id="one dimension"),
        pytest.param("void f<float, 2>()", "unknown", None, id="a macro with parameters"),
        pytest.param("f", "pool", None, id="dynamic"),
        pytest.param("f", "absent", None, id="not there"),
    ],
)
def test_rows_by_hand(kernel: str, name: str, rows: Rows | None) -> None:
    assert written_rows(TEXT, kernel, name) == rows


def test_whether_the_launch_gives_the_length() -> None:
    assert [is_dynamic(TEXT, name) for name in ("pool", "tile", "line", "absent")] == [True, False, False, False]


def test_names_that_mean_themselves_end() -> None:
    assert written_rows("#define A B\n#define B A\n__global__ void f() { __shared__ int s[2][A]; }", "f()", "s") is None


def test_an_array_without_rows_does_not_take_those_of_another_kernel() -> None:
    text = "__global__ void f() { __shared__ float tile[32][36]; }\n__global__ void g() { __shared__ float tile[32 * 32]; }"
    assert written_rows(text, "f()", "tile") == Rows(36, 4)
    assert written_rows(text, "g()", "tile") is None
