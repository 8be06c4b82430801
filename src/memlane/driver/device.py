"""Implement the target interface on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda import core
from cuda.bindings import driver

from memlane.chip import nearest
from memlane.driver.calls import checked
from memlane.driver.cluster import allow_cluster, explicit_cluster, launch_in_clusters
from memlane.driver.context import Context, Current, device_attributes
from memlane.driver.fast_launch import DeviceLaunch, QuickLaunch
from memlane.driver.foreign_arrays import MappableMemory, device_memory
from memlane.driver.graph import BuiltGraph, DeviceGraph, Worker, build, is_pinned, pinned_array, single_launch_graph, start_copy
from memlane.driver.library import DeviceKernel, Library, load_library
from memlane.driver.parameters import Parameters
from memlane.driver.probe import driver_version, probe
from memlane.driver.streams import DEFAULT, Queue, Streams
from memlane.driver.tensor_map import encode
from memlane.driver.texture import Image, bind_linear, bind_surface, bind_texture, copy_image
from memlane.errors import BadLaunch, DeviceError
from memlane.launch import (
    BoundStep,
    Copies,
    Dim3,
    Event,
    Kernel,
    KernelCall,
    Launch,
    LaunchTime,
    Layers,
    LoadedModule,
    Memory,
    Place,
    QuickCall,
    Sampling,
    Stream,
    Target,
    Texels,
    Tiling,
    chained,
    whole_copy,
)
from memlane.number_format import plural
from memlane.ptx import Module


class Device(Target):
    """The GPU `cuda:<index>` of this process, through the primary context that CuPy, PyTorch and the CUDA runtime use too.

    Order: the default stream is CUDA's legacy default stream, and `stream()` returns *blocking* streams. So work on the default stream
    waits for all work launched before it, and all work launched after it waits for it. Arrays of other libraries are ordered like memlane's
    as long as those libraries use the default stream, their default; work on their other streams is ordered when the array is passed, by
    the exchange protocol. Two streams of one device may overlap.

    Memory comes from the device's memory pool and is returned to it in the order of the default stream: an array may be dropped while
    kernels that use it are still running.
    """

    modelled = False

    def __init__(self, index: int = 0, *, fmad: bool = True) -> None:
        """Open the device. Raises DeviceError if there is no such device.

        With `fmad` False, modules are assembled without fusing multiplications and additions, so that results equal those of the emulator
        bit for bit.
        """
        self.name = f"cuda:{index}"
        self.fmad = fmad
        self._peers: set[Memory] = set()
        self._is_mappable = False
        found = probe()
        if not found.devices:
            raise DeviceError(f"no {self.name}: {found.problem}; ml.target('emulator'), or --target emulator, runs kernels without a GPU")
        if not 0 <= index < len(found.devices):
            listed = ", ".join(f"cuda:{number} ({product})" for number, product in enumerate(found.devices))
            raise DeviceError(f"no {self.name} on this machine; it has {listed}")
        self.context = Context(self.name, index)
        self._device = self.context.device
        capability = self._device.compute_capability
        self.compute_capability = (int(capability.major), int(capability.minor))
        self.chip = nearest(self.compute_capability, device_attributes(self._device), found.devices[index])
        self.driver = driver_version(found)
        self.streams = Streams(self.context)
        self.default_stream = self.streams.default

    def _current(self, doing: str) -> Current:
        return self.context.current(doing)

    # -- memory --------------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> tuple[int, object]:
        with self._current(f"{plural(nbytes, 'byte')} of memory"):
            if self._is_mappable:
                memory = MappableMemory(nbytes, self.context)
                return memory.address, memory
            buffer = self._device.allocate(max(1, nbytes), stream=DEFAULT)
        return int(buffer.handle), buffer

    @contextmanager
    def mappable(self) -> Iterator[None]:
        before, self._is_mappable = self._is_mappable, True
        try:
            yield
        finally:
            self._is_mappable = before

    def calling(self) -> Current:
        return self._current("a call of another library")

    def free_bytes(self) -> int:
        """Return the bytes that the driver reports as free, plus those reserved but unused in the memory pool."""
        attribute = driver.CUmemPool_attribute
        with self._current("a query of its free memory"):
            free, _ = checked(driver.cuMemGetInfo())
            pool = checked(driver.cuDeviceGetMemPool(self._device.device_id))
            held = int(checked(driver.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)))
            used = int(checked(driver.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)))
        return int(free) + held - used

    def read(self, address: int, host: npt.NDArray[Any]) -> None:
        with self._after_all_work(f"a copy of {plural(host.nbytes, 'byte')} to the host"):
            if host.nbytes:
                checked(driver.cuMemcpyDtoHAsync(host.ctypes.data, address, host.nbytes, DEFAULT.handle))
            self.streams.wait_for_default()

    def write(self, address: int, host: npt.NDArray[Any]) -> None:
        with self._after_all_work(f"a copy of {plural(host.nbytes, 'byte')} to the device"):
            if host.nbytes:
                checked(driver.cuMemcpyHtoDAsync(address, host.ctypes.data, host.nbytes, DEFAULT.handle))
            self.streams.wait_for_default()

    def clear(self, address: int, nbytes: int) -> None:
        if nbytes:
            with self._after_all_work(f"to clear {plural(nbytes, 'byte')}"):
                checked(driver.cuMemsetD8Async(address, 0, nbytes, DEFAULT.handle))

    def start_copy(self, destination: Place, source: Place, stream: Stream | None = None) -> Event:
        copy = whole_copy(destination, source)
        for place in (destination, source):
            if isinstance(place, np.ndarray) and not self.is_pinned(place):
                raise BadLaunch(f"{self.name} copies asynchronously only from and to pinned memory: allocate the array with target.pinned")
            if not isinstance(place, np.ndarray) and not isinstance(place.target, Device):
                raise BadLaunch(f"{self.name} cannot access memory of {place.target.name_beside(self)}: copy it through the host")
        ends = (copy.destination.target, copy.source.target)
        others = [one.streams for one in ends if isinstance(one, Device) and one is not self]
        queue = self.streams.queue(stream)
        with self._current(f"a copy of {plural(source.nbytes, 'byte')}"), self.streams.across(queue, others):
            start_copy(copy, queue.stream.handle)
        self.streams.keep(stream, (destination, source))
        return self.record(stream)

    @contextmanager
    def _after_all_work(self, doing: str) -> Iterator[None]:
        """Make the context current, with the default stream ordered after all work of memlane on other streams."""
        with self._current(doing):
            self.streams.join()
            yield

    def device_pointer(self, value: object) -> tuple[int, int, str] | None:
        with self._current(f"a {type(value).__name__} as an argument"):
            return device_memory(value, self._device.device_id, self.name)

    # -- textures and surfaces -----------------------------------------------------------------------------------------------

    def allocate_image(self, texels: Texels, writable: bool) -> Image:
        with self._current(f"a {texels}"):
            return Image(texels, writable, self.context.handle)

    def read_image(self, image: object, texels: Texels, host: npt.NDArray[Any]) -> None:
        self._copy_image(image, texels, host, to_host=True)

    def write_image(self, image: object, texels: Texels, host: npt.NDArray[Any]) -> None:
        self._copy_image(image, texels, host, to_host=False)

    def _copy_image(self, image: object, texels: Texels, host: npt.NDArray[Any], to_host: bool) -> None:
        assert isinstance(image, Image)
        with self._after_all_work(f"a copy of a {texels}"):
            self.streams.wait_for_default()
            copy_image(image, texels, host, to_host)

    def bind_texture(self, texels: Texels, sampling: Sampling, image: object) -> tuple[int, object]:
        assert isinstance(image, Image)
        with self._current(f"a texture over a {texels}"):
            bound = bind_texture(texels, sampling, image, self.context.handle)
        return bound.handle, bound

    def bind_linear(self, texels: Texels, read: str, address: int) -> tuple[int, object]:
        with self._current(f"a texture over a {texels}"):
            bound = bind_linear(texels, read, address, self.context.handle)
        return bound.handle, bound

    def bind_surface(self, texels: Texels, image: object) -> tuple[int, object]:
        assert isinstance(image, Image)
        with self._current(f"a surface over a {texels}"):
            bound = bind_surface(image, self.context.handle)
        return bound.handle, bound

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        with self._current(f"a tensor map: {tiling}"):
            return encode(tiling)

    # -- modules -------------------------------------------------------------------------------------------------------------

    def load_module(self, module: Module) -> Library:
        with self._current(f"the module {module.name}"):
            return load_library(module, self.compute_capability, self.chip.max_shared_bytes, self.fmad)

    def assembled(self, loaded: LoadedModule) -> bytes | None:
        return self._library(loaded).cubin

    def symbol(self, loaded: LoadedModule, name: str) -> tuple[int, int]:
        library = self._library(loaded)
        if name not in loaded.module.variables:
            listed = ", ".join(loaded.module.variables)
            raise BadLaunch(f"no module-scope variable {name!r} in {loaded.module.name}; it has: {listed or 'none'}")
        with self._current(f"the address of {name}"):
            return library.symbol(name)

    def max_shared_bytes(self, kernel: Kernel) -> int:
        return self._kernel(kernel).max_dynamic_bytes

    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
        with self._current(f"the occupancy of {kernel.title}"):
            return self._kernel(kernel).resident_blocks(threads_per_block, shared_bytes)

    def check_configuration(self, kernel: Kernel, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
        super().check_configuration(kernel, grid, block, shared_bytes)
        threads, ready = block[0] * block[1] * block[2], self._kernel(kernel)
        if threads > ready.max_threads_per_block:
            raise BadLaunch(
                f"a block of {kernel.title} may have at most {plural(ready.max_threads_per_block, 'thread')} on {self.name}, by its launch "
                f"bounds or its {plural(ready.registers, 'register')} per thread; got {threads}"
            )

    def _library(self, loaded: LoadedModule) -> Library:
        if loaded.target is not self or not isinstance(loaded.handle, Library):
            raise BadLaunch(f"{loaded.module.name} is loaded on {loaded.target.name}, not on this {self.name}: use target.load(module)")
        return loaded.handle

    def _kernel(self, kernel: Kernel) -> DeviceKernel:
        return self._library(kernel.loaded).kernels[kernel.name]

    # -- launches ------------------------------------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> None:
        with self._current(f"the launch of {launch.kernel.title}"):
            queue = self.streams.queue(launch.stream)
            kernel = self._ready(launch)
            if self.streams.unordered or queue.is_unordered:
                self.streams.order(queue)
            stream = queue.stream
            parameters = Parameters([argument.data for argument in launch.arguments])
            self.context.running[launch.kernel.title] = None
            shape = (*launch.grid, *launch.block, launch.shared_bytes)
            if cluster := explicit_cluster(launch):
                launch_in_clusters(launch, cluster, kernel.function, stream.handle, parameters.address)
            elif launch.kernel.cooperative:
                checked(driver.cuLaunchCooperativeKernel(kernel.function, *shape, stream.handle, parameters.address))
            else:
                checked(driver.cuLaunchKernel(kernel.function, *shape, stream.handle, parameters.address, 0))
            self._keep(launch, queue)

    def prepared(self, launch: Launch) -> Callable[[], None]:
        with self._current(f"the launch of {launch.kernel.title}"):
            return DeviceLaunch(launch, single_launch_graph(launch, self._ready(launch)), int(DEFAULT.handle), self.context.running)

    def quick_call(self, call: KernelCall) -> QuickCall | None:
        queue = self.streams.queue(call.stream)
        if queue.is_unordered or not QuickLaunch.takes(call):
            return None
        kernel = self._kernel(call.kernel)
        with self._current(f"the launch of {call.kernel.title}"):
            kernel.allow(call.shared_bytes)
            allow_cluster(call, kernel.function)
        return QuickLaunch(call, kernel, self.streams, int(queue.stream.handle), self)

    def elapsed_ns(self, run: Callable[[], object]) -> float:
        options = core.EventOptions(timing_enabled=True)
        with self._current("the time of some launches"):
            begin, end = self._device.create_event(options), self._device.create_event(options)
            stream, first, last = DEFAULT.handle, begin.handle, end.handle
            driver.cuEventRecord(first, stream)
            run()
            checked(driver.cuEventRecord(last, stream))
            end.sync()
            return float(end - begin) * 1e6

    def enable_peer(self, other: Copies) -> None:
        if not isinstance(other, Device):
            raise DeviceError(f"{self.name} and {other.name} are not peers: a GPU can access only the memory of other GPUs")
        if self.reaches(other):
            return
        if other._device.device_id == self._device.device_id:  # two targets of one GPU share its memory
            self._peers.add(other)
            return
        with self._current(f"access to the memory of {other.name}"):
            if not self._device.can_access_peer(other._device):
                raise DeviceError(
                    f"{self.name} and {other.name} are not peers: this machine has no link through which kernels can access the memory "
                    "of both"
                )
            other._device.memory_resource.peer_accessible_by.add(self._device)
        self._peers.add(other)

    def reaches(self, other: Memory) -> bool:
        return other is self or other in self._peers

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        with self._current("pinned memory of the host"):
            return pinned_array(shape, dtype)

    def is_pinned(self, host: npt.NDArray[Any]) -> bool:
        with self._current("a query of host memory"):
            return is_pinned(int(host.ctypes.data))

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> DeviceGraph:
        return DeviceGraph(self, steps, timed)

    def build_graph(self, steps: Sequence[BoundStep], timed: bool) -> BuiltGraph:
        """Build the CUDA graph of steps of this device and its peers."""
        devices = {id(self): self, **{id(step.target): step.target for step in steps if isinstance(step.target, Device)}}
        workers = {key: Worker(one._device, one.context.handle, one._current, one._ready, one.streams) for key, one in devices.items()}
        return build(steps, lambda target: workers[id(target)], workers[id(self)], timed)

    def time_launches(self, launches: Sequence[Launch]) -> tuple[LaunchTime, ...]:
        """Time launches in a CUDA graph with events, so that times include the GPU's gaps between launches (about a microsecond) but not
        the host's.

        The clock of events has a resolution of about half a microsecond.
        """
        if not launches:
            return ()
        graph = self.graph_of_steps(chained(launches), timed=True)
        graph.replay()
        return tuple(LaunchTime(end - start) for start, end in graph.times_ns())

    def start_graph(self, steps: Sequence[BoundStep], built: BuiltGraph, stream: Stream | None) -> None:
        """Start a graph of this device; asynchronous."""
        with self._current(f"a graph of {plural(len(steps), 'step')}"):
            self.context.running.update(built.titles)
            self.streams.start(built.graph, stream, built.others)

    def stream(self) -> Stream:
        return self.streams.new()

    def is_recording(self, stream: Stream) -> bool:
        return self.streams.is_recording(stream)

    def adopt_stream(self, value: object) -> Stream:
        return self.streams.adopt(value)

    def record(self, stream: Stream | None = None) -> Event:
        return self.streams.record(stream)

    def wait_for(self, event: object, stream: Stream | None = None) -> None:
        self.streams.wait_for(event, stream)

    def sync(self) -> None:
        with self._current("a wait for its work"):
            checked(driver.cuCtxSynchronize())
        self.context.running.clear()
        self.streams.kept.clear()
        self.streams.unordered.clear()
        self.streams.others.clear()

    def _ready(self, launch: Launch) -> DeviceKernel:
        """Return the kernel of a launch, after checking that the device supports everything that the launch requests."""
        if launch.layers != Layers() or launch.layers.report is not None:
            raise BadLaunch(f"{self.name} cannot observe a launch by itself; use ml.trace or ml.count, or the emulator")
        kernel = self._kernel(launch.kernel)
        kernel.allow(launch.shared_bytes)
        allow_cluster(launch, kernel.function)
        return kernel

    def _keep(self, launch: Launch, queue: Queue) -> None:
        """Hold references to arrays until the launch has ended, if nothing else does.

        These are arrays of other libraries, whose owners may reuse the memory at any time, and all arrays of a launch on a stream that
        memlane's memory release is not ordered with.
        """
        if self.streams.kept:
            self.streams.release()
        owners = [one.owner for one in launch.arguments if one.owner is not None]
        if not queue.is_unordered:
            owners = [owner for owner in owners if not isinstance(owner, core.Buffer)]
        if owners:
            self.streams.kept.append((queue.stream.record(), owners))
