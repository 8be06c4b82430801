"""The benchmark of plans runs without a GPU, where its prediction is the model itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.slow
def test_a_prediction_of_the_emulated_clock_is_right(quick: Callable[..., list[dict[str, Any]]]) -> None:
    """What it predicts is made of the same numbers; the kernel's time is that of its first launch."""
    rows = quick("plans", "prediction")
    assert [row["case"] for row in rows] == [f"upload, kernel, download in {chunks} chunks" for chunks in (1, 2)]
    assert all(row["value"] < 0.15 for row in rows)


@pytest.mark.slow
def test_ten_thousand_steps_are_checked(quick: Callable[..., list[dict[str, Any]]]) -> None:
    (row,) = quick("plans", "checked")
    assert row["case"] == "10,032 steps over 8 devices"
