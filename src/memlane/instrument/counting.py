"""Make kernels count the transactions of their memory accesses, for a GPU.

Takes a valid module and returns a valid one. Called functions are first inlined into the kernels (`memlane.ptx.inlining`). Before every
chosen access the active lanes compare their addresses (`transactions`), and one lane adds the result to the counters of the site, which
the module variable `memlane_counts` points to. Before every conditional branch a vote counts the lanes that take it. The kernel computes
the same results, but much more slowly: times of a counting kernel mean nothing. The emulator counts by itself and needs no pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, AccessKind, Chip
from memlane.chip.copies import HALF
from memlane.errors import MemlaneError, RecordError
from memlane.instrument.buffer import offset
from memlane.instrument.options import CountOptions
from memlane.instrument.registers import PREFIX, Scope
from memlane.instrument.sites import place_of, site_table, uncounted
from memlane.instrument.transactions import check_countable, copies, distinct_addresses, local_sectors, sectors, wavefronts
from memlane.instrument.variables import COUNTERS, check_instrumentable, pointer, with_kernels
from memlane.launch import SITE_FIELDS
from memlane.number_format import plural
from memlane.ptx import (
    SCALAR_TYPES,
    Address,
    Function,
    Immediate,
    Instruction,
    MemoryAccess,
    Module,
    Register,
    Statement,
    Symbol,
    flatten_scopes,
    memory_accesses,
    registers_read,
)
from memlane.ptx.access import access_kind
from memlane.ptx.edit import Rewrite, alias, free_prefix, placed, rewrite_body, under_guard
from memlane.record import BranchCounts, Site, SiteCounts, Skipped

COUNTER_DTYPE = np.dtype([(name, "<u8") for name in SITE_FIELDS])
"""Counters of one site; the fields are those of `memlane.record.SiteCounts`."""

BRANCH_DTYPE = np.dtype([("executions", "<u8"), ("divergent", "<u8")])
"""Counters of one branch; they follow the counters of the sites."""

_OLDEST_VERSION, _OLDEST_TARGET = (7, 0), 80
"""Oldest PTX version and architecture with `redux.sync`."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Conditional branch of a kernel."""

    kernel: str
    """Title of the kernel."""
    instruction: int
    """Index among the instructions of the original kernel."""
    file: str
    line: int


