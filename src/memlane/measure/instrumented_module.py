"""Instrument a module, load it on its target, and keep instrumented copies in a pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memlane.chip import LANES
from memlane.compile import KernelUsage, kernel_usage
from memlane.errors import BadLaunch
from memlane.instrument import LAUNCH_DTYPE, STAGE_RECORDS, Chosen, Sampling, Traced, TraceOptions, stage_bytes, unstaged_bytes
from memlane.instrument import trace as instrument
from memlane.launch import Argument, Launch, LoadedModule
from memlane.measure.twin import Twin, load_twin, rebound_to
from memlane.number_format import plural
from memlane.ptx import Function, Instruction, Label, Module, Symbol, flatten_scopes, once_for_each
from memlane.ptx.edit import with_items
from memlane.record import Staging

_SLOT_ALIGNMENT = 16
_DECIDES = (".maxnreg", ".minnctapersm")
"""Directives of a kernel that limit its registers."""


@dataclass(frozen=True, eq=False)
class InstrumentedModule:
    """Instrumented copy of a loaded module."""

    traced: Traced
    """The instrumented module, with positions of the instructions as loaded."""
    twin: Twin

    @property
    def original(self) -> LoadedModule:
        return self.twin.original

    @property
    def loaded(self) -> LoadedModule:
        return self.twin.loaded

    def twin_of(self, launch: Launch, tag: int = 0, first: int = 0) -> Launch:
        """Return the launch with the instrumented kernel. `tag`: number by which its warps identify it; `first`: first of its assigned
        slices, 0 if none."""
        kernel = self.loaded[launch.kernel.name]
        arguments = launch.arguments
        if len(kernel.function.params) > len(arguments):
            described = np.array([(tag, first, launch.warps_per_block)], LAUNCH_DTYPE)
            arguments = (*arguments, Argument(described.tobytes(), "tag"))
        return replace(launch, kernel=kernel, arguments=arguments, shared_bytes=self.shared_bytes(launch))

    def shared_bytes(self, launch: Launch) -> int:
        """Return the dynamic shared memory of the traced launch: that of the plain one plus the stages of its warps, or the slot of a
        scheme."""
        if self.traced.options.stages:
            return self._staging(launch)[0]
        extra = self.traced.extra_shared_bytes
        if not extra:
            return launch.shared_bytes
        total = -(-launch.shared_bytes // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT + extra
        kernel = launch.kernel
        room = kernel.target.max_shared_bytes(kernel)
        if total > room:
            raise BadLaunch(
                f"the scheme {self.traced.options.scheme!r} needs {plural(extra, 'byte')} of shared memory in addition to those of "
                f"{kernel.title}, which leaves {max(0, room - launch.shared_bytes)}; choose another scheme"
            )
        return total

    def staging(self, launch: Launch) -> Staging:
        """Return where the records of the launch go first, and why."""
        if self.traced.options.no_stages:
            return Staging("global", 0, self.traced.options.no_stages, self.traced.options.staging == "shared")
        return self._staging(launch)[1]

    def _staging(self, launch: Launch) -> tuple[int, Staging]:
        """Return the dynamic shared memory of the traced launch, and where its records go first."""
        kernel, own = self.loaded[launch.kernel.name], unstaged_bytes(launch.shared_bytes)
        target, threads = kernel.target, launch.block[0] * launch.block[1] * launch.block[2]
        asked = stage_bytes(launch.shared_bytes, launch.warps_per_block)
        room = target.max_shared_bytes(kernel)
        if asked > room:
            return own, Staging(
                "global", 0, f"a block would need {plural(asked, 'byte')} of dynamic shared memory, but only {room:,} are available"
            )
        before, after = (target.resident_blocks(kernel, threads, size) for size in (own, asked))
        if after < before:
            return own, Staging("global", 0, f"a multiprocessor would hold {plural(after, 'block')} instead of {before}")
        return asked, Staging("shared", STAGE_RECORDS, f"a multiprocessor holds {plural(before, 'block')} either way")

    @cached_property
    def _sites(self) -> Mapping[str, tuple[int, bool]]:
        """Number of timed sites of each kernel, and whether one of them may lie in a loop."""
        sites = self.traced.sites
        originals = {name: [sites[number].instruction for number in numbers] for name, numbers in self.traced.positions.items()}
        kernels = self.original.inlined.kernels
        return {name: (len(indices), any_in_loop(kernels[name], indices)) for name, indices in originals.items()}

    @property
    def sampling(self) -> Sampling:
        """Which warps and executions later launches record."""
        return self.traced.options.sampling

    def chosen(self, launch: Launch) -> Chosen:
        """Return which part of a launch is traced."""
        return self.sampling.chosen(launch.blocks, launch.warps_per_block)

    def assignable(self, launch: Launch) -> int:
        """Return how many slices are assigned to a launch that runs exactly once; 0 if its warps have to take them from the counters."""
        if not (launch.runs_once and self.traced.options.tagged and self.sampling.numbers_warps):
            return 0
        return self.sampling.places(launch.blocks, launch.warps_per_block)

    def accesses_of(self, launch: Launch, records: int) -> int:
        """Return an upper bound of the accesses, including those of probes, of a launch that makes `records` records."""
        memory = sum(bool(one.form.addresses) for one in self.loaded.module.kernels[launch.kernel.name].instructions())
        warps = launch.blocks * launch.warps_per_block
        return memory * (warps + -(-records // max(1, self.sites_of(launch.kernel.name))))

    def places(self, kernel: str) -> Mapping[int, tuple[int, ...]]:
        """Return, by timed site of a kernel, the indices of its access in the instrumented body and, if only some warps are traced, in the
        original one."""
        plain = self.traced.plain.get(kernel, {})
        return {site: (at, plain[site]) if site in plain else (at,) for site, at in self.traced.positions.get(kernel, {}).items()}

    def sites_of(self, kernel: str) -> int:
        """Return the number of timed sites of the kernel with that PTX name."""
        return self._sites.get(kernel, (0, False))[0]

    def loops(self, kernel: str) -> bool:
        """Return whether a timed site of the kernel may lie in a loop, so that the number of its executions is not known in advance."""
        return self._sites.get(kernel, (0, False))[1]


def probe(loaded: LoadedModule, options: TraceOptions) -> InstrumentedModule:
    """Instrument the module and load it on the target of the original."""
    traced = instrument(loaded.module, options)
    rebound = rebound_to(loaded, traced.module)
    twin = load_twin(loaded, rebound)
    limits, first = _limits(loaded, twin.loaded) if options.sampling.chooses_warps else {}, (rebound, twin)
    while limits:
        rebound = replace(first[0], module=_with_limits(first[0].module, limits))
        twin = load_twin(loaded, rebound)
        if not (spilling := _spilling(first[1].loaded, twin.loaded)):
            break
        limits = {name: limit for name, limit in limits.items() if name not in spilling}
        rebound, twin = first
    return InstrumentedModule(traced.moved(rebound.module, rebound.preceding), twin)


def _limits(original: LoadedModule, twin: LoadedModule) -> dict[str, int]:
    """Return, by PTX name of kernels that got more registers, the number with which occupancy stays that of the original.

    The untraced warps run in the same kernel, and would pay for registers that only the traced ones use.
    """
    before, after = usage_of(original), usage_of(twin)
    if before is None or after is None:
        return {}
    chip = original.target.chip
    step = max(1, chip.register_unit // LANES)
    full = chip.registers_per_sm // chip.max_threads_per_sm // step * step
    limits = {name: max(full, -(-usage.registers // step) * step) for name, usage in before.items()}
    decided = {name for name, one in twin.module.kernels.items() if any(text.startswith(_DECIDES) for text in one.attributes)}
    return {name: limit for name, limit in limits.items() if name not in decided and name in after and after[name].registers > limit}


def _with_limits(module: Module, limits: Mapping[str, int]) -> Module:
    """Return the module with these register limits on its kernels."""
    kernels = {name: module.kernels[name] for name in limits}
    limited = {name: replace(one, attributes=(*one.attributes, f".maxnreg {limits[name]}")) for name, one in kernels.items()}
    return with_items(module, limited, ())


def _spilling(twin: LoadedModule, limited: LoadedModule) -> set[str]:
    """Return the kernels of the limited copy that spill more, which would add accesses to the timed ones."""
    before, after = usage_of(twin) or {}, usage_of(limited) or {}
    return {name for name, usage in before.items() if name not in after or after[name].local_bytes > usage.local_bytes}


@once_for_each
def usage_of(loaded: LoadedModule) -> Mapping[str, KernelUsage] | None:
    """Return registers and memory of each kernel by its PTX name; None if the target has no assembled code."""
    code = loaded.target.assembled(loaded)
    return None if code is None else kernel_usage(code)


@once_for_each
def instrumented_pool(loaded: LoadedModule) -> list[InstrumentedModule]:
    """Return the pool of a module's instrumented copies that are not borrowed. `borrow_instrumented` takes from it and appends to it."""
    return []


