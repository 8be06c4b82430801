"""Define the cases: the two published rules, their sizes, and the devices that share them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from memlane.errors import CommandError, DeviceError
from memlane.launch import Target
from memlane.stencils import Grid, Problem, Variant
from memlane.stencils.published import published_rule
from memlane.targets import devices as named_devices

SEVEN, HIMENO = "7-point", "himeno"
RULES = (SEVEN, HIMENO)
PUBLISHED = {SEVEN: (256, 256, 256), HIMENO: (256, 128, 128)}
"""Shapes of the paper, Z first."""
HIMENO_SIZES = {"S": (128, 64, 64), "M": (256, 128, 128), "L": (512, 256, 256), "XL": (1024, 512, 512)}
ON_GPUS = ((SEVEN, (256, 256, 256)), (SEVEN, (512, 512, 512)), (HIMENO, (256, 128, 128)))
EMULATED = ((SEVEN, (128, 96, 96)), (HIMENO, (256, 32, 32)))
"""Sizes that two emulated M2050s compute for longer than they exchange faces; with four this holds only for Himeno's rule, which takes ten
times the bytes per cell.
"""
QUICK = ((SEVEN, (64, 96, 96)), (HIMENO, (128, 32, 32)))
"""Half of these sizes, on emulated devices."""
COUNTS = (1, 2, 4, 8, 16, 32)
"""Numbers of devices."""
_LEAST, _MOST = 8, 2048


@dataclass(frozen=True)
class Case:
    """A rule on a grid."""

    rule: str
    shape: tuple[int, int, int]

    @property
    def title(self) -> str:
        return f"{self.rule}, {' x '.join(map(str, self.shape))}"

    @property
    def is_published(self) -> bool:
        return PUBLISHED[self.rule] == self.shape

    @property
    def face_bytes(self) -> int:
        """Bytes of one plane of the field that is exchanged."""
        return 4 * prod(self.shape[1:])

    @property
    def field(self) -> str:
        """Name of the field that changes."""
        return "u" if self.rule == SEVEN else "p"

    @cached_property
    def problem(self) -> Problem:
        new = "new" if self.rule == SEVEN else "p_new"
        return Problem((published_rule(self.rule),), Grid(self.shape), ((new, self.field),))

    def values(self) -> dict[str, Any]:
        """Return the initial values of a run: random numbers, or Himeno's own start."""
        if self.rule == SEVEN:
            return {"u": np.random.default_rng(1).random(self.shape, dtype=np.float32), "a": [0.4, *[0.1] * 6]}
        ramp = (np.arange(self.shape[0], dtype=np.float32) / (self.shape[0] - 1)) ** 2
        constants = dict.fromkeys(("a0", "a1", "a2", "c0", "c1", "c2", "bnd"), 1.0)
        constants |= {"a3": 1 / 6} | dict.fromkeys(("b0", "b1", "b2", "wrk1"), 0.0)
        fields: dict[str, Any] = {name: np.full(self.shape, value, np.float32) for name, value in constants.items()}
        return {**fields, "p": np.broadcast_to(ramp[:, None, None], self.shape).copy(), "omega": 0.8}

    def as_published(self) -> Variant:
        """Return the paper's tiling of its kernel. It does not print the shape of its blocks; 32 x 8 threads are assumed."""
        return Variant(1, (32, 8), self.shape[0] if self.rule == SEVEN else 1)


@dataclass(frozen=True)
class Settings:
    """Settings chosen by a user."""

    cases: tuple[Case, ...] = ()
    """Cases; empty for the lab's own sizes."""
    devices: int | None = None
    """Largest number of devices; None for all GPUs, or four emulated devices."""

    def predicted(self) -> tuple[Case, ...]:
        return self.cases or tuple(Case(rule, PUBLISHED[rule]) for rule in RULES)

    def measured(self, target: Target, quick: bool) -> tuple[Case, ...]:
        """Return the cases that run on the available devices."""
        sizes = ON_GPUS if not target.modelled else QUICK if quick else EMULATED
        return self.cases or tuple(Case(*one) for one in sizes)

    def sliced(self, target: Target, quick: bool) -> tuple[Case, ...]:
        """Return the cases whose slab kernels are timed."""
        return self.measured(target, quick) if quick else self.predicted()

    def targets(self, target: Target) -> tuple[Target, ...]:
        """Return the available devices. Raises CommandError if there are fewer than requested."""
        try:
            found = named_devices(target.name, 4 if self.devices is None and target.modelled else self.devices)
        except DeviceError as error:
            raise CommandError(f"--devices {self.devices}: {error}") from None
        return found


def settings_of(sizes: Sequence[str], devices: int | None) -> Settings:
    """Return the settings of a command line. Raises CommandError for invalid values."""
    if devices is not None and not 1 <= devices <= COUNTS[-1]:
        raise CommandError(f"--devices {devices}: give a number from 1 to {COUNTS[-1]}")
    return Settings(tuple(dict.fromkeys(map(_case, sizes))), devices)


def _case(text: str) -> Case:
    if text.upper() in HIMENO_SIZES:
        return Case(HIMENO, HIMENO_SIZES[text.upper()])
    name, colon, size = text.rpartition(":")
    extents = size.lower().split("x")
    rule = name if colon else SEVEN
    good = rule in RULES and len(extents) in (1, 3) and all(re.fullmatch(r"\d{1,4}", one) for one in extents)
    numbers = [int(one) for one in extents] * (3 if len(extents) == 1 else 1) if good else []
    if not numbers or not all(_LEAST <= one <= _MOST for one in numbers):
        raise CommandError(
            f"--size {text}: give {', '.join(HIMENO_SIZES)} for Himeno's sizes, or {_LEAST} to {_MOST} cells along each axis, Z first, as "
            "7-point:256, 7-point:256x64x64 or himeno:256x32x32"
        )
    return Case(rule, (numbers[0], numbers[1], numbers[2]))


def counts(devices: int) -> tuple[int, ...]:
    """Return the numbers of devices to run: powers of two, and all."""
    return tuple(sorted({*(one for one in COUNTS if one <= devices), devices}))
