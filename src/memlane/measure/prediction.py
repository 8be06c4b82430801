"""Predict how long a launch takes on another chip, without that chip: run a sample of its blocks on the emulator, apply the timing
model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.attribution import attribute
from memlane.chip import STALL_FIELDS, Chip, Events
from memlane.compile import Cubin, architecture, assemble
from memlane.emulate import Emulator
from memlane.emulate.run.device import ASSUMED_REGISTERS
from memlane.errors import BadLaunch, CompileError, LaunchError, MissingDependency
from memlane.launch import BlockSample, Launch, Layers, MachineCode
from memlane.launch.limits import check_extents
from memlane.measure.launch_observer import LaunchObserver
from memlane.measure.memory import Snapshot, not_restorable
from memlane.model.kernel import Prediction, Sampled, Wait, predicted
from memlane.model.scheduling import scheduled
from memlane.number_format import plural
from memlane.ptx import Function, Instruction, Module, memory_access, values_read, values_written
from memlane.record import Change, PredictedPart, PredictedTime, SiteCounts, groups_of_array
from memlane.sass import disassemble

SAMPLED_SMS = 16
"""Multiprocessors of a sample."""
SAMPLED_THREADS = 1 << 19
"""Approximate number of threads of a sample, if more would run on its multiprocessors."""
WINDOWS = 3
"""Minimum number of windows of adjacent waves from which a larger sample takes its blocks."""
SMALLEST_CACHE = 4096
CROWDED_SHARE = 0.7
"""Share of the lines of L2 up to which all data of a launch stays there: all sets hold as much (`memlane.emulate.clock.levels`)."""
FULL_SHARE = 0.9
"""Share of the lines of L2 from which it counts as full."""
WRITTEN_WEIGHT = 1.15
"""Share of L2 that a written line takes, relative to a line that is only read; fitted as the sets of L2 are."""
SHOWN_WAITS = 8
MOST_CYCLES = 1 << 28
"""Maximum cycles of a launch, or of a sample of its blocks: an eighth of a second on an H200."""
BLOCKS_WAIT = "because blocks may wait for each other: they poll memory, meet at a barrier of the grid, or form clusters"
LEAST_EXCESS, MOST_CHANGES = 0.1, 6
"""Minimum excess transactions per request from which the launch is also predicted without them, and maximum number of such places."""
_MEMORY = {"global": "global memory", "generic": "global memory", "shared": "shared memory", "local": "local memory", "const": "constants"}


@dataclass(frozen=True)
class Predictor:
    """Predicts launches for one chip. Leaves the memory of a launch as its sample leaves it."""

    chip: Chip
    most_cycles: int = MOST_CYCLES
    """Cycles after which a sample counts as endless."""

    def predict(self, launch: Launch, target: Emulator, every_block: bool = False) -> Prediction:
        """Predict a launch that is bound on an emulator. Raises BadLaunch if the chip cannot hold it."""
        return self._prepared(launch, target, every_block).predict()

    def changed(self, launch: Launch, target: Emulator, groups: Sequence[frozenset[int]]) -> tuple[Prediction, tuple[Prediction, ...]]:
        """Predict a launch, and for each group of accesses the same launch with their lanes adjacent in memory.

        An access is the index of its instruction in `launch.kernel.inlined`. Raises BadLaunch as `predict` does.
        """
        prepared = self._prepared(launch, target, every_block=False)
        return prepared.predict(), tuple(prepared.predict(group) for group in groups)

    def _prepared(self, launch: Launch, target: Emulator, every_block: bool) -> _Prepared:
        """Prepare a launch on an emulator of the chip, with its instructions in the assembler's order."""
        check_extents(self.chip, launch.grid, launch.block)
        own = target.of_chip(self.chip)
        module, machine = _scheduled(launch, self.chip)
        loaded = own.load(module)
        _copy_variables(launch, loaded.handle, own)
        layers = Layers(clock=True, prediction=True, registers=_registers(launch, self.chip), machine=machine, most_cycles=self.most_cycles)
        there = replace(launch, kernel=loaded[launch.kernel.name], layers=layers, stream=own.default_stream)
        resident = _resident(own, there)
        if not resident:
            raise BadLaunch(
                f"{self.chip.name} cannot hold a block of {launch.kernel.title}: {plural(launch.threads_per_block, 'thread')} of "
                f"{plural(layers.registers or ASSUMED_REGISTERS, 'register')}, with their shared memory; launch smaller blocks"
            )
        sample, not_sampled = None if every_block else sample_of(self.chip, launch, resident), ""
        if sample is not None and not own.may_leave_out_blocks(there):
            sample, not_sampled = None, BLOCKS_WAIT
        return _Prepared(own, there, sample, not_sampled, module, tuple(launch.kernel.inlined.instructions()))


