"""Find the sites of a module, the instructions that access memory, and number them once for both tracing and counting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from memlane.compile import parameter_names, parameter_types, pointer_members
from memlane.instrument.registers import components
from memlane.instrument.repeats import once_between_barriers, repeating
from memlane.instrument.waits import is_bulk, space_of, wait_of
from memlane.launch import pointer_parameters
from memlane.ptx import (
    ControlFlow,
    Function,
    Inlined,
    Instruction,
    Liveness,
    Module,
    Origin,
    addressed_functions,
    called_functions,
    called_name,
    demangle,
    flatten_scopes,
    inline_calls,
    is_product,
    memory_access,
    once_for_each,
    order_dependent_accesses,
    overwrites,
    product_bytes,
    registers_read,
)
from memlane.ptx.origins import Base, Origins, origins_of
from memlane.record import Call, Site, Skipped

_BESIDE = {"prefetch": "a prefetch returns nothing", "query": ""}
"""Kinds of access that are not sites, with the reason; empty for texture queries, which are not reported."""
_OF_FRAGMENTS = "the assembler chooses how many accesses a wmma load or store becomes, so they are not counted"
_OF_NEIGHBOURS = "the cost of an access to the shared memory of another block is not documented, so it is not counted"
_OF_BOXES = "the sectors of a box depend on its tensor map, which only the emulator can read, so only the emulator counts them"
_OF_PRODUCTS = (
    "a warpgroup product (wgmma) is counted but not timed: it completes at wgmma.wait_group, which is timed as an access of its own"
)
_MOST_INLINED = 4
"""Maximum number of inlined calls recorded per access: recursive templates are inlined into each other hundreds of times."""
_LOCAL = "__local_depot"
"""Prefix of the compiler's name for the local memory of a thread."""
_UNCOUNTED = {
    "copy": "the transactions of a bulk copy do not follow from its lanes, so they are not counted",
    "load": _OF_FRAGMENTS,
    "store": _OF_FRAGMENTS,
}
"""Reasons why no transactions are counted for a site that has some, by its kind."""


@dataclass(frozen=True)
class SiteTable:
    """All sites of all kernels of a module. `sites[i].id == i`, whatever is selected later."""

    sites: tuple[Site, ...]
    of_kernel: Mapping[str, Mapping[int, Site]]
    """Sites by the PTX name of the kernel and the index among its instructions, in `module`."""
    skipped: tuple[Skipped, ...]
    inlined: Inlined
    """The module with called functions inlined into its kernels."""

    @property
    def module(self) -> Module:
        """The inlined module, to whose kernels the instruction indices refer."""
        return self.inlined.module


@once_for_each
def site_table(module: Module) -> SiteTable:
    """Return the sites in program order; those of called functions once per call."""
    original, inlined = module, inline_calls(module)
    module = inlined.module
    sites: list[Site] = []
    of_kernel: dict[str, dict[int, Site]] = {name: {} for name in module.kernels}
    skipped: list[Skipped] = []
    texts: dict[str, tuple[Instruction, ...]] = {}
    reached_from, reached_before = _kernels_of_functions(module), _kernels_of_functions(original)
    for function in module.functions.values():
        why_called = ""
        live, origins, repeats, steps = live_results(function), origins_of(function), repeating(function), once_between_barriers(function)
        array_of = _Arrays(original, function)
        unordered = order_dependent_accesses(function) if function.is_entry else frozenset()
        for index, instruction in enumerate(function.instructions()):
            found = _site_or_reason(module, function, index, instruction, bool(live.get(index)), len(sites))
            if found and not function.is_entry:
                why_called = why_called or _why_called(module, inlined, function)
                found = why_called
            if isinstance(found, Site):
                source = origins.get(index, Origins())
                found = replace(found, address_parameters=source.parameters, address_loads=source.loads, address_repeats=index in repeats)
                found = replace(found, calls=_calls(original, texts, inlined.origin(function.name, index)), **array_of(source.bases))
                found = replace(found, inlined=_inlined(module, instruction), once_between_barriers=index in steps)
                found = replace(found, order_dependent=index in unordered)
                sites.append(found)
                of_kernel[function.name][index] = found
            elif found and (function.name in reached_from or function.name not in reached_before):
                file, line, _ = place_of(module, instruction)
                skipped.append(Skipped(function.title, instruction.name, file, line, found, reached_from.get(function.name, ())))
    return SiteTable(tuple(sites), of_kernel, tuple(skipped), inlined)


