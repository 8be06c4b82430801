"""The pytest plugin: in every test, launches on the emulator are checked, and what the checker finds fails the launch.

    @pytest.mark.memlane_check(False)      a test, class or module that breaks the rules on purpose
    @pytest.mark.memlane_check(seed=3)     warps take their turns in another order
    memlane_check = false                  in the ini file: only tests that are marked `memlane_check` or `memlane_check(True)`

Launches on a GPU are left alone, as are those that a test checks itself (`ml.check`, `ml.Checker`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memlane.checks import Check, checking

MARK = "memlane_check"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(MARK, "check launches on memlane's emulator in all tests", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(on=True, *, seed=None): whether the launches of a test on memlane's emulator are checked, in which order of warps",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """The fixtures of a test are checked with it."""
    with checking(_wish(item)):
        return (yield)


def _wish(item: pytest.Item) -> Check | None:
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return Check() if item.config.getini(MARK) else None
    return _of_mark(*mark.args, **mark.kwargs)


def _of_mark(on: bool = True, *, seed: int | None = None) -> Check | None:
    return Check(seed) if on else None
