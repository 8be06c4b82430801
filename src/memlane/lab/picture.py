"""Write pictures as PNG files, without a library."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def write_picture(path: Path, pixels: npt.NDArray[np.uint8]) -> None:
    """Write an array of shape (height, width, 3): red, green and blue."""
    height, width, _ = pixels.shape
    unfiltered = np.zeros((height, 1), np.uint8)
    lines = np.concatenate([unfiltered, pixels.reshape(height, 3 * width)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    path.write_bytes(SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