def uncounted(table: SiteTable, sees_maps: bool = False) -> tuple[Skipped, ...]:
    """Return the accesses whose transactions are not counted, with the reason: those that are not sites, bulk copies, and those that name
    the shared memory of other blocks. With `sees_maps`, box copies are counted by their tensor maps."""
    found = [
        Skipped(site.kernel, site.op, site.file, site.line, reason, (site.kernel,))
        for site in table.sites
        if not (sees_maps and site.is_box) and (reason := _not_counted(site))
    ]
    return (*table.skipped, *found)


def untimed(table: SiteTable) -> tuple[Skipped, ...]:
    """Return the accesses that no probe times, with the reason: those that are not sites, and warpgroup products."""
    products = (site for site in table.sites if site.kind == "product")
    return (*table.skipped, *(Skipped(one.kernel, one.op, one.file, one.line, _OF_PRODUCTS, (one.kernel,)) for one in products))


def _not_counted(site: Site) -> str:
    """Return the reason why the transactions of a site are not counted; empty if they are counted or if it has none."""
    if site.space == "shared::cluster":
        return _OF_NEIGHBOURS
    if site.is_box:
        return _OF_BOXES
    return "" if site.is_counted else _UNCOUNTED.get(site.kind, "")


def _kernels_of_functions(module: Module) -> Mapping[str, tuple[str, ...]]:
    """Map the name of each function to the titles of the kernels that are it or call it."""
    found: dict[str, tuple[str, ...]] = {}
    for kernel in module.kernels.values():
        for function in (kernel, *called_functions(module, kernel)):
            found[function.name] = (*found.get(function.name, ()), kernel.title)
    return found


def _why_called(module: Module, inlined: Inlined, function: Function) -> str:
    """Return the reason why the accesses of a function that was not inlined are not sites."""
    if function.name in inlined.left:
        return f"called, not inlined: {inlined.left[function.name]}"
    if any(one.name == function.name for one in addressed_functions(module)):
        return "called through a pointer"
    called = any(called_name(one) == function.name for other in module.functions.values() for one in other.instructions())
    return "called by a function that is not inlined" if called else "no kernel calls it"


def _calls(module: Module, texts: dict[str, tuple[Instruction, ...]], origin: Origin) -> tuple[Call, ...]:
    """Return the calls that lead to an instruction, the kernel's own first. `texts`: cache of the instructions of functions."""
    names = [*(function for function, _ in origin.calls[1:]), origin.function]
    found = []
    for name, (caller, index) in zip(names, origin.calls, strict=True) if origin.calls else ():
        if caller not in texts:
            texts[caller] = tuple(module.functions[caller].instructions())
        file, line, _ = place_of(module, texts[caller][index])
        found.append(Call(module.functions[name].title, file, line))
    return tuple(found)


def _inlined(module: Module, instruction: Instruction) -> tuple[Call, ...]:
    """Return the places in the user's source at which the function that holds an instruction was inlined, the outermost first."""
    found: list[Call] = []
    at = (
        None
        if instruction.location is None or instruction.location.file not in module.files
        else module.users_location(instruction.location)
    )
    while at is not None and at.inlined_into is not None and len(found) < _MOST_INLINED:
        at = at.inlined_into
        if module.files.get(at.file) in module.sources:
            found.append(Call("", module.files[at.file], at.line))
    return tuple(reversed(found))


