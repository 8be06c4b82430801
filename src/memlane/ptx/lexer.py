"""Split PTX text into tokens: one compiled expression, three parallel lists, no object per token."""

from __future__ import annotations

import re

from memlane.errors import PtxSyntaxError
from memlane.source import Source, Span, shortened

WORD, DIRECTIVE, NUMBER, STRING, MARK, STRAY, END = range(1, 8)
"""Kinds of tokens. A word includes its dotted parts (`ld.global.f32`, `%tid.x`); a directive is a dotted part that stands alone."""

NAME = re.compile(r"[A-Za-z_$%][A-Za-z0-9_$]*")
_PART = r"\.[A-Za-z0-9_$]+(?:::[A-Za-z0-9_]+)*"
_FRACTION = r"\.[0-9]+(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_$])"
"""A number that begins with its decimal point."""
_TOKEN = re.compile(
    "(?:[ \\t\\r\\n\\f\\v]+|//[^\\n]*|/\\*(?s:.*?)\\*/|#[ \\t]*(?:line[ "
    f'\\t]+)?[0-9][^\\n]*)*(?:({NAME.pattern}(?:{_PART})*)|((?!{_FRACTION}){_PART})|({_FRACTION}|0[fF][0-9a-fA-F]{{8}}\\b|0[dD][0-9a-fA-F]{{16}}\\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+\\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+U?)|("[^"\\n]*")|([;,\\[\\]{{}}()<>=:|!@+\\-*/%~&^?#\\\\])|(\\S))?'
)


class Cursor:
    """A position in the tokens of a text, with the queries that a parser needs."""

    __slots__ = ("at", "kinds", "source", "starts", "texts")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.kinds: list[int] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.at = 0
        self._read()

    def _read(self) -> None:
        add_kind, add_text, add_start = self.kinds.append, self.texts.append, self.starts.append
        for match in _TOKEN.finditer(self.source.text):
            kind = match.lastindex
            if kind is not None:
                add_kind(kind)
                add_text(match[kind])
                add_start(match.start(kind))
        add_kind(END)
        add_text("")
        add_start(len(self.source.text))

    @property
    def kind(self) -> int:
        return self.kinds[self.at]

    @property
    def text(self) -> str:
        """Text of the current token; empty at the end."""
        return self.texts[self.at]

    @property
    def end(self) -> int:
        """Offset behind the previous token."""
        return self.starts[self.at - 1] + len(self.texts[self.at - 1]) if self.at else 0

    def span(self, start: int | None = None) -> Span:
        """Return the span of the current token; with `start`, of everything from that offset up to the previous token."""
        if start is None:
            return Span(self.source, self.starts[self.at], self.starts[self.at] + len(self.texts[self.at]))
        return Span(self.source, start, max(start, self.end))

    def slice(self, first: int) -> str:
        """Return the source text from the token number `first` up to the previous token, unchanged."""
        return self.source.text[self.starts[first] : self.end]

    def spelled(self, first: int) -> str:
        """Return the text from the token number `first` up to the previous token on one line, without comments."""
        parts = [self.texts[first]]
        for at in range(first + 1, self.at):
            touches = self.starts[at] == self.starts[at - 1] + len(self.texts[at - 1])
            parts.append(self.texts[at] if touches else f" {self.texts[at]}")
        return "".join(parts)

    def next(self) -> str:
        """Consume the current token and return its text; at the end of the text, consume nothing."""
        text = self.texts[self.at]
        if text:
            self.at += 1
        return text

    def accept(self, text: str) -> bool:
        """Consume the current token if it is `text`, and return whether it was."""
        if self.texts[self.at] != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str, where: str) -> None:
        """Consume the token `text`, or raise PtxSyntaxError; `where` completes the message, as in "behind the operands of `add`"."""
        if not self.accept(text):
            raise self.error(f"expected `{text}` {where}, found {self.found()}")

    def expect_kind(self, kind: int, what: str) -> str:
        """Consume a token of this kind and return its text, or raise PtxSyntaxError; `what` names it in the message."""
        if self.kinds[self.at] != kind:
            raise self.error(f"expected {what}, found {self.found()}")
        return self.next()

    def found(self) -> str:
        """Return the current token in words."""
        return "the end of the text" if self.kinds[self.at] == END else f"`{shortened(self.texts[self.at])}`"

    def error(self, message: str, span: Span | None = None) -> PtxSyntaxError:
        """Return the error to raise at the current token, or at `span`."""
        return PtxSyntaxError(message, span or self.span())

    def starts_line(self) -> bool:
        """Return whether the current token is the first of its line."""
        return "\n" in self.source.text[self.end : self.starts[self.at]]
