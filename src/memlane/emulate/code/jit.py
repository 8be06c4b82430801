"""LLVM: text in, callable machine code out. One thread at a time makes code.

The engine of the process holds what stays: the runtime. What may go again, the code of a kernel, has an engine of its own, because LLVM
gives the memory of code back with its engine only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cache

import llvmlite.binding as llvm

QUICK_ABOVE = 2_000_000
"""Length of a module's text above which it is compiled without optimising the machine code: register allocation of a function with
thousands of blocks takes more than its square, and ten seconds of it are never won back."""
LOCK = threading.RLock()
"""Held by whoever makes code: from the choice of what there is to compile until the others may know that it is there."""


class Code:
    """One function with the module that it lies in. Its memory is given back when nobody refers to this any more."""

    def __init__(self, text: str, name: str) -> None:
        with LOCK:
            self._engine = _fresh_engine(_machine(2))
            _add(self._engine, llvm.parse_assembly(text), len(text))
            self.address = int(self._engine.get_function_address(name))


class Engine:
    """Compiles modules that stay, and links them by symbol name, in the order they come; `Code` is linked to them too."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._machine = _machine(2)
        self._engine = _fresh_engine(self._machine)

    def add(self, text: str, names: Iterable[str]) -> None:
        """Compile and optimise a module, and let all code find its functions `names`."""
        with LOCK:
            module = llvm.parse_assembly(text)
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = False
            options.slp_vectorization = False
            passes = llvm.create_pass_builder(self._machine, options)
            passes.getModulePassManager().run(module, llvm.create_pass_builder(self._machine, options))
            _add(self._engine, module, len(text))
            for name in names:
                llvm.add_symbol(name, self.address(name))

    def address(self, name: str) -> int:
        """Entry address of a function."""
        with LOCK:
            return int(self._engine.get_function_address(name))


def _fresh_engine(machine: llvm.TargetMachine) -> llvm.ExecutionEngine:
    start = llvm.parse_assembly("")
    start.triple = machine.triple
    return llvm.create_mcjit_compiler(start, machine)


def _add(engine: llvm.ExecutionEngine, module: llvm.ModuleRef, length: int) -> None:
    """Make machine code of a module whose text has this length."""
    if length > QUICK_ABOVE:
        engine.add_object_file(llvm.ObjectFileRef.from_data(_machine(0).emit_object(module)))
    else:
        engine.add_module(module)
    engine.finalize_object()


def _machine(level: int) -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=level, jit=True
    )


@cache
def _engine() -> Engine:
    return Engine()


def engine() -> Engine:
    """The engine of this process, made on first use."""
    with LOCK:
        return _engine()
