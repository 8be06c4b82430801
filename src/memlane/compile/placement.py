"""Check that the assembler aligned dynamic shared memory as declared.

nvJitLink 13.0 aligns it to at most 16 bytes behind the static variables, whatever `.align` says; later versions obey. A cubin does not
record where the dynamic part begins, but that is where its section of shared memory ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlane.compile.cubin import KernelUsage
from memlane.errors import CompileError
from memlane.number_format import plural
from memlane.packages import pip_install
from memlane.ptx import Function, Module, called_functions, names_in

_ALWAYS, _MOST = 16, 1024
"""Alignments in bytes: guaranteed by every assembler, and the largest of a GPU, which reserves the first 1024 bytes of shared memory."""


def check_dynamic_shared(module: Module, kernels: Mapping[str, KernelUsage]) -> None:
    """Raise CompileError if a kernel was assembled with a dynamic variable of shared memory below its declared alignment.

    A kernel that uses several dynamic variables is not checked, because the one in use is unknown.
    """
    dynamic = {name: one for name, one in module.variables.items() if one.space == "shared" and "extern" in one.linkage and not one.nbytes}
    if all(variable.alignment <= _ALWAYS for variable in dynamic.values()):
        return
    for name, usage in kernels.items():
        used = _named(module, module.kernels[name]) & dynamic.keys() if name in module.kernels else frozenset()
        for variable in [dynamic[one] for one in used] if len(used) == 1 else ():
            if beyond := usage.shared_bytes % min(variable.alignment, _MOST):
                raise CompileError(
                    f"the assembler puts the dynamic shared memory {variable.name} of kernel {name} {plural(beyond, 'byte')} behind a "
                    "multiple of "
                    f"the {variable.alignment} that it is declared to be aligned to: install a newer one with: "
                    f"{pip_install('--upgrade', 'nvidia-nvjitlink')}"
                )


def _named(module: Module, kernel: Function) -> set[str]:
    """Return the variables that a kernel and the functions it calls refer to."""
    functions = (kernel, *called_functions(module, kernel))
    return {name for function in functions for one in function.instructions() for operand in one.operands for name in names_in(operand)}
