"""Text with places in it: what an error message points at."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Source:
    """A named text, so that a message can quote the line it speaks of."""

    name: str
    """File name as the user wrote it, or `<ptx>` for text that came from no file."""
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
        """The 1-based line that holds the character at `offset`."""
        return bisect_right(self._line_starts, offset)

    def column_of(self, offset: int) -> int:
        """The 1-based column of the character at `offset` in its line."""
        return offset - self._line_starts[self.line_of(offset) - 1] + 1

    def line(self, number: int) -> str:
        """The text of the 1-based line `number`, without its line end; empty outside the text."""
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
        """The line of the span with carets under it.

        >>> print(Span(Source("k.ptx", "add.s32 a, b;"), 0, 7).quote())
            add.s32 a, b;
            ^^^^^^^
        """
        text = self.source.line(self.line)
        lead = "".join("\t" if c == "\t" else " " for c in text[: self.column - 1])
        width = max(1, min(self.end - self.start, len(text) - self.column + 1))
        return f"    {text}\n    {lead}{'^' * width}"
