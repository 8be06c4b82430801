"""Parse `--arg`, `--grid` and `--block`."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.cli.arguments import ArgumentSpec, ImageSpec, Spec, StructureSpec
from memlane.errors import CommandError
from memlane.number_format import plural
from memlane.source import shortened

_SPEC = re.compile(r"^(?:(?P<name>[A-Za-z_]\w*):)?(?P<dtype>[A-Za-z]\w*)\[(?P<shape>[\d,\s]*)\](?:=(?P<fill>.+))?$")
_SCALAR = re.compile(r"^(?P<value>[-+]?[\w.+-]+):(?P<dtype>[A-Za-z]\w*)$")
_STRUCTURE = re.compile(r"^(?:[A-Za-z_]\w*:)?\{(?P<members>.*)\}(?:@(?P<alignment>\d+))?$", re.DOTALL)
_IMAGE = re.compile(r"^(?:[A-Za-z_]\w*:)?(?P<kind>texture|surface|tensor_map)\((?P<inside>.*)\)$", re.DOTALL)
_IMAGES = {
    "texture": "texture(f4[64,64]=random:7, filter=linear)",
    "surface": "surface(f4[64,64])",
    "tensor_map": "tensor_map(f4[64,64]=arange, box=32x32)",
}
"""Kinds of images, each with an example."""
_OPTIONS = {
    "texture": ("channels", "filter", "address", "normalized", "read", "layered", "cube", "memory"),
    "surface": ("channels", "layered"),
    "tensor_map": ("box", "swizzle", "fill", "element"),
}
"""Options of `Target.texture`, `Target.surface` and `Target.tensor_map` that can be given as a word."""
_MOST_DIGITS, _MOST_AXES, _DEEPEST = 18, 32, 16
"""Maximum digits of an extent, axes of an array (NumPy's limit), and nesting of structures."""
MOST_ALIGNED = 128
"""Maximum alignment of a kernel parameter in bytes."""
RANDOM_INTEGER_LIMIT = 256
"""Exclusive upper limit of the integers that `random` draws; for int8 it is 128. Floats are drawn from 0 (inclusive) to 1 (exclusive)."""

_BFLOAT16 = frozenset({"bf16", "bfloat16", "__nv_bfloat16"})


def parse_argument(text: str) -> Spec:
    """Parse an `--arg`: `in:f4[1024,1024]=random:7`, `f4[16]`, `1024:i4`, `{f4[16], 16:i4}`, `texture(f4[16], filter=linear)`.

    Raises CommandError with the expected form.
    """
    return _parsed(text, 0)


def _parsed(text: str, depth: int) -> Spec:
    """Parse a specification that is nested in `depth` others."""
    if depth > _DEEPEST:
        raise CommandError(f"--arg {text}: structures may be nested at most {_DEEPEST} deep")
    if match := _STRUCTURE.match(text.strip()):
        return _structure(text, match["members"], match["alignment"], depth)
    if match := _IMAGE.match(text.strip()):
        return _image(text, match["kind"], match["inside"], depth)
    return _array_or_number(text.strip())


def _structure(text: str, members: str, alignment: str | None, depth: int) -> StructureSpec:
    pieces = _pieces(members)
    if not all(pieces):
        raise CommandError(
            f"--arg {text}: write a structure as its members, separated by commas, for example '{{f4[1024]=arange, 1024:i4}}'"
        )
    least = int((alignment or "1")[:9])
    if least & (least - 1) or not 1 <= least <= MOST_ALIGNED:
        raise CommandError(f"--arg {text}: the alignment of a structure is a power of two up to {MOST_ALIGNED} bytes, not {alignment}")
    return StructureSpec(text, tuple(_parsed(piece, depth + 1) for piece in pieces), least)


def _image(text: str, kind: str, inside: str, depth: int) -> ImageSpec:
    first, *others = _pieces(inside)
    array = _parsed(first, depth + 1)
    if not isinstance(array, ArgumentSpec) or isinstance(array.host, np.generic):
        raise CommandError(f"--arg {text}: a {kind.replace('_', ' ')} needs an array, for example '{_IMAGES[kind]}'")
    options = {}
    for piece in others:
        name, equals, value = (part.strip() for part in piece.partition("="))
        if name not in _OPTIONS[kind]:
            known = ", ".join(_OPTIONS[kind])
            raise CommandError(f"--arg {text}: a {kind.replace('_', ' ')} takes no {name!r}; it takes {known}, as in '{_IMAGES[kind]}'")
        options[name] = _option(text, name, value if equals else "true")
    if kind == "tensor_map" and "box" not in options:
        raise CommandError(f"--arg {text}: a tensor map needs the shape of its box, as in '{_IMAGES[kind]}'")
    return ImageSpec(text, kind, array, options)


def _option(text: str, name: str, value: str) -> object:
    if name == "box":
        extents = value.split("x")
        if not all(map(_is_whole, extents)):
            raise CommandError(f"--arg {text}: write a box as 64x32, not {value!r}")
        return tuple(int(extent) for extent in extents)
    if name == "channels":
        if not _is_whole(value):
            raise CommandError(f"--arg {text}: channels must be a number, not {value!r}")
        return int(value)
    if name in ("normalized", "layered", "cube"):
        if value not in ("true", "false"):
            raise CommandError(f"--arg {text}: {name} must be true or false, not {value!r}")
        return value == "true"
    return value


def _pieces(text: str) -> list[str]:
    """Split a text at the commas outside brackets."""
    pieces, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "{[(") - (character in ")]}")
        if character == "," and depth == 0:
            pieces.append(text[start:place].strip())
            start = place + 1
    return [*pieces, text[start:].strip()]


