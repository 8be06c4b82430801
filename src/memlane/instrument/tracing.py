"""The pass that makes kernels record when each of their memory accesses started and completed.

Valid module in, valid module out. Around every chosen access

    ld.global.f32 %f1, [%rd1];          ->      (before) ld.global.f32 %f1, [%rd1]; (after) (record)

where `schemes` knows what stands before and after, and `warp` how a record is written, how a warp gets its slice of the buffer when it
enters the kernel, and how it closes it when it leaves. Where only some warps are traced, `halves` keeps the original body beside the
instrumented one. Other instructions, their order, labels, line information and debug
sections stay as they are; what kernels call is first inlined into them (`memlane.ptx.inlining`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from memlane.chip import CONSTANT_BYTES
from memlane.errors import MemlaneError
from memlane.instrument.addresses import Addressed, Addresses, architecture_of
from memlane.instrument.apart import ApartWindows, ClosingLines
from memlane.instrument.asking import asked, first_questions
from memlane.instrument.fragments import gathered
from memlane.instrument.halves import halves, with_plain_variables
from memlane.instrument.insert import EXITS, alias, placed, positions_of, rewrite_body, under_guard
from memlane.instrument.options import TraceOptions
from memlane.instrument.registers import Scope, free_prefix, read
from memlane.instrument.sampling import WORDS_DTYPE
from memlane.instrument.schemes import DYNAMIC, SCHEMES, Access, Probe, Scheme, returning
from memlane.instrument.sites import live_results, place_of, site_table, untimed
from memlane.instrument.together import together
from memlane.instrument.variables import (
    WINDOW,
    assembled,
    check_instrumentable,
    constants_of,
    entry_space,
    entry_variable,
    with_tag,
)
from memlane.instrument.visibility import OLDEST_TARGET, visible
from memlane.instrument.waits import BARRIER, answer, completions, wait_of
from memlane.instrument.warp import count_executions, enter, leave, record, reserve
from memlane.ptx import Block, Function, Instruction, Module, Statement, Variable, memory_access
from memlane.record import ISSUE_ONLY, Site, Skipped
from memlane.record.site import TIMED_KINDS

_OLDEST_VERSION = (6, 2)
"""Of PTX, with `activemask`."""


@dataclass(frozen=True)
class Traced:
    """An instrumented module and what is needed to read what it records."""

    module: Module
    sites: tuple[Site, ...]
    """All sites of the module, `sites[i].id == i`. Those that are timed have a scheme and say how complete they are."""
    positions: Mapping[str, Mapping[int, int]]
    """By the PTX name of each instrumented kernel: number of a timed site -> index of its access among the instructions now."""
    kernels: tuple[str, ...]
    """PTX names of the module's kernels; slices carry the index."""
    options: TraceOptions
    extra_shared_bytes: int = 0
    """What a launch must add to its dynamic shared memory."""
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)
    """Accesses that are not timed for want of a way, with the reason."""
    plain: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """As `positions`, of the same accesses in the original body, where there is one for the warps that are not traced."""
    closings: Mapping[str, Mapping[int, tuple[ClosingLines, ...]]] = field(default_factory=dict, repr=False)
    """By kernel and number, of sites whose windows close in front of their consumers: where."""


