"""The PTX language: instruction table, parse, print, verify, control flow.

Inside the package imports go one way, from the last to the first:

    types, special      scalar types and state spaces; special registers
    forms               the notation of the instruction table and the match against it
    ops                 the table, one module per chapter of the manual
    ir                  a module as data
    lexer, operands, declarations, parser       text to Module
    printer             Module to text
    build               text to statements, for passes that insert some
"""

from __future__ import annotations

from memlane.ptx.build import instruction, statements
from memlane.ptx.forms import Form
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
    Location,
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
)
from memlane.ptx.ops import TABLE
from memlane.ptx.parser import parse
from memlane.ptx.printer import instruction_text, operand_text, print_module, print_statements, variable_text
from memlane.ptx.special import SPECIAL_REGISTERS
from memlane.ptx.types import SCALAR_TYPES, SPACES, ScalarType

__all__ = [
    "SCALAR_TYPES",
    "SPACES",
    "SPECIAL_REGISTERS",
    "TABLE",
    "Address",
    "Arguments",
    "Block",
    "Directive",
    "Form",
    "Function",
    "Guard",
    "Immediate",
    "Instruction",
    "Item",
    "Label",
    "Location",
    "Module",
    "Operand",
    "Pair",
    "Register",
    "RegisterDecl",
    "ScalarType",
    "Sink",
    "Special",
    "Statement",
    "Symbol",
    "TextureAddress",
    "Variable",
    "Vector",
    "instruction",
    "instruction_text",
    "operand_text",
    "parse",
    "print_module",
    "print_statements",
    "statements",
    "variable_text",
]
