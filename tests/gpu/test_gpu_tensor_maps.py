"""Boxes copied by tensor maps: the device against the emulator, byte by byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.driver import Device
from memlane.launch import Target
from memlane.measure import count, trace
from memlane.record import COMPLETE, ISSUE_ONLY, PROVED
from tests.emulate.tensor_boxes import (
    REDUCED,
    THREADS,
    Case,
    cases,
    load_program,
    run_copied,
    run_load,
    run_made,
    run_multicast,
    run_store,
    stored,
)
from tests.measure.tiles import IMAGE, doubling

pytestmark = pytest.mark.gpu


def sweep() -> list[Case]:
    """The cases of the emulator's tests, and boxes about the edges of an array with each swizzle, at multiples of 16 bytes."""
    found = list(cases())
    for swizzle, width in (("none", 12), ("32B", 8), ("64B", 16), ("128B", 32)):
        for y in (-9, -3, 0, 5, 27, 29, 40):
            for x in (-36, -8, -4, 0, 4, 52, 60, 100):
                found.append(Case((30, 64), (9, width), (y, x), swizzle=swizzle, seed=len(found)))
    for dtype in ("u1", "u2", "f2", "f4", "f8"):
        for x in (-16, 16, 112, 128):
            found.append(Case((6, 128), (4, 16), (3, x), dtype, fill="nan" if dtype[0] == "f" else "zeros", seed=len(found)))
    return found


@pytest.fixture(autouse=True)
def _needs_hopper(gpu: Device) -> None:
    if gpu.compute_capability < (9, 0):
        pytest.skip("copies by tensor maps need sm_90")


def test_boxes_are_loaded_as_on_the_emulator(gpu: Device, emulator: Target) -> None:
    for case in sweep():
        real, emulated = run_load(gpu, case), run_load(emulator, case)
        assert np.array_equal(real, emulated), (case, np.flatnonzero(real != emulated)[:8], real[real != emulated][:8])


def test_boxes_are_stored_as_on_the_emulator(gpu: Device, emulator: Target) -> None:
    for case in map(stored, sweep()[::2]):
        box = np.random.default_rng(case.seed + 100).integers(-100, 100, case.taken).astype(case.dtype)
        real, emulated = run_store(gpu, case, box), run_store(emulator, case, box)
        assert np.array_equal(real.view(np.uint8), emulated.view(np.uint8)), case


@pytest.mark.parametrize(("operation", "dtype"), REDUCED)
def test_boxes_are_reduced_as_on_the_emulator(gpu: Device, emulator: Target, operation: str, dtype: str) -> None:
    """With numbers that are none, infinities, tiny ones and both zeros among floats."""
    case = Case((30, 40), (8, 16), (25, 32), dtype)
    random = np.random.default_rng(5)
    host, box = (
        random.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0] for shape in (case.shape, case.box)
    )
    if np.dtype(dtype).kind == "f":
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.25, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max], dtype)
        host, box = (special[random.integers(0, len(special), shape)] for shape in (case.shape, case.box))
    results = [run_store(target, case, box, operation, host) for target in (gpu, emulator)]
    numbers = [np.nan_to_num(one, nan=1.0, posinf=None, neginf=None) if one.dtype.kind == "f" else one for one in results]
    assert np.array_equal(*[np.isnan(one) if one.dtype.kind == "f" else one for one in results])
    assert np.array_equal(*[one.view(np.uint8) for one in numbers])


def test_sums_of_bfloat16_are_the_emulators(gpu: Device, emulator: Target) -> None:
    case = Case((8, 16), (8, 16), (0, 0), "u2", element="bf16")
    host, box = ((one.view(np.uint32) >> 16).astype(np.uint16) for one in np.random.default_rng(2).normal(0, 3, (2, 8, 16)).astype("f4"))
    real, emulated = (run_store(target, case, box, "add", host) for target in (gpu, emulator))
    assert np.array_equal(real, emulated)


