"""Records that go through shared memory are the records that go straight to the buffer, and as many are lost."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from memlane.audit import prove
from memlane.compile import assemble
from memlane.errors import MemlaneError
from memlane.instrument import STAGE_RECORDS, TraceOptions, buffer_layout, stage_bytes, trace, unstaged_bytes
from memlane.instrument.decode import Decoded
from memlane.ptx import print_module
from tests.instrument.kernels import EXAMPLES, example, kernel
from tests.instrument.running import Run
from tests.instrument.test_batch_reservations import BODY, KERNELS, LAYOUTS, loads, looped, rows

pytestmark = pytest.mark.slow

WIDE = buffer_layout(9, 400, 800)
STAGED = {
    "less than a stage": f"mov.u32 %r2, 0; {loads(3)} st.global.u32 [%rd4+8192], %r2; ret;",
    "many stages": f"mov.u32 %r2, 0; {looped(loads(7), 12)} st.global.u32 [%rd4+8192], %r2; ret;",
    "lanes leave early": "mov.u32 %r2, 0; "
    + loads(5)
    + " setp.gt.u32 %p1, %r1, 20; @%p1 ret; "
    + loads(4)
    + " setp.lt.u32 %p2, %r1, 2; @%p2 ret; "
    + loads(3)
    + " st.global.u32 [%rd4+8192], %r2; ret;",
    "two parts": KERNELS["two parts"],
}


@cache
def run(name: str, block: int = 80) -> Run:
    """Three blocks, whose last warp has 16 lanes."""
    return Run(kernel(BODY + STAGED[name]), "k", 3, block, (np.arange(4096, dtype=np.uint32),))


def staged(name: str, block: int = 80, layout: object = WIDE) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint32]], Decoded]:
    result, found, _ = run(name, block).traced(layout=layout, staging="shared", shared_bytes=stage_bytes(0, -(-block // 32)))  # type: ignore[arg-type]
    return result, found


SLOW = ("lanes leave early", "many stages")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in STAGED])
def test_the_same_records(name: str) -> None:
    result, found = staged(name)
    expected_result, expected, _ = run(name).traced(layout=WIDE)
    assert found.lost == expected.lost == 0
    assert rows(found) == rows(expected)
    assert np.array_equal(result, expected_result)
    assert (np.diff(found.records["start"])[np.diff(found.records["slice"]) == 0] >= 0).all()
    assert (found.records["end"] > found.records["start"]).all()


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("name", ["many stages", "two parts"])
def test_kept_and_lost_are_all_there_is(name: str, layout: object) -> None:
    everything = len(staged(name, 32, LAYOUTS[0])[1].records)
    _, found = staged(name, 32, layout)
    assert len(found.records) + found.lost == everything
    assert found.warps["kept"].sum() == len(found.records)


@pytest.mark.parametrize("given", [0, 16, 24, 8 + 3 * 512 - 16])
def test_without_the_memory_for_it_records_go_straight_to_the_buffer(given: int) -> None:
    """Also a launch whose own memory has the mark of one with stages by chance, but no room for them."""
    result, found, _ = run("many stages").traced(layout=WIDE, staging="shared", shared_bytes=given)
    expected_result, expected, _ = run("many stages").traced(layout=WIDE)
    assert rows(found) == rows(expected)
    assert np.array_equal(result, expected_result)


def test_without_a_buffer_nothing_is_recorded_and_the_same_computed() -> None:
    result, found, _ = run("two parts").traced(staging="shared", shared_bytes=stage_bytes(0, 3))
    assert len(found.records) == 0
    assert np.array_equal(result, run("two parts").plain())


OWN = """
.reg .b64 %rd<6>; .reg .b32 %r<12>;
.shared .align 4 .b8 fixed[20];
ld.param.u64 %rd1, [p];
mov.u32 %r1, %tid.x;
mov.u32 %r2, fixed;
mov.u32 %r3, own;
shl.b32 %r4, %r1, 2;
add.u32 %r5, %r3, %r4;
st.shared.u32 [%r5], %r1;
st.shared.u32 [%r2+16], 77;
bar.sync 0;
xor.b32 %r6, %r4, 4;
add.u32 %r6, %r6, %r3;
ld.shared.u32 %r7, [%r6];
ld.shared.u32 %r8, [%r2+16];
add.u32 %r7, %r7, %r8;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r7;
st.global.u32 [%rd1+1024], %r3;
ret;
"""


def test_shared_memory_of_the_kernel_stays_where_it_is() -> None:
    """Dynamic memory of 4-byte alignment and an odd size behind a static array; the last word stored is its address."""
    module = kernel(OWN, before=".extern .shared .align 4 .b8 own[];")
    launched = Run(module, "k", 1, 96, (np.zeros(300, np.uint32),))
    plain, alone, _ = launched.traced(layout=WIDE, staging="global", shared_bytes=4 * 96 + 12)
    result, found, _ = launched.traced(layout=WIDE, staging="shared", shared_bytes=stage_bytes(4 * 96 + 12, 3))
    assert np.array_equal(result, plain)
    assert result[:96].tolist() == [(lane ^ 1) + 77 for lane in range(96)]
    assert rows(found) == rows(alone)
    assert len(found.records) == 3 * 6


def test_the_proof_holds_wherever_the_record_goes() -> None:
    """The store of a record has a generic address then, and the same clocks in it."""
    module = example(next(path for path in EXAMPLES if path.stem == "spmv"))
    verdicts = []
    for staging in ("global", "shared"):
        traced = trace(module, TraceOptions(staging=staging))
        verdicts.append([(proof.site, proof.completeness, proof.reason) for proof in prove(traced, assemble(traced.module).data)])
    assert verdicts[0] == verdicts[1]
    assert sum(completeness == "complete" for _, completeness, _ in verdicts[1]) == 34


def test_the_mark_of_a_launch_with_stages() -> None:
    for own in (0, 4, 8, 100, 4096, 4104):
        assert stage_bytes(own, 4) % 16 == 8
        assert own + 16 + 4 * 512 <= stage_bytes(own, 4) <= own + 4 * 512 + 40
        assert unstaged_bytes(own) % 16 != 8
        assert 0 <= unstaged_bytes(own) - own <= 8
    assert STAGE_RECORDS * 32 == 512


def test_options_without_stages_say_why() -> None:
    assert TraceOptions(staging="shared").stages
    assert TraceOptions(staging="global").no_stages == "as asked"
    assert TraceOptions.of(staging="shared", executions="1-3").no_stages == "a window of executions is traced"
    assert TraceOptions.of("consume", staging="shared").no_stages == "the scheme consume uses shared memory itself"
    assert "memlane_dynamic" not in print_module(
        trace(kernel(OWN, before=".extern .shared .b8 own[];"), TraceOptions(staging="global")).module
    )
    with pytest.raises(MemlaneError, match="unknown staging 'l1'; choose from auto, shared, global"):
        TraceOptions(staging="l1")
