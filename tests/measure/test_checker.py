"""Checking launches from Python."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.errors import MemlaneError
from memlane.ptx import parse
from tests.emulate.running import emulator, program


def test_check_gives_reports_and_leaves_memory_as_the_launch_does() -> None:
    target = emulator()
    kernel = target.load(parse(program("st.global.u64 [%mine], 7; ret;"), "test.ptx"))["k"]
    out = target.zeros(20, np.uint64)
    (report,) = ml.check(kernel[1, 32], out)
    assert (report.kind, report.count, report.who.op) == ("out of bounds", 12, "st.global.u64")
    assert out.numpy().tolist() == [7] * 20
    assert report.as_dict()["text"] == str(report)
    assert ml.check(kernel[1, 20], out) == []


def test_launches_that_do_the_same_are_reported_once() -> None:
    target = emulator()
    kernel = target.load(parse(program("st.global.u64 [%mine], 7; ret;"), "test.ptx"))["k"]
    with ml.Checker() as checker:
        for size in (30, 31, 32):
            kernel[1, 32](target.zeros(size, np.uint64))
    assert checker.seen == 3
    assert [len(checked.reports) for checked in checker.checked] == [1, 1, 0]
    assert [report.count for report in checker.reports] == [3]


def test_a_target_that_cannot_check_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = emulator()
    monkeypatch.setattr(target, "observes", False)
    kernel = target.load(parse(program("ret;"), "test.ptx"))["k"]
    with pytest.raises(MemlaneError, match="emulator:h200 cannot check a launch; only the emulator can: use the target emulator:h200"):
        ml.check(kernel[1, 32], target.zeros(1))
