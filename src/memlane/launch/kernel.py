"""Define kernels that can be called, `module["naive"][grid, block](out, in, n)`, their launches as data, and what launches them."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NoReturn

from memlane.chip import LANES, ModelledTime
from memlane.errors import BadLaunch
from memlane.launch.arguments import Argument, ArgumentRule, pack, pointer_parameters
from memlane.launch.configuration import DEFAULT_STREAM, Dim3, Origin, Stream, dim3, is_cacheable
from memlane.launch.events import Streams
from memlane.launch.kernel_names import find_kernel, typed_names
from memlane.launch.limits import check_cluster, check_compiled_block, check_extents, check_residence, check_shared_bytes
from memlane.launch.observation import NO_LAYERS, LaunchObservation, Layers
from memlane.launch.tensor_map import TensorMaps
from memlane.number_format import plural
from memlane.plan import KernelRef
from memlane.ptx import Convention, Function, Module, inline_calls, is_cooperative, once_for_each, parameter_use, print_module
from memlane.titles import kernel_label, plain_name

QuickCall = Callable[[tuple[object, ...]], bool]
_MOST_CALLS = 64
"""Maximum number of configurations that a kernel caches."""


class Loader(TensorMaps):
    """Loads modules, and returns the requirements and limits of their kernels."""

    modelled: bool
    """Whether times on this target come from a model rather than from a clock."""

    @abstractmethod
    def load_module(self, module: Module) -> object:
        """Prepare a module, and return the handle that `LoadedModule` keeps."""

    @abstractmethod
    def symbol(self, loaded: LoadedModule, name: str) -> tuple[int, int]:
        """Return address and size in bytes of the module-scope variable `name`."""

    @abstractmethod
    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
        """Return how many blocks of this kernel can be resident on one SM."""

    @abstractmethod
    def max_shared_bytes(self, kernel: Kernel) -> int:
        """Return how many bytes of dynamic shared memory a block of this kernel may request."""

    def assembled(self, loaded: LoadedModule) -> bytes | None:
        """Return the assembled code (a cubin) of the module; None if the target runs the PTX itself or does not know the code."""
        return None

    def check_configuration(self, kernel: Kernel, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
        """Raise BadLaunch if the chip cannot launch `kernel` with this grid, block and dynamic shared memory."""
        chip, function = self.chip.launch_limits if self.modelled else self.chip, kernel.function
        check_extents(chip, grid, block)
        check_compiled_block(function, block)
        check_shared_bytes(chip, function, shared_bytes, self.max_shared_bytes(kernel))
        if kernel.cooperative:
            check_residence(self.chip, function, grid, self.resident_blocks(kernel, block[0] * block[1] * block[2], shared_bytes))


class Timer(Loader):
    """Measures how long launches take."""

    @abstractmethod
    def time_launches(self, launches: Sequence[Launch]) -> tuple[LaunchTime, ...]:
        """Run launches one after another, wait for them, and return the time of each. Observers do not see them."""

    def elapsed_ns(self, run: Callable[[], object]) -> float:
        """Return the device time of what `run` launches on the default stream, between two events. Raises BadLaunch if time is modelled."""
        raise BadLaunch(f"{self.name} has no events, because its times are modelled: use ml.time")

    def empty_caches(self) -> None:
        """Empty L2 before the next launch if its time is modelled. The caches of a GPU are unchanged."""
        return


class Launcher(Timer, Streams):
    """Starts launches, on streams."""

    observes = False
    """Whether the target honours `Launch.layers` and observes accesses without probes. Only the emulator does."""

    @abstractmethod
    def launch(self, launch: Launch) -> Observation | None:
        """Start one launch without passing it to observers. If the target observes, wait for the launch and return what it observed."""

    @abstractmethod
    def start(self, launch: Launch) -> None:
        """Start one launch, after passing it to the current observers."""

    def prepared(self, launch: Launch) -> Callable[[], None]:
        """Return a function that starts a launch on the default stream, packed and checked once, with minimal host overhead per start.

        Observers see each of its launches. It keeps the resources of the launch alive.
        """
        return partial(self.start, launch)

    def quick_call(self, call: KernelCall) -> QuickCall | None:
        """Return a faster way to launch a checked configuration, if the target has one.

        It takes the arguments and returns whether it has launched; it does not if an observer or a check needs the launch, or if an
        argument needs the full check.
        """
        return None

    def launch_together(self, launches: Sequence[Launch]) -> Sequence[Observation | None]:
        """Start launches that may wait for each other, on this target and its peers; return the result of `launch` for each."""
        return [launch.kernel.target.launch(launch) for launch in launches]

    def load(self, module: Module) -> LoadedModule:
        """Load the module on this target, ready to launch its kernels. Raises TypeError for what is not a module, and BadLaunch for a
        module with 32-bit addresses, which no GPU since compute capability 9.0 runs."""
        if not isinstance(module, Module):
            raise TypeError(f"load takes a module, as returned by ml.cuda(path) or ml.parse(text); got a {type(module).__name__}")
        if module.address_size != 64:
            size = f"addresses of {plural(module.address_size, 'bit')} (.address_size)"
            raise BadLaunch(f"{module.name} has {size}, which {self.name} does not run: compile it for 64 bits")
        return LoadedModule(self, module, self.load_module(module))


@dataclass(frozen=True)
class Launch:
    """One kernel launch with all its arguments, as data. `kernel[grid, block].bind(...)` builds it, observers rewrite it, a target executes
    it."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    """Dynamic shared memory per block."""
    stream: Stream = DEFAULT_STREAM
    layers: Layers = NO_LAYERS
    cluster: Dim3 | None = None
    """Requested blocks per cluster; None uses the kernel's own (`cluster_of`)."""
    origin: Origin | None = None
    """Step of a plan that it comes from; None outside a plan, or unless it is observed."""
    runs_once: bool = field(default=False, compare=False)
    """Whether it is known to start exactly once. A launch in a graph may start often."""

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps_per_block(self) -> int:
        return -(-self.threads_per_block // LANES)


Observation = LaunchObservation[Launch]
"""Observation of a launch by its target."""


@dataclass(frozen=True)
class LaunchTime:
    """Duration of one launch."""

    elapsed_ns: float
    model: ModelledTime | None = None
    """Limits of a modelled duration; None for a measured one."""


@dataclass(frozen=True, eq=False)
class LoadedModule(Mapping[str, "Kernel"]):
    """A PTX module on a target: a mapping from kernel names to kernels.

    A kernel is found by its mangled name, by its full name in the source, and by its plain name if that is unique.
    """

    target: Launcher = field(repr=False)
    module: Module
    handle: object = field(default=None, repr=False)
    """Data that the target needs to launch from it; opaque to all other code."""
    original: LoadedModule | None = field(default=None, repr=False)
    """The module whose variables its code uses instead of its own, and which it keeps alive."""

    # Identity, not content: two loads of one module are two modules, each with its own variables. Mapping would compare the kernels.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> Kernel:
        return self._kernel(name)

    @once_for_each
    def _kernel(self, name: str) -> Kernel:
        return Kernel(self, find_kernel(self.module, name))

    def __iter__(self) -> Iterator[str]:
        """Yield for each kernel its shortest unique name, as a user types it: `naive`, `red<256>`, or with its parameters."""
        return iter(self._names)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(typed_names(self.module))

    def __len__(self) -> int:
        return len(self.module.kernels)

    def __repr__(self) -> str:
        return f"<LoadedModule: {self.module}; on {self.target.name}>"

    @property
    def inlined(self) -> Module:
        """The module with called functions inlined into its kernels; sites and observations refer to these instructions."""
        return inline_calls(self.module).module


@once_for_each
def module_digest(module: Module) -> str:
    """Return the digest by which plans identify a module: equal for modules that print alike."""
    found = hashlib.sha256(print_module(module).encode())
    for _, code in module.objects:
        found.update(hashlib.sha256(code).digest())
    return found.hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel of a loaded module. `kernel[grid, block](arguments)` launches it; a stream, shared bytes and a cluster may follow.

    kernel = target.load(module)["naive"]               # by its name in the source, or the full name where several share that
    kernel[(32, 32), (32, 32)](out, a, 1024)            # asynchronous; `target.sync()` waits, and so does reading an array
    kernel[64, 256, None, 4096](out, a, n)              # default stream, 4096 bytes of dynamic shared memory
    launch = kernel[64, 256].bind(out, a, n)            # a Launch, as data

    `grid` and `block` are numbers or tuples of up to three. Arguments are arrays of the target (or of CuPy or PyTorch on the same GPU) and
    numbers. Raises BadLaunch for arguments, sizes or streams that do not fit.
    """

    loaded: LoadedModule = field(repr=False)
    function: Function
    nonportable_clusters: bool = False
    """Whether its clusters may have more than the 8 blocks that every GPU with clusters supports."""
    rule: ArgumentRule | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<Kernel: {self.title}; of {self.module.name}, on {self.target.name}>"

    @property
    def target(self) -> Launcher:
        """Target that it is loaded on."""
        return self.loaded.target

    @property
    def module(self) -> Module:
        """Module that it belongs to."""
        return self.loaded.module

    @property
    def name(self) -> str:
        """Name in PTX, which is the mangled one of a C++ kernel."""
        return self.function.name

    @property
    def inlined(self) -> Function:
        """The kernel with all functions that it calls inlined."""
        return self.loaded.inlined.kernels[self.name]

    @property
    def title(self) -> str:
        """Name in C++ with its parameters, `naive(float*, float const*, int)`; the name in PTX if it is not mangled."""
        return self.function.title

    @property
    def ref(self) -> KernelRef:
        """Identity of the kernel in plans: the digest of its module and its name, without a target."""
        return KernelRef(module_digest(self.module), self.name, kernel_label(self.title))

    def argument_use(self, is_array: Sequence[bool]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the positions of the arguments through which the kernel may read arrays, and of those through which it may write to them.

        Derived conservatively from its PTX: in doubt an argument is included. `is_array` has an entry per argument; None if their number is
        wrong.
        """
        params, convention = self.function.params, self.function.convention
        pointers = pointer_parameters(params, convention, is_array)
        if pointers is None:
            return None
        scratch = [sum(form.width() for form in convention.arguments)] if convention is not None and convention.scratch_bytes else []
        use = parameter_use(self.module, self.name, [one for one in pointers if one is not None], scratch)
        reads, writes = (tuple(number for number, one in enumerate(pointers) if one in through) for through in (use.reads, use.writes))
        return reads, writes

    @property
    def cooperative(self) -> bool:
        """Whether the kernel synchronises its whole grid (`this_grid().sync()`), so that all its blocks must be resident at once."""
        return self._cooperative

    @cached_property
    def _cooperative(self) -> bool:
        return is_cooperative(self.module, self.function)

    def allow_nonportable_clusters(self) -> Kernel:
        """Return the kernel with clusters of up to 16 blocks allowed, which not every GPU with clusters supports."""
        return replace(self, nonportable_clusters=True)

    def __call__(self, *args: object) -> NoReturn:
        """Raise BadLaunch, because grid and block are missing: write `kernel[grid, block](...)`."""
        name, convention = plain_name(self.title), self.function.convention
        if convention is not None and convention.block:
            raise BadLaunch(f"{name} needs a grid: write {name}[grid,](arguments)")
        raise BadLaunch(f"{name} needs a grid and a block: write {name}[grid, block](arguments)")

    bind = __call__

    def __getitem__(self, configuration: object) -> KernelCall:
        """Return a call: `kernel[grid, block]`, `kernel[grid, block, stream]`, `kernel[grid, block, stream, shared_bytes]`, or with a
        `cluster` after them: the blocks that are co-scheduled and can access each other's shared memory, an int or a tuple that divides the
        grid. A kernel that declares its cluster (`__cluster_dims__`) needs none.

        A kernel that was compiled for one block (a Triton kernel) also takes `kernel[grid,]`. Note the comma: to Python `kernel[(4, 8)]`
        is `kernel[4, 8]`, a grid of 4 and a block of 8. None means the default.
        """
        if type(configuration) is tuple and is_cacheable(configuration):
            call = self._calls.get(configuration)
            if call is None:
                if len(self._calls) >= _MOST_CALLS:
                    self._calls.clear()
                call = self._calls[configuration] = self._configured(configuration)
            return call
        return self._configured(configuration)

    @cached_property
    def _calls(self) -> dict[tuple[object, ...], KernelCall]:
        return {}

    def _configured(self, configuration: object) -> KernelCall:
        convention = self.function.convention or Convention(())
        given = configuration if isinstance(configuration, tuple) else (configuration,)
        if not (1 if convention.block else 2) <= len(given) <= 5:
            raise BadLaunch(f"write {plain_name(self.title)}[grid, block], or [grid, block, stream, shared_bytes, cluster]")
        whole: tuple[object, ...] = (*given, None, None, None, None)
        grid, block, stream, shared_bytes, cluster = whole[:5]
        shared_bytes = convention.shared_bytes if shared_bytes is None else shared_bytes
        if not isinstance(shared_bytes, int) or shared_bytes < 0:
            raise BadLaunch(f"the dynamic shared memory of {self.title} must be a number of bytes, got {shared_bytes!r}")
        if shared_bytes < convention.shared_bytes:
            raise BadLaunch(f"{self.title} needs {plural(convention.shared_bytes, 'byte')} of dynamic shared memory, got {shared_bytes:,}")
        threads = convention.block if block is None and convention.block else dim3("block", block)
        if convention.block and threads != convention.block:
            raise BadLaunch(self._wrong_block(threads, convention.block, given))
        shape = None if cluster is None else dim3("cluster", cluster)
        return KernelCall(self, dim3("grid", grid), threads, self.target.stream_of(stream), shared_bytes, shape)

    def _wrong_block(self, block: Dim3, compiled: Dim3, given: Sequence[object]) -> str:
        """Return the message that a kernel was compiled for another block, with the notation for a grid alone."""
        name, sizes = plain_name(self.title), ["x".join(map(str, extents)) for extents in (compiled, block)]
        meant = ""
        if len(given) <= 3 and all(isinstance(one, int) for one in given):
            meant = f", or {name}[({', '.join(map(str, given))}),] for a grid of {'x'.join(map(str, given))}"
        return f"{self.title} was compiled for blocks of {sizes[0]} threads, got {sizes[1]}; write the grid alone, {name}[grid,]{meant}"


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A kernel with its launch configuration. Calling it launches, asynchronously; `bind` only builds the launch."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    stream: Stream
    shared_bytes: int
    cluster: Dim3 | None = None

    _found: dict[str, Any] = field(default_factory=dict, repr=False)
    """Cache of what is determined once per configuration: that it is `checked`, and the `quick` way to launch."""

    def bind(self, *args: object) -> Launch:
        """Return the launch with these arguments as data, checked against the kernel's parameters and the chip's limits. Nothing runs."""
        kernel = self.kernel
        if "checked" not in self._found:
            kernel.target.check_configuration(kernel, self.grid, self.block, self.shared_bytes)
            check_cluster(kernel.target.chip, kernel, self.grid, self.cluster)
            self._found["checked"] = True
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        arguments = pack(kernel.title, kernel.function.params, args, kernel.target, kernel.function.convention, blocks, kernel.rule)
        return Launch(kernel, self.grid, self.block, arguments, self.shared_bytes, self.stream, cluster=self.cluster)

    def __call__(self, *args: object) -> None:
        """Launch. Returns at once; `target.sync()` waits."""
        quick = self._found.get("quick")
        if quick is not None and quick(args):
            return
        self.kernel.target.start(self.bind(*args))
        if quick is None and "quick" not in self._found:
            self._found["quick"] = None if self.kernel.rule else self.kernel.target.quick_call(self)
