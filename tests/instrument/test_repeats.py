"""Accesses that a loop repeats at the same addresses."""

from __future__ import annotations

import pytest

from memlane.compile import cuda
from memlane.instrument import site_table

SOURCE = """
__global__ void k(int* out, const int* in, int n, int turns) {
    int sum = 0, t = threadIdx.x, kept = t;
    for (int turn = 0; turn < turns; turn++) {
        BODY
    }
    out[t] = sum;
}
"""
INNER = "for (int k = t; k < n; k += 32) sum += in[ADDRESS] ^ turn;"


@pytest.mark.parametrize(
    ("body", "repeats"),
    [
        (INNER.replace("ADDRESS", "k"), True),
        (INNER.replace("ADDRESS", "k * 3 + n"), True),
        (INNER.replace("ADDRESS", "turn * n + k"), False),
        (INNER.replace("ADDRESS", "k ^ turn"), False),
        ("for (int k = 0; k < n; k++) { sum += in[kept] ^ turn; kept += 32; }", False),  # counts on in the next turn
        (INNER.replace("ADDRESS", "in[k + n]"), False),  # the outer load; the one of the index repeats
        ("sum += in[turn];", False),  # no inner loop
    ],
)
def test_only_what_begins_anew_in_each_turn_repeats(body: str, repeats: bool) -> None:
    loads = [one for one in site_table(cuda(SOURCE.replace("BODY", body))).sites if one.kind == "load"]
    dependent = [one for one in loads if one.address_loads] or loads
    assert dependent
    assert {one.address_repeats for one in dependent} == {repeats}
