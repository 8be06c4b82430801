"""Cases that are carried to another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.targets import target
from tests.compile import kept as keeping

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytestmark = pytest.mark.numba


def test_a_case_survives_the_journey_and_is_not_used_when_it_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.compile.numba_cases import CASES

    monkeypatch.setattr("tests.compile.numba_cases.CASES", {"saxpy": CASES["saxpy"]})
    assert keeping.kept("numba", "saxpy", tmp_path) is None
    assert keeping.keep("numba", tmp_path) == ["saxpy"]
    case = keeping.kept("numba", "saxpy", tmp_path)
    assert case is not None
    call, arguments = case.prepare(target("emulator:h200"))
    call(*arguments)
    case.check(arguments)
    monkeypatch.setattr(keeping, "_digest", lambda kind: "another")
    assert keeping.kept("numba", "saxpy", tmp_path) is None
