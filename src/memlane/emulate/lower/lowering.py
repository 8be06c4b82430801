"""Lowers the instructions of a kernel: gives their semantics the operands as 32-lane values, and takes their results.

Inside a segment, registers are SSA values, computed for all lanes whether they are active or not; when the segment ends, the live ones are
stored for the lanes that ran it. Between segments they are kept in the warp's register file. A predicate is an i32 mask.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import llvmlite.ir as ir

from memlane.chip import LANES, Chip
from memlane.emulate.clock.scoreboard import READY_BYTES, Scoreboard
from memlane.emulate.code.build import FLOATS, I8, I32, I64, INTEGERS, Emit, Value, constant, vector
from memlane.emulate.layers import CompiledLayers
from memlane.emulate.layout import BLOCK, CONTEXT, HOST_LINE_BYTES, REGISTERS, WARP
from memlane.emulate.lower.body import Step
from memlane.emulate.lower.protocols import ControlFlow
from memlane.emulate.lower.special import PREDICATES, SPECIAL
from memlane.emulate.lower.variables import Frame
from memlane.emulate.runtime.address_wrapping import WRAPPING_SPACES, lower_words, with_upper_half, wrap_addresses
from memlane.emulate.runtime.helper import Helper, invoke
from memlane.errors import UnsupportedPtx
from memlane.ptx import SCALAR_TYPES, Address, Immediate, Instruction, Operand, Pair, Register, Sink, Special, Symbol
from memlane.ptx.constants import bits_of
from memlane.ptx.printer import operand_text

if TYPE_CHECKING:
    from memlane.emulate.check.wgmma import WgmmaRegisters


_ALWAYS = (0, 1 << 62)
"""The span of a register that may hold a value at every segment."""


@dataclass(frozen=True)
class RegisterFile:
    """Offsets of the registers of a kernel after the record of its warp."""

    bits: dict[str, int]
    """Width of each register; 1 for predicates, which take 4 bytes."""
    offsets: dict[str, int]
    ready_offsets: dict[str, int]
    """Offsets of the cycle at which each register is ready, 8 bytes, kept by the clock layer; empty without it."""
    nbytes: int
    read: frozenset[str]
    """Registers that some instruction reads."""


def assign_registers(
    types: dict[str, str], needed: frozenset[str], spans: dict[str, tuple[int, int]], read: frozenset[str], layers: CompiledLayers
) -> RegisterFile:
    """Assign bytes to each register that is live across segments, wide ones first, so that all are aligned.

    `spans` are the first and the last segment at which registers hold a value (`LiveOut.spans`). Registers of one width with disjoint spans
    share bytes, so that the register files of a launch with a clock fit into the host's caches; those without a span share with none.
    """
    bits = {name: SCALAR_TYPES[kind].bits if kind in SCALAR_TYPES else 64 for name, kind in types.items()}
    offsets: dict[str, int] = {}
    end = REGISTERS
    for width in sorted({bits[name] for name in needed}, reverse=True):
        size = 4 if width == 1 else 4 * width
        free: list[int] = []
        held: list[tuple[int, int]] = []
        for name in sorted((name for name in needed if bits[name] == width), key=lambda name: (spans.get(name, _ALWAYS), name)):
            start, last = spans.get(name, _ALWAYS)
            while held and held[0][0] < start:
                heappush(free, heappop(held)[1])
            if free:
                offsets[name] = heappop(free)
            else:
                offsets[name] = end
                end += size
            heappush(held, (last, offsets[name]))
    end = -(-end // 64) * 64
    ready = {name: end + READY_BYTES * number for number, name in enumerate(offsets)} if layers.clock else {}
    return RegisterFile(bits, offsets, ready, -(-(end + READY_BYTES * len(ready)) // 64) * 64, read)


class Lowering:
    """The code of one kernel while it is generated. `e` stands at the end of the current segment."""

    def __init__(self, e: Emit, warp: Value, registers: RegisterFile, frame: Frame, layers: CompiledLayers, chip: Chip) -> None:
        self.e = e
        self.warp = warp
        self.block = e.get_pointer(warp, WARP, "block")
        self.context = e.get_pointer(self.block, BLOCK, "context")
        self.registers = registers
        self.frame = frame
        self.layers = layers
        self.chip = chip
        self.active: Value = None
        """i32: lanes that execute the current instruction (the active mask)."""
        self.mask: Value = None
        """i32: lanes that run the current segment."""
        self.step: Step
        self.instruction: Instruction
        self.index = 0
        self.resumes = False
        """Whether this is the second half of the instruction, after its wait."""
        self.reached_memory = False
        """Whether the code of the instruction accesses memory through `semantics.accesses`, where the layers observe it."""
        self.flow: ControlFlow
        self._entry = e.block
        self._scratch: dict[str, Value] = {}
        self._values: dict[str, Value] = {}
        self._changed: set[str] = set()
        self.products: WgmmaRegisters | None = None
        """Asynchronous products (wgmma) of the kernel; None without the checker."""
        self.touched = 0
        """The products whose registers an instruction of this segment has touched since the last of them began, as bits."""
        self.scoreboard = Scoreboard(self, chip, registers.ready_offsets) if layers.clock else None

    # -- the current segment and instruction -----------------------------------------------------------------------------------

    def begin_segment(self, mask: Value) -> None:
        """Start a segment: forget the register values of the segment before."""
        self.mask = self.active = mask
        self._values.clear()
        self._changed.clear()
        self.touched = 0
        if self.scoreboard is not None:
            self.scoreboard.begin_place()

    def begin(self, step: Step) -> None:
        """Start an instruction; its guard decides which lanes are active."""
        self.step, self.index, self.instruction, self.resumes = step, step.index, step.instruction, step.resumes
        self.reached_memory = False
        self.change_mask(self.mask)
        if self.scoreboard is not None:
            self.scoreboard.begin(step)

    def end(self, step: Step) -> None:
        """End an instruction."""
        if self.scoreboard is not None:
            self.scoreboard.end(step)

    @property
    def start(self) -> Value:
        """Return the cycle in which the current instruction issues; 0 without the clock layer."""
        return constant(I64, 0) if self.scoreboard is None else self.scoreboard.start

    def completes(self, when: Value) -> None:
        """Emit code that records the cycle `when` the current memory access completes."""
        if self.scoreboard is not None:
            self.scoreboard.completes(when)

    def change_mask(self, mask: Value) -> None:
        """Change the lanes that run the segment, because more have joined it."""
        self.mask = self.active = mask
        if self.instruction.guard is not None:
            self.active = self.e.and_(self.mask, self.guard())

    def guard(self) -> Value:
        """Return an i32 mask of the lanes whose guard holds, among those that run and those that wait here."""
        guard = self.instruction.guard
        assert guard is not None
        value = self.register(guard.register)
        return self.e.not_(value) if guard.negated else value

    def save(self, needed: frozenset[str]) -> None:
        """Emit stores of the registers that changed and are still live, for the lanes that ran."""
        e = self.e
        if self.scoreboard is not None:
            self.scoreboard.save(needed)
        for name in sorted(self._changed & needed):
            slot, value = self.slot(name), self._values[name]
            if self.registers.bits[name] == 1:
                e.store(e.or_(e.and_(value, self.mask), e.and_(e.load(slot, typ=I32), e.not_(self.mask))), slot)
            else:
                e.store_lanes(e.select(e.lanes_of(self.mask), value, e.load_lanes(slot, value.type.element)), slot)

    def unsupported(self, what: str = "") -> UnsupportedPtx:
        """Return the error for an instruction, or a form of it, without semantics here."""
        return UnsupportedPtx(f"the emulator does not model {what or self.instruction.name}", self.instruction.span)

    # -- registers ---------------------------------------------------------------------------------------------------------------

    def slot(self, name: str) -> Value:
        """Return the address of a register in the warp's register file."""
        return self.e.at(self.warp, self.registers.offsets[name])

    def near_lines(self, names: Collection[str]) -> int:
        """Return a mask of the first 64 host cache lines behind `REGISTERS`: those that hold these registers or their ready times."""
        registers, lines = self.registers, set[int]()
        for name in registers.offsets.keys() & names:
            bits, start = registers.bits[name], registers.offsets[name] - REGISTERS
            lines.update(range(start // HOST_LINE_BYTES, -(-(start + (4 if bits == 1 else 4 * bits)) // HOST_LINE_BYTES)))
            if name in registers.ready_offsets:
                lines.add((registers.ready_offsets[name] - REGISTERS) // HOST_LINE_BYTES)
        return sum(1 << line for line in lines if line < 64)

    def register(self, name: str) -> Value:
        """Return a register's value: 32 integers of its width, or an i32 mask for a predicate."""
        if name not in self._values:
            bits = self.registers.bits[name]
            if name not in self.registers.offsets:  # read before it was ever written: any value will do, and zero is reproducible
                self._values[name] = constant(I32 if bits == 1 else vector(INTEGERS[bits]), 0)
            elif bits == 1:
                self._values[name] = self.e.load(self.slot(name), typ=I32)
            else:
                self._values[name] = self.e.load_lanes(self.slot(name), INTEGERS[bits])
        return self._values[name]

    def set_register(self, name: str, value: Value) -> None:
        """Set a register to a new value in the lanes whose guard holds."""
        e = self.e
        if self.instruction.guard is not None:
            old = self.register(name)
            if self.registers.bits[name] == 1:
                value = e.or_(e.and_(value, self.active), e.and_(old, e.not_(self.active)))
            else:
                value = e.select(e.lanes_of(self.active), value, old)
        self._values[name] = value
        self._changed.add(name)

    # -- operands ----------------------------------------------------------------------------------------------------------------

    def slot_type(self, letter: str) -> str:
        """Return the scalar type of an operand, by the manual's letter."""
        return self.instruction.form.types[letter]

    def slot_of(self, name: str) -> str:
        """Return the word that fills a slot of the instruction's form; empty if it was left out."""
        return self.instruction.form.slots.get(name, "")

    def has(self, letter: str) -> bool:
        """Return whether an optional operand is present."""
        return self.instruction.operand(letter) is not None

    def read(self, letter: str, type_name: str | None = None) -> Value:
        """Return an operand's value: 32 lanes of its type (floating point as such), or an i32 mask for a predicate."""
        operand = self.instruction.operand(letter)
        assert operand is not None, letter
        return self.value(operand, type_name or self.slot_type(letter))

    def value(self, operand: Operand, type_name: str) -> Value:
        """Return the value of any operand as a type."""
        scalar = SCALAR_TYPES[type_name]
        if scalar.kind == "pred":
            return self._predicate(operand)
        bits = self.bits_of(operand, type_name)
        return self.as_type(bits, type_name)

    def as_type(self, bits: Value, type_name: str) -> Value:
        """Reinterpret 32 integers as 32 values of a type of that width."""
        scalar = SCALAR_TYPES[type_name]
        if scalar.kind == "f" and scalar.lanes == 1 and type_name not in ("bf16", "tf32"):
            return self.e.bitcast(bits, vector(FLOATS[scalar.bits]))
        return bits

    def _predicate(self, operand: Operand) -> Value:
        if isinstance(operand, Register):
            value = self.register(operand.name)
            return self.e.not_(value) if operand.negated else value
        if isinstance(operand, Immediate):
            return constant(I32, -1 if operand.value else 0)
        if isinstance(operand, Special) and operand.name in PREDICATES:
            return PREDICATES[operand.name](self)
        raise self.unsupported(f"a predicate given as `{operand_text(operand)}`")

    def bits_of(self, operand: Operand, type_name: str) -> Value:
        """Return the value of an operand as 32 integers of the type's width, sign-extended for signed types."""
        e, scalar = self.e, SCALAR_TYPES[type_name]
        kind = vector(INTEGERS[scalar.bits])
        match operand:
            case Register():
                value = self.register(operand.name)
                width = self.registers.bits[operand.name]
                if width == 1:
                    raise self.unsupported(f"a predicate where {type_name} is wanted")
                if width == scalar.bits:
                    return value
                if width > scalar.bits:
                    return e.trunc(value, kind)
                return e.sext(value, kind) if scalar.kind == "s" else e.zext(value, kind)
            case Immediate():
                return constant(kind, immediate_bits(operand, type_name))
            case Special():
                value = self.special(operand.name)
                width = value.type.element.width
                return value if width == scalar.bits else e.trunc(value, kind) if width > scalar.bits else e.zext(value, kind)
            case Symbol():
                address = self.symbol_address(operand.name, operand.offset)
                return address if scalar.bits == 64 else e.trunc(address, kind)
            case _:
                raise self.unsupported(f"the operand `{operand_text(operand)}` of {self.instruction.name}")

    def special(self, name: str) -> Value:
        """Return the value of a special register: 32 lanes of i32 or i64."""
        if name not in SPECIAL:
            raise self.unsupported(f"the special register {name}")
        return SPECIAL[name](self)

    def symbol_address(self, name: str, offset: int) -> Value:
        """Return the address of a variable in its own state space, in all lanes."""
        e = self.e
        if name in self.frame.offsets:
            return constant(vector(I64), self.frame.offsets[name][1] + offset)
        if name in self.frame.symbols:
            table = e.get_pointer(self.context, CONTEXT, "symbols")
            address = e.load(e.at(table, 8 * self.frame.symbols.index(name)), typ=I64)
            return e.splat(e.add(address, constant(I64, offset)))
        if name in self.frame.functions:
            return constant(vector(I64), self.frame.functions[name])
        raise self.unsupported(f"the address of {name}")

    def uniform(self, letter: str) -> Value:
        """Return as a scalar an i32 operand that is the same for all active lanes: the value of the leader lane."""
        operand = self.instruction.operand(letter)
        if isinstance(operand, Immediate):
            return constant(I32, operand.value)
        e = self.e
        e.store_lanes(self.read(letter), self.scratch("uniform"))
        first = e.and_(e.lowest_bit(self.active), constant(I32, LANES - 1))
        return e.load(e.element(self.scratch("uniform"), first, I32), typ=I32)

    # -- results -----------------------------------------------------------------------------------------------------------------

    def write(self, letter: str, value: Value) -> None:
        """Write the result of the instruction into the operand `letter`."""
        operand = self.instruction.operand(letter)
        if isinstance(operand, Pair):
            operand = operand.first
        if operand is not None:
            self.write_operand(operand, value, self.instruction.form.types.get(letter, ""))

    def write_second(self, letter: str, value: Value) -> None:
        """Write the predicate after the bar of `d|p`, if there is one."""
        operand = self.instruction.operand(letter)
        if isinstance(operand, Pair):
            self.write_operand(operand.second, value, "pred")

    def write_operand(self, operand: Operand, value: Value, type_name: str) -> None:
        """Write a value into a register; where the register is wider, extend it by the sign of the type."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise self.unsupported(f"the destination `{operand_text(operand)}` of {self.instruction.name}")
        width = self.registers.bits[operand.name]
        if width == 1:
            if value.type != I32:
                raise self.unsupported(f"a predicate as the destination of {self.instruction.name}")
            return self.set_register(operand.name, value)
        e, kind = self.e, vector(INTEGERS[width])
        if not isinstance(value.type.element, ir.IntType):
            value = e.bitcast(value, vector(INTEGERS[_float_bits(value.type.element)]))
        if value.type.element.width < width:
            value = e.sext(value, kind) if SCALAR_TYPES[type_name].kind == "s" else e.zext(value, kind)
        elif value.type.element.width > width:
            value = e.trunc(value, kind)
        return self.set_register(operand.name, value)

    # -- memory ------------------------------------------------------------------------------------------------------------------

    def scratch(self, name: str, nbytes: int = 1024) -> Value:
        """Return a named buffer in the function's stack frame, for passing 32-lane values to helpers."""
        if name not in self._scratch:
            with self.e.goto_block(self._entry):
                self._scratch[name] = self.e.local(ir.ArrayType(I8, nbytes), align=64)
        return self._scratch[name]

    def address(self, letter: str, scratch: str = "addresses") -> tuple[Value, Value]:
        """Return a memory operand in the form that helpers take: a pointer to 32 i64 addresses, and an offset to add to each. `scratch`
        names the buffer for computed addresses: an instruction with two addresses needs two."""
        operand = self.instruction.operand(letter)
        assert isinstance(operand, Address)
        e, base, space = self.e, operand.base, self.instruction.form.addresses[letter]
        width = self.registers.bits[base.name] if isinstance(base, Register) else 64
        wraps = space in WRAPPING_SPACES and (width == 32 or not (space == "const" or self._wraps_when_outside()))
        distance = constant(I64, operand.offset)
        if isinstance(base, Register):
            if width == 64 and not wraps and base.name not in self._changed and base.name in self.registers.offsets:
                return self.slot(base.name), distance
            lanes = self.value(base, "u64")
        elif isinstance(base, Symbol):
            lanes = self.symbol_address(base.name, base.offset)
        else:
            lanes = constant(vector(I64), base.value)
        if wraps:
            lanes, distance = e.add(lanes, constant(lanes.type, operand.offset)), constant(I64, 0)
            lanes = lower_words(e, lanes) if width == 32 else wrap_addresses(e, lanes)
        if wraps and space == "const" and self.frame.constants:
            lanes = with_upper_half(e, lanes, self.symbol_address(next(iter(self.frame.constants)), 0))
        e.store_lanes(lanes, self.scratch(scratch, 256))
        return self.scratch(scratch, 256), distance

    def _wraps_when_outside(self) -> bool:
        """Return whether the runtime wraps a 64-bit address only once it falls outside its window. Nearly all addresses do not, and no
        layer looks at the addresses of this instruction."""
        layers, one = self.layers, self.instruction
        seen = layers.counts or layers.accesses or layers.clock or layers.check
        return not seen and one.opcode in ("ld", "st", "atom", "red") and not one.has("async") and not one.has("shared::cluster")

    def call(self, helper: Helper, *arguments: Value) -> Value:
        """Emit a call of a runtime helper."""
        return invoke(self.e, helper, *arguments)


def _float_bits(kind: ir.Type) -> int:
    return next(bits for bits, float_type in FLOATS.items() if float_type == kind)


def immediate_bits(operand: Immediate, type_name: str) -> int:
    """Return the bits of a literal as a value of a type; a decimal or `0d` literal is rounded to f32 where that is the type."""
    scalar = SCALAR_TYPES[type_name]
    return operand.value if operand.kind == "int" else bits_of(operand, scalar)
