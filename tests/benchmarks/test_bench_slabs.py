"""The benchmark of slabs runs without a GPU, and its committed result supports what the model is said to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.slow
def test_a_slab_is_measured_beside_the_model(quick: Callable[..., list[dict[str, Any]]]) -> None:
    rows = quick("stencil_slabs", "7-point, Z x 512 x 512")
    assert [row["metric"] for row in rows] == ["time of a launch"] * 2 + ["error of the model, average", "error of the model, worst"]
    assert 0 < rows[0]["peer"]["model, us"] < rows[1]["peer"]["model, us"]
