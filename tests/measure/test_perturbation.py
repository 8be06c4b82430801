"""What probes change, as a trace tells it: registers and blocks as the assembler says, times as the timer says, memory unharmed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memlane.chip import load, resident_blocks
from memlane.compile import assemble
from memlane.emulate import Emulator
from memlane.instrument import TraceOptions
from memlane.instrument import trace as instrument
from memlane.launch import DeviceArray, Kernel, LoadedModule
from memlane.measure import time, trace
from memlane.ptx import Module
from memlane.record import Footprint, Perturbation, Trace
from memlane.record import load as load_file
from memlane.report import render_trace, summary_document, to_text


class Assembling(Emulator):
    """An emulator that hands out assembled code, as a GPU does, and has the occupancy of that code."""

    def assembled(self, loaded: LoadedModule) -> bytes:
        return assemble(loaded.module).data

    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
        registers = assemble(kernel.module).kernels[kernel.name].registers
        return resident_blocks(self.chip, threads_per_block, registers, shared_bytes).blocks


class Unreadable(Emulator):
    def assembled(self, loaded: LoadedModule) -> bytes:
        return b"no cubin"


def registers_in_log(module: Module, kernel: str) -> int:
    """What the assembler itself reports."""
    found = re.search(rf"Function properties for '?{kernel}'?\b.*?Used (\d+) registers", assemble(module).log, re.DOTALL)
    assert found is not None
    return int(found[1])


def traced_on(target: Emulator, module: Module, block: int = 1024) -> Trace:
    return trace(target.load(module)["sum"][1, block], target.zeros(128, np.uint32), 3)


def test_registers_and_resident_blocks_of_the_code_that_runs(module: Module) -> None:
    found = traced_on(Assembling(load("h200")), module).launches[0].perturbation
    assert found is not None
    assert found.plain is not None
    assert found.probed is not None
    assert not found.unknown
    assert found.plain.registers == registers_in_log(module, "sum")
    assert found.probed.registers == registers_in_log(instrument(module, TraceOptions()).module, "sum")
    # 2048 threads fit on a multiprocessor, in blocks of 1024, where none needs more than 32 registers.
    assert (found.plain.resident_blocks, found.plain.local_bytes, found.plain.shared_bytes) == (2, 0, 0)
    assert (found.plain_ns, found.probed_ns, found.slowdown) == (None, None, None)


def test_the_file_keeps_what_the_probes_changed(module: Module, tmp_path: Path) -> None:
    made = traced_on(Assembling(load("h200")), module)
    made.save(tmp_path / "t.parquet")
    assert load_file(tmp_path / "t.parquet").launches[0].perturbation == made.launches[0].perturbation


def test_why_resident_blocks_are_not_known_is_kept_and_read(target: Emulator, module: Module, tmp_path: Path) -> None:
    class Refusing(Emulator):
        def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
            if kernel.loaded is plain:
                raise RuntimeError("the driver said CUDA_ERROR_UNKNOWN")
            return super().resident_blocks(kernel, threads_per_block, shared_bytes)

    refusing = Refusing(load("h200"))
    plain = refusing.load(module)
    traced = trace(plain["sum"][1, 64], refusing.zeros(128, np.uint32), 3)
    traced.save(tmp_path / "t.parquet")
    (launch,) = load_file(tmp_path / "t.parquet").launches
    assert launch.resident_blocks is None
    assert launch.staging is not None
    assert launch.staging.unknown == "the driver said CUDA_ERROR_UNKNOWN"
    said = " ".join(to_text(render_trace(traced)).split())
    assert "It is not known how many blocks of sum a multiprocessor holds: the driver said CUDA_ERROR_UNKNOWN" in said
    (known,) = traced_on(target, module).launches
    assert known.staging is not None
    assert (known.staging.unknown, known.resident_blocks) == ("", 2)


def test_a_target_without_assembled_code_says_so_in_the_file_alone(target: Emulator, module: Module) -> None:
    made = traced_on(target, module)
    assert made.launches[0].perturbation == Perturbation(unknown="emulator:h200 runs PTX")
    assert "Without -> with probes" not in " ".join(to_text(render_trace(made)).split())


def test_a_trace_is_not_lost_for_code_that_cannot_be_read(module: Module) -> None:
    made = traced_on(Unreadable(load("h200")), module)
    assert made.launches[0].perturbation == Perturbation(unknown="the assembler made no readable cubin")
    line = "Without -> with probes, sum: registers and resident blocks are not known: the assembler made no readable cubin;"
    assert line in " ".join(to_text(render_trace(replace(made, modelled=False))).split())
    assert made.table.num_rows


def test_times_are_those_of_the_timer_and_the_memory_is_put_back(kernels: LoadedModule, data: DeviceArray) -> None:
    alone = time(kernels["add"][1, 128], data, 5)
    found = trace(kernels["add"][1, 128], data, 5, perturbation=True).launches[0].perturbation
    assert np.array_equal(data.numpy(), np.arange(128) + 5)
    assert found is not None
    assert found.plain_ns == pytest.approx(alone.median_ns)
    assert found.rounds == 1
    assert found.slowdown is not None
    assert found.slowdown > 1


def test_rehearsals_leave_nothing_in_the_trace(kernels: LoadedModule, data: DeviceArray) -> None:
    plain, rehearsed = (trace(kernels["sum"][2, 64], data, 4, perturbation=wanted) for wanted in (False, True))
    assert rehearsed.table.num_rows == plain.table.num_rows == 2 * 2 * (4 + 1)
    assert len(rehearsed.launches) == 1


def test_reports_have_one_line_for_each_kernel_and_the_numbers(module: Module) -> None:
    made = traced_on(Assembling(load("h200")), module)
    [launch] = made.launches
    known = Perturbation(Footprint(30, 0, 512, 8), Footprint(46, 16, 512, 5), "", 2000.0, 5000.0, 5)
    both = tuple(replace(launch, id=number, perturbation=known) for number in range(2))
    made = replace(made, launches=both, modelled=False)
    line = (
        "Without -> with probes, sum: registers 30 -> 46, local memory 0 -> 16 bytes per thread; blocks per multiprocessor 8 -> 5; "
        "time 2 -> 5 us (2.5 times, median of 5); hit rate of L1 unknown: counters need Nsight Compute."
    )
    assert " ".join(to_text(render_trace(made)).split()).count(line) == 1
    first, second = summary_document(made)["perturbations"]
    assert (first["launch"], second["launch"], first["kernel"], first["slowdown"]) == (0, 1, "sum", 2.5)
    assert first["probed"] == {"registers": 46, "local_bytes": 16, "shared_bytes": 512, "resident_blocks": 5}
