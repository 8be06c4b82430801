"""Launches in several threads: the results of one thread, where these do not depend on the order of the blocks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from memlane.emulate.run import cores, execution
from memlane.errors import BadAccess, BadLaunch, Deadlock, KernelTrap
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate import test_examples
from tests.emulate.running import emulator, program
from tests.emulate.test_layers import observe

THREADS = 3
BLOCKS, WIDTH = 96, 64
MANY = BLOCKS * WIDTH
COUNTER = """
    mov.u32 %r60, %ctaid.x;
    mov.u32 %r61, %ntid.x;
    mad.lo.u32 %r62, %r60, %r61, %tid;
"""
"""%r60 is the block, %r62 the number of the thread in the grid."""


def launched(body: str, out: np.ndarray, *, blocks: int = BLOCKS, width: int = WIDTH, shared: int = 0, **options: int) -> np.ndarray:
    """What a kernel leaves in its only array."""
    target = emulator(**{"threads": THREADS, **options})
    memory = target.array(out)
    kernel = target.load(parse(program(COUNTER + body), "parallel.ptx"))["k"]
    kernel[blocks, width, target.default_stream, shared](memory)
    return memory.numpy()


@pytest.mark.parametrize(
    ("case", "arguments"),
    [
        (test_examples.test_copies, ("shifted", 4096)),
        (test_examples.test_transposes, ("padded", 100)),
        (test_examples.test_matrix_product, (50,)),
        (test_examples.test_reductions, ("block_sum", "float", np.float32)),
        (test_examples.test_sparse_products, ("csr_warp", 32)),
        (test_examples.test_histograms, ("global_atomics",)),
        (test_examples.test_histograms, ("shared_atomics",)),
        (test_examples.test_stencils, ("marching", (32, 8, 1))),
        (test_examples.test_pointer_chases, ()),
    ],
)
def test_the_examples_in_threads(monkeypatch: pytest.MonkeyPatch, case, arguments) -> None:
    monkeypatch.setattr(test_examples, "emulator", lambda: emulator(threads=THREADS))
    case(*arguments)


# -- atomics -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instruction", "dtype", "start", "expected"),
    [
        ("red.global.add.u32 [%out], %r62", np.uint32, 5, 5 + MANY * (MANY - 1) // 2),
        ("red.add.u64 [%out], 4294967297", np.uint64, 0, MANY * 4294967297),
        ("red.global.min.s32 [%out], %r1", np.int32, 0, -MANY + 1),
        ("red.global.max.u32 [%out], %r62", np.uint32, 7, MANY - 1),
        ("red.global.xor.b32 [%out], %r62", np.uint32, 0, int(np.bitwise_xor.reduce(np.arange(MANY)))),
        ("red.global.or.b64 [%out], %rd1", np.uint64, 1 << 40, (1 << 40) | 8191),
        ("red.global.inc.u32 [%out], 999", np.uint32, 0, MANY % 1000),
        ("red.global.dec.u32 [%out], 999", np.uint32, 999, 999 - MANY % 1000),
        ("red.global.add.f32 [%out], 0f40000000", np.float32, 1, 1 + 2 * MANY),
        ("red.global.add.f64 [%out], 0d3FE0000000000000", np.float64, 0, MANY / 2),
        ("setp.lt.u32 %p1, %tid, 16; @%p1 red.global.add.noftz.f16x2 [%out], 0x38003C00", np.float16, 0, BLOCKS * 16),
    ],
)
def test_no_update_of_one_word_is_lost(instruction: str, dtype: type, start: int, expected: float) -> None:
    out = np.zeros(2, np.uint64).view(dtype)
    out[0] = start
    body = f"neg.s32 %r1, %r62; cvt.u64.u32 %rd1, %r62; {instruction};"
    found = launched(body, out)
    assert found[0] == expected
    if dtype is np.float16:
        assert found[1] == BLOCKS * 8


def test_exchanges_pass_every_value_on_once() -> None:
    out = np.zeros(MANY + 1, np.uint64)
    found = launched(
        """
        cvt.u64.u32 %rd1, %r62;
        add.u64 %rd1, %rd1, 1;
        atom.global.exch.b64 %rd2, [%out], %rd1;
        shl.b64 %rd3, %rd1, 3;
        add.u64 %rd3, %rd3, %out;
        st.global.u64 [%rd3], %rd2;
        """,
        out,
    )
    assert sorted(found.tolist()) == list(range(MANY + 1))


def test_short_words_are_compared_and_exchanged() -> None:
    found = launched(
        """
    again:
        ld.volatile.global.u16 %h1, [%out+2];
        add.u16 %h2, %h1, 3;
        atom.global.cas.b16 %h3, [%out+2], %h1, %h2;
        setp.ne.u16 %p1, %h1, %h3;
        @%p1 bra again;
        """,
        np.zeros(4, np.uint16),
    )
    assert found.tolist() == [0, 3 * MANY % 65536, 0, 0]


# -- waiting for other blocks --------------------------------------------------------------------------------------------------

SPIN_LOCK = """
    setp.ne.u32 %p1, %tid, 0;
    @%p1 bra done;
