"""The live ranges that nvdisasm prints (`-plr`): its own account of what each instruction reads and writes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memlane.sass import Register
from memlane.sass.nvdisasm import run_nvdisasm

_BANKS = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}


@dataclass(frozen=True)
class Marks:
    reads: frozenset[Register]
    writes: frozenset[Register]


def live_ranges(cubin: bytes) -> dict[tuple[str, int], Marks]:
    """By function and offset. `^` is a write, `v` a read, `x` both."""
    found: dict[tuple[str, int], Marks] = {}
    columns: list[tuple[int, Register]] = []
    function, above = "", ""
    for line in run_nvdisasm(cubin, ("-c", "-plr")).split("\n"):
        section = re.match(r"\s*\.section\s+\.text\.([^,]+),", line)
        function = section[1] if section else function
        if "// |" not in line:
            continue
        table = line.split("// ", 1)[1]
        code = re.match(r"\s*/\*([0-9a-f]+)\*/", line)
        if code is None and "#" in table:
            columns = _columns(above, table)
        elif code is not None:
            marks = {register: table[place : place + 1] for place, register in columns}
            found[function, int(code[1], 16)] = Marks(
                frozenset(register for register, mark in marks.items() if mark and mark in "vx"),
                frozenset(register for register, mark in marks.items() if mark and mark in "^x"),
            )
        above = table
    return found


def _columns(heads: str, numbers: str) -> list[tuple[int, Register]]:
    """The place of the column of each register."""
    columns: list[tuple[int, Register]] = []
    start = 0
    for head, part in zip(heads.split("|"), numbers.split("|"), strict=False):
        bank = _BANKS.get(head.strip())
        columns += [(start + one.end() - 1, Register(bank, int(one[0]))) for one in re.finditer(r"\d+", part) if bank]
        start += len(part) + 1
    return columns
