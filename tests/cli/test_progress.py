"""What a person sees on the terminal while launches run."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from memlane.cli import progress as module_under_test
from memlane.launch import Launch, observed, stage, tell_progress
from memlane.ptx import parse
from tests.launch.fake_target import PTX, FakeTarget


@pytest.fixture
def launch() -> Launch:
    return FakeTarget().load(parse(PTX, "k.ptx"))["plain"][(64, 40), 1].bind()


def shown(monkeypatch: pytest.MonkeyPatch, launch: Launch, long_s: float, *, terminal: bool = True) -> str:
    """What is on standard error when a launch is under way."""
    screen = io.StringIO()
    monkeypatch.setattr(module_under_test, "Console", lambda stderr: Console(file=screen, force_terminal=terminal, width=120))
    monkeypatch.setattr(module_under_test, "LONG_S", long_s)
    with module_under_test.progress("tracing"):
        observed(launch)
        tell_progress(launch, 1536)
    return screen.getvalue()


def test_a_long_launch_has_a_bar(monkeypatch: pytest.MonkeyPatch, launch: Launch) -> None:
    screen = shown(monkeypatch, launch, 0.0)
    assert "tracing launch 0: plain, 64x40 blocks" in screen
    assert "1,536 of 2,560 done" in screen
    assert screen.count("━") % module_under_test.BAR == 0


def test_a_short_launch_has_none(monkeypatch: pytest.MonkeyPatch, launch: Launch) -> None:
    screen = shown(monkeypatch, launch, 60.0)
    assert "tracing launch 0: plain, 64x40 blocks" in screen
    assert "done" not in screen


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch, launch: Launch) -> None:
    assert shown(monkeypatch, launch, 0.0, terminal=False) == ""


def test_what_takes_long_before_a_launch_is_named(monkeypatch: pytest.MonkeyPatch, launch: Launch) -> None:
    for terminal in (True, False):
        screen = io.StringIO()
        monkeypatch.setattr(
            module_under_test,
            "Console",
            lambda stderr, terminal=terminal, screen=screen: Console(file=screen, force_terminal=terminal, width=120),
        )
        with module_under_test.progress("counting"):
            with stage("comparing with the assembled code"):
                time.sleep(0.3)  # the line is drawn ten times a second
            observed(launch)
        assert ("counting ...: comparing with the assembled code" in screen.getvalue()) == terminal
        assert ("counting launch 0: plain" in screen.getvalue()) == terminal
