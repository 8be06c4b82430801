"""Kernels with an array laid out otherwise compute what they did, and cost what the layout says."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Literal

import numpy as np
import pytest

import memlane as ml
from memlane.errors import RelayoutError
from memlane.instrument import site_table
from memlane.launch import Kernel, Target
from memlane.layout import Layout, OfVectors, Padded, RandomPermuteShift, RandomShift, RowMajor, ShiftTable, XorSwizzle, count, pattern
from memlane.layout.layout import Offsets
from memlane.ptx import Module, parse, print_module
from memlane.rewrite import relayout_module
from tests.rewrite.kernels import CASES, SOURCE, layouts, run


@cache
def module() -> Module:
    return ml.cuda(SOURCE, name="kernels.cu")


@cache
def emulator() -> Target:
    return ml.target("emulator:h200")


@cache
def original(name: str) -> Kernel:
    return emulator().load(module())[name]


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_themselves(name: str) -> None:
    found, expected = run(original(name), name)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", CASES)
def test_every_layout_gives_the_same_bits(name: str) -> None:
    case = CASES[name]
    tried, all_of_them = 0, name in ("turn", "wide")
    for layout in layouts(*case.shape)[:: 1 if all_of_them else 3]:
        if tears(layout.table, case.vector) or (case.shared and layout.size > layout.rows * layout.columns):
            with pytest.raises(RelayoutError, match=r"splits|dynamic shared memory after it"):
                ml.relayout(original(name), layout, shared=case.shared or None, element_bytes=4)
            continue
        changed = ml.relayout(original(name), layout, shared=case.shared or None, element_bytes=4)
        found, expected = run(changed, name)
        assert np.array_equal(found, expected), layout
        tried += 1
    assert tried == {"turn": 12, "wide": 2, "dynamic": 3}.get(name, 4)


def tears(table: Offsets, vector: int) -> bool:
    """By looking at each vector."""
    groups = [group for row in table.tolist() for group in zip(*[iter(row)] * vector, strict=True)]
    return any(group[0] % vector or list(group) != list(range(group[0], group[0] + vector)) for group in groups)


@pytest.mark.parametrize("layout", layouts(32, 32)[:8:2], ids=str)
def test_wavefronts_are_those_of_the_layout(layout: Layout) -> None:
    changed = ml.relayout(original("turn"), layout)
    target = changed.target
    counts = ml.count(changed[1, (32, 32)], target.zeros((32, 32)), target.array(np.zeros((32, 32), np.float32)))
    found = {site.site.op: site.wavefronts for site in counts.sites if site.site.space == "shared"}
    chip = target.chip
    assert found["ld.shared.f32"] == round(32 * count(layout, pattern("column", 32, 32), chip, 4).mean)
    assert found["st.shared.f32"] == round(32 * count(layout, pattern("row", 32, 32), chip, 4, "store").mean)


def test_constant_addresses_cost_nothing_and_equal_distances_one_map() -> None:
    """`pipeline` reads four rows, and four columns of a row, behind one register each: those stay apart equally far under a padding, as the
    register holds a multiple of a row for the columns, and not under a rotation."""
    padded = relayout_module(module(), Padded(32, 32), shared="pipeline::tile")
    rotated = relayout_module(module(), RandomShift(32, 32, 1), shared="pipeline::tile")
    assert padded.accesses == rotated.accesses
    assert padded.folded == rotated.folded >= 1
    assert (padded.shared, rotated.shared) == (3 + 3, 0)
    assert padded.tiles == 2
    assert padded.added_bytes == 2 * 32 * 4
    before, after = print_module(module()).count("add.s32"), print_module(padded.module).count("add.s32")
    assert after - before < 3 * padded.accesses


def test_the_printed_module_is_whole_and_keeps_lines() -> None:
    changed = ml.relayout(module(), RandomPermuteShift(32, 32, 3), shared="turn::tile", tables="constant")
    again = parse(print_module(changed))
    assert again == changed
    lines = {one.location.line for one in changed.functions["turn"].body.instructions() if one.location}  # type: ignore[union-attr]
    assert lines == {one.location.line for one in module().functions["turn"].body.instructions() if one.location}  # type: ignore[union-attr]
    (table,) = [one for name, one in changed.variables.items() if name.startswith("memlane_layout")]
    assert (table.space, table.shape, table.type) == ("const", (32,), "u8")
    assert list(ml.relayout(module(), RandomPermuteShift(32, 32, 3), shared="turn::tile").variables) == list(module().variables)
    in_global = ml.relayout(module(), RandomPermuteShift(32, 32, 3), shared="turn::tile", tables="global")
    assert [one.space for name, one in in_global.variables.items() if name.startswith("memlane_layout")] == ["global"]
    assert "ld.global.nc.u8" in print_module(in_global), "nobody writes the table"
    assert ".nc" not in print_module(changed)


@pytest.mark.parametrize("tables", ["constant", "global"])
def test_a_table_that_accesses_of_several_widths_use_is_there_once(tables: Literal["constant", "global"]) -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k() {
    .reg .b32 %r<5>; .reg .b64 %rd<3>; .shared .align 16 .b8 tile[4096];
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 3; mov.u32 %r3, tile; add.u32 %r2, %r2, %r3;
    ld.shared.u64 %rd1, [%r2]; ld.shared.u32 %r4, [%r2+4]; st.shared.u64 [%r2], %rd1; st.shared.u32 [%r2], %r4; ret;
}
"""
    changed = relayout_module(parse(text, "k.ptx"), RandomShift(16, 32, 4), shared="tile", element=8, tables=tables).module
    made = [one.initial for name, one in changed.variables.items() if name.startswith("memlane_layout")]
    assert len(made) == len(set(made)) > 0


