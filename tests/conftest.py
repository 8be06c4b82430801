"""What all tests share: expected text kept in files, one switch that rewrites it, and a store of machine code of their own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected outputs under tests/**/golden from what the code gives now"
    )


@pytest.fixture(scope="session", autouse=True)
def _machine_code_of_this_session() -> Iterator[None]:
    """The emulator's machine code is kept for the session, for the processes that tests start too, and apart from the user's."""
    with tempfile.TemporaryDirectory(prefix="memlane-tests-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "MEMLANE_CACHE_DIR", folder)
        patch.delitem(os.environ, "MEMLANE_CACHE", raising=False)
        yield


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
