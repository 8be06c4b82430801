"""The instruction table, one module per chapter of the PTX manual. Rows are data in the manual's notation; see `memlane.ptx.forms`."""

from __future__ import annotations

from memlane.ptx.forms import Table
from memlane.ptx.ops import (
    asynchronous,
    compare,
    control,
    convert,
    extended,
    floating,
    half,
    integer,
    logic,
    matrix,
    memory,
    miscellaneous,
    sync,
    texture,
    video,
    warp,
)

TABLE = Table(
    (
        *integer.OPS,
        *extended.OPS,
        *floating.OPS,
        *half.OPS,
        *compare.OPS,
        *logic.OPS,
        *memory.OPS,
        *convert.OPS,
        *asynchronous.OPS,
        *texture.OPS,
        *control.OPS,
        *sync.OPS,
        *warp.OPS,
        *matrix.OPS,
        *video.OPS,
        *miscellaneous.OPS,
    )
)
"""Every instruction that memlane knows."""

__all__ = ["TABLE"]
