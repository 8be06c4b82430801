"""The instructions of a module in its assembled code: which PTX instruction each of them came from.

The assembler keeps a table from its code to the lines of the PTX text. The text is that of `print_module`, so its lines are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from memlane.errors import MemlaneError
from memlane.ptx import Module, parse, print_module
from memlane.sass import Flow, Program, Waiting


@dataclass(frozen=True)
class Assembled:
    """A module and what the assembler made of it. Nodes are those of `memlane.sass.Flow`."""

    module: Module
    program: Program

    @cached_property
    def flow(self) -> Flow:
        return Flow(self.program)

    @cached_property
    def waiting(self) -> Waiting:
        return Waiting(self.flow)

    @cached_property
    def _lines(self) -> Mapping[str, tuple[int, ...]]:
        return instruction_lines(self.module)

    @cached_property
    def _nodes(self) -> Mapping[tuple[str, int], Sequence[int]]:
        """By function and line of the PTX."""
        nodes: dict[tuple[str, int], list[int]] = defaultdict(list)
        for node, one in enumerate(self.flow.nodes):
            if one.ptx_line is not None:
                nodes[self.flow.function_of[node], one.ptx_line].append(node)
        return nodes

    def nodes(self, kernel: str, instruction: int) -> tuple[int, ...]:
        """The nodes made from an instruction of a kernel, by its index among the instructions of the module's kernel.

        Raises MemlaneError if the assembled code has no such kernel, or no table of lines.
        """
        self.check(kernel)
        return tuple(self._nodes.get((kernel, self._lines[kernel][instruction]), ()))

    def check(self, kernel: str) -> None:
        """MemlaneError unless the assembled code has the kernel, with its table of PTX lines."""
        if kernel not in self.program.functions:
            raise MemlaneError(f"the assembled code has no kernel {kernel}; it was not assembled from {self.module.name}")
        if all(one.ptx_line is None for one in self.program.functions[kernel].instructions):
            raise MemlaneError(f"the assembled code of {kernel} has no table of PTX lines; assemble {self.module.name} with memlane.compile")


def instruction_lines(module: Module) -> Mapping[str, tuple[int, ...]]:
    """By the PTX name of each kernel: the line of each of its instructions in the text of `print_module`."""
    printed = parse(print_module(module), module.name)
    lines: dict[str, tuple[int, ...]] = {}
    for name, kernel in printed.kernels.items():
        assert kernel.body is not None
        lines[name] = tuple(one.span.line for one in kernel.body.instructions() if one.span is not None)
    return lines
