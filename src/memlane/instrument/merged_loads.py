"""Add the wide load that ptxas forms from adjacent narrow ones in front of them, so that it can be counted.

    ld.shared.f32 %f1, [%r1];              {
    ld.shared.f32 %f2, [%r1+4];              .reg .b64 %ml_wide0, %ml_wide1;
    ld.shared.f32 %f3, [%r1+8];     ->       ld.shared.v2.b64 {%ml_wide0, %ml_wide1}, [%r1];
    ld.shared.f32 %f4, [%r1+12];           }
                                           ld.shared.f32 %f1, [%r1]; ...

Takes a valid module and returns a valid one. Nothing reads the results of the wide load, and it reads only what the others read too, so the
kernel computes the same. Only unguarded loads from shared and global memory are widened: a store would be executed twice, and each guard
belongs to one load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memlane.instrument.registers import PREFIX, Scope
from memlane.instrument.sites import site_table
from memlane.ptx import Address, Block, Function, Instruction, Module, Register, Statement, Symbol
from memlane.ptx.edit import alias, free_prefix, placed, positions_of, rewrite_body, with_items
from memlane.record import Site

_FORMS = {2: "b16", 4: "b32", 8: "b64", 16: "v2.b64"}
"""Vector and type of the wide load, by bytes per lane."""


@dataclass(frozen=True)
class MergedLoads:
    """A module with wide loads added."""

    module: Module
    wide: Mapping[str, Mapping[int, Site]]
    """Wide accesses by the PTX name of the kernel and the index of the instruction in this module, with the number and place of the first
    site that each represents."""
    kept: Mapping[str, Mapping[int, int]]
    """Index in the original kernel of each other instruction, by the PTX name of the kernel and the index in this module."""


def add_merged_loads(module: Module, groups: Iterable[Sequence[int]]) -> MergedLoads | None:
    """Return the module with a wide load for each group that can have one; None if none can.

    `groups`: numbers of sites with adjacent bytes, in that order; each group in one basic block, with the same base.
    """
    table = site_table(module)
    module = table.module
    kernels: dict[str, _MergedKernel] = {}
    wanted = [[table.sites[number] for number in group] for group in groups]
    for name, sites in table.of_kernel.items():
        kernel = module.kernels[name]
        mine = [group for group in wanted if all(sites.get(site.instruction) is site for site in group)]
        mine = [group for group in mine if _can_be_merged(kernel, group)]
        if mine:
            kernels[name] = _with_wide_loads(kernel, mine)
    if not kernels:
        return None
    identity = {name: {index: index for index in range(_length(module.kernels[name]))} for name in module.kernels}
    return MergedLoads(
        with_items(module, {name: kernel.function for name, kernel in kernels.items()}),
        {name: kernel.wide for name, kernel in kernels.items()},
        {name: kernels[name].kept if name in kernels else identity[name] for name in module.kernels},
    )


@dataclass(frozen=True)
class _MergedKernel:
    function: Function
    wide: Mapping[int, Site]
    kept: Mapping[int, int]


def _length(kernel: Function) -> int:
    return len(list(kernel.instructions()))


def _can_be_merged(kernel: Function, group: Sequence[Site]) -> bool:
    """Return whether the accesses of a group are unguarded loads that form one wide load."""
    instructions = list(kernel.instructions())
    first = group[0]
    return (
        sum(site.nbytes for site in group) in _FORMS
        and all((site.kind, site.space) == ("load", first.space) for site in group)
        and first.space in ("global", "shared")
        and all(instructions[site.instruction].guard is None for site in group)
        and isinstance(_address(instructions[first.instruction]).base, Register | Symbol)
    )


def _with_wide_loads(kernel: Function, groups: Sequence[Sequence[Site]]) -> _MergedKernel:
    """Return the kernel with a wide load in front of the first access of each group."""
    originals = list(kernel.instructions())
    prefix = free_prefix(kernel, PREFIX)
    before = {min(site.instruction for site in group): group for group in groups}
    placed_loads: list[tuple[Instruction, Site]] = []

    def rewrite(index: int, instruction: Instruction, scope: Scope) -> Sequence[Statement]:
        if index not in before:
            return (instruction,)
        block, load, site = _wide_load(originals, before[index], prefix)
        placed_loads.append((load, site))
        return (block, instruction)

    function = rewrite_body(kernel, "", rewrite)
    wide = dict(zip(positions_of(function, [load for load, _ in placed_loads]), (site for _, site in placed_loads), strict=True))
    others = [index for index in range(len(originals) + len(wide)) if index not in wide]
    return _MergedKernel(function, wide, {now: was for was, now in enumerate(others)})


def _wide_load(originals: Sequence[Instruction], group: Sequence[Site], prefix: str) -> tuple[Block, Instruction, Site]:
    """Return the block with the wide load, the load, and its site."""
    first, nbytes = group[0], sum(site.nbytes for site in group)
    original = originals[first.instruction]
    address, form = _address(original), _FORMS[nbytes]
    base = address.base
    text = alias(base.name) if isinstance(base, Register) else base.name if isinstance(base, Symbol) else str(base)
    names = [f"%{prefix}wide{number}" for number in range(2 if nbytes == 16 else 1)]
    target = f"{{{', '.join(names)}}}" if len(names) > 1 else names[0]
    statements = placed(
        f".reg .{form.rpartition('.')[2]} {', '.join(names)};\nld.{first.space}.{form} {target}, [{text}+{address.offset}];",
        original.location,
    )
    (load,) = (one for one in statements if isinstance(one, Instruction))
    return Block(tuple(statements)), load, replace(first, op=load.name, nbytes=nbytes)


def _address(instruction: Instruction) -> Address:
    return next(operand for operand in instruction.operands if isinstance(operand, Address))
