"""Compile CUDA C++, Numba and Triton kernels to PTX, and assemble PTX to a cubin. None of this needs a GPU or a driver.

    cuda(path or text)        returns a Module with the kernels' source names and the text of the source files
    numba(function, types)    returns a Module of one kernel, called with the arguments that Numba users pass
    triton(function, types)   returns a Module of one kernel, whose block size is fixed
    link(...)                 returns one Module made of modules, `.cu` and `.ptx` files, and assembled code
    cuda_to_ptx(...)          compiles CUDA C++ to PTX text
    assemble(module)          returns a Cubin

A `.cu` file becomes PTX in these steps, one module for each:

    sources         reads the file and its author's headers
    tokens          splits text into tokens
    macros          finds the macros that expand to `__device__` and the like
    declarations    splits tokens into declarations, each for the device, the host, or either
    hostcode        blanks the host declarations
    standard        provides stand-ins for standard headers (the non-empty ones are files in `include/`)
    libraries       provides stand-ins for host headers of CUDA's libraries, and names the wheels that contain them
    dialect         rewrites GCC extensions that NVRTC refuses in standard C++
    nvrtc           calls the compiler
    device_launches leaves out device functions that launch kernels, and their callers
    hostbody        finds the parts of a host function that can be left out
    instantiations  finds the template kernels that the host code launches, by compiling that code without the refused parts
    frontend        runs the steps above in order, and cuts further what the compiler refuses
    hints           suggests remedies for a program that does not compile
    build_files     reads which macros and directories of headers the Makefiles near a program pass to its compiler
    conditionals    suggests macros to define where the program's build would define them
    notes           summarizes what was left out
    shipped         finds PTX kept beside its source, for machines without the compiler

`parameter_names` reads the names of a kernel's parameters from its source, `structures` the members of a structure, and `source_launch`
the numbers of a kernel's launch. `longer_rows` recompiles a program with padded rows of an array in shared memory.

Python functions are compiled by `numba_frontend` and `triton_frontend`; both use `python_source`.

`assembler` makes a cubin from PTX, and `cubin` reads each kernel's resource usage from it. `toolkit` finds the optional packages.
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
from memlane.compile.source_launch import SourceLaunch, launch_in_source, split_arguments
from memlane.compile.structures import Member, pointer_members, structure_members, type_aliases
from memlane.compile.triton_frontend import triton

__all__ = [
    "CompiledPtx",
    "Cubin",
    "DeclaredArray",
    "KernelUsage",
    "Member",
    "SourceLaunch",
    "architecture",
    "assemble",
    "assembler_version",
    "cuda",
    "cuda_to_ptx",
    "declared_array",
    "kernel_usage",
    "launch_in_source",
    "link",
    "numba",
    "parameter_names",
    "parameter_types",
    "pointer_members",
    "ptx_module",
    "split_arguments",
    "structure_members",
    "triton",
    "type_aliases",
]
