"""Kernels that can be called: `module["naive"][grid, block](out, in, n)`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from memlane.errors import BadLaunch
from memlane.launch.arguments import pack, pointer_parameters
from memlane.launch.cluster import check_cluster
from memlane.launch.launch import Dim3, Launch, Stream
from memlane.launch.observe import observed
from memlane.plan import KernelRef
from memlane.ptx import Convention, Function, Module, inline_calls, is_cooperative, parameter_use, print_module
from memlane.titles import kernel_label, plain_name

if TYPE_CHECKING:
    from memlane.launch.target import Target


_T = TypeVar("_T")
_SUFFIX = re.compile(r"(?<![\w.])(\d+)[uUlL]+")
"""A whole number with the letters of its type."""


@dataclass(frozen=True, eq=False)
class LoadedModule(Mapping[str, "Kernel"]):
    """A PTX module on a target: a mapping from kernel names to kernels.

    A kernel answers to its mangled name, to its full name as the programmer wrote it, and to its plain name where only one kernel has it.
    """

    target: Target = field(repr=False)
    module: Module
    handle: object = field(default=None, repr=False)
    """What the target needs to launch from it; nobody else looks inside."""
    attached: dict[object, Any] = field(default_factory=dict, repr=False)
    """What others keep with it, for as long as it lives, under keys of their own; see `once`."""

    # Identity, not content: two loads of one module are two modules, each with its own variables. Mapping would compare the kernels.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> Kernel:
        return Kernel(self, find_kernel(self.module, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.module.kernels)

    def __len__(self) -> int:
        return len(self.module.kernels)

    def __repr__(self) -> str:
        return f"<LoadedModule: {self.module}; on {self.target.name}>"

    @property
    def inlined(self) -> Module:
        """The module with the functions in its kernels that these call. By the instructions of these kernels sites and observations go."""
        return self.once("inlined", lambda: inline_calls(self.module).module)

    def once(self, key: object, make: Callable[[], _T]) -> _T:
        """What `make` gives, made when it is first asked for under that key, and kept for as long as the module lives."""
        if key not in self.attached:
            self.attached[key] = make()
        kept: _T = self.attached[key]
        return kept


def module_digest(module: Module) -> str:
    """Return the digest by which plans name a module: equal for modules that print alike."""
    return hashlib.sha256(print_module(module).encode()).hexdigest()[:32]


def find_kernel(module: Module, name: str) -> Function:
    """The kernel that answers to `name`, however it is spaced; BadLaunch with the names that exist otherwise."""
    kernels = module.kernels
    if name in kernels:
        return kernels[name]
    asked = _compact(name)
    for alias, real in module.aliases.items():
        if _compact(alias) == asked and real in kernels:
            return kernels[real]
    titles = [kernel for kernel in kernels.values() if _compact(kernel.title) == asked]
    matches = titles or [kernel for kernel in kernels.values() if asked in map(_compact, _short_names(kernel.title))]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(kernel.title for kernel in (matches or kernels.values()))
    if matches:
        raise BadLaunch(f"several kernels of {module.name} answer to {name!r}: {listed}; use the full name")
    raise BadLaunch(f"no kernel {name!r} in {module.name}; it has: {listed or 'none'}")


def _short_names(title: str) -> tuple[str, ...]:
    """`void ns::red<256>(int*)` -> `red`, `ns::red<256>`, `red<256>`."""
    named = kernel_label(title)
    head, bracket, rest = named.partition("<")
    return plain_name(title), named, head.rsplit("::", 1)[-1] + bracket + rest


def _compact(name: str) -> str:
    """What the spellings of one name have in common: people space it as they like, and may write `8u` where ours has 8."""
    return _SUFFIX.sub(r"\1", "".join(name.split()))


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel of a loaded module. `kernel[grid, block]`, with `stream`, `shared_bytes` and `cluster` behind them, makes it callable.

    kernel = target.load(module)["naive"]               # by its name in the source, or the full name where several share that
    kernel[(32, 32), (32, 32)](out, a, 1024)            # asynchronous; `target.sync()` waits, and so does reading an array
    kernel[64, 256, None, 4096](out, a, n)              # default stream, 4096 bytes of dynamic shared memory
    launch = kernel[64, 256].bind(out, a, n)            # a Launch, as data

    `grid` and `block` are numbers or tuples of up to three. Arguments are arrays of the target (or of CuPy or PyTorch on the same GPU) and
    numbers. BadLaunch for arguments, sizes or streams that do not fit.
    """

    loaded: LoadedModule = field(repr=False)
    function: Function
    nonportable_clusters: bool = False
    """Whether its clusters may have more than the 8 blocks that every GPU with clusters takes."""

    def __repr__(self) -> str:
        return f"<Kernel: {self.title}; of {self.module.name}, on {self.target.name}>"

    @property
    def target(self) -> Target:
        return self.loaded.target

    @property
    def module(self) -> Module:
        return self.loaded.module

    @property
    def name(self) -> str:
        """The name in PTX."""
        return self.function.name

    @property
    def inlined(self) -> Function:
        """The kernel with the functions in it that it calls."""
        return self.loaded.inlined.kernels[self.name]

    @property
    def title(self) -> str:
        """The name to show."""
        return self.function.title

    @property
    def ref(self) -> KernelRef:
        """The kernel as a plan names it: without a target, by what its module says."""
        return KernelRef(self.loaded.once("digest", lambda: module_digest(self.module)), self.name, kernel_label(self.title))

    def argument_use(self, is_array: Sequence[bool]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the positions of the arguments through which the kernel may read arrays, and of those through which it may write to them.

        That is what its PTX shows; in doubt more than there are. `is_array` has an entry for each argument. None if the kernel does not
        take so many.
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
        """Whether it synchronises its whole grid (`this_grid().sync()`): then all blocks of a launch must be on the chip at once."""
        return self.loaded.once(("cooperative", self.name), lambda: is_cooperative(self.module, self.function))

    def allow_nonportable_clusters(self) -> Kernel:
        """The same kernel, whose clusters may have up to 16 blocks: more than some GPUs that have clusters take."""
        return replace(self, nonportable_clusters=True)

    def __call__(self, *args: object) -> NoReturn:
        """BadLaunch: a kernel has no grid and block of its own."""
        name = plain_name(self.title)
        raise BadLaunch(f"{name} has no grid and block yet: write {name}[grid, block], and its arguments behind that")

    bind = __call__

    def __getitem__(self, configuration: object) -> KernelCall:
        """`kernel[grid, block]`, `kernel[grid, block, stream]`, `kernel[grid, block, stream, shared_bytes]`, or with a `cluster` behind
        them: the blocks that are on the chip together and reach each other's shared memory, an int or a tuple like the grid, which is a
        multiple of it. A kernel that names its cluster itself (`__cluster_dims__`) needs none.

        A kernel that was compiled for one block (a Triton kernel) also takes `kernel[grid,]`. Note the comma: to Python `kernel[(4, 8)]`
        is `kernel[4, 8]`, a grid of 4 and a block of 8. None stands for whatever is not named.
        """
        convention = self.function.convention or Convention(())
        given = configuration if isinstance(configuration, tuple) else (configuration,)
        if not (1 if convention.block else 2) <= len(given) <= 5:
            raise BadLaunch(f"write {plain_name(self.title)}[grid, block], or [grid, block, stream, shared_bytes, cluster]")
        whole: tuple[object, ...] = (*given, None, None, None, None)
        grid, block, stream, shared_bytes, cluster = whole[:5]
        if stream is not None and not isinstance(stream, Stream):
            raise BadLaunch(f"the stream of {self.title} must come from target.stream(), got a {type(stream).__name__}")
        shared_bytes = convention.shared_bytes if shared_bytes is None else shared_bytes
        if not isinstance(shared_bytes, int) or shared_bytes < 0:
            raise BadLaunch(f"the dynamic shared memory of {self.title} must be a number of bytes, got {shared_bytes!r}")
        if shared_bytes < convention.shared_bytes:
            raise BadLaunch(f"{self.title} needs {convention.shared_bytes} bytes of dynamic shared memory, got {shared_bytes}")
        threads = convention.block if block is None and convention.block else dim3("block", block)
        shape = None if cluster is None else dim3("cluster", cluster)
        return KernelCall(self, dim3("grid", grid), threads, stream or self.target.default_stream, shared_bytes, shape)


def dim3(label: str, extent: object) -> Dim3:
    """Three positive extents from an int or a tuple of one to three ints."""
    values = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(values) <= 3 or not all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
        raise BadLaunch(f"the {label} must be an int or a tuple of up to 3 ints, got {extent!r}")
    if min(values) < 1:
        raise BadLaunch(f"the {label} must be positive in each dimension, got {extent!r}")
    x, y, z = (*values, 1, 1)[:3]
    return (int(x), int(y), int(z))


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A kernel with its launch configuration. Calling it launches, asynchronously; `bind` only builds the launch."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    stream: Stream
    shared_bytes: int
    cluster: Dim3 | None = None

    def bind(self, *args: object) -> Launch:
        """The launch with these arguments, checked against the kernel's parameters and the limits of the chip; nothing runs."""
        kernel = self.kernel
        kernel.target.check_configuration(kernel, self.grid, self.block, self.shared_bytes)
        check_cluster(kernel.target.chip, kernel, self.grid, self.cluster)
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        arguments = pack(kernel.title, kernel.function.params, args, kernel.target, kernel.function.convention, blocks)
        return Launch(kernel, self.grid, self.block, arguments, self.shared_bytes, self.stream, cluster=self.cluster)

    def __call__(self, *args: object) -> None:
        """Launch. Returns at once; `target.sync()` waits."""
        self.kernel.target.launch(observed(self.bind(*args)))
