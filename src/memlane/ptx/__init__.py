"""Parse, verify, analyse, edit and print PTX; this package holds the instruction table and the control flow analyses.

Modules import only from modules above them in this list:

    types, special_registers   scalar types and state spaces; special registers
    demangle            C++ names as the programmer wrote them
    convention          how a kernel is called, where its parameters alone do not tell
    forms               the notation of the instruction table and the match against it
    ops                 the table, one module per chapter of the manual
    location            places in the source of a program
    ir                  a module as data
    lexer, constants, operands, initializers, declarations, instructions, parser      text to Module
    printer             Module to text
    build               text to statements, for passes that insert some
    registers, access   what an instruction reads and writes: registers, memory
    scopes, vectors     flatten inner blocks of a function; split vector registers
    calls, cooperative  call graph; kernels with a grid-wide barrier
    parameters, parameter_registers, embedding, static_variables, inlining
                        inline device functions into kernels
    cfg, liveness       basic blocks, dominators, loops; live registers
    copies              moves that ptxas has to emit as instructions
    parameter_use       pointer parameters through which a kernel may load and store
    order_dependence    accesses whose counts depend on the order in which threads run
    divergence          branches at which the lanes of a warp may diverge
    linking             several modules merged into one
    verify              the rules that a module keeps
"""

from __future__ import annotations

from memlane.ptx.access import MemoryAccess, is_product, memory_access, memory_accesses, past_tense, product_bytes
from memlane.ptx.build import instruction, statements
from memlane.ptx.calls import addressed_functions, called_functions, called_name, special_registers
from memlane.ptx.cfg import BasicBlock, ControlFlow, Loop
from memlane.ptx.convention import Convention, Single, SpreadArray, SpreadTensorMap
from memlane.ptx.cooperative import GRID_WORKSPACE, is_cooperative
from memlane.ptx.copies import Copies, is_move
from memlane.ptx.demangle import demangle
from memlane.ptx.embedding import Origin
from memlane.ptx.forms import Form
from memlane.ptx.inlining import Inlined, inline_calls
from memlane.ptx.instructions import INSERTED
from memlane.ptx.ir import (
    Address,
    Arguments,
    Block,
    Directive,
    Function,
    Guard,
    Immediate,
    Instruction,
    Item,
    Label,
    Module,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    Sink,
    Special,
    Statement,
    Symbol,
    TextureAddress,
    Variable,
    Vector,
    elements,
)
from memlane.ptx.linking import link_modules
from memlane.ptx.liveness import Liveness
from memlane.ptx.location import Location
from memlane.ptx.once import once_for_each
from memlane.ptx.ops import TABLE
from memlane.ptx.order_dependence import order_dependent_accesses
from memlane.ptx.parameter_use import ParameterUse, parameter_use
from memlane.ptx.parser import parse
from memlane.ptx.printer import instruction_text, operand_text, print_module, print_statements, variable_text
from memlane.ptx.registers import (
    CARRY,
    Scope,
    names_in,
    overwrites,
    registers_in,
    registers_read,
    registers_written,
    rename_instruction,
    rename_operand,
    values_read,
    values_written,
)
from memlane.ptx.scopes import flatten_scopes
from memlane.ptx.special_registers import SPECIAL_REGISTERS
from memlane.ptx.types import SCALAR_TYPES, SPACES, VECTOR_LENGTHS, ScalarType
from memlane.ptx.vectors import split_vectors
from memlane.ptx.verify import verify

__all__ = [
    "CARRY",
    "GRID_WORKSPACE",
    "INSERTED",
    "SCALAR_TYPES",
    "SPACES",
    "SPECIAL_REGISTERS",
    "TABLE",
    "VECTOR_LENGTHS",
    "Address",
    "Arguments",
    "BasicBlock",
    "Block",
    "ControlFlow",
    "Convention",
    "Copies",
    "Directive",
    "Form",
    "Function",
    "Guard",
    "Immediate",
    "Inlined",
    "Instruction",
    "Item",
    "Label",
    "Liveness",
    "Location",
    "Loop",
    "MemoryAccess",
    "Module",
    "Operand",
    "Origin",
    "Pair",
    "ParameterUse",
    "Register",
    "RegisterDecl",
    "ScalarType",
    "Scope",
    "Single",
    "Sink",
    "Special",
    "SpreadArray",
    "SpreadTensorMap",
    "Statement",
    "Symbol",
    "TextureAddress",
    "Variable",
    "Vector",
    "addressed_functions",
    "called_functions",
    "called_name",
    "demangle",
    "elements",
    "flatten_scopes",
    "inline_calls",
    "instruction",
    "instruction_text",
    "is_cooperative",
    "is_move",
    "is_product",
    "link_modules",
    "memory_access",
    "memory_accesses",
    "names_in",
    "once_for_each",
    "operand_text",
    "order_dependent_accesses",
    "overwrites",
    "parameter_use",
    "parse",
    "past_tense",
    "print_module",
    "print_statements",
    "product_bytes",
    "registers_in",
    "registers_read",
    "registers_written",
    "rename_instruction",
    "rename_operand",
    "special_registers",
    "split_vectors",
    "statements",
    "values_read",
    "values_written",
    "variable_text",
    "verify",
]
