"""Compare the accesses of a launch to a plan's buffers with the ranges that its step declares."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from memlane.emulate.check.findings import Findings
from memlane.emulate.check.records import (
    KEPT_STAMPS,
    LANE_SHIFT,
    MOST_SITES,
    SITE_SHIFT,
    STAMP_SHIFT,
    TOUCHED_SHIFT,
    UNWRITTEN_BITS,
    WORD_BYTES,
)
from memlane.launch import Declared, DeclaredBuffer, Report
from memlane.number_format import plural
from memlane.plan import View
from memlane.ptx import Instruction

Flags = npt.NDArray[np.bool]
Entries = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class LaunchAccesses:
    """Accesses of one launch to the words of a memory range, as recorded by the emulator's shadow."""

    writes: Entries
    """Entry of the last write per word; 0 if the launch did not write it."""
    reads: tuple[Entries, Entries]
    skipped: int
    """Bytes of the first word before the range."""
    nbytes: int

    @classmethod
    def of(cls, table: npt.NDArray[np.void], address: int, nbytes: int, base: int) -> LaunchAccesses | None:
        """Look up the accesses since stamp `base` in generated code's table of allocations; None for other memory."""
        row = table[max(0, int(np.searchsorted(table["low"], address, "right")) - 1)]
        low, high = int(row["low"]), int(row["high"])
        if not low <= address < address + nbytes <= high:
            return None
        words = -(-(high - low) // WORD_BYTES)
        first, last = (address - low) // WORD_BYTES, -(-(address + nbytes - low) // WORD_BYTES)
        cells = np.ctypeslib.as_array((ctypes.c_uint64 * (3 * words)).from_address(int(row["cells"]))).reshape(3, words)[:, first:last]
        recent = np.where(cells >= np.uint64(base << STAMP_SHIFT), cells, np.uint64(0))
        return cls(recent[0], (recent[1], recent[2]), (address - low) % WORD_BYTES, nbytes)

    def bytes_read(self, updating: Sequence[int]) -> Flags:
        """Return a flag per byte: whether it was read.

        Bytes last updated by one of the instructions `updating`, which read what they write, count as read.
        """
        updates = np.isin(self.writes >> np.uint64(SITE_SHIFT) & np.uint64(MOST_SITES - 1), list(updating))
        return self._bytes(*self.reads, np.where(updates, self.writes, np.uint64(0)))

    @property
    def bytes_written(self) -> Flags:
        return self._bytes(self.writes)

    def _bytes(self, *entries: Entries) -> Flags:
        touched = np.bitwise_or.reduce(entries)
        bits = touched[:, None] >> (np.arange(WORD_BYTES, dtype=np.uint64) + np.uint64(TOUCHED_SHIFT)) & np.uint64(1)
        flags: Flags = bits.astype(bool).reshape(-1)[self.skipped : self.skipped + self.nbytes]
        return flags

    def entry(self, verb: str, byte: int) -> int:
        """Return the entry of an access that read or wrote a byte."""
        word = (byte + self.skipped) // WORD_BYTES
        bit = 1 << TOUCHED_SHIFT + (byte + self.skipped) % WORD_BYTES
        entries = (*self.reads, self.writes) if verb == "read" else (self.writes,)
        return next(entry for entry in (int(one[word]) for one in entries) if entry & bit)


def updating(instructions: Sequence[Instruction]) -> list[int]:
    """Return the indices of instructions that read what they write."""
    return [index for index, one in enumerate(instructions) if one.form.effect in ("atomic", "reduction") or "reduce" in one.modifiers]


class DeclarationCheck:
    """One launch compared with its step's declaration."""

    def __init__(self, findings: Findings, declared: Declared, table: npt.NDArray[np.void], base: int, owners: npt.NDArray[Any]) -> None:
        self._findings, self._declared, self._table, self._base = findings, declared, table, base
        self._owners = owners.view(np.uint64)
        self._updating = updating(findings.instructions)

    def reports(self) -> Iterator[Report]:
        """Yield a report for each buffer with bytes read, or written, outside the step's declaration."""
        for buffer in self._declared.buffers:
            touched = LaunchAccesses.of(self._table, buffer.address, buffer.nbytes, self._base) if buffer.nbytes else None
            if touched is None:
                continue
            read = "read", touched.bytes_read(self._updating), buffer.reads
            for verb, seen, views in (read, ("wrote", touched.bytes_written, buffer.writes)):
                outside = seen & ~_covered(buffer, views)
                if outside.any():
                    first = int(np.argmax(outside))
                    yield self._report(buffer, verb, views, outside, touched.entry(verb, first))

    def _report(self, buffer: DeclaredBuffer, verb: str, views: tuple[View, ...], outside: Flags, entry: int) -> Report:
        first, count = int(np.argmax(outside)), int(np.count_nonzero(outside))
        instruction = self._findings.instructions[entry >> SITE_SHIFT & MOST_SITES - 1]
        owner = int(self._owners[(entry >> STAMP_SHIFT) % KEPT_STAMPS])
        who = self._findings.actor(instruction, owner, entry >> LANE_SHIFT & 31)
        word = "reads" if verb == "read" else "writes"
        declared = " and ".join(map(str, views)) or "nothing of it"
        # The shadow keeps only the last of several threads' accesses to parts of a word.
        is_whole = entry >> TOUCHED_SHIFT & UNWRITTEN_BITS == UNWRITTEN_BITS
        what = (
            f"{self._declared.step} {verb} byte {first:,} of buffer {buffer.name!r}{'' if is_whole else ', or one just before it'} "
            f"(block {who.block}, thread {who.thread}, {who.op}), but declares that it {word} {declared}; "
            f"{'' if is_whole else 'at least '}{plural(count, 'byte')} {'lies' if count == 1 else 'lie'} outside"
        )
        if self._declared.is_derived:
            remedy = (
                "Pass reads= and writes= to the launch, and report this kernel as a bug: memlane derived from its PTX that it does not "
                f"access {buffer.name!r} here."
            )
        else:
            remedy = f"Add this range to {word}= of the launch, or correct the index."
        memory = f"{buffer.name}+{first}"
        address = buffer.address + first
        return Report("undeclared access", self._findings.kernel, who, None, what, remedy, count, address, 1, "global", memory)


def _covered(buffer: DeclaredBuffer, views: Sequence[View]) -> Flags:
    """Return a flag per byte of a buffer: whether one of the views contains it."""
    found = np.zeros(buffer.nbytes, bool)
    for view in views:
        if view.size:
            as_strided(found[view.offset :], (*view.shape, view.itemsize), (*view.strides, 1))[...] = True
    return found
