"""Find the pointer parameters of a kernel through which its loads and its stores may access memory; conservative.

An access is known if its address is made only from pointer parameters and named variables: by moves, conversions between state spaces,
selections among such addresses, and additions of numbers that are not pointers. Through any other address, such as one that was loaded from
memory, assembled from halves, or returned by a function, a kernel may reach everything. Each instruction that writes a register counts,
whatever the control flow.

One rule of C++ is assumed: a number added to a pointer leads no further than to the end of its array.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from memlane.ptx.access import memory_accesses
from memlane.ptx.calls import SYSTEM_CALLS, called_functions, called_name
from memlane.ptx.inlining import inline_calls
from memlane.ptx.ir import Address, Function, Immediate, Instruction, Module, Operand, Register, Symbol, Vector, elements
from memlane.ptx.once import once_for_each
from memlane.ptx.registers import Scope, registers_in, values_read, values_written
from memlane.ptx.scopes import flatten_scopes
from memlane.ptx.types import SCALAR_TYPES
from memlane.walks import bounded_rounds

_POINTER_BITS = 64
_INSIDE = frozenset({"shared", "shared::cluster", "local", "param", "const"})
"""State spaces outside all buffers."""
_LINEAR = frozenset({"mov", "add", "sub", "neg", "not", "and", "or", "xor", "selp", "slct", "min", "max", "abs", "cvta"})
"""Opcodes that make a pointer, or its negation, from a pointer, and from nothing narrower."""
_MOST_SHIFTED = 8
"""Largest shift of an index; a number that is shifted further may be the upper half of a pointer."""
_LARGEST_FACTOR = 1 << 15
"""Largest factor of an index; a number that is multiplied by more may be the upper half of a pointer."""


@dataclass(frozen=True, slots=True)
class ParameterUse:
    """Positions of the pointer parameters of a kernel through which it may read, and through which it may write."""

    reads: frozenset[int]
    writes: frozenset[int]
    unknown_write: Instruction | None = None
    """A store to an address not known to lie in one of these arrays, in a variable of the module, or in private memory; None if there is
    none. Stores to surfaces are not included.
    """


def parameter_use(module: Module, kernel: str, pointers: Collection[int], private: Collection[int] = ()) -> ParameterUse:
    """Return the parameters through which a kernel may read and write; rather too many than too few.

    `pointers`: positions of the parameters that hold the address of an array. All others hold values that lead to none of these arrays, as
    far as the caller knows; an access through their value counts as one to any array, unless they are `private`: addresses of memory that
    belongs to the launch alone. Atomic operations read and write.
    """
    known, key = _known(module), (kernel, frozenset(pointers), frozenset(private))
    if key not in known:
        known[key] = _use(module, kernel, *key[1:])
    return known[key]


@once_for_each
def _known(_: Module) -> dict[tuple[str, frozenset[int], frozenset[int]], ParameterUse]:
    return {}


def _use(module: Module, kernel: str, pointers: frozenset[int], private: frozenset[int]) -> ParameterUse:
    inlined = inline_calls(module).module
    function = inlined.kernels[kernel]
    found: dict[bool, int] = {False: 0, True: 0}
    everything = _bits(pointers)
    unknown_write: Instruction | None = None
    for body in (function, *called_functions(inlined, function)):
        values = _Values(flatten_scopes(body), pointers, private, everything)
        for one in values.instructions:
            for stores, operand in _touched(inlined, one):
                found[stores] |= everything if operand is None else values.reached(operand)
                if stores and one.form.effect != "surface" and not (operand is not None and values.is_known(operand)):
                    unknown_write = unknown_write or one
    reads, writes = (frozenset(position for position in pointers if found[stores] >> position & 1) for stores in (False, True))
    return ParameterUse(reads, writes, unknown_write)


def _bits(positions: Collection[int]) -> int:
    return sum(1 << position for position in positions)


# -- accesses ----------------------------------------------------------------------------------------------------------------------


def _touched(module: Module, one: Instruction) -> Iterator[tuple[bool, Address | None]]:
    """Yield (writes, address) for each access of an instruction to arrays; the address is None if it may be anywhere."""
    form = one.form
    if form.effect == "call":
        yield from _called(module, one)
    elif form.effect == "texture" or form.effect == "surface":
        if not one.opcode.endswith("q"):  # queries of sizes
            yield False, None
            if one.opcode != "suld" and form.effect == "surface":
                yield True, None
    elif form.effect == "prefetch" and one.opcode != "discard":
        return
    elif "map" in form.addresses or one.opcode == "tensormap":
        # The array lies where the tensor map points, not at the map's own address.
        yield from ((stores, None) for stores in (False, True))
    else:
        yield from _plainly_touched(one)


def _called(module: Module, one: Instruction) -> Iterator[tuple[bool, Address | None]]:
    """Yield the accesses of a call to a function without a body; functions with a body are examined by themselves."""
    name = called_name(one)
    if name not in module.functions:  # or through a pointer
        yield False, None
        if name not in SYSTEM_CALLS:
            yield True, None


def _plainly_touched(one: Instruction) -> Iterator[tuple[bool, Address | None]]:
    form = one.form
    accesses = {id(access.address): access for access in memory_accesses(one)}
    for letter, space in form.addresses.items():
        operand = one.operand(letter)
        if space in _INSIDE or operand is None or one.opcode in ("createpolicy", "fence"):
            continue
        address = operand if isinstance(operand, Address) else None
        access = accesses.get(id(operand))
        kind = "other" if access is None else access.kind
        updates = kind not in ("load", "store") or "reduce" in one.modifiers or one.opcode == "red"
        stores = kind == "store" or one.opcode == "discard"
        if updates or not stores:
            yield False, address
        if updates or stores:
            yield True, address


# -- values ------------------------------------------------------------------------------------------------------------------------


class _Values:
    """Possible values of the registers of one function."""

    def __init__(self, function: Function, pointers: frozenset[int], private: frozenset[int], everything: int) -> None:
        self.instructions = tuple(function.instructions())
        self._scope = Scope.of(() if function.body is None else function.body.walk())
        # Callers may pass any address to a function that is called.
        self._parameters = {one.name: position for position, one in enumerate(function.params) if function.is_entry}
        self._sizes = [one.nbytes for one in function.params]
        self._structures = {position for position, one in enumerate(function.params) if one.shape is not None}
        self._pointers, self._private, self._everything = pointers, private, everything
        self._loaded = 1 << len(function.params)
        """Bit of values that were loaded from memory."""
        self._title = function.title
        self._writers: dict[str, list[Instruction]] = defaultdict(list)
        self._readers: dict[str, list[Instruction]] = defaultdict(list)
        for one in self.instructions:
            for name in values_written(one):
                self._writers[name].append(one)
            for name in values_read(one):
                self._readers[name].append(one)
        self._made_of = self._sources()
        """Bits of the parameters, and of memory, from which the values of each register are made."""
        self._in_memory = self._stored() if function.is_entry else everything
        self._may_point = self._pointer_like()
        self._based = self._known_addresses()

    def is_known(self, address: Address) -> bool:
        """Return whether an access by this address stays in arrays of pointer parameters, named variables and private memory."""
        return self._is_based(address.base)

    def reached(self, address: Address) -> int:
        """Return the pointer parameters, as bits, whose arrays an access by this address may reach."""
        if not self._is_based(address.base):
            return self._everything
        made_of = self._bits_of(address.base)
        return (made_of | (self._in_memory if made_of & self._loaded else 0)) & self._everything

    def _sources(self) -> dict[str, int]:
        made_of: dict[str, int] = defaultdict(int)

        def change(one: Instruction) -> bool:
            bits = self._loaded if one.form.addresses or one.form.effect == "call" else 0
            position = self._loaded_parameter(one)
            if position is not None:
                bits = 1 << position & self._everything
            elif not bits:
                for name in values_read(one):
                    bits |= made_of[name]
            changed = False
            for name in values_written(one):
                if bits & ~made_of[name]:
                    made_of[name] |= bits
                    changed = True
            return changed

        self._solve(change)
        return made_of

    def _loaded_parameter(self, one: Instruction) -> int | None:
        """Return the position of the parameter that an instruction loads, wholly or in part.

        None if it is not such a load, or may read another parameter than the one it names.
        """
        address = one.operand("a") if one.form.effect == "load" and one.form.addresses.get("a") == "param" else None
        if not isinstance(address, Address) or not isinstance(address.base, Symbol) or address.base.name not in self._parameters:
            return None
        position = self._parameters[address.base.name]
        start, count = address.offset + address.base.offset, len(elements(one.operand("d")))
        return position if 0 <= start <= self._sizes[position] - count * SCALAR_TYPES[one.form.types["d"]].nbytes else None

    def _stored(self) -> int:
        """Return the pointer parameters, as bits, whose addresses may lie in memory.

        These are the ones that were stored, and all if the kernel accesses its parameters otherwise than by name.
        """
        bits = 0
        for one in self.instructions:
            if one.form.addresses or one.form.effect == "call":
                for operand in _data(one):
                    bits |= self._bits_of(operand)
            symbols = list(_symbols(one))
            by_register = one.form.addresses.get("a") == "param" and not symbols
            if self._loaded_parameter(one) is None and (by_register or any(name in self._parameters for name in symbols)):
                bits |= self._everything
        return bits & self._everything

    def _pointer_like(self) -> set[str]:
        """Return the registers that may hold a pointer, or the difference of two; they must not count as a number added to one."""
        found: set[str] = set()

        def change(one: Instruction) -> bool:
            written = [name for name in values_written(one) if name not in found and self._bits(name) >= _POINTER_BITS]
            if not written or not self._gives_pointer(one, found):
                return False
            found.update(written)
            return True

        self._solve(change)
        return found

    def _gives_pointer(self, one: Instruction, known: set[str]) -> bool:
        """Return whether an instruction may produce a pointer, if the registers `known` may hold one."""
        position = self._loaded_parameter(one)
        if position is not None:
            return position in self._pointers | self._private | self._structures
        if one.form.addresses or one.form.effect == "call" or any(_symbols(one)):
            return True
        read = values_read(one)
        if one.opcode in _LINEAR and not any(isinstance(operand, Vector) for operand in one.operands):
            return any(name in known for name in read)
        if one.opcode == "cvt" and one.form.types.get("a") in SCALAR_TYPES:
            return SCALAR_TYPES[one.form.types["a"]].nbytes * 8 >= _POINTER_BITS and any(name in known for name in read)
        if one.opcode in ("mul", "mad", "shl", "shr") and _is_scaled(one):
            added = one.operand("c")
            return added is not None and any(name in known for name in registers_in(added))
        return any(self._made_of[name] for name in read)

    def _known_addresses(self) -> set[str]:
        """Return the registers that hold only addresses in arrays of pointer parameters, and in named variables."""
        based = {name for name in self._writers if self._bits(name) == _POINTER_BITS}
        work = list(based)
        while work:
            name = work.pop()
            if name in based and not all(self._keeps_base(one, based) for one in self._writers[name]):
                based.discard(name)
                work.extend(other for reader in self._readers[name] for other in values_written(reader))
        return based

    def _keeps_base(self, one: Instruction, based: set[str]) -> bool:
        """Return whether an instruction produces such an address, if the registers `based` hold them."""
        position = self._loaded_parameter(one)
        if position is not None:
            whole = SCALAR_TYPES[one.form.types["d"]].nbytes == self._sizes[position]
            return whole and position in self._pointers | self._private
        if one.form.addresses or one.form.effect:
            return False

        def is_based(operand: Operand | None) -> bool:
            return operand is not None and self._is_based(operand, based)

        def is_number(operand: Operand | None) -> bool:
            return operand is not None and not any(name in self._may_point for name in registers_in(operand)) and not _names(operand)

        a, b, c = (one.operand(letter) for letter in "abc")
        match one.opcode:
            case "mov" | "cvta":
                return is_based(a) and isinstance(a, Register | Symbol)
            case "cvt":
                return one.form.types.get("a") in ("u64", "s64") and one.form.types.get("d") in ("u64", "s64") and is_based(a)
            case "add":
                return (is_based(a) and is_number(b)) or (is_number(a) and is_based(b))
            case "sub":
                return is_based(a) and is_number(b)
            case "mad":
                made_of = sum(self._bits_of(factor) for factor in (a, b) if factor is not None)
                return is_based(c) and (_is_scaled(one) or not made_of)
            case "and":
                return is_based(a) and isinstance(b, Immediate) and bool(b.value >> _POINTER_BITS - 1)
            case "selp":
                return is_based(a) and is_based(b)
        return False

    def _is_based(self, operand: Operand, based: set[str] | None = None) -> bool:
        if isinstance(operand, Register):
            return operand.name in (self._based if based is None else based)
        return isinstance(operand, Symbol) and operand.name not in self._parameters

    def _bits_of(self, operand: Operand) -> int:
        bits = 0
        for name in registers_in(operand):
            bits |= self._made_of[name]
        return bits

    def _bits(self, register: str) -> int:
        kind = SCALAR_TYPES.get(self._scope.type_of(register))
        return _POINTER_BITS if kind is None else kind.bits

    def _solve(self, change: Callable[[Instruction], bool]) -> None:
        """Apply `change` to the instructions until a fixpoint is reached. The known facts of a register only grow."""
        work = list(reversed(self.instructions))
        # An instruction is visited again for each parameter, or memory, newly found in a register that it reads.
        met_again = (len(self._sizes) + 2) * sum(map(len, self._readers.values()))
        steps = bounded_rounds(f"what the registers of {self._title} may hold", len(work) + met_again)
        while work:
            next(steps)
            one = work.pop()
            if change(one):
                work.extend(reader for name in values_written(one) for reader in self._readers[name])


def _is_scaled(one: Instruction) -> bool:
    """Return whether an instruction scales an index, so that its product or shift is not a pointer any more.

    A pointer times a small number is not a pointer.
    """
    a, b = one.operand("a"), one.operand("b")
    if one.opcode in ("shl", "shr"):
        most = _MOST_SHIFTED if one.opcode == "shl" else _POINTER_BITS
        return isinstance(b, Immediate) and 1 <= b.value <= most
    factor = b if isinstance(b, Immediate) else a
    least = 1 if "wide" in one.modifiers else 2
    return isinstance(factor, Immediate) and least <= abs(factor.value) <= _LARGEST_FACTOR


def _data(one: Instruction) -> Iterator[Operand]:
    """Yield the operands that an instruction reads, addresses excluded."""
    places = {one.form.operands[letter] for letter in (*one.form.addresses, *(one.form.writes - one.form.updates))}
    yield from (operand for place, operand in enumerate(one.operands) if place not in places)


def _symbols(one: Instruction) -> Iterator[str]:
    for operand in one.operands:
        yield from _names(operand)


def _names(operand: Operand) -> list[str]:
    match operand:
        case Symbol(name) | Address(Symbol(name)):
            return [name]
        case Vector(items):
            return [name for item in items for name in _names(item)]
    return []
