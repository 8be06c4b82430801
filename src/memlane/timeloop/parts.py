"""Hold the memory of fields that are divided among several devices: a subdomain with halos on each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from memlane.launch import DeviceArray, Target
from memlane.stencils import Decomposition, Subdomain
from memlane.timeloop.memory import zeros


@dataclass(frozen=True, eq=False)
class SharedField:
    """State of a field after the last complete step, in subdomains on several devices.

    u = run["u"].gather()                       # an array of NumPy
    parts = run["u"].subdomains                 # the memory of each device, with halos and padding; `decomposition` says what is where
    """

    name: str
    decomposition: Decomposition
    subdomains: tuple[DeviceArray, ...]

    @property
    def slabs(self) -> tuple[DeviceArray, ...]:
        """Return `subdomains`, under the name from when grids were cut along their first axis only."""
        return self.subdomains

    @property
    def shape(self) -> tuple[int, ...]:
        return self.decomposition.grid.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.subdomains[0].dtype

    def gather(self, root: int | None = None) -> npt.NDArray[Any]:
        """Return a copy of the whole field on the host. `root` applies to `transport="mpi"` only: the rank that gets it."""
        whole = np.empty(self.shape, self.dtype)
        for subdomain, memory in zip(self.decomposition.subdomains, self.subdomains, strict=True):
            whole[subdomain.region] = computed_cells(subdomain, memory)
        return whole

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a field of a run cannot be seen by NumPy without a copy; leave out copy=False")
        host = self.gather()
        return host if dtype is None else host.astype(dtype)

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        raise AttributeError(
            f"{self.name} lies in subdomains on {len(self.subdomains)} devices, not in one array: use gather(), or `subdomains` one by one"
        )


def computed_planes(subdomain: Subdomain, memory: DeviceArray) -> DeviceArray:
    """Return the memory of the planes that a subdomain computes; all memory for a grid of one dimension."""
    if len(memory.shape) == 1:
        return memory
    skipped = memory.nbytes // subdomain.held * subdomain.below
    return replace(memory, address=memory.address + skipped, shape=(subdomain.planes, *memory.shape[1:]), owner=memory)


def computed_cells(subdomain: Subdomain, memory: DeviceArray) -> npt.NDArray[Any]:
    """Return the cells that a subdomain computes."""
    planes = computed_planes(subdomain, memory).numpy()
    return planes[subdomain.own if planes.ndim == 1 else (slice(None), *subdomain.own[1:])]


def upload_part(
    target: Target, decomposition: Decomposition, subdomain: Subdomain, name: str, dtype: str, host: npt.NDArray[Any] | None
) -> DeviceArray:
    """Return memory of a target for a part of a field, with its cells of a whole field; with zeros where there is none. Raises DeviceError
    where memory does not suffice."""
    shape = decomposition.stored_shape(subdomain)
    memory = zeros(target, name, shape, dtype)
    if host is not None:
        write_part(decomposition, subdomain, memory, host)
    return memory


def write_part(decomposition: Decomposition, subdomain: Subdomain, memory: DeviceArray, host: npt.NDArray[Any]) -> None:
    """Write a subdomain's cells of a whole field, including its halos."""
    padded = np.zeros(memory.shape, memory.dtype)
    for axis, span in enumerate(subdomain.spans):
        cells = decomposition.cells_of(subdomain, axis)
        at = (slice(None),) * axis
        host = host[(*at, slice(cells[0], cells[-1] + 1) if cells[-1] - cells[0] + 1 == span.held else cells)]
    padded[tuple(map(slice, host.shape))] = host
    memory.copy_from(padded)