def trace(module: Module, options: TraceOptions | None = None) -> Traced:
    """Instrument the chosen sites of a module.

    Raises `MemlaneError` for a module that is instrumented already, has addresses of 32 bits, or leaves no constant memory for a window.
    """
    options = options or TraceOptions()
    check_instrumentable(module)
    _check_target(module, options)
    scheme = SCHEMES[options.scheme]
    table = site_table(module)
    module = table.module
    space = entry_space(module, WORDS_DTYPE.itemsize if options.sampling.windows else 0)
    kernels = [
        _trace_kernel(kernel, index, table.of_kernel[kernel.name], scheme, options, space, architecture_of(module.target))
        for index, kernel in enumerate(module.kernels.values())
    ]
    consumers = dict(named for kernel in kernels for named in _named_consumers(module, kernel))
    timed = {site.id: replace(site, consumers=consumers.get(site.id, ())) for kernel in kernels for site in kernel.sites}
    return Traced(
        module=assembled(
            module,
            {
                kernel.function.name: with_tag(module, kernel.function) if kernel.sites and options.tagged else kernel.function
                for kernel in kernels
            },
            _variables(module, scheme, options, space),
            _OLDEST_VERSION,
        ),
        sites=tuple(timed.get(site.id, site) for site in table.sites),
        positions={kernel.function.name: kernel.positions for kernel in kernels if kernel.sites},
        kernels=tuple(module.kernels),
        options=options,
        extra_shared_bytes=scheme.extra_shared_bytes,
        skipped=untimed(table),
        plain={kernel.function.name: kernel.plain for kernel in kernels if kernel.plain},
        closings={kernel.function.name: kernel.closings for kernel in kernels if kernel.closings},
    )


def _check_target(module: Module, options: TraceOptions) -> None:
    if options.stores != "issued" and architecture_of(module.target) < OLDEST_TARGET:
        raise MemlaneError(
            f"stores are read back by loads of sm_{OLDEST_TARGET}, and {module.name} has .target {module.target[0]}; "
            f"compile it for sm_{OLDEST_TARGET} or later, or time stores until they are issued"
        )


def _chosen(sites: Mapping[int, Site], kernel: str, options: TraceOptions) -> dict[int, Site]:
    return {index: site for index, site in sites.items() if site.kind in TIMED_KINDS and options.selection.takes(site, kernel)}


