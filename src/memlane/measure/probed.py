"""A module with probes in it, on its target."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from memlane.errors import BadLaunch
from memlane.instrument import STAGE_RECORDS, Chosen, Sampling, Traced, TraceOptions, stage_bytes, unstaged_bytes
from memlane.instrument import trace as instrument
from memlane.launch import Argument, Launch, LoadedModule
from memlane.measure.twin import Twin, load_twin, rebound_to
from memlane.ptx import Function, Instruction, Label, Symbol, flatten_scopes, once_for_each
from memlane.record import Staging

_SLOT_ALIGNMENT = 16


@dataclass(frozen=True, eq=False)
class ProbedModule:
    """The instrumented twin of a loaded module."""

    traced: Traced
    """Its positions are those of the instructions in the twin."""
    twin: Twin

    @property
    def original(self) -> LoadedModule:
        return self.twin.original

    @property
    def loaded(self) -> LoadedModule:
        return self.twin.loaded

    def twin_of(self, launch: Launch, tag: int = 0) -> Launch:
        """The launch with the kernel that has probes; `tag`: the number that its warps are to name it by."""
        kernel = self.loaded[launch.kernel.name]
        arguments = launch.arguments
        if len(kernel.function.params) > len(arguments):
            arguments = (*arguments, Argument(struct.pack("<I", tag), "tag"))
        return replace(launch, kernel=kernel, arguments=arguments, shared_bytes=self.shared_bytes(launch))

    def shared_bytes(self, launch: Launch) -> int:
        """The dynamic shared memory of the traced launch: that of the plain one, with the stages of its warps or the slot of a scheme that
        needs one behind it."""
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
                f"the scheme {self.traced.options.scheme!r} needs {extra} bytes of shared memory behind those of {kernel.title}, which "
                f"leaves {max(0, room - launch.shared_bytes)}; choose another scheme"
            )
        return total

    def staging(self, launch: Launch) -> Staging:
        """Where the records of the launch go first, and why."""
        if self.traced.options.no_stages:
            return Staging("global", 0, self.traced.options.no_stages, self.traced.options.staging == "shared")
        return self._staging(launch)[1]

    def _staging(self, launch: Launch) -> tuple[int, Staging]:
        """The dynamic shared memory of the traced launch, and why."""
        kernel, own = self.loaded[launch.kernel.name], unstaged_bytes(launch.shared_bytes)
        target, threads = kernel.target, launch.block[0] * launch.block[1] * launch.block[2]
        asked = stage_bytes(launch.shared_bytes, launch.warps_per_block)
        room = target.max_shared_bytes(kernel)
        if asked > room:
            return own, Staging("global", 0, f"a block would need {asked:,} bytes of dynamic shared memory, and has room for {room:,}")
        before, after = (target.resident_blocks(kernel, threads, size) for size in (own, asked))
        if after < before:
            return own, Staging("global", 0, f"a multiprocessor would hold {after} blocks instead of {before}")
        return asked, Staging("shared", STAGE_RECORDS, f"a multiprocessor holds {before} blocks either way")

    @cached_property
    def _sites(self) -> Mapping[str, tuple[int, bool]]:
        sites = self.traced.sites
        originals = {name: [sites[number].instruction for number in numbers] for name, numbers in self.traced.positions.items()}
        kernels = self.original.inlined.kernels
        return {name: (len(indices), any_in_loop(kernels[name], indices)) for name, indices in originals.items()}

    @property
    def sampling(self) -> Sampling:
        """Which warps and executions the launches to come record."""
        return self.traced.options.sampling

    def chosen(self, launch: Launch) -> Chosen:
        """What of a launch is traced."""
        return self.sampling.chosen(launch.blocks, launch.warps_per_block)

    def accesses_of(self, launch: Launch, records: int) -> int:
        """How many accesses, those of the probes among them, a launch may make that makes so many records."""
        memory = sum(bool(one.form.addresses) for one in self.loaded.module.kernels[launch.kernel.name].instructions())
        warps = launch.blocks * launch.warps_per_block
        return memory * (warps + -(-records // max(1, self.sites_of(launch.kernel.name))))

    def places(self, kernel: str) -> Mapping[int, tuple[int, ...]]:
        """By timed site of a kernel: the indices of its access among the instructions of the twin, in the instrumented body and, where only
        some warps are traced, in the original one."""
        plain = self.traced.plain.get(kernel, {})
        return {site: (at, plain[site]) if site in plain else (at,) for site, at in self.traced.positions.get(kernel, {}).items()}

    def sites_of(self, kernel: str) -> int:
        """Timed sites of the kernel with that PTX name."""
        return self._sites.get(kernel, (0, False))[0]

    def loops(self, kernel: str) -> bool:
        """Whether a timed site of the kernel may lie in a loop, so that the number of its executions cannot be told beforehand."""
        return self._sites.get(kernel, (0, False))[1]


def probe(loaded: LoadedModule, options: TraceOptions) -> ProbedModule:
    """Instrument the module and load it where the original is."""
    traced = instrument(loaded.module, options)
    rebound = rebound_to(loaded, traced.module)
    return ProbedModule(traced.moved(rebound.module, rebound.preceding), load_twin(loaded, rebound))


@once_for_each
def free_twins(loaded: LoadedModule) -> list[ProbedModule]:
    """The twins of a module that nobody has borrowed (`lent`), to be changed by who borrows one."""
    return []


@contextmanager
def lent(loaded: LoadedModule, options: TraceOptions) -> Iterator[ProbedModule]:
    """A twin for the `with` block alone, kept for the next one: instrumenting, assembling and loading take longer than most launches.

    Only for launches that are over at the end of the block, for the next who gets it directs its probes elsewhere.
    """
    free = free_twins(loaded)
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
    """Whether one of the instructions lies between a branch and a label before it that the branch leads to."""
    labels, branches = _labels_and_branches(flatten_scopes(kernel))  # Inner blocks may use the names of labels again.
    first = min(labels.values(), default=0)
    # An indirect branch may lead to any label.
    spans = [(first if target is None else labels.get(target, at + 1), at) for at, target in branches]
    return any(start <= index <= at for index in indices for start, at in spans)


def _labels_and_branches(kernel: Function) -> tuple[dict[str, int], list[tuple[int, str | None]]]:
    """Where labels stand, and where branches do and lead to, in instructions from the start of the kernel; None: to any label."""
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
