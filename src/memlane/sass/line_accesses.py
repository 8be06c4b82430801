"""Collect the memory accesses of each line, in the source or in the PTX."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from memlane.sass.memory import Access, memory_access
from memlane.sass.program import Instruction, Program

_PARAMETERS = "c[0x0]["
"""Prefix of operands in the constant bank that holds the parameters of the kernel and of the launch."""


def program_access(instruction: Instruction) -> Access | None:
    """Return the access of an instruction, or None. Loads of kernel parameters and of constants that ptxas itself placed do not count."""
    access = memory_access(instruction)
    if access is not None and access.space == "const" and any(one.text.startswith(_PARAMETERS) for one in instruction.operands):
        return None
    return access


def accesses_by_line(program: Program, kernel: str) -> Mapping[tuple[str, int], tuple[Access, ...]]:
    """Return the accesses that the assembled kernel makes for each (file, line) of the source, in the order of the code.

    Inlined code counts for its own line. Accesses without a line, such as those of code that ptxas added, are under ("", 0).
    """
    found: dict[tuple[str, int], list[Access]] = defaultdict(list)
    for instruction in program.functions[kernel].instructions:
        access = program_access(instruction)
        if access is not None:
            place = instruction.place
            found["" if place is None else place.file, 0 if place is None else place.line].append(access)
    return {place: tuple(accesses) for place, accesses in found.items()}
