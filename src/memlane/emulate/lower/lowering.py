"""What the semantics of an instruction is written against: the operands of one instruction as 32-lane values, and its results.

Inside a place, registers are SSA values, computed for all lanes whether they take part or not; when the place ends, those that somebody
still needs are stored for the lanes that did. Between places they live in the warp's register file. A predicate is an i32 mask.
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
from memlane.emulate.layers import Compiled
from memlane.emulate.layout import BLOCK, CONTEXT, HOST_LINE_BYTES, REGISTERS, WARP
from memlane.emulate.lower.body import Step
from memlane.emulate.lower.protocols import ControlFlow
from memlane.emulate.lower.special import PREDICATES, SPECIAL
from memlane.emulate.lower.variables import Frame
from memlane.emulate.runtime.helper import Helper, invoke
from memlane.emulate.runtime.narrow import WRAPPING_SPACES, low_words, narrowed, with_upper_half
from memlane.errors import UnsupportedPtx
from memlane.ptx import SCALAR_TYPES, Address, Immediate, Instruction, Operand, Pair, Register, Sink, Special, Symbol
from memlane.ptx.constants import bits_of

if TYPE_CHECKING:
    from memlane.emulate.check.products import Products


_ALWAYS = (0, 1 << 62)
"""The span of a register that may hold something at every place."""


@dataclass(frozen=True)
class RegisterFile:
    """Where each register of a kernel lies behind the record of its warp."""

    bits: dict[str, int]
    """Width; 1 for predicates, which take 4 bytes."""
    offsets: dict[str, int]
    ready_offsets: dict[str, int]
    """Where the clock layer keeps when each register is ready, 8 bytes; empty without it."""
    nbytes: int
    read: frozenset[str]
    """The registers that some instruction reads."""


def assign_registers(
    types: dict[str, str], needed: frozenset[str], spans: dict[str, tuple[int, int]], read: frozenset[str], layers: Compiled
) -> RegisterFile:
    """Give each register that outlives a place its bytes, wide ones first, so that all are aligned.

    `spans` are the first and the last place at which registers hold something (`LiveOut.spans`); those of one width that have nothing to
    hold at the same time share their bytes, because a launch with a clock goes from warp to warp, and what these hold must not be more
    than fits into the host's caches. Registers without a span share with none."""
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
    """The code of one kernel while it is written. `e` stands at the end of the current place."""

    def __init__(self, e: Emit, warp: Value, registers: RegisterFile, frame: Frame, layers: Compiled, chip: Chip) -> None:
        self.e = e
        self.warp = warp
        self.block = e.get_pointer(warp, WARP, "block")
        self.context = e.get_pointer(self.block, BLOCK, "context")
        self.registers = registers
        self.frame = frame
        self.layers = layers
        self.chip = chip
        self.active: Value = None
        """i32: the lanes that execute the current instruction."""
        self.mask: Value = None
        """i32: the lanes that run the current place."""
        self.step: Step
        self.instruction: Instruction
        self.index = 0
        self.resumes = False
        """Whether the instruction was executed before and goes on behind its wait."""
        self.reached_memory = False
        """Whether the code of the instruction goes to memory by `semantics.accesses`, where the layers see it."""
        self.flow: ControlFlow
        self._entry = e.block
        self._scratch: dict[str, Value] = {}
        self._values: dict[str, Value] = {}
        self._changed: set[str] = set()
        self.products: Products | None = None
        """With the checker: the asynchronous products of the kernel."""
        self.touched = 0
        """Those whose registers an instruction of this place has touched since the last of them began."""
        self.scoreboard = Scoreboard(self, chip, registers.ready_offsets) if layers.clock else None

    # -- the current place and instruction -------------------------------------------------------------------------------------

    def begin_place(self, mask: Value) -> None:
        """Forget the values of the place before."""
        self.mask = self.active = mask
        self._values.clear()
        self._changed.clear()
        self.touched = 0
        if self.scoreboard is not None:
            self.scoreboard.begin_place()

    def begin(self, step: Step) -> None:
        """Turn to an instruction: its guard decides who executes it."""
        self.step, self.index, self.instruction, self.resumes = step, step.index, step.instruction, step.resumes
        self.reached_memory = False
        self.change_mask(self.mask)
        if self.scoreboard is not None:
            self.scoreboard.begin(step)

    def end(self, step: Step) -> None:
        """The instruction is written."""
        if self.scoreboard is not None:
            self.scoreboard.end(step)

    @property
    def start(self) -> Value:
        """The cycle in which the current instruction is issued; 0 without the clock layer."""
        return constant(I64, 0) if self.scoreboard is None else self.scoreboard.start

    def completes(self, when: Value) -> None:
        """The current instruction, a memory access, completes in this cycle."""
        if self.scoreboard is not None:
            self.scoreboard.completes(when)

    def change_mask(self, mask: Value) -> None:
        """More lanes have joined the place."""
        self.mask = self.active = mask
        if self.instruction.guard is not None:
            self.active = self.e.and_(self.mask, self.guard())

    def guard(self) -> Value:
        """i32: the lanes whose guard holds, of those that run and of those that wait here."""
        guard = self.instruction.guard
        assert guard is not None
        value = self.register(guard.register)
        return self.e.not_(value) if guard.negated else value

    def save(self, needed: frozenset[str]) -> None:
        """Store the registers that changed and are still needed, for the lanes that ran."""
        e = self.e
        if self.scoreboard is not None:
            self.scoreboard.save(needed)
        for name in sorted(self._changed & needed):
            place, value = self.slot(name), self._values[name]
            if self.registers.bits[name] == 1:
                e.store(e.or_(e.and_(value, self.mask), e.and_(e.load(place, typ=I32), e.not_(self.mask))), place)
            else:
                e.store_lanes(e.select(e.lanes_of(self.mask), value, e.load_lanes(place, value.type.element)), place)

    def unsupported(self, what: str = "") -> UnsupportedPtx:
        """The error for an instruction, or a form of it, that has no semantics here."""
        return UnsupportedPtx(f"the emulator does not model {what or self.instruction.name}", self.instruction.span)

    # -- registers ---------------------------------------------------------------------------------------------------------------

    def slot(self, name: str) -> Value:
        """Where a register lies in the warp's register file."""
        return self.e.at(self.warp, self.registers.offsets[name])

    def near_lines(self, names: Collection[str]) -> int:
        """A bit for each of the first 64 lines of the host's cache behind `REGISTERS` that hold these registers, or when they are ready."""
        registers, lines = self.registers, set[int]()
        for name in registers.offsets.keys() & names:
            bits, start = registers.bits[name], registers.offsets[name] - REGISTERS
            lines.update(range(start // HOST_LINE_BYTES, -(-(start + (4 if bits == 1 else 4 * bits)) // HOST_LINE_BYTES)))
            if name in registers.ready_offsets:
                lines.add((registers.ready_offsets[name] - REGISTERS) // HOST_LINE_BYTES)
        return sum(1 << line for line in lines if line < 64)

    def register(self, name: str) -> Value:
        """The register's value: 32 integers of its width, or an i32 mask for a predicate."""
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
        """Give a register its new value, in the lanes whose guard is true."""
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
        """The scalar type of an operand, by the manual's letter."""
        return self.instruction.form.types[letter]

    def slot_of(self, name: str) -> str:
        """The word that fills a slot of the instruction's row; empty if it was left out."""
        return self.instruction.form.slots.get(name, "")

    def has(self, letter: str) -> bool:
        """Whether the operand was written."""
        return self.instruction.operand(letter) is not None

    def read(self, letter: str, type_name: str | None = None) -> Value:
        """An operand's value: 32 lanes of its type (floating point as such), or an i32 mask for a predicate."""
        operand = self.instruction.operand(letter)
        assert operand is not None, letter
        return self.value(operand, type_name or self.slot_type(letter))

    def value(self, operand: Operand, type_name: str) -> Value:
        """The value of any operand as a type."""
        scalar = SCALAR_TYPES[type_name]
        if scalar.kind == "pred":
            return self._predicate(operand)
        bits = self.bits_of(operand, type_name)
        return self.as_type(bits, type_name)

    def as_type(self, bits: Value, type_name: str) -> Value:
        """Reinterpret 32 integers as 32 of a type of that width."""
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
        raise self.unsupported(f"a predicate given as {operand}")

    def bits_of(self, operand: Operand, type_name: str) -> Value:
        """The value of an operand as 32 integers of the type's width, extended by its sign."""
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
                raise self.unsupported(f"the operand {operand} of {self.instruction.name}")

    def special(self, name: str) -> Value:
        """The value of a special register: 32 lanes of i32 or i64."""
        if name not in SPECIAL:
            raise self.unsupported(f"the special register {name}")
        return SPECIAL[name](self)

    def symbol_address(self, name: str, offset: int) -> Value:
        """The address of a variable in its own state space, in all lanes."""
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
        """An i32 operand that is the same for all active lanes, as a scalar: the value of the first of them."""
        operand = self.instruction.operand(letter)
        if isinstance(operand, Immediate):
            return constant(I32, operand.value)
        e = self.e
        e.store_lanes(self.read(letter), self.scratch("uniform"))
        first = e.and_(e.lowest_bit(self.active), constant(I32, LANES - 1))
        return e.load(e.element(self.scratch("uniform"), first, I32), typ=I32)

    # -- results -----------------------------------------------------------------------------------------------------------------

    def write(self, letter: str, value: Value) -> None:
        """The result of the instruction in the operand `letter`."""
        operand = self.instruction.operand(letter)
        if isinstance(operand, Pair):
            operand = operand.first
        if operand is not None:
            self.write_operand(operand, value, self.instruction.form.types.get(letter, ""))

    def write_second(self, letter: str, value: Value) -> None:
        """The predicate behind the bar of `d|p`, if there is one."""
        operand = self.instruction.operand(letter)
        if isinstance(operand, Pair):
            self.write_operand(operand.second, value, "pred")

    def write_operand(self, operand: Operand, value: Value, type_name: str) -> None:
        """Store into a register, widened by the type's sign where the register is wider."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise self.unsupported(f"the destination {operand} of {self.instruction.name}")
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
        """A piece of the function's frame for passing 32-lane values to helpers."""
        if name not in self._scratch:
            with self.e.goto_block(self._entry):
                self._scratch[name] = self.e.local(ir.ArrayType(I8, nbytes), align=64)
        return self._scratch[name]

    def address(self, letter: str, scratch: str = "addresses") -> tuple[Value, Value]:
        """A memory operand as helpers take it: a pointer to 32 i64, and a distance to add to each. `scratch` is where those lie that are
        computed: an instruction with two addresses needs two."""
        operand = self.instruction.operand(letter)
        assert isinstance(operand, Address)
        e, base, space = self.e, operand.base, self.instruction.form.addresses[letter]
        width = self.registers.bits[base.name] if isinstance(base, Register) else 64
        wraps = space in WRAPPING_SPACES and (width == 32 or not (space == "const" or self._narrowed_where_outside()))
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
            lanes = low_words(e, lanes) if width == 32 else narrowed(e, lanes)
        if wraps and space == "const" and self.frame.constants:
            lanes = with_upper_half(e, lanes, self.symbol_address(next(iter(self.frame.constants)), 0))
        e.store_lanes(lanes, self.scratch(scratch, 256))
        return self.scratch(scratch, 256), distance

    def _narrowed_where_outside(self) -> bool:
        """Whether the runtime drops what an address in a register of 64 bits overflowed by, where it falls outside: nearly all do not, and
        nothing else looks at the addresses of this instruction."""
        layers, one = self.layers, self.instruction
        seen = layers.counts or layers.accesses or layers.clock or layers.check
        return not seen and one.opcode in ("ld", "st", "atom", "red") and not one.has("async") and not one.has("shared::cluster")

    def call(self, helper: Helper, *arguments: Value) -> Value:
        """Call a function of the runtime."""
        return invoke(self.e, helper, *arguments)


def _float_bits(kind: ir.Type) -> int:
    return next(bits for bits, float_type in FLOATS.items() if float_type == kind)


def immediate_bits(operand: Immediate, type_name: str) -> int:
    """Return the bits of a literal as a value of a type: a decimal or `0d` literal where f32 is wanted is rounded to it."""
    scalar = SCALAR_TYPES[type_name]
    return operand.value if operand.kind == "int" else bits_of(operand, scalar)
