"""Pack columns of numbers into text: little-endian arrays, concatenated, compressed, in base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

_LEVEL = 7
_ALIGNMENT = 8
"""Alignment of each array in the bytes, so that a browser can view it in place."""


class Columns:
    """A directory of arrays and their bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0
        self.directory: dict[str, dict[str, Any]] = {}
        """Per name: `type` as NumPy spells it without the byte order (`u4`, `f4`), `offset` in bytes, `length` in elements."""

    def add(self, name: str, values: npt.ArrayLike, dtype: str) -> None:
        """Add an array; the caller must ensure that its values fit `dtype`."""
        data = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<")).tobytes()
        self.directory[name] = {"type": dtype, "offset": self._length, "length": len(data) // np.dtype(dtype).itemsize}
        padding = -len(data) % _ALIGNMENT
        self._parts.append(data + b"\0" * padding)
        self._length += len(data) + padding

    def add_scaled(self, name: str, values: npt.NDArray[Any]) -> None:
        """Add non-negative numbers scaled so that the largest is 65535; the directory holds the `scale`."""
        most = float(values.max()) if values.size else 0.0
        scale = most / 65535 if most > 0 else 1.0
        self.add(name, np.round(values.ravel() / scale), "u2")
        self.directory[name]["scale"] = scale

    def text(self) -> str:
        """Return the bytes as text for the page."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), _LEVEL)).decode("ascii")
