"""Define the records that generated code and Python share, as NumPy dtypes: the launch, a resident block, a warp, a memory site.

Generated code reaches a field by its offset (`Emit.get`, `Emit.put`); Python reaches it by name in a structured array over the same bytes.
"""

from __future__ import annotations

import numpy as np

from memlane.chip import LANES
from memlane.launch import SPACE_NUMBERS as SPACE_NUMBERS  # faults use the same numbers as rows

HOST_LINE_BYTES = 64
"""A line of the host's caches, on nearly all processors."""
FULL = (1 << LANES) - 1
"""Mask of all lanes of a warp."""
START_PARTS = 256
"""Fractions of a cycle in which the start times of blocks are counted."""
NONE = 0xFFFFFFFF
"""Frontier of a warp without lanes that wait elsewhere."""
BARRIERS = 16
CLUSTER_BARRIER = BARRIERS
"""Barrier number of the cluster, next to those of a block."""
SLACK = 32
"""Cycles by which a warp may run ahead of the next one in the clock layer."""
COPY_GROUPS = 8
"""Groups of asynchronous copies whose times the clock layer tells apart; older groups merge with the last."""

WINDOW_BYTES = 1 << 32
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
PARAM_WINDOW = 0x7C00_0000_0000
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
"""Base generic addresses of shared, local and parameter memory; `cvta` adds them, `cvta.to` subtracts them."""
CLUSTER_SHIFT = 24
"""Lowest bit of the block rank in an address of shared::cluster, here and in the window of shared memory. The bits below hold an address in
the shared memory of a block; from this bit on stands the rank of that block in the cluster, plus 1. 0 stands for the block that uses the
address, so an address of `.shared` (or `.shared::cta`) is an address of shared::cluster too and means the block's own memory. `mapa`
inserts the rank."""
RANK_MASK = (1 << CLUSTER_SHIFT) - 1
"""Mask of the address bits below the rank."""
MOST_RANKS = 16
"""Blocks of the largest cluster; an address with a larger rank is invalid and was hardly meant to hold one."""
CODE_WINDOW = 0x7B00_0000_0000
CODE_BYTES = 16
"""Size of each device function in the code window, in bytes; the functions follow each other and cannot be read."""
TEXTURE_WINDOW = 0x7A00_0000_0000
"""Address of the first texture or surface handle; consecutive handles are as far apart as their records (`TEXTURE`)."""
FIRST_ADDRESS = 0x7000_0000_0000
"""First global device address, far above 2^32 so that an address that lost its upper half is noticed."""
DEVICE_BYTES, MOST_DEVICES = 1 << 38, 32
"""Size of the address range of one emulated device, and the number of devices that have one; the ranges follow each other from
`FIRST_ADDRESS`."""

# Results of a warp's step, then of the scheduler.
RUN, BLOCKED, DONE, YIELD, FAILED, LATER = range(6)
FINISHED, PAUSED, BROKEN = range(3)

# Kinds of fault.
NO_FAULT, OUTSIDE, MISALIGNED, DEADLOCK, TRAP, ENDLESS, BAD_BARRIER, NO_ROOM, STACK, BAD_CALL, ASSERTION, STOPPED, INTERRUPTED = range(13)
BAD_TEXTURE, BEYOND, BAD_TENSOR_MAP = 13, 14, 18
NO_WARPGROUP = 19
GONE, NOT_ARRIVED, ARRIVED_TWICE = 15, 16, 17
"""Faults of clusters: access to the shared memory of a block that has ended; a wait without an arrival; a second arrival without a wait
between."""

BACK_EDGE_BUDGET = 1 << 20
POLL_COST = 1 << 12
"""Cost of a back edge in a loop that polls memory; other back edges cost 1. A warp may spend `BACK_EDGE_BUDGET` before others get their
turn."""

ALLOCATION = np.dtype([("low", "u8"), ("high", "u8"), ("delta", "u8")])
"""An allocation: device addresses `low` to `high` (exclusive), at address + `delta` on the host. A site caches the one that it used last.
"""

PATTERN = np.dtype([("steps", "u4", LANES), ("mask", "u4"), ("place", "u4"), ("wavefronts", "u8"), ("rest", "u8", 6)])
"""The last access of a site to shared memory, reduced to what determines its wavefronts: the distance of each lane from the first active
one, the mask, and where that lane lies in the banks (with the width of the access)."""

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
"""A texture or surface. `host` is the host address of its texels, in C order; `kind` is one bit, 0 once it is destroyed; `extents` and
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
"""A tensor map, x first. `strides` are in bytes, from y on; `box` is how far a copy walks along each axis and `steps` the distance between
the elements that it takes; `rank` is one less than the number of dimensions; `element`, `interleave`, `swizzle` and `fill` are the numbers
of `tensormap.replace`. The record is self-contained, so kernels may copy it and write its fields."""
TENSOR_MAP_MARK = 0x70616D_65_6C6974_6D
"""First word of every tensor map of the emulator, once a field was written; tensor maps made by a GPU have another."""

WORKERS = np.dtype(
    [
        ("next_block", "u8"),
        ("slots_taken", "u4"),
        ("faulting_worker", "u4"),
        ("worker_count", "u8"),
        ("contexts", "u8"),
        ("context_bytes", "u8"),
        ("partners", "u8"),
        ("partner_count", "u8"),
        ("partner", "u8"),
    ],
    align=True,
)
"""State that the workers of a launch share: the next block to start, the number of slots taken, and the worker with the first fault (its
number plus 1; 0 for none). Each worker has a CONTEXT; these follow each other. Launches that run together have a PARTNER record each, and
`partner` is this launch's number among them."""