@dataclass(frozen=True)
class _Prepared:
    """A launch on the emulator of the chip that it is predicted for."""

    target: Emulator
    launch: Launch
    sample: BlockSample | None
    not_sampled: str
    """Reason why all blocks run although a sample would be possible."""
    module: Module
    """The original module with its instructions in the assembler's order."""
    original: tuple[Instruction, ...]
    """Instructions of the original kernel, in its own order."""

    def predict(self, side_by_side: frozenset[int] = frozenset()) -> Prediction:
        """Predict the launch. `side_by_side`: accesses of the original kernel whose lanes are assumed to be adjacent in memory."""
        function = self.launch.kernel.function
        chosen = {id(self.original[number]) for number in side_by_side}
        places = frozenset(place for place, one in enumerate(function.instructions()) if id(one) in chosen)
        launch = replace(self.launch, layers=replace(self.launch.layers, side_by_side=places))
        sampled = _warm(self.target, launch, self.sample)
        waits = waits_of(self.module, function, sampled.events)
        found = predicted(self.target.chip, sampled)
        return replace(found, kernel=launch.kernel.title, waits=waits, not_sampled=self.not_sampled)


def predict_launch(launch: Launch, chip: Chip | None = None, every_block: bool = False, most_cycles: int | None = None) -> Prediction:
    """Predict a launch that is bound on an emulator, for a chip, by default the emulator's own. What its sample changes is restored.

    Raises Deadlock, with the line, for a launch that still runs after `most_cycles`, by default `MOST_CYCLES`.
    """
    if most_cycles is not None and most_cycles < 1:
        raise BadLaunch(f"most_cycles must be at least 1, got {most_cycles}")
    target = launch.kernel.target
    if not isinstance(target, Emulator):
        raise BadLaunch(
            f"times are predicted by the emulator, and {launch.kernel.title} is loaded on {target.name}: load it on ml.target('emulator')"
        )
    before = Snapshot(launch)
    try:
        return Predictor(chip or target.chip, most_cycles or MOST_CYCLES).predict(launch, target, every_block)
    finally:
        before.restore()


@dataclass(frozen=True)
class Forecast:
    """Predictions for equal launches of a program: the same kernel, grid and block."""

    kernel: str
    blocks: int
    threads: int
    """Threads per block."""
    launches: int
    """Number of such launches; the first one was predicted."""
    predictions: tuple[Prediction, ...]
    """Predictions by chip, without chips that cannot run the launch."""
    refused: Mapping[str, str]
    """Reasons by chip that cannot run the launch."""


class Forecaster(LaunchObserver):
    """Observer that predicts the launches of a program for some chips, before each runs on its emulator."""

    def __init__(
        self, chips: Sequence[Chip], *, every_block: bool = False, only_launch: int | None = None, most_cycles: int | None = None
    ) -> None:
        super().__init__(only_launch)
        self._chips = tuple(chips)
        self._every_block, self._most_cycles = every_block, most_cycles
        self._found: dict[tuple[object, ...], Forecast] = {}

    @property
    def chips(self) -> list[str]:
        """Names of the chips, in the requested order."""
        return [one.name for one in self._chips]

    @property
    def forecasts(self) -> list[Forecast]:
        """Predictions in the order in which the launches were first observed."""
        return list(self._found.values())

    def _replacement(self, number: int, launch: Launch) -> Launch:
        alike = launch.kernel.title, launch.grid, launch.block, launch.shared_bytes
        if alike in self._found:
            known = self._found[alike]
            self._found[alike] = replace(known, launches=known.launches + 1)
            return launch
        predictions, refused = list[Prediction](), dict[str, str]()
        try:
            for one in self._chips:
                try:
                    predictions.append(predict_launch(launch, one, self._every_block, self._most_cycles))
                except BadLaunch as error:
                    refused[one.name] = str(error)
        except LaunchError as error:
            self._on_failure(number, launch)(0, error)
            raise
        self._found[alike] = Forecast(launch.kernel.title, launch.blocks, launch.threads_per_block, 1, tuple(predictions), refused)
        return launch


