"""Define the fields of a trace, in memory and in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memlane.record.example import AccessExample
from memlane.record.schema import BARRIER_DTYPE, CopyInfo, LaunchInfo
from memlane.record.site import Site, Skipped

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class TraceContents:
    """Fields of a trace. `memlane.record.Trace` describes them, and adds what users do with them."""

    table: pa.Table = field(repr=False)
    """Rows in `ACCESS_SCHEMA`."""
    sites: tuple[Site, ...]
    launches: tuple[LaunchInfo, ...]
    warps: npt.NDArray[Any] = field(repr=False)
    """Rows in `WARP_DTYPE`."""
    chip: str
    target: str
    """Name of the device, or of the first of several (`devices`)."""
    modelled: bool
    """Whether times come from the emulator's clock layer."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Texts of the source files by name, so that a report needs no other file."""
    windows: Mapping[str, float] = field(default_factory=dict)
    """Cycles that an empty window of the scheme takes on this target, by scheme, if known. Never subtracted from the rows."""
    skipped: tuple[Skipped, ...] = ()
    """Accesses of the launched kernels that are not sites, and so not in the trace."""
    clock_mhz: float = 0.0
    """Nominal clock of the chip's SMs; 0 if unknown. `time_axis` fits the actual one."""
    examples: tuple[AccessExample, ...] = field(default=(), repr=False)
    """Some of the accesses with the addresses of their lanes, if the target observes them: on the emulator."""
    version: str = ""
    """Version of memlane that recorded the trace."""
    driver: str = ""
    """Version of the GPU's driver, such as `580.159.04, CUDA 13.0`; empty if there was none or it is unknown."""
    failed: str = ""
    """Reason why the traced program broke off, so that later launches are missing; empty if it succeeded."""
    barriers: npt.NDArray[Any] = field(default_factory=lambda: np.zeros(0, BARRIER_DTYPE), repr=False)
    """Waits of the warps at barriers of their blocks, rows in `BARRIER_DTYPE`, for launches with `LaunchInfo.has_barriers`."""
    copies: tuple[CopyInfo, ...] = ()
    """The copies of a traced plan, in the order in which they were started."""

    @property
    def lost(self) -> int:
        """Number of records that did not fit into the buffer, over all launches."""
        return sum(launch.lost for launch in self.launches)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that the launches ran on, in the order of the launches."""
        return tuple(dict.fromkeys(launch.device or self.target for launch in self.launches)) or (self.target,)

    def sms_apart(self, launch: npt.NDArray[Any], sm: npt.NDArray[Any]) -> Ints:
        """Return SM numbers of rows that are distinct across devices: those of the first device are unchanged. `sm_name` returns their
        names."""
        places = {name: place for place, name in enumerate(self.devices)}
        of_launch = np.array([places[one.device or self.target] for one in self.launches] or [0], np.int64)
        apart: Ints = of_launch[launch] * self._sms + np.asarray(sm, np.int64)
        return apart

    def sm_name(self, number: int) -> str:
        """Return a name for the SM with this number: `SM 5`, or `cuda:1 SM 5` where there are several devices."""
        device, sm = divmod(number, self._sms)
        return f"{self.devices[device]} SM {sm}" if len(self.devices) > 1 else f"SM {sm}"

    def device_of_sm(self, number: int) -> int:
        """Return which of `devices` the SM with this number is on."""
        return number // self._sms

    @property
    def _sms(self) -> int:
        """Upper bound of the SM numbers of a device."""
        columns = self.table["sm"].to_numpy(), self.warps["sm"]
        return 1 + max((int(column.max()) for column in columns if len(column)), default=0)
