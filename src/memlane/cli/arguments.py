"""What `--arg` stands for, once it is parsed: values to make on a target, and structures of them laid out as C++ does."""

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
    """One `--arg`: an array to make on the target, or a number."""

    text: str
    host: npt.NDArray[Any] | np.generic

    def on(self, target: Target) -> object:
        """The value to pass to the kernel."""
        return self.host if isinstance(self.host, np.generic) else target.array(self.host)


@dataclass(frozen=True)
class ImageSpec:
    """One `--arg`: a texture, a surface or a tensor map of an array."""

    text: str
    kind: str
    """Of `_IMAGES`."""
    array: ArgumentSpec
    options: Mapping[str, Any]

    def on(self, target: Target) -> object:
        """The value to pass to the kernel. CommandError where there is no such image."""
        try:
            if self.kind == "texture":
                return target.texture(self.array.host, **self.options)
            if self.kind == "surface":
                return target.surface(self.array.host, **self.options)
            return target.tensor_map(target.array(self.array.host), **self.options)
        except MemlaneError as error:
            raise CommandError(f"--arg {self.text}: {error}") from None


class StructureBytes(bytes):
    """A structure as a kernel gets it, with what its members name: the memory of those must stay."""

    members: tuple[object, ...] = ()


@dataclass(frozen=True)
class StructureSpec:
    """One `--arg`: a structure, laid out as C++ does, each member at a multiple of its alignment."""

    text: str
    members: tuple[Spec, ...]
    least_alignment: int = 1

    @property
    def alignment(self) -> int:
        """In bytes: that of the member with the largest one, or more where that was asked for."""
        return max(self.least_alignment, *(_extent(one)[1] for one in self.members))

    @property
    def offsets(self) -> tuple[int, ...]:
        """Of each member, in bytes."""
        found, end = [], 0
        for one in self.members:
            nbytes, alignment = _extent(one)
            found.append(_round_up(end, alignment))
            end = found[-1] + nbytes
        return tuple(found)

    @property
    def nbytes(self) -> int:
        """With the bytes that fill it up to its alignment."""
        return _round_up(self.offsets[-1] + _extent(self.members[-1])[0], self.alignment)

    def on(self, target: Target) -> StructureBytes:
        """The bytes to pass to the kernel, with addresses of arrays and handles of textures."""
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
    """Bytes and alignment of a member of a structure."""
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
    """CommandError where there are not as many as the kernel has parameters, where a structure stands for a parameter that is none or none
    for one, and where it has another size or alignment: then its members cannot be where the kernel looks for them."""
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
