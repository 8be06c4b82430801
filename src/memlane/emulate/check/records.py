"""Define the records that the checker's code and Python share, in addition to those of `layout`."""

from __future__ import annotations

import numpy as np

from memlane.emulate.layout import BARRIERS

MOST_WARPS = 32
"""Maximum warps per block."""
HASH_ENTRIES = 1 << 14
"""Entries of the hash tables of flags and of released clocks. Two keys that share an entry both count as released at the later time, which
can hide a race and never invents one."""
KEPT_STAMPS = 1 << 22
"""Number of the latest stamps whose owner is remembered."""
PRODUCT_GROUPS = 8
"""Groups of wgmma products that are told apart; older groups merge with the last."""
NOTES = 1 << 12
"""Maximum number of different findings per launch."""

# Kinds of finding.
(
    OUT_OF_BOUNDS,
    MISALIGNED,
    UNWRITTEN,
    RACE_WITH_WRITE,
    RACE_WITH_READ,
    EXITED_BARRIER,
    SPLIT_BARRIER,
    LANE_NOT_IN_MASK,
    UNEQUAL_MASKS,
    BLOCK_NOT_STARTED,
    BLOCK_ENDED,
    NOT_AWAITED,
) = range(1, 13)

SAME_WARP, SAME_BLOCK, OTHER_BLOCK = range(3)
DISTANCE_SHIFT = 4
"""Bit position, in the kind of a race, of the distance between the two threads."""

# A cell is three u64: the last write and two reads of one 4-byte word. Each entry holds, from its lowest bit:
#   4  bytes that were never written (of the write only)
#   4  bytes that the access touched
#   1  whether it was strong
#   1  unused
#   5  lane
#  17  index of the instruction
#  32  stamp
WORD_BYTES = 4
ENTRY_BYTES = 8
CELL_BYTES = 3 * ENTRY_BYTES
UNWRITTEN_BITS = 0xF
TOUCHED_SHIFT, STRONG_SHIFT, LANE_SHIFT, SITE_SHIFT, STAMP_SHIFT = 4, 8, 10, 15, 32
MOST_SITES = 1 << (STAMP_SHIFT - SITE_SHIFT)

REGION = np.dtype([("low", "u8"), ("high", "u8"), ("cells", "u8"), ("delta", "u8")])
"""An allocation, device addresses `low` to `high` (exclusive), or the one that an instruction used last: the host address of its cells, and
the offset from device to host addresses. The write entries of all words come first, then their first reads, then their second."""

LAUNCH = np.dtype(
    [
        ("stamp", "u8"),
        ("base", "u8"),
        ("owners", "u8"),
        ("running", "u8"),
        ("covered", "u8"),
        ("flags", "u8"),
        ("released", "u8"),
        ("sites", "u8"),
        ("only", "u8"),
        ("table", "u8"),
        ("table_count", "u8"),
        ("blocks", "u8"),
        ("block_bytes", "u8"),
        ("cells_offset", "u8"),
        ("local_offset", "u8"),
        ("cells_bytes", "u8"),
        ("local_bytes", "u8"),
        ("notes", "u8"),
        ("found", "u8"),
        ("lost", "u8"),
        ("one_block", "u4"),
        ("stop", "u4"),
    ],
    align=True,
)
"""The checker's state of one launch. `stamp` is the present, `base` the first stamp of this launch. `owners[stamp % TURNS]` is the warp
that ran then: block * 32 + warp. `covered` (u32 by hash of block and warp): the stamp up to which the warp's accesses precede a fence of
device scope. `flags` (u32 by hash of address): when the flag was released last. `released` counts the releases. `only[site]` is
the first address of the one allocation that an instruction can be meant for, 0 where that is not certain."""

BLOCK_STATE = np.dtype(
    [
        ("number", "u8"),
        ("covered", "u4", MOST_WARPS),
        ("joined", "u4", BARRIERS * MOST_WARPS),
        ("joined_acquired", "u4", BARRIERS),
        ("loose", "u4", BARRIERS),
        ("cluster_first", "u8"),
        ("cluster_since", "u8"),
        ("cluster_opened", "u8"),
        ("cluster_loose", "u4"),
    ],
    align=True,
)
"""The checker's state of a resident block; the cells of its shared memory and the bits of its local memory follow.

`number` is the block's number plus 1. `joined` is the clock of each barrier, the join of its arrivals; `covered` is as in LAUNCH, for
fences of any scope. `loose`: whether threads may reach a barrier by different instructions, as those without `.aligned` may.

In the first block of a cluster, for the cluster barrier: when the first thread arrived in this phase (`cluster_first`, 0 if none has),
whether some thread arrived without releasing (`cluster_loose`), the value of `cluster_first` at the last opening, 0 if some thread did not
release (`cluster_since`), and the time of that opening (`cluster_opened`).
"""

WARP_STATE = np.dtype(
    [
        ("limit", "u8"),
        ("since", "u8"),
        ("known", "u4", MOST_WARPS),
        ("acquired", "u4"),
        ("pending", "u4"),
        ("fenced", "u4"),
        ("members", "u4"),
        ("cluster_limit", "u8"),
        ("under_way", "u8"),
        ("begun", "u8"),
        ("groups", "u8", PRODUCT_GROUPS),
    ],
    align=True,
)
"""The checker's state of a warp.

`known[w]`: accesses of warp w up to this stamp happen before this warp's present accesses (for its own number: those of its other lanes).
`limit`: entries below are ordered, whichever thread of the block made them; `since`: entries from here on belong to this turn of this warp.
`acquired`: released flags up to this stamp were acquired; `pending`: were read, but no fence followed yet. `members` are the lanes that
exist. `cluster_limit` is like `limit`, for all blocks of the cluster.

wgmma products, by bits (see `wgmma`): those in flight (`under_way`), those started in no group yet (`begun`), and those of each group,
the newest first.
"""

STATE_BYTES = -(-(BLOCK_STATE.itemsize + MOST_WARPS * WARP_STATE.itemsize) // 64) * 64
"""Size of a block's state with that of its warps, in bytes."""

NOTE = np.dtype(
    [
        ("key", "u8"),
        ("count", "u8"),
        ("turn", "u8"),
        ("who", "u8"),
        ("other_who", "u8"),
        ("address", "u8"),
        ("lane", "u4"),
        ("other_lane", "u4"),
        ("nbytes", "u4"),
        ("space", "u4"),
    ],
    align=True,
)
"""A finding: its first occurrence, and the number of occurrences. `key` is kind | distance << 4 | site << 8 | other site << 32, `turn` is
the order of the findings, and `who` is block * 32 + warp."""
