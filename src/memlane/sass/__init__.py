"""Model assembled code as data: the machine instructions of a kernel with the control words of ptxas. No part of it needs a GPU.

    disassemble(cubin)          a Program: functions of instructions
    effects(instruction)        the registers that it reads and writes
    memory_access(instruction)  whether and how it accesses memory
    Flow(program)               the control flow between instructions
    Scoreboards(flow)               which results have arrived when an instruction issues
    accesses_by_line(...)       the memory accesses of each source line

`nvdisasm` runs the tool, `listing` parses its output, `operands` and `control` decode instructions, `program` holds them.
"""

from memlane.sass.control import Control, decode_control, with_control
from memlane.sass.flow import Flow
from memlane.sass.line_accesses import accesses_by_line
from memlane.sass.memory import Access, memory_access
from memlane.sass.nvdisasm import disassemble, disassembler_version
from memlane.sass.operands import Operand, Register
from memlane.sass.program import INSTRUCTION_BYTES, Function, Guard, Instruction, Place, Program
from memlane.sass.registers import Effects, effects
from memlane.sass.scoreboards import Scoreboards, counted_wait, has_variable_latency, reach_until, waits_for

__all__ = [
    "INSTRUCTION_BYTES",
    "Access",
    "Control",
    "Effects",
    "Flow",
    "Function",
    "Guard",
    "Instruction",
    "Operand",
    "Place",
    "Program",
    "Register",
    "Scoreboards",
    "accesses_by_line",
    "counted_wait",
    "decode_control",
    "disassemble",
    "disassembler_version",
    "effects",
    "has_variable_latency",
    "memory_access",
    "reach_until",
    "waits_for",
    "with_control",
]
