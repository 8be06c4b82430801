"""Run a program once under Nsight Compute, and read its results for each launch and each instruction."""

from __future__ import annotations

import csv
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memlane.lab.profiler import UNTOUCHED, Profiled, number, parse
from memlane.launch import plain_name

# -- by instruction ------------------------------------------------------------------------------------------------------------

LABELS = {
    "inst_executed": "Instructions Executed",
    "thread_inst_executed_true": "Predicated-On Thread Instructions Executed",
    "memory_l1_tag_requests_global": "L1 Tag Requests Global",
    "memory_l1_wavefronts_shared": "L1 Wavefronts Shared",
    "memory_l1_wavefronts_shared_ideal": "L1 Wavefronts Shared Ideal",
    "memory_l2_theoretical_sectors_global": "L2 Theoretical Sectors Global",
    "memory_l2_theoretical_sectors_global_ideal": "L2 Theoretical Sectors Global Ideal",
    "memory_l2_theoretical_sectors_local": "L2 Theoretical Sectors Local",
}
"""Metrics that the profiler has for each instruction, and how the head of its source page calls them."""

_OPCODE = re.compile(r"^(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


@dataclass(frozen=True)
class Counted:
    """One instruction of a launch."""

    offset: int
    """Bytes from the first instruction of its kernel."""
    opcode: str
    """Opcode with its modifiers, such as `LDG.E.64`."""
    metrics: dict[str, float]
    """Values by name, as in `LABELS`; only those in the profiler's table."""
    text: str = ""
    """Disassembled text, with guard and operands."""

    @property
    def is_misread(self) -> bool:
        """Return whether the profiler miscounts the instruction: an asynchronous copy whose guard or operand is predicate 0 (`copies.py`
        has the evidence)."""
        return self.opcode.startswith("LDGSTS") and re.search(r"\bP0\b", self.text) is not None


@dataclass(frozen=True)
class Disassembled:
    """One kernel launch, instruction by instruction in the order of the code."""

    kernel: str
    instructions: tuple[Counted, ...]


@dataclass(frozen=True)
class Report:
    """The launches of one program in their order, each seen as a whole and by instruction."""

    launches: tuple[Profiled, ...]
    disassembled: tuple[Disassembled, ...]


def report(program: str, metrics: Sequence[str], script: Sequence[str], environment: dict[str, str], timeout: float) -> Report:
    """Run `script` under the profiler once. RuntimeError with what the profiler said if it gave no table of instructions."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "report.ncu-rep")
        collect = [program, *UNTOUCHED, "--force-overwrite", "--export", file, "--metrics", ",".join(metrics), *script]
        done = subprocess.run(collect, capture_output=True, text=True, env=environment, timeout=timeout)
        show = [program, "--import", file, "--csv", "--print-units", "base", "--page"]
        raw, source = (
            subprocess.run([*show, *page], capture_output=True, text=True, env=environment, timeout=timeout)
            for page in (["raw"], ["source", "--print-source", "sass"])
        )
    found = with_metrics(parse_source(source.stdout))
    if not found:
        said = "".join(one.stdout + one.stderr for one in (done, source))
        lines = [line for line in said.splitlines() if line.strip()]
        wrong = [line for line in lines if "ERROR" in line or "Error" in line]
        raise RuntimeError(f"the profiler gave no table of instructions: {' | '.join((wrong or lines)[-4:])}")
    launches = tuple(parse(raw.stdout))
    return Report(launches, tables_of(launches, found))


def with_metrics(tables: Iterable[Disassembled]) -> list[Disassembled]:
    """Return the tables of what was executed. The page begins with the code of every function of a module, without numbers."""
    return [table for table in tables if any(one.metrics for one in table.instructions)]


def tables_of(launches: Sequence[Profiled], tables: Iterable[Disassembled]) -> tuple[Disassembled, ...]:
    """Return the table of the kernel of each launch. Functions that a kernel calls have tables of their own, before or after that of the
    kernel.

    RuntimeError if a launch has none.
    """
    left, found = iter(tables), []
    for launch in launches:
        table = next((one for one in left if plain_name(one.kernel) == plain_name(launch.kernel)), None)
        if table is None:
            raise RuntimeError(f"the profiler gave no table of instructions for {launch.kernel}, launch {len(found)}")
        found.append(table)
    return tuple(found)


def parse_source(output: str) -> list[Disassembled]:
    """Return the launches in the output of `--csv --page source --print-source sass`.

    A launch begins with a line `"Kernel Name","naive(float *)"`; further such pairs may follow, then the head of the table with the columns
    `Address` and `Source`, then a line for each instruction.
    """
    names = {label: metric for metric, label in LABELS.items()} | {metric: metric for metric in LABELS}
    launches: list[tuple[str, list[Counted]]] = []
    kernel, head, first = "", [], 0
    for cells in csv.reader(line for line in output.splitlines() if line.startswith('"')):
        if cells[0] == "Kernel Name":
            kernel, head = cells[1], []
        elif "Address" in cells and "Source" in cells:
            head = cells
            launches.append((kernel, []))
        elif head and len(cells) == len(head):
            text = cells[head.index("Source")].strip()
            opcode = _OPCODE.match(text)
            if opcode:
                address = int(cells[head.index("Address")], 16)
                first = address if not launches[-1][1] else first
                found = {names[title]: number(cell) for title, cell in zip(head, cells, strict=True) if title in names}
                metrics = {name: value for name, value in found.items() if value is not None}
                launches[-1][1].append(Counted(address - first, opcode[1], metrics, text))
    return [Disassembled(name, tuple(instructions)) for name, instructions in launches]
