"""Describe GPUs: their numbers with sources, and the rules for the cost of a warp access (`access`, `batch`) and for occupancy.

chip = load("h200")
chip.latency.l2                      # 283.0 cycles
chip.fact("latency.l2")              # 283.0 cycles (measured: 2026-11-20, ...)
access.wavefronts(chip, addresses, active, nbytes=4)
"""

from memlane.chip.catalogue import SHIPPED, directories, from_file, load, names, nearest, unread_directory, user_directory
from memlane.chip.events import STALL_FIELDS, Events
from memlane.chip.floors import Floor, ModelledTime, Traffic, modelled_time
from memlane.chip.model import (
    ACCESS_KINDS,
    CONSTANT_BYTES,
    LANES,
    SECTOR_BYTES,
    STATIC_SHARED_BYTES,
    AccessKind,
    BankRule,
    Chip,
    CoalescingRule,
    Fact,
)
from memlane.chip.occupancy import Occupancy, resident_blocks
from memlane.chip.rates import Bandwidth, Latency, Links, Throughput

__all__ = [
    "ACCESS_KINDS",
    "CONSTANT_BYTES",
    "LANES",
    "SECTOR_BYTES",
    "SHIPPED",
    "STALL_FIELDS",
    "STATIC_SHARED_BYTES",
    "AccessKind",
    "Bandwidth",
    "BankRule",
    "Chip",
    "CoalescingRule",
    "Events",
    "Fact",
    "Floor",
    "Latency",
    "Links",
    "ModelledTime",
    "Occupancy",
    "Throughput",
    "Traffic",
    "directories",
    "from_file",
    "load",
    "modelled_time",
    "names",
    "nearest",
    "resident_blocks",
    "unread_directory",
    "user_directory",
]