again:
    atom.global.cas.b32 %r1, [%out], 0, 1;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra again;
    fence.acq_rel.gpu;
    ld.global.u32 %r2, [%out+4];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%out+4], %r2;
    fence.acq_rel.gpu;
    atom.global.exch.b32 %r1, [%out], 0;
done:
"""
TICKET_LOCK = """
    setp.ne.u32 %p1, %tid, 0;
    @%p1 bra done;
    atom.global.add.u32 %r1, [%out], 1;
again:
    ld.acquire.gpu.global.u32 %r3, [%out+8];
    setp.ne.u32 %p2, %r1, %r3;
    @%p2 bra again;
    ld.global.u32 %r2, [%out+4];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%out+4], %r2;
    add.u32 %r3, %r3, 1;
    st.release.gpu.global.u32 [%out+8], %r3;
done:
"""


@pytest.mark.parametrize("lock", [SPIN_LOCK, TICKET_LOCK], ids=["spin", "ticket"])
def test_locks_exclude_blocks_of_other_threads(lock: str) -> None:
    assert launched(lock, np.zeros(4, np.uint32), blocks=500, width=32)[1] == 500


def test_a_scan_that_looks_back_at_the_blocks_before() -> None:
    """Each block adds its number to the sum that the one before it has published in 8 bytes: flag and value."""
    found = launched(
        """
        setp.ne.u32 %p1, %tid, 0;
        @%p1 bra done;
        mul.wide.u32 %rd1, %r60, 8;
        add.u64 %rd1, %rd1, %out;
        mov.u64 %rd2, 0;
        setp.eq.u32 %p2, %r60, 0;
        @%p2 bra publish;
    again:
        ld.relaxed.gpu.global.u64 %rd2, [%rd1+-8];
        setp.eq.u64 %p3, %rd2, 0;
        @%p3 bra again;
    publish:
        cvt.u64.u32 %rd3, %r60;
        add.u64 %rd2, %rd2, %rd3;
        or.b64 %rd2, %rd2, 0x4000000000000000;
        st.relaxed.gpu.global.u64 [%rd1], %rd2;
    done:
        """,
        np.zeros(2000, np.uint64),
        blocks=2000,
        width=32,
    )
    assert np.array_equal(found & 0xFFFFFFFF, np.cumsum(np.arange(2000)))


GRID_BARRIER = """
    mov.u32 %r50, %nctaid.x;
    mul.wide.u32 %rd1, %r60, 4;
    add.u64 %rd1, %rd1, %out;
    mov.u32 %r1, 0;
round:
    add.u32 %r1, %r1, 1;
    mul.lo.u32 %r2, %r1, %r50;
    setp.ne.u32 %p1, %tid, 0;
    @%p1 bra wait;
    st.global.u32 [%rd1+64], %r1;
    fence.sc.gpu;
    atom.global.add.u32 %r3, [%out], 1;
again:
    ld.volatile.global.u32 %r3, [%out];
    setp.lt.u32 %p2, %r3, %r2;
    @%p2 bra again;
wait:
    bar.sync 0;
    add.u32 %r4, %r60, 1;
    rem.u32 %r4, %r4, %r50;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd2, %rd2, %out;
    ld.global.u32 %r5, [%rd2+64];
    setp.lt.u32 %p3, %r5, %r1;
    @%p3 red.global.add.u32 [%out+4], 1;
    setp.lt.u32 %p4, %r1, 3;
    @%p4 bra round;
