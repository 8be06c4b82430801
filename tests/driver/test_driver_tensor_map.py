"""What the driver is told of a tensor map."""

from __future__ import annotations

import pytest

from memlane.launch import ELEMENTS, SWIZZLES, Tiling
from memlane.launch.tensor_map import FILLS, PROMOTIONS

driver = pytest.importorskip("cuda.bindings.driver")
tensor_map = pytest.importorskip("memlane.driver.tensor_map")


def test_the_driver_is_told_what_the_tiling_says() -> None:
    tiling = Tiling(0x7000, "bf16", (40, 64, 3), (80, 5120), (32, 8, 2), (1, 2, 1), "64B", "128B", "nan")
    kind, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill = tensor_map.arguments(tiling)
    assert (kind.name, rank, address) == ("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", 3, 0x7000)
    numbers = [[int(one) for one in given] for given in (extents, strides, box, steps)]
    assert numbers == [[40, 64, 3], [80, 5120], [32, 8, 2], [1, 2, 1]]
    assert interleave.name == "CU_TENSOR_MAP_INTERLEAVE_NONE"
    assert (swizzle.name, promotion.name) == ("CU_TENSOR_MAP_SWIZZLE_64B", "CU_TENSOR_MAP_L2_PROMOTION_L2_128B")
    assert fill.name == "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA"


def test_every_choice_has_a_word_of_the_driver() -> None:
    told = set()
    for element in ELEMENTS:
        told.add(int(tensor_map.arguments(Tiling(0, element, (16,), (), (16,), (1,)))[0]))
    assert len(told) == len(ELEMENTS)
    for field, choices, place in (("swizzle", SWIZZLES, 8), ("promotion", PROMOTIONS, 9), ("fill", FILLS, 10)):
        values = {int(tensor_map.arguments(Tiling(0, "f32", (16,), (), (16,), (1,), **{field: choice}))[place]) for choice in choices}
        assert values == set(range(len(choices))), field
