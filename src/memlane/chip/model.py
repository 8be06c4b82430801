"""What memlane knows of a GPU: a `Chip` is one data file under `data/`, read into these frozen dataclasses.

A field's type carries its unit: `l2: Cycles` is a number that its data file must give in cycles. `Chip.facts` keeps, for each number,
where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from memlane.errors import ChipError

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

LANES = 32
"""Lanes of a warp. PTX leaves it to the GPU (`WARP_SZ`), but masks of 32 bits and the fragments of matrices rely on it."""
WIDTHS = (1, 2, 4, 8, 16)
"""Bytes that a lane may access at once."""
SECTOR_BYTES = 32
"""The unit in which everything that moves is counted, also on chips that move more at once."""
STATIC_SHARED_BYTES, CONSTANT_BYTES = 48 << 10, 64 << 10
"""What a module may have on every chip that PTX of today is compiled for: static shared memory of a block, and variables in constant
memory."""

KINDS = ("measured", "cited", "derived", "assumed")
"""How a number came to be known. `assumed` ones are placeholders that no source backs; `Chip.assumed` lists them."""

OLDEST_COMPILED = (5, 0)
"""The oldest compute capability that PTX of today is compiled for; those before it are history, emulated for their counts."""

AccessKind = Literal["load", "load_past_l1", "store", "atomic", "compare_swap", "increment"]
"""What an access does, as far as a chip's rules ask. `load_past_l1`: a load that L1 does not serve; `atomic`: also reductions;
`compare_swap` and `increment` (a 32-bit addition of the constant one whose result nobody reads) are atomics with rules of their own."""
ACCESS_KINDS: tuple[AccessKind, ...] = ("load", "load_past_l1", "store", "atomic", "compare_swap", "increment")


@dataclass(frozen=True, slots=True)
class Fact:
    """One number of a chip and its origin."""

    value: object
    unit: str
    kind: str
    """One of `KINDS`."""
    source: str
    """Who says so, or how it was measured."""

    def __str__(self) -> str:
        return f"{self.value}{' ' if self.unit else ''}{self.unit} ({self.kind}: {self.source})"


@dataclass(frozen=True, slots=True)
class BankRule:
    """How shared memory serves the lanes of one access.

    Lanes are served in groups of consecutive lanes, one group a pass; a pass costs as many wavefronts as the fullest bank has distinct
    rows, and none if no lane of it is active. The fields are data, so that half-warp service over 16 banks (compute capability 1.x) and
    8-byte banks (3.x) are rows of a table as well.
    """

    banks: Count
    bank_bytes: Bytes
    row_words: Count
    """Words of one bank that a wavefront delivers together: 2 where words i and i + banks of an aligned pair of rows do not conflict."""
    lanes_4: Lanes
    """Lanes in a pass when each asks for 4 bytes or fewer."""
    lanes_8: Lanes
    lanes_16: Lanes
    merge: Annotated[Literal["neighbours", "never"], ""]
    """`neighbours`: two neighbouring passes become one when the address of every active lane in them equals that of lane^1, and all do
    when that of every active lane of the warp equals that of lane^2; an inactive neighbour counts as equal. So they do only where the one
    has no conflict."""
    broadcast: Annotated[Literal["every word", "one word"], ""]
    """How many words a wavefront can hand to several lanes at once."""
    same_word: Annotated[Literal["together", "one by one"], ""] = "together"
    """Lanes that meet in a word: served by one wavefront, or each by one of its own, as by an atomic that is done in turn."""
    wide: Annotated[Literal["at once", "word by word"], ""] = "at once"
    """Lanes that ask for several words: `word by word` is a request for each of their words, one after the other."""
    extra_16: Count | None = None
    """Wavefronts that each pass of an access of 16 bytes a lane takes besides; None: no more."""
    times: Count | None = None
    """How often an access goes through the banks; None: once."""

    def lanes(self, nbytes: int) -> int:
        """Lanes in one pass of an access of `nbytes` a lane, before any merging."""
        return self.lanes_4 if nbytes <= 4 else self.lanes_8 if nbytes == 8 else self.lanes_16

    def extra(self, nbytes: int) -> int:
        """Wavefronts that each pass of an access of `nbytes` a lane takes besides those of its fullest bank."""
        return self.extra_16 or 0 if nbytes == 16 else 0


@dataclass(frozen=True, slots=True)
class CoalescingRule:
    """How global memory serves the lanes of one access."""

    transactions: Annotated[Literal["sectors", "segments"], ""]
    """`sectors`: each aligned sector touched by a group moves once. `segments`: the protocol of compute capability 1.2 and 1.3, one
    aligned segment of 32 to 128 bytes at a time, halved while one half holds all that is asked for."""
    lanes_4: Lanes
    """Lanes served together when each asks for 4 bytes or fewer."""
    lanes_8: Lanes
    lanes_16: Lanes
    lines_per_wavefront: Count
    """Distinct lines whose tags are looked up in one pass."""
    load_bytes: Bytes | None = None
    """What moves at once for a load that L1 serves, where that is more than a sector: the 128-byte lines of compute capability 2.x."""

    def lanes(self, nbytes: int) -> int:
        """Lanes served together in an access of `nbytes` a lane."""
        return self.lanes_4 if nbytes <= 4 else self.lanes_8 if nbytes == 8 else self.lanes_16


@dataclass(frozen=True, slots=True)
class Latency:
    """Cycles from the issue of an instruction to the issue of the first one that needs its result, nothing else running.

    Memory latencies are those of a conflict-free access by one warp that is served by the level named.
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
    """The same, served by the second-level constant cache."""
    shared_atomic: Cycles
    global_atomic: Cycles
    fence_block: Cycles
    fence_device: Cycles
    alu: Cycles
    """Integer and logical operations, moves, selects, comparisons."""
    predicate: Cycles
    """From an instruction that sets a predicate to the one that is guarded by it."""
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
    """A product of a warp by tensor cores."""
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
    """Threads that arrive at barriers; None: nobody measured it."""
    issue: PerClock | None = None
    """Threads of the instructions that all schedulers together issue, of whatever kind; None: a warp of each scheduler in every clock."""
    tensor: PerClock | None = None
    """Elements of a product of matrices of halves with a depth of 16, by tensor cores and `mma`; None: nobody measured it."""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """How much moves at most in a clock of the multiprocessors, by way. None: not known, or the chip has no such part.

    Between a multiprocessor and L2 a request goes line by line, so that requests of many lines are limited by these, whatever they need of
    each, and requests of few by their sectors of 32 bytes.
    """

    l2_read: SectorsPerClock | None = None
    """From L2 to all multiprocessors together."""
    l2_read_lines: LinesPerClock | None = None
    l2_write: SectorsPerClock | None = None
    """Whole sectors, from all multiprocessors together to L2."""
    l2_partial_write: SectorsPerClock | None = None
    """Sectors of which a request writes only a part; None: not known to be slower than whole ones."""
    l2_write_lines: LinesPerClock | None = None
    """Lines of which a request writes whole sectors only."""
    l2_partial_write_lines: LinesPerClock | None = None
    """Lines in which a request writes a part of some sector; None: not known to be slower than the others."""
    l2_atomic: SectorsPerClock | None = None
    """Sectors in which a request does atomic operations; None: not known to be slower than whole ones that are written."""
    line_atomic: SectorsPerClock | None = None
    """Sectors of requests whose atomic operations are done at one line."""
    sm_read: SectorsPerClockOfSm | None = None
    """From L2 to one multiprocessor; the other `sm_` numbers as those of L2."""
    sm_read_lines: LinesPerClockOfSm | None = None
    sm_write: SectorsPerClockOfSm | None = None
    sm_partial_write: SectorsPerClockOfSm | None = None
    sm_write_lines: LinesPerClockOfSm | None = None
    sm_partial_write_lines: LinesPerClockOfSm | None = None
    sm_atomic: SectorsPerClockOfSm | None = None
    atomic_packets: PacketsPerClock | None = None
    """What one part of L2 does of atomic operations. Of the lanes of a request that meet in one sector, those at different words are a
    packet; lanes at one word are packets one behind the other."""
    atomic_whole: PacketsPerClock | None = None
    """The same of packets that have operations for all bytes of their sector; None: as others."""
    atomic_floats: PacketsPerClock | None = None
    """The same of additions of floats; None: as others."""
    atomic_parts: Count | None = None
    """Parts of L2 that do atomic operations, each for other lines; None: all in one."""
    blocks: BlocksPerClock | None = None
    """Blocks that begin on all multiprocessors together."""
    dram_piece: Bytes | None = None
    """What DRAM delivers at once; None: a sector."""
    dram_mixed: Gigabytes | None = None
    """What reads and writes reach together, as much of the ones as of the others."""
    dram_read: Gigabytes | None = None
    """What a long read reaches; None: the rated bandwidth counts."""
    dram_write: Gigabytes | None = None
    dram_write_alone: Gigabytes | None = None

    def rate(self, where: Literal["l2", "sm"], way: str) -> float | None:
        """Amount a clock of the chip (`l2`) or of one multiprocessor (`sm`) in one way, `read` or `partial_write_lines`; where a way is not
        known to be slower than writing whole sectors, the rate of that."""
        rate: float | None = getattr(self, f"{where}_{way}")
        whole = {"partial_write": "write", "partial_write_lines": "write_lines", "atomic": "write"}.get(way)
        return getattr(self, f"{where}_{whole}") if rate is None and whole else rate


