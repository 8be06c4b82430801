"""The seam between memlane and what runs kernels: an emulator, a GPU, a fake in a test."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import Chip
from memlane.errors import BadLaunch, DeviceError
from memlane.launch.array import DeviceArray
from memlane.launch.bound import BoundCopy, BoundStep, End, Rows, StepGraph, chained
from memlane.launch.kernel import Kernel, LoadedModule
from memlane.launch.launch import Dim3, Launch, LaunchTime, Stream
from memlane.launch.observe import observed
from memlane.launch.prepared import PlainLaunch, Prepared
from memlane.launch.tensor_map import TensorMap, Tiling, make_tensor_map
from memlane.launch.texture import Sampling, Surface, Texels, Texture, make_surface, make_texture
from memlane.ptx import Module

_CLEAR_BYTES = 1 << 26


class Target(ABC):
    """Something that runs kernels: the emulator, or a GPU; `ml.target` gives it.

    target = ml.target()
    a, out = target.array(host), target.empty((1024, 1024), "f4")
    kernels = target.load(ml.cuda("transpose.cu"))
    kernels["naive"][(32, 32), (32, 32)](out, a, 1024)
    target.sync()                                       # raises what went wrong in the launches before

    Subclasses give the primitives; what can be said in terms of those is here.
    """

    name: str
    """For example `emulator:h200` or `cuda:0`."""
    chip: Chip
    modelled: bool
    """Whether times on this target come from a model rather than from a clock."""
    driver = ""
    """The version of the driver, as `580.159.04, CUDA 13.0`; empty on a target that needs none."""
    default_stream: Stream
    observes = False
    """Whether the target honours `Launch.layers`: it sees accesses without a probe in the kernel. Only the emulator does."""

    def __repr__(self) -> str:
        return f"<Target: {self.name}>"

    def name_beside(self, other: Target) -> str:
        """Return what to call this target in a message that names `other` too: two emulators may have one name."""
        return f"another {self.name}" if self.name == other.name and self is not other else self.name

    # -- primitives ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, nbytes: int) -> tuple[int, object]:
        """Fresh memory of `nbytes` with undefined contents: its device address (a multiple of 256) and what keeps it alive."""

    @abstractmethod
    def read(self, address: int, host: npt.NDArray[Any]) -> None:
        """Fill the C-contiguous `host` from device memory, after all work launched before has finished."""

    @abstractmethod
    def write(self, address: int, host: npt.NDArray[Any]) -> None:
        """Copy the C-contiguous `host` to device memory, after all work launched before has finished."""

    @abstractmethod
    def load_module(self, module: Module) -> object:
        """Prepare a module; the handle that `LoadedModule` keeps."""

    @abstractmethod
    def symbol(self, loaded: LoadedModule, name: str) -> tuple[int, int]:
        """Address and size in bytes of the module-scope variable `name`."""

    @abstractmethod
    def launch(self, launch: Launch) -> None:
        """Start one launch, as it is: observers have had their say."""

    @abstractmethod
    def stream(self) -> Stream:
        """A new stream."""

    @abstractmethod
    def sync(self) -> None:
        """Wait for all work; errors of asynchronous work are raised here at the latest."""

    @abstractmethod
    def time_launches(self, launches: Sequence[Launch]) -> tuple[LaunchTime, ...]:
        """Run launches one after another, wait for them, and return the time of each. Observers do not see them."""

    @abstractmethod
    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
        """How many blocks of this kernel one SM can hold at once."""

    @abstractmethod
    def max_shared_bytes(self, kernel: Kernel) -> int:
        """How many bytes of dynamic shared memory a block of this kernel may ask for."""

    @abstractmethod
    def device_pointer(self, value: object) -> tuple[int, int, str] | None:
        """Address, size in bytes and description of the device memory of a foreign object (CuPy, PyTorch, ...); None if it has none."""

    def copy(self, copy: BoundCopy) -> None:
        """Copy elements between any two places, after all work launched before on the targets whose memory they are; the host waits."""
        values = np.empty(copy.shape, f"V{copy.itemsize}")
        here = End(values.ctypes.data, values.strides)
        for destination, source in ((here, copy.source), (copy.destination, here)):
            for rows in BoundCopy(destination, source, copy.shape, copy.itemsize).rows():
                _move(rows, destination.target, source.target)

    def empty_caches(self) -> None:
        """Let the next launch of which the time is modelled find nothing in L2. The caches of a GPU stay as they are."""
        return

    def launch_together(self, launches: Sequence[Launch]) -> None:
        """Start launches on this target and its peers that may wait for each other, each before one of them is waited for."""
        for launch in launches:
            launch.kernel.target.launch(launch)

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> StepGraph:
        """Prepare steps on this target and its peers for repeated starts; with `timed` the times of each start can be asked for."""
        raise BadLaunch(f"{self.name} has no graphs of steps: it runs them one after another")

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """An array on the host with undefined contents that copies of this target need not stage: page-locked for a GPU."""
        return np.empty(shape, dtype)

    def is_pinned(self, host: npt.NDArray[Any]) -> bool:
        """Whether copies of this target need not stage an array of the host."""
        return True

    def enable_peer(self, other: Target) -> None:
        """Let kernels of this target reach memory of `other`, which stays so. Raises DeviceError where they cannot."""
        raise DeviceError(f"{self.name} and {other.name} are no peers: kernels of the one cannot reach memory of the other")

    def reaches(self, other: Target) -> bool:
        """Whether kernels of this target can use memory of `other`: its own, or that of a peer that was enabled."""
        return other is self

    # -- images: a target without textures keeps these --------------------------------------------------------------------------

    def allocate_image(self, texels: Texels, writable: bool) -> object:
        """Memory for an image with undefined contents, which lives as long as the object does. Surfaces need it `writable`."""
        raise self._no_images()

    def read_image(self, image: object, texels: Texels, host: npt.NDArray[Any]) -> None:
        """Fill the C-contiguous `host`, of shape `texels.shape`, after all work launched before has finished."""
        raise self._no_images()

    def write_image(self, image: object, texels: Texels, host: npt.NDArray[Any]) -> None:
        """Fill the image from `host`, after all work launched before has finished."""
        raise self._no_images()

    def bind_texture(self, texels: Texels, sampling: Sampling, image: object) -> tuple[int, object]:
        """The handle of a texture over an image, and what keeps the handle alive."""
        raise self._no_images()

    def bind_linear(self, texels: Texels, read: str, address: int) -> tuple[int, object]:
        """The same over device memory, which is read by whole numbers."""
        raise self._no_images()

    def bind_surface(self, texels: Texels, image: object) -> tuple[int, object]:
        """The handle of a surface over a writable image, and what keeps the handle alive."""
        raise self._no_images()

    def _no_images(self) -> BadLaunch:
        return BadLaunch(f"{self.name} has no textures and surfaces")

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """The 128 bytes in which kernels of this target find a tensor map. A target without such copies keeps this."""
        raise BadLaunch(f"{self.name} has no tensor maps")

    def elapsed_ns(self, run: Callable[[], object]) -> float:
        """How long the device works on what `run` launches on the default stream, between two events. BadLaunch where time is modelled."""
        raise BadLaunch(f"{self.name} has no events: its times are modelled, by ml.time")

    def prepared(self, launch: Launch) -> Prepared:
        """The launch made ready to be started many times on the default stream with the least work."""
        return PlainLaunch(launch)

    def assembled(self, loaded: LoadedModule) -> bytes | None:
        """The assembled code (a cubin) that runs for the module; None where the target runs the PTX itself, or cannot tell."""
        return None

    # -- in terms of the primitives ------------------------------------------------------------------------------------------

    def allocate_cleared(self, nbytes: int) -> tuple[int, object]:
        """Fresh memory filled with zeros, as `allocate` gives it."""
        address, owner = self.allocate(nbytes)
        self.clear(address, nbytes)
        return address, owner

    def clear(self, address: int, nbytes: int) -> None:
        """Fill device memory with zeros, after all work launched before has finished. Targets that can do better than to copy do."""
        zeros = np.zeros(min(nbytes, _CLEAR_BYTES), np.uint8)
        for start in range(0, nbytes, _CLEAR_BYTES):
            self.write(address + start, zeros[: nbytes - start])

    def array(self, host: npt.ArrayLike) -> DeviceArray:
        """A copy of `host` on the target."""
        source = np.asarray(host, order="C")
        if source.dtype.hasobject:
            raise BadLaunch(f"an array of dtype {source.dtype} holds Python objects and cannot be copied to {self.name}")
        array = self.empty(source.shape, source.dtype)
        if array.nbytes:
            self.write(array.address, np.ascontiguousarray(source))
        return array

    def adopt(self, value: object) -> DeviceArray:
        """An array of another library on this target, where it lies, without a copy. BadLaunch for one that does not lie in C order and for
        what has no memory here."""
        found = self.device_pointer(value)
        if found is None:
            raise BadLaunch(f"a {type(value).__name__} has no memory on {self.name}: copy it there with target.array")
        name = str(getattr(value, "dtype", "")).rpartition(".")[2]
        try:
            dtype = np.dtype(name)
        except TypeError:
            raise BadLaunch(f"elements of {name or 'no known type'} have no type in NumPy, which arrays of a target need") from None
        return DeviceArray(self, found[0], tuple(int(extent) for extent in getattr(value, "shape", ())), dtype, value)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> DeviceArray:
        """An array on the target with undefined contents."""
        extents = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
        if any(extent < 0 for extent in extents):
            raise BadLaunch(f"an array cannot have the shape {extents}")
        kind = np.dtype(dtype)
        address, owner = self.allocate(max(1, int(np.prod(extents, dtype=np.int64)) * kind.itemsize))
        return DeviceArray(self, address, extents, kind, owner)

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> DeviceArray:
        """An array on the target filled with zeros."""
        array = self.empty(shape, dtype)
        self.clear(array.address, array.nbytes)
        return array

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
        """A texture with a copy of `source`, of shape (width,), (height, width) or (depth, height, width).

        With `channels` 2 or 4 a further last axis holds the channels of each texel; with `layered` the first axis counts layers of one or
        two dimensions, with `cube` the six faces of one (+x, -x, +y, -y, +z, -z). `filter`, `address` (one mode, or one each for x, y and
        z), `normalized` and `read` are those of `Sampling`. A texture of a surface shows what the surface holds. With `memory="linear"`
        the texture reads a one-dimensional array where it lies, by whole numbers (`tex1Dfetch`). Raises BadLaunch for what no texture can
        be.
        """
        return make_texture(self, source, channels, filter, address, normalized, read, layered, cube, memory)

    def surface(self, source: npt.ArrayLike | DeviceArray, *, channels: int = 1, layered: bool = False) -> Surface:
        """A surface with a copy of `source`, whose shape, `channels` and `layered` are as for a texture. Kernels read and write it;
        `Surface.numpy` gives what it holds."""
        return make_surface(self, source, channels, layered)

    def tensor_map(
        self,
        source: object,
        box: Sequence[int],
        *,
        element_strides: Sequence[int] | None = None,
        swizzle: str = "none",
        promotion: str = "none",
        fill: str = "zeros",
        element: str = "",
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> TensorMap:
        """A tensor map of a device array, of which kernels copy boxes between global and shared memory (`cp.async.bulk.tensor`, sm_90).

        `box` has an extent for each axis, in the array's order; with `element_strides` only each n-th element of an axis is taken.
        `swizzle` (`none`, `32B`, `64B`, `128B`) says how rows of a box lie in shared memory, `promotion` how much L2 fetches, `fill`
        (`zeros` or `nan`) what loads find outside. `element` names the type where NumPy has none (`bf16`); `shape` and `strides` (in bytes,
        as NumPy's) describe a part of the array, such as rows without their padding. Raises BadLaunch for what no tensor map can be.

        In a kernel boxes begin at multiples of 16 bytes in a row, and stores not in front of the array. Stores write whole pieces of 16
        bytes, so what is behind rows that are no multiple of that long, as their padding, is overwritten.
        """
        return make_tensor_map(self, source, box, element_strides, swizzle, promotion, fill, element, shape, strides)

    def load(self, module: Module) -> LoadedModule:
        """The module on this target, ready to launch its kernels. TypeError for what is no module, BadLaunch for one of 32-bit addresses,
        which no GPU since compute capability 9.0 runs."""
        if not isinstance(module, Module):
            raise TypeError(f"load takes a module, as ml.cuda(path) or ml.parse(text) give it; got a {type(module).__name__}")
        if module.address_size != 64:
            size = f"addresses of {module.address_size} bits (.address_size)"
            raise BadLaunch(f"{module.name} has {size}, which {self.name} does not run: compile it for 64 bits")
        return LoadedModule(self, module, self.load_module(module))

    def graph(self, launches: Iterable[Launch]) -> StepGraph:
        """Prepare launches that follow each other for repeated starts (a CUDA graph on a GPU). Observers see them once, now.

        For copies, host functions and other orders write a plan: `ml.BoundPlan(plan).graph()`.
        """
        return self.graph_of_steps(chained([observed(launch) for launch in launches]))

    def check_configuration(self, kernel: Kernel, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
        """Raise BadLaunch if the chip cannot launch `kernel` with this grid, block and dynamic shared memory."""
        chip, threads = self.chip.launch_limits if self.modelled else self.chip, block[0] * block[1] * block[2]
        for axis, extent, limit in zip("xyz", block, chip.max_block_dim, strict=True):
            if extent > limit:
                raise BadLaunch(f"block.{axis} is {extent}; {chip.name} allows at most {limit}")
        for axis, extent, limit in zip("xyz", grid, chip.max_grid_dim, strict=True):
            if extent > limit:
                raise BadLaunch(f"grid.{axis} is {extent}; {chip.name} allows at most {limit}")
        if threads > chip.max_threads_per_block:
            raise BadLaunch(
                f"a block of {'x'.join(map(str, block))} has {threads} threads; {chip.name} allows at most {chip.max_threads_per_block}"
            )
        _check_compiled_block(kernel, block)
        room = self.max_shared_bytes(kernel)
        if shared_bytes > room:
            raise BadLaunch(
                f"{kernel.title} asks for {shared_bytes} bytes of dynamic shared memory; {chip.name} has room for {room} beside its own"
            )
        if kernel.cooperative:
            self._check_residence(kernel, grid, threads, shared_bytes)

    def _check_residence(self, kernel: Kernel, grid: Dim3, threads: int, shared_bytes: int) -> None:
        """Blocks that wait for all others must all be there."""
        blocks, per_sm = grid[0] * grid[1] * grid[2], self.resident_blocks(kernel, threads, shared_bytes)
        if blocks > per_sm * self.chip.sm_count:
            raise BadLaunch(
                f"{kernel.title} synchronises its whole grid, so all {blocks} blocks must be on the chip at once; {self.chip.name} holds "
                f"{per_sm * self.chip.sm_count} of them ({per_sm} on each of {self.chip.sm_count} multiprocessors): launch fewer, and let "
                "each thread do more"
            )


def _check_compiled_block(kernel: Kernel, block: Dim3) -> None:
    """What the kernel itself says of its block: the one block it was compiled for, or the most threads."""
    required, most = kernel.function.extents(".reqntid"), kernel.function.extents(".maxntid")
    shape, threads = "x".join(map(str, block)), block[0] * block[1] * block[2]
    if required and block != required:
        raise BadLaunch(f"{kernel.title} was compiled for blocks of {'x'.join(map(str, required))} threads, got {shape}")
    if most and threads > most[0] * most[1] * most[2]:
        raise BadLaunch(f"{kernel.title} was compiled for blocks of at most {most[0] * most[1] * most[2]} threads, got {shape}")


def _move(rows: Rows, to_target: Target | None, of_target: Target | None) -> None:
    """Copy rows on the host, or between the host and a target."""
    for row in range(rows.height):
        to, of = rows.destination + row * rows.destination_pitch, rows.source + row * rows.source_pitch
        if to_target is not None:
            to_target.write(to, _bytes_at(of, rows.width))
        elif of_target is not None:
            of_target.read(of, _bytes_at(to, rows.width))
        else:
            ctypes.memmove(to, of, rows.width)


def _bytes_at(address: int, nbytes: int) -> npt.NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
