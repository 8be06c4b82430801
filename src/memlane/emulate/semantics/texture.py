"""Textures and surfaces, through handles from the target (`cudaTextureObject_t`, `cudaSurfaceObject_t`)."""

from __future__ import annotations

from memlane.chip import LANES
from memlane.emulate.code.build import F32, I32, INTEGERS, Value, constant, vector
from memlane.emulate.code.formats import narrow
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.helper import Helper
from memlane.emulate.runtime.texture import CHANNELS, GEOMETRIES, QUERIES, axes_of, gather, query, sample
from memlane.emulate.runtime.texture_surface import SurfaceMode, load, reduce, store, store_texel
from memlane.emulate.semantics.accesses import count_texture_access
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES, Address, Register, TextureAddress, elements

_TEXTURE, _SURFACE = "texture-instructions-", "surface-instructions-"
_WORD = 4 * LANES
"""Bytes of 32 words."""


# -- operands ----------------------------------------------------------------------------------------------------------------------


def _handles(k: Lowering) -> Value:
    """Store the handle of each lane; return a pointer to them."""
    operand = k.instruction.operand("a")
    base = operand.items[0] if isinstance(operand, TextureAddress) else operand.base if isinstance(operand, Address) else None
    if not isinstance(base, Register):
        raise k.unsupported(f"{k.instruction.name} of the variable {base}; it takes handles, as kernel arguments")
    k.e.store_lanes(k.bits_of(base, "b64"), k.scratch("handles", 8 * LANES))
    return k.scratch("handles")


def _geometry(k: Lowering) -> str:
    geometry = k.slot_of("geom")
    if geometry not in GEOMETRIES or k.has("e") or k.has("f"):
        raise k.unsupported()
    return geometry


def _coordinates(k: Lowering, geometry: str, type_name: str) -> Value:
    """Store the coordinates, 32 words for the layer, if the geometry has one, and 32 for each axis; return a pointer to them."""
    operand = k.instruction.operand("a")
    if not isinstance(operand, TextureAddress) or len(operand.items) != 2:
        raise k.unsupported(f"{k.instruction.name} with a sampler of its own")
    given = elements(operand.items[1])
    layered = geometry.startswith("a")
    count = axes_of(geometry) + layered
    if len(given) < count:
        raise k.unsupported(f"{k.instruction.name} with {len(given)} coordinates")
    for number, item in enumerate(given[:count]):
        bits = k.bits_of(item, "u32" if layered and number == 0 else type_name)
        k.e.store_lanes(bits, k.e.at(k.scratch("coordinates", 4 * _WORD), number * _WORD))
    return k.scratch("coordinates")


# -- textures ----------------------------------------------------------------------------------------------------------------------


def _read(k: Lowering, helper: Helper, coordinates: Value) -> None:
    """Run a helper that reads four words, and write them to the registers of `d`: unchanged, or as halves, alone or in pairs."""
    e, targets, type_name = k.e, elements(k.instruction.operand("d")), k.slot_of("dtype")
    scalar = SCALAR_TYPES[type_name]
    if len(targets) * scalar.lanes != CHANNELS:
        raise k.unsupported()
    out = k.scratch("data")
    k.call(helper, k.warp, _handles(k), coordinates, k.active, constant(I32, k.index), out)
    count_texture_access(k, scalar.nbytes * len(targets))
    words = [e.load_lanes(e.at(out, number * _WORD), I32) for number in range(CHANNELS)]
    if type_name.startswith("f16"):
        words = [narrow(e, e.bitcast(word, vector(F32)), "f16") for word in words]
    if scalar.lanes == 2:
        words = [e.or_(low, e.shl(high, constant(low.type, 16))) for low, high in zip(words[::2], words[1::2], strict=True)]
    for target, word in zip(targets, words, strict=True):
        k.write_operand(target, word if scalar.bits == 32 else e.trunc(word, vector(INTEGERS[scalar.bits])), type_name)


@semantics("texture/tex")
def tex(k: Lowering) -> None:
    """Read a texture. Textures have one level: levels and gradients make no difference."""
    geometry, coordinate = _geometry(k), k.slot_of("ctype")
    if geometry == "cube" and coordinate == "s32":
        raise k.unsupported()
    _read(k, sample(geometry, coordinate == "s32"), _coordinates(k, geometry, coordinate))


@semantics("texture/tld4")
def tld4(k: Lowering) -> None:
    geometry = _geometry(k)
    _read(k, gather(geometry, "rgba".index(k.slot_of("comp"))), _coordinates(k, geometry, "f32"))


@semantics("texture/txq", "texture/suq")
def txq(k: Lowering) -> None:
    name = k.slot_of("query")
    if name not in QUERIES:
        raise k.unsupported()
    k.call(query(name, k.instruction.opcode == "suq"), k.warp, _handles(k), k.active, constant(I32, k.index), k.scratch("data"))
    k.write("d", k.e.load_lanes(k.scratch("data"), I32))


# -- surfaces ----------------------------------------------------------------------------------------------------------------------


def _mode(k: Lowering) -> SurfaceMode:
    return SurfaceMode(_geometry(k), k.slot_of("clamp"))


def _access(k: Lowering, helper: Helper, geometry: str, nbytes: int) -> None:
    k.call(helper, k.warp, _handles(k), _coordinates(k, geometry, "s32"), k.active, constant(I32, k.index), k.scratch("data"))
    count_texture_access(k, nbytes)


def _put_data(k: Lowering, type_name: str) -> int:
    """Store the elements of `v` where helpers read them; return how many there are."""
    sources = elements(k.instruction.operand("v"))
    for number, source in enumerate(sources):
        k.e.store_lanes(k.bits_of(source, type_name), k.e.at(k.scratch("data"), number * LANES * SCALAR_TYPES[type_name].nbytes))
    return len(sources)


@semantics("texture/suld")
def suld(k: Lowering) -> None:
    mode, scalar, targets = _mode(k), SCALAR_TYPES[k.slot_of("dtype")], elements(k.instruction.operand("d"))
    _access(k, load(mode, scalar.bits, len(targets)), mode.geometry, scalar.nbytes * len(targets))
    for number, target in enumerate(targets):
        value = k.e.load_lanes(k.e.at(k.scratch("data"), number * LANES * scalar.nbytes), INTEGERS[scalar.bits])
        k.write_operand(target, value, scalar.name)


@semantics("texture/sust")
def sust(k: Lowering) -> None:
    mode, scalar = _mode(k), SCALAR_TYPES[k.slot_of("ctype")]
    count = _put_data(k, scalar.name)
    helper = store_texel(mode, count) if k.instruction.has("p") else store(mode, scalar.bits, count)
    _access(k, helper, mode.geometry, scalar.nbytes * count)


@semantics("texture/sured")
def sured(k: Lowering) -> None:
    mode, scalar, operation = _mode(k), SCALAR_TYPES[k.slot_of("ctype")], k.slot_of("op")
    _put_data(k, scalar.name)
    if operation in ("min", "max") and scalar.kind != "s":
        operation = f"u{operation}"
    _access(k, reduce(mode, operation, scalar.bits, k.instruction.has("p")), mode.geometry, scalar.nbytes)
