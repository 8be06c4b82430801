"""Generate kernels for single cells: add at sources, record at probes, and find values that are not finite."""

from __future__ import annotations

from memlane.stencils.cell import HALF_HELPERS, HELPERS, STORED

ADD, RECORD, FIND = "add_at_points", "record_points", "find_not_finite"
NOWHERE = 0xFFFF_FFFF_FFFF_FFFF
"""Result of `find_not_finite` if every cell is finite."""


def point_kernel(kernel: str, dtype: str) -> str:
    """Return the name of a kernel for cells of fields of one type."""
    return f"{kernel} {dtype}"


def point_kernels(dtype: str) -> str:
    """Return the text of the kernels for fields of one type."""
    stored = STORED[dtype]
    half = HALF_HELPERS if dtype == "f2" else ""
    total = "round_half(widened(field[at]) + widened(added))" if dtype == "f2" else "field[at] + added"
    return f"""\
{HELPERS}{half}
// Adds a row of a table to a field: one element for each place.
extern "C" __global__ void {ADD}({stored}* __restrict__ field, const {stored}* __restrict__ table, const long long* __restrict__ places,
                                 int count, int step) {{
    const int point = blockIdx.x * blockDim.x + threadIdx.x;
    if (point >= count) return;
    const long long at = places[point];
    const {stored} added = table[(long long)step * count + point];
    narrow(field[at], {total});
}}

// Copies cells of a field into a row of a table.
extern "C" __global__ void {RECORD}(const {stored}* __restrict__ field, {stored}* __restrict__ table, const long long* __restrict__ places,
                                    int count, int step) {{
    const int point = blockIdx.x * blockDim.x + threadIdx.x;
    if (point < count) table[(long long)step * count + point] = field[places[point]];
}}

// Leaves the number of the first cell that is infinite or no number. Rows have `pitch` elements, and planes `rows` of them, of which some
// count.
extern "C" __global__ void {FIND}(const {stored}* __restrict__ field, unsigned long long* __restrict__ found, long long elements, int pitch,
                                  int first_cell, int end_cell, int rows, int first_row, int end_row) {{
    unsigned long long first = {NOWHERE}ULL;
    const long long threads = (long long)gridDim.x * blockDim.x;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < elements; at += threads) {{
        const auto value = widened(field[at]);
        const int cell = at % pitch, row = at / pitch % rows;
        const bool counts = cell >= first_cell && cell < end_cell && row >= first_row && row < end_row;
        if (counts && !(value - value == 0) && (unsigned long long)at < first) first = at;
    }}
    if (first != {NOWHERE}ULL) atomicMin(found, first);
}}
"""
