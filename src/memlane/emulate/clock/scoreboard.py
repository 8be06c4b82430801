"""The clock layer in the code of a kernel: an in-order scoreboard for each warp.

An instruction is issued when the registers it needs are ready, its sub-core has a free issue slot and its pipe is free; the next one of
the warp follows a cycle later at the earliest. A result is ready after the instruction's latency; a load does not wait, whoever needs its
value does. The times at which registers become ready lie behind the registers of the warp, as cycles since the emulator was made.
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
"""Of a pipe by one instruction."""
STALL_BYTES = 8 * len(STALL_FIELDS)
_CLOSED = {"cp.async.commit_group": ("copies",), "cp.async.bulk.commit_group": ("bulk", "bulk_reads")}
"""The fields of WARP in which an instruction makes a group of the copies since the last one."""


class Scoreboard:
    """The times of the current place, while its code is written."""

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
        """The cycle in which the current instruction is issued."""

    def begin_place(self) -> None:
        """The warp's time comes from its record."""
        self._time = self._k.e.get(self._k.warp, WARP, "time")
        self._ready.clear()
        self._changed.clear()

    def begin(self, step: Step) -> None:
        """Issue an instruction."""
        if step.resumes:
            self._complete = self._time
            return
        e, timing, made = self._k.e, self._timing(step.instruction), self._made_of(step)
        if made is not None and made.catches_up:
            self._catch_up(step, made.catches_up)
        when = before = self._time
        # `membar.cta` waits for nothing on sm_90; the other fences wait for every access under way.
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
        if reads_clock:  # one read of the clock every few cycles: what two reads with one instruction between them show
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
        """Take the times of what an assembler would make of the instructions of the kernel, by their indices; `skips` as for `weights`."""
        self._weights = weights(instructions, skips)

    def _made_of(self, step: Step) -> Made | None:
        """What the assembler made of an instruction, where that is known and no estimate is better."""
        machine = self._k.layers.machine
        if machine is None or step.index >= len(machine.made) or step.instruction.opcode in ("mma", "wgmma"):
            return None
        return machine.made[step.index]

    def _issue_weighed(self, step: Step, timing: Timing, when: Value, made: Made | None) -> bool:
        """Issue what the assembler makes of an instruction; false where that is nothing."""
        e, weight = self._k.e, self._weights[step.index]
        pipes = made.pipes if made is not None else _pipes(weight)
        if not pipes:  # a part of another instruction, which waits for the operands
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
        if made is not None and weight.latency:  # of a whole program
            self._complete = e.add(first, constant(I64, weight.latency))
        else:
            self._complete = e.add(last, constant(I64, weight.latency or self._latency(timing, pipes if made is not None else ())))
        self.start = last
        return True

    def _latency(self, timing: Timing, pipes: Sequence[str]) -> int:
        """Of the result of machine instructions, the last of which has issued."""
        known = [round(float(getattr(self._chip.latency, pipe))) for pipe in pipes if pipe]
        return min(timing.latency, max(known)) if known else timing.latency

    def _pass(self, made: Made, before: Value, waits: bool) -> None:
        """Let the warp's time go on as the control words of the assembled code say; what is late keeps nothing waiting."""
        e, warp = self._k.e, self._k.warp
        if made.is_late:
            e.put(self._later(e.get(warp, WARP, "late"), self._time), warp, WARP, "late")
            self._time = e.add(before, constant(I64, max(1, len(made.pipes))))
        elif not waits:
            self._time = self._later(self._time, e.add(before, constant(I64, made.cycles)))

    def _skip(self, made: Made) -> None:
        """Pass what the branch leaves out where it is no jump: all of it under a guard that holds for no lane."""
        e, k = self._k.e, self._k
        is_for_none = e.icmp_unsigned("==", k.active, k.mask)
        slots, accesses = (e.select(is_for_none, constant(I32, amount), constant(I32, 0)) for amount in made.skipped)
        self._time = invoke(e, self._clock.pass_over(), self._sm, self._subcore, self._time, slots)
        invoke(e, self._clock.lsu, self._sm, self._time, accesses)

    def _catch_up(self, step: Step, turns: int) -> None:
        """Wait for what was late, at each execution or at that in which so many turns of a loop are complete."""
        e, warp, late = self._k.e, self._k.warp, self._later(self._time, self._k.e.get(self._k.warp, WARP, "late"))
        if turns > 1:
            turn = e.add(e.get(warp, WARP, "turn"), constant(I64, 1))
            is_last = e.icmp_signed(">=", turn, constant(I64, turns))
            e.put(e.select(is_last, constant(I64, 0), turn), warp, WARP, "turn")
            late = e.select(is_last, late, self._time)
        self._note_stall(self._last_late(step.index), e.sub(late, self._time), constant(I64, 0), 0)
        self._time = late

    def _last_late(self, index: int) -> int:
        """The last instruction in front of one that is late."""
        machine = self._k.layers.machine
        assert machine is not None
        return next((number for number in range(index, -1, -1) if machine.made[number].is_late), index)

    def _note_stall(self, index: int, dependency: Value, contention: Value, times: int = 1) -> None:
        """Add what an instruction waited for its operands, and then for its issue slot and its pipe."""
        e, k = self._k.e, self._k
        row = e.at(e.get_pointer(k.context, CONTEXT, "stalls"), constant(I64, index * STALL_BYTES))
        for number, cycles in enumerate((constant(I64, times), dependency, contention)):
            place = e.at(row, 8 * number)
            e.store(e.add(e.load(place, typ=I64), cycles), place)

    def completes(self, when: Value) -> None:
        """The current instruction, a memory access, completes at another time than the table says."""
        e, k = self._k.e, self._k
        self._complete = when
        e.put(self._later(e.get(k.warp, WARP, "outstanding"), when), k.warp, WARP, "outstanding")
        if k.instruction.form.effect == "copy" and not k.instruction.has("bulk"):
            e.put(self._later(e.get(k.warp, WARP, "copies"), when), k.warp, WARP, "copies")

    def _close_group(self, name: str) -> None:
        """The copies since the last group become one, and every older group is one place further from the newest."""
        e, warp = self._k.e, self._k.warp
        times = [e.get(warp, WARP, name, place) for place in range(1 + COPY_GROUPS)]
        oldest = self._later(times[-1], times[-2])
        for place, time in enumerate([constant(I64, 0), *times[:-2], oldest]):
            e.put(time, warp, WARP, name, place)

    @property
    def copies_complete(self) -> Value:
        """When all asynchronous copies of the warp are complete, but for those in bulk."""
        times = [self._k.e.get(self._k.warp, WARP, "copies", place) for place in range(1 + COPY_GROUPS)]
        return reduce(self._later, times)

    def end(self, step: Step) -> None:
        """The results are ready when the instruction completes."""
        for name in values_written(step.instruction):
            self._ready[name] = self._complete
            self._changed.add(name)

    def save(self, needed: Iterable[str]) -> None:
        """Store the warp's time and when the registers that are needed later are ready."""
        e, warp = self._k.e, self._k.warp
        e.put(self._time, warp, WARP, "time")
        for name in sorted(self._changed.intersection(needed)):
            e.store(self._ready[name], e.at(warp, self._offsets[name]))

    @property
    def barrier_opens(self) -> Value:
        """When the threads that arrive now may go on if nobody else is missing."""
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
        """The special register that a move reads."""
        source = instruction.operand("a") if instruction.opcode == "mov" else None
        return source.name if isinstance(source, Special) else ""


def _pipes(weight: Weight) -> tuple[str, ...]:
    """Of each machine instruction that an estimate counts, the pipe that it takes."""
    return tuple(weight.pipe if number < weight.uses else "" for number in range(weight.slots))


def _waited_for(instruction: Instruction) -> Iterable[str]:
    """The registers that have to be ready: of an asynchronous product not what it adds to, for products follow each other in the pipe."""
    names = reads(instruction)
    sums = values_written(instruction) if is_product(instruction) else ()
    return [name for name in names if name not in sums]


def _awaited_copies(instruction: Instruction) -> Iterable[tuple[str, range]]:
    """The fields of WARP with the times of the copies that it waits for, and the places there: of all, or of all groups but so many of the
    newest."""
    if instruction.opcode != "cp" or not (instruction.has("wait_all") or instruction.has("wait_group")):
        return
    name = "copies" if not instruction.has("bulk") else "bulk_reads" if instruction.has("read") else "bulk"
    count = instruction.operand("n")
    if instruction.has("wait_all"):
        yield name, range(1 + COPY_GROUPS)
    elif isinstance(count, Immediate):
        yield name, range(1 + count.value, 1 + COPY_GROUPS)