def predicted_time(launch: Launch, counts: Sequence[SiteCounts]) -> PredictedTime | None:
    """Predict a launch on an emulator for its chip, and its time without the excess of its costliest accesses.

    `counts`: its transactions. The arrays are restored. Returns None if the chip cannot hold the launch.
    """
    target = launch.kernel.target
    assert isinstance(target, Emulator)
    before, groups = Snapshot(launch), _wasteful(counts)
    try:
        one, changed = Predictor(target.chip).changed(launch, target, groups)
    except BadLaunch:
        return None
    finally:
        before.restore()
    mhz = target.chip.clock_mhz
    return PredictedTime(
        one.us,
        one.launch_us,
        one.limiting,
        tuple(PredictedPart(part.name, part.cycles / mhz, part.moved) for part in one.parts),
        one.share,
        one.spread_us,
        one.missing,
        tuple(Change(tuple(sorted(group)), other.us) for group, other in zip(groups, changed, strict=True)),
    )


def _wasteful(counts: Sequence[SiteCounts]) -> list[frozenset[int]]:
    """Return the instructions with excess transactions of each access, on one line or several, the costliest access first."""
    by_site = {one.site.instruction: one for one in counts}
    excess = {number: found for number, one in by_site.items() if (found := _excess(one)) > LEAST_EXCESS * one.requests}
    groups = [frozenset(group) & excess.keys() for group in groups_of_array([one.site for one in counts], by_site)]
    return sorted(filter(None, groups), key=lambda group: -sum(excess[number] for number in group))[:MOST_CHANGES]


def _excess(one: SiteCounts) -> int:
    """Return the transactions of a site beyond those that contiguous lanes need, and the atomic operations beyond one per address."""
    sectors = (one.excess_sectors or 0) if one.site.space != "local" else 0
    atomics = one.lanes - one.addresses if one.site.is_atomic and one.addresses else 0
    return sectors + (one.conflicts or 0) + atomics


