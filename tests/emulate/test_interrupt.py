"""Ctrl-C and other errors of Python while a launch runs: it stops soon, raises what struck, and leaves memory as it was."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from memlane.emulate.observe import observation_arrays
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate.running import emulator, program
from tests.emulate.test_layers import observe

# Runs for minutes, without ever spending a budget, in blocks that each take long enough.
SLOW = """
    mov.u32 %r1, 0;
again:
    ld.global.u32 %r2, [%mine];
    add.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 1000000;
    @%p1 bra again;
    st.global.u32 [%mine], %r2;
"""
SCRIPT = f"""
import sys
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate.interrupting import interrupted
from tests.emulate.running import emulator, program
from tests.emulate.test_layers import observe

target = emulator()
out = target.zeros(32, "u8")
slow = target.load(parse(program('''{SLOW}'''), "slow.ptx"))["k"]
quick = target.load(parse(program("st.global.u32 [%mine], 7;"), "quick.ptx"))["k"]
layers = Layers(**{{name: True for name in sys.argv[1].split(",") if name}})
print(interrupted(lambda: observe(slow[100000, 32], out, layers=layers)))
quick[1, 32](out)
print(out.numpy()[:3].tolist())
"""


@pytest.mark.parametrize("layers", ["", "counts,accesses", "counts,accesses,clock", "check"])
def test_an_interrupt_stops_a_launch_in_any_layer(layers: str) -> None:
    """It strikes when the launch is said to run, however long it takes to compile. Soon means of the processor's time."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", SCRIPT, layers], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["stopped soon", "[7, 7, 7]"]


def test_an_error_in_what_generated_code_calls_stops_the_launch_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = 0

    def failing(*arguments: object) -> np.ndarray:
        nonlocal pages
        pages += 1
        if pages == 3:
            raise KeyboardInterrupt("in a callback")
        return np.zeros(*arguments)

    monkeypatch.setattr(observation_arrays, "_page", failing)
    target = emulator()
    out = target.zeros(32, np.uint64)
    slow = target.load(parse(program(SLOW), "slow.ptx"))["k"]
    with pytest.raises(KeyboardInterrupt, match="in a callback"):
        observe(slow[100000, 32], out, layers=Layers(counts=True, accesses=True))
    assert pages == 3  # it went no further
    monkeypatch.undo()
    target.load(parse(program("st.global.u32 [%mine], 7;"), "quick.ptx"))["k"][1, 32](out)
    assert out.numpy().tolist() == [7] * 32


def test_a_launch_of_another_thread_stops_at_such_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    target = emulator()
    out = target.zeros(32, np.uint64)
    slow = target.load(parse(program(SLOW), "slow.ptx"))["k"]
    errors: list[BaseException] = []
    pages = [np.zeros(observation_arrays.PAGE_ROWS, observation_arrays.ACCESS_DTYPE)]

    def work() -> None:
        try:
            observe(slow[100000, 32], out, layers=Layers(counts=True, accesses=True))
        except BaseException as error:
            errors.append(error)

    monkeypatch.setattr(observation_arrays, "_page", lambda *_: pages.pop())  # the second page is an IndexError
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(300)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [IndexError]
