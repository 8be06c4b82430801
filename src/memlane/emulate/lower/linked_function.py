"""Holds one function while it is linked into the body of a kernel."""

from __future__ import annotations

from memlane.emulate.lower.body import Body
from memlane.ptx import CARRY, Function, Instruction, Symbol
from memlane.ptx.parameters import items_of


class LinkedFunction:
    """One function while it is linked into the body of a kernel."""

    def __init__(self, function: Function, body: Body, first_index: int, is_kernel: bool) -> None:
        self.function, self.body, self.first_index, self.is_kernel = function, body, first_index, is_kernel
        self.name = function.name
        formals = () if is_kernel else (*function.params, *function.results)
        self.parameters = {one.name: one for one in (*formals, *body.variables) if one.space in ("param", "reg")}
        self.callees: set[str] = set()
        self.recursive: frozenset[str] = frozenset()
        """The functions of its strongly connected component in the call graph, itself included, if it is recursive; else empty."""
        self.frame: dict[str, int] = {}
        """Offsets on the stack of the local variables of a recursive function."""
        self.frame_bytes = 0
        self.first_segment = 0
        own = {} if is_kernel else {name: f"{self.name}::{name}" for name in body.registers if name != CARRY}
        if not is_kernel:
            own.update({one.name: f"{self.name}::{one.name}" for one in body.variables})
        self.renamed = own

    def rename(self, name: str) -> str:
        """Return the unique name in the linked body for a name of this function."""
        return self.renamed.get(name, name)

    @property
    def return_register(self) -> str:
        """Return the register that holds where the function continues at its end."""
        return f"{self.name}::@place"

    @property
    def frame_register(self) -> str:
        return f"{self.name}::@frame" if self.frame_bytes else ""


def fits_signature(part: LinkedFunction, call: Instruction, function: Function) -> bool:
    for actuals, formals in ((items_of(call, "arguments"), function.params), (items_of(call, "result"), function.results)):
        if len(actuals) != len(formals):
            return False
        for actual, formal in zip(actuals, formals, strict=True):
            if isinstance(actual, Symbol) and (actual.name not in part.parameters or part.parameters[actual.name].nbytes != formal.nbytes):
                return False
    return True
