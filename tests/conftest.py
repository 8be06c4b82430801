"""What all tests share: expected text kept in files, one switch that rewrites it, a store of machine code of their own, and examples that
are the same in every run.

Python looks for unreachable objects less often while tests run: one of six seconds went there.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

# What a run finds must be in the code, not in the luck of its examples or in how busy the machine is. `--hypothesis-profile random` looks
# for new examples, with the same patience.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("random", _PATIENT)
settings.register_profile("repeatable", _PATIENT, derandomize=True, database=None)
settings.load_profile("repeatable")
with contextlib.suppress(ImportError, AttributeError):
    # Some examples are numbers that stand in whatever modules happen to be loaded: each order of the tests would have others.
    from hypothesis.internal.conjecture import providers

    providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected outputs under tests/**/golden from what the code gives now"
    )


_LEFT_OUT = (
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("TERMINAL_WIDTH", "GITHUB_ACTIONS", "MEMLANE_CACHE", "MEMLANE_TARGET"),
)
"""What a user, or who runs tests for him, may have said about his terminal and where kernels are to run."""
_machine_code = pytest.StashKey[tuple[tempfile.TemporaryDirectory[str], pytest.MonkeyPatch]]()


def pytest_configure(config: pytest.Config) -> None:
    """The emulator's machine code is kept for the session, apart from the user's, whose chips and wishes do not count here. Processes that
    share the tests, and those that tests start, inherit all that."""
    gc.disable()
    if hasattr(config, "workerinput"):
        return
    folder, patch = tempfile.TemporaryDirectory(prefix="memlane-tests-"), pytest.MonkeyPatch()
    patch.setenv("MEMLANE_CACHE_DIR", str(Path(folder.name, "code")))
    patch.setenv("MEMLANE_CHIPS", str(Path(folder.name, "chips")))
    for name in _LEFT_OUT:
        patch.delenv(name, raising=False)
    config.stash[_machine_code] = folder, patch


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay to the end and need not be looked through again. The code of a kernel is some 100,000 objects
    while it is written."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


_GROWTH_BYTES = 256 << 20
_most_bytes = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A target that only refers to itself holds its device memory until somebody looks for it, which is seldom by the number of objects:
    so it is done whenever the process has become larger than it ever was. Half of its memory is saved, and no time is lost."""
    if resource is None:
        return
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if most > item.config.stash.get(_most_bytes, 0) + _GROWTH_BYTES:
        item.config.stash[_most_bytes] = most
        gc.collect()


def pytest_unconfigure(config: pytest.Config) -> None:
    kept = config.stash.get(_machine_code, None)
    if kept is not None:
        folder, patch = kept
        patch.undo()
        folder.cleanup()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` asserts that `text` is the content of `golden/<name>` next to the test."""

    def check(name: str, text: str) -> None:
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path}; run pytest --update-golden and read what it writes"
        assert text == path.read_text(encoding="utf-8")

    return check
