"""What a trace holds, in memory and in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memlane.record.example import AccessExample
from memlane.record.schema import CopyInfo, LaunchInfo
from memlane.record.site import Site, Skipped

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class TraceContents:
    """The fields of a trace. `memlane.record.Trace` says what they are, and adds what users do with them."""

    table: pa.Table = field(repr=False)
    """Rows in `ACCESS_SCHEMA`."""
    sites: tuple[Site, ...]
    launches: tuple[LaunchInfo, ...]
    warps: npt.NDArray[Any] = field(repr=False)
    """Rows in `WARP_DTYPE`."""
    chip: str
    target: str
    """The device, or the first of several (`devices`)."""
    modelled: bool
    """Whether times come from the emulator's clock layer."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Text of the source files by name, so that a report needs no other file."""
    windows: Mapping[str, float] = field(default_factory=dict)
    """Cycles that an empty window of the scheme measures on this target, by scheme, where known. Never subtracted from the rows."""
    skipped: tuple[Skipped, ...] = ()
    """Accesses of the launched kernels that are no sites, so that nothing here tells of them."""
    clock_mhz: float = 0.0
    """Nominal clock of the chip's SMs; 0 if unknown. `time_axis` finds the one that the launches ran at."""
    examples: tuple[AccessExample, ...] = field(default=(), repr=False)
    """Some of the accesses with the addresses of their lanes, where the target saw these: on the emulator."""
    version: str = ""
    """Of memlane, when it was recorded."""
    driver: str = ""
    """The version of the GPU's driver, as `580.159.04, CUDA 13.0`; empty where there was none, or it is not known."""
    failed: str = ""
    """Why the program broke off that was traced: what it would have launched then is missing. Empty for one that ended well."""
    copies: tuple[CopyInfo, ...] = ()
    """The copies of a traced plan, in the order in which they were started."""

    @property
    def lost(self) -> int:
        """The number of records that did not fit into the buffer, over all launches."""
        return sum(launch.lost for launch in self.launches)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that the launches ran on, in the order of the launches."""
        return tuple(dict.fromkeys(launch.device or self.target for launch in self.launches)) or (self.target,)

    def sms_apart(self, launch: npt.NDArray[Any], sm: npt.NDArray[Any]) -> Ints:
        """Return numbers for the SMs of some rows that differ between devices: those of the first are as they
        are. `sm_name` names them."""
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
        columns = self.table["sm"].to_numpy(), self.warps["sm"]
        return 1 + max((int(column.max()) for column in columns if len(column)), default=0)
