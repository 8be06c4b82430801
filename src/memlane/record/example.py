"""Examples: single accesses of a trace with the addresses of their lanes, so that they can be drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AccessExample:
    """One access by one warp, and the address that each lane gave.

    A trace holds at most two of a site and space: the worst (of those with the most transactions that of the earliest warp of the grid),
    and the first of all where that has fewer.
    """

    launch: int
    """Index into `Trace.launches`."""
    site: int
    """Index into `Trace.sites`."""
    space: str
    """Where it led: `global`, `local` or `shared`."""
    access: str
    """What it was for a chip's rules: one of `memlane.chip.ACCESS_KINDS`."""
    worst: bool
    """Whether no other access of the site that the target saw had more transactions."""
    block: int
    """Linear index in the grid (x fastest)."""
    warp: int
    """In its block."""
    execution: int | None
    """Which access of this warp at this site it is, from 0; None where that is not known."""
    active_mask: int
    """Bit i: lane i took part."""
    nbytes: int
    """Bytes that each lane asked for."""
    addresses: tuple[int, ...]
    """In bytes, of the 32 lanes; of a lane that took no part, 0. In shared memory from its start in the block, in local memory from its
    start in the thread."""
    transactions: int
    """As counted on `Trace.chip`: sectors, or wavefronts of shared memory."""
    ideal: int
    """The least transactions that would do for the same bytes."""