@pytest.mark.parametrize("begin", [128, 256, 640])
@pytest.mark.parametrize(("swizzle", "width"), [("32B", 8), ("64B", 16), ("128B", 32)])
def test_pieces_change_places_by_their_address(gpu: Device, emulator: Target, swizzle: str, width: int, begin: int) -> None:
    case = Case((50, 48), (16, width), (2, 4), swizzle=swizzle)
    left = []
    for target in (gpu, emulator):
        tiles, out = case.tensor_map(target, target.array(case.host())), target.zeros(16 * width * 4, np.uint8)
        kernel = target.load(load_program(2, begin=begin))["load"]
        kernel[1, THREADS, target.default_stream, out.nbytes + 1024](tiles, out, out.nbytes, 4, 2)
        left.append(out.numpy())
    assert np.array_equal(*left)


def test_a_destination_in_the_own_block_is_the_same(gpu: Device, emulator: Target) -> None:
    for case in cases()[:10]:
        assert np.array_equal(run_load(gpu, case, "shared::cta"), run_load(emulator, case)), case


@pytest.mark.parametrize("promotion", ["64B", "128B", "256B"])
def test_what_l2_fetches_changes_nothing(gpu: Device, emulator: Target, promotion: str) -> None:
    case = replace(cases()[4], swizzle="64B")
    left = []
    for target in (gpu, emulator):
        tiles = target.tensor_map(target.array(case.host()), case.box, swizzle=case.swizzle, promotion=promotion)
        out = target.zeros(tiles.tiling.box_bytes, np.uint8)
        kernel = target.load(load_program(2))["load"]
        kernel[1, THREADS, target.default_stream, out.nbytes](tiles, out, out.nbytes, *reversed(case.at))
        left.append(out.numpy())
    assert np.array_equal(*left)


@pytest.mark.parametrize("mask", [0b1111, 0b0110])
def test_one_fetch_fills_several_blocks_as_on_the_emulator(gpu: Device, emulator: Target, mask: int) -> None:
    case = Case((50, 48), (8, 32), (45, -4), swizzle="128B")
    assert np.array_equal(run_multicast(gpu, case, 4, mask), run_multicast(emulator, case, 4, mask))


def test_a_kernel_may_copy_a_tensor_map_about(gpu: Device, emulator: Target) -> None:
    case = Case((40, 64), (8, 32), (7, 20))
    assert np.array_equal(run_copied(gpu, case), run_copied(emulator, case))


def test_a_trace_on_the_device_changes_nothing_and_times_the_wait(gpu: Device) -> None:
    case = cases()[10]
    tiles, out = case.tensor_map(gpu, gpu.array(case.host())), gpu.zeros(32 * 32 * 4, np.uint8)
    call = gpu.load(load_program(2))["load"][1, THREADS, gpu.default_stream, out.nbytes]
    arguments = (tiles, out, out.nbytes, *reversed(case.at))
    made = trace(call, *arguments)
    assert np.array_equal(out.numpy(), run_load(gpu, case))
    box, wait = (next(site for site in made.sites if site.kind == kind) for kind in ("copy", "wait"))
    assert (box.completeness, wait.completeness, wait.evidence) == (ISSUE_ONLY, COMPLETE, PROVED)
    times = {
        row["op"].split(".")[0]: row["end"] - row["start"]
        for row in made.table.to_pylist()
        if "tensor" in row["op"] or "try_wait" in row["op"]
    }
    assert times["cp"] < times["mbarrier"], "what a copy takes is in its wait"
    counts = count(call, *arguments)
    assert "which only the emulator can read" in next(one.reason for one in counts.skipped if one.op == box.op)


def test_a_kernel_may_make_a_tensor_map(gpu: Device, emulator: Target) -> None:
    assert np.array_equal(run_made(gpu), run_made(emulator))


def test_tiles_in_cuda_are_the_same_with_a_trace(gpu: Device) -> None:
    call, tiles, results, out = doubling(gpu)
    call(tiles, results)
    assert np.array_equal(out.numpy(), 2 * IMAGE)
    again, tiles, results, out = doubling(gpu)
    made = trace(again, tiles, results)
    assert np.array_equal(out.numpy(), 2 * IMAGE)
    assert {site.kind for site in made.sites} >= {"copy", "wait"}
