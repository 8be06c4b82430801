"""Define the measured numbers of a chip: latencies, throughputs, bandwidths and links, each in a unit that its type carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

Count = Annotated[int, ""]
Extent = Annotated[tuple[int, int, int], ""]
Bytes = Annotated[int, "bytes"]
Lanes = Annotated[int, "lanes"]
Megahertz = Annotated[int, "MHz"]
Cycles = Annotated[float, "cycles"]
Gigabytes = Annotated[float, "GB/s"]
Microseconds = Annotated[float, "us"]
Gigaflops = Annotated[float, "Gflop/s"]
PerClock = Annotated[float, "results/clock/SM"]
SectorsPerClock = Annotated[float, "sectors/clock"]
SectorsPerClockOfSm = Annotated[float, "sectors/clock/SM"]
BlocksPerClock = Annotated[float, "blocks/clock"]
PacketsPerClock = Annotated[float, "packets/clock"]
LinesPerClock = Annotated[float, "lines/clock"]
LinesPerClockOfSm = Annotated[float, "lines/clock/SM"]


@dataclass(frozen=True, slots=True)
class Latency:
    """Cycles from the issue of an instruction to the issue of the first one that needs its result, on an otherwise idle chip.

    Memory latencies are those of a conflict-free access by one warp that the named level serves.
    """

    shared: Cycles
    l1: Cycles
    l2: Cycles
    dram: Cycles
    texture: Cycles
    """A texture fetch that hits L1."""
    constant: Cycles
    """A constant or kernel parameter that hits the first constant cache."""
    constant_miss: Cycles
    """A constant or kernel parameter that the second-level constant cache serves."""
    shared_atomic: Cycles
    global_atomic: Cycles
    fence_block: Cycles
    fence_device: Cycles
    alu: Cycles
    """Integer and logical operations, moves, selects, comparisons."""
    predicate: Cycles
    """From an instruction that sets a predicate to one that it guards."""
    fma: Cycles
    """32-bit floating-point add, multiply, multiply-add."""
    imul: Cycles
    """32-bit integer multiply and multiply-add."""
    fp64: Cycles
    sfu: Cycles
    """Reciprocal, square root, logarithm, exponential, sine, cosine: one approximate operation."""
    convert: Cycles
    shuffle: Cycles
    vote: Cycles
    branch: Cycles
    barrier: Cycles
    """From the last arrival to the first instruction behind the barrier."""
    clock: Cycles
    """A read of `%clock64`."""
    special: Cycles
    """A read of any other special register."""
    tensor: Cycles | None = None
    """A matrix product of one warp (`mma`) on tensor cores."""
    shared_cluster: Cycles | None = None
    """A load from the shared memory of another block of the cluster; None where there are no clusters."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Results that one multiprocessor delivers each clock when a pipe is full; `Chip.issue_interval` turns them into cycles."""

    alu: PerClock
    fma: PerClock
    imul: PerClock
    fp64: PerClock
    sfu: PerClock
    convert: PerClock
    shuffle: PerClock
    vote: PerClock
    memory: PerClock
    """Addresses that the load-store units accept."""
    barrier: PerClock | None = None
    """Threads that arrive at barriers; None: not measured."""
    issue: PerClock | None = None
    """Threads of the instructions that all schedulers together issue; None: one warp instruction per scheduler and clock."""
    tensor: PerClock | None = None
    """Elements that `mma` computes on tensor cores, each a product of halves with a depth of 16; None: not measured."""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Peak rates of transfers, per clock of the multiprocessors. None: not known, or the chip has no such part.

    A request goes from a multiprocessor to L2 line by line. A request to many lines is therefore limited by the rate of lines, however
    little of each it needs, and a request to few lines by the rate of sectors of 32 bytes.
    """

    l2_read: SectorsPerClock | None = None
    """From L2 to all multiprocessors together."""
    l2_read_lines: LinesPerClock | None = None
    l2_write: SectorsPerClock | None = None
    """Whole sectors, from all multiprocessors together to L2."""
    l2_partial_write: SectorsPerClock | None = None
    """Sectors that a request writes partly; None: not known to be slower than whole sectors."""
    l2_write_lines: LinesPerClock | None = None
    """Lines in which a request writes only whole sectors."""
    l2_partial_write_lines: LinesPerClock | None = None
    """Lines with a sector that a request writes partly; None: not known to be slower than other lines."""
    l2_atomic: SectorsPerClock | None = None
    """Sectors in which a request has atomic operations; None: not known to be slower than writes of whole sectors."""
    line_atomic: SectorsPerClock | None = None
    """Sectors of requests whose atomic operations all go to the same line."""
    sm_read: SectorsPerClockOfSm | None = None
    """From L2 to one multiprocessor; the other `sm_` rates correspond to the `l2_` rates."""
    sm_read_lines: LinesPerClockOfSm | None = None
    sm_write: SectorsPerClockOfSm | None = None
    sm_partial_write: SectorsPerClockOfSm | None = None
    sm_write_lines: LinesPerClockOfSm | None = None
    sm_partial_write_lines: LinesPerClockOfSm | None = None
    sm_atomic: SectorsPerClockOfSm | None = None
    atomic_packets: PacketsPerClock | None = None
    """Packets of atomic operations that one part of L2 executes. A packet holds lanes of a request at different words of one sector; lanes
    at the same word need successive packets."""
    atomic_whole: PacketsPerClock | None = None
    """Packets that cover all bytes of their sector; None: same rate as other packets."""
    atomic_floats: PacketsPerClock | None = None
    """Packets of additions of floats; None: same rate as other packets."""
    atomic_parts: Count | None = None
    """Parts of L2 that execute atomic operations, each for different lines; None: one part."""
    l2_fabric: SectorsPerClock | None = None
    """Sectors stored and fetched from DRAM at which Nsight Compute shows the connection between the halves of L2 as fully busy."""
    blocks: BlocksPerClock | None = None
    """Blocks that begin on all multiprocessors together."""
    dram_piece: Bytes | None = None
    """Bytes that DRAM delivers in one access; None: a sector."""
    dram_mixed: Gigabytes | None = None
    """Sum of reads and writes in an equal mix."""
    dram_read: Gigabytes | None = None
    """Bandwidth of a long read; None: use the rated bandwidth."""
    dram_write: Gigabytes | None = None
    dram_write_alone: Gigabytes | None = None

    def rate(self, where: Literal["l2", "sm"], way: str) -> float | None:
        """Return the rate of `way`, such as `read` or `partial_write_lines`, per clock of the chip (`l2`) or of one multiprocessor (`sm`).

        Return the rate of writes of whole sectors, or of their lines, where the own rate of partial writes or atomics is None."""
        rate: float | None = getattr(self, f"{where}_{way}")
        whole = {"partial_write": "write", "partial_write_lines": "write_lines", "atomic": "write"}.get(way)
        return getattr(self, f"{where}_{whole}") if rate is None and whole else rate


@dataclass(frozen=True, slots=True)
class Links:
    """Costs of copies, launches and ordering in a machine with this chip, apart from the kernels' own time. None: not known.

    A copy takes its latency plus its bytes over the rate. The numbers depend on the host as much as on the chip.
    """

    host_gb_per_s: Gigabytes | None = None
    """Between pinned memory of the host and the device, in one direction."""
    host_us: Microseconds | None = None
    """A small copy between pinned memory and the device, inside a graph."""
    to_host_gb_per_s: Gigabytes | None = None
    """From the device to pinned memory, where that differs."""
    to_host_us: Microseconds | None = None
    pageable_gb_per_s: Gigabytes | None = None
    """From pageable memory of the host to the device."""
    pageable_us: Microseconds | None = None
    """A small copy between pageable memory and the device, inside a graph, where that differs from pinned memory."""
    pageable_to_host_gb_per_s: Gigabytes | None = None
    """From the device to pageable memory, where that differs."""
    peer_gb_per_s: Gigabytes | None = None
    """Between two devices of one machine, in one direction."""
    peer_us: Microseconds | None = None
    flag_us: Microseconds | None = None
    """From the store of a flag by a kernel of one device into memory of another to the end of the wait that polls it there."""
    peer_order_us: Microseconds | None = None
    """Cost of ordering each exchange by copies between peers, in a step of a graph over several devices, in addition to the copies."""
    host_order_us: Microseconds | None = None
    """Cost of ordering each exchange by copies through pinned memory of the host, in addition to the copies."""
    flag_order_us: Microseconds | None = None
    """Cost of ordering each exchange by kernels that store to neighbours and raise flags, with a graph for each device."""
    device_us: Microseconds | None = None
    """A small copy inside the device; large ones take `Chip.copy_gb_per_s`, which counts reads and writes."""
    event_us: Microseconds | None = None
    """Between two events inside a graph around an empty kernel."""
    launch_us: Microseconds | None = None
    """From the end of a kernel to the start of a dependent one, inside a graph."""
