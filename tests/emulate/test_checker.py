"""What the checker says of an access, what becomes of the access, and what counts as written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.emulate import Emulator
from memlane.errors import CheckFailed, Deadlock
from memlane.launch import BoundCopy, End, KernelCall, Layers, Observation, Report
from memlane.ptx import parse
from tests.emulate.checking import check, compiled, kinds, line
from tests.emulate.running import emulator, program


def ptx(body: str, *arrays: object, target: Emulator, threads: int = 32, blocks: int = 1, before: str = "") -> tuple[Report, ...]:
    """The reports of a kernel whose parameters are `out` and more arrays `a1`, `a2`, ..., in `%rd61` and on."""
    params = ", ".join([".param .u64 out", *(f".param .u64 a{number}" for number in range(1, len(arrays)))])
    loads = "\n".join(f"ld.param.u64 %rd{60 + number}, [a{number}];" for number in range(1, len(arrays)))
    source = program(loads + body, params=params, before=before)
    return check(target.load(parse(source, "test.ptx"))["k"][blocks, threads], *arrays)


def only(reports: tuple[Report, ...]) -> Report:
    (report,) = reports
    return report


# -- bounds ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [32, 20])
def test_lanes_out_of_bounds_are_left_out_and_the_others_go_on(threads: int) -> None:
    target = emulator()
    out, before = target.zeros(10, np.uint64), target.array(np.full(64, 7, np.uint32))
    report = only(ptx("st.global.u64 [%mine], %mine; ret;", out, target=target, threads=threads))
    assert (report.kind, report.space, report.count, report.nbytes) == ("out of bounds", "global", threads - 10, 8)
    assert report.who.thread == (10, 0, 0)
    assert report.address == out.address + 80
    assert "wrote 8 bytes (st.global.u64)" in str(report)
    assert f"just past the end of the 80-byte allocation at {out.address:#x}, argument 1 (u8[10])" in str(report)
    assert f"({threads - 10} times)" in str(report)
    assert out.numpy().tolist() == [out.address + 8 * lane for lane in range(10)]
    assert before.numpy().tolist() == [7] * 64


def test_a_race_past_the_end_of_an_array_is_told_as_out_of_bounds() -> None:
    """All threads store to the first element of the second array, through the pointer of the first; that they race there is no news."""
    target = emulator()
    first, second = target.zeros(100, np.float32), target.zeros(100, np.float32)
    distance = second.address - first.address
    body = f"mov.u32 %r0, %ctaid.x; add.u64 %rd0, %out, {distance}; st.global.u32 [%rd0], %r0; ret;"
    report = only(ptx(body, first, second, target=target, threads=1, blocks=2))
    assert (report.kind, report.count) == ("out of bounds", 2)
    assert f", {distance - 400:,} bytes past the end of the 400-byte allocation at {first.address:#x}, argument 1 (f4[100])" in str(report)


def test_a_race_past_the_end_of_what_may_be_the_array_names_it() -> None:
    """A number of 8 bytes that was loaded may be an address, so that only the race is certain."""
    target = emulator()
    first, second = target.zeros(100, np.float32), target.zeros(100, np.float32)
    distance = second.address - first.address
    second.copy_from(np.frombuffer(np.array([0] * 10 + [distance] + [0] * 39, np.int64).tobytes(), np.float32))
    body = "mov.u32 %r0, %ctaid.x; ld.global.u64 %rd1, [%rd61+80]; add.u64 %rd0, %out, %rd1; st.global.u32 [%rd0], %r0; ret;"
    report = only(ptx(body, first, second, target=target, threads=1, blocks=2))
    assert report.kind == "data race"
    assert f", {distance - 400:,} bytes past the end of the 400-byte allocation at {first.address:#x}, argument 1 (f4[100])" in str(report)


def test_a_load_that_is_left_out_gives_zero() -> None:
    target = emulator()
    out, short = target.zeros(32, np.uint64), target.array(np.full(5, 9, np.uint64))
    body = "mad.wide.u32 %rd1, %tid, 8, %rd61; mov.u64 %rd2, 5; ld.global.u64 %rd2, [%rd1]; st.global.u64 [%mine], %rd2; ret;"
    assert kinds(ptx(body, out, short, target=target)) == {("out of bounds", "global")}
    assert out.numpy().tolist() == [9] * 5 + [0] * 27


def test_a_line_that_goes_beyond_two_arrays_is_told_of_both() -> None:
    target = emulator()
    out, short = target.zeros(10, np.uint64), target.array(np.full(5, 9, np.uint64))
    body = "mad.wide.u32 %rd1, %tid, 8, %rd61; ld.global.u64 %rd2, [%rd1]; st.global.u64 [%mine], %rd2; ret;"
    reports = ptx(body, out, short, target=target)
    assert len({report.place for report in reports}) == 1
    assert {(report.memory, report.count) for report in reports} == {("argument 1 (u8[10])", 22), ("argument 2 (u8[5])", 27)}


def test_an_atomic_that_is_left_out_changes_nothing() -> None:
    target = emulator()
    out = target.zeros(1, np.uint32)
    report = only(ptx("mad.wide.u32 %rd1, %tid, 4, %out; atom.global.add.u32 %r1, [%rd1], 1; ret;", out, target=target))
    assert (report.kind, report.count) == ("out of bounds", 31)
    assert "updated 4 bytes (atom.global.add.u32)" in report.what
    assert out.numpy().tolist() == [1]


def test_an_access_to_freed_memory_is_told_from_one_out_of_bounds() -> None:
    target = emulator()
    gone = target.zeros(16, np.uint64)
    pointer, out = target.array(np.array([gone.address + 24], np.uint64)), target.zeros(1, np.uint64)
    del gone
    body = "ld.global.u64 %rd1, [%rd61]; ld.global.u64 %rd2, [%rd1]; st.global.u64 [%out], %rd2; ret;"
    report = only(ptx(body, out, pointer, target=target, threads=1))
    assert report.kind == "use after free"
    assert "24 bytes into an allocation of 128 bytes that was freed" in report.what
    assert "Keep the array alive" in report.remedy


def test_a_misaligned_access() -> None:
    target = emulator()
    report = only(ptx("ld.global.v2.u32 {%r1, %r2}, [%mine+4]; ret;", target.zeros(40, np.uint64), target=target))
    assert (report.kind, report.count) == ("misaligned", 32)
    assert "argument 1 (u8[40])+4, which is not a multiple of 8" in report.what


def test_shared_and_local_memory_have_bounds_also_through_generic_addresses() -> None:
    target = emulator()
    body = """
    .shared .align 4 .b8 s[64]; .local .align 8 .b8 depot[16];
    mov.u64 %rd1, s; cvta.shared.u64 %rd2, %rd1; st.u32 [%rd2+64], %tid;
    mov.u64 %rd3, depot; cvta.local.u64 %rd4, %rd3; st.u32 [%rd4+16], %tid;
    st.local.u32 [%rd3+-4], %tid;
    mov.u64 %rd5, 16; st.global.u32 [%rd5], %tid; ret;"""
    texts = [report.what for report in ptx(body, target.zeros(1), target=target, threads=1)]
    assert len(texts) == 4
    assert any("outside the 64 bytes of shared memory of the block" in text for text in texts)
    assert sum("outside the 16 bytes of local memory of the thread" in text for text in texts) == 2
    assert any("not near any allocation" in text for text in texts)


# -- what was written ------------------------------------------------------------------------------------------------------------


def unread(target: Emulator, array: object, body: str = "mad.wide.u32 %rd1, %tid, 1, %rd61; ld.global.u8 %r1, [%rd1]; ret;") -> int:
    """How many of the first 32 bytes of an array count as never written."""
    reports = ptx(body, target.zeros(32, np.uint64), array, target=target)
    assert kinds(reports) <= {("never written", "global")}
    return sum(report.count for report in reports)


def test_what_the_host_wrote_counts() -> None:
    target = emulator()
    assert unread(target, target.empty(32, np.uint8)) == 32
    assert unread(target, target.zeros(32, np.uint8)) == 0
    assert unread(target, target.array(np.arange(32, dtype=np.uint8))) == 0
    part = target.empty(40, np.uint8)
    target.write(part.address + 3, np.zeros(7, np.uint8))
    assert unread(target, part) == 25
    target.write(part.address + 13, np.zeros(2, np.uint8))
    assert unread(target, part) == 23
    target.clear(part.address, 40)
    assert unread(target, part) == 0


def test_many_small_pieces_count() -> None:
    target = emulator()
    array = target.empty(1000, np.uint8)
    for start in range(0, 1000, 5):
        target.write(array.address + start, np.zeros(2, np.uint8))
    assert unread(target, array) == sum(byte % 5 >= 2 for byte in range(32))


def test_copies_between_arrays_count() -> None:
    target = emulator()
    array, source = target.empty(32, np.uint8), target.zeros(32, np.uint8)
    target.copy(BoundCopy(End(array.address, (1,), target), End(source.address, (1,), target), (20,), 1))
    assert unread(target, array) == 12


def test_what_kernels_wrote_counts_checked_or_not() -> None:
    target = emulator()
    array = target.empty(32, np.uint8)
    body = "mad.wide.u32 %rd1, %tid, 1, %out; setp.lt.u32 %p1, %tid, 10; @%p1 st.global.u8 [%rd1], %tid; ret;"
    assert ptx(body, array, target=target) == ()
    assert unread(target, array) == 22
    target.load(parse(program(body)))["k"][1, 1](array)
    assert unread(target, array) == 0


def test_variables_of_the_module_count() -> None:
    target = emulator()
    body = "mov.u64 %rd1, v; ld.global.u32 %r1, [%rd1+12]; mov.u64 %rd1, c; ld.const.u32 %r2, [%rd1+4]; ret;"
    assert ptx(body, target.zeros(1), target=target, before=".global .u32 v[4] = {1};\n.const .u32 c[2] = {3};") == ()


def test_local_memory_is_fresh_for_each_thread() -> None:
    target = emulator()
    body = """
    .local .align 8 .b8 depot[16];
    mov.u64 %rd1, depot; setp.gt.u32 %p1, %tid, 3; @%p1 st.local.u32 [%rd1+4], %tid; ld.local.u64 %rd2, [%rd1]; ld.local.u32 %r1, [%rd1+4];
    ret;"""
    reports = ptx(body, target.zeros(1), target=target, blocks=3)
    assert {(report.who.op, report.count) for report in reports} == {("ld.local.u64", 24)}
    assert kinds(reports) == {("never written", "local")}


def test_an_element_is_reported_if_none_of_its_bytes_was_written() -> None:
    target = emulator()
    array = target.empty(4, np.uint32)
    target.write(array.address, np.zeros(1, np.uint32))
    assert ptx("ld.global.u64 %rd1, [%rd61]; ret;", target.zeros(1), array, target=target) == ()
    report = only(ptx("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd61]; ret;", target.zeros(1), array, target=target, threads=1))
    assert (report.kind, report.count) == ("never written", 3)


def test_asynchronous_copies_write_shared_memory() -> None:
    target = emulator()
    body = """
    .shared .align 16 .b8 s[512];
    mov.u64 %rd1, s; mad.wide.u32 %rd2, %tid, 16, %rd1; mad.wide.u32 %rd3, %tid, 16, %rd61;
    cvt.u32.u64 %r9, %rd2; cp.async.cg.shared.global [%r9], [%rd3], 16;
    cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
    ld.shared.v2.u64 {%rd4, %rd5}, [%rd2]; st.global.u64 [%mine], %rd4; ret;"""
    assert ptx(body, target.zeros(32, np.uint64), target.zeros(128), target=target) == ()
    found = ptx(body, target.zeros(32, np.uint64), target.zeros(120), target=target)
    assert kinds(found) == {("out of bounds", "global"), ("never written", "shared")}
    assert {report.who.op for report in found} == {"cp.async.cg.shared.global", "ld.shared.v2.u64"}


# -- races -----------------------------------------------------------------------------------------------------------------------


def race(source: str, *arrays: np.ndarray, threads: int = 64, blocks: int = 1) -> tuple[tuple[Report, ...], KernelCall]:
    target = emulator()
    call = target.load(compiled(source))["k"][blocks, threads]
    return check(call, *(target.array(array) for array in arrays)), call


def test_a_race_says_who_where_and_what_to_do() -> None:
    source = """
