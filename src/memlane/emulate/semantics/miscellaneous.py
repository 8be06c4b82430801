"""What is left."""

from __future__ import annotations

from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.semantics.table import semantics


@semantics("miscellaneous/nanosleep", "miscellaneous/pmevent", "miscellaneous/setmaxnreg")
def nothing(k: Lowering) -> None:
    """Sleeping costs no emulated time: a thread that waits gives way at its loop's back edge. The others are hints."""
