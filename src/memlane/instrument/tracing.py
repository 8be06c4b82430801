"""Make kernels record when each of their memory accesses started and completed.

Takes a valid module and returns a valid one. Around every chosen access

    ld.global.f32 %f1, [%rd1];          ->      (before) ld.global.f32 %f1, [%rd1]; (after) (record)

where `schemes` provides the PTX before and after, and `warp` the PTX that writes a record, takes a slice of the buffer at the start of the
kernel and closes it at the end. If only some warps are traced, `kernel_versions` keeps the original body as well. Other instructions, their
order, labels, line information and debug sections stay unchanged; called functions are first inlined into the kernels
(`memlane.ptx.inlining`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath

from memlane.chip import CONSTANT_BYTES
from memlane.errors import MemlaneError
from memlane.instrument.batch_reservations import batch_reservations
from memlane.instrument.deferred import DeferredWindows
from memlane.instrument.early_addresses import EarlyAddress, EarlyAddresses, architecture_of
from memlane.instrument.fragment_loads import fragment_stamps
from memlane.instrument.kernel_versions import dispatch_by_warp, without_nested_variables
from memlane.instrument.options import TraceOptions
from memlane.instrument.polling_wait import declare_poll_starts
from memlane.instrument.printing import print_draft
from memlane.instrument.probe import Draft, KernelExit, NestedBlock, Node, PollReservation, Probe, ProbeLines, SingleReservation
from memlane.instrument.registers import PREFIX, Scope, read
from memlane.instrument.sampling import WORDS_DTYPE
from memlane.instrument.schemes import DYNAMIC, SCHEMES, Access, Scheme, Stamps, blocking_wait
from memlane.instrument.sites import SiteTable, live_results, place_of, site_table, untimed
from memlane.instrument.variables import (
    WINDOW,
    check_instrumentable,
    constant_bytes,
    entry_space,
    entry_variable,
    with_kernels,
    with_launch,
)
from memlane.instrument.visibility import OLDEST_TARGET, visible
from memlane.instrument.waits import BARRIER, completions, result_predicate, wait_of
from memlane.instrument.warp import count_executions, enter, leave
from memlane.number_format import plural
from memlane.ptx import Function, Instruction, Module, Variable, memory_access, statements
from memlane.ptx.edit import EXITS, alias, behind, first_location, free_prefix, placed, rewritten_parts
from memlane.record import ISSUE_ONLY, Site, Skipped
from memlane.record.site import TIMED_KINDS

_OLDEST_VERSION = (6, 2)
"""Oldest PTX version with `activemask`."""


@dataclass(frozen=True)
class Traced:
    """Instrumented module and what is needed to read its records."""

    module: Module
    sites: tuple[Site, ...]
    """All sites of the module, `sites[i].id == i`. Timed sites have a scheme and a completeness."""
    probes: Mapping[str, Mapping[int, ProbeLines]]
    """Positions of the parts of a probe, by the PTX name of the kernel and the number of the timed site."""
    kernels: tuple[str, ...]
    """PTX names of the module's kernels; slices hold the index."""
    options: TraceOptions
    extra_shared_bytes: int = 0
    """Bytes that a launch must add to its dynamic shared memory."""
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)
    """Accesses that cannot be timed, with the reason."""
    plain: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Indices as in `positions`, in the original body that untraced warps run, for kernels that keep one."""

    @cached_property
    def positions(self) -> Mapping[str, Mapping[int, int]]:
        """Index of the access of each timed site in the traced kernel, by the PTX name of the kernel and the number of the site."""
        return {kernel: {site: lines.access for site, lines in found.items()} for kernel, found in self.probes.items()}

    def moved(self, module: Module, preceding: Mapping[str, int]) -> Traced:
        """Return this with `module` and its indices shifted by the `preceding` instructions inserted at the start of each function."""
        probes = {kernel: {site: lines.moved(preceding[kernel]) for site, lines in found.items()} for kernel, found in self.probes.items()}
        plain = {kernel: {site: index + preceding[kernel] for site, index in found.items()} for kernel, found in self.plain.items()}
        return replace(self, module=module, probes=probes, plain=plain)


def trace(module: Module, options: TraceOptions | None = None) -> Traced:
    """Instrument the chosen sites of a module.

    Raises `MemlaneError` for a module that is instrumented already, has addresses of 32 bits, or leaves no constant memory for a window.
    """
    options = options or TraceOptions()
    check_instrumentable(module)
    _check_target(module, options)
    table = site_table(module)
    module = table.module
    made = {task.kernel.name: _last(passes(task)) for task in tasks(table, options)}
    found = {name: print_draft(draft) for name, draft in made.items()}
    consumers = dict(named for draft in made.values() for named in _named_consumers(module, draft))
    timed = {site.id: replace(site, consumers=consumers.get(site.id, ())) for draft in made.values() for site in draft.sites}
    functions = {name: one.function for name, one in found.items()}
    return Traced(
        module=traced_module(module, functions, options),
        sites=tuple(timed.get(site.id, site) for site in table.sites),
        probes={name: one.probes for name, one in found.items()},
        kernels=tuple(module.kernels),
        options=options,
        extra_shared_bytes=SCHEMES[options.scheme].extra_shared_bytes,
        skipped=untimed(table),
        plain={name: one.plain for name, one in found.items() if one.plain},
    )


def tasks(table: SiteTable, options: TraceOptions) -> tuple[Task, ...]:
    """Return the tasks for the kernels of a module that have timed sites."""
    module = table.module
    kernels = enumerate(module.kernels.values())
    found = (Task(module, kernel, number, table.of_kernel[kernel.name], options) for number, kernel in kernels)
    return tuple(task for task in found if task.chosen)


def traced_module(module: Module, functions: Mapping[str, Function], options: TraceOptions) -> Module:
    """Return the module with its kernels replaced by traced ones, by name, and with the variables that these refer to."""
    return with_kernels(module, functions, _variables(module, options), _OLDEST_VERSION)


@dataclass(frozen=True)
class Task:
    """A kernel to instrument, and how."""

    module: Module
    """The module with called functions inlined into its kernels."""
    kernel: Function
    number: int
    """Index of the kernel among those of the module."""
    known: Mapping[int, Site]
    """All its sites, by index of their instruction."""
    options: TraceOptions

    @cached_property
    def chosen(self) -> Mapping[int, Site]:
        """The timed sites, by index of their instruction."""
        takes = self.options.selection.takes
        return {index: site for index, site in self.known.items() if site.kind in TIMED_KINDS and takes(site, self.kernel.name)}

    @property
    def scheme(self) -> Scheme:
        """How the clock is read around accesses."""
        return SCHEMES[self.options.scheme]

    @property
    def counts(self) -> bool:
        """Whether executions are counted, because only some are recorded."""
        return self.options.sampling.executions is not None


def passes(task: Task) -> Iterator[tuple[str, Draft]]:
    """Run the passes over a kernel with timed sites; yield each pass by name, in order, with its result."""
    options, sampling = task.options, task.options.sampling
    kernel = with_launch(task.module, task.kernel) if options.tagged else task.kernel
    kernel = without_nested_variables(kernel) if sampling.chooses_warps else kernel
    yield "probes", (draft := _Probing(kernel, task).draft())
    if not task.counts:
        yield "batch_reservations", (draft := batch_reservations(draft, options.stages))
    if sampling.chooses_warps:
        yield "dispatch_by_warp", (draft := dispatch_by_warp(draft, sampling, options.tagged))


def _last(made: Iterator[tuple[str, Draft]]) -> Draft:
    """Return the result of the last pass."""
    *_, (_, draft) = made
    return draft


def _check_target(module: Module, options: TraceOptions) -> None:
    """Raise MemlaneError if stores cannot be timed until visible on the architecture of the module."""
    if options.stores != "issued" and architecture_of(module.target) < OLDEST_TARGET:
        raise MemlaneError(
            f"timing stores until they are visible needs loads of sm_{OLDEST_TARGET}, but {module.name} has .target "
            f"{module.target[0]}; compile it for sm_{OLDEST_TARGET} or later, or time stores until they are issued"
        )


class _Probing:
    """Builds the probes of one kernel, instruction by instruction."""

    def __init__(self, kernel: Function, task: Task) -> None:
        """Analyse `kernel`: the kernel of the task with its launch parameter and without memory variables in nested scopes, if required."""
        self._kernel, self._task, self._prefix = kernel, task, free_prefix(kernel, PREFIX)
        self._sites: list[Site] = []
        """Sites that have a probe so far, with its properties."""
        scheme, zero = task.scheme, task.scheme.zero
        self._windows = DeferredWindows(kernel, task.chosen, scheme, self._prefix, task.counts)
        self._live, self._elsewhere = live_results(kernel), completions(list(kernel.instructions()), task.known)
        architecture = architecture_of(task.module.target)
        self._addresses = EarlyAddresses(kernel, architecture, self._prefix, f"%{self._prefix}{zero}" if zero else "")
        self._polling_waits = _polling_waits(kernel, task.chosen)

    def draft(self) -> Draft:
        """Return the kernel with its probes."""
        task, prefix, options = self._task, self._prefix, self._task.options
        prologue = enter(prefix, task.scheme, task.number, _space(task.module, options), options) + self._declared
        body: tuple[Node, ...] = rewritten_parts(self._kernel, self._rewrite, NestedBlock)
        epilogue = f"{leave(prefix, options.stages)}{'ret;' if options.sampling.chooses_warps else ''}"
        # After the original body, instructions without a source location would inherit that of its last one.
        front = placed(prologue, first_location(self._kernel)) if options.sampling.chooses_warps else statements(prologue)
        nodes = (*front, *body, *behind(self._kernel, epilogue))
        return Draft(self._kernel, nodes, prefix, tuple(self._sites), self._windows.consumers)

    @property
    def _declared(self) -> str:
        """PTX before the first instruction that declares what probes keep from one execution to the next."""
        chosen = self._task.chosen
        counters = count_executions(self._prefix, (site.id for site in chosen.values())) if self._task.counts else ""
        poll_starts = declare_poll_starts(self._prefix, (chosen[index].id for index in self._polling_waits))
        return counters + poll_starts + self._windows.declarations

    def _rewrite(self, index: int, instruction: Instruction, scope: Scope) -> tuple[Node, ...]:
        """Return what replaces an instruction; called once for each, in program order."""
        closing = self._windows.window_ends(index, instruction, scope)
        if instruction.form.effect in EXITS:
            exit = replace(instruction, guard=None)
            return (KernelExit(index, exit, instruction.guard, closing, self._task.options.stages),)
        part = self._timed(index, instruction, scope) if index in self._task.chosen else instruction
        return (part,) if closing is None else (closing, part)

    def _timed(self, index: int, instruction: Instruction, scope: Scope) -> Node:
        """Return a chosen instruction with its probe, or with the opening of its window."""
        site, live = self._task.chosen[index], self._live.get(index, ())
        early = self._addresses.access_with_early_address(index, instruction, scope)
        what = _describe(instruction, early, site, scope, live, self._prefix)
        values = [(alias(name), scope.type_of(name)) for name in live]
        stamps = _stamps(self._task, early.instruction, what, values, self._elsewhere.get(index, ""))
        name, fallback = self._windows.scheme_of(index)
        access = replace(early.instruction, guard=None)
        self._sites.append(replace(site, scheme=name, completeness=stamps.completeness, reason=stamps.reason, fallback=fallback))
        if index in self._windows.found.loads:
            return self._windows.window_start(index, instruction, access, what)
        counts = self._task.counts
        reservation = PollReservation(self._polling_waits[index], counts) if index in self._polling_waits else SingleReservation(counts)
        return Probe(site.id, access, instruction.guard, instruction.location, stamps, reservation)


def _named_consumers(module: Module, draft: Draft) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each site number with descriptions of the instructions that may be the first to wait for its value."""
    instructions = list(module.kernels[draft.kernel.name].instructions()) if draft.consumers else []
    for site, indices in draft.consumers.items():
        places = (place_of(module, instructions[index]) for index in indices)
        named = (f"{PurePath(file).name}:{line} {instructions[index].name}" for index, (file, line, _) in zip(indices, places, strict=True))
        yield site, tuple(dict.fromkeys(named))


