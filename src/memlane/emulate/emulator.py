"""The emulator as a target."""

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
from memlane.emulate.layers import Compiled, layers_for
from memlane.emulate.lower.kernel import CompiledKernel, compile_kernel, segments_of
from memlane.emulate.lower.linking import refuse_objects
from memlane.emulate.lower.variables import WORKSPACE, function_addresses, static_shared_bytes
from memlane.emulate.remembered import ByModule
from memlane.emulate.run.device import DeviceState
from memlane.emulate.run.execution import execute
from memlane.emulate.run.faults import with_origin
from memlane.emulate.run.initial import fill
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
"""Turns after which a launch counts as endless, if nothing else is asked for."""


@dataclass
class Loaded:
    """A module on one emulator: its variables in device memory."""

    module: Module
    addresses: dict[str, int]
    buffers: list[Buffer] = field(repr=False)
    """What keeps that memory alive."""


class Emulator(Target):
    """Runs kernels on the CPU, exactly.

    A launch runs on several cores, if it is large and nothing observes it. Blocks then run side by side, as on a GPU: what depends on
    their order (the sum of floats by atomic additions, who draws which ticket) may be another thing next time. With `threads=1`, and
    whenever accesses are counted, timed or checked, every launch is repeated to the bit.

    Launches run at once, one after another in the order of the calls, whatever their streams and the threads that call; errors are raised
    by the launch. Fresh device, shared and local memory is filled with bytes 0xA5, so that reading what was never written shows.
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
        """`device`: its number among emulated devices that are to be peers; each has addresses of its own. `name`: what messages call it.
        `threads`: on how many cores a launch runs, however small; by default on those that this process may use, where it pays.
        `patience`: how many times in a row the warps of a launch may spend their budget (2^20 loop iterations each, or 256 that poll
        memory) before, with no thread passing a barrier or ending in between, the launch counts as endless.
        `memory_bytes`: how much device memory there is; by default as much as the chip has."""
        self.name = name or f"emulator:{chip.name}" + (f":{device}" if device else "")
        self.device = device
        self.default_stream = Stream(0)
        self.state = DeviceState(chip, self.name, device, patience=patience, threads=threads, memory_bytes=memory_bytes)
        """What lasts between launches: memory, textures, caches and the clock."""
        self.memory, self.textures, self.shadows, self.clock = self.state.memory, self.state.textures, self.state.shadows, self.state.clock
        self._streams = 0
        self._adopted: dict[int, int] = {}
        """By handle, the number of a stream of another library."""
        self._launches = 0
        self._running = threading.RLock()

    @property
    def chip(self) -> Chip:  # type: ignore[override]
        """The chip that is emulated."""
        return self.state.chip

    @property
    def patience(self) -> int:
        """How many times in a row warps may spend their budget before a launch counts as endless."""
        return self.state.patience

    @patience.setter
    def patience(self, turns: int) -> None:
        self.state.patience = turns

    @property
    def threads(self) -> int | None:
        """On how many cores a launch runs, however small; None where the emulator chooses."""
        return self.state.threads

    def of_chip(self, chip: Chip) -> Emulator:
        """Return an emulator of another chip over the memory, images and textures of this one, with caches and a clock of its own."""
        other = Emulator(chip, patience=self.patience, threads=1, device=self.device)
        other.state.share_memory(self.state)
        other.memory, other.textures, other.shadows = self.memory, self.textures, self.shadows
        return other

    def may_leave_out_blocks(self, launch: Launch) -> bool:
        """Whether the blocks of a launch run one without the others: no clusters, no barrier of the grid, no loop that polls memory other
        than barriers in shared memory."""
        kernel = launch.kernel
        if kernel.cooperative or launch.cluster is not None or kernel.function.extents(".reqnctapercluster") is not None:
            return False
        segments = segments_of(kernel.module, kernel.function, Compiled(counts=False, accesses=False, clock=True))
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

    def device_pointer(self, value: object) -> tuple[int, int, str] | None:
        """No foreign object has memory here."""
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
        verify(module)  # as a driver does; what is lowered relies on it
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
                self.shadows.trust()
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
        """The kernels begin at the same time, which is the latest of their devices' times."""
        clocks = [launch.kernel.target.clock for launch in launches if isinstance(launch.kernel.target, Emulator)]
        start_ns = max((clock.now_ns for clock in clocks), default=0)
        for clock in clocks:
            clock.move_to(start_ns)
        return run_together([partial(launch.kernel.target.launch, launch) for launch in launches])

    def empty_caches(self, l2_bytes: int | None = None) -> None:
        """Let the next launch with a clock find nothing in L2. `l2_bytes`: how large L2 is until they are emptied again, where blocks of a
        launch are left out (`BlockSample`); None: as large as the chip has it."""
        self.state.empty_caches(l2_bytes)

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
        """Nothing is ever pending."""

    def time_launches(self, launches: Sequence[Launch]) -> tuple[LaunchTime, ...]:
        return timed_launches(self, launches)

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> StepGraph:
        if timed:
            raise BadLaunch(f"times of steps on {self.name} are modelled: use BoundPlan.time for a plan, or ml.time for a launch")
        return EmulatedGraph(self, tuple(steps))


def _address_of(image: object) -> int:
    assert isinstance(image, tuple)
    return int(image[0])


_Key = tuple[str, Compiled, Chip | None]
_kernels: ByModule[dict[_Key, CompiledKernel]] = ByModule(dict)
"""By name, layers, and the chip where they depend on one."""


def compiled_kernel(module: Module, function: Function, layers: Compiled, chip: Chip) -> CompiledKernel:
    """The kernel's machine code, compiled at most once for each choice of layers, while the module or an equal one lives."""
    with LOCK:
        known, of_chip = _kernels.of(module), chip if layers.knows_chip else None
        fast = function.name, replace(layers, quick=False), of_chip
        key = fast if fast in known else (function.name, layers, of_chip)
        if key not in known:
            try:
                known[key] = _of_equal_module(module, key) or compile_kernel(module, function, layers, chip)
            except SourceError as error:
                raise with_origin(error, module) from None
        return known[key]


def _of_equal_module(module: Module, key: _Key) -> CompiledKernel | None:
    """The same kernel of another module that says the same and has it from the same text, to which messages refer."""
    text = _text(module)
    for other, kernels in _kernels.all():
        if key in kernels and _text(other) == text and other == module:
            return kernels[key]
    return None


def _text(module: Module) -> Source | None:
    return next((function.span.source for function in module.functions.values() if function.span is not None), None)
