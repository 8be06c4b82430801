"""Kernels of several steps that stay on their devices: the bits of one device, and which variants can stay."""

from dataclasses import replace

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load
from memlane.errors import StencilError
from memlane.stencils import PersistentStage, PutStage, Variant
from memlane.stencils.persistent import SIGNAL_ROWS
from memlane.stencils.schedule import FusedSchedule
from memlane.stencils.staying_fused import StayingFusedKernel, best_staying, cannot_stay_fused
from tests.stencils.several import assert_bits_of_one_device
from tests.stencils.test_boxes import poison
from tests.stencils.test_resident import COEFFICIENTS, corners, problem, seven
from tests.stencils.test_shared import SWAP, prepared


@ml.stencil
def uneven(new, u, r):
    new[0, 0, 0] = r * u[-2, 0, 0] + 0.5 * u[1, 0, 1] - 0.25 * u[0, 1, -1] + 0.125 * u[1, -1, 0]


@pytest.mark.parametrize(
    ("stencil", "shape", "devices", "boundary", "variant"),
    [
        pytest.param(seven, (16, 12, 48), 2, "fixed", Variant(1, (32, 4), 4, 2, 2), id="two blocks from end to end, a short row of tiles"),
        pytest.param(seven, (24, 9, 48), 3, ("periodic", "fixed", 1.5), Variant(2, (32, 4), 4, 2, 2, unroll=2), id="around"),
        pytest.param(
            corners, (24, 12, 64), 2, ("fixed", "periodic", "fixed"), Variant(1, (32, 4), 5, 3, 2), id="a field that stays, corners"
        ),
        pytest.param(
            uneven, (28, 12, 40), 2, (2.0, "fixed", "periodic"), Variant(1, (32, 4), 7, 2, 2, ahead=1), id="more reach down than up"
        ),
    ],
)
def test_the_bits_are_those_of_one_device(stencil, shape, devices, boundary, variant):
    """By turns of two steps, and a single step behind them."""
    grid = ml.Grid(shape, boundary=boundary)
    more = {seven: {"a": COEFFICIENTS}, uneven: {"r": 0.3}, corners: {}}[stencil]
    many = prepared(stencil, grid, devices, variant.steps, "persistent", variant, swap=SWAP, **more)
    assert isinstance(many._staying, StayingFusedKernel)
    assert [type(stage) for stage, _ in many._shared_stages(5, False, False)] == [PersistentStage, PutStage]
    assert_bits_of_one_device(many, prepared(stencil, grid, swap=SWAP, **more), [2, 8, 3], planned=2 * variant.steps)


def test_what_was_not_stored_is_not_read():
    """NaN in all memory beside what neighbours send, and in the field that steps overwrite, reaches no result."""
    grid = ml.Grid((16, 9, 48), boundary=("periodic", "fixed", "fixed"))
    one = prepared(seven, grid, swap=SWAP, a=COEFFICIENTS)
    many = prepared(seven, grid, 2, 2, "persistent", Variant(1, (32, 4), 4, 2, 2), swap=SWAP, a=COEFFICIENTS)
    for steps in (4, 2):
        poison(many, many._wanted)
        for part in many.arrays["new"]:
            part.copy_from(np.full(part.shape, np.nan, part.dtype))
        np.testing.assert_array_equal(many.steps(steps)["u"].gather(), one.steps(steps)["u"].gather())


def test_signals_have_a_row_for_each_block_and_for_those_beyond_the_ends():
    variant = Variant(1, (32, 4), 4, 2, 2)
    kernel = StayingFusedKernel(problem(seven, (16, 12, 48)), seven.rules[0], variant)
    x, y = kernel.across
    assert kernel.blocks_of(8) == 2 * x * y
    assert kernel.signal_rows(8) == SIGNAL_ROWS + 4 * x * y
    assert kernel.arrival_shape == (2, 4, 2, 12, 48)


def test_variants_that_cannot_stay():
    whole = problem(seven, (64, 64, 128))
    for variant, planes, why in (
        (Variant(4, (32, 8), 32, 2, 2), 32, "both ends of a device would be in one block"),
        (Variant(4, (32, 8), 31, 2, 2), 32, "a block has fewer planes than the 2 that the steps reach"),
        (Variant(4, (32, 8), 16, 2, 2), 32, ""),
        (Variant(1, (32, 4), 16, 2, 3), 32, "a tile has fewer cells than the steps reach"),
    ):
        assert cannot_stay_fused(whole, seven.rules[0], variant, planes) == why
    odd = problem(seven, (64, 64, 66))
    assert cannot_stay_fused(odd, seven.rules[0], Variant(4, (32, 8), 16, 2, 2), 32) == "rows are no multiple of what a thread has"
    assert cannot_stay_fused(replace(whole, cut=(1,)), seven.rules[0], Variant(4, (32, 8), 16, 2, 2), 32) == (
        "the grid is not cut along the first of three axes"
    )
    with pytest.raises(
        StencilError, match=r"a kernel of 2 steps, .* cannot stay on devices of 8 planes: both ends of a device would be in one"
    ):
        prepared(seven, ml.Grid((16, 12, 48)), 2, 2, "persistent", Variant(1, (32, 4), 8, 2, 2), swap=SWAP, a=COEFFICIENTS)


def test_blocks_of_the_best_variant_are_there_at_the_same_time():
    chip = load("h200")
    for shape, steps in (((512, 512, 512), 3), ((512, 512, 512), 4), ((1024, 512, 512), 3)):
        slab, planes = problem(seven, shape), shape[0] // 2
        variant = best_staying(slab, [planes, planes], steps, chip)
        if variant is None:
            continue
        assert variant.steps == steps
        assert cannot_stay_fused(slab, seven.rules[0], variant, planes) == ""
        half = problem(seven, (planes, *shape[1:]))
        assert FusedSchedule(half, seven.rules[0], variant).blocks <= chip.sm_count
    assert best_staying(problem(seven, (512, 512, 512)), [256, 256], 3, chip) is not None