"""
"""Three times: store the number of the round, wait for all blocks, and count if the neighbour has not stored it."""
NEARLY_ALL_SHARED = 200 << 10


def test_a_grid_that_fills_the_device_meets_at_a_barrier() -> None:
    found = launched(GRID_BARRIER, np.zeros(16 + 132, np.uint32), blocks=132, width=64, shared=NEARLY_ALL_SHARED)
    assert found[:2].tolist() == [3 * 132, 0]
    assert found[16:].tolist() == [3] * 132


def test_blocks_that_pass_barriers_while_they_wait_make_room_for_others() -> None:
    """Each thread of a block looks whether all blocks have come, and all of them look again together."""
    found = launched(
        """
        setp.ne.u32 %p1, %tid, 0;
        mov.u32 %r50, %nctaid.x;
        @!%p1 red.global.add.u32 [%out], 1;
    again:
        bar.sync 0;
        ld.volatile.global.u32 %r1, [%out];
        setp.lt.u32 %p2, %r1, %r50;
        barrier.red.or.pred %p3, 0, %p2;
        @%p3 bra again;
        red.global.add.u32 [%out+4], 1;
        """,
        np.zeros(2, np.uint32),
        blocks=40,
    )
    assert found.tolist() == [40, 40 * WIDTH]


def test_a_grid_that_the_device_does_not_hold_is_no_more_resident_in_threads() -> None:
    with pytest.raises(Deadlock, match="has been looping here for 2,000 iterations"):
        launched(GRID_BARRIER, np.zeros(16 + 133, np.uint32), blocks=133, width=64, shared=NEARLY_ALL_SHARED, patience=2000)


SLOW_WRITER = """
    setp.ne.u32 %p1, %r60, 0;
    @%p1 bra again;
    mov.u32 %r1, 0;
work:
    add.u32 %r1, %r1, 1;
    ld.global.u32 %r2, [%out+8];
    setp.ne.u32 %p2, %r1, 800000;
    @%p2 bra work;
    st.release.gpu.global.u32 [%out], 1;
    bra done;
again:
    ld.acquire.gpu.global.u32 %r1, [%out];
    setp.eq.u32 %p3, %r1, 0;
    @%p3 bra again;
done:
"""


def test_who_waits_for_a_thread_that_works_is_patient() -> None:
    """The second block polls through its patience of 8 turns a thousand times while the first one works."""
    assert launched(SLOW_WRITER, np.zeros(4, np.uint32), blocks=3, width=32, patience=8)[0] == 1


def test_nobody_waits_for_ever_in_vain() -> None:
    body = "again: ld.volatile.global.u32 %r1, [%out]; setp.eq.u32 %p1, %r1, 0; @%p1 bra again;"
    with pytest.raises(Deadlock, match="has been looping here for 1,000 iterations"):
        launched(body, np.zeros(4, np.uint32), patience=1000)


def test_values_are_not_torn() -> None:
    """Blocks write words of equal halves over one another; what is read has equal halves."""
    found = launched(
        """
        cvt.u64.u32 %rd1, %r62;
        mul.lo.u64 %rd1, %rd1, 0x100000001;
        and.b32 %r1, %tid, 3;
        mul.wide.u32 %rd2, %r1, 8;
        add.u64 %rd2, %rd2, %out;
        mov.u32 %r2, 0;
    again:
        st.volatile.global.u64 [%rd2+8], %rd1;
        ld.volatile.global.v2.u32 {%r3, %r4}, [%rd2+8];
        ld.volatile.global.u64 %rd4, [%out+8];
        shr.u64 %rd5, %rd4, 32;
        and.b64 %rd4, %rd4, 0xffffffff;
        setp.ne.u64 %p1, %rd4, %rd5;
        @%p1 red.global.add.u32 [%out], 1;
        add.u32 %r2, %r2, 1;
        setp.ne.u32 %p2, %r2, 100;
        @%p2 bra again;
        """,
        np.zeros(8, np.uint64),
    )
    assert found[0] == 0


# -- ends ----------------------------------------------------------------------------------------------------------------------

ONE_BLOCK_ONLY = "setp.ne.u32 %p1, %r60, 50; @%p1 bra forever; {}; forever: ld.volatile.global.u32 %r1, [%out]; bra forever;"


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (
            "st.global.u32 [%out+80], 1",
            BadAccess,
            r"block \(50, 0, 0\), thread \(0, 0, 0\) wrote 4 bytes at 0x[0-9a-f]+ .*64 bytes past the end",
        ),
        ("trap", KernelTrap, r"block \(50, 0, 0\), thread \(0, 0, 0\) executed trap"),
        ("setp.eq.u32 %p2, %tid, 3; @%p2 bra aside; bar.sync 0; aside: bar.sync 1", Deadlock, r"block \(50, 0, 0\) cannot continue: "),
    ],
    ids=["access", "trap", "barrier"],
)
def test_a_fault_of_one_thread_stops_those_that_would_run_for_ever(fault: str, error: type, message: str) -> None:
    """Soon: within few seconds of the processor, of all threads together."""
    began = time.process_time()
    with pytest.raises(error, match=message):
        launched(ONE_BLOCK_ONLY.format(fault), np.zeros(4, np.uint32))
    assert time.process_time() - began < 5


SCRIPT = """
import threading
from memlane.ptx import parse
from tests.emulate.interrupting import interrupted
from tests.emulate.running import emulator, program

