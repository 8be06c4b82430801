"""Machine code and facts of a kernel: worked out once, and gone with the module."""

from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import pytest

from memlane.emulate import emulator as module_under_test
from memlane.emulate.code.jit import without_garbage_collection
from memlane.emulate.layers import SMALL_THREADS, layers_for
from memlane.emulate.module_cache import WeakModuleCache
from memlane.launch import Layers
from memlane.ptx import Module, parse
from tests.emulate.running import emulator, program

TEXT = program("add.u32 %r1, %tid, 5; st.global.u32 [%mine], %r1;")


def _compiled(module: Module, layers: Layers = Layers()) -> module_under_test.CompiledKernel:  # noqa: B008
    function = module.kernels["k"]
    return module_under_test.compiled_kernel(module, function, layers_for(layers, module, function), emulator().chip)


def test_code_goes_with_its_module() -> None:
    module = parse(TEXT.replace("5;", "77;"), "gone.ptx")
    code = weakref.ref(_compiled(module).code)
    gc.collect()
    assert code() is not None
    del module
    gc.collect()
    assert code() is None


def test_code_stays_with_the_module_when_what_was_loaded_goes() -> None:
    module, target = parse(TEXT, "stays.ptx"), emulator()
    target.load(module)["k"][1, 32](target.zeros(32, np.uint64))
    first = _compiled(module)
    gc.collect()
    target.load(module)["k"][1, 32](target.zeros(32, np.uint64))
    assert _compiled(module) is first


def test_equal_modules_share_code_which_outlives_either() -> None:
    first, second = parse(TEXT, "same.ptx"), parse(TEXT, "same.ptx")
    shared = _compiled(first)
    assert _compiled(second) is shared
    del first, shared
    gc.collect()
    target = emulator()
    out = target.zeros(32, np.uint64)
    target.load(second)["k"][1, 32](out)
    assert out.numpy().tolist() == list(range(5, 37))


@pytest.mark.parametrize(
    "other", [parse(TEXT, "another name.ptx"), parse(TEXT + "\n// longer", "one.ptx"), parse(TEXT.replace("5;", "6;"), "one.ptx")]
)
def test_modules_of_other_texts_do_not_share(other: Module) -> None:
    """Not even where they say the same: an error would speak of the wrong place."""
    module = parse(TEXT, "one.ptx")
    assert _compiled(module) is not _compiled(other)


def test_layers_have_code_of_their_own() -> None:
    module = parse(TEXT, "layers.ptx")
    kinds = [Layers(), Layers(counts=True), Layers(counts=True, clock=True), Layers(check=True)]
    assert len({id(_compiled(module, layers)) for layers in kinds}) == len(kinds)


def test_small_launches_with_a_clock_take_what_is_compiled_sooner_and_large_ones_do_not() -> None:
    module, target = parse(program("mad.lo.u32 %r1, %tid, %tid, 7; st.global.u32 [%mine], %r1;"), "sizes.ptx"), emulator()
    function, clock = module.kernels["k"], Layers(clock=True)
    of_threads = {threads: layers_for(clock, module, function, threads) for threads in (32, SMALL_THREADS, SMALL_THREADS + 1)}
    assert [layers.quick for layers in of_threads.values()] == [True, True, False]
    assert not layers_for(Layers(counts=True, check=True), module, function, 32).quick
    quick, _, fast = (module_under_test.compiled_kernel(module, function, layers, target.chip) for layers in of_threads.values())
    assert (quick.layers.quick, fast.layers.quick) == (True, False)
    assert module_under_test.compiled_kernel(module, function, of_threads[32], target.chip) is fast  # it is there now, and no slower


@pytest.mark.parametrize("looks", [True, False])
def test_python_looks_for_what_nobody_uses_as_before_once_code_is_written(looks: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if looks else gc.disable)()
        with pytest.raises(RuntimeError, match="in between"), without_garbage_collection():  # noqa: PT012
            assert not gc.isenabled()
            raise RuntimeError("in between")
        assert gc.isenabled() == looks
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork where there are threads, which is what is tried
def test_a_process_forked_while_code_is_written_looks_for_what_nobody_uses() -> None:
    before = gc.isenabled()
    gc.enable()
    try:
        with without_garbage_collection():
            child = os.fork()
            if child == 0:
                os._exit(0 if gc.isenabled() else 7)
            assert not gc.isenabled()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        (gc.enable if before else gc.disable)()


def test_modules_are_forgotten() -> None:
    kept: WeakModuleCache[list[int]] = WeakModuleCache(list)
    module = parse(TEXT, "a.ptx")
    kept.get_or_create(module).append(1)
    assert [things for _, things in kept.items()] == [[1]]
    del module
    gc.collect()
    assert kept.items() == []
    assert kept._kept == {}
