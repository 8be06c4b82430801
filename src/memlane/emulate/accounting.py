"""What the counting and clock layers add to a memory instruction."""

from __future__ import annotations

from memlane.emulate.build import Value
from memlane.emulate.lowering import Lowering


def account(k: Lowering, space: str, pointer: Value, distance: Value, nbytes: int) -> None:
    """Count the access of `k.active` to `nbytes` a lane at these addresses, if a layer asks for it."""
    if not k.layers.counts:
        return
