"""Map the machine instructions of a module to the PTX instructions that they came from.

ptxas keeps a table from its code to the lines of the PTX text. The text is the output of `print_module`, so its lines are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from memlane.errors import MemlaneError
from memlane.ptx import Function, Module, is_product, once_for_each, parse, print_module, product_bytes
from memlane.record import Site
from memlane.sass import Access, Flow, Program, Scoreboards, disassemble, memory_access
from memlane.walks import reachable

_SPACES = {
    "global": {"global", "generic"},
    "shared": {"shared", "generic"},
    "shared::cluster": {"shared", "generic"},
    "local": {"local", "generic"},
    "generic": {"generic", "global", "shared", "local"},
    "const": {"const"},
    "tex": {"tex"},
    "surf": {"surface"},
}
"""Spaces of the machine accesses that an access to each PTX space may become."""
COMBINES = frozenset({"VOTE", "VOTEU", "REDUX", "POPC", "UPOPC", "UFLO", "FLO", "MATCH", "SHFL"})
"""Opcodes with which the lanes of a warp choose a leader and get its result."""


def program_of(assembled: bytes | Program) -> Program:
    """Return the program in a cubin; raises the errors of `disassemble`."""
    return disassemble(assembled) if isinstance(assembled, bytes) else assembled


@dataclass(frozen=True)
class AssembledModule:
    """A module and the machine code that ptxas made of it. Nodes are those of `memlane.sass.Flow`."""

    module: Module
    program: Program
    _inlined: dict[str, bool] = field(default_factory=dict, repr=False)

    @cached_property
    def flow(self) -> Flow:
        return Flow(self.program)

    @cached_property
    def scoreboards(self) -> Scoreboards:
        return Scoreboards(self.flow)

    def lines(self, kernel: str) -> tuple[int, ...]:
        """Return the line of each instruction of a function in the PTX text that was assembled."""
        return self._lines[kernel]

    @cached_property
    def _lines(self) -> Mapping[str, tuple[int, ...]]:
        return instruction_lines(self.module)

    @cached_property
    def _nodes(self) -> Mapping[tuple[str, int], Sequence[int]]:
        """Reachable nodes by function and line of the PTX.

        Padding behind the end of a function, which carries the line of its last instruction, is excluded.
        """
        nodes: dict[tuple[str, int], list[int]] = defaultdict(list)
        executed = reachable(self.flow.entries, lambda node: self.flow.successors[node])
        for node, one in enumerate(self.flow.nodes):
            if one.ptx_line is not None and node in executed:
                nodes[self.flow.function_of[node], one.ptx_line].append(node)
        return nodes

    def nodes(self, kernel: str, instruction: int) -> tuple[int, ...]:
        """Return the nodes made from an instruction of a kernel, by its index among the instructions of the module's kernel.

        Raises MemlaneError if the machine code has no such kernel, or no table of lines.
        """
        self.check(kernel)
        return tuple(self._nodes.get((kernel, self._lines[kernel][instruction]), ()))

    def accesses(self, kernel: str, instruction: int, space: str) -> Mapping[int, Access]:
        """Return the memory accesses made from an instruction that accesses `space`, by node.

        Other accesses on its line that only prepare it, such as the load of a constant that is part of the address, are left out.
        """
        if (kernel, instruction) in self._products:
            self.check(kernel)
            return self._products[kernel, instruction]
        found = {node: memory_access(self.flow.nodes[node]) for node in self.nodes(kernel, instruction)}
        wanted = _SPACES[space]
        return {node: one for node, one in found.items() if one is not None and one.space in wanted and one.kind != "product"}

    @cached_property
    def _products(self) -> Mapping[tuple[str, int], Mapping[int, Access]]:
        """Accesses made from each product of a warpgroup, by function and index of the product.

        ptxas gives products the lines of other products. Fences keep theirs (`WARPGROUP.ARRIVE`), and products keep their order behind a
        fence: where each copy of a fence is followed by as many products of the same sizes as in the PTX, they are matched in order. Where
        ptxas puts a fence before each product, because they may not overlap, the products of the function are matched in order. Otherwise
        none is matched.
        """
        found: dict[tuple[str, int], dict[int, Access]] = {}
        for name, function in self.module.functions.items():
            groups = _products_behind_fences(function)
            found.update({(name, index): {} for indices in groups.values() for index, _ in indices})
            if name not in self.program.functions or not groups:
                continue
            copies = self._arrivals(name)
            if in_turn := self._match_in_order(groups, copies):
                found.update({(name, index): {node: access} for index, node, access in in_turn})
                continue
            for fence, products in groups.items():
                made = [] if fence is None else copies.get(self._lines[name][fence], [])
                if all([one.nbytes for _, one in copy] == [nbytes for _, nbytes in products] for copy in made):
                    for copy in made:
                        for (index, _), (node, access) in zip(products, copy, strict=True):
                            found[name, index][node] = access
        return found

    def _match_in_order(
        self, groups: Mapping[int | None, list[tuple[int, int]]], copies: Mapping[int, list[list[tuple[int, Access]]]]
    ) -> list[tuple[int, int, Access]]:
        """Return (index, node, access) for each product, matched in order, where every fence of the machine code has one product behind it.

        Empty unless the products are as many and as wide as those of the PTX, in the same order.
        """
        behind = [copy for made in copies.values() for copy in made]
        wanted = [one for indices in groups.values() for one in indices]
        made = sorted((one for copy in behind for one in copy), key=lambda one: one[0])
        if any(len(copy) != 1 for copy in behind) or [access.nbytes for _, access in made] != [nbytes for _, nbytes in wanted]:
            return []
        return [(index, node, access) for (index, _), (node, access) in zip(wanted, made, strict=True)]

    def _arrivals(self, name: str) -> Mapping[int, list[list[tuple[int, Access]]]]:
        """Return, by line of a fence, the products behind each copy of it up to the next fence, in the order of the code."""
        copies: dict[int, list[list[tuple[int, Access]]]] = defaultdict(list)
        current: list[tuple[int, Access]] = []
        for node in self.flow.nodes_of(name):
            one = self.flow.nodes[node]
            access = memory_access(one) if one.opcode.endswith("GMMA") else None
            if one.opcode == "WARPGROUP" and "ARRIVE" in one.modifiers and one.ptx_line is not None:
                current = []
                copies[one.ptx_line].append(current)
            elif access is not None:
                current.append((node, access))
        return copies

    def is_combined(self, function: str, instruction: int) -> bool:
        """Return whether the lanes first combine their operands."""
        return any(self.flow.nodes[node].opcode in COMBINES for node in self.nodes(function, instruction))

    def is_inlined(self, function: str) -> bool:
        """Return whether ptxas inlined code of a called function somewhere, so that its calls cannot be told apart."""
        if function not in self._inlined:
            lines = set(self._lines[function])
            moved = any(name != function and line in lines for name, line in self._nodes)
            self._inlined[function] = moved or function not in self.program.functions
        return self._inlined[function]

    def check(self, kernel: str) -> None:
        """Raise MemlaneError unless the machine code has the kernel, with its table of PTX lines."""
        if kernel not in self.program.functions:
            raise MemlaneError(f"the assembled code has no kernel {kernel}; it was not assembled from {self.module.name}")
        if all(one.ptx_line is None for one in self.program.functions[kernel].instructions):
            raise MemlaneError(
                f"the assembled code of {kernel} has no table of PTX lines; assemble {self.module.name} with memlane.compile"
            )


def is_like(site: Site, access: Access | None) -> bool:
    """Return whether a machine access may belong to a site by kind, space and width; a texture fetch may leave out components."""
    if access is None or access.space not in _SPACES[site.space] or access.kind != site.kind:
        return False
    return access.nbytes == site.nbytes or (site.space == "tex" and access.nbytes < site.nbytes)


def _products_behind_fences(function: Function) -> Mapping[int | None, list[tuple[int, int]]]:
    """Return (index, bytes per lane) of the products behind each fence of a warpgroup, by the fence; None for those before it."""
    groups: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
    fence = None
    for index, one in enumerate(function.instructions()):
        if one.opcode == "wgmma" and one.has("fence"):
            fence = index
        elif is_product(one):
            groups[fence].append((index, product_bytes(one)))
    return groups


@once_for_each
def instruction_lines(module: Module) -> Mapping[str, tuple[int, ...]]:
    """Return the line of each instruction of each function in the text of `print_module`, by PTX name of the function."""
    printed = parse(print_module(module), module.name)
    lines: dict[str, tuple[int, ...]] = {}
    for name, function in printed.functions.items():
        lines[name] = tuple(one.span.line for one in function.instructions() if one.span is not None)
    return lines