PARTNER = np.dtype([("progress", "u8"), ("stuck", "u8"), ("working", "u8")], align=True)
"""State that one of several concurrent launches publishes to the others: its progress when it last found itself stuck, the total progress
of all launches at that moment plus 1, and whether it still runs."""

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
        ("arrivals", "u8"),
        ("shared_bytes", "u8"),
        ("dynamic_shared_bytes", "u4"),
        ("sm_count", "u4"),
        ("local_bytes", "u8"),
        ("grid_id", "u8"),
        ("start_ns", "u8"),
        ("clock_mhz", "u8"),
        # the scheduler: this worker among others, the list of its slots, the slot whose turn it is
        ("workers", "u8"),
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
        ("idle_spins", "u8"),
        ("owned", "u8"),
        ("may_start", "u8"),
        ("budget", "u8"),
        # detection of launches without progress
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
        # address of the callback for requests to Python
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
        # waits at barriers of the blocks, if accesses are kept and times are modelled
        ("waits", "u8"),
        ("wait_count", "u8"),
        ("wait_room", "u8"),
        ("new_wait_page", "u8"),
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
        # a sample of the blocks: those on `sample_sms` multiprocessors (0: all blocks), in windows of some waves
        ("sample_sms", "u8"),
        ("sample_group", "u8"),
        ("sample_waves", "u8"),
        ("sample_stride", "u8"),
        ("finishes", "u8"),
        # start of the next block and minimum interval between block starts, in fractions of a cycle
        ("next_start", "i8"),
        ("block_interval", "i8"),
        # where and why warps wait
        ("stalls", "u8"),
        # cycle at which a launch with a limit counts as endless
        ("deadline", "i8"),
        # whether each instruction's lanes count as contiguous, and scratch space for their addresses
        ("side_by_side", "u8"),
        ("near_addresses", "u8"),
        ("lives", "i8"),
        # the checker: its record of the launch, and its function to call when a barrier opens
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
        # in the first block of a cluster, for the whole cluster
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

"""A resident block. The blocks of a cluster lie in neighbouring slots, ordered by `rank`, and the first holds their shared fields: the
number of blocks that have not ended (`cluster_running`) and, of the cluster barrier, the threads still missing (`cluster_pending`), the
threads that have arrived (`cluster_come`) and, for the clock layer, the cycle in which threads can go on (`cluster_release`) and that of
the last opening (`cluster_opened`)."""

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
        ("bulk", "i8", 1 + COPY_GROUPS),
        ("bulk_reads", "i8", 1 + COPY_GROUPS),
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
"""One warp; its registers follow at `REGISTERS`.

`mask` holds the active lanes of the running fragment, `pcs` where each other lane resumes. `waiting` lanes are at a barrier
(`at_barrier[id]`) or at a warp-synchronous instruction (`at_sync`, `at_warp_barrier`); `deferred` lanes spent their budget and let the
others go first. If all live lanes stopped `together` in the clock layer, they resume at `pc`, whatever `pcs` holds. `near` has a bit for
each of the 64 lines of the host's cache behind `REGISTERS` that are read when the warp resumes. `frontier` is the lowest place at which
runnable lanes resume.

Cluster barrier: lanes that arrived in this phase (`cluster_arrived`), that may pass but have not waited yet (`cluster_passed`), and that
wait (`at_cluster`; these arrived too). `stopped_at` is the index of the barrier instruction at which a lane waits, `partners` the mask that
it gave to a barrier of the warp.

Clock layer: `time` is the earliest cycle in which the warp may issue again, `began` when its block started, `outstanding` when its last
memory access completes, and `next_clock` when it may read its clock again. `late` is when the instructions that depend on the loads of
several iterations of a loop have issued, and `turn` the number of these iterations. `copies` holds when the ungrouped asynchronous copies
complete, then the same for each group, the newest first; `bulk` and `bulk_reads` are the same for bulk copies to global memory: when they
complete, and when they have read their source.
"""

REGISTERS = -(-WARP.itemsize // 64) * 64
BLOCK_BYTES = -(-BLOCK.itemsize // 64) * 64


def offset(record: np.dtype[np.void], field: str) -> int:
    """Return the byte offset of a field in a record."""
    assert record.fields is not None
    return int(record.fields[field][1])
