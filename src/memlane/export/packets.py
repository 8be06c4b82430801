"""Serialise Protobuf messages by the million: one message serialised by its library is the pattern of all of its kind.

In a pattern the variable numbers are marks. In each copy the marks are overwritten with varints of the same length; a varint may carry
leading zeros, so every number fits a field that is wide enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.number_format import plural

Bytes = npt.NDArray[np.uint8]


def mark(number: int, width: int) -> int:
    """Return a number that is unlikely to occur otherwise in a message, and that takes `width` bytes (3 to 9) as a varint."""
    return (1 << 7 * width - 1) | 0x155 << 7 | (number & 0x7F)


@dataclass(frozen=True)
class Pattern:
    """A serialised message, and the positions of its marks."""

    data: bytes
    fields: Mapping[str, tuple[int, int]]
    """Offset and width in bytes of each field, by name."""

    @classmethod
    def of(cls, data: bytes, widths: Mapping[str, int]) -> Pattern:
        """Return the pattern of `data`, which was serialised with `mark(n, width)` for the n-th entry of `widths`.

        Raises ValueError if a mark does not occur exactly once.
        """
        fields = {}
        for number, (name, width) in enumerate(widths.items()):
            wanted = varint(mark(number, width))
            if data.count(wanted) != 1:
                raise ValueError(f"the placeholder of {name} occurs {plural(data.count(wanted), 'time')} in a message")
            fields[name] = (data.index(wanted), width)
        return cls(data, fields)

    def copies(self, values: Mapping[str, npt.NDArray[Any]]) -> Bytes:
        """Return one copy per element of the arrays, as rows of bytes. Raises ValueError if a number does not fit its field."""
        count = len(next(iter(values.values())))
        made = np.tile(np.frombuffer(self.data, np.uint8), (count, 1))
        for name, (offset, width) in self.fields.items():
            left = values[name].astype(np.uint64)
            for place in range(width):
                last = place == width - 1
                made[:, offset + place] = (left & np.uint64(0x7F)).astype(np.uint8) | (0 if last else 0x80)
                left >>= np.uint64(7)
            if left.any():
                raise ValueError(f"a value of {name} takes more than {plural(width, 'byte')}")
        return made


def varint(number: int) -> bytes:
    """Return the shortest encoding of a number."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def interleave(parts: Sequence[tuple[npt.NDArray[np.int64], Bytes]]) -> bytes:
    """Return messages of several lengths in one order: each part gives the places of its rows, which together are 0, 1, 2, ..."""
    if len(parts) == 1:
        return parts[0][1].tobytes()
    count, widest = sum(len(places) for places, _ in parts), max((rows.shape[1] for _, rows in parts), default=0)
    padded, used = np.empty((count, widest), np.uint8), np.zeros((count, widest), np.bool_)
    for places, rows in parts:
        padded[places, : rows.shape[1]] = rows
        used[places, : rows.shape[1]] = True
    return padded[used].tobytes()
