"""Save and load snapshots: the state of a run in a NumPy file (`.npz`), written to a temporary file and renamed when it is complete."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from memlane.errors import RecordError, StencilError
from memlane.stencils import Problem

_VERSION = 1
Arrays = dict[str, npt.NDArray[Any]]


def write_snapshot(
    path: str | os.PathLike[str], step: int, fields: Mapping[str, npt.NDArray[Any]], scalars: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Write fields and scalars. Raise RecordError if the file cannot be written; an existing file is kept then."""
    to = Path(path)
    header = json.dumps({"memlane stencil": _VERSION, "step": step})
    arrays: Any = {"header": np.array(header)}
    arrays |= {f"field {name}": value for name, value in fields.items()} | {f"scalar {name}": value for name, value in scalars.items()}
    partial = ""
    try:
        with tempfile.NamedTemporaryFile(dir=to.parent, prefix=f"{to.name}.", suffix=".partial", delete=False) as file:
            partial = file.name
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, to)
    except BaseException as error:  # Ctrl-C and lack of memory must not leave an incomplete file either
        if partial:
            with suppress(OSError):
                os.unlink(partial)
        if isinstance(error, OSError):
            raise RecordError(f"the snapshot {to} cannot be written: {error.strerror or error}") from error
        raise


def read_snapshot(path: str | os.PathLike[str], problem: Problem) -> tuple[int, Arrays, Arrays]:
    """Return step, fields and scalars of a file. Raise RecordError for a foreign file, StencilError for one of another problem."""
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays.pop("header")))
        step, version = int(header["step"]), header["memlane stencil"]
    except OSError as error:
        raise RecordError(f"the snapshot {path} cannot be read: {error.strerror or error}; pass the file that `save` wrote") from error
    except (ValueError, KeyError, BadZipFile, TypeError) as error:
        raise RecordError(f"{path} is not a snapshot of a stencil: {error}") from error
    if version != _VERSION:
        raise RecordError(
            f"{path} is a snapshot of version {version}; this memlane reads version {_VERSION}: read it with the memlane that wrote it"
        )
    fields = {name.removeprefix("field "): value for name, value in arrays.items() if name.startswith("field ")}
    scalars = {name.removeprefix("scalar "): value for name, value in arrays.items() if name.startswith("scalar ")}
    wanted = {name: (problem.grid.shape, problem.dtype(name)) for name in problem.fields}
    found = {name: (value.shape, value.dtype.str.lstrip("<|=")) for name, value in fields.items()}
    if found != wanted or set(scalars) != set(problem.scalars):
        raise StencilError(f"{path} was written by another stencil or grid: it has {_listed(found)}, and this one {_listed(wanted)}")
    return step, fields, scalars


def _listed(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (shape, dtype) in fields.items())
