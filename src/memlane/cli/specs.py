"""What `--arg`, `--grid` and `--block` say."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import CommandError
from memlane.launch import Target

_SPEC = re.compile(r"^(?:(?P<name>[A-Za-z_]\w*):)?(?P<dtype>[A-Za-z]\w*)\[(?P<shape>[\d,\s]*)\](?:=(?P<fill>.+))?$")
_SCALAR = re.compile(r"^(?P<value>[-+]?[\w.+-]+):(?P<dtype>[A-Za-z]\w*)$")
RANDOM_INTEGER_LIMIT = 256
"""`random` draws integers from 0 to 255, which fit every integer type but int8, where the limit is 127; floats from 0 to 1."""


@dataclass(frozen=True)
class ArgumentSpec:
    """One `--arg`: an array to make on the target, or a number."""

    text: str
    host: npt.NDArray[Any] | np.generic

    def on(self, target: Target) -> object:
        """The value to pass to the kernel."""
        return self.host if isinstance(self.host, np.generic) else target.array(self.host)


def parse_argument(text: str) -> ArgumentSpec:
    """`in:f4[1024,1024]=random:7`, `f4[16]`, `1024:i4`. Raises CommandError that shows the form."""
    if match := _SPEC.match(text):
        shape = tuple(int(extent) for extent in match["shape"].split(",") if extent.strip())
        kind = _dtype(text, match["dtype"])
        try:
            return ArgumentSpec(text, _fill(text, shape, kind, match["fill"] or "zeros"))
        except (MemoryError, OverflowError, ValueError):
            raise CommandError(f"--arg {text}: {math.prod(shape) * kind.itemsize:,} bytes are more than this machine has") from None
    if match := _SCALAR.match(text):
        kind = _dtype(text, match["dtype"])
        try:
            number = float(match["value"]) if kind.kind == "f" else int(match["value"], 0)
            return ArgumentSpec(text, kind.type(number))
        except (ValueError, OverflowError):
            raise CommandError(f"--arg {text}: {match['value']} is no {kind.name}") from None
    raise CommandError(
        f"--arg {text}: write [NAME:]DTYPE[SHAPE][=zeros|arange|random:SEED|FILE.npy], or VALUE:DTYPE for a number, for example 1024:i4"
    )


def _dtype(text: str, name: str) -> np.dtype[Any]:
    try:
        kind = np.dtype(name)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "biuf":
        raise CommandError(f"--arg {text}: {name} is no number type; use NumPy's names, for example f4, f8, i4, u8, i8, float32")
    return kind


def _fill(text: str, shape: tuple[int, ...], kind: np.dtype[Any], fill: str) -> npt.NDArray[Any]:
    if fill == "zeros":
        return np.zeros(shape, kind)
    if fill == "arange":
        return np.arange(math.prod(shape), dtype=np.int64).astype(kind).reshape(shape)
    if match := re.fullmatch(r"random(?::(\d+))?", fill):
        random = np.random.default_rng(int(match[1] or 0))
        if kind.kind == "f":
            return random.random(shape).astype(kind)
        limit = 2 if kind.kind == "b" else min(RANDOM_INTEGER_LIMIT, int(np.iinfo(kind).max) + 1)
        return random.integers(0, limit, shape).astype(kind)
    if fill.endswith(".npy"):
        return _from_file(text, shape, kind, Path(fill))
    raise CommandError(f"--arg {text}: fill with zeros, arange, random:SEED or a .npy file, not {fill!r}")


def _from_file(text: str, shape: tuple[int, ...], kind: np.dtype[Any], path: Path) -> npt.NDArray[Any]:
    try:
        host = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CommandError(f"--arg {text}: cannot read {path}: {error}") from None
    if host.dtype != kind or (shape and host.shape != shape):
        raise CommandError(f"--arg {text}: {path} holds {host.dtype.str[1:]}{list(host.shape)}")
    return np.ascontiguousarray(host)


def parse_extent(option: str, text: str) -> tuple[int, ...]:
    """`32,32` -> (32, 32)."""
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() for part in parts):
        raise CommandError(
            f"{option} {text!r}: write X, X,Y or X,Y,Z, for example {option} 32,32"
            if text
            else f"{option} is missing: write {option} X[,Y[,Z]]"
        )
    return tuple(int(part) for part in parts)
