"""Emit an in-order scoreboard for each warp into the code of a kernel.

An instruction issues when the registers that it needs are ready, its sub-core has a free issue slot and its pipe is free; the next
instruction of the warp issues a cycle later at the earliest. A result is ready after the instruction's latency: a load does not stall the
warp, the first use of its value does. The times at which registers become ready are stored behind the registers of the warp, as cycles
since the emulator was created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce

from memlane.chip import STALL_FIELDS, Chip
from memlane.emulate.clock.assembled import Weight, weights
from memlane.emulate.clock.issue import Clock
from memlane.emulate.clock.latency import Timing, timing_of
from memlane.emulate.code.build import I32, I64, Value, constant
from memlane.emulate.layout import BLOCK, CONTEXT, COPY_GROUPS, WARP
from memlane.emulate.lower.body import Step, reads
from memlane.emulate.lower.protocols import Emission
from memlane.emulate.runtime.helper import invoke
from memlane.launch import Made
from memlane.ptx import Immediate, Instruction, Special, is_product, values_written

READY_BYTES = 8
MOST_USES = 64
"""Most uses of its pipe that an instruction is charged for."""
STALL_BYTES = 8 * len(STALL_FIELDS)
_CLOSED = {"cp.async.commit_group": ("copies",), "cp.async.bulk.commit_group": ("bulk", "bulk_reads")}
"""Fields of WARP in which a commit instruction closes the group of the copies since the last commit."""


class Scoreboard:
    """Times of the current segment of code, during code generation."""

    def __init__(self, k: Emission, chip: Chip, offsets: dict[str, int]) -> None:
        self._k, self._chip, self._clock = k, chip, Clock(chip, is_counted=k.layers.predicts)
        self._offsets = offsets
        self._weights: list[Weight] = []
        self._ready: dict[str, Value] = {}
        self._changed: set[str] = set()
        self._time: Value = None
        self._complete: Value = None
        self._sm = k.e.get_pointer(k.block, BLOCK, "sm_state")
        self._subcore = k.e.get(k.warp, WARP, "subcore")
        self.start: Value = constant(I64, 0)
        """Cycle in which the current instruction issues."""

    def begin_place(self) -> None:
        """Load the warp's time from its record at the start of a segment."""
        self._time = self._k.e.get(self._k.warp, WARP, "time")
        self._ready.clear()
        self._changed.clear()

    def begin(self, step: Step) -> None:
        """Emit the code that issues an instruction: wait for its operands, its issue slot and its pipe."""
        if step.resumes:
            self._complete = self._time
            return
        e, timing, made = self._k.e, self._timing(step.instruction), self._made_of(step)
        if made is not None and made.catches_up:
            self._catch_up(step, made.catches_up)
        when = before = self._time
        # `membar.cta` does not wait on sm_90; the other fences wait for every outstanding access.
        if step.instruction.form.effect == "fence" and not (step.instruction.opcode == "membar" and step.instruction.has("cta")):
            when = self._later(when, e.get(self._k.warp, WARP, "outstanding"))
        for name, groups in _awaited_copies(step.instruction):
            for group in groups:
                when = self._later(when, e.get(self._k.warp, WARP, name, group))
        for name in _CLOSED.get(step.instruction.name, ()):
            self._close_group(name)
        for name in dict.fromkeys(_waited_for(step.instruction)):
            ready = self._ready_time(name)
            when = when if ready is None else self._later(when, ready)
        reads_clock = self._special(step.instruction).startswith("%clock")
        if reads_clock:  # the clock can be read only every few cycles, as two reads with one instruction between them show
            when = self._later(when, e.get(self._k.warp, WARP, "next_clock"))
        if made is not None and made.skipped != (0, 0):
            self._skip(made)
        if self._weights and not self._issue_weighed(step, timing, when, made):
            return
        if not self._weights:
            self.start = invoke(e, self._clock.issue(timing.pipe), self._sm, self._subcore, when)
            self._complete = e.add(self.start, constant(I64, timing.latency))
        if reads_clock:
            e.put(self._complete, self._k.warp, WARP, "next_clock")
        waits = step.instruction.form.effect in ("branch", "fence")
        self._time = self._complete if waits else e.add(self.start, constant(I64, timing.issues))
        if made is not None:
            self._pass(made, before, waits)

    def weigh(self, instructions: Sequence[Instruction], skips: Collection[int]) -> None:
        """Time each instruction by an estimate of its machine code; `skips` is that of `assembled.weights`."""
        self._weights = weights(instructions, skips)

    def _made_of(self, step: Step) -> Made | None:
        """Return the machine code of an instruction; None where it is not known, and for tensor core operations, which are estimated."""
        machine = self._k.layers.machine
        if machine is None or step.index >= len(machine.made) or step.instruction.opcode in ("mma", "wgmma"):
            return None
        return machine.made[step.index]

    def _issue_weighed(self, step: Step, timing: Timing, when: Value, made: Made | None) -> bool:
        """Issue the machine instructions of a PTX instruction; return False if it has none."""
        e, weight = self._k.e, self._weights[step.index]
        pipes = made.pipes if made is not None else _pipes(weight)
        if not pipes:  # merged into another instruction, which waits for the operands
            self.start, self._complete = self._time, when
            return False
        first = last = invoke(e, self._clock.issue(pipes[0]), self._sm, self._subcore, when)
        for pipe in pipes[1:]:
            last = invoke(e, self._clock.issue(pipe), self._sm, self._subcore, e.add(last, constant(I64, 1)))
        if made is None:
            for _ in range(len(pipes), min(weight.uses, MOST_USES)):
                last = invoke(e, self._clock.occupy(weight.pipe), self._sm, self._subcore, e.add(last, constant(I64, 1)))
        if step.instruction.opcode in ("bar", "barrier") and self._clock.barrier is not None:
            last = invoke(e, self._clock.barrier, self._sm, last, constant(I32, 1))
        if made is None or not made.is_late:
            self._note_stall(step.index, e.sub(when, self._time), e.sub(last, when))
        if made is not None and weight.latency:  # the latency of a whole instruction sequence
            self._complete = e.add(first, constant(I64, weight.latency))
        else:
            self._complete = e.add(last, constant(I64, weight.latency or self._latency(timing, pipes if made is not None else ())))
        self.start = last
        return True

    def _latency(self, timing: Timing, pipes: Sequence[str]) -> int:
        """Return the latency of the result after the last of the machine instructions on `pipes` has issued."""
        known = [round(float(getattr(self._chip.latency, pipe))) for pipe in pipes if pipe]
        return min(timing.latency, max(known)) if known else timing.latency

    def _pass(self, made: Made, before: Value, waits: bool) -> None:
        """Advance the warp's time by the control words of the machine code; a late instruction does not delay the instructions after it."""
        e, warp = self._k.e, self._k.warp
        if made.is_late:
            e.put(self._later(e.get(warp, WARP, "late"), self._time), warp, WARP, "late")
            self._time = e.add(before, constant(I64, max(1, len(made.pipes))))
        elif not waits:
            self._time = self._later(self._time, e.add(before, constant(I64, made.cycles)))

    def _skip(self, made: Made) -> None:
        """Issue the predicated code of a branch that is not a jump in the machine code, if none of the warp's lanes executes that code."""
        e, k = self._k.e, self._k
        is_for_none = e.icmp_unsigned("==", k.active, k.mask)
        slots, accesses = (e.select(is_for_none, constant(I32, amount), constant(I32, 0)) for amount in made.skipped)
        self._time = invoke(e, self._clock.pass_over(), self._sm, self._subcore, self._time, slots)
        invoke(e, self._clock.lsu, self._sm, self._time, accesses)

    def _catch_up(self, step: Step, turns: int) -> None:
        """Wait for late instructions at every `turns`-th execution, as at the end of so many iterations of a loop; 1: at each execution."""
        e, warp, late = self._k.e, self._k.warp, self._later(self._time, self._k.e.get(self._k.warp, WARP, "late"))
        if turns > 1:
            turn = e.add(e.get(warp, WARP, "turn"), constant(I64, 1))
            is_last = e.icmp_signed(">=", turn, constant(I64, turns))
            e.put(e.select(is_last, constant(I64, 0), turn), warp, WARP, "turn")
            late = e.select(is_last, late, self._time)
        self._note_stall(self._last_late(step.index), e.sub(late, self._time), constant(I64, 0), 0)
        self._time = late

    def _last_late(self, index: int) -> int:
        """Return the index of the last late instruction at or before `index`; `index` if there is none."""
        machine = self._k.layers.machine
        assert machine is not None
        return next((number for number in range(index, -1, -1) if machine.made[number].is_late), index)

    def _note_stall(self, index: int, dependency: Value, contention: Value, times: int = 1) -> None:
        """Add to the stall counters of an instruction: executions, cycles of waiting for operands, and then for an issue slot and pipe."""
        e, k = self._k.e, self._k
        row = e.at(e.get_pointer(k.context, CONTEXT, "stalls"), constant(I64, index * STALL_BYTES))
        for number, cycles in enumerate((constant(I64, times), dependency, contention)):
            place = e.at(row, 8 * number)
            e.store(e.add(e.load(place, typ=I64), cycles), place)

    def completes(self, when: Value) -> None:
        """Set the cycle `when` in which the current instruction, a memory access, completes, instead of that of the latency table."""
        e, k = self._k.e, self._k
        self._complete = when
        e.put(self._later(e.get(k.warp, WARP, "outstanding"), when), k.warp, WARP, "outstanding")
        if k.instruction.form.effect == "copy" and not k.instruction.has("bulk"):
            e.put(self._later(e.get(k.warp, WARP, "copies"), when), k.warp, WARP, "copies")

    def _close_group(self, name: str) -> None:
        """Close the group of the copies since the last commit, and shift every older group by one place."""
        e, warp = self._k.e, self._k.warp
        times = [e.get(warp, WARP, name, place) for place in range(1 + COPY_GROUPS)]
        oldest = self._later(times[-1], times[-2])
        for place, time in enumerate([constant(I64, 0), *times[:-2], oldest]):
            e.put(time, warp, WARP, name, place)

    @property
    def copies_complete(self) -> Value:
        """Return the cycle in which all asynchronous copies of the warp complete, except bulk copies."""
        times = [self._k.e.get(self._k.warp, WARP, "copies", place) for place in range(1 + COPY_GROUPS)]
        return reduce(self._later, times)

    def end(self, step: Step) -> None:
        """Mark the registers that the instruction writes as ready when it completes."""
        for name in values_written(step.instruction):
            self._ready[name] = self._complete
            self._changed.add(name)

    def save(self, needed: Iterable[str]) -> None:
        """Store the warp's time and the ready times of the registers `needed` later that changed in this segment."""
        e, warp = self._k.e, self._k.warp
        e.put(self._time, warp, WARP, "time")
        for name in sorted(self._changed.intersection(needed)):
            e.store(self._ready[name], e.at(warp, self._offsets[name]))

    @property
    def barrier_opens(self) -> Value:
        """Return the cycle in which the barrier opens if the threads that arrive now are the last."""
        return self._complete

    def _ready_time(self, name: str) -> Value:
        if name not in self._ready and name in self._offsets:
            self._ready[name] = self._k.e.load(self._k.e.at(self._k.warp, self._offsets[name]), typ=I64)
        return self._ready.get(name)

    def _later(self, a: Value, b: Value) -> Value:
        return self._k.e.intrinsic("smax", [a, b])

    def _timing(self, instruction: Instruction) -> Timing:
        form = instruction.form
        letter = next((letter for letter in ("a", "b", "d") if letter in form.types), "")
        space = next(iter(form.addresses.values()), "")
        return timing_of(self._chip, instruction.name, form.types.get(letter, ""), space, self._special(instruction))

    def _special(self, instruction: Instruction) -> str:
        """Return the name of the special register that a `mov` reads, or an empty string."""
        source = instruction.operand("a") if instruction.opcode == "mov" else None
        return source.name if isinstance(source, Special) else ""


