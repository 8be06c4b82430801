"""What a person sees on the terminal while launches run."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from memlane.cli import progress as module_under_test
from memlane.launch import Launch, apply_observers, stage, tell_progress
from memlane.ptx import parse
from tests.cli.conftest import Command
from tests.launch.fake_target import PTX, FakeTarget
from tests.synthetic import transpose


@pytest.fixture
def launch() -> Launch:
    return FakeTarget().load(parse(PTX, "k.ptx"))["plain"][(64, 40), 1].bind()


def shown(monkeypatch: pytest.MonkeyPatch, launch: Launch, long_s: float, *, terminal: bool = True) -> str:
    """What is on standard error when a launch is under way."""
    screen = io.StringIO()
    monkeypatch.setattr(module_under_test, "Console", lambda stderr: Console(file=screen, force_terminal=terminal, width=120))
    monkeypatch.setattr(module_under_test, "LONG_S", long_s)
    with module_under_test.progress("tracing"):
        apply_observers(launch)
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
            apply_observers(launch)
        assert ("counting ...: comparing with the assembled code" in screen.getvalue()) == terminal
        assert ("counting launch 0: plain" in screen.getvalue()) == terminal


@pytest.mark.parametrize(("long_s", "terminal", "is_shown"), [(0.05, True, True), (60.0, True, False), (0.05, False, False)])
def test_work_on_files_is_named_once_it_has_taken_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], long_s: float, terminal: bool, is_shown: bool
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(module_under_test, "Console", lambda stderr: Console(file=screen, force_terminal=terminal, width=120))
    monkeypatch.setattr(module_under_test, "LONG_S", long_s)
    with module_under_test.working("reading t.parquet"):
        time.sleep(0.3)
    assert ("reading t.parquet ..." in screen.getvalue()) == is_shown
    assert bool(screen.getvalue()) == is_shown
    print("behind it")
    assert capsys.readouterr().out == "behind it\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "t.parquet"), ["reading t.parquet", "explaining t.parquet"]),
        (("report", "t.parquet"), ["reading t.parquet", "writing t.html"]),
        (("export", "t.parquet", "--to", "csv"), ["reading t.parquet", "writing t.csv"]),
        (("compare", "t.parquet", "t.parquet"), ["comparing t.parquet with t.parquet"]),
    ],
)
def test_commands_that_read_files_say_what_takes_long(
    memlane: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: list[str]
) -> None:
    """Asked of each command without the waiting."""
    heard: list[str] = []

    @contextmanager
    def noting(doing: str) -> Iterator[None]:
        heard.append(doing)
        yield

    monkeypatch.setattr(module_under_test, "working", noting)
    transpose().save("t.parquet")
    assert memlane(*arguments).code == 0
    assert [one.replace(f"{Path.cwd()}/", "") for one in heard] == said
