"""Which registers hold addresses of which array in shared memory: a forward analysis over the control flow of a function.

An address begins where an instruction names a variable, and is followed through copies, conversions, additions and what merges where paths
meet. What is done to it that is not followed is told as a `Problem`, for whom it matters: a pass that moves the elements of an array must
know of every address of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memlane.ptx import (
    SCALAR_TYPES,
    Address,
    Arguments,
    ControlFlow,
    Function,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Symbol,
    TextureAddress,
    Vector,
    flatten_scopes,
    memory_accesses,
    overwrites,
    registers_written,
)
from memlane.rewrite.arrays import SharedArray


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address in an array."""

    array: SharedArray
    generic: bool
    bits: int
    """Of the register: 32 or 64."""
    offset: int | None
    """Bytes from where the array begins; None where only the running kernel knows."""
    multiple: int = 1
    """A power of two of which the offset is a multiple; of meaning where it is not known."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """An address in one of several arrays, or in an array or no address at all, by the path that was taken."""

    arrays: frozenset[SharedArray]


@dataclass(frozen=True, slots=True)
class Number:
    """Anything but an address in an array; as an integer a multiple of this power of two."""

    multiple: int = 1


ANY = Number()
MOST = 1 << 16
"""The greatest power of two that is kept."""
WIDEST = 16
"""Bytes that a lane accesses at once at most, aligned to as many; what copies more is aligned to less than it copies."""

Value = Pointer | Mixed | Number
"""Of a register."""
State = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something done to an address that is not followed."""

    index: int
    """Of the instruction in its function."""
    arrays: frozenset[SharedArray]
    reason: str


@dataclass(frozen=True, slots=True)
class ArrayAccess:
    """An operand of an instruction through which it accesses an array."""

    index: int
    """Of the instruction in its function."""
    operand: int
    """Place among the operands."""
    pointer: Pointer
    """Of the base register or symbol; a constant behind it in the brackets is not in it."""
    nbytes: int
    scalar: int
    """Bytes of one of the elements that the instruction speaks of; 0 where it does not say."""


@dataclass(frozen=True)
class Provenance:
    """What is known of the addresses in one function."""

    accesses: tuple[ArrayAccess, ...]
    problems: tuple[Problem, ...]


def accesses_to_shared(function: Function, arrays: Sequence[SharedArray]) -> Provenance:
    """The accesses of a function to those of `arrays` that it can name, and what else it does with their addresses."""
    visible = {name: one for one in arrays if one.function in ("", function.name) for name in one.names}
    flat = flatten_scopes(function)
    flow = ControlFlow(flat)
    analysis = _Analysis(visible)
    ends = _fixpoint(flow, analysis)
    numbers = {id(one): index for index, one in enumerate(flat.body.instructions())} if flat.body else {}
    accesses: list[ArrayAccess] = []
    problems: list[Problem] = []
    for block in flow.order:
        state = _entry(flow, block, ends)
        for one in flow.blocks[block].instructions:
            index = numbers[id(one)]
            found, told = analysis.uses(one, state, index)
            accesses += found
            problems += told
            analysis.step(one, state)
    key = {id(one): place for place, one in enumerate(accesses)}
    accesses.sort(key=lambda one: (one.index, key[id(one)]))
    return Provenance(tuple(accesses), tuple(sorted(problems, key=lambda one: one.index)))


def _fixpoint(flow: ControlFlow, analysis: _Analysis) -> dict[int, State]:
    """The state at the end of each reachable block."""
    ends: dict[int, State] = {}
    changed = True
    while changed:
        changed = False
        for block in flow.order:
            state = _entry(flow, block, ends)
            for one in flow.blocks[block].instructions:
                analysis.step(one, state)
            if ends.get(block) != state:
                ends[block] = state
                changed = True
    return ends