@dataclass(frozen=True, slots=True)
class Links:
    """What copies and launches take in a machine with this chip, besides what their kernels do. None: not known.

    A copy takes its latency and its bytes over the rate. These are numbers of a machine as much as of a chip: another host has others.
    """

    host_gb_per_s: Gigabytes | None = None
    """Between pinned memory of the host and the device, in one direction."""
    host_us: Microseconds | None = None
    """A copy of few bytes between pinned memory and the device, inside a graph."""
    to_host_gb_per_s: Gigabytes | None = None
    """From the device to pinned memory, where that differs."""
    to_host_us: Microseconds | None = None
    pageable_gb_per_s: Gigabytes | None = None
    """From ordinary memory of the host to the device."""
    pageable_us: Microseconds | None = None
    """A copy of few bytes between ordinary memory and the device, inside a graph, where that differs from pinned memory."""
    pageable_to_host_gb_per_s: Gigabytes | None = None
    """From the device to ordinary memory, where that differs."""
    peer_gb_per_s: Gigabytes | None = None
    """Between two devices of one machine, in one direction."""
    peer_us: Microseconds | None = None
    flag_us: Microseconds | None = None
    """From a flag that a kernel of one device raises in memory of another to the end of a wait that polls it there."""
    peer_order_us: Microseconds | None = None
    """Ordering takes this for each exchange by copies between peers, in a step of a graph over several devices, besides the copies."""
    host_order_us: Microseconds | None = None
    """Ordering takes this for each exchange by copies through pinned memory of the host, besides what copies take there."""
    flag_order_us: Microseconds | None = None
    """Ordering takes this for each exchange by kernels that store to neighbours and raise flags, with a graph for each device."""
    device_us: Microseconds | None = None
    """A copy of few bytes inside the device; large ones go at `Chip.copy_gb_per_s`, reading and writing."""
    event_us: Microseconds | None = None
    """Between two events inside a graph around a kernel that does nothing."""
    launch_us: Microseconds | None = None
    """From the end of a kernel to the start of one that waits for it, inside a graph."""


