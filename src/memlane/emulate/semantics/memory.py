"""Data movement: moves, loads, stores, addresses."""

from __future__ import annotations

from memlane.chip import LANES
from memlane.emulate.code.build import I32, I64, INTEGERS, Value, constant, vector
from memlane.emulate.layout import CONTEXT, WINDOW_BYTES, WINDOWS
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.access import load, store
from memlane.emulate.runtime.address_wrapping import wrap_addresses
from memlane.emulate.semantics.accesses import access
from memlane.emulate.semantics.cluster import is_own_shared
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES, Address, Operand, Register, ScalarType, Symbol, Vector, elements


@semantics("memory/mov")
def mov(k: Lowering) -> None:
    source, target = k.instruction.operand("a"), k.instruction.operand("d")
    if k.slot_of("vec"):
        values = [k.value(item, k.slot_type("d")) for item in elements(source)]  # read all before the first is written
        if len(values) != len(elements(target)):
            raise k.unsupported(f"{k.instruction.name} of vectors of different lengths")
        for item, value in zip(elements(target), values, strict=True):
            k.write_operand(item, value, k.slot_type("d"))
        return None
    if isinstance(source, Vector) and isinstance(target, Vector):
        return _unpack(k, target, _packed(k, source))
    if isinstance(source, Vector):
        return k.write("d", _packed(k, source))
    if isinstance(target, Vector):
        return _unpack(k, target, k.read("a", f"b{SCALAR_TYPES[k.slot_type('d')].bits}"))
    return k.write("d", k.read("a"))


def _packed(k: Lowering, source: Vector) -> Value:
    """Return the value of `mov.b64 d, {a, b}`: the first component is lowest."""
    e, bits = k.e, SCALAR_TYPES[k.slot_type("d")].bits
    part, kind = bits // len(source.items), vector(INTEGERS[bits])
    result: Value = constant(kind, 0)
    for number, item in enumerate(source.items):
        wide = e.zext(k.bits_of(item, f"b{part}"), kind)
        result = e.or_(result, e.shl(wide, constant(kind, number * part)))
    return result


def _unpack(k: Lowering, target: Vector, value: Value) -> None:
    e, bits = k.e, SCALAR_TYPES[k.slot_type("d")].bits
    part = bits // len(target.items)
    for number, item in enumerate(target.items):
        k.write_operand(item, e.trunc(e.lshr(value, constant(value.type, number * part)), vector(INTEGERS[part])), f"b{part}")


# -- loads and stores ------------------------------------------------------------------------------------------------------------


def state_space(k: Lowering) -> str:
    """Return the state space of the instruction's address."""
    if k.slot_of("ss") == "shared::cluster":
        return "shared::cluster"
    space = k.instruction.form.addresses["a"]
    if space not in ("global", "shared", "local", "const", "param", "generic"):
        raise k.unsupported()
    return space


