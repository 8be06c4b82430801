"""Sites: the static memory instructions of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from memlane.chip import LANES
from memlane.source import shortened
from memlane.titles import kernel_label

Place = tuple[str, str, int, str, str]
"""Kernel, file, line, op and space: what a person takes for one access, however often the compiler unrolled it."""


@dataclass(frozen=True)
class Call:
    """A call on the way from a kernel to an access."""

    function: str
    """The title of the function that is called."""
    file: str
    line: int
    """Where it is called."""


TIMED_KINDS = ("load", "store", "atomic", "reduction", "copy", "wait")
KINDS = (*TIMED_KINDS, "product")
"""What a site may be: `Site.kind` says what each is. Those that are timed come first."""
_GROUP_WARPS = 4
"""Of a warpgroup, whose warps execute a product together."""


@dataclass(frozen=True)
class Site:
    """One static memory instruction of one kernel."""

    id: int
    """Number within a trace, from 0."""
    kernel: str
    """The kernel's title."""
    instruction: int
    """Index of the instruction among the instructions of the original kernel, with the functions in it that it calls, in the order of the
    text."""
    file: str
    """Source file as the compiler names it; the PTX's name where there is no line information."""
    line: int
    """1-based; of the PTX text where there is no line information."""
    column: int
    op: str
    """The PTX opcode in full, for example `ld.global.f32`."""
    kind: str
    """`load`, `store`, `atomic` (with a result that is used), `reduction` (without), `copy` (asynchronous), `wait` for copies and products,
    or `product` of a warpgroup, of which tensor cores read operands in shared memory: it is counted, but not timed."""
    space: str
    """`global`, `shared`, `shared::cluster` (of any block of the cluster), `local`, `const`, `param`, `tex`, `surf` or `generic`. Of a copy
    the side that is not shared memory; of a wait where what it waits for arrives."""
    nbytes: int
    """Bytes that one lane accesses; of a matrix the row that a lane names; of a product what is read for the whole warpgroup over its
    128 lanes; 0 of bulk copies, wmma fragments and waits."""
    scheme: str = ""
    """The probe around it: `dependent`, `exposed`, `consume`, `simple`, `paper`; empty where it is not timed."""
    completeness: str = ""
    """`complete`: the end was read after the access had completed. `issue-only`: the end was read when it had been issued.
    `block-visible`, `device-visible`: of a store that had to be waited for, when every thread of the block, of the device, would see it."""
    reason: str = ""
    """Why it is `issue-only`, in words."""
    evidence: str = ""
    """How the completeness is known: `PROVED`, `BY_EMULATOR`, or `NOT_PROVED` with why; empty where it is not timed."""
    copies: int | None = None
    """Instructions of the assembled code that make the access, several where a loop was unrolled; None where that was not read."""
    also_waits: tuple[str, ...] = ()
    """Instructions other than the access that are awaited between its clock reads too, as `0x01f0 LDG.E`: the time may be theirs."""
    changed: str = ""
    """What tracing made of its accesses, as `7 x 4 B in the original, 1 x 4 B traced`; empty where they are the same, or not known."""
    address_parameters: tuple[int, ...] = ()
    """Positions of the kernel's parameters from which the address is computed."""
    address_loads: tuple[int, ...] = ()
    """Indices of the instructions that load from memory what the address is computed from: as `instruction` counts them."""
    address_repeats: bool = False
    """Whether a loop repeats the access at the same addresses, by the text of the kernel."""
    once_between_barriers: bool = False
    """Whether a warp that executes it again has passed a barrier of its block in between, by the text of the kernel."""
    order_dependent: bool = False
    """Whether its counts may depend on the order in which threads run: its addresses, or how often it executes, follow from what an atomic
    operation returned or a volatile load read, by the text of the kernel."""
    array: str = ""
    """What the array is called into which the address points: the kernel's argument in the source, or a variable; empty where that is not
    known, and where it may be several."""
    argument: int | None = None
    """The position of that argument, from 0; None for a variable."""

    fallback: str = ""
    """Why its scheme is not that of the launch, where it could have been; empty otherwise."""
    calls: tuple[Call, ...] = ()
    """The calls through which the kernel comes to it, the kernel's own first; none where it stands in the kernel itself. An access of a
    function is a site of its own for each way to call it."""
    shared_waits: tuple[str, ...] = ()
    """Of the scheme `exposed`: instructions in front of the consumer that wait for the access too, because something else has its
    scoreboard. The consumer then waits less."""
    inlined: tuple[Call, ...] = ()
    """The calls of functions that the compiler has put into the kernel on the way to the access, the kernel's own first, without the names
    of the functions. One access may stand for several such calls."""
    consumers: tuple[str, ...] = ()
    """Of the scheme `exposed`: the instructions that may be the first to wait for the value, as `march.cu:12 fma.rn.f32`."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the kind of a site is {shortened(self.kind)!r}, not one of {', '.join(KINDS)}")

    @property
    def called(self) -> str:
        """The calls in words, `make (odd.cu:8) > helper (odd.cu:4)`; empty where there are none."""
        return " > ".join(f"{kernel_label(one.function)} ({PurePath(one.file).name}:{one.line})" for one in self.calls)

    @property
    def is_of_compiler(self) -> bool:
        """Whether the array is the compiler's or its library's own, such as the table of a sine: such names begin with two underscores."""
        return self.argument is None and self.array.startswith("__")

    @property
    def array_label(self) -> str:
        """The array as a person calls it, `gamma (argument 3)`; empty where that is not known."""
        if self.argument is None:
            return self.array
        return f"{self.array} (argument {self.argument + 1})" if self.array else f"argument {self.argument + 1}"

    @property
    def is_counted(self) -> bool:
        """Whether it has transactions that are counted: waits have none, and those of bulk copies and fragments are not those of lanes."""
        return self.nbytes > 0

    @property
    def has_sectors(self) -> bool:
        """Whether sectors are counted: where the access goes to global or local memory, or may."""
        return self.space in ("global", "local", "generic") and self.is_counted

    @property
    def is_box(self) -> bool:
        """Whether it copies boxes of an array by a tensor map. Their sectors are known only to whoever sees the map: the emulator."""
        return self.kind == "copy" and ".tensor." in self.op

    @property
    def has_wavefronts(self) -> bool:
        """Whether wavefronts are counted: where the access goes to shared memory, or may."""
        return (self.space in ("shared", "shared::cluster", "generic") or self.kind == "copy") and self.is_counted

    def product_wavefronts(self, requests: int) -> int:
        """Return the wavefronts of so many requests of a product, which its warpgroup makes in fours.

        The operands in shared memory are read in rows of 128 bytes, one row a wavefront, whatever their layout: a product has no bank
        conflicts. Measured on an H200 (docs/counts.md).
        """
        return requests * self.nbytes // _GROUP_WARPS

    @property
    def is_atomic(self) -> bool:
        """Whether lanes of one request may have to wait for each other at an address: atomics and reductions."""
        return self.kind in ("atomic", "reduction") and self.space != "surf"

    @property
    def full_lanes(self) -> int:
        """Lanes that count in a request of a whole warp: of `ldmatrix` and `stmatrix` those that name the rows, 8 for each matrix."""
        words = self.op.split(".")
        matrices = next((int(word[1:]) for word in words if word in ("x1", "x2", "x4")), 1)
        return 8 * matrices if words[0] in ("ldmatrix", "stmatrix") else LANES

    @property
    def place(self) -> Place:
        """What summaries and findings group by."""
        return (self.kernel, self.file, self.line, self.op, self.space)


@dataclass(frozen=True)
class Skipped:
    """An instruction that accesses memory and is no site: nobody looked at what it did."""

    function: str
    """The title of the function that holds it."""
    op: str
    file: str
    line: int
    reason: str
    """Why, in words."""
    kernels: tuple[str, ...] = ()
    """The titles of the kernels that may execute it."""


COMPLETE = "complete"
ISSUE_ONLY = "issue-only"
BLOCK_VISIBLE = "block-visible"
DEVICE_VISIBLE = "device-visible"

PROVED = "proved on the assembled code"
BY_EMULATOR = "by construction of the emulator"
NOT_PROVED = "by construction, not proved"

EXACT = "exact"
"""Of counts: the assembled code accesses memory for the site in the same number, width and kind, for the same lanes."""
MERGED = "merged"
"""The assembler made one wider access of the site and its neighbours."""
HINT = "hint"
"""The assembled code differs otherwise, or nobody can tell."""
NOT_CHECKED = "not checked"
"""Nobody compared the site with the assembled code."""