__global__ void k(int* out) {
    __shared__ int first[8], values[64];
    if (threadIdx.x < 8) first[threadIdx.x] = threadIdx.x;
    values[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = values[threadIdx.x ^ 32];
    if (threadIdx.x < 8) out[threadIdx.x] += first[threadIdx.x];
}"""
    reports, call = race(source, np.zeros(64, np.int32))
    (report,) = (one for one in reports if one.kind == "data race")
    assert report.other is not None
    assert {report.who.line, report.other.line} == {line(call, "values[threadIdx.x] ="), line(call, "values[threadIdx.x ^ 32]")}
    text = str(report)
    assert text.startswith("test.cu:5  data race in k(int*): block (0, 0, 0), thread (32, 0, 0) wrote 4 bytes (st.shared.u32) at 0x")
    assert "of shared memory (values+128), which thread (0, 0, 0) had read at test.cu:6 (ld.shared.u32)" in text
    assert text.endswith("Put __syncthreads() between the two, or use an atomic operation.")


def test_lanes_of_one_warp_need_a_syncwarp() -> None:
    source = """
__global__ void k(int* out) {
    __shared__ int values[32];
    values[threadIdx.x] = threadIdx.x;
    SYNC
    out[threadIdx.x] = values[threadIdx.x ^ 1];
}"""
    (report,), _ = race(source.replace("SYNC", ""), np.zeros(32, np.int32), threads=32)
    assert report.kind == "data race"
    assert report.remedy.startswith("Put __syncwarp()")
    assert race(source.replace("SYNC", "__syncwarp();"), np.zeros(32, np.int32), threads=32)[0] == ()


def test_strong_accesses_do_not_race_with_each_other() -> None:
    source = "__global__ void k(volatile int* out) { out[0] = threadIdx.x; out[1] = out[0]; }"
    assert race(source, np.zeros(2, np.int32), blocks=2)[0] == ()
    mixed = "__global__ void k(int* out) { if (threadIdx.x == 40) out[0] = 5; else atomicAdd(out, 1); }"
    assert kinds(race(mixed, np.zeros(2, np.int32))[0]) == {("data race", "global")}


@pytest.mark.parametrize("blocks", [1, 3])
def test_writes_of_one_value_do_not_race_and_of_two_values_do(blocks: int) -> None:
    source = "__global__ void k(int* out) { out[0] = VALUE; }"
    assert race(source.replace("VALUE", "7"), np.zeros(1, np.int32), blocks=blocks)[0] == ()
    assert kinds(race(source.replace("VALUE", "threadIdx.x"), np.zeros(1, np.int32), blocks=blocks)[0]) == {("data race", "global")}


def test_neighbouring_bytes_do_not_race() -> None:
    source = """
__global__ void k(char* out) {
    __shared__ char bytes[64];
    bytes[threadIdx.x] = threadIdx.x;
    out[threadIdx.x + 64 * blockIdx.x] = bytes[threadIdx.x];
    out[threadIdx.x + 64 * blockIdx.x] += 1;
}"""
    assert race(source, np.zeros(192, np.int8), blocks=3)[0] == ()
    assert kinds(race(source.replace("= threadIdx.x;", "= threadIdx.x; bytes[threadIdx.x & ~1] = 5;"), np.zeros(192, np.int8))[0]) == {
        ("data race", "shared")
    }


def test_launches_are_ordered() -> None:
    target = emulator()
    kernel = target.load(compiled("__global__ void k(int* a) { a[(threadIdx.x + blockIdx.x) % 64] += 0 * blockIdx.x + 1; }"))["k"]
    data = target.zeros(64, np.int32)
    assert check(kernel[1, 64], data) == ()
    assert check(kernel[1, 64], data) == ()
    assert kinds(check(kernel[2, 64], data)) == {("data race", "global")}
    assert check(kernel[1, 64], data) == ()


def test_a_barrier_that_is_not_aligned_may_be_reached_in_several_places() -> None:
    target = emulator()
    body = "setp.lt.u32 %p1, %tid, 40; @%p1 bra HERE; BAR 0; ret; HERE: BAR 0; ret;"
    out = target.zeros(1)
    assert ptx(body.replace("BAR", "barrier.sync"), out, target=target, threads=64) == ()
    report = only(
        ptx(body.replace("BAR 0; ret; HERE", "bar.sync 0; ret;\nHERE").replace("BAR", "bar.sync"), out, target=target, threads=64)
    )
    assert (report.kind, report.count) == ("barrier", 1)
    assert "reached the one at test.ptx:" in report.what


# -- the run ---------------------------------------------------------------------------------------------------------------------


def test_the_first_finding_ends_a_launch_that_is_told_to_stop() -> None:
    target = emulator()
    call = target.load(parse(program("st.global.u64 [%mine], %mine; ret;"), "test.ptx"))["k"][8, 32]
    with pytest.raises(CheckFailed, match=r"^test.ptx:\d+  out of bounds in k: block \(0, 0, 0\), thread \(4, 0, 0\) wrote 8 bytes"):
        target.launch(replace(call.bind(target.zeros(4, np.uint64)), layers=Layers(check=True, stop=True)))


def test_a_launch_that_fails_still_tells_what_was_found_before() -> None:
    target = emulator()
    body = "ld.global.u64 %rd1, [%out+-8]; setp.eq.u32 %p1, %tid, 0; @%p1 bra OTHER; bar.sync 1, 64; ret; OTHER: bar.sync 0, 64; ret;"
    call = target.load(parse(program(body), "test.ptx"))["k"][1, 32]
    seen: list[Observation] = []
    with pytest.raises(Deadlock):
        target.launch(replace(call.bind(target.zeros(4, np.uint64)), layers=Layers(check=True, report=seen.append)))
    assert [kinds(observation.reports or ()) for observation in seen] == [{("out of bounds", "global")}]


def test_checking_goes_with_counts_and_clock() -> None:
    target = emulator()
    call = target.load(parse(program("mov.u32 %r1, %ctaid.x; st.global.u32 [%mine], %r1; ret;"), "test.ptx"))["k"][4, 64]
    seen: list[Observation] = []
    target.launch(
        replace(
            call.bind(target.zeros(60, np.uint64)), layers=Layers(check=True, counts=True, accesses=True, clock=True, report=seen.append)
        )
    )
    (observation,) = seen
    assert observation.cycles
    assert observation.accesses is not None
    assert observation.thread_instructions
    assert kinds(observation.reports or ()) == {("data race", "global"), ("out of bounds", "global")}


def test_a_seed_shuffles_the_turns_of_warps_and_repeats_them() -> None:
    source = "__global__ void k(int* order, int* turn) { if (threadIdx.x % 32 == 0) order[atomicAdd(turn, 1)] = threadIdx.x / 32; }"
    kernel = emulator().load(compiled(source))["k"]

    def order(seed: int | None) -> list[int]:
        target = kernel.target
        out = target.zeros(16, np.int32)
        target.launch(replace(kernel[1, 512].bind(out, target.zeros(1, np.int32)), layers=Layers(seed=seed)))
        return out.numpy().tolist()

    assert order(None) == list(range(16))
    assert sorted(order(1)) == list(range(16))
    assert order(1) == order(1) != order(2)
    assert order(1) != list(range(16))
