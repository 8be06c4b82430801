"""Define sites: the static memory instructions of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from memlane.chip import LANES
from memlane.source import shortened
from memlane.titles import kernel_label

Place = tuple[str, str, int, str, str]
"""Kernel, file, line, op and space: one access from the user's point of view, however often the compiler unrolled it."""


@dataclass(frozen=True)
class Call:
    """Call on the path from a kernel to an access."""

    function: str
    """Title of the called function."""
    file: str
    line: int
    """Line of the call."""


TIMED_KINDS = ("load", "store", "atomic", "reduction", "copy", "wait")
KINDS = (*TIMED_KINDS, "product")
"""Values of `Site.kind`, described there. The timed ones come first."""
_GROUP_WARPS = 4
"""Warps of a warpgroup, which execute a product together."""


@dataclass(frozen=True)
class Site:
    """One static memory instruction of one kernel."""

    id: int
    """Number within a trace, from 0."""
    kernel: str
    """Title of the kernel."""
    instruction: int
    """Index among the instructions of the original kernel with called functions inlined, in program order."""
    file: str
    """Source file as the compiler names it; name of the PTX if there is no line information."""
    line: int
    """1-based line; of the PTX text if there is no line information."""
    column: int
    op: str
    """The PTX opcode in full, for example `ld.global.f32`."""
    kind: str
    """`load`, `store`, `atomic` (whose result is used), `reduction` (whose result is not), `copy` (asynchronous), `wait` for copies and
    products, or `product` of a warpgroup, whose tensor cores read operands in shared memory: it is counted, but not timed."""
    space: str
    """`global`, `shared`, `shared::cluster` (of any block of the cluster), `local`, `const`, `param`, `tex`, `surf` or `generic`. For a
    copy the side that is not shared memory; for a wait the destination of what it waits for."""
    nbytes: int
    """Bytes that one lane accesses; for a matrix the row that a lane addresses; for a product the bytes read for the whole warpgroup
    divided by its 128 lanes; 0 for bulk copies, wmma fragments and waits."""
    scheme: str = ""
    """Scheme of its probe: `dependent`, `exposed`, `consume`, `simple`, `paper`; empty if it is not timed."""
    completeness: str = ""
    """`complete`: the end was read after the access had completed. `issue-only`: the end was read when it had been issued.
    `block-visible`, `device-visible`: the end was read when every thread of the block, or of the device, would see the store."""
    reason: str = ""
    """Reason why it is `issue-only`."""
    evidence: str = ""
    """How the completeness is known: `PROVED`, `BY_EMULATOR`, or `NOT_PROVED` with the reason; empty if it is not timed."""
    copies: int | None = None
    """SASS instructions that implement the access, several if a loop was unrolled; None if not read."""
    also_waits: tuple[str, ...] = ()
    """Instructions other than the access that are awaited between its clock reads too, such as `0x01f0 LDG.E`: the time may be theirs."""
    changed: str = ""
    """How tracing changed its accesses, such as `7 x 4 B in the original, 1 x 4 B traced`; empty if they are the same, or unknown."""
    address_parameters: tuple[int, ...] = ()
    """Positions of the kernel's parameters from which the address is computed."""
    address_loads: tuple[int, ...] = ()
    """Indices, as in `instruction`, of the instructions that load values from which the address is computed."""
    address_repeats: bool = False
    """Whether a loop repeats the access at the same addresses, by static analysis."""
    once_between_barriers: bool = False
    """Whether a warp passes a barrier of its block between two executions, by static analysis."""
    order_dependent: bool = False
    """Whether its counts may depend on the order in which threads run: its addresses, or how often it executes, depend on the result of an
    atomic operation or a volatile load, by static analysis."""
    array: str = ""
    """Name of the array that the address points into: the kernel's argument in the source, or a variable; empty if unknown or ambiguous."""
    argument: int | None = None
    """Position of that argument, from 0; None for a variable."""

    fallback: str = ""
    """Reason why its scheme differs from that of the launch; empty if it does not, or could not have it."""
    calls: tuple[Call, ...] = ()
    """Calls by which the kernel reaches it, the kernel's own first; empty if it is in the kernel itself. An access of a function is a
    separate site for each call path."""
    shared_waits: tuple[str, ...] = ()
    """Under the scheme `exposed`: earlier instructions that wait for the access too, because something else uses its scoreboard. The
    consumer then waits less."""
    inlined: tuple[Call, ...] = ()
    """Calls of functions that the compiler inlined on the path to the access, the kernel's own first, without the names of the functions.
    One access may represent several such calls."""
    consumers: tuple[str, ...] = ()
    """Under the scheme `exposed`: the instructions that may be the first to wait for the value, such as `march.cu:12 fma.rn.f32`."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the kind of a site is {shortened(self.kind)!r}, not one of {', '.join(KINDS)}")

    @property
    def called(self) -> str:
        """The calls as text, `make (odd.cu:8) > helper (odd.cu:4)`; empty if there are none."""
        return " > ".join(f"{kernel_label(one.function)} ({PurePath(one.file).name}:{one.line})" for one in self.calls)

    @property
    def is_of_compiler(self) -> bool:
        """Whether the array belongs to the compiler or its library, such as the table of a sine: such names begin with two underscores."""
        return self.argument is None and self.array.startswith("__")

    @property
    def array_label(self) -> str:
        """The array as text, `gamma (argument 3)`; empty if unknown."""
        if self.argument is None:
            return self.array
        return f"{self.array} (argument {self.argument + 1})" if self.array else f"argument {self.argument + 1}"

    @property
    def is_counted(self) -> bool:
        """Whether it has transactions that are counted: waits have none, and those of bulk copies and fragments are not per lane."""
        return self.nbytes > 0

    @property
    def has_sectors(self) -> bool:
        """Whether sectors are counted: the access leads, or may lead, to global or local memory."""
        return self.space in ("global", "local", "generic") and self.is_counted

    @property
    def is_box(self) -> bool:
        """Whether it copies boxes of an array by a tensor map. Their sectors are known only where the map can be read: on the emulator."""
        return self.kind == "copy" and ".tensor." in self.op

    @property
    def has_wavefronts(self) -> bool:
        """Whether wavefronts are counted: the access leads, or may lead, to shared memory."""
        return (self.space in ("shared", "shared::cluster", "generic") or self.kind == "copy") and self.is_counted

    def product_wavefronts(self, requests: int) -> int:
        """Return the wavefronts of `requests` requests of a product; the four warps of a warpgroup make one request each.

        The operands in shared memory are read in rows of 128 bytes, one row per wavefront, whatever their layout: a product has no bank
        conflicts. Measured on an H200 (docs/counts.md).
        """
        return requests * self.nbytes // _GROUP_WARPS

    @property
    def is_atomic(self) -> bool:
        """Whether lanes of one request may be serialised at an address: atomics and reductions."""
        return self.kind in ("atomic", "reduction") and self.space != "surf"

    @property
    def full_lanes(self) -> int:
        """Lanes that count in a request of a full warp: for `ldmatrix` and `stmatrix` those that supply row addresses, 8 per matrix."""
        words = self.op.split(".")
        matrices = next((int(word[1:]) for word in words if word in ("x1", "x2", "x4")), 1)
        return 8 * matrices if words[0] in ("ldmatrix", "stmatrix") else LANES

    @property
    def place(self) -> Place:
        """Key by which summaries and findings group sites."""
        return (self.kernel, self.file, self.line, self.op, self.space)


@dataclass(frozen=True)
class Skipped:
    """Instruction that accesses memory and is not a site: it was not measured."""

    function: str
    """Title of the function that contains it."""
    op: str
    file: str
    line: int
    reason: str
    """Reason why it is not a site."""
    kernels: tuple[str, ...] = ()
    """Titles of the kernels that may execute it."""


COMPLETE = "complete"
ISSUE_ONLY = "issue-only"
BLOCK_VISIBLE = "block-visible"
DEVICE_VISIBLE = "device-visible"

PROVED = "proved on the assembled code"
BY_EMULATOR = "by construction of the emulator"
NOT_PROVED = "by construction, not proved"

EXACT = "exact"
"""Exactness of counts: the SASS accesses memory for the site in the same number, width and kind, for the same lanes."""
MERGED = "merged"
"""Exactness of counts: ptxas merged the site with adjacent ones into one wider access."""
HINT = "hint"
"""Exactness of counts: the SASS differs otherwise, or the comparison is inconclusive."""
NOT_CHECKED = "not checked"
"""Exactness of counts: the site was not compared with the SASS."""
