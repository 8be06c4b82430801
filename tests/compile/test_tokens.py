"""The tokens of CUDA C++, where the text is out to confuse."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.compile.tokens import directive, tokenize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a // b\nc", ["a", "c"]),
        ("a /* b \n } */ c", ["a", "c"]),
        ("a // b \\\n still a comment\nc", ["a", "c"]),
        ('"{ \\" }" x', ['"{ \\" }"', "x"]),
        ("'{' '\\'' x", ["'{'", "'\\''", "x"]),
        ('R"x( } " )" )x" y', ['R"x( } " )" )x"', "y"]),
        ('u8R"( // )" y', ['u8R"( // )"', "y"]),
        ("1'000'000 0x1p-3f 1e+5", ["1'000'000", "0x1p-3f", "1e+5"]),
        ("k<<<1, 2>>>(p)", ["k", "<<<", "1", ",", "2", ">", ">", ">", "(", "p", ")"]),
        ("A<B<C>> x->y::z", ["A", "<", "B", "<", "C", ">", ">", "x", "->", "y", "::", "z"]),
        ("x = \\\n y", ["x", "=", "y"]),
        ("don't", ["don", "'", "t"]),
    ],
)
def test_splits_text_into_tokens(text: str, expected: list[str]) -> None:
    assert [token.text for token in tokenize(text)] == expected


def test_a_directive_is_one_token_with_its_continuations_and_comments() -> None:
    text = "x\n  #define F(a) \\\n    (a) /* one\n two */ + 1 // end\ny # z\n"
    tokens = tokenize(text)
    assert [token.kind for token in tokens] == ["word", "directive", "word", "punct", "word"]
    line = directive(tokens[1])
    assert (line.name, " ".join(line.body.split())) == ("define", "F(a) (a) + 1")


def test_a_comment_sign_inside_a_string_of_a_directive_is_no_comment() -> None:
    (token,) = tokenize('#define URL "http://x" // remark')
    assert directive(token).body == 'URL "http://x"'


@given(st.text(alphabet="ab01 \n\t\\\"'#/*(){}<>;R_.", max_size=60))
def test_any_text_is_covered_by_tokens_white_space_and_comments(text: str) -> None:
    position = 0
    for token in tokenize(text):
        assert token.start >= position
        assert text[token.start : token.end] == token.text
        between = re.sub(r"//(\\\n|[^\n])*|/\*[\s\S]*?(\*/|\Z)|\\\n", "", text[position : token.start])
        assert between.strip() == ""
        position = token.end
