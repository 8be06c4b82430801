"""Parse the sizes and block sizes to measure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memlane.errors import CommandError
from memlane.lab.reduction.ladder import BLOCKS

COURSE_SIZE, COURSE_BLOCK = 1 << 22, 128


@dataclass(frozen=True)
class Settings:
    """Sizes in elements, and block sizes; empty means those that suit the target."""

    sizes: tuple[int, ...] = ()
    blocks: tuple[int, ...] = (COURSE_BLOCK,)


def settings_of(sizes: Sequence[str], blocks: Sequence[int]) -> Settings:
    """Return the settings of a command's options. Raises CommandError for unsupported values."""
    for block in blocks:
        if block not in BLOCKS:
            raise CommandError(f"--block {block}: blocks have {', '.join(map(str, BLOCKS))} threads")
    return Settings(tuple(_size(text) for text in sizes), tuple(blocks) or Settings().blocks)


def _size(text: str) -> int:
    found = re.fullmatch(r"2\^(\d{1,2})|(\d{1,10})", text.strip())
    number = 0 if found is None else 1 << int(found[1]) if found[1] else int(found[2])
    if not 16 <= number <= 1 << 30:
        raise CommandError(f"--size {text}: give a number of elements from 16 to 2^30, such as 2^24 or 1000003")
    return number


def size_name(n: int) -> str:
    """Return `2^24`, or the number if it is not a power of two."""
    return f"2^{n.bit_length() - 1}" if n & (n - 1) == 0 else f"{n:,}"
