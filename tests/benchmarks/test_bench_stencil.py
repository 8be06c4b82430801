"""The benchmark of stencils runs without a GPU, where it measures nothing but shows that it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.slow
def test_a_rule_is_measured_beside_a_copy(quick: Callable[..., list[dict[str, Any]]]) -> None:
    rows = quick("stencil", "7-point fp64 512^3")
    assert [row["metric"] for row in rows] == ["share of the copy", "rate"]
    assert "copy, Gcell/s" in rows[0]["peer"]
    assert all(row["value"] >= 0 for row in rows)
