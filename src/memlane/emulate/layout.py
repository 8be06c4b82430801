"""The records that generated code and Python share, as NumPy dtypes: the launch, a resident block, a warp, a memory site.

Generated code reaches a field by its offset (`Emit.get`, `Emit.put`); Python reaches it by name in a structured array over the same bytes.
"""

from __future__ import annotations

import numpy as np

from memlane.chip import LANES
from memlane.launch import SPACE_NUMBERS as SPACE_NUMBERS  # in faults too they are those of the rows

HOST_LINE_BYTES = 64
"""A line of the host's caches, on nearly all processors."""
FULL = (1 << LANES) - 1
"""The mask of all lanes of a warp."""
START_PARTS = 256
"""Parts of a cycle in which beginnings of blocks are counted."""
NONE = 0xFFFFFFFF
"""The frontier of a warp none of whose lanes wait elsewhere."""
BARRIERS = 16
CLUSTER_BARRIER = BARRIERS
"""The number by which the barrier of a cluster is told from those of a block."""
COPY_GROUPS = 8
"""Of asynchronous copies, those whose times the clock layer tells apart; older ones count with the last."""

WINDOW_BYTES = 1 << 32
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
PARAM_WINDOW = 0x7C00_0000_0000
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
"""Where shared, local and parameter memory appear among generic addresses; `cvta` adds, `cvta.to` subtracts."""
CLUSTER_SHIFT = 24
"""Addresses of the space shared::cluster, here and in the window of shared memory: below this bit stands an address in the shared memory of
a block, and from it on the rank of that block in the cluster, plus 1. 0 stands for the block that uses the address: so what `.shared` (or
`.shared::cta`) takes is an address of shared::cluster too, and means the block's own memory. `mapa` puts the rank there."""
RANK_MASK = (1 << CLUSTER_SHIFT) - 1
"""What is left of such an address without the rank."""
MOST_RANKS = 16
"""Blocks of the largest cluster; an address with a rank beyond is nobody's, and was hardly meant to have one."""
CODE_WINDOW = 0x7B00_0000_0000
CODE_BYTES = 16
"""Where device functions appear among addresses, one behind the other: nothing can be read there."""
TEXTURE_WINDOW = 0x7A00_0000_0000
"""Where the handles of textures and surfaces begin; one is as far from the next as their records (`TEXTURE`) are."""
FIRST_ADDRESS = 0x7000_0000_0000
"""The first global device address. It is far above 2^32, so that an address that lost its upper half is noticed."""
DEVICE_BYTES, MOST_DEVICES = 1 << 38, 32
"""The addresses of one emulated device, and how many devices have some: their ranges follow each other from `FIRST_ADDRESS`."""

# What a step of a warp, and what the scheduler, report.
RUN, BLOCKED, DONE, YIELD, FAILED, LATER = range(6)
FINISHED, PAUSED, BROKEN = range(3)

# Kinds of fault.
NO_FAULT, OUTSIDE, MISALIGNED, DEADLOCK, TRAP, ENDLESS, BAD_BARRIER, NO_ROOM, STACK, BAD_CALL, ASSERTION, STOPPED, INTERRUPTED = range(13)
BAD_TEXTURE, BEYOND, BAD_TENSOR_MAP = 13, 14, 18
NO_WARPGROUP = 19
GONE, NOT_ARRIVED, ARRIVED_TWICE = 15, 16, 17
"""Of clusters: a block whose shared memory is reached has ended; a thread waits and has not arrived, or arrives again before it waits."""

BACK_EDGE_BUDGET = 1 << 20
POLL_COST = 1 << 12
"""A warp may take this much from its budget before others get their turn: 1 for each back edge, `POLL_COST` where the loop polls memory."""

ALLOCATION = np.dtype([("low", "u8"), ("high", "u8"), ("delta", "u8")])
"""Device addresses `low` to `high` (exclusive) lie on the host at address + `delta`. A site remembers the one that it used last."""

PATTERN = np.dtype([("steps", "u4", LANES), ("mask", "u4"), ("place", "u4"), ("wavefronts", "u8"), ("rest", "u8", 6)])
"""The last access of a site to shared memory, as far as its wavefronts depend on it: how far its lanes are from the first active one, its
mask, and where that one is (and how wide the access is) in the banks."""

TEXTURE = np.dtype(
    [
        ("host", "u8"),
        ("kind", "u4"),
        ("format", "u4"),
        ("channels", "u4"),
        ("texel_bytes", "u4"),
        ("extents", "u4", 3),
        ("layers", "u4"),
        ("modes", "u4", 3),
        ("linear", "u4"),
        ("normalized", "u4"),
        ("dimensions", "u4"),
    ],
    align=True,
)
"""A texture or surface: `host` is where its texels lie, in C order; `kind` a bit that says what it is, 0 if it is no more; `extents` and
`modes` are those of x, y and z (see `runtime.texture`)."""

