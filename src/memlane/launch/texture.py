"""Create textures and surfaces: images in the memory of a target, which kernels read through a sampler or address by coordinates.

    image = target.texture(photo, filter="linear", address="border")     # tex2D<float>(image, x + 0.5f, y + 0.5f)
    canvas = target.surface(np.zeros((480, 640, 4), np.uint8), channels=4)     # surf2Dwrite(pixel, canvas, 4 * x, y)
    kernel[grid, block](image, canvas)
    canvas.numpy()

A kernel takes them as parameters of type `cudaTextureObject_t` or `cudaSurfaceObject_t`, handles of 64 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import BadLaunch
from memlane.launch.memory import DeviceArray, Memory
from memlane.number_format import plural

DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4")
"""Types of a channel of a texel, in NumPy's notation."""
FILTERS = ("point", "linear")
ADDRESS_MODES = ("wrap", "clamp", "mirror", "border")
READS = ("element", "normalized_float")
MEMORIES = ("array", "linear")
GEOMETRIES = {(1, False): "1d", (2, False): "2d", (3, False): "3d", (1, True): "a1d", (2, True): "a2d"}
"""Names of image shapes in PTX, by dimensions and whether there are layers."""
FACES = 6


@dataclass(frozen=True)
class Texels:
    """Shape and format of an image. A texel is its smallest element: one, two or four channels of one type."""

    dtype: np.dtype[Any]
    channels: int
    extents: tuple[int, int, int]
    """Width, height and depth in texels; 1 for missing dimensions."""
    dimensions: int
    """Dimensions of one layer: 1, 2 or 3."""
    layers: int = 0
    """Number of layers; 0 for an image without layers."""
    cube: bool = False
    """Whether the layers are the six faces of a cube: +x, -x, +y, -y, +z, -z."""

    @property
    def geometry(self) -> str:
        """Name in PTX: `1d`, `2d`, `3d`, `a1d`, `a2d` or `cube`."""
        return "cube" if self.cube else GEOMETRIES[self.dimensions, self.layers > 0]

    @property
    def texel_bytes(self) -> int:
        return self.channels * self.dtype.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape as a NumPy array: layers, depth, height, width, channels, without missing axes."""
        extents = tuple(reversed(self.extents[: self.dimensions]))
        layers = (self.layers,) if self.layers else ()
        return (*layers, *extents, *((self.channels,) if self.channels > 1 else ()))

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        """Return a description such as `2d image of u1 x 4, 640 x 480`."""
        channels = f" x {self.channels}" if self.channels > 1 else ""
        layers = f", {self.layers} layers" if self.layers and not self.cube else ""
        return f"{self.geometry} image of {self.dtype.str[1:]}{channels}, {' x '.join(map(str, self.extents[: self.dimensions]))}{layers}"


@dataclass(frozen=True)
class Sampling:
    """How a texture converts coordinates to a value."""

    filter: str = "point"
    """`point`: the texel that contains the coordinates. `linear`: the average of the neighbours weighted by distance, in steps of 1/256."""
    address: tuple[str, str, str] = ("clamp", "clamp", "clamp")
    """Values out of bounds in x, y and z: `clamp` the nearest texel, `border` zero, `wrap` the image repeated, `mirror` the image
    mirrored."""
    normalized: bool = False
    """Whether coordinates are fractions of the image (0 to 1) instead of texels."""
    read: str = "element"
    """`element`: the value unchanged. `normalized_float`: integers of 8 and 16 bits as floats from 0 or -1 to 1."""


class Images(Memory):
    """Images of a target: memory that kernels read through a sampler or address by coordinates. Raises BadLaunch on a target without
    images."""

    def allocate_image(self, texels: Texels, writable: bool) -> object:
        """Allocate memory for an image with undefined contents, which exists as long as the returned object. Surfaces need it
        `writable`."""
        raise self._no_images()

    def read_image(self, image: object, texels: Texels, host: npt.NDArray[Any]) -> None:
        """Fill the C-contiguous `host`, of shape `texels.shape`, after all earlier work has finished."""
        raise self._no_images()

    def write_image(self, image: object, texels: Texels, host: npt.NDArray[Any]) -> None:
        """Fill the image from `host`, after all earlier work has finished."""
        raise self._no_images()

    def bind_texture(self, texels: Texels, sampling: Sampling, image: object) -> tuple[int, object]:
        """Return the handle of a texture over an image, and the object that keeps the handle valid."""
        raise self._no_images()

    def bind_linear(self, texels: Texels, read: str, address: int) -> tuple[int, object]:
        """Return the handle of a texture over device memory, which is read with integer coordinates, and the object that keeps the handle
        valid."""
        raise self._no_images()

    def bind_surface(self, texels: Texels, image: object) -> tuple[int, object]:
        """Return the handle of a surface over a writable image, and the object that keeps the handle valid."""
        raise self._no_images()

    def _no_images(self) -> BadLaunch:
        return BadLaunch(f"{self.name} has no textures and surfaces")

    def texture(
        self,
        source: npt.ArrayLike | DeviceArray | Surface,
        *,
        channels: int = 1,
        filter: str = "point",
        address: str | tuple[str, ...] = "clamp",
        normalized: bool = False,
        read: str = "element",
        layered: bool = False,
        cube: bool = False,
        memory: str = "array",
    ) -> Texture:
        """Return a texture with a copy of `source`, of shape (width,), (height, width) or (depth, height, width).

        With `channels` 2 or 4 an additional last axis holds the channels of each texel; with `layered` the first axis counts layers of one
        or two dimensions, with `cube` the six faces of one (+x, -x, +y, -y, +z, -z). `filter`, `address` (one mode, or one each for x, y
        and z), `normalized` and `read` are those of `Sampling`. A texture of a surface shows the contents of the surface. With
        `memory="linear"` the texture reads a one-dimensional array in place, by integer coordinates (`tex1Dfetch`). Raises BadLaunch for an
        invalid texture.
        """
        return make_texture(self, source, channels, filter, address, normalized, read, layered, cube, memory)

    def surface(self, source: npt.ArrayLike | DeviceArray, *, channels: int = 1, layered: bool = False) -> Surface:
        """Return a surface with a copy of `source`, whose shape, `channels` and `layered` are as for a texture. Kernels read and write it;
        `Surface.numpy` returns its contents."""
        return make_surface(self, source, channels, layered)


@dataclass(frozen=True, eq=False)
class Texture:
    """Result of `target.texture`: pass it to a kernel that takes a `cudaTextureObject_t`."""

    target: Images = field(repr=False)
    handle: int
    texels: Texels
    sampling: Sampling | None
    """How coordinates become values; None for linear memory, which is read by integer coordinates only (`tex1Dfetch`)."""
    owner: object = field(default=None, repr=False)
    """Object that keeps the handle and the memory alive."""


@dataclass(frozen=True, eq=False)
class Surface:
    """Result of `target.surface`: pass it to a kernel that takes a `cudaSurfaceObject_t`, or create a texture from it."""

    target: Images = field(repr=False)
    handle: int
    texels: Texels
    image: object = field(repr=False)
    """The memory, as an object of the target."""
    owner: object = field(default=None, repr=False)

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy on the host, of shape `texels.shape`, made after all earlier work has finished."""
        host = np.empty(self.texels.shape, self.texels.dtype)
        self.target.read_image(self.image, self.texels, host)
        return host

    def copy_from(self, host: npt.ArrayLike) -> None:
        """Overwrite the image with `host`, which must have its shape; values are converted by NumPy's `same_kind` casting."""
        source = np.asarray(host)
        if source.shape != self.texels.shape:
            raise BadLaunch(f"cannot copy an array of shape {source.shape} into a surface of shape {self.texels.shape}")
        data = source.astype(self.texels.dtype, casting="same_kind", copy=False)
        self.target.write_image(self.image, self.texels, np.ascontiguousarray(data))


