"""Define examples: single accesses of a trace with the addresses of their lanes, for drawing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AccessExample:
    """One access by one warp, and the address of each lane.

    A trace holds at most two per site and space: the worst (among those with the most transactions, that of the earliest warp of the grid),
    and the first of all if it has fewer.
    """

    launch: int
    """Index into `Trace.launches`."""
    site: int
    """Index into `Trace.sites`."""
    space: str
    """State space that it led to: `global`, `local` or `shared`."""
    access: str
    """Kind of access in the chip's rules: one of `memlane.chip.ACCESS_KINDS`."""
    worst: bool
    """Whether no other observed access of the site had more transactions."""
    block: int
    """Linear index in the grid (x fastest)."""
    warp: int
    """Index in its block."""
    execution: int | None
    """Index among the accesses of this warp at this site, from 0; None if unknown."""
    active_mask: int
    """Bit i is set if lane i was active."""
    nbytes: int
    """Bytes that each lane requested."""
    addresses: tuple[int, ...]
    """Byte addresses of the 32 lanes; 0 for inactive lanes. Shared memory counts from its start in the block, local memory from its start
    in the thread."""
    transactions: int
    """Transactions as counted on `Trace.chip`: sectors, or wavefronts of shared memory."""
    ideal: int
    """Fewest transactions for the same bytes."""