def _entry(flow: ControlFlow, block: int, ends: Mapping[int, State]) -> State:
    """Where paths meet: a register that only some of them have written has the value that these gave it."""
    state: State = {}
    for before in flow.predecessors[block]:
        for name, value in ends.get(before, {}).items():
            state[name] = merged(state[name], value) if name in state else value
    return state


def merged(one: Value, other: Value) -> Value:
    """What is known of a register that holds the one or the other."""
    if one == other:
        return one
    if isinstance(one, Pointer) and isinstance(other, Pointer) and (one.array, one.generic) == (other.array, other.generic):
        return replace(one, offset=None, multiple=min(_multiple(one), _multiple(other)))
    if isinstance(one, Number) and isinstance(other, Number):
        return Number(min(one.multiple, other.multiple))
    return Mixed(_arrays(one) | _arrays(other))


def _multiple(value: Value) -> int:
    """The power of two of which a number, or the offset of an address, is a multiple."""
    if isinstance(value, Pointer) and value.offset is not None:
        return power_of(value.offset)
    return 1 if isinstance(value, Mixed) else value.multiple


def power_of(number: int) -> int:
    """The greatest power of two that divides it, up to `MOST`."""
    return min(MOST, number & -number) if number else MOST


def _arrays(value: Value) -> frozenset[SharedArray]:
    if isinstance(value, Mixed):
        return value.arrays
    return frozenset({value.array}) if isinstance(value, Pointer) else frozenset()


class _Analysis:
    def __init__(self, visible: Mapping[str, SharedArray]) -> None:
        self._visible = visible

    def value(self, operand: Operand, state: State, bits: int = 64) -> Value:
        if isinstance(operand, Register):
            return state.get(operand.name.partition(".")[0], ANY)
        if isinstance(operand, Symbol) and operand.name in self._visible:
            return Pointer(self._visible[operand.name], False, bits, operand.offset)
        number = _constant(operand)
        return ANY if number is None else Number(power_of(number))

    def _is_other(self, operand: Address) -> bool:
        """Whether an address names a variable of its own, such as a parameter."""
        return isinstance(operand.base, Symbol)

    def step(self, one: Instruction, state: State) -> None:
        """The state behind an instruction."""
        written = registers_written(one)
        if not written:
            return
        result = self.result(one, state)[0]
        certain = overwrites(one)
        for name in written:
            state[name] = result if name in certain or name not in state else merged(state[name], result)

    def uses(self, one: Instruction, state: State, index: int) -> tuple[list[ArrayAccess], list[Problem]]:
        """The accesses that an instruction makes, and what it does that is not followed."""
        accesses, problems = self._accesses(one, state, index)
        reason = self.result(one, state)[1]
        escaping = frozenset().union(*(_arrays(value) for value in self._values(one, state)))
        if reason and escaping:
            problems.append(Problem(index, escaping, reason))
        return accesses, problems

    def _accesses(self, one: Instruction, state: State, index: int) -> tuple[list[ArrayAccess], list[Problem]]:
        accesses: list[ArrayAccess] = []
        problems: list[Problem] = []
        known = {id(access.address): access for access in memory_accesses(one)}
        for place, operand in enumerate(one.operands):
            if not isinstance(operand, Address):
                continue
            value, access = self.value(operand.base, state), known.get(id(operand))
            if isinstance(value, Mixed):
                problems.append(
                    Problem(index, value.arrays, "the address here may be of this array or of something else, by the path taken")
                )
            elif isinstance(value, Pointer) and access is not None and access.nbytes and access.nbytes <= WIDEST:
                scalar = SCALAR_TYPES[access.type].nbytes if access.type else 0
                accesses.append(ArrayAccess(index, place, value, access.nbytes, scalar))
            elif isinstance(value, Pointer):
                problems.append(Problem(index, _arrays(value), f"`{one.name}` accesses it in a way that is not followed"))
            elif access is not None and access.space == "shared" and not self._is_other(operand):
                reason = "the address here comes from somewhere else, and may lead to it"
                problems.append(Problem(index, frozenset(self._visible.values()), reason))
        return accesses, problems

    def _values(self, one: Instruction, state: State) -> list[Value]:
        """What its source operands hold, the bases of memory operands left out."""
        return [self.value(item, state) for operand in self._sources(one) for item in _items(operand)]

    # -- what an instruction makes of addresses ------------------------------------------------------------------------------------

    def _sources(self, one: Instruction) -> list[Operand]:
        written = {one.form.operands[letter] for letter in one.form.writes - one.form.updates}
        return [operand for place, operand in enumerate(one.operands) if place not in written]

    def result(self, one: Instruction, state: State) -> tuple[Value, str]:
        """The value of what is written, and why an address among the operands is not followed; empty if it is."""
        values = self._values(one, state)
        if all(isinstance(value, Number) for value in values):
            return Number(_multiple_of(one, values, self._sources(one))), ""
        rule = _RULES.get(one.opcode)
        if rule is not None and not any(isinstance(value, Mixed) for value in values) and not one.form.effect:
            operands = self._sources(one)
            if len(operands) == len(values):
                found = rule(one, operands, values)
                if found is not None:
                    return found[0], ""
        if any(isinstance(value, Mixed) for value in values) and not one.form.effect:
            if one.opcode == "mov":
                return values[0], ""
            return ANY, "what is computed with may be an address of this array or something else, by the path taken"
        return ANY, _reason(one)