def _polling_waits(kernel: Function, chosen: Mapping[int, Site]) -> Mapping[int, str]:
    """Map the index of each polling wait to the predicate register with its result."""
    waits = ((index, one) for index, one in enumerate(kernel.instructions()) if index in chosen and wait_of(one) == BARRIER)
    return {index: result_predicate(one) for index, one in waits if result_predicate(one)}


def _stamps(task: Task, instruction: Instruction, access: Access, values: Sequence[tuple[str, str]], elsewhere: str) -> Stamps:
    """Return the clock reads of the scheme, or those that the kind of the access requires.

    `values`: live registers that the access fills, with their types; `elsewhere`: where a copy completes.
    """
    scheme, stores = task.scheme, task.options.stores
    if wait_of(instruction) not in ("", BARRIER):
        return blocking_wait(access)
    if instruction.opcode == "wmma" and len(values) > 1:
        return fragment_stamps(scheme, access, values)
    if witnessed := visible(scheme, instruction, access, stores):
        return witnessed
    stamps = scheme.stamps(access)
    return replace(stamps, completeness=ISSUE_ONLY, reason=elsewhere) if elsewhere else stamps


def _describe(instruction: Instruction, early: EarlyAddress, site: Site, scope: Scope, live: Sequence[str], prefix: str) -> Access:
    """Return the description of an access that schemes need."""
    access = memory_access(instruction)
    # The probed component of a vector must be a live one: another would keep alive what ptxas drops.
    value = live[0] if live and site.kind != "reduction" else result_predicate(instruction) if site.kind == "wait" else None
    return Access(
        kind=site.kind,
        read_only=access is not None and access.read_only,
        sources=(*early.sources, *((alias(name), scope.type_of(name)) for name in read(instruction) if name not in early.instead)),
        value=(alias(value), scope.type_of(value)) if value else None,
        prefix=prefix,
        address=early.text,
    )