@dataclass(frozen=True)
class Counted:
    """Counting module and what is needed to read its counters."""

    module: Module
    sites: tuple[Site, ...]
    """All sites of the module, `sites[i].id == i`; each has counters, chosen or not."""
    branches: tuple[Branch, ...]
    chip: str
    """Name of the chip whose rules the counters follow."""
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the counters, to allocate at a multiple of 8 and to clear."""
        return len(self.sites) * COUNTER_DTYPE.itemsize + len(self.branches) * BRANCH_DTYPE.itemsize


def count(module: Module, chip: Chip, options: CountOptions | None = None) -> Counted:
    """Make the kernels of a module count by the rules of `chip`.

    Raises `MemlaneError` for a module that is instrumented already, has addresses of 32 bits or a target before sm_80, and `ChipError`
    for a chip whose rules need the emulator.
    """
    options = options or CountOptions()
    check_instrumentable(module)
    check_countable(chip)
    _check_target(module)
    table = site_table(module)
    module = table.module
    branches: list[Branch] = []
    kernels: dict[str, Function] = {}
    for kernel in module.kernels.values():
        if options.selection.kernels is not None and not options.selection.kernels & {kernel.name, kernel.title}:
            continue
        known = table.of_kernel[kernel.name].items()
        chosen = {index: site for index, site in known if site.is_counted and options.selection.takes(site, kernel.name)}
        first_branch = len(branches)
        if options.branches:
            branches += _branches(module, kernel)
        offsets = {
            branch.instruction: len(table.sites) * COUNTER_DTYPE.itemsize + number * BRANCH_DTYPE.itemsize
            for number, branch in enumerate(branches[first_branch:], first_branch)
        }
        if chosen or offsets:
            kernels[kernel.name] = rewrite_body(kernel, "", _rewriter(kernel, chip, chosen, offsets))
    counting = with_kernels(module, kernels, [pointer(COUNTERS)], _OLDEST_VERSION)
    return Counted(counting, table.sites, tuple(branches), chip.name, uncounted(table))


def read_counters(counted: Counted, counters: npt.NDArray[Any], kernel: str) -> tuple[tuple[SiteCounts, ...], tuple[BranchCounts, ...]]:
    """Return the counts of the executed sites and branches of the kernel with this title.

    `counters`: the `nbytes` bytes of the counters. Raises RecordError for another size.
    """
    raw = np.ascontiguousarray(counters).view(np.uint8).reshape(-1)
    if len(raw) != counted.nbytes:
        raise RecordError(f"the counters of this module have {plural(counted.nbytes, 'byte')}, got {len(raw)}")
    split = len(counted.sites) * COUNTER_DTYPE.itemsize
    of_sites, of_branches = raw[:split].view(COUNTER_DTYPE), raw[split:].view(BRANCH_DTYPE)
    return (
        tuple(
            _site_counts(site, row) for site, row in zip(counted.sites, of_sites, strict=True) if site.kernel == kernel and row["requests"]
        ),
        tuple(
            BranchCounts(branch.kernel, branch.file, branch.line, int(row["executions"]), int(row["divergent"]))
            for branch, row in zip(counted.branches, of_branches, strict=True)
            if branch.kernel == kernel and row["executions"]
        ),
    )


def _site_counts(site: Site, row: Any) -> SiteCounts:
    """Return the counts of one site from its counters; counts that do not apply to its space or kind are None."""

    def known(name: str, where: bool) -> int | None:
        return int(row[name]) if where else None

    return (
        SiteCounts(
            site=site,
            requests=int(row["requests"]),
            lanes=int(row["lanes"]),
            bytes=int(row["lanes"]) * site.nbytes,
            sectors=known("sectors", site.has_sectors),
            ideal_sectors=known("ideal_sectors", site.has_sectors),
            wavefronts=known("wavefronts", site.has_wavefronts),
            ideal_wavefronts=known("ideal_wavefronts", site.has_wavefronts),
            addresses=known("addresses", site.is_atomic),
            most_lanes_at_address=known("most_lanes_at_address", site.is_atomic),
        )
        .of_known_memory()
        .of_products()
    )


def _check_target(module: Module) -> None:
    """Raise MemlaneError if the module is compiled for an architecture without the instructions that counting needs."""
    architecture = int("".join(filter(str.isdecimal, module.target[0])) or 0)
    if architecture < _OLDEST_TARGET:
        raise MemlaneError(
            f"counting on a GPU needs instructions of sm_{_OLDEST_TARGET}, but {module.name} has .target {module.target[0]}; compile "
            f"it for sm_{_OLDEST_TARGET} or later, or count on the emulator"
        )


def _branches(module: Module, kernel: Function) -> list[Branch]:
    """Return the conditional branches of a kernel."""
    return [
        Branch(kernel.title, index, *place_of(module, instruction)[:2])
        for index, instruction in enumerate(kernel.instructions())
        if instruction.opcode == "bra" and instruction.guard is not None
    ]


# -- the PTX in front of an access or a branch ------------------------------------------------------------------------------------


def _rewriter(kernel: Function, chip: Chip, chosen: dict[int, Site], branches: dict[int, int]) -> Rewrite:
    """Return the rewrite that puts the counting PTX before chosen accesses and branches."""
    prefix, kinds = free_prefix(kernel, PREFIX), _kinds(kernel)

    def rewrite(index: int, instruction: Instruction, scope: Scope) -> Sequence[Statement]:
        at = instruction.location
        if index in chosen:
            text = _count_access(prefix, chip, chosen[index], kinds.get(index), instruction, scope)
            counting = under_guard(instruction.guard, f"${prefix}uncounted_{index}", placed(text, at), at)
            return (*counting, instruction)
        if index in branches:
            return (*placed(_count_branch(prefix, branches[index], index, instruction), at), instruction)
        return (instruction,)

    return rewrite


def _warp(r: str, skip: str, at: int) -> str:
    """Return PTX that finds the counters at byte offset `at`, the active lanes and their leader; it jumps to `skip` if there are no
    counters."""
    return f"""\
