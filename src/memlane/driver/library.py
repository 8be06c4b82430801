"""Load assembled modules into the driver, with their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver
from cuda.core import Kernel, ObjectCode

from memlane.compile import architecture, assemble
from memlane.driver.calls import checked
from memlane.ptx import Module

_DEFAULT_SHARED_BYTES = 48 * 1024
"""Bytes of static and dynamic shared memory that every kernel may use; more must be enabled per kernel."""


class DeviceKernel:
    """One kernel of a library, ready to launch in the context that was current when it was created."""

    def __init__(self, kernel: Kernel, shared_limit: int) -> None:
        """Query the kernel's attributes. `shared_limit`: maximum shared memory of a block on this device, in bytes."""
        self.kernel = kernel
        self.function: Any = checked(driver.cuKernelGetFunction(kernel.handle))
        self.static_shared_bytes = int(kernel.attributes.shared_size_bytes)
        self.max_threads_per_block = int(kernel.attributes.max_threads_per_block)
        self.registers = int(kernel.attributes.num_regs)
        self.max_dynamic_bytes = max(0, shared_limit - self.static_shared_bytes)
        self._allowed = max(0, _DEFAULT_SHARED_BYTES - self.static_shared_bytes)

    def allow(self, shared_bytes: int) -> None:
        """Enable launches with this much dynamic shared memory."""
        if shared_bytes > self._allowed:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(driver.cuFuncSetAttribute(self.function, attribute, self.max_dynamic_bytes))
            self._allowed = self.max_dynamic_bytes

    def resident_blocks(self, threads_per_block: int, shared_bytes: int) -> int:
        """Return the number of blocks of this kernel that fit on one multiprocessor."""
        self.allow(shared_bytes)
        return int(self.kernel.occupancy.max_active_blocks_per_multiprocessor(threads_per_block, shared_bytes))


@dataclass(frozen=True, eq=False)
class Library:
    """A module in the driver: the value of `LoadedModule.handle` on a GPU."""

    code: ObjectCode
    cubin: bytes
    kernels: Mapping[str, DeviceKernel]
    """Kernels by their PTX names."""

    def symbol(self, name: str) -> tuple[int, int]:
        """Return address and size in bytes of a module-scope variable."""
        address, size = checked(driver.cuLibraryGetGlobal(self.code.handle, name.encode()))
        return int(address), int(size)


def load_library(module: Module, compute_capability: tuple[int, int], shared_limit: int, fmad: bool) -> Library:
    """Assemble a module for a device and load the machine code into the driver.

    The driver never sees PTX: it would reject code of newer compilers, and assemble with its own options. With `fmad` False no
    multiplication is fused with an addition.
    """
    cubin = assemble(module, arch=architecture(module, compute_capability), fmad=fmad)
    code = ObjectCode.from_cubin(cubin.data, name=module.name)
    return Library(code, cubin.data, {name: DeviceKernel(code.get_kernel(name), shared_limit) for name in module.kernels})