@dataclass(frozen=True)
class _TracedKernel:
    function: Function
    sites: tuple[Site, ...] = ()
    positions: Mapping[int, int] = field(default_factory=dict)
    plain: Mapping[int, int] = field(default_factory=dict)
    closings: Mapping[int, tuple[ClosingLines, ...]] = field(default_factory=dict)
    consumers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By number of a site, of the original kernel: the instructions that may be the first to wait for its value."""


def _trace_kernel(
    kernel: Function, number: int, known: Mapping[int, Site], scheme: Scheme, options: TraceOptions, space: str, architecture: int
) -> _TracedKernel:
    """Probe the chosen instructions of one kernel; a kernel without any stays as it is. `known`: all its sites; `space`: where the kernel
    finds the buffer; `architecture`: the number of that it is for."""
    chosen, sampling, staged = _chosen(known, kernel.name, options), options.sampling, options.stages
    if not chosen:
        return _TracedKernel(kernel)
    apart = sampling.chooses_warps
    kernel = with_plain_variables(kernel) if apart else kernel
    probing = _Probing(kernel, known, chosen, scheme, options, architecture)
    prefix = probing.prefix
    epilogue = f"{leave(prefix, staged)}ret;\n" if apart else leave(prefix, staged)
    prologue = enter(prefix, scheme, number, space, staged, options.tagged) + probing.declared
    function = rewrite_body(kernel, prologue, probing.rewrite, epilogue)
    if sampling.executions is None:
        function = together(function, prefix, staged)
    plain: dict[int, int] = {}
    if apart:
        function = halves(kernel, function, prefix, sampling)
        plain = _plain_positions(kernel, function, chosen)
    windows = probing.windows
    return _TracedKernel(function, tuple(probing.sites), probing.positions(function), plain, windows.lines(function), windows.consumers)


class _Probing:
    """What stands in the place of each instruction of one kernel. `rewrite` is asked once for each, in the order of the text."""

    def __init__(
        self, kernel: Function, known: Mapping[int, Site], chosen: Mapping[int, Site], scheme: Scheme, options: TraceOptions, target: int
    ) -> None:
        """`known`: all sites by index of their instruction, `chosen`: those that are timed; `target`: the number of the architecture."""
        self.prefix = free_prefix(kernel)
        self.sites: list[Site] = []
        """Those that have a probe by now, with what it is."""
        self._chosen, self._scheme, self._stores, self._staged = chosen, scheme, options.stores, options.stages
        self._counted = options.sampling.executions is not None
        self.windows = ApartWindows(kernel, chosen, scheme, self.prefix, self._counted)
        self._accesses: list[Instruction] = []
        self._live, self._elsewhere = live_results(kernel), _completed_elsewhere(kernel, known)
        self._addresses = Addresses(kernel, target, self.prefix, f"%{self.prefix}{scheme.zero}" if scheme.zero else "")
        self._questions = _questions(kernel, chosen)

    @property
    def declared(self) -> str:
        """PTX before the first instruction: what probes keep from one execution to another."""
        counters = count_executions(self.prefix, (site.id for site in self._chosen.values())) if self._counted else ""
        questions = first_questions(self.prefix, (self._chosen[index].id for index in self._questions))
        return counters + questions + self.windows.declared

    def rewrite(self, index: int, instruction: Instruction, scope: Scope) -> Sequence[Statement]:
        closing, at = self.windows.closing(index, instruction, scope), instruction.location
        if index in self._chosen:
            return (*closing, *self._timed(index, instruction, scope))
        if instruction.form.effect in EXITS:
            inner = (*closing, *placed(leave(self.prefix, self._staged), at), replace(instruction, guard=None))
            return under_guard(instruction.guard, f"${self.prefix}stays_{index}", inner, at)
        return (*closing, instruction)

    def _timed(self, index: int, instruction: Instruction, scope: Scope) -> tuple[Statement, ...]:
        """A chosen instruction with its probe, or with what opens its window."""
        site, live, prefix = self._chosen[index], self._live.get(index, ()), self.prefix
        addressed = self._addresses.of(index, instruction, scope)
        what = _describe(instruction, addressed, site, scope, live, prefix)
        values = [(alias(name), scope.type_of(name)) for name in live]
        probe = _probe(self._scheme, addressed.instruction, what, values, self._stores, self._elsewhere.get(index, ""))
        name, fallback = self.windows.scheme_of(index)
        access = replace(addressed.instruction, guard=None)
        self.sites.append(replace(site, scheme=name, completeness=probe.completeness, reason=probe.reason, fallback=fallback))
        self._accesses.append(access)
        if index in self.windows.found.loads:
            return self.windows.opened(index, instruction, access, what)
        if index in self._questions:
            return asked(instruction, access, self._questions[index], probe, prefix, site.id, self._counted)
        return _probed(instruction, access, probe, prefix, site.id, self._counted)

    def positions(self, function: Function) -> dict[int, int]:
        """By number of a site: the index of its access in the traced function."""
        return dict(zip((site.id for site in self.sites), positions_of(function, self._accesses), strict=True))


def _named_consumers(module: Module, kernel: _TracedKernel) -> Iterator[tuple[int, tuple[str, ...]]]:
    """By number of a site: what may be the first to wait for its value, in words."""
    instructions = list(module.kernels[kernel.function.name].instructions()) if kernel.consumers else []
    for site, indices in kernel.consumers.items():
        places = (place_of(module, instructions[index]) for index in indices)
        named = (f"{PurePath(file).name}:{line} {instructions[index].name}" for index, (file, line, _) in zip(indices, places, strict=True))
        yield site, tuple(dict.fromkeys(named))


def _plain_positions(kernel: Function, function: Function, chosen: Mapping[int, Site]) -> dict[int, int]:
    """By number of a site: the index of its access in the original body, which stands last."""
    first = len(list(function.instructions())) - len(list(kernel.instructions()))
    return {site.id: first + index for index, site in chosen.items()}


def _completed_elsewhere(kernel: Function, sites: Mapping[int, Site]) -> Mapping[int, str]:
    """By index of a copy: where it completes."""
    return completions(list(kernel.instructions()), sites)


def _questions(kernel: Function, chosen: Mapping[int, Site]) -> Mapping[int, str]:
    """By index of a wait that is asked until it says yes: the predicate register with the answer."""
    waits = ((index, one) for index, one in enumerate(kernel.instructions()) if index in chosen and wait_of(one) == BARRIER)
    return {index: answer(one) for index, one in waits if answer(one)}


def _probe(
    scheme: Scheme, instruction: Instruction, access: Access, values: Sequence[tuple[str, str]], stores: str, elsewhere: str
) -> Probe:
    """The probe of the scheme, or what the kind of the access asks for. `values`: the registers that it fills and that live, with their
    types; `stores`: until when stores are timed; `elsewhere`: of a copy, where it completes."""
    if wait_of(instruction) not in ("", BARRIER):
        return returning(access)
    if instruction.opcode == "wmma" and len(values) > 1:
        return gathered(scheme, access, values)
    if witnessed := visible(scheme, instruction, access, stores):
        return witnessed
    probe = scheme.probe(access)
    return replace(probe, completeness=ISSUE_ONLY, reason=elsewhere) if elsewhere else probe


def _describe(instruction: Instruction, addressed: Addressed, site: Site, scope: Scope, live: Sequence[str], prefix: str) -> Access:
    """What a scheme has to know of an access."""
    access = memory_access(instruction)
    # The component of a vector that is probed must be one that lives: another would keep alive what the assembler drops.
    value = live[0] if live and site.kind != "reduction" else answer(instruction) if site.kind == "wait" else None
    return Access(
        kind=site.kind,
        read_only=access is not None and access.read_only,
        sources=(*addressed.sources, *((alias(name), scope.type_of(name)) for name in read(instruction) if name not in addressed.instead)),
        value=(alias(value), scope.type_of(value)) if value else None,
        prefix=prefix,
        address=addressed.text,
    )


def _probed(instruction: Instruction, access: Instruction, probe: Probe, prefix: str, site: int, counted: bool) -> tuple[Statement, ...]:
    """The access between its clock reads, and the record, in a block of its own with their registers."""
    at = instruction.location
    declare = f".reg .b64 %{prefix}start, %{prefix}end;\n"
    before, after = f"{declare}{reserve(prefix, site, counted)}{probe.before}", f"{probe.after}{record(prefix, site, counted)}"
    inner = Block((*placed(before, at), access, *placed(after, at)))
    return under_guard(instruction.guard, f"${prefix}skip_{site}", (inner,), at)


def _variables(module: Module, scheme: Scheme, options: TraceOptions, space: str) -> list[Variable]:
    """What the probes refer to; `space`: where they find the buffer."""
    own = [entry_variable(space)]
    if options.sampling.windows:
        _check_constant_memory(module)
        own.append(Variable("const", "b32", WINDOW, (WORDS_DTYPE.itemsize // 4,), align=8, linkage=("visible",)))
    if not scheme.extra_shared_bytes and not options.stages:
        return own
    return [*own, Variable("shared", "b8", DYNAMIC, (0,), _dynamic_alignment(module), linkage=("extern",))]


def _check_constant_memory(module: Module) -> None:
    """MemlaneError where the words of a window find no room beside the module's own constants."""
    used = constants_of(module)
    if used + WORDS_DTYPE.itemsize > CONSTANT_BYTES:
        raise MemlaneError(
            f"windows need {WORDS_DTYPE.itemsize} bytes of constant memory, and {module.name} leaves "
            f"{CONSTANT_BYTES - used} of {CONSTANT_BYTES}; trace it without them"
        )


def _dynamic_alignment(module: Module) -> int:
    """That of the module's own dynamic shared memory: a stricter one could move it to other banks."""
    own = [one.alignment for one in module.variables.values() if one.space == "shared" and "extern" in one.linkage]
    return max(own, default=16)