.reg .b64 {r}counters;
.reg .b32 {r}active, {r}lane, {r}below, {r}lower;
.reg .pred {r}absent, {r}leads;
ld.global.u64 {r}counters, [{COUNTERS}];
setp.eq.u64 {r}absent, {r}counters, 0;
@{r}absent bra {skip};
add.u64 {r}counters, {r}counters, {at};
activemask.b32 {r}active;
mov.u32 {r}lane, %laneid;
mov.u32 {r}below, %lanemask_lt;
and.b32 {r}lower, {r}below, {r}active;
setp.eq.u32 {r}leads, {r}lower, 0;
"""


def _add(r: str, value: str, place: int, operation: str = "add") -> str:
    """Return PTX by which the leader adds a 32-bit register to a counter, or applies another `operation` to it."""
    return (
        f"{{\n.reg .b64 {r}amount;\ncvt.u64.u32 {r}amount, {value};\n"
        f"@{r}leads red.global.{operation}.u64 [{r}counters+{place}], {r}amount;\n}}\n"
    )


def _kinds(kernel: Function) -> Mapping[int, AccessKind]:
    """Map the index of each instruction that accesses memory to its kind in the rules of a chip."""
    instructions = list(flatten_scopes(kernel).instructions())
    read = {name for instruction in instructions for name in registers_read(instruction)}
    kinds = {index: access_kind(one, read) for index, one in enumerate(instructions) if one.form.addresses}
    return {index: kind for index, kind in kinds.items() if kind is not None}


def _count_access(prefix: str, chip: Chip, site: Site, kind: AccessKind | None, instruction: Instruction, scope: Scope) -> str:
    """Return PTX that counts a request of a site: its lanes and transactions. The transactions of a product are derived from its
    requests."""
    r, skip = f"%{prefix}", f"${prefix}counted_{site.id}"
    at = {name: offset(COUNTER_DTYPE, name) for name in COUNTER_DTYPE.names or ()}
    accesses = memory_accesses(instruction)
    rows = 8 * accesses[0].vector if accesses and accesses[0].is_matrix else LANES
    counted = "" if kind is None else _count_transactions(r, chip, site, kind, accesses, scope, at, rows)
    return (
        f"{{\n{_warp(r, skip, site.id * COUNTER_DTYPE.itemsize)}.reg .b32 {r}one, {r}lanes;\nmov.u32 {r}one, 1;\n"
        f"and.b32 {r}lanes, {r}active, {(1 << rows) - 1:#x};\npopc.b32 {r}lanes, {r}lanes;\n"
        f"{_add(r, f'{r}one', at['requests'])}{_add(r, f'{r}lanes', at['lanes'])}"
        f"{counted}{skip}:\n}}\n"
    )


def _count_transactions(
    r: str, chip: Chip, site: Site, kind: AccessKind, accesses: Sequence[MemoryAccess], scope: Scope, at: dict[str, int], rows: int
) -> str:
    """Return PTX that counts the transactions of an access in each state space that its address may lie in."""
    if site.kind == "copy":
        return _count_copy(r, chip, site, accesses, kind, scope, at)
    parts = []
    if site.has_sectors or site.has_wavefronts or site.is_atomic:
        parts.append(_address(r, accesses[0], scope))
    if site.is_atomic:
        parts.append(
            f"{{\n{distinct_addresses(r)}{_add(r, f'{r}addresses', at['addresses'])}"
            f"{_add(r, f'{r}most_lanes', at['most_lanes_at_address'], 'max')}}}\n"
        )
    for space, fragment, total in (
        ("global", sectors(r, chip, site.nbytes, kind), "sectors"),
        ("local", local_sectors(r, chip, site.nbytes), "sectors"),
        ("shared", wavefronts(r, chip, site.nbytes, kind), "wavefronts"),
    ):
        if site.space in (space, "generic") or (space, site.space) == ("shared", "shared::cluster"):
            parts.append(_in_space(r, space, site.space, fragment, total, f"ideal_{total}", at, rows))
    return "".join(parts)


def _count_copy(
    r: str, chip: Chip, site: Site, accesses: Sequence[MemoryAccess], kind: AccessKind, scope: Scope, at: dict[str, int]
) -> str:
    """Return PTX that counts the reads and writes of an asynchronous copy. A lane whose copy is zero-filled completely reads nothing."""
    ends = {one.space: one for one in accesses}
    match ends["global"].read_bytes:
        case None:
            reads = ""
        case Register(name):
            reads = alias(name)
        case Immediate(value):
            reads = str(value)
    past_l1 = kind == "load_past_l1" and site.nbytes == HALF
    addresses = "".join(
        f"{{\n{_address(r, ends[space], scope)}mov.b64 {r}{name}, {r}address;\n}}\n"
        for space, name in (("global", "source"), ("shared", "target"))
    )
    names = ("sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
    return f"""\
{{
.reg .b64 {r}source, {r}target, {r}address;
.reg .b32 {r}inside, {", ".join(r + name for name in names)};
.reg .pred {r}here, {r}whole;
{addresses}setp.ne.u32 {r}here, {reads or 1}, 0;
setp.eq.u32 {r}whole, {reads or site.nbytes}, {site.nbytes};
vote.sync.ballot.b32 {r}inside, {r}here, {r}active;
mov.b64 {r}address, {r}source;
{sectors(r, chip, site.nbytes, kind)}{copies(r, site.nbytes, past_l1)}{"".join(_add(r, r + name, at[name]) for name in names)}}}
"""


def _in_space(r: str, space: str, named: str, fragment: str, total: str, ideal: str, at: dict[str, int], rows: int = LANES) -> str:
    """Return PTX that counts the transactions of the lanes whose address lies in `space` of the own block; all lanes if the instruction
    names it.

    `rows`: lanes that supply row addresses, for a matrix access; only the first `rows` lanes count.
    """
    here = f"isspacep.{space} {r}here, {r}address;\n" if named != space else f"setp.eq.u32 {r}here, {r}lane, {r}lane;\n"
    here += f"setp.lt.and.u32 {r}here, {r}lane, {rows}, {r}here;\n" if rows < LANES else ""
    return f"""\
{{
.reg .b32 {r}inside, {r}{total}, {r}{ideal};
.reg .pred {r}here;
{here}vote.sync.ballot.b32 {r}inside, {r}here, {r}active;
{fragment}{_add(r, r + total, at[total])}{_add(r, r + ideal, at[ideal])}}}
"""


def _address(r: str, access: MemoryAccess, scope: Scope) -> str:
    """Return PTX that computes the 64-bit address, generic if it may lead to another block. In shared and local memory base + immediate
    wraps at 32 bits."""
    target = f"{r}address"
    operand = access.address
    assert isinstance(operand, Address)
    text = f".reg .b64 {target};\n"
    match operand.base:
        case Register(name) if SCALAR_TYPES[scope.type_of(name)].bits == 32:
            text += f"cvt.u64.u32 {target}, {alias(name)};\n"
        case Register(name):
            text += f"mov.b64 {target}, {alias(name)};\n"
        case Symbol(name, inner):
            text += f"mov.u64 {target}, {name};\nadd.s64 {target}, {target}, {inner};\n"
        case Immediate(value):
            text += f"mov.u64 {target}, {value};\n"
    text += f"add.s64 {target}, {target}, {operand.offset};\n" if operand.offset else ""
    wraps = access.space != "global" and access.space != "generic" and isinstance(operand.base, Register)
    text += f"and.b64 {target}, {target}, 0xffffffff;\n" if wraps else ""
    return f"{text}cvta.shared::cluster.u64 {target}, {target};\n" if access.space == "shared::cluster" else text


def _count_branch(prefix: str, at: int, index: int, instruction: Instruction) -> str:
    """Return PTX that counts executions of a branch, and the divergent ones: some lanes take it and some do not."""
    r, skip = f"%{prefix}", f"${prefix}counted_branch_{index}"
    assert instruction.guard is not None
    return f"""\
{{
{_warp(r, skip, at)}.reg .b32 {r}one, {r}two_ways, {r}taken;
.reg .pred {r}some;
mov.u32 {r}one, 1;
vote.sync.ballot.b32 {r}taken, {alias(instruction.guard.register)}, {r}active;
setp.ne.u32 {r}some, {r}taken, 0;
setp.ne.and.u32 {r}some, {r}taken, {r}active, {r}some;
selp.u32 {r}two_ways, 1, 0, {r}some;
{_add(r, f"{r}one", offset(BRANCH_DTYPE, "executions"))}{_add(r, f"{r}two_ways", offset(BRANCH_DTYPE, "divergent"))}{skip}:
}}
"""
