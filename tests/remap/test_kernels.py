"""Remap kernels: right for any shape, and ideal in sectors and wavefronts where shapes divide."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.errors import LayoutError
from memlane.layout import Blocked, Fields, PaddedRows, Permuted, array_layout, column_major
from memlane.plan import PlanBuilder
from memlane.remap.kernels import gather_of, transpose_in_place
from memlane.remap.movement import Axis, Movement, movement_of
from tests.remap.moving import chosen, moved, views


@pytest.fixture(scope="module")
def target() -> ml.Target:
    return ml.target("emulator:h200")


@pytest.mark.parametrize("element", [1, 2, 4, 8, 16])
def test_a_transposition_of_shapes_that_divide_is_ideal(target: ml.Target, element: int) -> None:
    layout = column_major((256, 128) if element < 4 else (128, 64))
    counts = moved(target, layout, element, counted=True)
    assert counts.remap.launch.kernel.name == "transpose"
    totals = counts.counts.total()
    assert totals.sectors == totals.ideal_sectors == 2 * layout.count * element // 32
    assert totals.wavefronts == totals.ideal_wavefronts == 2 * layout.count * element // 128


@pytest.mark.parametrize("fields", [3, 4, 7])
@pytest.mark.parametrize("back", [False, True])
def test_structures_of_12_16_and_28_bytes_are_taken_apart_ideally(target: ml.Target, fields: int, back: bool) -> None:
    layout = column_major((2048, fields))
    result = moved(target, layout, 4, back=back, counted=True)
    assert result.remap.launch.kernel.name == ("join_structures" if back else "split_structures")
    totals = result.counts.total()
    assert totals.sectors == totals.ideal_sectors == 2 * layout.count * 4 // 32
    assert totals.wavefronts == totals.ideal_wavefronts


@pytest.mark.parametrize(
    ("element", "widths"),
    [(4, (2, 1, 1)), (4, (3, 1, 2)), (2, (6, 4, 1)), (8, (1, 2)), (1, (8, 1, 4)), (16, (1, 2)), (4, (3, 13))],
)
@pytest.mark.parametrize("back", [False, True])
def test_fields_of_different_widths_are_taken_apart_ideally(target: ml.Target, element: int, widths: tuple[int, ...], back: bool) -> None:
    layout = Fields((2048, sum(widths)), widths)
    result = moved(target, layout, element, back=back, counted=True)
    assert result.remap.launch.kernel.name == ("join_fields" if back else "split_fields")
    totals = result.counts.total()
    assert totals.sectors == totals.ideal_sectors == 2 * layout.count * element // 32
    assert totals.wavefronts == totals.ideal_wavefronts


def test_random_structures_agree_with_numpy(target: ml.Target) -> None:
    draw = np.random.default_rng(17)
    for _ in range(4):
        widths = tuple(int(width) for width in draw.integers(1, 7, draw.integers(2, 5)))
        layout = Fields((int(draw.integers(1, 700)), sum(widths)), widths)
        for back in (False, True):
            moved(target, layout, int(draw.choice([1, 2, 4, 8, 16])), back=back)


@pytest.mark.parametrize("element", [1, 2, 4, 8, 16, 12, 3])
@pytest.mark.parametrize("shape", [(37, 53), (1, 1), (2, 131), (129, 67)])
def test_any_shape_and_element_is_transposed_and_back(target: ml.Target, element: int, shape: tuple[int, int]) -> None:
    for back in (False, True):
        moved(target, column_major(shape), element, back=back)


@pytest.mark.parametrize(
    ("layout", "kernel"),
    [
        (column_major((1001, 3)), "split_structures_any"),
        (column_major((7, 1001)), "join_structures_any"),
        (Permuted((6, 8, 10, 12), (3, 1, 0, 2)), "transpose_any"),
        (Permuted((6, 8, 10, 12), (1, 0, 2, 3)), "copy_strided"),
        (Permuted((8, 3, 64), (2, 1, 0)), "transpose"),
        (Permuted((5, 1, 7, 1), (3, 2, 1, 0)), "split_structures_any"),
        (Blocked((64, 128), (8, 4)), "transpose"),
        (Blocked((65, 127), (8, 4)), "scatter"),
        (PaddedRows((65, 33), 3), "copy_strided"),
        (PaddedRows((5, 6, 8), 8), "copy_strided"),
        (array_layout("diagonal", (70, 45)), "scatter"),
        (array_layout("diagonal", (31, 100)), "scatter"),
        (Fields((100, 4), (2, 1, 1)), "split_fields"),
        (Fields((99, 4), (2, 1, 1)), "split_fields_any"),
        (Fields((99, 20), (2, 1, 17)), "split_fields_any"),
        (Fields((70, 130), (129, 1)), "scatter"),
        (Fields((1024, 5), (1, 1, 1, 1, 1)), "split_structures"),
        (Fields((1024, 6), (2, 2, 2)), "split_structures"),
        (PaddedRows((53, 37), 3) @ column_major((37, 53)), "transpose_any"),
        (column_major((20, 12)) @ Permuted((12, 20), (1, 0)), "copy_strided"),
        (array_layout("pad(1)", (9,)), "copy_strided"),
    ],
)
def test_every_layout_is_reached_and_left(target: ml.Target, layout: object, kernel: str) -> None:
    assert moved(target, layout, 4).remap.launch.kernel.name == kernel
    moved(target, layout, 4, back=True)


def test_random_permutations_agree_with_numpy(target: ml.Target) -> None:
    draw = np.random.default_rng(16)
    for _ in range(12):
        axes = int(draw.integers(1, 5))
        shape = tuple(int(draw.choice([1, 2, 3, 4, 8, 16, 17, 32])) for _ in range(axes))
        if np.prod(shape) > 40_000:
            continue
        moved(target, Permuted(shape, tuple(int(a) for a in draw.permutation(axes))), int(draw.choice([1, 2, 4, 8, 16])))


def test_movements_are_brought_to_the_widest_element() -> None:
    # blocks of 8 x 4 floats: four neighbours stay together, so sixteen bytes move at once, and only two axes are left to exchange
    simple = movement_of(Blocked((64, 128), (8, 4)), 4).simplified()
    assert simple == Movement((Axis(8, 256, 256), Axis(8, 32, 1), Axis(32, 1, 8)), 16)
    assert movement_of(Permuted((4, 5, 6), (0, 1, 2)), 2).simplified() == Movement((Axis(15, 1, 1),), 16)
    assert movement_of(Permuted((4, 5, 6), (0, 1, 2)), 2).simplified(4).element == 4
    assert movement_of(column_major((5, 7)), 12).simplified().element == 4


@pytest.mark.parametrize("side", [1, 31, 64, 97])
@pytest.mark.parametrize("dtype", ["u1", "f4", "c16"])
def test_a_square_is_transposed_in_place(target: ml.Target, side: int, dtype: str) -> None:
    host = np.random.default_rng(side).integers(0, 100, (side, side)).astype(dtype)
    data, view = target.array(host), PlanBuilder().array("data", (side, side), f"V{host.itemsize}")
    remap = transpose_in_place(view, side)
    target.load(remap.module)["transpose_in_place"][remap.launch.grid, remap.launch.block](data, side, side)
    assert np.array_equal(data.numpy(), host.T)


@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("row_bytes", [64, 12, 1, 6])
def test_a_gather_takes_rows_by_index(target: ml.Target, index: str, row_bytes: int) -> None:
    draw = np.random.default_rng(row_bytes)
    rows, places = 97, 300
    host, indices = draw.integers(0, 256, (rows, row_bytes), dtype=np.uint8), draw.integers(0, rows, places).astype(index)
    out, wrong = gathered(target, host, indices)
    assert np.array_equal(out, host[indices])
    assert wrong == places
    indices[[70, 71, 250]] = rows, -1, 1 << 30
    out, wrong = gathered(target, host, indices)
    assert wrong == 70
    assert np.array_equal(out[:70], host[indices[:70]])


def gathered(target: ml.Target, host: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, int]:
    b = PlanBuilder()
    shapes = {"out": (indices.size, host.shape[1]), "in": host.shape, "indices": indices.shape, "wrong": (1,)}
    types = {"out": "u1", "in": "u1", "indices": indices.dtype, "wrong": "u8"}
    named = {name: b.array(name, shape, types[name]) for name, shape in shapes.items()}
    remap = gather_of(named["out"], named["in"], named["indices"], named["wrong"], 0, host.shape[0], host.shape[1])
    memory = {"out": target.zeros(shapes["out"], "u1"), "in": target.array(host), "indices": target.array(indices)}
    memory["wrong"] = target.array(np.array([indices.size], "u8"))
    arguments = [memory[one.buffer.name] if hasattr(one, "buffer") else one for one in remap.launch.arguments]
    target.load(remap.module)["gather"][remap.launch.grid, remap.launch.block](*arguments)
    return memory["out"].numpy(), memory["wrong"].item()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: chosen(Fields((4, 3), (2, 1)), 12), "elements of 12 bytes under .* are not supported"),
        (lambda: transpose_in_place(views(column_major((3, 3)), 12)[0], 3), "elements of 12 bytes are not transposed in place"),
    ],
)
def test_what_no_kernel_does_says_so(make: object, sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        make()  # type: ignore[operator]
