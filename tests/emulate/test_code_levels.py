"""Code that need not be fast, on processors for which the code generator may abort the process."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import pytest

from memlane.emulate.code import jit

TEXT = """
target triple = "{triple}"
define i32 @answer() {{
  ret i32 42
}}
"""


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(jit, "_may_abort", lambda: True)
    return TEXT.format(triple=jit.llvm.get_default_triple())


def answered(code: bytes) -> Any:
    loaded = jit.Code(code, "answer")  # its memory goes with it
    return ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.address)()


def test_large_code_is_written_by_a_process_of_its_own(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    run = subprocess.run
    monkeypatch.setattr(jit.subprocess, "run", lambda *args, **more: started.append(args) or run(*args, **more))
    assert answered(jit.compile_text(text, quick=True)) == 42
    assert started == []
    monkeypatch.setattr(jit, "QUICK_ABOVE", 10)
    assert answered(jit.compile_text(text)) == 42
    assert [command[0][0] for command in started] == [sys.executable]


def test_code_at_which_that_process_aborts_is_written_here(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "QUICK_ABOVE", 10)
    monkeypatch.setattr(jit, "_EMITTER", "import os; os.abort()")
    assert answered(jit.compile_text(text)) == 42
