"""Represent parsed `--arg` options: values to create on a target, and structures laid out as in C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import CommandError, MemlaneError
from memlane.launch import DeviceArray, Kernel, Target
from memlane.launch.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap
from memlane.launch.texture import Surface, Texture
from memlane.number_format import plural

POINTER_BYTES = 8


@dataclass(frozen=True)
class ArgumentSpec:
    """An array to create on the target, or a number, from one `--arg`."""

    text: str
    host: npt.NDArray[Any] | np.generic

    def on(self, target: Target) -> object:
        """Return the value to pass to the kernel."""
        return self.host if isinstance(self.host, np.generic) else target.array(self.host)


@dataclass(frozen=True)
class ImageSpec:
    """A texture, surface or tensor map of an array, from one `--arg`."""

    text: str
    kind: str
    """A key of `_IMAGES` in `memlane.cli.specs`."""
    array: ArgumentSpec
    options: Mapping[str, Any]

    def on(self, target: Target) -> object:
        """Return the value to pass to the kernel. Raises CommandError if the target cannot create it."""
        try:
            if self.kind == "texture":
                return target.texture(self.array.host, **self.options)
            if self.kind == "surface":
                return target.surface(self.array.host, **self.options)
            return target.tensor_map(target.array(self.array.host), **self.options)
        except MemlaneError as error:
            raise CommandError(f"--arg {self.text}: {error}") from None


class StructureBytes(bytes):
    """The bytes of a structure argument, with references to its members that keep their memory alive."""

    members: tuple[object, ...] = ()


@dataclass(frozen=True)
class StructureSpec:
    """A structure from one `--arg`, laid out as in C++: each member at a multiple of its alignment."""

    text: str
    members: tuple[Spec, ...]
    least_alignment: int = 1

    @property
    def alignment(self) -> int:
        """Return the alignment in bytes: the largest of the members' alignments, or a larger one given explicitly."""
        return max(self.least_alignment, *(_extent(one)[1] for one in self.members))

    @property
    def offsets(self) -> tuple[int, ...]:
        """Return the offset of each member in bytes."""
        found, end = [], 0
        for one in self.members:
            nbytes, alignment = _extent(one)
            found.append(_round_up(end, alignment))
            end = found[-1] + nbytes
        return tuple(found)

    @property
    def nbytes(self) -> int:
        """Return the size in bytes, including the padding up to the alignment."""
        return _round_up(self.offsets[-1] + _extent(self.members[-1])[0], self.alignment)

    def on(self, target: Target) -> StructureBytes:
        """Return the bytes to pass to the kernel, with addresses of arrays and handles of textures."""
        values = tuple(one.on(target) for one in self.members)
        data = bytearray(self.nbytes)
        for offset, value in zip(self.offsets, values, strict=True):
            piece = _bytes_of(value)
            data[offset : offset + len(piece)] = piece
        made = StructureBytes(data)
        made.members = values
        return made


Spec = ArgumentSpec | ImageSpec | StructureSpec


def _extent(spec: Spec) -> tuple[int, int]:
    """Return size and alignment in bytes of a member of a structure."""
    if isinstance(spec, StructureSpec):
        return spec.nbytes, spec.alignment
    if isinstance(spec, ImageSpec) and spec.kind == "tensor_map":
        return TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT
    size = spec.host.itemsize if isinstance(spec, ArgumentSpec) and isinstance(spec.host, np.generic) else POINTER_BYTES
    return size, size


def _bytes_of(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, TensorMap):
        return value.data
    if isinstance(value, DeviceArray):
        return value.address.to_bytes(POINTER_BYTES, "little")
    if isinstance(value, Texture | Surface):
        return value.handle.to_bytes(POINTER_BYTES, "little")
    return value.tobytes() if isinstance(value, np.generic) else b""


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def check_arguments(kernel: Kernel, specs: Sequence[Spec]) -> None:
    """Raise CommandError if the arguments do not match the kernel's parameters in number, or in which of them are structures.

    A structure must also have the parameter's size and alignment; otherwise its members are not where the kernel reads them.
    """
    params = kernel.function.params
    if kernel.function.convention is not None:
        return
    if len(params) != len(specs):
        listed = ", ".join(f"structure of {plural(one.nbytes, 'byte')}" if one.shape is not None else one.type for one in params) or "none"
        raise CommandError(
            f"kernel {kernel.title} takes {plural(len(params), 'argument')} ({listed}), got {len(specs)}; pass "
            "one --arg per argument, in order: an array (u64) as f4[1024], a number as 1024:i4, a structure as '{f4[1024], 1024:i4}'"
        )
    for position, (param, spec) in enumerate(zip(params, specs, strict=True), 1):
        where = f"--arg {spec.text}: argument {position} of {kernel.title}"
        if isinstance(spec, StructureSpec):
            if param.shape is None:
                raise CommandError(f"{where} is {param.type}, not a structure")
            _check_layout(where, spec, param.nbytes, param.align or 1)
        elif param.shape is not None and not (isinstance(spec, ImageSpec) and spec.kind == "tensor_map"):
            raise CommandError(
                f"{where} is a structure of {plural(param.nbytes, 'byte')}: write its members in braces, in order, for example "
                "'{f4[1024]=arange, 1024:i4}'"
            )


def _check_layout(where: str, spec: StructureSpec, nbytes: int, alignment: int) -> None:
    if spec.nbytes != nbytes:
        offsets = ", ".join(map(str, spec.offsets))
        raise CommandError(f"{where} has {plural(nbytes, 'byte')}, but these members take {spec.nbytes} (their offsets are {offsets})")
    if spec.alignment != alignment:
        raise CommandError(
            f"{where} is aligned to {plural(alignment, 'byte')}, but these members to {spec.alignment}: correct their types, or give the "
            f"alignment after the braces: '{{...}}@{alignment}'"
        )
