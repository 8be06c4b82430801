"""Implement the target interface on the CPU: memory, modules, launches and streams of an emulated GPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import Chip
from memlane.emulate.code.jit import LOCK
from memlane.emulate.layers import CompiledLayers, layers_for
from memlane.emulate.lower.kernel import CompiledKernel, compile_kernel, segments_of
from memlane.emulate.lower.linking import refuse_objects
from memlane.emulate.lower.variables import WORKSPACE, function_addresses, static_shared_bytes
from memlane.emulate.module_cache import WeakModuleCache
from memlane.emulate.run.device import DeviceState
from memlane.emulate.run.execution import execute
from memlane.emulate.run.faults import with_origin
from memlane.emulate.run.initial_values import fill
from memlane.emulate.run.memory import Buffer
from memlane.emulate.run.partners import run_together
from memlane.emulate.run.steps import EmulatedGraph, timed_launches
from memlane.emulate.run.tensor_maps import encode
from memlane.emulate.run.textures import refuse_references
from memlane.errors import BadLaunch, DeviceError, LaunchError, SourceError
from memlane.launch import (
    BoundStep,
    Copies,
    Kernel,
    Launch,
    LaunchTime,
    LoadedModule,
    Memory,
    Observation,
    Sampling,
    StepGraph,
    Stream,
    Target,
    Texels,
    Tiling,
)
from memlane.ptx import Function, Module, verify
from memlane.source import Source

WORKSPACE_BYTES = 16
PATIENCE = 1 << 16
"""Default limit for endless launches: warps spend their budget this many times in a row without progress."""


@dataclass
class Loaded:
    """A module loaded on one emulator, with its variables in device memory."""

    module: Module
    addresses: dict[str, int]
    buffers: list[Buffer] = field(repr=False)
    """Host buffers that keep the variables' memory alive."""


