"""Translate the CUDA driver's errors into memlane's.

A kernel's error appears at an arbitrary later call, and the driver does not say which kernel failed. So the target remembers the launches
since the last successful wait, and the message names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memlane.errors import BadAccess, BadLaunch, DeviceError, KernelTrap, LaunchError, MemlaneError

_FAULTS: dict[str, tuple[type[LaunchError], str]] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": (BadAccess, "a thread read or wrote an address outside every allocation"),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (BadAccess, "a thread used an address that is not a multiple of the size of its access"),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": (BadAccess, "an access to one memory space was given an address in another"),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": (BadAccess, "a thread overflowed or corrupted its stack"),
    "CUDA_ERROR_INVALID_PC": (LaunchError, "a thread jumped to an address without code"),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (
        KernelTrap,
        "a thread stopped itself, executed an instruction that this GPU lacks, or copied a tensor box (cp.async.bulk.tensor) from an "
        "invalid start",
    ),
    "CUDA_ERROR_LAUNCH_FAILED": (KernelTrap, "a thread executed `trap`, or reached outside the shared memory of its block"),
    "CUDA_ERROR_ASSERT": (KernelTrap, "an assertion in the kernel failed"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (LaunchError, "the kernel ran longer than this system allows"),
}
"""Errors of a running kernel. All of them end the CUDA context of the process."""

_REFUSALS: dict[str, tuple[type[MemlaneError], str]] = {
    "CUDA_ERROR_OUT_OF_MEMORY": (DeviceError, "not enough free device memory"),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (BadLaunch, "a block needs more registers or shared memory than a multiprocessor has"),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": (
        BadLaunch,
        "it synchronises its whole grid, and not all blocks fit on the GPU at once (probes need registers too): launch fewer blocks",
    ),
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": (BadLaunch, "no group of neighbouring multiprocessors has space for a cluster: make it smaller"),
    "CUDA_ERROR_NOT_FOUND": (DeviceError, "the assembled code does not contain it, because the assembler removes what no kernel uses"),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": (DeviceError, "the assembled code is for another GPU"),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (DeviceError, "the driver is older than the code; update the driver"),
}


def error_name(text: str) -> str | None:
    """Return the driver's error name at the start of a text, such as `CUDA_ERROR_INVALID_VALUE`; None if there is none."""
    match = re.match(r"CUDA_ERROR_\w+", text)
    return match.group() if match else None


def error_for(target: str, name: str, doing: str, running: Sequence[str] = (), detail: str = "") -> MemlaneError:
    """Return the error to raise when the driver returned `name` for `doing`, while the kernels in `running` may still have been running.

    `detail` is the driver's own explanation, used if memlane has none.
    """
    if name in _FAULTS:
        kind, meaning = _FAULTS[name]
        kernels = f"kernel {running[0]}" if len(running) == 1 else f"one of the kernels {', '.join(running)}" if running else "a kernel"
        return kind(
            f"{kernels} failed on {target}: {meaning} ({name}); run it on ml.target('emulator') to see where, "
            "and start a new process to use this GPU again"
        )
    if name in _REFUSALS:
        refusal, meaning = _REFUSALS[name]
        return refusal(f"{target} refused {doing}: {meaning} ({name})")
    return DeviceError(f"{target} refused {doing}: {detail if detail.startswith(name) else name}")
