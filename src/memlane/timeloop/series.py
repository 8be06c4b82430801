"""Append states of fields to a file while a run goes on: HDF5 (`.h5`) or a Zarr directory (`.zarr`).

The fields are copied to the host between the steps, and written by a thread while the next steps run.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import MissingDependency, RecordError, StencilError
from memlane.stencils import Problem

_CHUNK_BYTES = 64 << 20
_STEP = "step"
_HDF5, _ZARR = (".h5", ".hdf5"), (".zarr",)
State = tuple[int, Mapping[str, npt.NDArray[Any]]]


class Series:
    """File of states; call it with the run, as `Run.steps` does with `call`, to append the current state.

    with run.series("heat.h5", "u") as series:
        run.steps(1000, every=100, call=series)         # 10 states
    with h5py.File("heat.h5") as file:
        print(file["step"][:], file["u"][-1])           # u has the shape (states, *grid); step says after how many steps each was

    A state is complete once its `step` is present, which is written last. Write errors are raised by the next call, or at the end of the
    `with` block.
    """

    def __init__(self, problem: Problem, path: Path, names: Sequence[str], writes: bool) -> None:
        """See `Run.series`. `writes`: whether this process writes the file."""
        self.path, self.names = path, tuple(names)
        self._failure: Exception | None = None
        self._states: queue.Queue[State | None] = queue.Queue(maxsize=1)
        self._thread: threading.Thread | None = None
        if writes:
            self._file = _created(path, problem, self.names)
            self._thread = threading.Thread(target=self._write, name=f"writes {path}", daemon=True)
            self._thread.start()

    def __call__(self, run: Any) -> None:
        """Append the current state of a run. With `transport="mpi"` every rank must call it, and rank 0 writes."""
        self._check()
        fields = {name: run[name].gather(root=0) for name in self.names}
        if self._thread is not None:
            self._states.put((run.step, fields))

    def close(self) -> None:
        """Wait until all states are written, and close the file. Raise RecordError if one could not be written."""
        if self._thread is not None:
            self._states.put(None)
            self._thread.join()
            self._thread = None
        self._check()

    def __enter__(self) -> Series:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except RecordError:
            if error is None:  # report the error that ended the block, not one that followed from it
                raise

    def _check(self) -> None:
        if self._failure is not None:
            raise RecordError(f"a state cannot be written to {self.path}: {self._failure}") from self._failure

    def _write(self) -> None:
        """Write states from the queue until it yields None."""
        while (state := self._states.get()) is not None:
            if self._failure is None:
                try:
                    self._file.add(*state)
                except Exception as error:  # of two libraries, in a thread: it is raised where the run is
                    self._failure = error
        try:
            self._file.close()
        except Exception as error:  # of two libraries, in a thread: it is raised where the run is
            self._failure = self._failure or error


def changing_fields(problem: Problem) -> list[str]:
    """Return the fields that hold the state after a step: those that steps change, except those that the next step overwrites."""
    return [name for name in problem.fields if name not in problem.constant and name not in problem.previous]


def series_path(path: str, problem: Problem, names: Sequence[str]) -> Path:
    """Return the path of a series. Raise StencilError for an unknown suffix, and for names that are not fields."""
    to = Path(path)
    if to.suffix not in (*_HDF5, *_ZARR):
        raise StencilError(f"a series of states goes to a file of HDF5 (.h5) or a directory of Zarr (.zarr), not to {path}")
    for name in names:
        if name not in problem.fields:
            raise StencilError(f"no field {name!r}; the run has {', '.join(problem.fields)}")
    return to


def _created(path: Path, problem: Problem, names: Sequence[str]) -> _File:
    """Create a file. Raise RecordError if the path exists or cannot be created."""
    if path.exists():
        raise RecordError(f"{path} exists already: give the series another name, or remove it")
    kind = _Hdf5 if path.suffix in _HDF5 else _Zarr
    try:
        return kind(path, problem, names)
    except OSError as error:
        raise RecordError(f"the series {path} cannot be created: {error}") from error


class _File:
    """Growing arrays in a file: the common interface of both libraries."""

    arrays: dict[str, Any]

    def add(self, step: int, fields: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append a state, its step last."""
        count = self.arrays[_STEP].shape[0]
        for name, value in (*fields.items(), (_STEP, np.asarray(step))):
            array = self.arrays[name]
            array.resize((count + 1, *value.shape))
            array[count] = value
            self.flush()

    def flush(self) -> None:
        """Flush written data to the operating system."""

    def close(self) -> None:
        """Close the file."""


class _Hdf5(_File):
    def __init__(self, path: Path, problem: Problem, names: Sequence[str]) -> None:
        try:
            import h5py
        except ImportError:
            raise MissingDependency("a series in HDF5", "hdf5") from None
        self._file = h5py.File(path, "w-")
        self.arrays = {_STEP: self._file.create_dataset(_STEP, (0,), "i8", maxshape=(None,), chunks=(1024,))}
        shape = problem.grid.shape
        for name in names:
            self.arrays[name] = self._file.create_dataset(
                name, (0, *shape), problem.dtype(name), maxshape=(None, *shape), chunks=_chunk(problem, name)
            )

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _Zarr(_File):
    def __init__(self, path: Path, problem: Problem, names: Sequence[str]) -> None:
        try:
            import zarr
        except ImportError:
            raise MissingDependency("a series in Zarr", "zarr") from None
        group = zarr.open_group(str(path), mode="w-")
        self.arrays = {_STEP: group.create_array(_STEP, shape=(0,), chunks=(1024,), dtype="i8")}
        for name in names:
            self.arrays[name] = group.create_array(
                name, shape=(0, *problem.grid.shape), chunks=_chunk(problem, name), dtype=problem.dtype(name)
            )


def _chunk(problem: Problem, name: str) -> tuple[int, ...]:
    """Return the chunk shape of a field: planes of one state."""
    planes, *rest = problem.grid.shape
    nbytes = prod(rest) * np.dtype(problem.dtype(name)).itemsize
    return 1, min(planes, max(1, _CHUNK_BYTES // nbytes)), *rest
