"""Text that is not PTX, or not what we know: the message, the line and the column."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane import ptx
from memlane.errors import PtxSyntaxError, PtxTypeError, SourceError, UnsupportedPtx
from tests.ptx.modules import CASES, HEAD, module_text

IN_A_BODY = [
    ("frobnicate.u32 %r1;", UnsupportedPtx, 6, 1, "the instruction `frobnicate.u32` is not supported"),
    ("ret;\n  ld.frob.u32 %r1, [%rd1];", UnsupportedPtx, 7, 3, "this form of `ld` is not supported: `ld.frob.u32`; the nearest known are"),
    ("@%p1 add.s31 %r1, %r2, %r3;", UnsupportedPtx, 6, 6, "add.type d, a, b"),
    ("add.s32 %r1, %r2;", PtxTypeError, 6, 1, "the operands of `add.s32` do not match; its form is\n    add.type d, a, b"),
    ("ld.u32 %r1, %rd1;", PtxTypeError, 6, 1, "d, [a]"),
    ("add.s32 %r1 %r2, 3;", PtxSyntaxError, 6, 13, "expected `,` or `;` after an operand of `add.s32`, found `%r2`"),
    ("add.s32 %r1, , 3;", PtxSyntaxError, 6, 14, "expected an operand, found `,`"),
    ("@%p1", PtxSyntaxError, 7, 1, "expected an instruction after the guard, found `}`"),
    ("@7 ret;", PtxSyntaxError, 6, 2, "expected a predicate after `@`, found `7`"),
    ("@a ret;", PtxSyntaxError, 6, 2, "expected a predicate register after `@`"),
    ("mov.u32 %r1, 99999999999999999999;", PtxSyntaxError, 6, 14, "does not fit into 64 bits"),
    ("mov.u32 %r1, 089;", PtxSyntaxError, 6, 14, "`089` is not a number"),
    ("ld.u32 %r1, [%rd1+];", PtxSyntaxError, 6, 19, "expected a number, found `]`"),
    ("ld.u32 %r1, [%rd1+1.5];", PtxSyntaxError, 6, 19, "expected an integer"),
    ("ld.u32 %r1, [%tid.x];", PtxSyntaxError, 6, 20, "an address starts with a register, a variable or a number"),
    ("st.u32 [%rd1, 3;", PtxSyntaxError, 6, 16, "expected `,` or `]` in a list of operands, found `;`"),
    ("mov.u32 %r1, `;", PtxSyntaxError, 6, 14, "expected an operand"),
    ("vote.sync.any.pred %p1, !a, 1;", PtxSyntaxError, 6, 27, "expected a predicate after `!`"),
    (".reg .u33 %x;", PtxSyntaxError, 6, 6, "expected a type such as `.u32`, found `.u33`"),
    (".reg .u32 %x<2.5>;", PtxSyntaxError, 6, 14, "expected a whole number"),
    (".shared .u32 x<4>;", PtxSyntaxError, 6, 15, "a range of names `<n>` is for registers only"),
    (".loc 1 x 3", PtxSyntaxError, 6, 8, "expected a line, found `x`"),
    ("{ ret;\n", PtxSyntaxError, 9, 1, "expected `}` at the end of `k`, found the end of the text"),
    ("= ret;", PtxSyntaxError, 6, 1, "expected a statement, found `=`"),
]


@pytest.mark.parametrize(("body", "kind", "line", "column", "message"), IN_A_BODY, ids=[case[0].strip() for case in IN_A_BODY])
def test_errors_in_a_body(body: str, kind: type[SourceError], line: int, column: int, message: str) -> None:
    _expect(module_text(body), kind, line, column, message)


IN_A_MODULE = [
    ("", PtxSyntaxError, 1, 1, "expected `.version` at the start of a module, found the end of the text"),
    (".version 9.0\n.address_size 64", PtxSyntaxError, 2, 1, "expected `.target` behind `.version`"),
    (".version 0x9\n.target sm_90", PtxSyntaxError, 1, 10, "expected a version such as `9.0`, found `0x9`"),
    (HEAD + "foo", PtxSyntaxError, 4, 1, "expected a directive, a variable or a function, found `foo`"),
    (HEAD + ".file x", PtxSyntaxError, 4, 7, "expected the number of a file, found `x`"),
    (HEAD + ".file 1 x", PtxSyntaxError, 4, 9, "expected the name of a file in quotes, found `x`"),
    (HEAD + ".alias a,\n.func", PtxSyntaxError, 5, 6, "expected `;` at the end of `.alias`, found the end of the text"),
    (HEAD + ".visible .reg", PtxSyntaxError, 4, 14, "expected a type"),
    (HEAD + ".entry 7()", PtxSyntaxError, 4, 8, "expected the name of a function, found `7`"),
    (HEAD + ".entry k(", PtxSyntaxError, 4, 10, "expected a state space such as `.global`, found the end of the text"),
    (HEAD + ".entry k(.param .u64 a .param .u64 b)", PtxSyntaxError, 4, 24, "expected `,` or `)` after a parameter"),
    (HEAD + ".entry k()\nret;", PtxSyntaxError, 5, 1, "expected `;` or a body in braces after the head of `k`"),
    (HEAD + ".entry k() { ret;", PtxSyntaxError, 4, 18, "expected `}` at the end of `k`"),
    (HEAD + ".entry k() { { ret; }", PtxSyntaxError, 4, 22, "expected `}` at the end of `k`"),
    (HEAD + ".entry k() { {", PtxSyntaxError, 4, 14, "`{` is never closed"),
    (HEAD + ".section .debug {", PtxSyntaxError, 4, 17, "`{` is never closed"),
    (HEAD + ".global .u32 x[2] = {1, 2", PtxSyntaxError, 4, 21, "`{` is never closed"),
    (HEAD + ".global .u32 x = 1", PtxSyntaxError, 4, 19, "the text ends inside an initialiser"),
    (HEAD + ".global .u32 x", PtxSyntaxError, 4, 15, "expected `;` after the declaration of a variable"),
]


@pytest.mark.parametrize(("text", "kind", "line", "column", "message"), IN_A_MODULE, ids=[repr(case[0][-20:]) for case in IN_A_MODULE])
def test_errors_in_a_module(text: str, kind: type[SourceError], line: int, column: int, message: str) -> None:
    _expect(text, kind, line, column, message)


AWKWARD = next(path for path in CASES if path.stem == "awkward").read_text()
TOKENS = re.findall(r"[\w.%$]+|\S", AWKWARD)


@given(st.integers(0, len(AWKWARD)))
def test_a_text_cut_anywhere_is_parsed_or_refused_with_a_place(end: int) -> None:
    _parse_or_refuse(AWKWARD[:end])


@given(st.data())
def test_a_text_with_a_wrong_token_is_parsed_or_refused_with_a_place(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(AWKWARD)))
    removed = data.draw(st.integers(0, 6))
    _parse_or_refuse(AWKWARD[:place] + data.draw(st.sampled_from(TOKENS)) + AWKWARD[place + removed :])


def _parse_or_refuse(text: str) -> None:
    """Anything but a `SourceError` fails the test by itself."""
    refusal = None
    try:
        ptx.verify(ptx.parse(text, "cut.ptx"))
    except SourceError as error:
        refusal = error
    assert refusal is None or (refusal.span is not None and str(refusal).startswith("cut.ptx:"))


def test_an_error_shows_the_line_with_carets() -> None:
    with pytest.raises(UnsupportedPtx) as caught:
        ptx.parse(module_text("\tfrobnicate.u32 %r1;"), "dir/k.ptx")
    assert str(caught.value) == (
        "dir/k.ptx:6:2: the instruction `frobnicate.u32` is not supported\n    \tfrobnicate.u32 %r1;\n    \t^^^^^^^^^^^^^^"
    )


@pytest.mark.parametrize("body", ["{" * 20_000, "mov.b32 %r1, " + "{" * 20_000, "call " + "(" * 20_000])
def test_nesting_without_end_is_refused(body: str) -> None:
    with pytest.raises(PtxSyntaxError, match="nested too deeply"):
        ptx.parse(module_text(body), "k.ptx")


def test_an_unsupported_instruction_is_no_syntax_error() -> None:
    assert not issubclass(UnsupportedPtx, PtxSyntaxError)


def _expect(text: str, kind: type[SourceError], line: int, column: int, message: str) -> None:
    with pytest.raises(kind) as caught:
        ptx.parse(text, "k.ptx")
    assert message in str(caught.value)
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.column) == (line, column)