@semantics("memory/ld", "memory/ld.global.nc", "memory/ldu")
def ld(k: Lowering) -> None:
    space, scalar, targets = state_space(k), SCALAR_TYPES[k.slot_type("d")], elements(k.instruction.operand("d"))
    address = k.instruction.operand("a")
    if isinstance(address, Vector):
        return _load_registers(k, address, targets)
    if space == "param" and isinstance(address, Address) and isinstance(address.base, Symbol):
        return _load_parameter(k, address.base, address.offset, targets)
    e, out = k.e, k.scratch("data")
    bits, count = _pieces(scalar, targets)
    pointer, distance = k.address("a")
    with access(k, space, pointer, distance, bits // 8, count, out) as lanes:
        k.call(load(space, bits, count), k.warp, pointer, distance, lanes, constant(I32, k.index), out)
        if k.instruction.has("acquire"):
            e.fence("acquire")
    parts = [e.load_lanes(e.at(out, number * LANES * bits // 8), INTEGERS[bits]) for number in range(count)]
    if scalar.bits == 128:
        parts = [_joined(k, *parts)]
    for target, part in zip(targets, parts, strict=True):
        k.write_operand(target, part, scalar.name)
    return None


def _pieces(scalar: ScalarType, operands: tuple[Operand, ...]) -> tuple[int, int]:
    """Return the bits of an element and the number of elements that an access moves: one of 128 bits is two of 64."""
    return (64, 2 * len(operands)) if scalar.bits == 128 else (scalar.bits, len(operands))


def _joined(k: Lowering, low: Value, high: Value) -> Value:
    """Return lanes of 128 bits of their halves."""
    e, kind = k.e, vector(INTEGERS[128])
    return e.or_(e.zext(low, kind), e.shl(e.zext(high, kind), constant(kind, 64)))


def _load_parameter(k: Lowering, symbol: Symbol, offset: int, targets: tuple[Operand, ...]) -> None:
    """Load a kernel parameter: the same for all threads, at a known offset."""
    e, scalar = k.e, SCALAR_TYPES[k.slot_type("d")]
    space, start = k.frame.offsets.get(symbol.name, ("", 0))
    begin = start + symbol.offset + offset
    end = begin + scalar.nbytes * len(targets)
    if space != "param" or begin < 0 or end > k.frame.params_bytes:
        raise k.unsupported(f"{k.instruction.name} of {symbol.name}, which is not a kernel parameter or too short")
    params = e.get_pointer(k.context, CONTEXT, "params")
    for number, target in enumerate(targets):
        value = e.load(e.at(params, begin + number * scalar.nbytes), typ=INTEGERS[scalar.bits], align=1)
        k.write_operand(target, e.splat(value), scalar.name)


def _load_registers(k: Lowering, registers: Vector, targets: tuple[Operand, ...]) -> None:
    """Load a parameter of a device function, which is kept in registers: each target takes as many registers as it has bits for."""
    e, scalar = k.e, SCALAR_TYPES[k.slot_type("d")]
    parts = [k.bits_of(item, f"b{k.registers.bits[item.name]}") for item in registers.items if isinstance(item, Register)]
    kind, number = vector(INTEGERS[scalar.bits]), 0
    for target in targets:
        value: Value = constant(kind, 0)
        filled = 0
        while filled < scalar.bits:
            part = parts[number]
            width = part.type.element.width
            wide = part if width == scalar.bits else e.shl(e.zext(part, kind), constant(kind, filled))
            value = wide if width == scalar.bits else e.or_(value, wide)
            number, filled = number + 1, filled + width
        k.write_operand(target, value, scalar.name)


def _store_registers(k: Lowering, sources: tuple[Operand, ...], registers: Vector) -> None:
    """Store to a parameter of a device function, which is kept in registers."""
    e, scalar = k.e, SCALAR_TYPES[k.slot_type("b")]
    left = list(registers.items)
    for source in sources:
        value, taken = k.bits_of(source, scalar.name), 0
        while taken < scalar.bits:
            register = left.pop(0)
            assert isinstance(register, Register)
            width = k.registers.bits[register.name]
            part = value if width == scalar.bits else e.trunc(e.lshr(value, constant(value.type, taken)), vector(INTEGERS[width]))
            k.set_register(register.name, part)
            taken += width


@semantics("memory/st", "memory/st.async.release")
def st(k: Lowering) -> None:
    space, scalar, sources = state_space(k), SCALAR_TYPES[k.slot_type("b")], elements(k.instruction.operand("b"))
    registers = k.instruction.operand("a")
    if isinstance(registers, Vector):
        return _store_registers(k, sources, registers)
    if space in ("const", "param"):
        raise k.unsupported()
    e, data = k.e, k.scratch("data")
    bits, count = _pieces(scalar, sources)
    parts = [k.bits_of(source, scalar.name) for source in sources]
    if scalar.bits == 128:
        kind = parts[0].type
        parts = [e.trunc(e.lshr(parts[0], constant(kind, shift)), vector(I64)) for shift in (0, 64)]
    for number, part in enumerate(parts):
        e.store_lanes(part, e.at(data, number * LANES * bits // 8))
    pointer, distance = k.address("a")
    with access(k, space, pointer, distance, bits // 8, count, data) as lanes:
        if k.instruction.has("release"):
            e.fence("release")
        k.call(store(space, bits, count), k.warp, pointer, distance, lanes, constant(I32, k.index), data)


@semantics("memory/prefetch", "memory/prefetchu", "memory/applypriority", "memory/discard", "asynchronous/cp.async.bulk.prefetch")
def hint(k: Lowering) -> None:
    """Do nothing: hints to the caches change no value."""


@semantics("memory/createpolicy")
def createpolicy(k: Lowering) -> None:
    """Return 0 for a cache policy, which the emulator ignores."""
    k.write("d", constant(vector(I64), 0))


# -- addresses -------------------------------------------------------------------------------------------------------------------


@semantics("memory/cvta")
def cvta(k: Lowering) -> None:
    """Convert an address to or from generic. The window of shared memory is as large as its addresses: their overflow is dropped, as on
    chips since sm_90."""
    space = k.slot_of("space").partition("::")[0]
    address = k.read("a")
    window = WINDOWS.get(space, 0)
    if not window:
        return k.write("d", address)
    if address.type.element.width != 64:
        raise k.unsupported()
    start = constant(address.type, window)
    if k.instruction.has("to"):
        inner = k.e.sub(address, start)
        return k.write("d", wrap_addresses(k.e, inner) if space == "shared" else inner)
    return k.write("d", k.e.add(wrap_addresses(k.e, address) if space == "shared" else address, start))


@semantics("memory/isspacep")
def isspacep(k: Lowering) -> None:
    """Test whether an address lies in a space. The window of kernel parameters counts as global memory, the variables that the kernel names
    as constant."""
    e, kind = k.e, vector(I64)
    space = k.slot_of("ss").partition("::")[0]
    address = k.read("a", "u64")
    if space == "shared" and k.slot_of("ss") != "shared::cluster":
        return k.write("p", is_own_shared(k, address))

    def within(start: Value, nbytes: int) -> Value:
        return e.mask_of(e.icmp_unsigned("<", e.sub(address, start), constant(kind, nbytes)))

    if space in WINDOWS:
        return k.write("p", within(constant(kind, WINDOWS[space]), WINDOW_BYTES))
    is_constant = constant(I32, 0)
    for name, nbytes in k.frame.constants.items():
        is_constant = e.or_(is_constant, within(k.symbol_address(name, 0), nbytes))
    if space == "const":
        return k.write("p", is_constant)
    elsewhere = is_constant
    for name in ("shared", "local"):
        elsewhere = e.or_(elsewhere, within(constant(kind, WINDOWS[name]), WINDOW_BYTES))
    return k.write("p", e.not_(elsewhere))
