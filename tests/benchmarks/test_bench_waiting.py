"""The benchmark of waiting runs, and a miss says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from waiting import COMMANDS, row_of


@pytest.mark.slow
def test_the_first_time_and_again_have_rows(quick: Callable[..., list[dict[str, Any]]]) -> None:
    first, again = quick("waiting", "count")
    assert (first["metric"], again["metric"]) == ("first, processor time", "again, processor time")
    assert first["value"] > 0
    assert again["value"] > 0


def test_a_miss_has_its_reason() -> None:
    assert row_of("count", "first", 3.0).holds
    assert all(row_of(name, when, 99.0).note for name in COMMANDS for when in ("first", "again"))
