"""Check the limits that a chip and a kernel set for a launch: grid, blocks, shared memory, and clusters of blocks."""

from __future__ import annotations

from typing import Protocol

from memlane.chip import Chip
from memlane.errors import BadLaunch
from memlane.launch.configuration import Dim3
from memlane.number_format import plural
from memlane.ptx import Function

FIRST_WITH_CLUSTERS = (9, 0)
"""First compute capability with clusters."""
PORTABLE_BLOCKS, MOST_BLOCKS = 8, 16
"""Maximum blocks per cluster: on every GPU with clusters, and on compute capability 9.0 if a kernel allows it (CUDA C++ Programming Guide,
thread block clusters)."""


def check_extents(chip: Chip, grid: Dim3, block: Dim3) -> None:
    """Raise BadLaunch if the grid or the block exceeds a limit of the chip."""
    for axis, extent, limit in zip("xyz", block, chip.max_block_dim, strict=True):
        if extent > limit:
            raise BadLaunch(f"block.{axis} is {extent}; {chip.name} allows at most {limit}")
    for axis, extent, limit in zip("xyz", grid, chip.max_grid_dim, strict=True):
        if extent > limit:
            raise BadLaunch(f"grid.{axis} is {extent}; {chip.name} allows at most {limit}")
    threads = block[0] * block[1] * block[2]
    if threads > chip.max_threads_per_block:
        raise BadLaunch(f"a block of {_by(block)} has {plural(threads, 'thread')}; {chip.name} allows at most {chip.max_threads_per_block}")


def check_compiled_block(function: Function, block: Dim3) -> None:
    """Raise BadLaunch if the kernel was compiled for another block shape, or for fewer threads."""
    required, most = function.extents(".reqntid"), function.extents(".maxntid")
    if required and block != required:
        raise BadLaunch(f"{function.title} was compiled for blocks of {_by(required)} threads, got {_by(block)}")
    if most and block[0] * block[1] * block[2] > most[0] * most[1] * most[2]:
        threads = most[0] * most[1] * most[2]
        raise BadLaunch(f"{function.title} was compiled for blocks of at most {plural(threads, 'thread')}, got {_by(block)}")


def check_shared_bytes(chip: Chip, function: Function, shared_bytes: int, room: int) -> None:
    """Raise BadLaunch if a block requests more dynamic shared memory than the `room` that the kernel leaves."""
    if shared_bytes > room:
        raise BadLaunch(
            f"{function.title} requests {plural(shared_bytes, 'byte')} of dynamic shared memory; {chip.name} has {room:,} "
            "left besides the kernel's static shared memory"
        )


def check_residence(chip: Chip, function: Function, grid: Dim3, per_sm: int) -> None:
    """Raise BadLaunch if the blocks of a cooperative grid do not all fit on the chip at once, `per_sm` on each multiprocessor."""
    blocks, most = grid[0] * grid[1] * grid[2], per_sm * chip.sm_count
    if blocks > most:
        raise BadLaunch(
            f"{function.title} synchronises its whole grid, so all {plural(blocks, 'block')} must be on the chip at once; {chip.name} "
            f"holds {most} of them ({per_sm} on each of {plural(chip.sm_count, 'multiprocessor')}): launch fewer, and let each thread do "
            "more"
        )


class HasFunction(Protocol):
    """Kernel with its function in PTX."""

    @property
    def function(self) -> Function: ...
    @property
    def title(self) -> str: ...
    @property
    def nonportable_clusters(self) -> bool: ...


def cluster_of(kernel: HasFunction, asked: Dim3 | None) -> Dim3 | None:
    """Return the blocks per cluster, by the launch or by the kernel (`.reqnctapercluster`, in CUDA C++ `__cluster_dims__`); None for a
    launch without clusters."""
    return asked or kernel.function.extents(".reqnctapercluster")


def check_cluster(chip: Chip, kernel: HasFunction, grid: Dim3, asked: Dim3 | None) -> None:
    """Raise BadLaunch if `kernel` cannot be launched in clusters of `asked` blocks, or of those that it was compiled for."""
    required, shape = kernel.function.extents(".reqnctapercluster"), cluster_of(kernel, asked)
    if ".blocksareclusters" in kernel.function.attributes:
        raise BadLaunch(
            f"{kernel.title} counts its grid in clusters (.blocksareclusters), which memlane does not support: compile it with "
            "__cluster_dims__ and give the grid in blocks"
        )
    if asked and required and asked != required:
        raise BadLaunch(
            f"{kernel.title} was compiled for clusters of {_by(required)} blocks, got {_by(asked)}: leave the cluster out of "
            "the launch, or compile the kernel without __cluster_dims__"
        )
    if shape is None:
        if ".explicitcluster" in kernel.function.attributes:
            raise BadLaunch(f"{kernel.title} must be launched in clusters (.explicitcluster): {_how(kernel)}")
        return
    _check_shape(chip, kernel, grid, shape)


def _check_shape(chip: Chip, kernel: HasFunction, grid: Dim3, shape: Dim3) -> None:
    """Raise BadLaunch if the cluster exceeds a limit of the chip or the kernel, or does not divide the grid."""
    blocks, most = shape[0] * shape[1] * shape[2], kernel.function.extents(".maxclusterrank")
    if most and blocks > most[0]:
        raise BadLaunch(
            f"{kernel.title} was compiled for clusters of at most {plural(most[0], 'block')} (.maxclusterrank), got {_by(shape)}: launch "
            "smaller ones"
        )
    if blocks > 1 and chip.compute_capability < FIRST_WITH_CLUSTERS:
        major, minor = chip.compute_capability
        raise BadLaunch(
            f"{kernel.title} needs clusters of {_by(shape)} blocks, but {chip.name} has compute capability {major}.{minor}, and "
            "clusters need 9.0: launch it on a Hopper GPU or on ml.target('emulator:h200')"
        )
    if blocks > MOST_BLOCKS:
        raise BadLaunch(
            f"a cluster of {_by(shape)} has {plural(blocks, 'block')}; no GPU takes more than {MOST_BLOCKS}: launch smaller clusters"
        )
    if blocks > PORTABLE_BLOCKS and not kernel.nonportable_clusters:
        raise BadLaunch(
            f"a cluster of {_by(shape)} has {plural(blocks, 'block')}, but only some GPUs support more than {PORTABLE_BLOCKS}: allow "
            "it with kernel.allow_nonportable_clusters()[...], or launch smaller clusters"
        )
    for axis, extent, size in zip("xyz", grid, shape, strict=True):
        if extent % size:
            raise BadLaunch(
                f"grid.{axis} of {kernel.title} is {extent}, which is not a multiple of the {plural(size, 'block')} of its clusters "
                f"({_by(shape)}): launch {plural(extent + -extent % size, 'block')} in {axis}, and let those beyond the data do nothing"
            )


def _how(kernel: HasFunction) -> str:
    return "write kernel[grid, block, stream, shared_bytes, cluster], as in kernel[8, 128, None, 0, 2]"


def _by(shape: Dim3) -> str:
    return "x".join(map(str, shape))
