"""Define what is rendered: sizes, viewpoints and block shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.errors import CommandError
from memlane.launch import Target

Floats = npt.NDArray[np.float64]

EYE_DISTANCE, FOCAL = 4.0, 2.5
"""Distance of the eye from the centre of the cube [-1, 1]^3, and of the image, of side 2, from the eye: the cube nearly fills it."""
OPACITY_PER_LENGTH, THRESHOLD = 3.0, 0.95
"""Opacity per unit length of a short piece of a ray where the volume is full; the opacity at which a ray ends."""
SHAPES = ("1x128", "2x64", "4x32", "8x16", "16x8", "32x4", "64x2", "128x1")
"""Shapes of the blocks of 128 threads: threads in x, threads in y."""


@dataclass(frozen=True)
class View:
    """A viewpoint: the volume rotated by these angles, in degrees, about x, then y, then z; the eye is fixed."""

    alpha: float
    beta: float
    gamma: float

    def __str__(self) -> str:
        return f"({self.alpha:g}, {self.beta:g}, {self.gamma:g})"

    @property
    def stem(self) -> str:
        """Stem of file names."""
        return f"{self.alpha:g}_{self.beta:g}_{self.gamma:g}"

    @property
    def axes(self) -> Floats:
        """Right, up and forward of the image in the volume's coordinates: rows of a matrix of shape (3, 3)."""
        axes: Floats = np.round(np.diag([1.0, 1.0, -1.0]) @ self._turned(), 12)
        return axes

    @property
    def eye(self) -> Floats:
        """Position of the eye in the volume's coordinates, of shape (3,)."""
        eye: Floats = -EYE_DISTANCE * self.axes[2]
        return eye

    def _turned(self) -> Floats:
        """Return the rotation of the volume; its transpose maps fixed vectors into the volume's coordinates."""
        matrices = []
        for axis, angle in enumerate((self.alpha, self.beta, self.gamma)):
            sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
            one, other = (axis + 1) % 3, (axis + 2) % 3
            matrix = np.eye(3)
            matrix[one, one] = matrix[other, other] = cosine
            matrix[other, one], matrix[one, other] = sine, -sine
            matrices.append(matrix)
        about_x, about_y, about_z = matrices
        return about_z @ about_y @ about_x


FRONT, TURNED = View(0, 0, 0), View(90, 0, 90)
"""The two viewpoints of the published evaluation."""


@dataclass(frozen=True)
class Scene:
    """A volume of `size`^3 voxels and an image of `image`^2 pixels."""

    size: int
    image: int

    @property
    def spacing(self) -> float:
        """Distance of the samples along a ray, in a cube of side 2: a voxel."""
        return 2.0 / self.size

    @property
    def density(self) -> float:
        """Opacity of a sample of value 1."""
        return OPACITY_PER_LENGTH * self.spacing

    @property
    def most_samples(self) -> int:
        """Upper bound of the samples of a ray."""
        return math.ceil(math.sqrt(12.0) / self.spacing) + 1


@dataclass(frozen=True)
class Settings:
    """Settings that a user may choose; None and empty mean the lab's own choice for the target."""

    views: tuple[View, ...] = (FRONT, TURNED)
    shapes: tuple[str, ...] = SHAPES
    size: int | None = None
    image: int | None = None

    def scene(self, target: Target, quick: bool) -> Scene:
        """Return the sizes on a target."""
        size, image = (16, 16) if quick else (128, 256) if target.modelled else (1024, 1024)
        return Scene(self.size or size, self.image or image)


def settings_of(views: Sequence[str], shapes: Sequence[str], size: int | None, image: int | None) -> Settings:
    """Return the settings of a command's options: views such as `90,0,90`, shapes such as `8x16`.

    Raises CommandError for an invalid view, shape or size.
    """
    for name, value, most in (("--size", size, 2048), ("--image", image, 8192)):
        if value is not None and not 4 <= value <= most:
            raise CommandError(f"{name} {value}: give a number from 4 to {most}")
    for shape in shapes:
        if shape not in SHAPES:
            raise CommandError(f"--shape {shape}: blocks have 128 threads here; choose from: {', '.join(SHAPES)}")
    chosen = tuple(shape for shape in SHAPES if not shapes or shape in shapes)
    return Settings(tuple(dict.fromkeys(map(view_of, views))) or Settings.views, chosen, size, image)


def view_of(text: str) -> View:
    """Return the viewpoint written as `90,0,90`. Raises CommandError if it is not three finite numbers."""
    try:
        angles = [float(word) for word in text.split(",")]
    except ValueError:
        angles = []
    if len(angles) != 3 or not all(map(math.isfinite, angles)):
        raise CommandError(f"--view {text}: give three angles in degrees, about x, y and z, such as 90,0,90")
    return View(*angles)


def block_of(shape: str) -> tuple[int, int]:
    """Return the threads of a block in x and y."""
    x, y = shape.split("x")
    return int(x), int(y)
