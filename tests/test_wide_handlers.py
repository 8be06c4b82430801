"""Handlers of any exception at all: each says why it is that wide, and uses the error, so that no message is lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[1] / "src" / "memlane").rglob("*.py"))


def problems(text: str) -> Iterator[str]:
    """What is wrong with the wide handlers of a module, a sentence for each."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)} if node.type else {"BaseException"}
        if caught & {"Exception", "BaseException"}:
            if "#" not in lines[node.lineno - 1]:
                yield f"line {node.lineno} does not say why it catches everything"
            passes_on = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            if not passes_on and not any(isinstance(one, ast.Name) and one.id == node.name for body in node.body for one in ast.walk(body)):
                yield f"line {node.lineno} drops the error"


@pytest.mark.parametrize(
    "wrong", ["except Exception as e:  # why\n    pass", "except Exception as e:\n    print(e)", "except:  # why\n    pass"]
)
def test_what_is_wrong_is_found(wrong: str) -> None:
    assert len(list(problems(f"try:\n    pass\n{wrong}\n"))) == 1


def test_wide_handlers_have_a_reason_and_keep_the_message() -> None:
    assert len(SOURCES) > 400
    found = [
        f"{path.name}: {problem}"
        for path in SOURCES
        if "except" in (text := path.read_text(encoding="utf-8"))
        for problem in problems(text)
    ]
    assert not found
