"""Python threads that share an emulator, or only the code that it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from memlane.emulate.check.shadows import _Shadow
from memlane.emulate.code.build import I64, Emit, Value, constant
from memlane.emulate.runtime.helper import Helper, compile_helpers, invoke
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate.machine import callable_of
from tests.emulate.running import emulator, program
from tests.emulate.test_layers import observe

# Two shapes of access that no other test uses, so that the threads must compile what stands behind them.
BODY = """
    ld.global.u64 %rd1, [%mine];
    atom.global.and.b64 %rd2, [%mine], 0x7fffffffffffff;
    add.u64 %rd1, %rd1, 1;
    st.global.u64 [%mine], %rd1;
"""


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in so many threads that begin at once; what one of them raises is raised here."""
    errors: list[BaseException] = []
    ready = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            ready.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_compile_and_launch_on_emulators_of_their_own() -> None:
    results: dict[int, list[int]] = {}

    def work(number: int) -> None:
        target = emulator()
        out = target.array(np.arange(64, dtype=np.uint64))
        seen = observe(target.load(parse(program(BODY), "t.ptx"))["k"][1, 32], out, layers=Layers(counts=True, accesses=True, clock=True))
        assert seen.accesses is not None
        assert len(seen.accesses) == 3
        results[number] = out.numpy().tolist()

    _in_threads(4, work)
    expected = [*range(1, 33), *range(32, 64)]
    assert [results[number] for number in range(4)] == [expected] * 4


def test_threads_take_turns_on_one_emulator() -> None:
    target = emulator()
    kernel = target.load(parse(program(BODY), "t.ptx"))["k"]
    out = target.zeros(32, np.uint64)

    def work(number: int) -> None:
        for _ in range(20):
            kernel[1, 32](out)
            scratch = target.zeros(number + 1, np.uint64)
            assert not scratch.numpy().any()

    _in_threads(3, work)
    # A plain read, add and write: updates would be lost if two launches ran at a time.
    assert out.numpy().tolist() == [60] * 32


def test_a_helper_that_could_not_be_built_is_built_at_the_next_try() -> None:
    attempts: list[int] = []

    def build_inner(e: Emit, x: Value) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise MemoryError("the first time")
        e.ret(e.add(x, constant(I64, 1)))

    inner = Helper("memlane_test_fails_once", I64, (I64,), build_inner)
    outer = Helper("memlane_test_calls_it", I64, (I64,), lambda e, x: e.ret(invoke(e, inner, x)))
    with pytest.raises(MemoryError, match="the first time"):
        compile_helpers([outer])
    assert callable_of(outer)(41) == 42


@pytest.mark.parametrize(("method", "checked"), [("materialise", True), ("mark_all_written", False)])
def test_an_allocation_may_be_freed_while_a_launch_looks_through_them(monkeypatch: pytest.MonkeyPatch, method: str, checked: bool) -> None:
    """As the garbage collector, or another thread, may do at any time."""
    target = emulator()
    out = target.zeros(32, np.uint64)
    doomed = [target.empty(4), target.empty(4), target.empty(4)]
    address = doomed[-1].address
    original = getattr(_Shadow, method)

    def free_another(shadow: _Shadow) -> object:
        doomed.clear()
        return original(shadow)

    monkeypatch.setattr(_Shadow, method, free_another)
    observe(target.load(parse(program(BODY), "t.ptx"))["k"][1, 32], out, layers=Layers(check=checked))
    assert out.numpy().tolist() == [1] * 32
    assert address not in target.shadows.table()["low"]