@pytest.mark.parametrize("tables", ["computed", "constant", "global"])
@pytest.mark.parametrize("layout", [RandomShift(32, 32, 4), ShiftTable(32, 32, tuple(range(31, -1, -1))), RandomShift(64, 16, 1)], ids=str)
def test_tables_say_the_same_wherever_they_lie(tables: Literal["computed", "constant", "global"], layout: Layout) -> None:
    changed = ml.relayout(original("turn"), layout, tables=tables)
    found, expected = run(changed, "turn")
    assert np.array_equal(found, expected)
    target = changed.target
    counts = ml.count(changed[1, (32, 32)], target.zeros((32, 32)), target.array(np.zeros((32, 32), np.float32)))
    spaces = {"computed": set(), "constant": {"const"}, "global": {"global"}}
    assert {one.site.space for one in counts.sites if one.site.op.endswith("u8")} == spaces[tables]
    index = np.arange(32)
    ways = sum(max(Counter(layout(32 * index + c) % 32).values()) for c in range(32))
    assert next(one.wavefronts for one in counts.sites if one.site.op == "ld.shared.f32") == ways


def test_two_arrays_one_after_the_other() -> None:
    once = ml.relayout(module(), RandomShift(32, 32, 1), shared="turn::tile")
    twice = ml.relayout(once, RandomShift(8, 32, 2), shared="bytes::words")
    loaded = emulator().load(twice)
    for name in ("turn", "bytes"):
        found, expected = run(loaded[name], name)
        assert np.array_equal(found, expected)
    changed_again = ml.relayout(once, XorSwizzle(32, 32), shared="turn::tile")
    found, expected = run(emulator().load(changed_again)["turn"], "turn")
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("layout", [XorSwizzle(4, 8), RandomShift(4, 8, 1)], ids=str)
def test_a_range_that_begins_behind_another_array(layout: Layout) -> None:
    relaid = relayout_module(module(), layout, shared=(4096, 4224), kernel="dynamic")
    assert (relaid.array.title, relaid.element_bytes) == ("dynamic[4096:4224]", 4)
    found, expected = run(emulator().load(relaid.module)["dynamic"], "dynamic")
    assert np.array_equal(found, expected)


def test_vectors_may_be_laid_out_whole() -> None:
    changed = ml.relayout(original("wide"), OfVectors(32, 32, XorSwizzle(32, 8), 4))
    found, expected = run(changed, "wide")
    assert np.array_equal(found, expected)


def test_the_kernel_works_on_the_variables_of_the_original() -> None:
    text = """
    __device__ int total = 5;
    __constant__ int factor = 3;
    extern "C" __global__ void add(int* out) {
        __shared__ int tile[64];
        tile[threadIdx.x] = threadIdx.x * factor;
        __syncthreads();
        if (threadIdx.x == 0) { total += tile[1]; *out = total; }
    }
    """
    target = emulator()
    kernel = target.load(ml.cuda(text))["add"]
    out = target.zeros(1, np.int32)
    kernel[1, 64](out)
    address, _ = target.symbol(kernel.loaded, "factor")
    target.write(address, np.array([10], np.int32))
    ml.relayout(kernel, RandomShift(8, 8, 1))[1, 64](out)
    assert out.numpy().tolist() == [5 + 3 + 10]
    kernel[1, 64](out)
    assert out.numpy().tolist() == [5 + 3 + 10 + 10]


def test_sites_are_those_of_the_original() -> None:
    """What tracing and counting go by: accesses to shared memory, each with its line."""
    lines = SOURCE.splitlines()
    sites = site_table(ml.relayout(module(), XorSwizzle(32, 32), shared="turn::tile")).of_kernel["turn"].values()
    assert [lines[site.line - 1].strip() for site in sites if site.space == "shared"] == [
        "tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 32 + threadIdx.x];",
        "out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];",
    ]


def test_row_major_moves_nothing() -> None:
    relaid = relayout_module(module(), RowMajor(32, 32), shared="turn::tile")
    assert relaid.added_bytes == 0
    found, expected = run(emulator().load(relaid.module)["turn"], "turn")
    assert np.array_equal(found, expected)
