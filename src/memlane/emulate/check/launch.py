"""Set up the checker's records for one launch, and report its findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES
from memlane.emulate.check.clocks import barrier_opened
from memlane.emulate.check.declared_access import DeclarationCheck
from memlane.emulate.check.findings import Findings
from memlane.emulate.check.records import (
    CELL_BYTES,
    HASH_ENTRIES,
    KEPT_STAMPS,
    LAUNCH,
    MOST_SITES,
    MOST_WARPS,
    NOTE,
    NOTES,
    REGION,
    STATE_BYTES,
)
from memlane.emulate.lower.kernel import CompiledKernel
from memlane.emulate.run.aimed_access import only_allocations
from memlane.emulate.run.device import DeviceState
from memlane.emulate.run.memory import lazy_zeros
from memlane.emulate.runtime.helper import address_of
from memlane.errors import UnsupportedPtx
from memlane.launch import Launch, Report

_GROUP = 32
"""Granularity of the number of shared-memory cells."""


class Checked:
    """The checker's records for one launch, kept alive while generated code uses them."""

    def __init__(self, device: DeviceState, launch: Launch, compiled: CompiledKernel, context: npt.NDArray[Any], slot_count: int) -> None:
        if len(compiled.instructions) > MOST_SITES or launch.warps_per_block > MOST_WARPS:
            raise UnsupportedPtx(f"the checker takes kernels of up to {MOST_SITES} instructions; run {launch.kernel.title} without it")
        self._device, self._launch, self._compiled, self._context = device, launch, compiled, context
        shadows = device.shadows
        self._base = shadows.begin()
        words = -(-int(context["shared_bytes"][0]) // (4 * _GROUP)) * _GROUP
        cells_bytes = words * CELL_BYTES
        local_bytes = compiled.frame.local_bytes * launch.warps_per_block * LANES // 4
        block_bytes = STATE_BYTES + cells_bytes + -(-local_bytes // 64) * 64
        # Untouched parts take no physical memory.
        self._blocks, self._owners = lazy_zeros(slot_count * block_bytes), lazy_zeros(8 * KEPT_STAMPS)
        self._covered, self._flags = np.zeros(HASH_ENTRIES, np.uint32), np.zeros(HASH_ENTRIES, np.uint32)
        self._sites = np.zeros(len(compiled.instructions) + 1, REGION)
        self._only = np.zeros(len(compiled.instructions) + 1, np.uint64)
        for site, allocation in only_allocations(device.memory, launch).items():
            self._only[site] = allocation.low
        self._table = shadows.table()
        self._notes = np.zeros(NOTES, NOTE)
        self._record = np.zeros(1, LAUNCH)
        values = {
            "stamp": self._base,
            "base": self._base,
            "owners": self._owners.ctypes.data,
            "covered": self._covered.ctypes.data,
            "flags": self._flags.ctypes.data,
            "sites": self._sites.ctypes.data,
            "only": self._only.ctypes.data,
            "table": self._table.ctypes.data,
            "table_count": len(self._table),
            "blocks": self._blocks.ctypes.data,
            "block_bytes": block_bytes,
            "cells_offset": STATE_BYTES,
            "local_offset": STATE_BYTES + cells_bytes,
            "cells_bytes": cells_bytes,
            "local_bytes": local_bytes,
            "notes": self._notes.ctypes.data,
            "one_block": launch.blocks == 1,
            "stop": launch.layers.stop,
        }
        for name, value in values.items():
            self._record[name][0] = value
        context["check"], context["opened"] = self._record.ctypes.data, address_of(barrier_opened)

    def finish(self) -> tuple[Report, ...]:
        """Return the reports, after the launch has ended or failed."""
        self._device.shadows.stamp = int(self._record["stamp"][0])
        findings = Findings(self._device, self._launch, self._compiled, self._context[0])
        found = findings.reports(self._notes[self._notes["key"] != 0])
        declared = self._launch.layers.declared
        if declared is None:
            return found
        return (*found, *DeclarationCheck(findings, declared, self._table, self._base, self._owners).reports())