def sample_of(chip: Chip, launch: Launch, resident: int) -> BlockSample | None:
    """Return the blocks that represent all; None if all have to run, because there are few."""
    sms = min(SAMPLED_SMS, chip.sm_count)
    full, rest = divmod(launch.blocks, chip.sm_count)
    if full < 1 or sms == chip.sm_count:
        return None
    waves = 2 * max(1, resident)
    windows = max(WINDOWS, round(SAMPLED_THREADS / (waves * sms * launch.threads_per_block)))
    if windows * waves >= full:
        return BlockSample(sms, 1, chip.sm_count, full * sms + min(sms, rest))
    return BlockSample(sms, waves, (full - waves) // (windows - 1) * chip.sm_count, windows * waves * sms)


def _warm(target: Emulator, launch: Launch, sample: BlockSample | None) -> Sampled:
    """Run a launch, or a sample of it, until L2 holds what an earlier equal launch leaves there, and once more.

    A sample needs an L2 that is as full as that of the chip. So its blocks run once, in two halves: the lines that the second half adds
    give an estimate of the lines of all blocks, and if these do not fit, the sample gets the same share of L2.
    """
    chip = target.chip
    kept = chip.l2_bytes if chip.l2_kept_bytes is None else chip.l2_kept_bytes
    target.empty_caches(kept)
    if sample is None:  # few blocks, which touch few lines
        _events(target, launch, None)
        return Sampled(_events(target, launch, None))
    half = _events(target, launch, replace(sample, blocks=max(1, sample.blocks // 2))).l2_lines
    lines = _events(target, launch, sample).l2_lines
    kept = int(kept / (1 + (WRITTEN_WEIGHT - 1) * target.state.l2.dirty_share))
    each = max(0, lines - half) / max(1, sample.blocks - sample.blocks // 2)
    wanted = lines + each * (launch.blocks - sample.blocks)
    if lines >= FULL_SHARE * kept // chip.line_bytes:  # L2 is full: assume that the other blocks touch as many lines as these
        wanted = lines * launch.blocks / sample.blocks
    share, dram = (max(1.0, one / max(1, lines)) for one in (min(_given_lines(launch), wanted), wanted))
    if share * lines * chip.line_bytes > CROWDED_SHARE * kept:
        target.scale_l2(max(min(SMALLEST_CACHE, kept), int(kept / share)))
        _events(target, launch, sample)
    return Sampled(_events(target, launch, sample), dram)


def _given_lines(launch: Launch) -> float:
    """Return the lines of all arrays of a launch, an upper bound of what it touches; infinite if it may reach other memory."""
    given = {argument.memory for argument in launch.arguments if argument.memory is not None}
    reaches_more = not given or bool(not_restorable(launch))
    return math.inf if reaches_more else sum(nbytes for _, nbytes in given) / launch.kernel.target.chip.line_bytes


def _events(target: Emulator, launch: Launch, sample: BlockSample | None) -> Events:
    events = target.launch(replace(launch, layers=replace(launch.layers, sample=sample))).events
    assert events is not None
    return events


def _resident(target: Emulator, launch: Launch) -> int:
    return target.state.resident_blocks(launch.kernel, launch.threads_per_block, launch.shared_bytes, launch.layers.registers)


def _registers(launch: Launch, chip: Chip) -> int | None:
    """Return the registers per thread by ptxas, for the chip or else for the module's architecture, capped at the chip's limit; None
    without it."""
    try:
        usage = _assembled(launch, chip).kernels.get(launch.kernel.name)
    except (CompileError, MissingDependency):
        return None
    return None if usage is None else min(usage.registers, chip.max_registers_per_thread)


def _assembled(launch: Launch, chip: Chip) -> Cubin:
    """Return the module assembled for the chip, or else for its own architecture. Raises CompileError and MissingDependency."""
    module = launch.kernel.loaded.inlined
    try:
        arch = architecture(module, chip.compute_capability)
    except BadLaunch:
        arch = module.target[0]
    return assemble(module, arch=arch)


def _scheduled(launch: Launch, chip: Chip) -> tuple[Module, MachineCode | None]:
    """Return the module with its kernel in the assembler's order, and its machine code; an estimated order and None without an
    assembler."""
    module, kernel = launch.kernel.loaded.inlined, launch.kernel.name
    try:
        found = attribute(AssembledModule(module, disassemble(_assembled(launch, chip).data)), kernel)
    except (CompileError, MissingDependency):
        found = None
    if found is None:
        return scheduled(module).module, None
    ordered = scheduled(module, kernel, found.ranks)
    return ordered.module, found.in_order(ordered.order)


def _copy_variables(launch: Launch, handle: object, target: Emulator) -> None:
    """Copy the contents of the module's variables from where the launch is bound."""
    old, new = (getattr(one, "addresses", {}) for one in (launch.kernel.loaded.handle, handle))
    for name, address in new.items():
        nbytes = launch.kernel.module.variables[name].nbytes
        if name in old and nbytes:
            target.memory.view(address, nbytes)[:] = target.memory.view(old[name], nbytes)
            target.memory.wrote(address, nbytes)


# -- what the warps wait for -----------------------------------------------------------------------------------------------------------


def waits_of(module: Module, function: Function, events: Events) -> tuple[Wait, ...]:
    """Return what the warps spent their time on, the longest first, each with the line that causes it."""
    if events.stalls is None or not events.warp_cycles:
        return ()
    instructions = list(function.instructions())
    issued, dependency, contention = (events.stalls[: len(instructions), STALL_FIELDS.index(name)] for name in STALL_FIELDS)
    found: dict[tuple[str, str], float] = {}

    def add(cause: str, place: str, cycles: float) -> None:
        found[cause, place] = found.get((cause, place), 0.0) + cycles

    makers = _makers(instructions)
    for number, cycles in enumerate(dependency.tolist()):
        if cycles > 0:
            maker = instructions[makers[number]] if number in makers else instructions[number]
            add(_cause(maker), _place(module, maker), cycles)
    for number, cycles in enumerate(contention.tolist()):
        if cycles > 0:
            add("issue slots and pipes", _place(module, instructions[number]), cycles)
    add("instructions", "", float(issued.sum()))
    rest = events.warp_cycles - sum(found.values())
    if rest > 0:
        add("barriers and branches", "", rest)
    longest = sorted(found.items(), key=lambda item: -item[1])[:SHOWN_WAITS]
    return tuple(Wait(cause, place, cycles / events.warp_cycles) for (cause, place), cycles in longest)


def _makers(instructions: Sequence[Instruction]) -> dict[int, int]:
    """Map each instruction to the earlier one in program order that produces an operand and takes longest, preferably a memory access."""
    writer: dict[str, int] = {}
    found = {}
    for number, one in enumerate(instructions):
        candidates = [writer[name] for name in values_read(one) if name in writer]
        if candidates:
            found[number] = max(candidates, key=lambda place: (_rank(instructions[place]), place))
        for name in values_written(one):
            writer[name] = number
    return found


def _rank(one: Instruction) -> int:
    """Return a rank by latency: global memory above other memory, and that above arithmetic."""
    if one.form.effect == "texture":
        return 2
    access = memory_access(one)
    return 0 if access is None or access.space == "param" else 2 if access.space in ("global", "generic") else 1


def _cause(one: Instruction) -> str:
    if one.form.effect == "texture":
        return "textures"
    access = memory_access(one)
    return "arithmetic" if access is None else _MEMORY.get(access.space, access.space)


def _place(module: Module, one: Instruction) -> str:
    """Return file and line, such as `transpose.cu:18`; empty if unknown."""
    if one.location is None:
        return ""
    location = module.users_location(one.location)
    name = module.files.get(location.file, "")
    return f"{name.replace(chr(92), '/').rpartition('/')[2]}:{location.line}" if name else ""
