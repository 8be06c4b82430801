"""Where the probes of a traced module are: for each timed site the instructions that read the clock, access memory and write the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memlane.instrument.apart import ClosingLines
from memlane.instrument.runs import BESIDE
from memlane.instrument.tracing import Traced
from memlane.instrument.visibility import is_witness
from memlane.ptx import Immediate, Instruction, Operand, Special, Vector

_CLOCK = "%clock64"


@dataclass(frozen=True, slots=True)
class ProbeLines:
    """Indices among the instructions of the traced kernel."""

    start: int
    """The first clock read."""
    access: int
    end: int
    """The second clock read."""
    times: int
    """The store of start, end and site."""
    labels: int
    """The store of what else describes the access; the same where nothing does."""
    witness: int | None = None
    """Of a store that is timed until others see it: the load or the fence behind it that tells."""
    closings: tuple[ClosingLines, ...] = ()
    """Where a window closes in front of the consumers of the value: everything but `start` and `access`, in each place. The other fields
    are those of the first of them."""


def probes(traced: Traced) -> Mapping[str, Mapping[int, ProbeLines]]:
    """By the PTX name of each instrumented kernel and the number of the site."""
    found: dict[str, dict[int, ProbeLines]] = {}
    for kernel, positions in traced.positions.items():
        instructions = list(traced.module.kernels[kernel].instructions())
        found[kernel] = {site: _around(instructions, position) for site, position in positions.items()}
        found[kernel] |= {site: _apart(found[kernel][site], closings) for site, closings in traced.closings.get(kernel, {}).items()}
    return found


def _around(instructions: Sequence[Instruction], access: int) -> ProbeLines:
    start = next(index for index in range(access - 1, -1, -1) if _reads_clock(instructions[index]))
    end = next(index for index in range(access + 1, len(instructions)) if _reads_clock(instructions[index]))
    times, labels = _stores(instructions, end)
    witness = next((index for index in range(access + 1, end) if is_witness(instructions[index])), None)
    return ProbeLines(start, access, end, times, labels, witness)


def _stores(instructions: Sequence[Instruction], end: int) -> tuple[int, int]:
    """Those of the record whose second clock read this is; stores of an earlier record may stand between."""
    following = range(end + 1, len(instructions))
    first = next(index for index in following if _packs(instructions[index]) or _writes_record(instructions[index], "v2"))
    if not _packs(instructions[first]):
        return first, first + 1
    label = instructions[first].operands[0]
    times = next(index for index in following if _writes_record(instructions[index], "v4") and label in _data(instructions[index]))
    return times, times


def _apart(around: ProbeLines, closings: tuple[ClosingLines, ...]) -> ProbeLines:
    first = closings[0]
    return ProbeLines(around.start, around.access, first.end, first.times, first.labels, closings=closings)


def _reads_clock(instruction: Instruction) -> bool:
    return any(isinstance(operand, Special) and operand.name == _CLOCK for operand in instruction.operands)


def _writes_record(instruction: Instruction, vector: str) -> bool:
    """Records are the only vector stores that go out as evict-first between a clock read and the next probe."""
    return instruction.opcode == "st" and "cs" in instruction.modifiers and instruction.form.slots.get("vec") == vector


def _packs(instruction: Instruction) -> bool:
    """Whether it puts the number of a site beside a part of a clock read."""
    return instruction.opcode == "prmt" and instruction.operands[-1] == Immediate(BESIDE)


def _data(store: Instruction) -> tuple[Operand, ...]:
    vector = store.operands[-1]
    return vector.items if isinstance(vector, Vector) else ()
