"""Assemble the generated program of a problem: its kernels as one text, and compiled as a module."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from memlane.compile import cuda
from memlane.errors import CompileError, StencilError
from memlane.ptx import Module
from memlane.stencils.access import combined, helpers
from memlane.stencils.cell import GENERATED
from memlane.stencils.direct import DirectKernel
from memlane.stencils.fused import FusedKernel
from memlane.stencils.problem import Problem

StepKernel = DirectKernel | FusedKernel

FINISH_THREADS = 256


class KernelText(Protocol):
    """Kernel of a program in addition to the kernels of its steps."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Code:
    """Kernels of one problem, and the text that defines them.

    Kernels round operation by operation, as in the rule, and are compiled without contraction of products and sums. Fused multiply-adds are
    explicit in the text where they are requested.
    """

    problem: Problem
    kernels: tuple[StepKernel, ...]
    more: tuple[KernelText, ...] = ()
    """Kernels that make many steps in one launch."""

    @property
    def reducing(self) -> tuple[StepKernel, ...]:
        """Kernels of a step that reduces: the reducing kernel of each rule, if it has one."""
        with_totals = {kernel.rule.name: kernel for kernel in self.kernels if kernel.reductions}
        single = {kernel.rule.name: kernel for kernel in self.kernels if kernel.variant.steps == 1}
        return tuple(with_totals.get(rule.name, single[rule.name]) for rule in self.problem.rules)

    @property
    def name(self) -> str:
        """The name of the text in messages and line tables."""
        return f"<stencil {'+'.join(rule.name for rule in self.problem.rules)}>"

    @cached_property
    def text(self) -> str:
        """The program, with `#line` directives that point at the lines of the rule."""
        parts = [helpers(self.problem)]
        for position, kernel in enumerate(self.kernels):
            parts += [f"namespace step_{position} {{", kernel.text, "}", ""]
            parts += [_finish(kernel)] if kernel.reductions else []
        for position, one in enumerate(self.more):
            parts += [f"namespace steps_{position} {{", one.text, "}", ""]
        lines = "\n".join(parts).splitlines()
        own = self.name.replace('"', "'")
        return "\n".join(f'#line {at + 2} "{own}"' if line.strip() == GENERATED else line for at, line in enumerate(lines)) + "\n"

    @property
    def readable(self) -> str:
        """The program without line directives."""
        return re.sub(r"^#line .*\n", "", self.text, flags=re.MULTILINE)

    def module(self, arch: str) -> Module:
        """Compile the program. Raise StencilError with the line of a rule that the compiler rejects, or MissingDependency."""
        try:
            module = cuda(self.text, name=self.name, arch=arch, options=("-fmad=false",))
        except CompileError as error:
            for rule in self.problem.rules:
                if found := re.search(re.escape(rule.source.name) + r"\((\d+)\)", error.log):
                    raise StencilError(
                        f"{rule.source.name}:{found[1]}: the CUDA compiler refuses what was generated for "
                        f"`{rule.source.line(int(found[1])).strip()}`\n{error.log.strip()}"
                    ) from error
            raise
        return replace(module, sources={**module.sources, **self.sources})

    @property
    def sources(self) -> dict[str, str]:
        """Source texts, by file name in the line table of the compiled program."""
        return {self.name: self.text, **{rule.source.name: rule.source.text for rule in self.problem.rules}}


def _finish(kernel: StepKernel) -> str:
    """Return the kernel that reduces the partial values of the blocks of a step, always in the same order: block b reduces word b."""
    lines = [f'extern "C" __global__ void __launch_bounds__({FINISH_THREADS})']
    lines.append(f"{kernel.finish_name}(double* __restrict__ total, const double* __restrict__ all, int count) {{")
    lines.append("    const double* __restrict__ partial = all + (long long)blockIdx.x * count;")
    position = 0
    for name, kind in kernel.reductions.items():
        words = kernel.words[name]
        first, position = position, position + words
        if words > 1:
            lines += _exact_finish(first, words)
            continue
        start = "0.0" if kind == "sum" else "partial[0]"
        lines += [
            f"    if (blockIdx.x == {first}) {{",
            f"        double value = {start};",
            f"        for (int i = threadIdx.x; i < count; i += {FINISH_THREADS}) value = {combined(kind, 'value', 'partial[i]')};",
            f"        block_reduce_{kind}<{FINISH_THREADS}>(value, threadIdx.x);",
            f"        if (threadIdx.x == 0) total[{first}] = value;",
            "    }",
        ]
    return "\n".join([*lines, "}", ""])


def _exact_finish(first: int, words: int) -> list[str]:
    """Return the text that adds the integer words of the blocks."""
    return [
        f"    if (blockIdx.x >= {first} && blockIdx.x < {first + words}) {{",
        "        __shared__ unsigned long long sum;",
        "        if (threadIdx.x == 0) sum = 0;",
        "        __syncthreads();",
        "        unsigned long long value = 0;",
        f"        for (int i = threadIdx.x; i < count; i += {FINISH_THREADS})",
        "            value += (unsigned long long)__double_as_longlong(partial[i]);",
        "        atomicAdd(&sum, value);",
        "        __syncthreads();",
        "        if (threadIdx.x == 0) total[blockIdx.x] = __longlong_as_double((long long)sum);",
        "    }",
    ]
