"""Render the same picture with NumPy, as the reference for the kernel, and record which texels it fetches.

Filtering is that of a texture unit: weights have 8 bits of fraction, and coordinates are clamped to the texels at the border. All else is
in 64-bit floats, so a coordinate may round to another 256th of a voxel than in the kernel's 32 bits; `TOLERANCE` allows for that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.lab.volume.scene import FOCAL, THRESHOLD, Floats, Scene, View

TOLERANCE = 2
"""Largest difference, of 255, of a channel of a pixel from the kernel's."""
TURNS = 14.0
_FRACTION = 256

Volume = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]


def volume(size: int) -> Volume:
    """Return the volume, of shape (z, y, x): shells of a gyroid inside a ball that fades to its border."""
    at = 2.0 * (np.arange(size) + 0.5) / size - 1.0
    z, y, x = np.meshgrid(at, at, at, indexing="ij")
    shells = np.sin(TURNS * x) * np.cos(TURNS * y) + np.sin(TURNS * y) * np.cos(TURNS * z) + np.sin(TURNS * z) * np.cos(TURNS * x)
    inside = np.clip(4.0 * (0.98 - np.sqrt(x * x + y * y + z * z)), 0.0, 1.0)
    values: Volume = (255.0 * inside * np.maximum(0.0, 1.0 - np.abs(shells)) + 0.5).astype(np.uint8)
    return values


@dataclass(frozen=True, eq=False)
class Rays:
    """The rays of a picture, row by row: arrays over its pixels."""

    eye: Floats
    way: Floats
    """Unit direction vectors, of shape (pixels, 3)."""
    near: Floats
    samples: Integers
    """Number of samples of each ray inside the cube."""
    scene: Scene

    def coordinates(self, pixels: Integers, sample: Integers | int) -> Floats:
        """Return texture coordinates (x, y, z) of a sample of each pixel: the broadcast shape of `pixels` and `sample`, and 3."""
        t = self.near[pixels] + (np.asarray(sample) + 0.5) * self.scene.spacing
        return 0.5 * self.scene.size * (self.eye + t[..., None] * self.way[pixels] + 1.0)


def rays(scene: Scene, view: View) -> Rays:
    """Return all rays of a picture."""
    at = (np.arange(scene.image) + 0.5) * 2.0 / scene.image - 1.0
    v, u = np.meshgrid(-at, at, indexing="ij")
    right, up, forward = view.axes
    way = u.reshape(-1, 1) * right + v.reshape(-1, 1) * up + FOCAL * forward
    way /= np.sqrt((way * way).sum(axis=1, keepdims=True))
    with np.errstate(divide="ignore"):
        first, second = (-1.0 - view.eye) / way, (1.0 - view.eye) / way
    near = np.maximum(0.0, np.minimum(first, second).max(axis=1))
    far = np.maximum(first, second).min(axis=1)
    samples = np.where(far > near, (far - near) / scene.spacing, 0.0).astype(np.int64)
    return Rays(view.eye, way, near, samples, scene)


@dataclass(frozen=True, eq=False)
class Picture:
    """The output of a renderer."""

    pixels: npt.NDArray[np.uint8]
    """Pixels of shape (height, width, 4): red, green, blue, opacity."""
    fetched: Integers
    """Samples that each ray took before it ended, of shape (height * width,)."""


def render(values: Volume, scene: Scene, view: View) -> Picture:
    """Return the picture of a volume, sample by sample for all rays that have not ended."""
    through = rays(scene, view)
    colours, opacity = np.zeros((len(through.near), 3)), np.zeros(len(through.near))
    fetched = np.zeros(len(through.near), np.int64)
    alive = np.flatnonzero(through.samples > 0)
    sample = 0
    while len(alive):
        value = filtered(values, through.coordinates(alive, sample))
        weight = (1.0 - opacity[alive]) * scene.density * value
        colours[alive] += weight[:, None] * np.stack([value, value * value, 1.0 - value], axis=1)
        opacity[alive] += weight
        fetched[alive] += 1
        sample += 1
        alive = alive[(opacity[alive] <= THRESHOLD) & (sample < through.samples[alive])]
    channels = np.concatenate([colours, opacity[:, None]], axis=1)
    return Picture((255.0 * channels + 0.5).astype(np.uint8).reshape(scene.image, scene.image, 4), fetched)


def corners(coordinates: Floats, size: int) -> tuple[Integers, Floats]:
    """Return the lowest texel (x, y, z) of the eight that a linear fetch reads, and the weight of the next one along each axis.

    The texel is not yet clamped to the image; weights are in steps of 1/256.
    """
    fixed = np.floor((coordinates - 0.5) * _FRACTION + 0.5).astype(np.int64)
    return fixed // _FRACTION, fixed % _FRACTION / _FRACTION


def filtered(values: Volume, coordinates: Floats) -> Floats:
    """Return the result of a linear fetch with normalized reads at coordinates of shape (n, 3)."""
    size = len(values)
    low, part = corners(coordinates, size)
    total = np.zeros(len(coordinates))
    for corner in range(8):
        step = np.array([corner & 1, corner >> 1 & 1, corner >> 2])
        x, y, z = np.clip(low + step, 0, size - 1).T
        total += np.where(step, part, 1.0 - part).prod(axis=1) * values[z, y, x]
    return total / 255.0