class Emulator(Target):
    """An exact emulator of one CUDA device on the CPU.

    A large launch that nothing observes runs on several cores. Its blocks then run concurrently, as on a GPU, so results that depend on the
    order of blocks (the sum of floats by atomic additions, the tickets that blocks draw) may differ between runs. With `threads=1`, and
    whenever accesses are counted, timed or checked, every launch is reproducible to the bit.

    Launches run at once, in the order of the calls, whatever stream or thread they come from; each launch raises its own errors. Fresh
    device, shared and local memory is filled with bytes 0xA5, so that reads of uninitialised memory show.
    """

    modelled = True
    observes = True

    def __init__(
        self,
        chip: Chip,
        *,
        patience: int = PATIENCE,
        threads: int | None = None,
        device: int = 0,
        name: str = "",
        memory_bytes: int | None = None,
    ) -> None:
        """Create an emulated device.

        `device`: its number among emulated devices that are peers; each has an address range of its own. `name`: the name in messages.
        `threads`: the number of cores that each launch uses, however small; None uses the cores available to this process where that pays.
        `patience`: how many times in a row the warps of a launch may spend their budget (2^20 loop iterations each, or 256 that poll
        memory), with no thread passing a barrier or ending in between, before the launch counts as endless. `memory_bytes`: device memory
        in bytes; None takes the size that the chip has.
        """
        self.name = name or f"emulator:{chip.name}" + (f":{device}" if device else "")
        self.device = device
        self.default_stream = Stream(0)
        self.state = DeviceState(chip, self.name, device, patience=patience, threads=threads, memory_bytes=memory_bytes)
        """State that lasts from launch to launch: memory, textures, caches and the clock."""
        self.memory, self.textures, self.shadows, self.clock = self.state.memory, self.state.textures, self.state.shadows, self.state.clock
        self._streams = 0
        self._adopted: dict[int, int] = {}
        """Stream handle of another library -> number of the stream here."""
        self._launches = 0
        self._running = threading.RLock()

    @property
    def chip(self) -> Chip:  # type: ignore[override]
        """The emulated chip."""
        return self.state.chip

    @property
    def patience(self) -> int:
        """Limit for endless launches: how many times in a row warps may spend their budget without progress."""
        return self.state.patience

    @patience.setter
    def patience(self, turns: int) -> None:
        self.state.patience = turns

    @property
    def threads(self) -> int | None:
        """Number of cores that each launch uses; None lets the emulator choose."""
        return self.state.threads

    def of_chip(self, chip: Chip) -> Emulator:
        """Return an emulator of another chip that shares the memory, images and textures of this one but has its own caches and clock."""
        other = Emulator(chip, patience=self.patience, threads=1, device=self.device)
        other.state.share_memory(self.state)
        other.memory, other.textures, other.shadows = self.memory, self.textures, self.shadows
        return other

    def may_leave_out_blocks(self, launch: Launch) -> bool:
        """Return whether blocks run independently of each other: no clusters, no grid barrier and no loop that polls memory other than
        barriers in shared memory."""
        kernel = launch.kernel
        if kernel.cooperative or launch.cluster is not None or kernel.function.extents(".reqnctapercluster") is not None:
            return False
        segments = segments_of(kernel.module, kernel.function, CompiledLayers(counts=False, accesses=False, clock=True))
        return not any(segment.polls_blocks for segment in segments)

    # -- memory ------------------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> tuple[int, object]:
        return self.memory.allocate(nbytes)

    def free_bytes(self) -> int:
        return self.memory.free_bytes

    def allocate_cleared(self, nbytes: int) -> tuple[int, object]:
        return self.memory.allocate(nbytes, cleared=True)

    def read(self, address: int, host: npt.NDArray[Any]) -> None:
        if host.nbytes:
            host.reshape(-1).view(np.uint8)[:] = self.memory.view(address, host.nbytes)

    def write(self, address: int, host: npt.NDArray[Any]) -> None:
        if host.nbytes:
            self.memory.view(address, host.nbytes)[:] = host.reshape(-1).view(np.uint8)
            self.memory.wrote(address, host.nbytes)

    def host_bytes(self, address: int, nbytes: int, *, is_written: bool = False) -> npt.NDArray[np.uint8]:
        found = self.memory.view(address, nbytes)
        if is_written and nbytes:
            self.memory.wrote(address, nbytes)
        return found

    def device_pointer(self, value: object) -> tuple[int, int, str] | None:
        """Return None: no foreign object has memory on an emulated device."""
        return None

    # -- textures and surfaces: images lie in device memory, in C order ------------------------------------------------------------

    def allocate_image(self, texels: Texels, writable: bool) -> object:
        return self.memory.allocate(texels.nbytes, "an image")

    def read_image(self, image: object, texels: Texels, host: npt.NDArray[Any]) -> None:
        self.read(_address_of(image), host)

    def write_image(self, image: object, texels: Texels, host: npt.NDArray[Any]) -> None:
        self.write(_address_of(image), host)

    def bind_texture(self, texels: Texels, sampling: Sampling, image: object) -> tuple[int, object]:
        return self.textures.add_texture(texels, sampling, self._host(_address_of(image), texels))

    def bind_linear(self, texels: Texels, read: str, address: int) -> tuple[int, object]:
        return self.textures.add_linear(texels, read, self._host(address, texels))

    def bind_surface(self, texels: Texels, image: object) -> tuple[int, object]:
        return self.textures.add_surface(texels, self._host(_address_of(image), texels))

    def _host(self, address: int, texels: Texels) -> int:
        return int(self.memory.view(address, texels.nbytes).ctypes.data)

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        return encode(tiling)

    # -- modules -----------------------------------------------------------------------------------------------------------------

    def load_module(self, module: Module) -> object:
        refuse_objects(module)
        refuse_references(module)
        verify(module)  # as a driver does; lowering relies on it
        if any(isinstance(item, Function) and item.name == "malloc" for item in module.items):
            self.state.heap.prepare()
        addresses: dict[str, int] = {}
        buffers = []
        kept = [variable for variable in module.variables.values() if variable.space in ("global", "const")]
        for variable in kept:
            address, buffer = self.memory.allocate(max(1, variable.nbytes), variable.name, cleared=True)
            addresses[variable.name] = address
            buffers.append(buffer)
        known = {**addresses, **function_addresses(module)}
        for variable, buffer in zip(kept, buffers, strict=True):
            fill(variable, buffer.bytes, known.get)
            self.memory.wrote(addresses[variable.name], len(buffer.bytes))
        return Loaded(module, addresses, buffers)

    def symbol(self, loaded: LoadedModule, name: str) -> tuple[int, int]:
        handle = loaded.handle
        assert isinstance(handle, Loaded)
        if name not in handle.addresses:
            listed = ", ".join(handle.addresses) or "none"
            raise BadLaunch(f"no variable {name!r} in {loaded.module.name}; it has: {listed}")
        return handle.addresses[name], loaded.module.variables[name].nbytes

    def max_shared_bytes(self, kernel: Kernel) -> int:
        return max(0, self.chip.launch_limits.max_shared_bytes - static_shared_bytes(kernel.module, kernel.name))

    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
        return self.state.resident_blocks(kernel, threads_per_block, shared_bytes)

    # -- running -----------------------------------------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> Observation:
        if launch.kernel.target is not self:
            where = launch.kernel.target.name_beside(self)
            raise BadLaunch(f"{launch.kernel.title} was loaded on {where}: load its module on {self.name} to launch it there")
        module, function = launch.kernel.module, launch.kernel.function
        layers = layers_for(launch.layers, module, function, launch.blocks * launch.threads_per_block)
        if layers.counts:
            module, function = launch.kernel.loaded.inlined, launch.kernel.inlined
        compiled = compiled_kernel(module, function, layers, self.chip)
        handle = launch.kernel.loaded.handle
        assert isinstance(handle, Loaded)
        with self._running:
            self._launches += 1
            if not compiled.layers.check:
                self.shadows.mark_all_written()
            addresses = handle.addresses
            if launch.kernel.cooperative:
                address, _kept = self.memory.allocate(WORKSPACE_BYTES, "the barrier of the grid", cleared=True)
                addresses = {**addresses, WORKSPACE: address}
            number = self._launches
            try:
                observation = execute(self.state, launch, compiled, addresses, number)
            except LaunchError as error:
                if launch.layers.failed is not None:
                    launch.layers.failed(number, error)
                raise
        if launch.layers.report is not None:
            launch.layers.report(observation)
        return observation

    def launch_together(self, launches: Sequence[Launch]) -> Sequence[Observation | None]:
        """Launch kernels on several devices that start at the same time, the latest of their devices' times."""
        clocks = [launch.kernel.target.clock for launch in launches if isinstance(launch.kernel.target, Emulator)]
        start_ns = max((clock.now_ns for clock in clocks), default=0)
        for clock in clocks:
            clock.move_to(start_ns)
        return run_together([partial(launch.kernel.target.launch, launch) for launch in launches])

    def empty_caches(self, l2_bytes: int | None = None) -> None:
        """Empty L2, so that the next launch with a clock starts cold.

        `l2_bytes`: size of L2 until it is emptied again, for launches that leave out blocks (`BlockSample`); None restores the chip's size.
        """
        self.state.empty_caches(l2_bytes)

    def scale_l2(self, l2_bytes: int) -> None:
        """Empty L2 and set its size for a launch that leaves out blocks (`BlockSample`), until `empty_caches`.

        The lines present now are those of its sample: each set of L2 gets the share that these need of it.
        """
        self.state.scale_l2(l2_bytes)

    def enable_peer(self, other: Copies) -> None:
        if not isinstance(other, Emulator):
            raise DeviceError(
                f"{self.name} and {other.name} are not peers: an emulated device can access only the memory of emulated devices"
            )
        if other is self or other.memory in self.memory.peers:
            return
        if other.device == self.device:
            raise DeviceError(
                f"{other.name_beside(self)} and {self.name} are not peers, because both use the addresses of device {self.device}: "
                "give emulated devices different numbers, as in emulator:h200:1, or get them from ml.devices"
            )
        self.memory.peers = (*self.memory.peers, other.memory)
        self.shadows.join(other.shadows)

    def reaches(self, other: Memory) -> bool:
        return other is self or (isinstance(other, Emulator) and other.memory in self.memory.peers)

    def stream(self) -> Stream:
        self._streams += 1
        return Stream(self._streams)

    def adopt_stream(self, value: object) -> Stream:
        adopted = super().adopt_stream(value)
        if adopted is self.default_stream:
            return adopted
        if adopted.number not in self._adopted:
            self._adopted[adopted.number] = self.stream().number
        return Stream(self._adopted[adopted.number], value)

    def sync(self) -> None:
        """Do nothing: no work is ever pending."""

    def time_launches(self, launches: Sequence[Launch]) -> tuple[LaunchTime, ...]:
        return timed_launches(self, launches)

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> StepGraph:
        if timed:
            raise BadLaunch(f"times of steps on {self.name} are modelled: use BoundPlan.time for a plan, or ml.time for a launch")
        return EmulatedGraph(self, tuple(steps))


