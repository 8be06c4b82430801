"""LLVM: text in, callable machine code out. One engine for the process."""

from __future__ import annotations

import threading
from functools import cache

import llvmlite.binding as llvm


class Engine:
    """Compiles modules and links them by symbol name, in the order they come."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
        )
        start = llvm.parse_assembly("")
        start.triple = self.machine.triple
        self._engine = llvm.create_mcjit_compiler(start, self.machine)
        self._lock = threading.RLock()

    def add(self, text: str, *, optimize: bool) -> None:
        """Compile a module. Its functions are callable once `address` was asked for one of them."""
        with self._lock:
            module = llvm.parse_assembly(text)
            if optimize:
                options = llvm.create_pipeline_tuning_options(speed_level=2)
                options.loop_vectorization = False
                options.slp_vectorization = False
                llvm.create_pass_builder(self.machine, options).getModulePassManager().run(
                    module, llvm.create_pass_builder(self.machine, options)
                )
            self._engine.add_module(module)
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Entry address of a function."""
        with self._lock:
            return int(self._engine.get_function_address(name))


@cache
def engine() -> Engine:
    """The engine of this process, made on first use."""
    return Engine()
