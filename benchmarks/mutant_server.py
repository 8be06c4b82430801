"""Run tests in processes that are forked from one which has imported everything that no mutant changes.

`benchmarks/mutants.py` starts this program in its copy of the project and writes one request per line; each gets one line as its answer:

    {"tests": {node: seconds, ...}}                   ->   {"ended": "killed", "by": node, "seconds": 1.7}; `forked` says what else
    {"cover": [file, ...], "modules": [file, ...]}    ->   which lines of the modules each test executes, and how long it takes

Tests run in the given order, those of the first file before all others. The seconds are what each takes without a mutant: one that takes
ten times as long, and then some, hangs.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

LEAST_S, SLOWER, IMPORT_S = 30.0, 10.0, 120.0
"""Least limit of a test's time in seconds, the limit as a multiple of the time without a mutant, and the seconds that may pass before the
first test begins."""
MOST_BYTES = 4 << 30
"""Largest memory of the process of a mutant; one that needs more counts as one that never ends."""
PYTEST = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-m", "not gpu and not slow", "--no-header"]
PYTEST += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]


class Deadline:
    """A time of `time.monotonic` that a process shares with those that it forks."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    def set(self, seconds: float) -> None:
        """Put it so far into the future."""
        self._shared[:] = struct.pack("d", time.monotonic() + seconds)

    def is_over(self) -> bool:
        return time.monotonic() > struct.unpack("d", self._shared[:])[0]


class Chosen:
    """Runs some of the collected tests, in an order that is given, each with a limit of time, and notes the first that fails."""

    def __init__(self, seconds: dict[str, float], note: Path) -> None:
        self._seconds = seconds
        self._place = {node: place for place, node in enumerate(seconds)}
        self._note = note

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        DEADLINE.set(LEAST_S + SLOWER * self._seconds.get(nodeid, 0.0))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._note.exists():
            self._note.write_text(report.nodeid)


class Covered:
    """Notes which lines of some files each test executes, and how long the test takes with that."""

    def __init__(self, modules: list[str]) -> None:
        self._files = {os.path.abspath(name): name for name in modules}
        self._lines: set[tuple[str, int]] = set()
        self.tests: dict[str, dict[str, Any]] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._lines, began = set(), time.monotonic()
        sys.settrace(self._called)
        threading.settrace(self._called)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            lines: dict[str, list[int]] = {}
            for name, line in sorted(self._lines):
                lines.setdefault(self._files[name], []).append(line)
            self.tests[item.nodeid] = {"seconds": round(time.monotonic() - began, 3), "lines": lines}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._traced

    def _traced(self, frame: FrameType, event: str, _: Any) -> Any:
        self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._traced


DEADLINE = Deadline()


def main() -> None:
    import_what_stays()
    for line in sys.stdin:
        request = json.loads(line)
        answer = cover(request) if "cover" in request else run(request)
        print(json.dumps(answer), flush=True)


def import_what_stays() -> None:
    """Import other projects' libraries that the tests need. The forked process imports memlane itself, with its mutant."""
    for name in ("numpy", "llvmlite.binding", "pyarrow", "pyarrow.parquet", "rich.console", "typer", "jinja2", "cuda.core"):
        try:
            __import__(name)
        except ImportError:
            continue
    assert "memlane" not in sys.modules
    # The plugin that is announced for pytest would be imported from where memlane is installed.
    os.environ["PYTHONPATH"] = os.pathsep.join([os.path.abspath("src"), os.environ.get("PYTHONPATH", "")])
    sys.path[:0] = [os.path.abspath("src"), os.path.abspath(".")]


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run tests until one fails."""
    tests, note = request["tests"], Path("failed.txt").absolute()
    note.unlink(missing_ok=True)
    files = list(dict.fromkeys(node.partition("::")[0] for node in tests))
    began = time.monotonic()

    def chosen() -> int:
        status = 0
        for some in filter(None, (files[:1], files[1:])):  # Mostly those of the first file notice, and no other has to be read.
            status = int(pytest.main([*PYTEST, *some], plugins=[Chosen(tests, note)]))
            if status not in (0, 5):
                break
            DEADLINE.set(IMPORT_S)
        return status

    ended = forked(chosen, IMPORT_S)
    by = note.read_text() if note.exists() else ""
    return {"ended": ended, "by": by, "seconds": round(time.monotonic() - began, 2)}


def cover(request: dict[str, Any]) -> dict[str, Any]:
    """Run all tests of some files with a record of the lines that they execute."""
    kept = Path("covered.json").absolute()
    kept.unlink(missing_ok=True)

    def covered() -> int:
        plugin = Covered(request["modules"])
        status = int(pytest.main([*[one for one in PYTEST if one != "-x"], *request["cover"]], plugins=[plugin]))
        kept.write_text(json.dumps({"status": status, "failed": plugin.failed, "tests": plugin.tests}))
        return status

    forked(covered, 36_000.0)
    return json.loads(kept.read_text()) if kept.exists() else {"status": -1, "failed": [], "tests": {}}  # type: ignore[no-any-return]


def forked(work: Any, seconds: float) -> str:
    """Run `work` in a forked process and return how it ends: `passed`, `killed` (a test failed), `broken` (no test could be run), `hung`,
    `large`. It may take `seconds`, unless it sets a later deadline."""
    DEADLINE.set(seconds)
    child = os.fork()
    if child == 0:
        status = 3
        try:
            os.setsid()
            silence = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    pause = 0.01
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            ended = {0: "passed", 5: "passed", 1: "killed"}.get(code, "broken")
            break
        if (late := DEADLINE.is_over()) or _resident(child) > MOST_BYTES:
            ended = "hung" if late else "large"
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)
    if ended != "hung":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests have left
    return ended


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    main()