def _address_of(image: object) -> int:
    assert isinstance(image, tuple)
    return int(image[0])


_Key = tuple[str, CompiledLayers, Chip | None]
_kernels: WeakModuleCache[dict[_Key, CompiledKernel]] = WeakModuleCache(dict)
"""Compiled kernels of each module, by kernel name, layers, and the chip where the code depends on it."""


def compiled_kernel(module: Module, function: Function, layers: CompiledLayers, chip: Chip) -> CompiledKernel:
    """Return the kernel's machine code, compiled at most once per choice of layers while the module or an equal one lives."""
    with LOCK:
        known, of_chip = _kernels.get_or_create(module), chip if layers.depends_on_chip else None
        fast = function.name, replace(layers, quick=False), of_chip
        key = fast if fast in known else (function.name, layers, of_chip)
        if key not in known:
            try:
                known[key] = _of_equal_module(module, key) or compile_kernel(module, function, layers, chip)
            except SourceError as error:
                raise with_origin(error, module) from None
        return known[key]


def _of_equal_module(module: Module, key: _Key) -> CompiledKernel | None:
    """Return the kernel compiled for an equal module parsed from the same text, which messages refer to; None if there is none."""
    text = _text(module)
    for other, kernels in _kernels.items():
        if key in kernels and _text(other) == text and other == module:
            return kernels[key]
    return None


def _text(module: Module) -> Source | None:
    return next((function.span.source for function in module.functions.values() if function.span is not None), None)
