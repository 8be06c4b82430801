"""Define the data of a GPU: a `Chip` holds one data file under `data/`, read into these frozen dataclasses.

A field's type carries its unit: `l2: Cycles` is a number that its data file must give in cycles. `Chip.facts` keeps the source of
each number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from memlane.chip.rates import Bandwidth, Bytes, Count, Extent, Gigabytes, Gigaflops, Lanes, Latency, Links, Megahertz, Throughput
from memlane.errors import ChipError

LANES = 32
"""Lanes of a warp. PTX leaves the number to the GPU (`WARP_SZ`), but 32-bit masks and matrix fragments depend on it."""
WIDTHS = (1, 2, 4, 8, 16)
"""Bytes that a lane may access in one instruction."""
SECTOR_BYTES = 32
"""Bytes of a sector, the unit in which all traffic is counted, also on chips whose transactions are larger."""
STATIC_SHARED_BYTES, CONSTANT_BYTES = 48 << 10, 64 << 10
"""Limits of a module on every chip that current PTX is compiled for, in bytes: static shared memory of a block, and variables in constant
memory."""

KINDS = ("measured", "cited", "derived", "assumed")
"""Kinds of source of a number. `assumed` numbers are placeholders without a source; `Chip.assumed` lists them."""

OLDEST_COMPILED = (5, 0)
"""The oldest compute capability that current PTX is compiled for. Older chips are emulated only for their counts."""

AccessKind = Literal["load", "load_past_l1", "store", "atomic", "compare_swap", "increment"]
"""Kinds of access that a chip's rules distinguish. `load_past_l1`: a load that bypasses L1; `atomic`: also reductions; `compare_swap` and
`increment` (a 32-bit addition of the constant 1 whose result is unused) are atomics with their own rules."""
ACCESS_KINDS: tuple[AccessKind, ...] = ("load", "load_past_l1", "store", "atomic", "compare_swap", "increment")


@dataclass(frozen=True, slots=True)
class Fact:
    """A number of a chip with its unit and source."""

    value: object
    unit: str
    kind: str
    """One of `KINDS`."""
    source: str
    """Publication that states the number, or how it was measured."""

    def __str__(self) -> str:
        return f"{self.value}{' ' if self.unit else ''}{self.unit} ({self.kind}: {self.source})"


@dataclass(frozen=True, slots=True)
class BankRule:
    """Rule by which shared memory serves the lanes of one access.

    Each pass serves a group of consecutive lanes. It costs as many wavefronts as the bank with the most has distinct rows, and none if no
    lane of the group is active. The fields also cover half-warp service over 16 banks (compute capability 1.x) and 8-byte banks
    (3.x).
    """

    banks: Count
    bank_bytes: Bytes
    row_words: Count
    """Words of one bank that a wavefront delivers together: 2 where words i and i + banks of an aligned pair of rows do not conflict."""
    lanes_4: Lanes
    """Lanes of a pass when each requests 4 bytes or fewer; `lanes_8` and `lanes_16`: when each requests 8 or 16."""
    lanes_8: Lanes
    lanes_16: Lanes
    merge: Annotated[Literal["neighbours", "never"], ""]
    """Rule for merging passes in pairs, where the merged pass has no bank conflict.

    `neighbours`: two neighbouring passes merge if every active lane in them has the address of lane^1, and all pairs merge if every active
    lane of the warp has the address of lane^2; an inactive neighbour counts as equal."""
    broadcast: Annotated[Literal["every word", "one word"], ""]
    """Words that one wavefront can broadcast to several lanes."""
    same_word: Annotated[Literal["together", "one by one"], ""] = "together"
    """Service of lanes at the same word: `together` in one wavefront, or `one by one` in a wavefront each, as for serialized atomics."""
    wide: Annotated[Literal["at once", "word by word"], ""] = "at once"
    """Service of accesses wider than a bank: `word by word` splits them into one request for each word."""
    extra_16: Count | None = None
    """Additional wavefronts of each pass of an access of 16 bytes per lane; None: 0."""
    times: Count | None = None
    """Times that an access goes through the banks; None: once."""

    def lanes(self, nbytes: int) -> int:
        """Return the lanes of one pass of an access of `nbytes` per lane, before passes merge."""
        return self.lanes_4 if nbytes <= 4 else self.lanes_8 if nbytes == 8 else self.lanes_16

    def extra(self, nbytes: int) -> int:
        """Return the wavefronts that each pass of an access of `nbytes` per lane takes in addition to those for bank conflicts."""
        return self.extra_16 or 0 if nbytes == 16 else 0


@dataclass(frozen=True, slots=True)
class CoalescingRule:
    """Rule by which global memory serves the lanes of one access."""

    transactions: Annotated[Literal["sectors", "segments"], ""]
    """Unit of transactions. `sectors`: each aligned sector that a group of lanes touches moves once. `segments`: the protocol of compute
    capability 1.2 and 1.3, aligned segments of 32 to 128 bytes, each halved while one half holds all requested bytes."""
    lanes_4: Lanes
    """Lanes served together when each requests 4 bytes or fewer; `lanes_8` and `lanes_16`: when each requests 8 or 16."""
    lanes_8: Lanes
    lanes_16: Lanes
    lines_per_wavefront: Count
    """Distinct lines whose tags are looked up in one pass."""
    load_bytes: Bytes | None = None
    """Bytes of a transaction of a load through L1, where that is more than a sector: the 128-byte lines of compute capability 2.x."""

    def lanes(self, nbytes: int) -> int:
        """Return the lanes that are served together in an access of `nbytes` per lane."""
        return self.lanes_4 if nbytes <= 4 else self.lanes_8 if nbytes == 8 else self.lanes_16


@dataclass(frozen=True)
class Chip:
    """Numbers and rules of one GPU model. Comparison ignores `facts`, which holds their sources."""

    name: str
    """Name of the data file without its suffix, as in `h200`."""
    product: str
    """Name of the device in the CUDA driver."""
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
    """Unit that registers are allocated to."""
    register_unit: Count
    """Granularity of register allocation: the registers of a warp (or block) are a multiple of this."""
    register_partitions: Count
    """Separate register files; a warp lives in one of them."""
    shared_bytes_per_sm: Bytes
    max_static_shared_bytes: Bytes
    """Limit of a block without opting in to more."""
    max_shared_bytes: Bytes
    """Limit of a block that opts in to more."""
    reserved_shared_bytes: Bytes
    """Bytes that the system reserves for each resident block."""
    shared_unit_bytes: Bytes

    sector_bytes: Annotated[Literal[32], "bytes"]
    """`SECTOR_BYTES`, on every chip."""
    line_bytes: Bytes
    constant_bytes: Bytes
    l1_bytes: Bytes
    """Bytes of the L1 data cache, together with shared memory where both are one memory."""
    l2_bytes: Bytes
    dram_bytes: Bytes
    dram_gb_per_s: Gigabytes
    """The rated bandwidth of device memory, 10^9 bytes a second."""

    banks: BankRule
    """Rule for loads from shared memory."""
    coalescing: CoalescingRule
    latency: Latency
    throughput: Throughput

    bandwidth: Bandwidth = field(default_factory=Bandwidth)
    links: Links = field(default_factory=Links)
    l2_kept_bytes: Bytes | None = None
    """Bytes that stay in L2 for a launch that reads the same data again; None: all of L2. Each half of the L2 of recent large chips keeps
    copies of lines of the other half, so that it holds fewer distinct lines than it has places."""
    copy_gb_per_s: Gigabytes | None = None
    """Bandwidth of a large device-to-device copy, bytes read plus bytes written; None: not measured."""
    fp32_gflops: Gigaflops | None = None
    """Rate that a kernel of 32-bit multiply-adds reaches; None: not measured."""
    store_banks: BankRule | None = None
    """Rule for stores to shared memory, where it differs from that for loads."""
    atomic_banks: BankRule | None = None
    """Rule for atomics and reductions on shared memory, where it differs from that for loads."""
    compare_swap_banks: BankRule | None = None
    """Rule for compare-and-swap, where it differs from that for other atomics."""
    increment_banks: BankRule | None = None
    """Rule for additions of 1 without a result, where it differs from that for other atomics."""
    calibrated: bool = True
    """False for a GPU without a data file, which uses the rules of the nearest chip."""
    facts: Mapping[str, Fact] = field(default_factory=dict, compare=False, repr=False)
    """Source of each number, by name: `l2_bytes`, `latency.l2`, ..."""

    @property
    def launch_limits(self) -> Chip:
        """Return a chip with the limits that apply to emulated launches.

        They are those of this chip, raised to the least that every target of current PTX allows: so a chip older than these can count the
        accesses of programs that it could never have run."""
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
        """Return the rule by which shared memory serves an access of this kind."""
        if kind == "store":
            return self.store_banks or self.banks
        if kind in ("load", "load_past_l1"):
            return self.banks
        own = {"compare_swap": self.compare_swap_banks, "increment": self.increment_banks}.get(kind)
        return own or self.atomic_banks or self.banks

    def piece_bytes(self, kind: AccessKind) -> int:
        """Return the bytes of one transaction of an access of this kind to global memory; meaningless for chips that move `segments`."""
        return (self.coalescing.load_bytes if kind == "load" else None) or self.sector_bytes

    def issue_interval(self, pipe: str) -> float:
        """Return the cycles for which one warp instruction occupies a pipe of its sub-core, 1 if the rate is not known.

        `pipe` is a field of `Throughput`."""
        rate: float | None = getattr(self.throughput, pipe)
        return 1.0 if rate is None else self.warp_size * self.schedulers / rate

    def fact(self, name: str) -> Fact:
        """Return the number `name` (`sm_count`, `latency.l2`) with its unit and source; raise ChipError if there is none."""
        if name not in self.facts:
            raise ChipError(f"{self.name} has no fact named {name!r}; it has {', '.join(sorted(self.facts))}")
        return self.facts[name]

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return the names of the numbers without a source."""
        return tuple(name for name, fact in self.facts.items() if fact.kind == "assumed")