TENSOR_MAP = np.dtype(
    [
        ("mark", "u8"),
        ("address", "u8"),
        ("strides", "u8", 4),
        ("extents", "u8", 5),
        ("box", "u2", 5),
        ("steps", "u1", 5),
        ("rank", "u1"),
        ("element", "u1"),
        ("interleave", "u1"),
        ("swizzle", "u1"),
        ("fill", "u1"),
        ("rest", "u1", 20),
    ],
    align=True,
)
"""A tensor map, x first: `strides` are bytes from y on, `box` how far a copy walks along each axis and `steps` how far apart the elements
lie that it takes; `rank` is one less than the number of dimensions, and `element`, `interleave`, `swizzle` and `fill` are the numbers that
`tensormap.replace` has for them. It says all itself, so that kernels may copy it about, and write its fields."""
TENSOR_MAP_MARK = 0x70616D_65_6C6974_6D
"""The first word of each, once a field was written: what a GPU makes has another."""

CREW = np.dtype(
    [
        ("next_block", "u8"),
        ("slots_taken", "u4"),
        ("culprit", "u4"),
        ("workers", "u8"),
        ("contexts", "u8"),
        ("context_bytes", "u8"),
        ("partners", "u8"),
        ("partner_count", "u8"),
        ("partner", "u8"),
    ],
    align=True,
)
"""What the workers of a launch share: the next block to start, how many slots are theirs, and which of them had the first fault (its number
and one; 0 for none). Each has a CONTEXT of its own, one behind another. Launches that run together have a PARTNER record each, of which
`partner` is the number of this launch's."""

PARTNER = np.dtype([("progress", "u8"), ("stuck", "u8"), ("working", "u8")], align=True)
"""What one of several launches that run together tells the others: its progress when it last found itself stuck, the total of everybody's
progress at which that was, and one; and whether it still works."""

CONTEXT = np.dtype(
    [
        ("params", "u8"),
        ("params_bytes", "u8"),
        ("symbols", "u8"),
        ("sites", "u8"),
        ("allocations", "u8"),
        ("allocation_count", "u8"),
        ("textures", "u8"),
        ("texture_count", "u8"),
        ("grid", "u4", 3),
        ("block", "u4", 3),
        ("cluster", "u4", 3),
        ("cluster_blocks", "u4"),
        ("explicit_cluster", "u4"),
        ("threads", "u4"),
        ("warps", "u4"),
        ("warp_bytes", "u8"),
        ("warps_offset", "u8"),
        ("shared_offset", "u8"),
        ("local_offset", "u8"),
        ("shared_bytes", "u8"),
        ("dynamic_shared_bytes", "u4"),
        ("sm_count", "u4"),
        ("local_bytes", "u8"),
        ("grid_id", "u8"),
        ("start_ns", "u8"),
        ("clock_mhz", "u8"),
        # the scheduler: this worker among others, the list of its slots, the slot whose turn it is
        ("crew", "u8"),
        ("number", "u4"),
        ("parallel", "u4"),
        ("slots", "u8"),
        ("slot_bytes", "u8"),
        ("slot_count", "u4"),
        ("yielded", "u4"),
        ("first", "u8"),
        ("last", "u8"),
        ("turn", "u8"),
        ("blocks", "u8"),
        ("started", "u8"),
        ("finished", "u8"),
        ("clusters_running", "u8"),
        ("until_pause", "i8"),
        ("rounds", "u8"),
        ("noticed", "u8"),
        ("in_vain", "u8"),
        ("owned", "u8"),
        ("may_start", "u8"),
        ("budget", "u8"),
        # how long nothing happened
        ("working", "u8"),
        ("progress", "u8"),
        ("others", "u8"),
        ("stuck", "u8"),
        ("patience", "i8"),
        ("patience_left", "i8"),
        ("orders", "u8"),
        ("order_mask", "u8"),
        ("sweeps", "u8"),
        # the first fault
        ("fault", "u4"),
        ("fault_site", "u4"),
        ("fault_lane", "u4"),
        ("fault_warp", "u4"),
        ("fault_block", "u8"),
        ("fault_address", "u8"),
        ("fault_bytes", "u4"),
        ("fault_space", "u4"),
        ("fault_slot", "u8"),
        # what kernels ask of Python
        ("service", "u8"),
        # the counting layer
        ("counts", "u8"),
        ("executions", "u8"),
        ("accesses", "u8"),
        ("access_count", "u8"),
        ("access_room", "u8"),
        ("accesses_left", "i8"),
        ("accesses_not_kept", "u8"),
        ("new_page", "u8"),
        ("patterns", "u8"),
        ("examples", "u8"),
        ("example_block", "i8"),
        ("example_warp", "i8"),
        ("example_execution", "u8"),
        # the clock layer
        ("base", "i8"),
        ("end", "i8"),
        ("limit", "i8"),
        ("sms", "u8"),
        ("sm_bytes", "u8"),
        ("caches", "u8"),
        ("subcores", "u4"),
        ("slots_per_sm", "u4"),
        ("heap", "u8"),
        ("heap_count", "u8"),
        ("woken", "u8"),
        ("woken_count", "u8"),
        # a sample of the blocks: those on some multiprocessors, in windows of some waves; 0 multiprocessors: all blocks
        ("sample_sms", "u8"),
        ("sample_group", "u8"),
        ("sample_waves", "u8"),
        ("sample_stride", "u8"),
        ("finishes", "u8"),
        # when the next block can begin, and how long blocks are apart at least, in parts of a cycle
        ("next_start", "i8"),
        ("block_interval", "i8"),
        # where and why warps wait
        ("stalls", "u8"),
        # when a launch with a limit counts as endless
        ("deadline", "i8"),
        # by instruction whether its lanes count as lying side by side, and room for their addresses
        ("side_by_side", "u8"),
        ("near_addresses", "u8"),
        ("lives", "i8"),
        # the checker: its record of the launch, and whom to tell when a barrier opens
        ("check", "u8"),
        ("opened", "u8"),
    ],
    align=True,
)

