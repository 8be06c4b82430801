"""Places the variables of a kernel: parameters, shared and local memory, and symbols whose address is known only at launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from memlane.emulate.layout import CODE_BYTES, CODE_WINDOW
from memlane.emulate.lower.body import Body
from memlane.emulate.lower.calls import STACK
from memlane.ptx import (
    GRID_WORKSPACE,
    Address,
    Function,
    Instruction,
    Module,
    Operand,
    Special,
    Symbol,
    Variable,
    Vector,
    called_functions,
    once_for_each,
)

DYNAMIC_ALIGNMENT = 16
"""Alignment in bytes of dynamic shared memory after the static part, unless its declaration requires more. Where a kernel uses several
declarations, the least of their alignments counts, because different assemblers take different ones."""
WORKSPACE = "%workspace"
"""The memory in which the blocks of a cooperative launch count arrivals at the grid barrier."""
RESERVED, RESERVED_BYTES = "%reserved_smem", 1024
"""Shared memory of the system, before the variables of kernels that name it: cooperative groups of several warps synchronise there."""
_RESERVED = Variable("shared", "b8", RESERVED, (RESERVED_BYTES,), RESERVED_BYTES)
STACK_BYTES = 1 << 14
"""Bytes of each thread's stack, where a kernel calls recursive functions or allocates on it."""


@dataclass(frozen=True)
class Frame:
    """The variables of one kernel."""

    offsets: dict[str, tuple[str, int]]
    """Name to state space (`param`, `shared`, `local`) and byte offset in it."""
    params_bytes: int
    static_shared_bytes: int
    """Bytes of static shared memory, including the padding before the dynamic part if the kernel names one."""
    local_bytes: int
    """Bytes of local memory per thread."""
    symbols: tuple[str, ...]
    """Module-scope variables in global and constant memory that the kernel names, and `WORKSPACE` if it synchronises its grid."""
    functions: dict[str, int]
    """Addresses of the device functions that it names."""
    constants: dict[str, int] = field(default_factory=dict)
    """The symbols in constant memory, with their bytes."""


def function_addresses(module: Module) -> dict[str, int]:
    """Return the address that the emulator gives to each device function."""
    return {name: CODE_WINDOW + CODE_BYTES * number for number, name in enumerate(module.functions)}


def lay_out_locals(variables: Iterable[Variable]) -> tuple[dict[str, int], int]:
    """Return the offsets of the local variables among `variables`, from their common start, and their total bytes."""
    offsets: dict[str, tuple[str, int]] = {}
    nbytes = _lay_out("local", [variable for variable in variables if variable.space == "local"], offsets)
    return {name: offset for name, (_, offset) in offsets.items()}, _align(nbytes, 16)


def place_variables(module: Module, function: Function, body: Body) -> Frame:
    """Lay out the variables in the order of their declaration, each at a multiple of its alignment.

    The stack follows the local variables, if the body names it.
    """
    used = _symbols(step.instruction for segment in body.segments for step in segment.steps)
    offsets: dict[str, tuple[str, int]] = {}
    params = _lay_out("param", function.params, offsets)
    outer = [variable for name, variable in module.variables.items() if name in used]
    shared = [variable for variable in (*_reserved(used), *outer, *body.variables) if variable.space == "shared"]
    static = _lay_out_shared(shared, offsets)
    local = _lay_out("local", [variable for variable in (*outer, *body.variables) if variable.space == "local"], offsets)
    symbols = tuple(variable.name for variable in outer if variable.space in ("global", "const"))
    if WORKSPACE in used:
        symbols = (*symbols, WORKSPACE)
    local = _align(local, 16)
    if STACK in used:
        offsets[STACK] = ("local", local)
        local += STACK_BYTES
    functions = {name: address for name, address in function_addresses(module).items() if name in used}
    constants = {variable.name: variable.nbytes for variable in outer if variable.space == "const"}
    return Frame(offsets, params, static, local, symbols, functions, constants)


def parameter_offsets(params: Iterable[Variable]) -> list[int]:
    """Return the byte offset of each parameter in the parameter memory."""
    offsets: dict[str, tuple[str, int]] = {}
    _lay_out("param", params, offsets)
    return [offset for _, offset in offsets.values()]


@once_for_each
def static_shared_bytes(module: Module, kernel: str) -> int:
    """Return the bytes of static shared memory of a kernel, with the padding before a dynamic part, as `place_variables` computes them but
    without a compilation."""
    function = module.functions[kernel]
    functions = (function, *called_functions(module, function))
    names = _symbols(one for called in functions for one in called.instructions())
    own = [one for called in functions for one in called.walk() if isinstance(one, Variable) and one.space == "shared"]
    outer = [variable for name, variable in module.variables.items() if name in names and variable.space == "shared"]
    return _lay_out_shared([*_reserved(names), *outer, *own], {})


def _reserved(names: set[str]) -> tuple[Variable, ...]:
    return (_RESERVED,) if RESERVED in names else ()


def _is_dynamic(variable: Variable) -> bool:
    return "extern" in variable.linkage and variable.nbytes == 0


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _lay_out(space: str, variables: Iterable[Variable], offsets: dict[str, tuple[str, int]]) -> int:
    end = 0
    for variable in variables:
        start = _align(end, variable.alignment)
        offsets[variable.name] = (space, start)
        end = start + variable.nbytes
    return end


def _lay_out_shared(variables: Iterable[Variable], offsets: dict[str, tuple[str, int]]) -> int:
    """Return the end of the kernel's shared memory: the static variables, and the padding before the dynamic ones if there are any."""
    shared = list(variables)
    static = _lay_out("shared", [variable for variable in shared if not _is_dynamic(variable)], offsets)
    dynamic = [variable for variable in shared if _is_dynamic(variable)]
    if dynamic:
        static = _align(static, max(DYNAMIC_ALIGNMENT, min(variable.alignment for variable in dynamic)))
        offsets.update({variable.name: ("shared", static) for variable in dynamic})
    return static


def _symbols(instructions: Iterable[Instruction]) -> set[str]:
    names: set[str] = set()

    def visit(operand: Operand) -> None:
        match operand:
            case Symbol(name=name) | Address(base=Symbol(name=name)):
                names.add(name)
            case Special(name=name) if name in GRID_WORKSPACE:
                names.add(WORKSPACE)
            case Special(name=name) if name.startswith(RESERVED):
                names.add(RESERVED)
            case Vector(items=items):
                for item in items:
                    visit(item)
            case _:
                pass

    for instruction in instructions:
        for operand in instruction.operands:
            visit(operand)
    return names
