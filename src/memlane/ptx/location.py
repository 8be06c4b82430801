"""Represent places in the user's source, as given by `.loc` and `.file`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FILE = re.compile(r'\.file\b.*?(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)U?\s*"([^"\n]*)"', re.DOTALL)
_BYTES = re.compile(r"(?:\\[23][0-7]{2})+")
"""Bytes outside ASCII, as NVRTC escapes them in the name of a file."""


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """A place in the user's source, from `.loc`. `file` is the number of a `.file` directive; see `Module.files`."""

    file: int
    line: int
    column: int
    inlined_into: Location | None = None
    """Call site into which the function with this line was inlined; None if it was not."""

    def __eq__(self, other: object) -> bool:
        """Compare all inlined places in a loop: templates that instantiate themselves are inlined hundreds of levels deep."""
        mine: Location | None = self
        theirs = other
        while isinstance(mine, Location) and isinstance(theirs, Location) and mine is not theirs:
            if (mine.file, mine.line, mine.column) != (theirs.file, theirs.line, theirs.column):
                return False
            mine, theirs = mine.inlined_into, theirs.inlined_into
        return mine is theirs

    def __hash__(self) -> int:
        return hash((self.file, self.line, self.column))


def file_of(directive: str) -> tuple[int, str] | None:
    """Return the number and the name in `.file 1 "a.cu"`; None for any other directive. The parser ensures that a `.file` has both."""
    found = _FILE.match(directive)
    if found is None:
        return None
    digits = found[1].lower()
    base = {"0x": 16, "0b": 2}.get(digits[:2], 8 if digits.startswith("0") else 10)
    return int(digits, base), _BYTES.sub(_in_utf8, found[2])


def _in_utf8(found: re.Match[str]) -> str:
    """Return the escaped bytes decoded as UTF-8, or unchanged if they are not UTF-8."""
    data = bytes(int(digits, 8) for digits in found[0].split("\\")[1:])
    try:
        return data.decode()
    except UnicodeDecodeError:
        return found[0]