class _Arrays:
    """Names of the arrays that the addresses of a kernel point into."""

    def __init__(self, module: Module, function: Function) -> None:
        self._names = parameter_names(module, function) if function.is_entry else ()
        arguments = len(function.params) if function.convention is None else len(function.convention.arguments)
        places = pointer_parameters(function.params, function.convention, [True] * arguments) or []
        self._arguments = {place: position for position, place in enumerate(places)}
        self._members = _pointer_members(module, function) if function.is_entry else {}

    def __call__(self, bases: tuple[Base, ...]) -> dict[str, Any]:
        """Return the fields of a site whose address points into these objects; empty unless there is exactly one, or one structure."""
        parameters = {base[0] if isinstance(base, tuple) else base for base in bases}
        if len(parameters) != 1:
            return {}
        (base,) = bases if len(bases) == 1 else parameters
        if isinstance(base, tuple):
            whole = self((base[0],))
            member = self._members.get(base, "")
            return {**whole, "array": f"{whole['array']}.{member}"} if member and whole.get("array") else whole
        if isinstance(base, str):
            return {} if base.startswith(_LOCAL) else {"array": demangle(base).rpartition("::")[2]}
        position = self._arguments.get(base)
        if position is None:
            return {}
        return {"argument": position, "array": self._names[position] if position < len(self._names) else ""}


def _pointer_members(module: Module, kernel: Function) -> Mapping[tuple[int, int], str]:
    """Return the pointers in the structures among a kernel's parameters: (parameter, offset in bytes) -> member, such as `inner.from`.

    Structures whose layout cannot be read from the source, or has another size than the parameter, are left out.
    """
    if kernel.convention is not None or all(one.shape is None for one in kernel.params):
        return {}
    found: dict[tuple[int, int], str] = {}
    texts = list(module.sources.values())
    for position, (one, kind) in enumerate(zip(kernel.params, parameter_types(module, kernel), strict=False)):
        members = pointer_members(texts, kind.removeprefix("const ").rpartition("::")[2]) if one.shape is not None else None
        if members is not None and members.nbytes == one.nbytes:
            found |= {(position, offset): name for offset, name in members.names.items()}
    return found


def _site_or_reason(module: Module, function: Function, index: int, instruction: Instruction, used: bool, number: int) -> Site | str:
    """Return the site, or the reason why an access is not one; empty for instructions that do not access memory or only access
    parameters."""
    wait, access = wait_of(instruction), memory_access(instruction)
    nbytes: int | None
    if is_product(instruction):
        kind, space, nbytes = "product", "shared", product_bytes(instruction)
    elif wait:
        kind, space, nbytes = "wait", space_of(wait), 0
    elif access is None or access.space == "param":
        return ""
    else:
        # A copy counts as global, where it spends its time: its other end is always shared memory.
        kind, space = ("copy", "global") if access.asynchronous else (access.kind, access.space)
        nbytes = 0 if is_bulk(instruction) or instruction.opcode == "wmma" else access.nbytes
    if kind in _BESIDE:
        return _BESIDE[kind]
    assert nbytes is not None, instruction.name
    if kind == "atomic" and not used:
        kind = "reduction"
    return Site(number, function.title, index, *place_of(module, instruction), instruction.name, kind, space, nbytes)


def live_results(function: Function) -> Mapping[int, tuple[str, ...]]:
    """Map the index of each memory instruction to the registers that it fills and that are live after it."""
    originals = list(function.instructions())
    flow = ControlFlow(flatten_scopes(function))
    liveness = Liveness(flow)
    live: dict[int, tuple[str, ...]] = {}
    for block in flow.blocks:
        if not any(instruction.form.addresses for instruction in block.instructions):
            continue
        behind = set(liveness.live_out(block.index))
        for index, instruction in reversed(list(enumerate(block.instructions, block.first))):
            names = zip(_results(instruction), _results(originals[index]), strict=True)
            live[index] = tuple(original for flattened, original in names if flattened.partition(".")[0] in behind)
            behind.difference_update(overwrites(instruction))
            behind.update(registers_read(instruction))
    return live


def _results(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers that receive what is loaded, components of vector registers by their full name."""
    access = memory_access(instruction)
    return () if access is None else tuple(name for operand in access.results for name in components(operand))


def place_of(module: Module, instruction: Instruction) -> tuple[str, int, int]:
    """Return file, line and column in the user's source, or in the PTX if there is no line information.

    For code of a library header it is the user's call of it, if known.
    """
    at = instruction.location
    if at is not None and at.file in module.files:
        at = module.users_location(at)
        return module.files[at.file], at.line, at.column
    span = instruction.span
    return (module.name, span.line, span.column) if span is not None else (module.name, 0, 0)
