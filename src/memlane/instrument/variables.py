"""Declare the module variables by which instrumented kernels find the memory they write to, and the parameter that describes their
launches.

Variables rather than parameters, so that any launcher can run an instrumented kernel with the arguments of the original. While the variable
is null, which is its initial value, the kernel records nothing and computes the same results. Values that differ from launch to launch, in
graphs and on many streams, have to be a parameter: it exists only on request (`TraceOptions.tagged`).
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
"""Variable with the address of the trace buffer and its sizes: `memlane.instrument.buffer.ENTRY_DTYPE`."""

WINDOW = "memlane_window"
"""Variable with the windows that select the traced warps; in constant memory, so that the other warps read no global memory."""

COUNTERS = "memlane_counts"
"""Variable with the address of the counters."""


LAUNCH = "memlane_launch"
"""Last parameter of a kernel whose launches are numbered: `memlane.instrument.buffer.LAUNCH_DTYPE`."""
_LAUNCH = Variable("param", "b32", LAUNCH, (LAUNCH_DTYPE.itemsize // 4,), align=4)
_PARAMETER_BYTES = {False: 4352, True: 32764}
"""Maximum bytes of kernel parameters: before PTX 8.1 (False), and since then on sm_70 or later (True)."""


def with_launch(module: Module, kernel: Function) -> Function:
    """Return a kernel with an additional last parameter that describes the launch. Raises MemlaneError if it does not fit."""
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
    """Raise MemlaneError for a module that cannot be instrumented."""
    for name in (POINTER, WINDOW, COUNTERS):
        if name in module.variables:
            raise MemlaneError(f"{module.name} is already instrumented (it declares {name}); instrument the original module")
    if module.address_size != 64:
        raise MemlaneError(
            f"{module.name} has addresses of {plural(module.address_size, 'bit')}; only .address_size 64 can be instrumented"
        )


def pointer(name: str) -> Variable:
    """Return the declaration of a pointer variable."""
    return Variable("global", "u64", name, align=8, linkage=("visible",))


def entry_variable(space: str) -> Variable:
    """Return the declaration of `POINTER` in a state space, within one sector."""
    return Variable(space, "b32", POINTER, (8,), align=SECTOR_BYTES, linkage=("visible",))


def entry_space(module: Module, needed: int) -> str:
    """Return the state space of `POINTER`: constant memory, so that a warp starts without a load that misses the caches; global memory only
    if the module's constants leave no room for it and `needed` more bytes."""
    return "const" if constant_bytes(module) + needed + 2 * SECTOR_BYTES <= CONSTANT_BYTES else "global"


def constant_bytes(module: Module) -> int:
    """Return the bytes of the module's variables in constant memory."""
    return sum(one.nbytes for one in module.variables.values() if one.space == "const")


def with_kernels(module: Module, kernels: Mapping[str, Function], variables: Sequence[Variable], version: tuple[int, int]) -> Module:
    """Return the module with kernels replaced, variables declared before them, and at least the PTX `version`."""
    return replace(with_items(module, kernels, variables), version=max(module.version, version))
