"""Instructions that change no value here."""

from __future__ import annotations

from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.semantics.table import semantics


@semantics("miscellaneous/nanosleep", "miscellaneous/pmevent", "miscellaneous/setmaxnreg")
def no_operation(k: Lowering) -> None:
    """Do nothing. Sleeping costs no emulated time: a thread that waits yields at its loop's back edge. The others are hints."""
