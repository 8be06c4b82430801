"""Hold the renderer on a target: volume, texture and launches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from memlane.compile import cuda
from memlane.instrument import Selection
from memlane.lab.volume.scene import FOCAL, THRESHOLD, Scene, View, block_of
from memlane.launch import KernelCall, Target

SOURCE = Path(__file__).with_name("volume.cu")
FETCHES = Selection(spaces=frozenset({"tex"}), kernels=frozenset({"render"}))
"""The traced accesses: fetches from the volume. There are no other texture fetches."""
_MAKERS = 256


class Renderer:
    """A volume in the memory of a target, ready to be rendered."""

    def __init__(self, target: Target, scene: Scene) -> None:
        self.target, self.scene = target, scene
        self.loaded = target.load(cuda(SOURCE, name=SOURCE.name))
        voxels = scene.size**3
        made = target.empty(voxels, "u1")
        self.loaded["make"][-(-voxels // _MAKERS), _MAKERS](made, scene.size)
        self.volume: npt.NDArray[np.uint8] = made.numpy().reshape(scene.size, scene.size, scene.size)
        """The volume, of shape (z, y, x)."""
        self.texture = target.texture(self.volume, filter="linear", address="clamp", read="normalized_float")
        self.image = target.zeros((scene.image, scene.image), "u4")

    def call(self, shape: str) -> KernelCall:
        """Return the kernel with blocks of a shape over the image."""
        block = block_of(shape)
        grid = (-(-self.scene.image // block[0]), -(-self.scene.image // block[1]))
        return self.loaded["render"][grid, block]

    def arguments(self, view: View) -> tuple[object, ...]:
        """Return the arguments of the kernel for a view."""
        scene = self.scene
        camera = np.concatenate([view.axes.reshape(-1), view.eye]).astype(np.float32).tobytes()
        sizes = (scene.image, scene.image, scene.size)
        return (self.image, self.texture, camera, *sizes, FOCAL, scene.spacing, scene.density, THRESHOLD)

    def pixels(self, view: View, shape: str) -> npt.NDArray[np.uint8]:
        """Render and read the picture, of shape (height, width, 4): red, green, blue, opacity."""
        self.call(shape)(*self.arguments(view))
        return self.image.numpy().view(np.uint8).reshape(self.scene.image, self.scene.image, 4)