def _items(operand: Operand) -> Sequence[Operand]:
    match operand:
        case Vector(items) | Arguments(items):
            return items
        case TextureAddress(items):
            return items[1:]
        case Pair(first, second):
            return (first, second)
        case Address():
            return ()
    return (operand,)


def _reason(one: Instruction) -> str:
    effect = one.form.effect
    if effect == "call":
        return "its address is passed to a call"
    if effect in ("store", "atomic", "reduction"):
        space = next(iter(one.form.addresses.values()), "")
        return "its address is passed to a call" if space == "param" else "its address is stored to memory"
    if effect == "warp":
        return "its address is given to other lanes"
    if one.opcode in ("setp", "set"):
        return "its address is compared with something else than its own addresses and 0"
    return f"`{one.name}` computes with its address in a way that is not followed"


# Each rule takes an instruction with its source operands and their values, at least one of them a pointer and none mixed. It gives the
# value of the result in a tuple, or None where it does not follow.

_Found = tuple[Value] | None


def _copied(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    value = values[0]
    if not isinstance(value, Pointer) or not isinstance(one.operands[one.form.operands["d"]], Register):
        return None
    return (replace(value, bits=_bits(one)),)


def _converted(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    """An address in shared memory has 32 bits, so widening and narrowing keep it; a generic one has 64."""
    value, bits = values[0], _bits(one)
    kind = one.form.types.get("d", "")
    if not isinstance(value, Pointer) or kind[:1] not in "us" or bits < 32 or (value.generic and bits < 64):
        return None
    source = one.form.types.get("a", "")
    return None if SCALAR_TYPES[source].bits < 32 else (replace(value, bits=bits),)


def _between_spaces(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    value = values[0]
    if not isinstance(value, Pointer) or (one.slot("space") or "").partition("::")[0] != "shared":
        return None
    to_shared = one.has("to")
    return (replace(value, generic=not to_shared, bits=_bits(one)),) if value.generic == to_shared else None


def _added(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    first, second = values
    if isinstance(first, Pointer) and isinstance(second, Number):
        return _moved(one, first, _constant(operands[1]), second.multiple)
    if isinstance(second, Pointer) and isinstance(first, Number):
        return _moved(one, second, _constant(operands[0]), first.multiple)
    return None


def _subtracted(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    first, second = values
    if isinstance(first, Pointer) and isinstance(second, Pointer):
        return (ANY,) if (first.array, first.generic) == (second.array, second.generic) else None
    number = _constant(operands[1])
    return _moved(one, first, None if number is None else -number, _multiple(second)) if isinstance(first, Pointer) else None


def _multiplied_and_added(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    a, b, c = values
    if one.has("hi") or not isinstance(a, Number) or not isinstance(b, Number) or not isinstance(c, Pointer):
        return None
    factors = _constant(operands[0]), _constant(operands[1])
    known = None if factors[0] is None or factors[1] is None else factors[0] * factors[1]
    return _moved(one, c, known, min(MOST, a.multiple * b.multiple))


def _low_bits(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    """Where only bits below the alignment of the array change, those of the address are those of the offset."""
    place = next(place for place, value in enumerate(values) if isinstance(value, Pointer))
    value, number = values[place], _constant(operands[1 - place])
    if not isinstance(value, Pointer) or number is None:
        return None
    changed = ~number if one.opcode == "and" else number
    if not 0 <= changed & (1 << _bits(one)) - 1 < value.array.align:
        return None
    if value.offset is None:
        return (replace(value, bits=_bits(one), multiple=1),)
    offset = {"and": value.offset & number, "or": value.offset | number, "xor": value.offset ^ number}[one.opcode]
    return (replace(value, bits=_bits(one), offset=offset),)


def _chosen(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    return (merged(values[0], values[1]),)


def _compared(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    first, second = values[:2]
    if isinstance(first, Pointer) and isinstance(second, Pointer):
        return (ANY,) if (first.array, first.generic) == (second.array, second.generic) else None
    number = _constant(operands[1] if isinstance(first, Pointer) else operands[0])
    return (ANY,) if number == 0 else None


def _asked_for_space(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> _Found:
    return (ANY,)


def _moved(one: Instruction, pointer: Pointer, by: int | None, multiple: int) -> _Found:
    if pointer.generic and _bits(one) < 64:
        return None
    offset = None if by is None or pointer.offset is None else pointer.offset + by
    return (replace(pointer, bits=_bits(one), offset=offset, multiple=min(_multiple(pointer), multiple)),)


def _multiple_of(one: Instruction, values: Sequence[Value], operands: Sequence[Operand]) -> int:
    """The power of two of which the result is a multiple, all operands being numbers."""
    known = [_multiple(value) for value in values]
    kind = one.form.types.get("d", "")
    if one.form.effect or len(known) != len(operands) or kind[:1] not in "bus":
        return 1
    match one.opcode, known:
        case (("mov" | "cvt" | "neg"), [only]) if one.form.types.get("a", kind)[:1] in "bus" and not one.has("sat"):
            return only
        case (("add" | "sub" | "or" | "xor"), [first, second]):
            return min(first, second)
        case "and", [first, second]:
            return max(first, second)
        case "mul", [first, second] if not one.has("hi"):
            return min(MOST, first * second)
        case "mad", [first, second, third] if not one.has("hi"):
            return min(MOST, first * second, third)
        case "selp", [first, second, _]:
            return min(first, second)
        case "shl", [first, _]:
            distance = _constant(operands[1])
            return min(MOST, first << min(distance, 16)) if distance is not None else 1
    return 1


def _bits(one: Instruction) -> int:
    return SCALAR_TYPES[one.form.types["d"]].bits


def _constant(operand: Operand) -> int | None:
    if not isinstance(operand, Immediate) or operand.kind != "int":
        return None
    return operand.value - (1 << 64) if operand.value >= 1 << 63 else operand.value


_RULES = {
    "mov": _copied,
    "cvt": _converted,
    "cvta": _between_spaces,
    "add": _added,
    "sub": _subtracted,
    "mad": _multiplied_and_added,
    "and": _low_bits,
    "or": _low_bits,
    "xor": _low_bits,
    "selp": _chosen,
    "setp": _compared,
    "set": _compared,
    "isspacep": _asked_for_space,
}