def _space(module: Module, options: TraceOptions) -> str:
    """Return the state space of the variable with the entry of the buffer."""
    return entry_space(module, WORDS_DTYPE.itemsize if options.sampling.windows else 0)


def _variables(module: Module, options: TraceOptions) -> list[Variable]:
    """Return the variables that the probes refer to."""
    own = [entry_variable(_space(module, options))]
    if options.sampling.windows:
        _check_constant_memory(module)
        own.append(Variable("const", "b32", WINDOW, (WORDS_DTYPE.itemsize // 4,), align=8, linkage=("visible",)))
    if not SCHEMES[options.scheme].extra_shared_bytes and not options.stages:
        return own
    return [*own, Variable("shared", "b8", DYNAMIC, (0,), _dynamic_alignment(module), linkage=("extern",))]


def _check_constant_memory(module: Module) -> None:
    """Raise MemlaneError if the words of a window do not fit beside the module's own constants."""
    used = constant_bytes(module)
    if used + WORDS_DTYPE.itemsize > CONSTANT_BYTES:
        raise MemlaneError(
            f"windows need {plural(WORDS_DTYPE.itemsize, 'byte')} of constant memory, but {module.name} leaves only "
            f"{CONSTANT_BYTES - used} of {CONSTANT_BYTES}; trace it without windows"
        )


def _dynamic_alignment(module: Module) -> int:
    """Return the alignment of the module's own dynamic shared memory, because a stricter one could move it to other banks."""
    own = [one.alignment for one in module.variables.values() if one.space == "shared" and "extern" in one.linkage]
    return max(own, default=16)
