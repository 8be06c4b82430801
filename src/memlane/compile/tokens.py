"""Split CUDA C++ text into tokens with their positions.

The text is not preprocessed: a directive is one token, and both branches of a conditional are kept. No input is refused; a character that
starts no token (in prose behind `#if 0`, for example) is a token by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
      (?P<space>   [ \t\r\f\v]+ | \\\r?\n )
    | (?P<newline> \n )
    | (?P<comment> //(?:\\\r?\n|[^\n])* | /\*[\s\S]*?(?:\*/|\Z) )
    | (?P<raw>     (?:u8|[uUL])?R"(?P<fence>[^\s()\\]{0,16})\([\s\S]*?(?:\)(?P=fence)"|\Z) )
    | (?P<string>  (?:u8|[uUL])?"(?:\\[\s\S]|[^"\\\n])*"? )
    | (?P<char>    (?:u8|[uUL])?'(?:\\[\s\S]|[^'\\\n])+' )
    | (?P<number>  \.?[0-9](?:[eEpP][+-]|'?[0-9A-Za-z_]|\.)* )
    | (?P<word>    [^\W\d]\w* )
    | (?P<punct>   <<<|::|->|<=|>=|==|!=|&&|\|\||[\s\S] )
    """,
    re.VERBOSE,
)
_DIRECTIVE_END = re.compile(
    r"""(?: //(?:\\\r?\n|[^\n])* | /\*[\s\S]*?(?:\*/|\Z) | "(?:\\[\s\S]|[^"\\\n])*" | '(?:\\[\s\S]|[^'\\\n])+' | \\\r?\n | [^\n] )*""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A token: the characters `start` to `end` (exclusive) of the text.

    `kind` is `word`, `number`, `string`, `char`, `punct`, or `directive`: a whole preprocessor line with its continuations.
    """

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Directive:
    """A parsed preprocessor line: `#define F(x) x + 1` has name `define` and body `F(x) x + 1`, without comments and continuations."""

    name: str
    body: str


@lru_cache(maxsize=256)
def tokenize(text: str) -> list[Token]:
    """Return the tokens of the text in order, without white space and comments.

    Callers must not change the list: it is cached, because a program is compiled several times with most files unchanged.
    """
    tokens: list[Token] = []
    position, line_is_empty = 0, True
    match = _TOKEN.match
    while found := match(text, position):
        kind = found.lastgroup if found.lastgroup != "fence" else "raw"
        start, position = position, found.end()
        if kind == "newline":
            line_is_empty = True
        elif kind == "punct" and text[start] == "#" and line_is_empty:
            end = _DIRECTIVE_END.match(text, start)
            position = end.end() if end else position
            tokens.append(Token("directive", text[start:position], start, position))
        elif kind not in ("space", "comment"):
            line_is_empty = False
            tokens.append(Token("string" if kind == "raw" else str(kind), found.group(), start, position))
    return tokens


_SPLICE_OR_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*")|\\\r?\n|//.*\Z|/\*[\s\S]*?(?:\*/|\Z)""")


def directive(token: Token) -> Directive:
    """Parse a token of kind `directive`."""
    plain = _SPLICE_OR_COMMENT.sub(lambda found: found.group(1) or " ", token.text)[1:].strip()
    name = re.match(r"\w*", plain)
    word = name.group() if name else ""
    return Directive(word, plain[len(word) :].strip())
