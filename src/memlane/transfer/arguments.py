"""Check the arguments of `upload`, `download`, `lay_out` and `gather` before anything is allocated."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from memlane.errors import LayoutError
from memlane.launch import DeviceArray, Target
from memlane.layout import Selection
from memlane.targets import target as named_target


def given_target(value: object) -> Target:
    """Return the target given by name or as an object. Raises LayoutError for anything else."""
    if isinstance(value, str):
        return named_target(value)
    if isinstance(value, Target):
        return value
    raise LayoutError(f"the target must be an object that ml.target() returns, or its name, not {_named(value)}")


def given_device_array(value: object, what: str) -> DeviceArray:
    """Return an array on a target. Raises LayoutError for anything else."""
    if isinstance(value, DeviceArray):
        return value
    raise LayoutError(f"{what} must be an array on a target, as returned by ml.upload, target.array or target.adopt, not {_named(value)}")


def given_out(value: object, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Return the NumPy array that a download fills. Raises LayoutError for a wrong shape or type, or a read-only array."""
    if not isinstance(value, np.ndarray):
        raise LayoutError(f"the array to fill must be a NumPy array, not {_named(value)}: create it with np.empty({shape}, '{dtype}')")
    if value.shape != shape or value.dtype.newbyteorder("=") != dtype.newbyteorder("="):
        raise LayoutError(
            f"the array to fill has shape {value.shape} of {value.dtype}; the download has shape {shape} of {dtype}: create it "
            f"with np.empty({shape}, '{dtype}'), or leave out `out`"
        )
    if not value.flags.writeable:
        raise LayoutError("the array to fill is read-only: pass a writable one, or leave out `out`")
    return value


def check_effort(chunks: object, threads: object) -> None:
    """Raise LayoutError for an invalid number of chunks or threads."""
    if chunks != "auto" and not _is_count(chunks):
        raise LayoutError(f"chunks must be a number of at least 1, or 'auto', not {chunks!r}")
    if threads is not None and not _is_count(threads):
        raise LayoutError(f"the host copies with at least one thread, not {threads!r}: give a number, or leave it out")


def check_consumer(layout: object, then: object, reads: object, *, keep: bool) -> None:
    """Raise LayoutError for a consumer that is not callable, and for options that `keep=False` excludes."""
    if then is not None and not callable(then):
        raise LayoutError(
            f"then= is a function of a chunk that returns kernel[grid, block] and the kernel's arguments, not {_named(then)}: write "
            "then=lambda chunk: (kernel[grid, block], chunk.data, ...)"
        )
    if reads not in ("chunk", "all"):
        raise LayoutError(f"reads= is 'chunk' or 'all', not {reads!r}")
    if keep:
        return
    if isinstance(layout, Selection):
        raise LayoutError(
            "a gather needs all of its rows on the device: leave out keep=False, or gather from an array that is on the device"
        )
    if then is None:
        raise LayoutError(
            "keep=False leaves no array on the device: pass then= to name the kernel that reads each chunk, or leave out keep=False"
        )
    if reads != "chunk":
        raise LayoutError("reads='all' needs the whole array on the device, but keep=False never has it there: leave out one of the two")


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def _named(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}" if value is not None else "None"
