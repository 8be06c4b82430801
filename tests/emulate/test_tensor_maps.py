"""Copies of boxes by tensor maps, against NumPy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from memlane.errors import LaunchError
from memlane.launch import Layers
from memlane.ptx import parse, print_module
from tests.emulate.checking import check, kinds
from tests.emulate.combined import COMBINED
from tests.emulate.running import emulator
from tests.emulate.tensor_boxes import (
    MADE,
    MADE_CASE,
    REDUCED,
    THREADS,
    TILE_BYTES,
    Case,
    cases,
    load_program,
    loaded_box,
    multicast_program,
    run_copied,
    run_load,
    run_made,
    run_multicast,
    run_store,
    store_program,
    stored,
    stored_array,
)


def test_boxes_are_loaded_as_the_array_says() -> None:
    """Inside, at the edges and beyond them; what is outside is zero, or no number."""
    target, filled = emulator(), 0
    for case in cases():
        host = case.host()
        left = run_load(target, case)
        assert np.array_equal(left, loaded_box(case, host)), case
        if case.fill == "nan":
            filled += int(np.isnan(left.view(host.dtype)).sum())
            assert np.isnan(left.view(host.dtype)).sum() == (~np.broadcast_to(case.inside(), case.taken)).sum(), case
    assert filled
    assert {len(case.shape) for case in cases()} == {1, 2, 3, 4, 5}


def test_boxes_are_stored_without_what_lies_outside() -> None:
    """But for what is behind a row, up to a multiple of 16 bytes."""
    target, behind = emulator(), 0
    for case in map(stored, cases()):
        host = case.host()
        box = np.random.default_rng(case.seed + 100).integers(-100, 100, case.taken).astype(host.dtype)
        left = run_store(target, case, box)
        wanted = host.copy()
        inside = np.broadcast_to(case.inside(), case.taken)
        for place in zip(*np.nonzero(inside), strict=True):
            wanted[tuple(index[at] for index, at in zip(case.indices(), place, strict=True))] = box[place]
        width = case.shape[-1]
        assert np.array_equal(left[..., :width].view(np.uint8), wanted[..., :width].view(np.uint8)), case
        assert np.array_equal(left.view(np.uint8), stored_array(case, host, box).view(np.uint8)), case
        behind += int((left[..., width:] != wanted[..., width:]).sum())
    assert behind == 6, "one element behind each of six rows"


@pytest.mark.parametrize("threads", [1, 2])
def test_boxes_are_reduced_element_by_element(threads: int) -> None:
    target = emulator(threads=threads)
    for operation, dtype in REDUCED if threads == 1 else REDUCED[:2]:
        case = Case((30, 40), (8, 16), (25, 32), dtype, seed=3)
        random = np.random.default_rng(5)
        low = -50 if np.dtype(dtype).kind != "u" else 0
        host, box = (random.integers(low, 60, shape).astype(dtype) for shape in (case.shape, case.box))
        left = run_store(target, case, box, operation, host)
        wanted = host.copy()
        wanted[25:30, 32:40] = COMBINED[operation](host[25:30, 32:40], box[:5, :8])
        assert np.array_equal(left, wanted), (operation, dtype)


def test_boxes_are_reduced_by_whole_pieces() -> None:
    """So what is behind a row of 35 elements, up to a multiple of 16 bytes, is combined too."""
    case = Case((30, 35), (8, 16), (25, 32), padding=5)
    random = np.random.default_rng(5)
    host, box = (random.integers(0, 60, shape).astype(np.float32) for shape in ((30, 40), case.box))
    left = run_store(emulator(), case, box, "add", host)
    wanted = host.copy()
    wanted[25:30, 32:36] += box[:5, :4]
    assert np.array_equal(left, wanted)
    assert np.array_equal(stored_array(case, host, box, "add"), wanted)


def test_sums_of_single_precision_keep_subnormal_numbers() -> None:
    """Unlike those of atomics in global memory, which have a zero instead."""
    case, tiny = Case((8, 16), (8, 16), (0, 0)), np.finfo(np.float32).smallest_subnormal
    host = np.full((8, 16), tiny, np.float32)
    assert np.array_equal(run_store(emulator(), case, 2 * host, "add", host), 3 * host)


def test_sums_of_bfloat16_are_rounded_once() -> None:
    """As bytes: sums of whole numbers that its eight bits hold are exact."""
    case = Case((8, 16), (8, 16), (0, 0), "u2", element="bf16")
    numbers = np.random.default_rng(2).integers(-60, 60, (2, 8, 16)).astype(np.float32)
    host, box = ((one.view(np.uint32) >> 16).astype(np.uint16) for one in numbers)
    left = run_store(emulator(), case, box, "add", host)
    assert np.array_equal((left.astype(np.uint32) << 16).view(np.float32), numbers[0] + numbers[1])


def test_a_box_may_begin_inside_the_pattern_of_its_swizzle() -> None:
    """Pieces change places by their address, not by the number of their row: a box that begins one line later is turned by one."""
    target = emulator()
    case = Case((50, 48), (8, 32), (2, 4), swizzle="128B")
    tiles = case.tensor_map(target, target.array(case.host()))
    out = target.zeros(1024, np.uint8)
    for begin in (128, 640):
        target.load(load_program(2, begin=begin))["load"][1, THREADS, target.default_stream, 2048](tiles, out, 1024, 4, 2)
        pieces = out.numpy().reshape(8, 8, 16)
        plain = loaded_box(replace(case, swizzle="none"), case.host()).reshape(8, 8, 16)
        for row in range(8):
            for place in range(8):
                assert np.array_equal(pieces[row, place ^ ((row + begin // 128) % 8)], plain[row, place])


def test_sectors_of_a_box_are_those_of_its_rows() -> None:
    target = emulator()
    for case in cases()[:13]:
        array = target.array(case.host())
        tiles = case.tensor_map(target, array)
        nbytes = tiles.tiling.box_bytes
        out = target.zeros(nbytes, np.uint8)
        kernel = target.load(load_program(len(case.shape)))["load"]
        seen = []
        launch = kernel[1, THREADS, target.default_stream, nbytes].bind(tiles, out, nbytes, *reversed(case.at))
        target.launch(replace(launch, layers=Layers(counts=True, report=seen.append)))
        instructions = list(kernel.function.body.instructions())
        (number,) = (index for index, one in enumerate(instructions) if one.has("tensor") and one.opcode == "cp")
        requests, lanes, sectors, ideal = (int(value) for value in seen[0].counts[number][:4])
        assert (requests, lanes) == (1, 1)
        starts = np.arange(array.nbytes).reshape(*array.shape, array.dtype.itemsize)[..., 0]
        inside = np.broadcast_to(case.inside(), case.taken)
        wanted = 0
        places = np.broadcast_to(starts[case.clipped()], case.taken)
        for row, is_in in zip(places.reshape(-1, case.taken[-1]), inside.reshape(-1, case.taken[-1]), strict=True):
            found = {(array.address + int(start) + byte) // 32 for start in row[is_in] for byte in (0, array.dtype.itemsize - 1)}
            wanted += len(found)
        assert sectors == wanted, case
        assert ideal == math.ceil(int(inside.sum()) * array.dtype.itemsize / 32), case


# -- what goes wrong -----------------------------------------------------------------------------------------------------------------


def _launch(target, module, name: str, tiles, nbytes: int, *at: int, shared: int | None = None) -> None:
    flat = target.zeros(max(nbytes, 4), np.uint8)
    target.load(module)[name][1, THREADS, target.default_stream, nbytes if shared is None else shared](tiles, flat, nbytes, *at)


def test_faults_say_what_a_tensor_map_should_be() -> None:
    target = emulator()
    array = target.zeros((64, 32), np.float32)
    tiles = target.tensor_map(array, (8, 32))
    with pytest.raises(LaunchError, match=r"a different number of dimensions"):
        _launch(target, load_program(1), "load", tiles, 1024, 0)
    with pytest.raises(LaunchError, match=r"which is not a tensor map of an emulator: make it with target.tensor_map"):
        _launch(target, load_program(1), "load", bytes(128), 1024, 0)
    with pytest.raises(LaunchError, match=r"whose elements have no such reduction"):
        _launch(target, store_program(2, "xor"), "store", tiles, 1024, 0, 0)
    signed = target.tensor_map(target.zeros((64, 32), np.int64), (8, 16))
    with pytest.raises(LaunchError, match=r"whose elements have no such reduction"):
        _launch(target, store_program(2, "add"), "store", signed, 1024, 0, 0)
    with pytest.raises(LaunchError, match=r"in the shared memory of the block, outside its 32,?776 bytes"):
        _launch(target, load_program(2, begin=TILE_BYTES - 512), "load", tiles, 1024, 0, 0, shared=0)


def test_a_box_begins_at_a_multiple_of_16_bytes() -> None:
    """As a GPU has it: it takes others for illegal instructions."""
    target = emulator()
    for dtype, x, told in (
        ("f4", 30, r"begins 120 bytes into a row \(x is 30\).* at an x that is a multiple of 4, and use a wider box"),
        ("f4", -5, r"begins -20 bytes into a row \(x is -5\)"),
        ("f8", 37, r"begins 296 bytes into a row .* a multiple of 2,"),
        ("u1", 900, r"begins 900 bytes into a row .* a multiple of 16,"),
    ):
        tiles = target.tensor_map(target.zeros(1000, dtype), (64,))
        for program, name in ((load_program(1), "load"), (store_program(1), "store")):
            with pytest.raises(LaunchError, match=told):
                _launch(target, program, name, tiles, tiles.tiling.box_bytes, x)


def test_a_box_is_fetched_ahead_from_where_it_may_be_loaded() -> None:
    target = emulator()
    tiles = target.tensor_map(target.zeros((64, 32), np.float32), (8, 16))
    text, old = print_module(load_program(2)), "prefetch.tensormap [m];"
    assert old in text
    ahead = parse(text.replace(old, "cp.async.bulk.prefetch.tensor.2d.L2.global [m, {c0, c1}];"), "ahead.ptx")
    _launch(target, ahead, "load", tiles, 512, -4, -8)
    crooked = parse(text.replace(old, "cp.async.bulk.prefetch.tensor.2d.L2.global [m, {1, c1}];"), "ahead.ptx")
    with pytest.raises(LaunchError, match=r"cp.async.bulk.prefetch.tensor.* begins 4 bytes into a row \(x is 1\)"):
        _launch(target, crooked, "load", tiles, 512, -4, -8)


def test_no_box_is_stored_in_front_of_the_array() -> None:
    target = emulator()
    tiles = target.tensor_map(target.zeros((64, 32), np.float32), (8, 16))
    _launch(target, load_program(2), "load", tiles, 512, -4, -8)
    for at, told in (((-4, 0), r"begins at -4 along x, before the array, where only loads may begin"), ((0, -8), r"begins at -8 along y,")):
        for program in (store_program(2), store_program(2, "add")):
            with pytest.raises(LaunchError, match=told):
                _launch(target, program, "store", tiles, 512, *at)


def test_a_box_that_is_not_aligned_names_its_variable() -> None:
    """Behind a barrier dynamic shared memory begins at a multiple of 16 only, unless its declaration asks for more."""
    target = emulator()
    tiles = target.tensor_map(target.zeros((64, 32), np.float32), (8, 16))
    text, static = print_module(load_program(2)), f".shared .align 1024 .b8 tile[{TILE_BYTES}];"
    assert static in text
    _launch(target, parse(text.replace(static, ".extern .shared .align 128 .b8 tile[];"), "k.ptx"), "load", tiles, 512, 0, 0)
    moved = parse(text.replace(static, ".extern .shared .align 16 .b8 tile[];"), "k.ptx")
    with pytest.raises(
        LaunchError, match=r"a box at 0x10 in shared memory, 0 bytes into tile, which begins at 0x10: .* round its address up"
    ):
        _launch(target, moved, "load", tiles, 512, 0, 0)
    with pytest.raises(LaunchError, match=r"64 bytes into tile, .* a multiple of 128 bytes; declare it with alignas\(128\)"):
        _launch(target, load_program(2, begin=64), "load", tiles, 512, 0, 0)
    several = text.replace(static, ".extern .shared .align 32 .b8 other[]; .extern .shared .align 128 .b8 tile[];")
    several = parse(several.replace("bar.sync 0;", "bar.sync 0; mov.u32 v, other;", 1), "k.ptx")
    with pytest.raises(LaunchError, match=r"a box at 0x20 in shared memory"):
        _launch(target, several, "load", tiles, 512, 0, 0)


def test_a_dropped_array_is_noticed() -> None:
    target = emulator()
    array = target.zeros((64, 32), np.float32)
    tiles = target.tensor_map(array, (8, 32))
    data = tiles.data
    _launch(target, load_program(2), "load", data, 1024, 0, 0)
    del array, tiles
    with pytest.raises(LaunchError, match=r"allocation"):
        _launch(target, load_program(2), "load", data, 1024, 0, 0)


def test_the_checker_sees_what_a_box_reads_and_writes() -> None:
    target = emulator()
    written, fresh = target.array(np.ones((16, 40), np.float32)), target.empty((16, 40), np.float32)
    out = target.zeros(512, np.uint8)
    for array, wanted in ((written, False), (fresh, True)):
        tiles = target.tensor_map(array, (8, 16))
        kernel = target.load(load_program(2))["load"]
        found = kinds(check(kernel[1, THREADS, target.default_stream, 512], tiles, out, 512, 28, 12))
        assert any(kind.startswith("uninit") or "never" in kind for kind, _ in found) is wanted, found


def test_a_kernel_may_copy_a_tensor_map_about() -> None:
    case = Case((40, 64), (8, 32), (7, 20))
    wanted = case.host()
    wanted[15:23, 20:52] = wanted[7:15, 20:52]
    wanted[7:15, 20:52] *= 2
    assert np.array_equal(run_copied(emulator(), case), wanted)


def test_a_kernel_may_make_a_tensor_map() -> None:
    assert np.array_equal(run_made(emulator()), loaded_box(MADE_CASE, MADE_CASE.host()))


def test_a_tensor_map_with_what_is_not_modelled_is_refused_when_it_is_used() -> None:
    target = emulator()
    out = target.zeros(1024, np.uint8)
    for old, new in (
        ("interleave_layout.shared::cta.b1024.b32 [m], 0", "interleave_layout.shared::cta.b1024.b32 [m], 1"),
        ("[m], 7;", "[m], 11;"),
    ):
        assert old in MADE
        kernel = target.load(parse(MADE.replace(old, new), "made.ptx"))["made"]
        with pytest.raises(LaunchError, match=r"elements, an interleave or a swizzle that the emulator does not model"):
            kernel[1, 32](out, out, out, 24, 12, 96)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_fetch_fills_the_shared_memory_of_several_blocks(threads: int) -> None:
    case = Case((50, 48), (8, 32), (45, -4), swizzle="128B")
    wanted = loaded_box(case, case.host())
    for mask in (0b1111, 0b0101, 0b1000):
        left = run_multicast(emulator(threads=threads), case, 4, mask)
        assert [np.array_equal(row, wanted) for row in left] == [bool(mask >> rank & 1) for rank in range(4)]
        assert not left[[not mask >> rank & 1 for rank in range(4)]].any()


def test_one_fetch_for_several_blocks_is_one_request() -> None:
    target, seen = emulator(), []
    case = Case((50, 48), (8, 32), (45, 4))
    kernel, tiles = target.load(multicast_program(4))["share"], case.tensor_map(target, target.array(case.host()))
    launch = kernel[4, THREADS, target.default_stream, 1024].bind(tiles, target.zeros(4096, np.uint8), 1024, 15, 4, 45)
    target.launch(replace(launch, layers=Layers(counts=True, report=seen.append)))
    (number,) = (index for index, one in enumerate(kernel.function.body.instructions()) if one.has("tensor"))
    assert [int(value) for value in seen[0].counts[number][:4]] == [1, 1, 5 * 5, 5 * 4]
