"""Define the schemes: how the two clock reads of a probe are ordered around its access. One scheme per file.

To add one: copy `simple.py`, and enter it below. `scheme.py` defines what a scheme has to provide.
"""

from memlane.instrument.schemes.blocking_wait import blocking_wait
from memlane.instrument.schemes.consume import CONSUME, DYNAMIC
from memlane.instrument.schemes.dependent import DEPENDENT
from memlane.instrument.schemes.exposed import EXPOSED
from memlane.instrument.schemes.paper import PAPER
from memlane.instrument.schemes.scheme import Access, ClockRead, DeferredReads, Scheme, Stamps
from memlane.instrument.schemes.simple import SIMPLE

SCHEMES = {scheme.name: scheme for scheme in (DEPENDENT, EXPOSED, CONSUME, SIMPLE, PAPER)}

__all__ = ["DYNAMIC", "SCHEMES", "Access", "ClockRead", "DeferredReads", "Scheme", "Stamps", "blocking_wait"]