def _array_or_number(text: str) -> ArgumentSpec:
    if match := _SPEC.match(text):
        shape = _shape(text, match["shape"])
        kind = _dtype(text, match["dtype"])
        try:
            return ArgumentSpec(text, _fill(text, shape, kind, match["fill"] or "zeros"))
        except (MemoryError, OverflowError, ValueError):
            raise CommandError(
                f"--arg {text}: an array of {plural(math.prod(shape) * kind.itemsize, 'byte')} does not fit into the memory of this machine"
            ) from None
    if match := _SCALAR.match(text):
        kind = _dtype(text, match["dtype"])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # about a number that becomes infinite
                number = float(match["value"]) if kind.kind == "f" else int(match["value"], 0)
                return ArgumentSpec(text, kind.type(number))
        except (ValueError, OverflowError, Warning):
            raise CommandError(f"--arg {text}: {match['value']} is not of type {kind.name}") from None
    raise CommandError(
        f"--arg {text}: write [NAME:]DTYPE[SHAPE][=zeros|arange|random:SEED|FILE.npy], VALUE:DTYPE for a number, for example 1024:i4, or a "
        "structure as '{f4[1024], 1024:i4}'"
    )


def _shape(text: str, extents: str) -> tuple[int, ...]:
    words = [extent.strip() for extent in extents.split(",") if extent.strip()]
    if not all(map(_is_whole, words)):
        raise CommandError(f"--arg {text}: the extents of an array are whole numbers of at most {_MOST_DIGITS} digits, as in f4[64,64]")
    if len(words) > _MOST_AXES:
        raise CommandError(f"--arg {text}: an array has at most {_MOST_AXES} axes, not {len(words)}")
    return tuple(map(int, words))


def _is_whole(text: str) -> bool:
    """Return whether a text is a whole number with at most `_MOST_DIGITS` digits."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _dtype(text: str, name: str) -> np.dtype[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # about deprecated type names of NumPy
            kind = np.dtype(name)
    except (TypeError, Warning):
        kind = np.dtype(object)
    if name in _BFLOAT16:
        raise CommandError(f"--arg {text}: NumPy has no {name}: give its bits as u2, the upper halves of those of f4")
    if kind.kind not in "biuf":
        raise CommandError(f"--arg {text}: {name} is not a number type; use NumPy's names, for example f4, f8, i4, u8, i8, float32")
    return kind


def _fill(text: str, shape: tuple[int, ...], kind: np.dtype[Any], fill: str) -> npt.NDArray[Any]:
    if fill == "zeros":
        return np.zeros(shape, kind)
    if fill == "arange":
        return np.arange(math.prod(shape), dtype=np.int64).astype(kind).reshape(shape)
    if match := re.fullmatch(r"random(?::(\d{1,18}))?", fill):
        random = np.random.default_rng(int(match[1] or 0))
        if kind.kind == "f":
            drawn = random.random(shape, np.float32 if kind.itemsize <= 4 else np.float64)  # the only float types that NumPy draws
            return drawn.astype(kind, copy=False)
        limit = 2 if kind.kind == "b" else min(RANDOM_INTEGER_LIMIT, int(np.iinfo(kind).max) + 1)
        return random.integers(0, limit, shape, kind.type)
    if fill.endswith(".npy"):
        return _from_file(text, shape, kind, Path(fill))
    raise CommandError(f"--arg {text}: fill with zeros, arange, random:SEED or a .npy file, not {fill!r}")


def _from_file(text: str, shape: tuple[int, ...], kind: np.dtype[Any], path: Path) -> npt.NDArray[Any]:
    try:
        with path.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about sizes that overflow; such a file cannot be read
            host: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except FileNotFoundError as error:
        raise CommandError(f"--arg {text}: cannot read {path}: {error}") from None
    except (
        OSError,
        EOFError,
        MemoryError,
        OverflowError,
        RecursionError,
        SyntaxError,
        SystemError,
        TokenError,
        TypeError,
        ValueError,
    ) as error:
        raise CommandError(f"--arg {text}: cannot read {path}: {shortened(str(error)) or 'it is not a .npy file'}") from None
    if host.dtype != kind or (shape and host.shape != shape):
        raise CommandError(f"--arg {text}: the array in {path} is {host.dtype.str[1:]}{list(host.shape)}")
    return np.ascontiguousarray(host)


def parse_extent(option: str, text: str) -> tuple[int, ...]:
    """Parse an extent: `32,32` -> (32, 32)."""
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(_is_whole(part.strip()) for part in parts):
        raise CommandError(
            f"{option} {text!r}: write X, X,Y or X,Y,Z, for example {option} 32,32"
            if text
            else f"{option} is missing: write {option} X[,Y[,Z]]"
        )
    return tuple(int(part.strip()) for part in parts)
