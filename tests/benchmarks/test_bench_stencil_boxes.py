"""The benchmark of boxes runs without a GPU: every way to cut a grid, with the bits of one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.slow
def test_every_way_to_cut_a_grid_is_measured(quick: Callable[..., list[dict[str, Any]]]) -> None:
    rows = quick("stencil_boxes", "7-point 256^3, 4 devices")
    cuts = [row["case"].rpartition(", ")[2] for row in rows if row["metric"].startswith("time of a step")]
    assert cuts == ["4x1x1", "2x2x1"]
    assert all(row["value"] == 0 for row in rows if row["metric"].startswith("cells"))
    assert rows[-1]["metric"] == "fastest cut over that of the model"