MOST_TEXELS = 1 << 28
"""Maximum texels along one axis: the largest limit of linear memory on any GPU (CUDA C++ Programming Guide, compute capabilities)."""


def texels_of(what: str, shape: tuple[int, ...], dtype: np.dtype[Any], channels: int, layered: bool, cube: bool = False) -> Texels:
    """Return the texels of an array. Raises BadLaunch if no image has that shape or type; `what` is `a texture` or `a surface`."""
    if dtype.str[1:] not in DTYPES or not dtype.isnative:
        raise BadLaunch(f"{what} cannot hold {dtype}; its channels are integers of 8, 16 or 32 bits, float16 or float32")
    if channels not in (1, 2, 4):
        raise BadLaunch(f"a texel of {what} has 1, 2 or 4 channels, not {channels}")
    extents = shape
    if channels > 1:
        if not shape or shape[-1] != channels:
            raise BadLaunch(f"with channels={channels} the last axis of {what} must be {channels} long; the array has shape {shape}")
        extents = shape[:-1]
    if cube:
        if layered or len(extents) != 3 or extents[0] != FACES or extents[1] != extents[2] or 0 in extents:
            raise BadLaunch(f"a cube has the shape (6, width, width), a square for each of its faces, and no layers; got {shape}")
        return Texels(dtype, channels, (extents[2], extents[1], 1), 2, FACES, cube=True)
    layers = 0
    if layered:
        layers, extents = (extents[0], extents[1:]) if extents else (0, ())
    if (len(extents), layered) not in GEOMETRIES or 0 in shape:
        wanted = "(layers, width) or (layers, height, width)" if layered else "(width,), (height, width) or (depth, height, width)"
        hint = "" if channels > 1 or layered else "; pass channels=2 or channels=4 if the last axis holds the channels of a texel"
        raise BadLaunch(f"{what} has the shape {wanted}, got {shape}{hint}")
    if max((layers, *extents)) > MOST_TEXELS:
        raise BadLaunch(f"an axis of {what} has at most {MOST_TEXELS:,} texels; the array has shape {shape}")
    width, height, depth = (*reversed(extents), 1, 1)[:3]
    return Texels(dtype, channels, (width, height, depth), len(extents), layers)


