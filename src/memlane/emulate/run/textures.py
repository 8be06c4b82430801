"""Keep the textures and surfaces of one emulated device as records that generated code finds by handle."""

from __future__ import annotations

import threading
import weakref
from collections import deque

import numpy as np
import numpy.typing as npt

from memlane.emulate.layout import TEXTURE, TEXTURE_WINDOW
from memlane.emulate.runtime.texture import ANY_SURFACE, FORMATS, GEOMETRIES, LINEAR_MEMORY, surface_kind, texture_kind
from memlane.errors import UnsupportedPtx
from memlane.launch import Sampling, Texels
from memlane.launch.texture import ADDRESS_MODES
from memlane.number_format import plural
from memlane.ptx import Instruction, Module, names_in

_INITIAL_ROWS = 64
_REFERENCES = frozenset({"texref", "samplerref", "surfref"})


def refuse_references(module: Module) -> None:
    """Raise UnsupportedPtx for a module whose functions use texture, sampler or surface references, which CUDA 12 removed."""
    outer = {name for name, variable in module.variables.items() if variable.type in _REFERENCES}
    for function in module.functions.values():
        for parameter in function.params:
            if parameter.type in _REFERENCES:
                raise UnsupportedPtx(_no_reference(parameter.name, parameter.type), parameter.span)
        for one in function.instructions() if outer else ():
            for name in (name for operand in one.operands for name in names_in(operand) if name in outer):
                raise UnsupportedPtx(_no_reference(name, module.variables[name].type), one.span)


def _no_reference(name: str, kind: str) -> str:
    what = {"texref": "a texture", "surfref": "a surface", "samplerref": "a texture with its sampling"}[kind]
    return (
        f"`{name}` is a reference (`.{kind}`), which is not bound to an image here: pass {what} object instead, as a parameter of type "
        "`.u64`"
    )


class Handle:
    """Reference that keeps the record of a texture or surface alive."""


class Textures:
    """A thread-safe table of textures and surfaces. Handles are never reused, so a handle that outlives its texture is noticed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._rows = np.zeros(_INITIAL_ROWS, TEXTURE)
        self._texels: list[Texels] = []
        self._dropped: deque[int] = deque()

    def add_texture(self, texels: Texels, sampling: Sampling, host: int) -> tuple[int, Handle]:
        """Add a texture whose texels lie at a host address in C order; return its handle and the object that keeps it alive."""
        row = _row(texels, host, texture_kind(texels.geometry), sampling.read)
        row["modes"] = [ADDRESS_MODES.index(mode) for mode in sampling.address]
        row["linear"], row["normalized"] = sampling.filter == "linear", sampling.normalized
        return self._add(texels, row)

    def add_linear(self, texels: Texels, read: str, host: int) -> tuple[int, Handle]:
        """Add a texture in linear memory, read by integer coordinates; return its handle and the object that keeps it alive."""
        return self._add(texels, _row(texels, host, LINEAR_MEMORY, read))

    def add_surface(self, texels: Texels, host: int) -> tuple[int, Handle]:
        """Add a surface; return its handle and the object that keeps it alive."""
        return self._add(texels, _row(texels, host, surface_kind(texels.geometry), "element"))

    def _add(self, texels: Texels, row: npt.NDArray[np.void]) -> tuple[int, Handle]:
        with self._lock:
            number = len(self._texels)
            if number == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros(number, TEXTURE)])
                while self._dropped:
                    self._rows[self._dropped.popleft()]["kind"] = 0
            self._rows[number] = row[0]
            self._texels.append(texels)
        handle = Handle()
        weakref.finalize(handle, self._remove, number).atexit = False
        return TEXTURE_WINDOW + number * TEXTURE.itemsize, handle

    def _remove(self, number: int) -> None:
        """Remove a record without locking: the garbage collector may call this in a thread that holds the lock another one waits for."""
        self._dropped.append(number)  # first, because `_add` may be about to move the rows
        self._rows[number]["kind"] = 0

    def table(self) -> npt.NDArray[np.void]:
        """Return the records, in the order of their handles."""
        return self._rows

    @property
    def count(self) -> int:
        """Number of textures and surfaces ever added."""
        return len(self._texels)

    def at(self, number: int) -> tuple[int, Texels] | None:
        """Return kind and texels of a texture or surface by number; None if there was none."""
        with self._lock:
            return (int(self._rows[number]["kind"]), self._texels[number]) if 0 <= number < len(self._texels) else None


def _row(texels: Texels, host: int, kind: int, read: str) -> npt.NDArray[np.void]:
    row = np.zeros(1, TEXTURE)
    name = texels.dtype.str[1:]
    if read == "normalized_float":
        name = ("unorm" if name[0] == "u" else "snorm") + name[1]
    fields = {
        "host": host,
        "kind": kind,
        "format": FORMATS.index(name),
        "channels": texels.channels,
        "texel_bytes": texels.texel_bytes,
        "extents": texels.extents,
        "layers": max(1, texels.layers),
        "dimensions": texels.dimensions,
    }
    for field, value in fields.items():
        row[field] = value
    return row


# -- what went wrong ---------------------------------------------------------------------------------------------------------------


def handle_trouble(textures: Textures, handle: int, wanted: int) -> str:
    """Describe a handle that an instruction cannot use, and what it takes, for the end of a sentence."""
    number, rest = divmod(handle - TEXTURE_WINDOW, TEXTURE.itemsize)
    found = textures.at(number) if rest == 0 else None
    if found is None:
        return f"the handle {handle:#x}, which is not a texture or surface of this target"
    kind, texels = found
    if kind == 0:
        return (
            f"the handle {handle:#x} of a texture ({texels}) that no longer exists; keep the object that target.texture returned as long "
            "as kernels use it"
        )
    remedy = ': target.texture(..., memory="linear")' if wanted == LINEAR_MEMORY else ""
    return f"the handle {handle:#x} of {_described(kind)} ({texels}); it takes {_described(wanted)}{remedy}"


def _described(kinds: int) -> str:
    """Describe the kinds in a mask."""
    if kinds & ANY_SURFACE:
        named = [name for name in GEOMETRIES if kinds & surface_kind(name)]
        return f"a {named[0]} surface" if len(named) == 1 else "a surface"
    named = [name for name in GEOMETRIES if kinds & texture_kind(name)]
    if kinds == LINEAR_MEMORY:
        return "a texture in linear memory"
    return "a texture" if len(named) > 1 else f"a {named[0]} texture"


def surface_trouble(textures: Textures, instruction: Instruction, misaligned: bool, packed: int, z: int, number: int) -> str:
    """Describe an invalid access to a surface. `packed` holds x in bytes in its low 32 bits, and y above."""
    x, y, plane = (_signed(word) for word in (packed & 0xFFFFFFFF, packed >> 32, z))
    found = textures.at(number)
    assert found is not None
    texels = found[1]
    given = [x, *([y] if texels.dimensions > 1 else []), *([plane] if texels.dimensions > 2 or texels.layers else [])]
    verb = {"suld": "read", "sust": "wrote"}.get(instruction.opcode, "updated")
    head = f"{verb} a surface at ({', '.join(map(str, given))}), x in bytes ({instruction.name})"
    if misaligned:
        return f"{head}: x is not a multiple of the size of the access"
    row = plural(texels.extents[0] * texels.texel_bytes, "byte")
    return f"{head}: out of bounds; the surface ({texels}) has rows of {row}"


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word
