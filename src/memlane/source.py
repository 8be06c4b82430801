"""Represent texts with positions that error messages point at."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

_LONGEST_LINE, _QUOTED_BEFORE = 400, 100
"""Maximum characters of a quoted line, and the characters quoted before the position."""
_LONGEST_WORD = 80


@dataclass(frozen=True)
class Source:
    """A named text, whose lines messages can quote."""

    name: str
    """File name as given by the user, or `<ptx>` for text without a file."""
    text: str = field(repr=False)

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        find = self.text.find
        position = find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = find("\n", position + 1)
        return starts

    def line_of(self, offset: int) -> int:
        """Return the 1-based line of the character at `offset`."""
        return bisect_right(self._line_starts, offset)

    def column_of(self, offset: int) -> int:
        """Return the 1-based column of the character at `offset` in its line."""
        return offset - self._line_starts[self.line_of(offset) - 1] + 1

    def line(self, number: int) -> str:
        """Return the text of the 1-based line `number`, without its line end; empty outside the text."""
        if not 1 <= number <= len(self._line_starts):
            return ""
        start = self._line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]


@dataclass(frozen=True, slots=True)
class Span:
    """The characters `start` to `end` (exclusive) of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.line_of(self.start)

    @property
    def column(self) -> int:
        return self.source.column_of(self.start)

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    def quote(self) -> str:
        """Return the line of the span with carets under it; of a very long line, the part around the span.

        >>> print(Span(Source("k.ptx", "add.s32 a, b;"), 0, 7).quote())
            add.s32 a, b;
            ^^^^^^^
        """
        text = self.source.line(self.line)
        first = max(0, self.column - 1 - _QUOTED_BEFORE) if len(text) > _LONGEST_LINE else 0
        shown = text[first : first + _LONGEST_LINE]
        before = self.column - 1 - first
        lead = "".join("\t" if c == "\t" else " " for c in shown[:before])
        width = max(1, min(self.end - self.start, len(shown) - before))
        left, right = "... " if first else "", " ..." if first + len(shown) < len(text) else ""
        return f"    {left}{shown}{right}\n    {' ' * len(left)}{lead}{'^' * width}"


def shortened(text: str) -> str:
    """Return a word for quoting in a message: a very long one loses its middle."""
    return text if len(text) <= _LONGEST_WORD else f"{text[: _LONGEST_WORD // 2]}...{text[-_LONGEST_WORD // 4 :]}"
