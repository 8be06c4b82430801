"""The remedy of lanes that are apart follows from what lies between them."""

from __future__ import annotations

import numpy as np

from memlane.diagnose import Finding, explain
from memlane.launch import LoadedModule, Target
from memlane.measure import trace


def first(kernels: LoadedModule, name: str, grid: tuple[int, ...], block: tuple[int, ...], *arguments: object) -> Finding:
    return explain(trace(kernels[name][grid, block], *arguments, counts=True))[0]


def test_fields_go_into_arrays_of_their_own_or_into_a_vector(target: Target, kernels: LoadedModule) -> None:
    one = first(kernels, "fields_on_four_lines", (64,), (256,), target.zeros(1 << 14), target.zeros(1 << 17))
    assert one.cause == "each thread loads 4 of 8 elements in 32 bytes one by one, so the lanes of one request lie 32 bytes apart"
    assert one.remedy == (
        "Store each in an array of its own (an array for each field instead of an array of structures), or let each thread load 16 bytes "
        "at once, as `float4` or `int4`."
    )


def test_three_fields_of_three_have_no_vector(target: Target, kernels: LoadedModule) -> None:
    one = first(kernels, "three_of_three", (64,), (256,), target.zeros(1 << 14), target.zeros(3 << 14))
    assert one.cause == "each thread loads 3 neighbouring elements one by one, so the lanes of one request lie 12 bytes apart"
    assert one.remedy.startswith("Store each of the 3 in an array of its own, or")


def test_a_thread_with_neighbouring_elements_is_to_take_every_nth(target: Target, kernels: LoadedModule) -> None:
    one = first(kernels, "neighbours_of_a_thread", (64,), (256,), target.zeros(1 << 14), target.zeros(1 << 18))
    assert one.cause == "each thread loads neighbouring elements one after the other, so the lanes of one request lie 64 bytes apart"
    assert one.remedy.startswith("Let thread i of n load elements i, i + n, i + 2n and so on, or let each thread load 16 bytes at once")


def test_loaded_indices_are_named(target: Target, kernels: LoadedModule) -> None:
    where = np.random.default_rng(3).permutation(1 << 14).astype(np.int32)
    one = first(kernels, "by_loaded_indices", (64,), (256,), target.zeros(1 << 14), target.zeros(1 << 14), target.array(where))
    assert one.cause == "the addresses come from values that were loaded before (where), and are not contiguous"
    assert one.remedy.startswith("Order these values, so that neighbouring threads read neighbouring addresses")


def test_indices_are_exchanged_where_no_access_is_contiguous(target: Target, kernels: LoadedModule) -> None:
    found = explain(
        trace(kernels["exchanged_indices"][(4, 16), (32, 8)], target.zeros((128, 128)), target.zeros((128, 128)), 128, counts=True)
    )
    assert {one.op.split(".")[0] for one in found} == {"ld", "st"}
    assert all(one.remedy.startswith("Let `threadIdx.x` count along neighbouring addresses") for one in found)
    # Going down columns on one side only is a transposition, which needs a tile.
    found = explain(
        trace(kernels["down_the_columns"][(4, 16), (32, 8)], target.zeros((128, 128)), target.zeros((128, 128)), 128, counts=True)
    )
    assert "through a shared-memory tile" in found[0].remedy


def test_what_a_thread_walks_along_may_go_to_a_warp(target: Target, kernels: LoadedModule) -> None:
    arrays = target.zeros(1 << 12), target.zeros((1 << 12, 64)), target.zeros(64)
    one = first(kernels, "row_times_vector", (16,), (256,), *arrays, 64)
    assert "matrix" in one.access
    assert "by giving what a thread reads to a whole warp" in one.remedy