def sampling_of(texels: Texels, filter: str, address: str | tuple[str, ...], normalized: bool, read: str) -> Sampling:
    """Return the sampling of a texture. Raises BadLaunch if the choices contradict each other or its texels."""
    modes = (address,) * texels.dimensions if isinstance(address, str) else tuple(address)
    for name, chosen, known in (("filter", (filter,), FILTERS), ("address", modes, ADDRESS_MODES), ("read", (read,), READS)):
        for one in chosen:
            if one not in known:
                raise BadLaunch(f"{name} of a texture is one of {', '.join(known)}; got {one!r}")
    if len(modes) != texels.dimensions:
        raise BadLaunch(f"a {texels.geometry} texture has {plural(texels.dimensions, 'address mode')}, one per axis; got {len(modes)}")
    if texels.cube and (normalized or set(modes) != {"clamp"}):
        raise BadLaunch("a cube is read with a direction: it has no address modes and no normalized coordinates")
    repeating = [mode for mode in modes if mode in ("wrap", "mirror")]
    if repeating and not normalized:
        raise BadLaunch(f"address mode {repeating[0]!r} needs normalized coordinates: pass normalized=True, or use clamp or border")
    if read == "normalized_float" and (texels.dtype.kind == "f" or texels.dtype.itemsize > 2):
        raise BadLaunch(f"only integers of 8 and 16 bits can be read as normalized floats, not {texels.dtype}")
    if filter == "linear" and texels.dtype.kind != "f" and read == "element":
        small = texels.dtype.itemsize <= 2
        remedy = 'pass read="normalized_float", or use floats' if small else "use floats"
        raise BadLaunch(f"linear filtering returns floats, but this texture returns {texels.dtype}: {remedy}")
    x, y, z = (*modes, "clamp", "clamp")[:3]
    return Sampling(filter, (x, y, z), normalized or texels.cube, read)


def make_texture(
    target: Images,
    source: npt.ArrayLike | DeviceArray | Surface,
    channels: int,
    filter: str,
    address: str | tuple[str, ...],
    normalized: bool,
    read: str,
    layered: bool,
    cube: bool,
    memory: str,
) -> Texture:
    """Return a texture; see `Images.texture`."""
    if memory not in MEMORIES:
        raise BadLaunch(f"memory of a texture is one of {', '.join(MEMORIES)}; got {memory!r}")
    if isinstance(source, Surface | DeviceArray) and source.target is not target:
        raise BadLaunch(
            f"the image is on {source.target.name_beside(target)}, but the texture would be on {target.name}; copy the image there "
            "with target.array(x.numpy())"
        )
    if isinstance(source, Surface):
        if memory == "linear":
            raise BadLaunch("a surface cannot be in linear memory; create its texture with memory='array'")
        sampling = sampling_of(source.texels, filter, address, normalized, read)
        handle, owner = target.bind_texture(source.texels, sampling, source.image)
        return Texture(target, handle, source.texels, sampling, (owner, source))
    if memory == "linear":
        if (filter, address, normalized, layered, cube) != ("point", "clamp", False, False, False):
            raise BadLaunch("a texture in linear memory is read with integer coordinates: it has no filter, address mode, layers or faces")
        return _linear(target, source, channels, read)
    host = source.numpy() if isinstance(source, DeviceArray) else np.asarray(source, order="C")
    texels = texels_of("a texture", host.shape, host.dtype, channels, layered, cube)
    sampling = sampling_of(texels, filter, address, normalized, read)
    image = target.allocate_image(texels, False)
    target.write_image(image, texels, np.ascontiguousarray(host))
    handle, owner = target.bind_texture(texels, sampling, image)
    return Texture(target, handle, texels, sampling, (owner, image))


def _linear(target: Images, source: npt.ArrayLike | DeviceArray, channels: int, read: str) -> Texture:
    """Return a texture that reads an array in place."""
    shape, dtype = (source.shape, source.dtype) if isinstance(source, DeviceArray) else (np.shape(source), np.asarray(source).dtype)
    texels = texels_of("a texture", shape, dtype, channels, False)
    if texels.dimensions != 1:
        raise BadLaunch(f"a texture in linear memory has one dimension, got shape {shape}")
    sampling_of(texels, "point", "clamp", False, read)
    array = source if isinstance(source, DeviceArray) else target.array(source)
    handle, owner = target.bind_linear(texels, read, array.address)
    return Texture(target, handle, texels, None, (owner, array))


def make_surface(target: Images, source: npt.ArrayLike | DeviceArray, channels: int, layered: bool) -> Surface:
    """Return a surface; see `Images.surface`."""
    host = source.numpy() if isinstance(source, DeviceArray) else np.asarray(source, order="C")
    texels = texels_of("a surface", host.shape, host.dtype, channels, layered)
    image = target.allocate_image(texels, True)
    target.write_image(image, texels, np.ascontiguousarray(host))
    handle, owner = target.bind_surface(texels, image)
    return Surface(target, handle, texels, image, (owner, image))
