"""Pictures as PNG, read back chunk by chunk."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from memlane.lab.picture import write_picture


def test_a_picture_is_a_png_of_its_pixels(tmp_path: Path) -> None:
    pixels = np.arange(5 * 3 * 3, dtype=np.uint8).reshape(5, 3, 3)
    write_picture(tmp_path / "a.png", pixels)
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        content = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size]) == (zlib.crc32(name + content),)
        chunks[name], at = content, at + 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (3, 5, 8, 2, 0, 0, 0)  # width, height, bits, red green blue
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(5, 10)
    assert (lines[:, 0] == 0).all()
    assert (lines[:, 1:].reshape(5, 3, 3) == pixels).all()
