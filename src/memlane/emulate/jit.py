"""LLVM: text in, callable machine code out. One engine for the process, and one thread at a time that makes code."""

from __future__ import annotations

import threading
from functools import cache

import llvmlite.binding as llvm

QUICK_ABOVE = 2_000_000
"""Length of a module's text above which it is compiled without optimising the machine code: register allocation of a function with
thousands of blocks takes more than its square, and ten seconds of it are never won back."""
LOCK = threading.RLock()
"""Held by whoever makes code: from the choice of what there is to compile until the others may know that it is there."""


class Engine:
    """Compiles modules and links them by symbol name, in the order they come."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.machine, self._quick = (_machine(level) for level in (2, 0))
        start = llvm.parse_assembly("")
        start.triple = self.machine.triple
        self._engine = llvm.create_mcjit_compiler(start, self.machine)

    def add(self, text: str, *, optimize: bool) -> None:
        """Compile a module. Its functions are callable once `address` was asked for one of them."""
        with LOCK:
            module = llvm.parse_assembly(text)
            if optimize:
                options = llvm.create_pipeline_tuning_options(speed_level=2)
                options.loop_vectorization = False
                options.slp_vectorization = False
                llvm.create_pass_builder(self.machine, options).getModulePassManager().run(
                    module, llvm.create_pass_builder(self.machine, options)
                )
            if len(text) > QUICK_ABOVE:
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(self._quick.emit_object(module)))
            else:
                self._engine.add_module(module)
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Entry address of a function."""
        with LOCK:
            return int(self._engine.get_function_address(name))


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
