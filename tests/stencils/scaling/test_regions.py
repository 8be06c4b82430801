"""Which cells are computed between two exchanges: against sets of cells that are grown and shrunk one step after another."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from memlane.errors import StencilError
from memlane.stencils.scaling.regions import Share, can_cut, check_halo, divisions, largest_share, steps_of

REACHES = [(1, 1), (2, 2), (1, 2), (3, 0)]


def grown(cells: set[int], low: int, high: int) -> set[int]:
    """Return the cells that must be known to compute some cells."""
    return {cell + offset for cell in cells for offset in range(-low, high + 1)}


def shrunk(cells: set[int], low: int, high: int) -> set[int]:
    """Return the cells that can be computed where some are known."""
    return {cell for cell in cells if grown({cell}, low, high) <= cells}


@pytest.mark.parametrize(("low", "high"), REACHES)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_both_regions_begin_with_the_same_state(low: int, high: int, k: int) -> None:
    """The schedule of the paper: the inner region is what needs no halo, the borders are made from the first state alone."""
    n = 40
    steps = list(steps_of(Share((n,), ((True, True),)), [(low, high)], k, "independent", True))
    inner = set(range(n))
    for step in steps:
        inner = shrunk(inner, low, high)
        assert step.inner == (len(inner),)
    sides = [{cell for cell in range(n) if cell < min(inner)}, {cell for cell in range(n) if cell > max(inner)}]
    for step in reversed(steps):
        assert sum(map(prod, step.borders)) == sum(map(len, sides))
        sides = [grown(side, low, high) if side else side for side in sides]


@pytest.mark.parametrize(("low", "high"), REACHES)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_linked_regions_compute_nothing_twice(low: int, high: int, k: int) -> None:
    n = 60
    steps = list(steps_of(Share((n,), ((True, True),)), [(low, high)], k, "linked", True))
    needed = set(range(n))
    for step in reversed(steps):
        assert step.cells == len(needed)
        assert step.cells == steps_of_whole(n, low, high, k)[steps.index(step)]
        needed = grown(needed, low, high)


def steps_of_whole(n: int, low: int, high: int, k: int) -> list[int]:
    return [one.cells for one in steps_of(Share((n,), ((True, True),)), [(low, high)], k, "linked", False)]


def test_linked_regions_in_three_axes_are_the_cells_that_are_needed_and_no_more() -> None:
    share, k = Share((14, 13, 16), ((True, True), (False, True), (True, False))), 2
    cells = set(product(range(14), range(13), range(16)))
    for step in reversed(list(steps_of(share, [(1, 1)] * 3, k, "linked", True))):
        assert step.inner is not None
        assert step.cells == len(cells)
        assert len(step.borders) == 4
        near = {(z + dz, y + dy, x + dx) for z, y, x in cells for dz, dy, dx in product((-1, 0, 1), repeat=3)}
        cells = {one for one in near if one[1] >= 0 and one[2] < 16}  # nothing is computed where no neighbour is


@pytest.mark.parametrize("r", [1, 2])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 8])
def test_redundant_planes_a_step(r: int, k: int) -> None:
    n = 200
    share = Share((n,), ((True, True),))
    extra = {one: sum(step.cells for step in steps_of(share, [(r, r)], k, one, True)) / k - n for one in ("independent", "linked")}
    assert extra == {"independent": 3 * (k - 1) * r, "linked": (k - 1) * r}


@pytest.mark.parametrize("r", [1, 2])
@pytest.mark.parametrize("k", [1, 3])
def test_overlap_needs_planes_between_the_borders(r: int, k: int) -> None:
    for n in range(1, 30):
        share = Share((n,), ((True, True),))
        assert can_cut(share, [(r, r)], k, "independent") == (n >= 2 * k * r)
        assert can_cut(share, [(r, r)], k, "linked") == (n > 2 * (2 * k - 1) * r)
    assert can_cut(Share((k * r,), ((True, False),)), [(r, r)], k, "independent")


def test_the_device_that_others_wait_for() -> None:
    assert largest_share((257, 8, 8), (4, 1, 1), (False,) * 3) == Share((65, 8, 8), ((True, True), (False, False), (False, False)))
    assert largest_share((8, 8), (2, 1), (False, False)).neighbours[0] == (True, False)
    assert largest_share((8, 8), (2, 1), (True, True)).neighbours == ((True, True), (False, False))  # nothing is sent to oneself


def test_all_ways_to_cut() -> None:
    assert divisions((64, 64, 64), 8, 1) == [(8, 1, 1)]
    assert divisions((64, 64, 64), 8, 2) == [(2, 4, 1), (4, 2, 1)]
    assert divisions((64, 64, 64), 8, 3) == [(2, 2, 2)]
    assert divisions((64, 64), 8, 3) == []
    assert divisions((3, 64), 8, 2) == [(2, 4)]
    assert divisions((64, 64), 1, 1) == [(1, 1)]
    assert divisions((64, 64), 1, 2) == []


def test_a_halo_wider_than_a_slab_is_refused_with_the_most_that_fits() -> None:
    check_halo((32, 8), (4, 1), [(2, 1), (1, 1)], 4)
    message = (
        "5 steps between exchanges reach 10 cells along axis 0, and a device has only 8 of its 32 cells there: "
        "exchange every 4 steps or fewer, or use fewer devices than 4 along this axis"
    )
    with pytest.raises(StencilError, match=message):
        check_halo((32, 8), (4, 1), [(2, 1), (1, 1)], 5)
    with pytest.raises(StencilError, match=r"there: use fewer devices than 4 along this axis"):
        check_halo((4, 8), (4, 1), [(2, 2), (1, 1)], 1)
