"""Compiles LLVM text to object files, and loads object files as callable machine code. One thread at a time makes code.

The engine of the process holds what stays: the runtime. The code of a kernel may be freed, so it has its own engine, because LLVM frees the
memory of code only together with its engine.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import llvmlite
import llvmlite.binding as llvm

from memlane.emulate.code.store import SOURCES

QUICK_ABOVE = 2_000_000
"""Length of a module's text above which it is compiled without optimising the machine code: the time of register allocation grows more than
quadratically with thousands of blocks in a function, and ten seconds of it are never won back."""
LOCK = threading.RLock()
"""Lock held while code is made: from the decision what to compile until other threads may see the result."""


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Suspend Python's garbage collection while code is generated. The text of a kernel is some 100,000 objects that are all in use, and
    scanning them repeatedly took a sixth of the time. The caller holds LOCK, so no other thread of memlane does this at the same time;
    changes to the collector by other code in the same second are lost."""
    was_enabled = gc.isenabled()
    gc.disable()
    if was_enabled:
        _pauses.append(True)
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
            _pauses.clear()


_pauses: list[bool] = []
"""Not empty while `without_garbage_collection` suspends the garbage collector."""


def _enable_collection() -> None:
    """Enable the garbage collector in a process that was forked while another thread generated code: nothing else would enable it."""
    if _pauses:
        _pauses.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enable_collection)


def compile_text(text: str, quick: bool = False) -> bytes:
    """Return the object file of a module, compiled without LLVM's passes; `quick`: the code need not be fast."""
    is_large = len(text) > QUICK_ABOVE
    with LOCK:
        if (quick or is_large) and _may_abort():
            return (is_large and _compile_in_subprocess(text)) or bytes(_emitter(1).emit_object(llvm.parse_assembly(text)))
        return bytes(_emitter(0 if quick or is_large else 2).emit_object(llvm.parse_assembly(text)))


def compile_optimised(text: str) -> bytes:
    """Return the object file of a module after LLVM's passes."""
    with LOCK:
        machine, module = _emitter(2), llvm.parse_assembly(text)
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = False
        options.slp_vectorization = False
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(module, passes)
        return bytes(machine.emit_object(module))


@cache
def fingerprint() -> str:
    """Return what determines the machine code of any text: versions, the processor with its features, and memlane's own source."""
    version = ".".join(map(str, llvm.llvm_version_info))
    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvm.get_default_triple()
    return "\n".join((llvmlite.__version__, version, *processor, SOURCES))


class Code:
    """One function of an object file. Its memory is freed with this object."""

    def __init__(self, object_file: bytes, name: str) -> None:
        with LOCK:
            self._engine = _fresh_engine()
            self.address = _add(self._engine, object_file, name)


class Engine:
    """Loads functions that stay, and lets all code that is loaded later resolve them by name."""

    def __init__(self) -> None:
        self._engine = _fresh_engine()

    def add(self, object_file: bytes, name: str) -> None:
        """Load an object file with a function of this name."""
        with LOCK:
            llvm.add_symbol(name, _add(self._engine, object_file, name))

    def address(self, name: str) -> int:
        """Return the entry address of a function."""
        with LOCK:
            return int(self._engine.get_function_address(name))


def _add(engine: llvm.ExecutionEngine, object_file: bytes, name: str) -> int:
    engine.add_object_file(llvm.ObjectFileRef.from_data(object_file))
    engine.finalize_object()
    return int(engine.get_function_address(name))


def _fresh_engine() -> llvm.ExecutionEngine:
    machine = _machine(2)
    start = llvm.parse_assembly("")
    start.triple = machine.triple
    return llvm.create_mcjit_compiler(start, machine)


@cache
def _may_abort() -> bool:
    """Return whether LLVM 22 aborts the process ("Node is not in map") on some masked vectors at level 0 on this processor: one with AVX2
    and without AVX-512. Level 1 does not; it takes half as long again for small texts, and ten times as long for large ones."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx2") and not features.get("avx512f"))


@cache
def can_gather() -> bool:
    """Return whether the processor has instructions that load and store 32 lanes at separate addresses."""
    return bool(llvm.get_host_cpu_features().get("avx512f"))


_EMITTER = """
import sys
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
features = llvm.get_host_cpu_features().flatten()
machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=0, jit=True)
sys.stdout.buffer.write(machine.emit_object(llvm.parse_assembly(sys.stdin.buffer.read().decode())))
"""


def _compile_in_subprocess(text: str) -> bytes:
    """Return the object file of a text at level 0, compiled in a subprocess because it may abort; empty if it did."""
    done = subprocess.run([sys.executable, "-c", _EMITTER], input=text.encode(), capture_output=True)
    return done.stdout if done.returncode == 0 else b""


@cache
def _emitter(level: int) -> llvm.TargetMachine:
    return _machine(level)


def _machine(level: int) -> llvm.TargetMachine:
    """Return a new target machine; it belongs to the engine that takes it."""
    _initialise()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=level, jit=True
    )


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def _engine() -> Engine:
    return Engine()


def engine() -> Engine:
    """Return the engine of this process, created on first use."""
    with LOCK:
        return _engine()
