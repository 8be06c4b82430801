"""CUDA C++, Numba and Triton to PTX, and PTX to a cubin. None of this needs a GPU or a driver.

    cuda(path or text)        a Module, with the names of kernels and the text of the sources
    numba(function, types)    a Module of one kernel, which is called as Numba's users do
    triton(function, types)   a Module of one kernel, whose block is known
    link(...)                 one Module of several, of `.cu` and `.ptx` files and of assembled code
    cuda_to_ptx(...)          the same as text
    assemble(module)          a Cubin

How a `.cu` file becomes PTX, one module for each step:

    sources         reads the file and the headers of its author
    tokens          text to tokens
    macros          which macros stand for `__device__`
    declarations    tokens to declarations, each for the device, the host, or either
    hostcode        blanks what is for the host
    standard        stand-ins for standard headers (those with a text are in `include/`)
    libraries       the same for headers of CUDA's libraries, and the wheels that have them
    dialect         what GCC's dialect has and NVRTC refuses, in standard C++
    nvrtc           the compiler
    device_launches leaves out the functions that launch kernels from the device, and their callers
    hostbody        the parts of a host function that may be left out
    instantiations  which template kernels the host code launches: the compiler reads it, without these parts
    frontend        the above in order; cuts further what the compiler refuses
    hints           what to do about a program that does not compile
    conditionals    the same where a macro of the program's build is missing
    notes           what was left out, in few lines
    shipped         PTX that lies beside its source, for machines without the compiler

What the arguments of a kernel are called in its source is said by `parameter_names`, and what a structure consists of by `structures`;
`longer_rows` compiles a program again with rows of an array in shared memory that are padded.

How a Python function does: `numba_frontend` and `triton_frontend`, and for both `python_source`.

PTX becomes a cubin through `assembler`, with `cubin` to read what each kernel needs. `toolkit` finds the optional packages.
"""

from __future__ import annotations

from memlane.compile.assembler import Cubin, architecture, assemble, assembler_version
from memlane.compile.cubin import KernelUsage, kernel_usage
from memlane.compile.frontend import CompiledPtx, cuda_to_ptx
from memlane.compile.linking import link, ptx_module
from memlane.compile.longer_rows import DeclaredArray, declared_array
from memlane.compile.module import cuda
from memlane.compile.numba_frontend import numba
from memlane.compile.parameter_names import parameter_names, parameter_types
from memlane.compile.structures import Member, structure_members, type_aliases
from memlane.compile.triton_frontend import triton

__all__ = [
    "CompiledPtx",
    "Cubin",
    "DeclaredArray",
    "KernelUsage",
    "Member",
    "architecture",
    "assemble",
    "assembler_version",
    "cuda",
    "cuda_to_ptx",
    "declared_array",
    "kernel_usage",
    "link",
    "numba",
    "parameter_names",
    "parameter_types",
    "ptx_module",
    "structure_members",
    "triton",
    "type_aliases",
]