def _pipes(weight: Weight) -> tuple[str, ...]:
    """Return the pipe of each estimated machine instruction; empty for one that takes only an issue slot."""
    return tuple(weight.pipe if number < weight.uses else "" for number in range(weight.slots))


def _waited_for(instruction: Instruction) -> Iterable[str]:
    """Return the registers that must be ready at issue.

    The accumulators of an asynchronous product are left out, since consecutive products forward them in the pipe."""
    names = reads(instruction)
    sums = values_written(instruction) if is_product(instruction) else ()
    return [name for name in names if name not in sums]


def _awaited_copies(instruction: Instruction) -> Iterable[tuple[str, range]]:
    """Yield the field of WARP with the completion times of the copies that an instruction waits for, and the places in that field.

    `wait_all` waits for all copies, `wait_group n` for all groups but the newest n. Other instructions yield nothing."""
    if instruction.opcode != "cp" or not (instruction.has("wait_all") or instruction.has("wait_group")):
        return
    name = "copies" if not instruction.has("bulk") else "bulk_reads" if instruction.has("read") else "bulk"
    count = instruction.operand("n")
    if instruction.has("wait_all"):
        yield name, range(1 + COPY_GROUPS)
    elif isinstance(count, Immediate):
        yield name, range(1 + count.value, 1 + COPY_GROUPS)