@dataclass(frozen=True)
class Chip:
    """One GPU model. Equal chips have equal numbers; where the numbers come from is `facts`."""

    name: str
    """The name of the data file without its ending: what a user types, `h200`."""
    product: str
    """The name that the CUDA driver gives the device."""
    compute_capability: tuple[int, int]

    sm_count: Count
    clock_mhz: Megahertz
    """The highest clock of the multiprocessors."""
    warp_size: Annotated[Literal[32], "lanes"]
    """`LANES`, on every chip."""
    schedulers: Count
    """Sub-cores of a multiprocessor, each issuing one warp instruction a cycle."""

    max_threads_per_block: Count
    max_block_dim: Extent
    max_grid_dim: Extent
    max_threads_per_sm: Count
    max_blocks_per_sm: Count
    registers_per_sm: Count
    max_registers_per_block: Count
    max_registers_per_thread: Count
    register_scope: Annotated[Literal["warp", "block"], ""]
    """What registers are allocated to."""
    register_unit: Count
    """The number of registers handed to a warp (or block) is a multiple of this."""
    register_partitions: Count
    """Separate register files; a warp lives in one of them."""
    shared_bytes_per_sm: Bytes
    max_static_shared_bytes: Bytes
    """What a block may have without asking for more."""
    max_shared_bytes: Bytes
    """What a block may have after asking for more."""
    reserved_shared_bytes: Bytes
    """Taken by the system from each resident block's share."""
    shared_unit_bytes: Bytes

    sector_bytes: Annotated[Literal[32], "bytes"]
    """`SECTOR_BYTES`, on every chip."""
    line_bytes: Bytes
    constant_bytes: Bytes
    l1_bytes: Bytes
    """First-level data cache and shared memory together, where they are one."""
    l2_bytes: Bytes
    dram_bytes: Bytes
    dram_gb_per_s: Gigabytes
    """The rated bandwidth of device memory, 10^9 bytes a second."""

    banks: BankRule
    """Of loads from shared memory."""
    coalescing: CoalescingRule
    latency: Latency
    throughput: Throughput

    bandwidth: Bandwidth = Bandwidth()
    links: Links = Links()
    l2_kept_bytes: Bytes | None = None
    """What of L2 a launch finds there that reads the same again; None: all. Each half of the L2 of recent large chips keeps copies of what
    lies behind the other one, so that it holds fewer lines than it has places."""
    copy_gb_per_s: Gigabytes | None = None
    """What a large device-to-device copy reaches, bytes read plus bytes written; None where nobody measured it."""
    fp32_gflops: Gigaflops | None = None
    """What a kernel of multiplications and additions of 32-bit floats reaches; None where nobody measured it."""
    store_banks: BankRule | None = None
    """Of stores to shared memory, where they differ from loads."""
    atomic_banks: BankRule | None = None
    """Of atomics and reductions on shared memory, where they differ from loads."""
    compare_swap_banks: BankRule | None = None
    """Of compare-and-swap, where it differs from other atomics."""
    increment_banks: BankRule | None = None
    """Of additions of one without a result, where they differ from other atomics."""
    calibrated: bool = True
    """False for a GPU that has no data file and borrows the rules of its nearest relative."""
    facts: Mapping[str, Fact] = field(default_factory=dict, compare=False, repr=False)
    """Each number with its origin: `l2_bytes`, `latency.l2`, ..."""

    @property
    def launch_limits(self) -> Chip:
        """The chip whose limits an emulated launch is held to: this one, but no less than what every chip allows that PTX of today can
        be compiled for. So a chip older than those can count for programs that it could never have run."""
        if self.compute_capability >= OLDEST_COMPILED:
            return self
        return replace(
            self,
            max_threads_per_block=max(self.max_threads_per_block, 1024),
            max_block_dim=(max(self.max_block_dim[0], 1024), max(self.max_block_dim[1], 1024), max(self.max_block_dim[2], 64)),
            max_grid_dim=(max(self.max_grid_dim[0], (1 << 31) - 1), max(self.max_grid_dim[1], 65535), max(self.max_grid_dim[2], 65535)),
            max_static_shared_bytes=max(self.max_static_shared_bytes, STATIC_SHARED_BYTES),
            max_shared_bytes=max(self.max_shared_bytes, STATIC_SHARED_BYTES),
        )

    @property
    def max_warps_per_sm(self) -> int:
        return self.max_threads_per_sm // self.warp_size

    def bank_rule(self, kind: AccessKind) -> BankRule:
        """How shared memory serves an access of this kind."""
        if kind == "store":
            return self.store_banks or self.banks
        if kind in ("load", "load_past_l1"):
            return self.banks
        own = {"compare_swap": self.compare_swap_banks, "increment": self.increment_banks}.get(kind)
        return own or self.atomic_banks or self.banks

    def piece_bytes(self, kind: AccessKind) -> int:
        """What moves at once between global memory and an access of this kind; of no meaning under the rule of segments."""
        return (self.coalescing.load_bytes if kind == "load" else None) or self.sector_bytes

    def issue_interval(self, pipe: str) -> float:
        """Cycles for which one warp instruction occupies the pipe of its sub-core; `pipe` is a field of `Throughput`. 1 for a pipe without
        a rate."""
        rate: float | None = getattr(self.throughput, pipe)
        return 1.0 if rate is None else self.warp_size * self.schedulers / rate

    def fact(self, name: str) -> Fact:
        """The number `name` (`sm_count`, `latency.l2`) with its unit and origin."""
        if name not in self.facts:
            raise ChipError(f"{self.name} has no fact named {name!r}; it has {', '.join(sorted(self.facts))}")
        return self.facts[name]

    @property
    def assumed(self) -> tuple[str, ...]:
        """Names of the numbers that no source backs."""
        return tuple(name for name, fact in self.facts.items() if fact.kind == "assumed")
