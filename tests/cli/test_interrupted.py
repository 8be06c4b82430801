"""Launches that Ctrl-C or a GPU ends: what was collected until then is reported, where it is still there."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from memlane.cli.failure import failure_of, failure_of_script, finished
from memlane.errors import CommandError, DeviceError, KernelTrap, LaunchError
from memlane.record import load
from tests.cli.conftest import Command
from tests.cli.test_broken_off import START, flowing

ENDLESS = """
import _thread
text = '''.version 8.0
.target sm_90
.address_size 64
.visible .entry spin(.param .u64 out) {
    .reg .b64 %rd1;
    .reg .b32 %r1;
    .reg .pred %p1;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, 1;
    st.global.u32 [%rd1 + 128], %r1;
more:
    ld.global.u32 %r1, [%rd1];
    setp.ne.u32 %p1, %r1, 99;
    @%p1 bra more;
    ret;
}
'''
spin = target.load(ml.parse(text, "spin.ptx"))["spin"]
import numpy as np
spin[1, 1](target.array(np.full(64, 99, "u4")))  # ends at once: from now on it is compiled
threading.Timer(0.2, _thread.interrupt_main).start()
spin[1, 1](out)
"""


def test_what_an_interrupted_launch_did_is_reported(memlane: Command) -> None:
    """The launch never ends, and writes behind its array first."""
    Path("job.py").write_text(START + ENDLESS)
    answer = memlane("check", "job.py")
    assert (answer.code, answer.err) == (130, "memlane: interrupted\n")
    assert answer.lines[0] == "1. out of bounds, spin"
    assert "Checked 3 launches of fill, spin: 1 finding." in answer.out


@pytest.mark.parametrize("command", ["count", "trace"])
def test_what_came_before_an_interrupted_launch_is_reported(memlane: Command, command: str) -> None:
    Path("job.py").write_text(START + ENDLESS.replace("%rd1 + 128", "%rd1 + 64"))
    answer = memlane(command, "job.py")
    assert (answer.code, answer.err.splitlines()[-1]) == (130, "memlane: interrupted")
    assert answer.out.count("spin.ptx; " + ("grid 1" if command == "count" else "1 launch")) == 1
    assert "The program failed: interrupted." in flowing(answer.out)
    if command == "trace":
        assert [launch.kernel for launch in load("job.parquet").launches] == ["fill", "spin"]
        assert sorted(os.listdir()) == ["job.parquet", "job.py"]


def test_a_second_one_ends_what_a_gpu_may_never_finish() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    handler = partial(signal.getsignal, signal.SIGINT)
    assert finished(handler, failure_of(KeyboardInterrupt())) is signal.SIG_DFL
    assert finished(handler, failure_of(LaunchError("another failure"))) is signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_gpu_that_failed_takes_along_what_it_counted() -> None:
    """Nothing can be read from it any more; a failure of the script itself is told as it is."""

    def unreadable() -> None:
        raise DeviceError("the context is gone")

    error = KernelTrap("kernel k trapped")
    error.add_note("reached from job.py:3: k()")
    with pytest.raises(KernelTrap, match=r"^kernel k trapped. The records until then are lost with the GPU memory") as raised:
        finished(unreadable, failure_of(error))
    assert raised.value.__notes__ == ["reached from job.py:3: k()"]
    stopped = failure_of_script(Path("job.py"), "job.py", SystemExit(3))
    with pytest.raises(CommandError, match=r"^job.py stopped with exit code 3$"):
        finished(unreadable, stopped)
    with pytest.raises(DeviceError):
        finished(unreadable, None)
