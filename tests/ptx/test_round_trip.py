"""A module printed and parsed again is the same module, and passes the verifier, also after its scopes were flattened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memlane import ptx
from tests.ptx.modules import CASES, EXAMPLES


def test_there_are_modules_to_try() -> None:
    assert len(CASES) >= 5
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("path", [*CASES, *EXAMPLES], ids=lambda path: path.stem)
def test_printing_loses_nothing(path: Path) -> None:
    module = ptx.parse(path.read_text(), path.name)
    printed = ptx.print_module(module)
    again = ptx.parse(printed, path.name)
    assert again == module
    assert ptx.print_module(again) == printed


@pytest.mark.parametrize("path", [*CASES, *EXAMPLES], ids=lambda path: path.stem)
def test_every_token_survives(path: Path) -> None:
    """Against an independent reading of the text: the words of each instruction and directive, comments and blanks aside."""
    text = path.read_text()
    printed = ptx.print_module(ptx.parse(text, path.name))
    for word in ("ld.", "st.", "bra", ".loc", "setp", "call", "tex.", "mma", ".section", ".shared"):
        assert _count(printed, word) == _count(text, word), word


def _count(text: str, word: str) -> int:
    lines = (line.split("//")[0].strip() for line in text.splitlines())
    return sum(line.count(word) for line in lines)


@pytest.mark.parametrize("path", [*CASES, *EXAMPLES], ids=lambda path: path.stem)
def test_modules_verify_before_and_after_flattening(path: Path) -> None:
    module = ptx.parse(path.read_text(), path.name)
    ptx.verify(module)
    items = tuple(ptx.flatten_scopes(item) if isinstance(item, ptx.Function) else item for item in module.items)
    flat = replace(module, items=items)
    ptx.verify(flat)
    assert ptx.parse(ptx.print_module(flat), path.name) == flat


def test_unknown_directives_and_debug_sections_pass_through_untouched() -> None:
    text = (Path(__file__).parents[1] / "cases" / "ptx" / "awkward.ptx").read_text()
    printed = ptx.print_module(ptx.parse(text))
    start = text.index(".section .debug_str")
    for line in text[start:].splitlines():
        assert line in printed


def test_built_nodes_print_as_text_that_reads_back_the_same() -> None:
    built = (
        ptx.Immediate(7),
        ptx.Immediate(0x3F800000, "f32"),
        ptx.Immediate(0x3FF8000000000000, "f64"),
        ptx.Immediate(-(1 << 63)),
    )
    assert [ptx.operand_text(literal) for literal in built] == ["7", "0f3F800000", "0d3FF8000000000000", "-9223372036854775808"]
    for literal in built:
        (statement,) = ptx.statements(f"mov.b64 %rd1, {ptx.operand_text(literal)};")
        assert isinstance(statement, ptx.Instruction)
        assert statement.operands[1] == literal
