"""LLVM: text in, object file out; object file in, callable machine code out. One thread at a time makes code.

The engine of the process holds what stays: the runtime. What may go again, the code of a kernel, has an engine of its own, because LLVM
gives the memory of code back with its engine only.
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
"""Length of a module's text above which it is compiled without optimising the machine code: register allocation of a function with
thousands of blocks takes more than its square, and ten seconds of it are never won back."""
LOCK = threading.RLock()
"""Held by whoever makes code: from the choice of what there is to compile until the others may know that it is there."""


@contextmanager
def writing() -> Iterator[None]:
    """While code is written, Python does not look for unreachable objects: the text of a kernel is some 100,000 objects that are all in
    use, and looking through them again and again took a sixth of the time. The caller holds LOCK, so no other thread of memlane does this
    meanwhile; what other code wishes of the collector in the same second is lost."""
    looks = gc.isenabled()
    gc.disable()
    if looks:
        _pauses.append(True)
    try:
        yield
    finally:
        if looks:
            gc.enable()
            _pauses.clear()


_pauses: list[bool] = []
"""Something while the collector rests for the sake of `writing`."""


def _go_on_looking() -> None:
    """In a process that was made by a fork while another thread wrote code: nobody would ever turn its collector on again."""
    if _pauses:
        _pauses.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on_looking)


def translated(text: str, quick: bool = False) -> bytes:
    """The object file of a module, whose instructions are kept as they are; `quick`: of code that need not be fast."""
    is_large = len(text) > QUICK_ABOVE
    with LOCK:
        if (quick or is_large) and _may_abort():
            return (is_large and _emitted_apart(text)) or bytes(_emitter(1).emit_object(llvm.parse_assembly(text)))
        return bytes(_emitter(0 if quick or is_large else 2).emit_object(llvm.parse_assembly(text)))


def optimised(text: str) -> bytes:
    """The object file of a module after LLVM's passes."""
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
    """What decides the machine code of any text: versions, the processor with its features, and memlane's own code."""
    version = ".".join(map(str, llvm.llvm_version_info))
    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvm.get_default_triple()
    return "\n".join((llvmlite.__version__, version, *processor, SOURCES))


class Code:
    """One function of an object file. Its memory is given back when nobody refers to this any more."""

    def __init__(self, object_file: bytes, name: str) -> None:
        with LOCK:
            self._engine = _fresh_engine()
            self.address = _add(self._engine, object_file, name)


class Engine:
    """Loads functions that stay, and lets all code that is loaded later find them by their names."""

    def __init__(self) -> None:
        self._engine = _fresh_engine()

    def add(self, object_file: bytes, name: str) -> None:
        """Load an object file with a function of this name."""
        with LOCK:
            llvm.add_symbol(name, _add(self._engine, object_file, name))

    def address(self, name: str) -> int:
        """Entry address of a function."""
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
    """Whether the processor is one for which LLVM 22 aborts the process ("Node is not in map") on some masked vectors at level 0: with AVX2
    and without AVX-512. Level 1 does not; it takes half as long again for small texts, and ten times as long for large ones."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx2") and not features.get("avx512f"))


@cache
def can_gather() -> bool:
    """Whether the processor has instructions that load and store 32 lanes at addresses of their own."""
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


def _emitted_apart(text: str) -> bytes:
    """The object file of a text at level 0, written by a process of its own, which may abort; then it is empty."""
    done = subprocess.run([sys.executable, "-c", _EMITTER], input=text.encode(), capture_output=True)
    return done.stdout if done.returncode == 0 else b""


@cache
def _emitter(level: int) -> llvm.TargetMachine:
    return _machine(level)


def _machine(level: int) -> llvm.TargetMachine:
    """A machine, which belongs to the engine that it is given to."""
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
    """The engine of this process, made on first use."""
    with LOCK:
        return _engine()
