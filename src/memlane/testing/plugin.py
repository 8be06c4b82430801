"""Check the launches on the emulator in every test; findings of the checker fail the launch.

    @pytest.mark.memlane_check(False)      a test, class or module that breaks the rules on purpose
    @pytest.mark.memlane_check(seed=3)     warps take their turns in another order
    memlane_check = false                  in the ini file: only tests that are marked `memlane_check` or `memlane_check(True)`

    @pytest.mark.memlane(max_sectors_per_request=4, max_conflicts=0, max_excess_bytes=0)
                                           launches are counted, and an operation on a source line above a limit fails its launch

Launches on a GPU are not checked, nor are those that a test checks, counts or traces itself (`ml.check`, `ml.Checker`, `ml.trace`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from memlane.checks import Check, checking

MARK, LIMITS = "memlane_check", "memlane"
_NAMES = ("max_sectors_per_request", "max_conflicts", "max_excess_bytes")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(MARK, "check launches on memlane's emulator in all tests", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(on=True, *, seed=None): check the launches of a test on memlane's emulator, or not; seed shuffles the warps",
    )
    config.addinivalue_line(
        "markers",
        f"{LIMITS}({', '.join(f'{name}=None' for name in _NAMES)}): limits for each source line in launches on memlane's emulator",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reject unknown limit names at collection time."""
    for item in items:
        mark = item.get_closest_marker(LIMITS)
        unknown = [] if mark is None else [*(repr(one) for one in mark.args), *(name for name in mark.kwargs if name not in _NAMES)]
        if unknown:
            raise pytest.UsageError(
                f"{item.nodeid}: the mark {LIMITS} takes {', '.join(f'{name}=' for name in _NAMES)}, not {', '.join(unknown)}"
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Check the launches of a test together with those of its fixtures."""
    with checking(_requested_check(item)):
        return (yield)


def _requested_check(item: pytest.Item) -> Check | None:
    check = _correctness_check(item)
    mark = item.get_closest_marker(LIMITS)
    if mark is None:
        return check
    return replace(check or Check(correctness=False), judge=_judge(mark.kwargs))


def _judge(limits: Mapping[str, Any]) -> Callable[[Any, Any], None]:
    """Return the function that checks a launch against the limits. Its imports are deferred until there is a launch."""

    def judge(launch: Any, seen: Any) -> None:
        import_module("memlane.testing.limits").judge(import_module("memlane.diagnose.limits").Limits(**limits), launch, seen)

    return judge


def _correctness_check(item: pytest.Item) -> Check | None:
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return Check() if item.config.getini(MARK) else None
    return _marked_check(*mark.args, **mark.kwargs)


def _marked_check(on: bool = True, *, seed: int | None = None) -> Check | None:
    return Check(seed) if on else None
