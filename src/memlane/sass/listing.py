"""Parse a listing of nvdisasm (`-c -hex -gi -gp`) into a Program.

    //## File "k.cu", line 2 inlined at "k.cu", line 6          a source line, valid from here on
    //## File ".nv_debug_ptx_txt.470477167", line 664           a line of the PTX, likewise
        /*0010*/      @!P0 LDG.E R2, desc[UR4][R2.64] ;     /* 0x...        low half of the encoding
                                                            /* 0x...        high half

nvdisasm's JSON output is not used: it has neither encodings nor lines, which the proof needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from memlane.errors import CompileError
from memlane.sass.control import decode_control
from memlane.sass.operands import Register, parse_operands
from memlane.sass.program import Function, Guard, Instruction, Place, Program
from memlane.source import shortened

_SECTION = re.compile(r"\s*\.section\s+\.text\.([^,]+),")
_TARGET = re.compile(r"\s*\.target\s+(\w+)")
_LABEL = re.compile(r"([.$\w][^\s:]*):\s*$")
_FILE = re.compile(r'"([^"]*)", line (\d{1,9})(?!\d)')
_PTX_FILE = ".nv_debug_ptx_txt"
_CODE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_HIGH = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_STATEMENT = re.compile(r"(?:@(!?)(U?P)(\d|T)\s+)?([A-Z][\w.]*)\s*(.*?)\s*$")


@dataclass
class _Section:
    """A function while it is parsed."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    place: Place | None = None
    ptx_line: int | None = None
    placed: bool = False
    """Whether the next instruction already has its source line."""

    def finished(self) -> Function:
        return Function(self.name, tuple(self.instructions), self.labels)


def parse_listing(text: str) -> Program:
    """Return the program in a listing. Raises CompileError for lines that look like code and cannot be parsed."""
    target = ""
    sections: list[_Section] = []
    lines = iter(text.split("\n"))
    for line in lines:
        if section := _SECTION.match(line):
            sections.append(_Section(section[1]))
        elif found := _TARGET.match(line):
            target = found[1]
        elif sections:
            _read(sections[-1], line, lines)
    return Program(target, {section.name: section.finished() for section in sections})


def _read(section: _Section, line: str, following: Iterable[str]) -> None:
    if line.lstrip().startswith("//## File"):
        _read_place(section, line)
    elif label := _LABEL.match(line):
        section.labels.setdefault(label[1], len(section.instructions))
    elif code := _CODE.match(line):
        high = _HIGH.match(next(iter(following), ""))
        if high is None:
            raise CompileError(f"the disassembler wrote half an instruction at {section.name}+0x{code[1]}")
        encoding = int(high[1], 16) << 64 | int(code[3], 16)
        section.placed = False
        section.instructions.append(_instruction(section, int(code[1], 16), code[2].rstrip("; \t"), encoding))


def _read_place(section: _Section, line: str) -> None:
    found = _FILE.findall(line)
    if not found:
        return
    (file, number), *outer = found
    if file.startswith(_PTX_FILE):
        section.ptx_line = int(number)
    elif not section.placed:
        section.place = Place(file, int(number), tuple((name, int(at)) for name, at in outer))
        section.placed = True


def _instruction(section: _Section, offset: int, text: str, encoding: int) -> Instruction:
    statement = _STATEMENT.match(text)
    if statement is None:
        raise CompileError(f"the disassembler wrote an unknown instruction at {section.name}+0x{offset:x}: {shortened(text)}")
    negated, bank, number, name, rest = statement.groups()
    register = Register(bank, int(number)) if bank and number != "T" else None
    opcode, *modifiers = name.split(".")
    return Instruction(
        offset=offset,
        guard=Guard(register, negated == "!") if bank else None,
        opcode=opcode,
        modifiers=tuple(modifiers),
        operands=parse_operands(rest.replace(" ;", "")),
        encoding=encoding,
        control=decode_control(encoding),
        text=text,
        place=section.place,
        ptx_line=section.ptx_line,
    )
