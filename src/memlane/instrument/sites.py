"""The sites of a module: which of its instructions access memory, numbered once for tracing and counting alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memlane.instrument.registers import Uses, written
from memlane.ptx import SCALAR_TYPES, Address, Function, Instruction, Module, TextureAddress
from memlane.record import Site

_COMPONENTS = {"v2": 2, "v4": 4, "v8": 8}
_BESIDE = {
    "copy": "an asynchronous copy has no value, and its completion is waited for elsewhere",
    "matrix": "matrix fragments are loaded by the warp as a whole",
    "surface": "surfaces are not traced",
}
"""Effects of instructions that access memory and are no sites, with the reason."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An instruction that accesses memory and is no site."""

    function: str
    """The title of the function that holds it."""
    op: str
    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class SiteTable:
    """All sites of all kernels of a module. `sites[i].id == i`, whatever is selected later."""

    sites: tuple[Site, ...]
    of_kernel: Mapping[str, Mapping[int, Site]]
    """By the PTX name of the kernel and the index of the instruction among its instructions."""
    skipped: tuple[Skipped, ...]


def site_table(module: Module) -> SiteTable:
    """The sites in the order of the text."""
    sites: list[Site] = []
    of_kernel: dict[str, dict[int, Site]] = {}
    skipped: list[Skipped] = []
    for function in module.functions.values():
        assert function.body is not None
        found = of_kernel.setdefault(function.name, {}) if function.is_entry else {}
        uses = Uses.of(function)
        for index, instruction in enumerate(function.body.instructions()):
            file, line, column = place_of(module, instruction)
            access = memory_access(instruction)
            reason = _BESIDE.get(instruction.form.effect, "") if _touches_memory(instruction) else ""
            if access is not None and not function.is_entry:
                reason = f"the function {function.title} is called, not inlined; only kernels are instrumented"
            if reason:
                skipped.append(Skipped(function.title, instruction.name, file, line, reason))
            elif access is not None:
                kind, space, nbytes = access
                if kind == "atomic" and not any(map(uses.is_read, written(instruction))):
                    kind = "reduction"
                site = Site(len(sites), function.title, index, file, line, column, instruction.name, kind, space, nbytes)
                sites.append(site)
                found[index] = site
    return SiteTable(tuple(sites), of_kernel, tuple(skipped))


def place_of(module: Module, instruction: Instruction) -> tuple[str, int, int]:
    """File, line and column in the user's source, or in the PTX where there is no line information."""
    at = instruction.location
    if at is not None and at.file in module.files:
        return module.files[at.file], at.line, at.column
    span = instruction.span
    return (module.name, span.line, span.column) if span is not None else (module.name, 0, 0)


def memory_access(instruction: Instruction) -> tuple[str, str, int] | None:
    """Kind, space and bytes a lane of an instruction that loads from or stores to memory; None for others and for parameters.

    Every `atom` is `atomic` here; whether its result is used, its function knows.
    """
    kind = {"texture": "load"}.get(instruction.form.effect, instruction.form.effect)
    space = instruction.form.addresses.get("a", "")
    value = "b" if kind in ("store", "reduction") else "d"
    if kind not in ("load", "store", "atomic", "reduction") or space in ("", "param") or value not in instruction.form.types:
        return None
    if not any(isinstance(operand, Address | TextureAddress) for operand in instruction.operands) or instruction.opcode == "txq":
        return None
    components = _COMPONENTS.get(instruction.slot("vec") or "", 1)
    return kind, space, SCALAR_TYPES[instruction.form.types[value]].nbytes * components


def _touches_memory(instruction: Instruction) -> bool:
    return any(isinstance(operand, Address | TextureAddress) for operand in instruction.operands)


def kernels_of(module: Module) -> Iterator[tuple[int, Function]]:
    """The kernels with their index, which slices of the trace buffer carry."""
    yield from enumerate(module.kernels.values())
