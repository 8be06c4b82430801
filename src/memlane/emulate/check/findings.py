"""Turn the notes of generated code into reports in words."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from memlane.chip import LANES
from memlane.emulate.check.records import (
    BLOCK_ENDED,
    BLOCK_NOT_STARTED,
    DISTANCE_SHIFT,
    EXITED_BARRIER,
    LANE_NOT_IN_MASK,
    MISALIGNED,
    MOST_WARPS,
    NOT_AWAITED,
    OUT_OF_BOUNDS,
    RACE_WITH_READ,
    RACE_WITH_WRITE,
    SPLIT_BARRIER,
    UNEQUAL_MASKS,
    UNWRITTEN,
)
from memlane.emulate.layout import CLUSTER_SHIFT, MOST_RANKS, RANK_MASK, WINDOW_BYTES
from memlane.emulate.lower.kernel import CompiledKernel
from memlane.emulate.run.aimed_access import aimed_allocations, argument_name, distance_to
from memlane.emulate.run.device import DeviceState
from memlane.emulate.run.faults import line_of, position, relative_to
from memlane.emulate.run.memory import Allocation
from memlane.launch import SPACE_NAMES, Launch, Report, cluster_of
from memlane.launch.reports import Actor
from memlane.number_format import plural
from memlane.ptx import INSERTED, Instruction, demangle, past_tense

_OF_CONTENTS = (UNWRITTEN, RACE_WITH_WRITE, RACE_WITH_READ)
"""Kinds of finding about the memory that an access reaches."""


@dataclass(frozen=True)
class _Note:
    """A decoded row of the table of findings."""

    row: Any
    kind: int
    who: Actor
    other: Actor
    instruction: Instruction
    other_instruction: Instruction

    @property
    def address(self) -> int:
        return int(self.row["address"])

    @property
    def nbytes(self) -> int:
        return int(self.row["nbytes"])

    @property
    def space(self) -> str:
        return SPACE_NAMES[int(self.row["space"])]

    def access(self) -> str:
        """Describe the access, such as `block (0, 0, 0), thread (3, 0, 0) wrote 4 bytes (st.shared.f32)`."""
        return f"{_thread(self.who)} {past_tense(self.instruction, self.space)} {plural(self.nbytes, 'byte')} ({self.who.op})"


class Findings:
    """The findings of one launch, in words."""

    def __init__(self, device: DeviceState, launch: Launch, compiled: CompiledKernel, context: Any) -> None:
        self._device, self._launch, self._compiled, self._context = device, launch, compiled, context

    def reports(self, rows: npt.NDArray[Any]) -> tuple[Report, ...]:
        """Return one report per kind of finding, pair of source lines and overrun array, in source order."""
        merged: dict[tuple[Any, ...], Report] = {}
        astray = {int(row["key"]) >> 8 & 0xFF_FFFF for row in rows if int(row["key"]) & 0xF == OUT_OF_BOUNDS}
        # Show the first example of the most distant threads: an order between those orders the others too.
        for row in sorted(rows, key=lambda row: (-(int(row["key"]) >> DISTANCE_SHIFT & 3), int(row["turn"]))):
            note = self._decode(row)
            report = self._report(note)
            if _inserted(note.instruction) or (report.other is not None and _inserted(note.other_instruction)):
                continue  # probes share memory of their own, which is not the user's
            if note.kind in _OF_CONTENTS and int(row["key"]) >> 8 & 0xFF_FFFF in astray and self._overrun(note):
                continue  # that the access left its array is reported, so what it finds in another one is no news
            if note.kind == SPLIT_BARRIER and _copies_of_one(note.instruction, note.other_instruction):
                continue  # a kernel in which only some warps are traced contains its body twice
            places = [report.place, *([report.other.place] if report.other else [])]
            # A line that overruns two arrays needs two corrections.
            beyond = report.memory if report.kind == "out of bounds" else ""
            key = (report.kind, report.space, beyond, *(sorted(places) if report.kind == "data race" else places))
            known = merged.get(key)
            merged[key] = report if known is None else replace(known, count=known.count + report.count)
        return tuple(sorted(merged.values(), key=lambda report: (report.who.file, report.who.line, report.kind)))

    def _decode(self, row: Any) -> _Note:
        key = int(row["key"])
        instruction = self._compiled.instructions[key >> 8 & 0xFF_FFFF]
        other = self._compiled.instructions[key >> 32]
        return _Note(
            row,
            key & 0xF,
            self.actor(instruction, int(row["who"]), int(row["lane"])),
            self.actor(other, int(row["other_who"]), int(row["other_lane"])),
            instruction,
            other,
        )

    @property
    def instructions(self) -> Sequence[Instruction]:
        """Instructions of the launch, by their numbers in the shadow."""
        return self._compiled.instructions

    @property
    def kernel(self) -> str:
        """The kernel's title."""
        return self._launch.kernel.title

    def actor(self, instruction: Instruction, who: int, lane: int) -> Actor:
        """Return the thread that executed an instruction; `who` is its block times 32 plus its warp."""
        file, line = line_of(self._launch.kernel.module, instruction)
        thread = who % MOST_WARPS * LANES + lane
        return Actor(position(who // MOST_WARPS, self._launch.grid), position(thread, self._launch.block), file, line, instruction.name)

    def _report(self, note: _Note) -> Report:
        words: dict[int, Callable[[_Note], Report]] = {
            OUT_OF_BOUNDS: self._out_of_bounds,
            MISALIGNED: self._misaligned,
            UNWRITTEN: self._unwritten,
            RACE_WITH_WRITE: self._race,
            RACE_WITH_READ: self._race,
            EXITED_BARRIER: self._exited_barrier,
            SPLIT_BARRIER: self._split_barrier,
            LANE_NOT_IN_MASK: self._foreign_mask,
            UNEQUAL_MASKS: self._unequal_masks,
            BLOCK_NOT_STARTED: self._not_started,
            BLOCK_ENDED: self._ended,
            NOT_AWAITED: self._not_awaited,
        }
        return words[note.kind](note)

    def _make_report(self, kind: str, note: _Note, what: str, remedy: str, *, other: bool = False, memory: str | None = None) -> Report:
        return Report(
            kind,
            self._launch.kernel.title,
            note.who,
            note.other if other else None,
            what,
            remedy,
            int(note.row["count"]),
            None if memory is None else note.address,
            None if memory is None else note.nbytes,
            "" if memory is None else note.space,
            memory or "",
        )

    # -- accesses --------------------------------------------------------------------------------------------------------------------

    def _out_of_bounds(self, note: _Note) -> Report:
        head = f"{note.access()} at {note.address:#x}"
        if self._names_block(note):
            return self._out_of_block(note, head)
        size = self._size(note.space)
        if size is not None:
            named = note.space.partition("::")[0]
            what = f"{head}, outside the {plural(size, 'byte')} of {named} memory of the {'thread' if note.space == 'local' else 'block'}"
            return self._make_report("out of bounds", note, what, "Correct the index, or make the array larger.", memory="")
        freed = _find_allocation(self._device.shadows.freed, note.address)
        if freed is not None:
            what = f"{head}, {plural(note.address - freed.low, 'byte')} into an allocation of {plural(freed.nbytes, 'byte')} that was freed"
            return self._make_report("use after free", note, what, "Keep the array alive until the launch has finished.", memory="")
        aimed = aimed_allocations(self._device.memory, self._launch, note.instruction)
        neighbour = min(aimed, key=lambda one: distance_to(note.address, one), default=self._device.memory.neighbour(note.address))
        if neighbour is None or distance_to(note.address, neighbour) > WINDOW_BYTES:
            what = f"{head}, which is not near any allocation"
            return self._make_report("out of bounds", note, what, "Pass a pointer to an array of this target.", memory="")
        named = self._argument(neighbour)
        what = f"{head}, {relative_to(note.address, neighbour)}{f', {named}' if named else ''}"
        other = self._device.memory.at(note.address)
        if other is not None:
            what += f", and inside another array{f', {name}' if (name := self._argument(other)) else ''}"
        return self._make_report(
            "out of bounds", note, what, "Guard the access with the array's extent, or correct the index.", memory=named
        )

    # -- clusters --------------------------------------------------------------------------------------------------------------------

    def _shape(self) -> tuple[int, int, int]:
        return cluster_of(self._launch.kernel, self._launch.cluster) or (1, 1, 1)

    def _names_block(self, note: _Note) -> bool:
        """Return whether an address of shared memory was meant for a block of the cluster."""
        shape, rank = self._shape(), (note.address >> CLUSTER_SHIFT) - 1
        if note.space == "shared":
            return 0 <= rank < shape[0] * shape[1] * shape[2]
        return note.space == "shared::cluster" and rank < MOST_RANKS

    def _named_block(self, note: _Note) -> tuple[int, int, int] | None:
        """Return the block whose shared memory an address belongs to; None if the cluster has no such rank."""
        shape, rank = self._shape(), (note.address >> CLUSTER_SHIFT) - 1
        if rank < 0:
            return note.who.block
        if rank >= shape[0] * shape[1] * shape[2]:
            return None
        x, y, z = (at - at % size + more for at, size, more in zip(note.who.block, shape, position(rank, shape), strict=True))
        return x, y, z

    def _out_of_block(self, note: _Note, head: str) -> Report:
        block, shape = self._named_block(note), self._shape()
        if block is None:
            rank, most = (note.address >> CLUSTER_SHIFT) - 1, shape[0] * shape[1] * shape[2] - 1
            what = f"{head}, in the shared memory of the block of rank {rank}, but its cluster has only ranks 0 to {most}"
            return self._make_report("out of bounds", note, what, "Correct the rank that is given to mapa (map_shared_rank).", memory="")
        if note.space == "shared":
            what = f"{head}, which mapa mapped to the shared memory of block {block}"
            return self._make_report("out of bounds", note, what, "Access it as .shared::cluster, or by its generic address.", memory="")
        inner, size = note.address & RANK_MASK, int(self._context["shared_bytes"])
        what = f"{head}, {inner:#x} in the shared memory of block {block}, outside its {plural(size, 'byte')}"
        return self._make_report("out of bounds", note, what, "Correct the index, or make the array larger.", memory="")

    def _not_started(self, note: _Note) -> Report:
        what = f"{note.access()} in the shared memory of block {self._named_block(note)} of its cluster, which may not have started"
        return self._make_report("barrier", note, what, "Synchronise the cluster (cluster.sync()) before the first access.")

    def _ended(self, note: _Note) -> Report:
        what = f"{note.access()} in the shared memory of block {self._named_block(note)} of its cluster, which had ended"
        return self._make_report("barrier", note, what, "Synchronise the cluster (cluster.sync()) before its blocks end.")

    def _misaligned(self, note: _Note) -> Report:
        memory = self._memory(note)
        what = f"{note.access()} at {note.address:#x}{f', {memory},' if memory else ','} which is not a multiple of {note.nbytes}"
        return self._make_report("misaligned", note, what, "Align the data, or access it in smaller parts.", memory=memory)

    def _unwritten(self, note: _Note) -> Report:
        memory = self._memory(note)
        what = f"{note.access()} at {_location(note.space, note.address, memory)}{self._overrun(note)}, which no thread has written"
        remedy = "Copy data there or clear it before the launch, or write it in the kernel first."
        if note.space != "global":
            remedy = "Write it first; if another thread writes it, put a barrier between the write and the read."
        return self._make_report("never written", note, what, remedy, memory=memory)

    def _race(self, note: _Note) -> Report:
        memory = self._memory(note)
        other = note.other
        same_block = other.block == note.who.block
        where = f"thread {other.thread}" if same_block else _thread(other)
        verb = "read" if note.kind == RACE_WITH_READ else past_tense(note.other_instruction, note.space)
        what = (
            f"{note.access()} at {_location(note.space, note.address, memory)}{self._overrun(note)}, "
            f"which {where} had {_past_participle(verb)} at {other.place} ({other.op}), and nothing orders the two"
        )
        same_warp = same_block and self._warp(note.who) == self._warp(other)
        remedy = "Use an atomic operation, or order them by a __threadfence() and an atomic flag on both sides."
        if note.space in ("shared", "shared::cluster") and not same_block:
            remedy = "Put cluster.sync() between the two, or use an atomic operation."
        elif same_warp:
            remedy = "Put __syncwarp() between the two, or use an atomic operation."
        elif same_block:
            remedy = "Put __syncthreads() between the two, or use an atomic operation."
        return self._make_report("data race", note, what, remedy, other=True, memory=memory)

    # -- barriers and masks ----------------------------------------------------------------------------------------------------------

    def _exited_barrier(self, note: _Note) -> Report:
        gone = note.other
        what = f"{_thread(note.who)} waited for its whole block ({note.who.op}), but thread {gone.thread} had exited at {gone.place}"
        remedy = "Let every thread reach the barrier: guard the work, do not return before it."
        return self._make_report("barrier", note, what, remedy, other=True)

    def _split_barrier(self, note: _Note) -> Report:
        away = note.other
        what = f"{_thread(note.who)} waited for its whole block ({note.who.op}), but thread {away.thread} reached the one at {away.place}"
        remedy = "Let all threads of the block reach the same barrier: move it out of the branch."
        return self._make_report("barrier", note, what, remedy, other=True)

    def _masked(self, note: _Note) -> str:
        return f"{_thread(note.who)}, lane {int(note.row['lane'])} of its warp, executed {note.who.op} with the mask {note.address:#010x}"

    def _foreign_mask(self, note: _Note) -> Report:
        remedy = "Include every lane that executes it in the mask, or let the others branch around it."
        return self._make_report("mask", note, f"{self._masked(note)}, which does not include it", remedy)

    def _unequal_masks(self, note: _Note) -> Report:
        what = f"{self._masked(note)}, but thread {note.other.thread}, which it includes, passed a different mask"
        return self._make_report("mask", note, what, "Pass the same mask in all lanes that exchange values.", other=True)

    def _not_awaited(self, note: _Note) -> Report:
        what = f"{_thread(note.who)} used a register of the product at {note.other.place} ({note.other.op}) before any wait for it"
        return self._make_report("missing wait", note, f"{what} since", "Put wgmma.wait_group before it.", other=True)

    # -- names -----------------------------------------------------------------------------------------------------------------------

    def _size(self, space: str) -> int | None:
        sizes = {"shared": int(self._context["shared_bytes"]), "local": self._compiled.frame.local_bytes}
        return sizes.get(space.partition("::")[0])

    def _warp(self, actor: Actor) -> int:
        width, height, _ = self._launch.block
        x, y, z = actor.thread
        return (x + width * (y + height * z)) // LANES

    def _memory(self, note: _Note) -> str:
        """Describe the memory at the address: the variable or the argument, and the offset into it."""
        if note.space in ("shared", "local"):
            return self._variable(note.space, note.address)
        if note.space == "shared::cluster":
            named, block = self._variable("shared", note.address & RANK_MASK), self._named_block(note)
            return f"{named} of block {block}" if named else f"of block {block}"
        found = self._device.memory.at(note.address)
        if found is None:
            return ""
        named = self._argument(found)
        distance = note.address - found.low
        return f"{named}+{distance}" if named else f"{plural(distance, 'byte')} into an allocation of {plural(found.nbytes, 'byte')}"

    def _overrun(self, note: _Note) -> str:
        """Describe where the address lies relative to the array that the access was meant for; empty if it lies in that array."""
        aimed = aimed_allocations(self._device.memory, self._launch, note.instruction) if note.space == "global" else ()
        if not aimed or any(one.low <= note.address < one.high for one in aimed):
            return ""
        nearest = min(aimed, key=lambda one: distance_to(note.address, one))
        named = self._argument(nearest)
        return f", {relative_to(note.address, nearest)}{f', {named}' if named else ''}"

    def _variable(self, space: str, address: int) -> str:
        begins = [(start, name) for name, (where, start) in self._compiled.frame.offsets.items() if where == space and start <= address]
        if not begins:
            return ""
        start, name = max(begins)
        return f"{demangle(name).rsplit('::', 1)[-1]}+{address - start}"

    def _argument(self, allocation: Allocation) -> str:
        """Return a name for an allocation, such as `argument 2 (f4[1024])` or a module variable; empty if it has none."""
        if allocation.label:
            return demangle(allocation.label)
        return argument_name(self._launch, allocation)


def _inserted(instruction: Instruction) -> bool:
    """Return whether a pass inserted the instruction."""
    return instruction.span is not None and instruction.span.source.name == INSERTED


def _copies_of_one(one: Instruction, other: Instruction) -> bool:
    """Return whether two instructions were parsed from the same place of the text."""
    return one.span is not None and one.span == other.span


def _thread(actor: Actor) -> str:
    return f"block {actor.block}, thread {actor.thread}"


def _past_participle(verb: str) -> str:
    return {"wrote": "written"}.get(verb, verb)


def _location(space: str, address: int, memory: str) -> str:
    return f"{address:#x} of {space} memory{f' ({memory})' if memory else ''}"


def _find_allocation(allocations: Iterable[Allocation], address: int) -> Allocation | None:
    """Return the freed allocation that contained an address; None if there was none."""
    ordered = sorted(allocations)
    index = bisect_right(ordered, address, key=lambda allocation: allocation.low)
    found = ordered[index - 1] if index else None
    return found if found is not None and address < found.high else None