target = emulator(threads=3)
out = target.zeros(32, "u8")
slow = target.load(parse(program("again: ld.volatile.global.u32 %r1, [%mine]; bra again;"), "slow.ptx"))["k"]
quick = target.load(parse(program("st.global.u32 [%mine], 7;"), "quick.ptx"))["k"]
print(interrupted(lambda: slow[1000, 32](out)))
quick[90, 32](out)
print(out.numpy()[:3].tolist(), sum(thread.name == "memlane launch" for thread in threading.enumerate()))
"""


def test_an_interrupt_stops_all_threads() -> None:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["stopped soon", "[7, 7, 7] 0"]


def test_a_launch_in_threads_from_a_thread() -> None:
    """There is no main thread that waits; everything else is as before."""
    script = "import threading\nfrom tests.emulate.test_parallel import launched, np\n"
    script += "thread = threading.Thread(target=lambda: print(launched('red.global.add.u32 [%out], 1;', np.zeros(2, np.uint32))[0]))\n"
    script += "thread.start(); thread.join()"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300).stdout == f"{MANY}\n"


# -- one order -----------------------------------------------------------------------------------------------------------------

FLOAT_SUM = "cvt.rn.f32.u32 %f1, %r62; rcp.approx.f32 %f1, %f1; add.f32 %f1, %f1, 0f3F800000; red.global.add.f32 [%out], %f1;"
TICKETS = "atom.global.add.u32 %r1, [%out], 1; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %out; st.global.u32 [%rd1+4], %r62;"


def test_one_thread_keeps_the_order_of_the_blocks() -> None:
    found = launched(TICKETS, np.zeros(MANY + 1, np.uint32), threads=1)
    assert found[1:].tolist() == list(range(MANY))


@pytest.mark.parametrize(
    "layers", [Layers(counts=True), Layers(clock=True), Layers(check=True), Layers(seed=3)], ids=["counts", "clock", "check", "seed"]
)
def test_what_is_observed_runs_in_one_order(layers: Layers) -> None:
    def once() -> list[int]:
        target = emulator(threads=THREADS)
        out = target.zeros(MANY + 1, np.uint32)
        observe(target.load(parse(program(COUNTER + TICKETS), "t.ptx"))["k"][BLOCKS, WIDTH], out, layers=layers)
        return out.numpy().tolist()

    assert once() == once()


def test_an_emulator_without_threads_is_refused() -> None:
    with pytest.raises(BadLaunch, match="an emulator needs at least 1 thread, got threads=0: pass 1 or more, or leave it out"):
        emulator(threads=0)


@pytest.mark.parametrize(("blocks", "workers"), [(1, 1), (60, 1), (600, 2), (4000, 5)])
def test_as_many_workers_as_pay(monkeypatch: pytest.MonkeyPatch, blocks: int, workers: int) -> None:
    """Of 20 instructions or so and 32 threads a block, and on a machine of 5 cores."""
    seen: list[int] = []
    halt = execution.Halt.run
    monkeypatch.setattr(execution.Halt, "run", lambda self, works, look: (seen.append(len(works)), halt(self, works, look))[1])
    monkeypatch.setattr(execution, "usable_cores", lambda: 5)
    found = launched("red.global.add.u32 [%out], 1;" * 12, np.zeros(2, np.uint32), blocks=blocks, width=32, threads=None)
    assert found[0] == 12 * 32 * blocks
    assert seen == [workers]


@pytest.mark.parametrize(
    ("said", "usable"), [("max 100000", 6), ("250000 100000", 3), ("20000 100000", 1), ("900000 100000", 6), ("nonsense", 6), (None, 6)]
)
def test_a_container_gets_no_more_workers_than_its_share_of_the_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str | None, usable: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    if said is not None:
        (tmp_path / "cpu.max").write_text(said + "\n")
    assert cores.usable_cores() == usable
