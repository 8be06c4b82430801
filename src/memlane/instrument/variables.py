"""The module variables through which instrumented kernels find the memory they write to, and the parameter that describes their launches.

Variables and not parameters: any launcher can run an instrumented kernel, with the arguments of the original. Where the variable is
null, as it is unless somebody sets it, the kernel records nothing and computes what it always did. What differs from launch to launch,
in graphs and on many streams, can only be a parameter: it is there where it is asked for (`TraceOptions.tagged`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memlane.chip import CONSTANT_BYTES, SECTOR_BYTES
from memlane.errors import MemlaneError
from memlane.instrument.buffer import LAUNCH_DTYPE
from memlane.number_format import plural
from memlane.ptx import Function, Module, Variable
from memlane.ptx.edit import with_items

POINTER = "memlane_trace"
"""Holds the address of the trace buffer and its extents: `memlane.instrument.buffer.ENTRY_DTYPE`."""

WINDOW = "memlane_window"
"""Holds what decides which warps are traced; in constant memory, so that the other warps read no global memory for it."""

COUNTERS = "memlane_counts"
"""Holds the address of the counters."""


LAUNCH = "memlane_launch"
"""The last parameter of a kernel whose launches are numbered: `memlane.instrument.buffer.LAUNCH_DTYPE`."""
_LAUNCH = Variable("param", "b32", LAUNCH, (LAUNCH_DTYPE.itemsize // 4,), align=4)
_PARAMETER_BYTES = {False: 4352, True: 32764}
"""What the parameters of a kernel may take, and what they may since PTX 8.1 on sm_70."""


def with_launch(module: Module, kernel: Function) -> Function:
    """Return a kernel with one more parameter, which describes the launch. MemlaneError where there is no room for it."""
    taken = 0
    for one in kernel.params:
        taken = -(-taken // one.alignment) * one.alignment + one.nbytes
    most = _PARAMETER_BYTES[module.version >= (8, 1)]
    if -(-taken // _LAUNCH.alignment) * _LAUNCH.alignment + _LAUNCH.nbytes > most:
        raise MemlaneError(
            f"{kernel.title} has {plural(taken, 'byte')} of parameters, and tracing needs {_LAUNCH.nbytes} more, which exceeds the "
            f"{most:,} that a kernel may have: pass less by value"
        )
    return replace(kernel, params=(*kernel.params, _LAUNCH))


def check_instrumentable(module: Module) -> None:
    """MemlaneError for a module that cannot be instrumented."""
    for name in (POINTER, WINDOW, COUNTERS):
        if name in module.variables:
            raise MemlaneError(f"{module.name} is already instrumented (it declares {name}); instrument the original module")
    if module.address_size != 64:
        raise MemlaneError(
            f"{module.name} has addresses of {plural(module.address_size, 'bit')}; only .address_size 64 can be instrumented"
        )


def pointer(name: str) -> Variable:
    """The declaration of such a variable."""
    return Variable("global", "u64", name, align=8, linkage=("visible",))


def entry_variable(space: str) -> Variable:
    """The declaration of `POINTER`, in one sector of that space."""
    return Variable(space, "b32", POINTER, (8,), align=SECTOR_BYTES, linkage=("visible",))


def entry_space(module: Module, needed: int) -> str:
    """Where `POINTER` is declared: in constant memory, so that a warp begins without a load that misses the caches;
    in global memory only if the module's constants leave no room for it and `needed` bytes more."""
    return "const" if constants_of(module) + needed + 2 * SECTOR_BYTES <= CONSTANT_BYTES else "global"


def constants_of(module: Module) -> int:
    """Bytes of the module's variables in constant memory."""
    return sum(one.nbytes for one in module.variables.values() if one.space == "const")


def assembled(module: Module, kernels: Mapping[str, Function], variables: Sequence[Variable], version: tuple[int, int]) -> Module:
    """The module with kernels replaced, variables declared in front of what stands first, and at least the PTX `version`."""
    return replace(with_items(module, kernels, variables), version=max(module.version, version))