BLOCK = np.dtype(
    [
        ("context", "u8"),
        ("next", "u8"),
        ("number", "u8"),
        ("shared", "u8"),
        ("local", "u8"),
        ("ctaid", "u4", 3),
        ("live", "u4"),
        ("running", "u4"),
        ("sm", "u4"),
        ("slot", "u4"),
        ("rank", "u4"),
        # of the first block of a cluster, for all of it
        ("cluster_running", "u4"),
        ("cluster_pending", "u4"),
        ("cluster_come", "u4"),
        ("cluster_release", "i8"),
        ("cluster_opened", "i8"),
        ("sm_state", "u8"),
        ("check", "u8"),
        ("origin", "i8"),
        ("finish", "i8"),
        ("arrived", "u4", BARRIERS),
        ("expected", "u4", BARRIERS),
        ("release", "i8", BARRIERS),
        ("popc", "u4", BARRIERS),
        ("result", "u4", BARRIERS),
        ("took_part", "u4", BARRIERS),
    ],
    align=True,
)

"""A resident block. Those of a cluster lie in neighbouring slots, by their `rank`, and what they share is kept by the first: how many of
them have not ended (`cluster_running`), and of the barrier of the cluster the threads that it waits for (`cluster_pending`), those that
have arrived (`cluster_come`) and, for the clock layer, when they can go on (`cluster_release`) and could when it opened last
(`cluster_opened`)."""

WARP = np.dtype(
    [
        ("block", "u8"),
        ("mask", "u4"),
        ("live", "u4"),
        ("waiting", "u4"),
        ("deferred", "u4"),
        ("at_sync", "u4"),
        ("at_warp_barrier", "u4"),
        ("cluster_arrived", "u4"),
        ("cluster_passed", "u4"),
        ("at_cluster", "u4"),
        ("frontier", "u4"),
        ("pc", "u4"),
        ("together", "u4"),
        ("budget", "i4"),
        ("status", "u4"),
        ("number", "u4"),
        ("subcore", "u4"),
        ("time", "i8"),
        ("near", "u8"),
        ("began", "i8"),
        ("outstanding", "i8"),
        ("late", "i8"),
        ("turn", "i8"),
        ("next_clock", "i8"),
        ("copies", "i8", 1 + COPY_GROUPS),
        ("at_barrier", "u4", BARRIERS),
        ("pcs", "u4", LANES),
        ("stopped_at", "u4", LANES),
        ("partners", "u4", LANES),
        ("tid_x", "u4", LANES),
        ("tid_y", "u4", LANES),
        ("tid_z", "u4", LANES),
    ],
    align=True,
)
"""One warp; its registers follow at `REGISTERS`. `mask` are the lanes of the running fragment, `pcs` where each other lane goes on.

`waiting` lanes are at a barrier (`at_barrier[id]`) or at a warp-synchronous instruction (`at_sync`, `at_warp_barrier`); `deferred` lanes
spent their budget and let the others go first; where all live lanes stopped `together` in the clock layer, they go on at `pc`, whatever
`pcs` says; `near` has a bit for each of the 64 lines of the host's cache behind `REGISTERS` that are read when the warp goes on;
`frontier` is the lowest of the places where lanes that could run go on.

Of the barrier of the cluster: lanes that arrived in this phase (`cluster_arrived`), that may go on but have not waited yet
(`cluster_passed`), and that wait (`at_cluster`; these arrived too).

`stopped_at` is the index of the barrier instruction at which a lane waits, `partners` the mask that it gave to a barrier of the warp.

For the clock layer, `time` is the earliest cycle in which the warp may issue again, `began` when its block started, `outstanding` when its
last memory access completes, and `next_clock` when it may read its clock again. `late` is when what waits for the loads of several turns of
a loop has issued, and `turn` how many of these turns there were. `copies` is when the asynchronous copies of no group as yet
are complete, and then those of each group, the newest first.
"""

REGISTERS = -(-WARP.itemsize // 64) * 64
BLOCK_BYTES = -(-BLOCK.itemsize // 64) * 64


def offset(record: np.dtype[np.void], field: str) -> int:
    """Byte offset of a field."""
    assert record.fields is not None
    return int(record.fields[field][1])
