"""Define the instruction table, one module per chapter of the PTX manual.

Rows are data in the manual's notation; see `memlane.ptx.forms`.
"""

from __future__ import annotations

from memlane.ptx.form_table import Table
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
    {
        "integer": integer.OPS,
        "extended": extended.OPS,
        "floating": floating.OPS,
        "half": half.OPS,
        "compare": compare.OPS,
        "logic": logic.OPS,
        "memory": memory.OPS,
        "convert": convert.OPS,
        "asynchronous": asynchronous.OPS,
        "texture": texture.OPS,
        "control": control.OPS,
        "sync": sync.OPS,
        "warp": warp.OPS,
        "matrix": matrix.OPS,
        "video": video.OPS,
        "miscellaneous": miscellaneous.OPS,
    }
)
"""Every instruction that memlane supports."""

__all__ = ["TABLE"]