@contextmanager
def borrow_instrumented(loaded: LoadedModule, options: TraceOptions) -> Iterator[InstrumentedModule]:
    """Borrow an instrumented copy from the module's pool; it is returned at the end of the block, because instrumenting, assembling and
    loading take longer than most launches.

    All launches must be over at the end of the block, because the next borrower redirects the probes.
    """
    free = instrumented_pool(loaded)
    kept = next((one for one in free if one.traced.options.makes_the_same(options)), None)
    if kept is None:
        probed = probe(loaded, options)
    else:
        free.remove(kept)
        probed = replace(kept, traced=replace(kept.traced, options=options))
    try:
        yield probed
    finally:
        free.append(probed)


def any_in_loop(kernel: Function, indices: Iterable[int]) -> bool:
    """Return whether one of the instructions lies between a branch and an earlier label that it targets."""
    labels, branches = _labels_and_branches(flatten_scopes(kernel))  # Inner blocks may reuse the names of labels.
    first = min(labels.values(), default=0)
    # An indirect branch may target any label.
    spans = [(first if target is None else labels.get(target, at + 1), at) for at, target in branches]
    return any(start <= index <= at for index in indices for start, at in spans)


def _labels_and_branches(kernel: Function) -> tuple[dict[str, int], list[tuple[int, str | None]]]:
    """Return the positions of labels and the positions and targets of branches, in instructions from the start; target None means any
    label."""
    labels: dict[str, int] = {}
    branches: list[tuple[int, str | None]] = []
    count = 0
    for statement in kernel.walk():
        if isinstance(statement, Label):
            labels[statement.name] = count
        elif isinstance(statement, Instruction):
            if statement.form.effect == "branch":
                target = statement.operands[0]
                branches.append((count, target.name if isinstance(target, Symbol) and statement.opcode == "bra" else None))
            count += 1
    return labels, branches
