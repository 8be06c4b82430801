"""Loads, stores and atomics in every state space."""

from __future__ import annotations

import gc
import itertools
import mmap
from pathlib import Path

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.emulate.run.memory import lazy_zeros
from memlane.errors import BadLaunch, DeviceError
from memlane.launch import Launch
from memlane.ptx import parse
from tests.emulate.running import emulator, program, run
from tests.emulate.spaces import ASKED, WHERE, answers

LANES = np.arange(32, dtype=np.uint64)


@pytest.mark.parametrize(("type_name", "sign"), [("u8", 0), ("s8", 1), ("u16", 0), ("s16", 1), ("u32", 0), ("s32", 1), ("u64", 0)])
@pytest.mark.parametrize("shape", ["dense", "same", "reversed"])
def test_loads_of_every_width_widen_by_their_sign(type_name: str, sign: int, shape: str) -> None:
    dtype = np.dtype(type_name.replace("u", "u").replace("s", "i")[0] + str(int(type_name[1:]) // 8))
    host = np.random.default_rng(3).integers(0, 256, 32 * dtype.itemsize).astype(np.uint8).view(dtype)
    index = {"dense": "%tid", "same": "7", "reversed": "%r2"}[shape]
    body = f"""
        sub.u32 %r2, 31, %tid;
        mov.u32 %r1, {index};
        mad.wide.u32 %rd1, %r1, {dtype.itemsize}, %in;
        ld.global.{type_name} %rd2, [%rd1];
        st.global.u64 [%mine], %rd2;
        ret;"""
    target = emulator()
    out = target.zeros(32, np.uint64)
    text = program(".reg .b64 %in; ld.param.u64 %in, [in];" + body, params=".param .u64 out, .param .u64 in")
    target.load(parse(text))["k"][1, 32](out, target.array(host))
    chosen = {"dense": host, "same": np.repeat(host[7], 32), "reversed": host[::-1]}[shape]
    assert out.numpy().tolist() == chosen.astype(np.int64 if sign else np.uint64).view(np.uint64).tolist()


@pytest.mark.parametrize("threads", [32, 19])
@pytest.mark.parametrize(("vector", "kind"), [("v2", "u32"), ("v4", "u32"), ("v2", "u64"), ("v4", "u8"), ("v2", "u16")])
def test_vectors(threads: int, vector: str, kind: str) -> None:
    """Dense where all lanes take part, lane by lane otherwise: components go to the same places."""
    count, nbytes = int(vector[1]), int(kind[1:]) // 8
    registers = ", ".join(f"%rd{number + 10}" for number in range(count))
    swapped = ", ".join(f"%rd{number + 10}" for number in reversed(range(count)))
    body = f"""
        .reg .b64 %in; ld.param.u64 %in, [in];
        mad.wide.u32 %rd1, %tid, {count * nbytes}, %in;
        mad.wide.u32 %rd2, %tid, {count * nbytes}, %out;
        ld.global.{vector}.{kind} {{{registers}}}, [%rd1];
        st.global.{vector}.{kind} [%rd2], {{{swapped}}};
        ret;"""
    target = emulator()
    host = np.random.default_rng(4).integers(0, 256, threads * count * nbytes).astype(np.uint8).view(f"u{nbytes}")
    out = target.empty(host.size, host.dtype)
    target.load(parse(program(body, params=".param .u64 out, .param .u64 in")))["k"][1, threads](out, target.array(host))
    assert np.array_equal(out.numpy(), host.reshape(threads, count)[:, ::-1].ravel())


def test_inactive_lanes_neither_load_nor_store() -> None:
    """Their addresses lie nowhere."""
    body = """
        setp.lt.u32 %p1, %tid, 5;
        mul.wide.u32 %rd1, %tid, 0x10000000;
        add.u64 %rd1, %rd1, %out;
        selp.u64 %rd1, %mine, %rd1, %p1;
        @%p1 st.global.u32 [%rd1], 6;
        mov.u32 %r1, 1;
        @%p1 ld.global.u32 %r1, [%rd1];
        st.global.u32 [%mine+4], %r1;
        ret;"""
    target = emulator()
    out = target.zeros((32, 2), np.uint32)
    target.load(parse(program(body)))["k"][1, 32](out)
    assert out.numpy().tolist() == [[6, 6]] * 5 + [[0, 1]] * 27


def test_static_shared_variables_are_laid_out_in_order_with_their_alignment() -> None:
    body = """
        mov.u32 %r1, a; mov.u32 %r2, b; mov.u32 %r3, c;
        shl.b32 %r2, %r2, 8; shl.b32 %r3, %r3, 16;
        or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3;
        st.global.u32 [%mine], %r1;
        ret;"""
    before = ".extern .shared .align 4 .b8 c[]; .shared .align 1 .b8 a[3]; .shared .align 16 .b8 b[17];"
    assert set(run(body, before=before, shared=8).tolist()) == {0 | 16 << 8 | 48 << 16}


def test_room_beside_shared_variables_of_inner_braces_is_what_their_layout_leaves() -> None:
    """Narrow ones in front of wide ones leave a gap; the other way round they would not."""
    body = """
        { .shared .align 1 .b8 a[1]; st.shared.u8 [a], 7; }
        { .shared .align 16 .b8 b[16]; mov.u64 %rd1, b; st.global.u64 [%mine], %rd1; }
        ret;"""
    target = emulator()
    kernel, out = target.load(parse(program(body)))["k"], target.zeros(32, np.uint64)
    kernel[1, 32](out)
    assert set(out.numpy().tolist()) == {16}
    assert target.max_shared_bytes(kernel) == target.chip.launch_limits.max_shared_bytes - 32


def test_shared_memory_through_generic_addresses() -> None:
    body = """
        mov.u64 %rd1, s;
        cvta.shared.u64 %rd2, %rd1;
        mad.wide.u32 %rd3, %tid, 4, %rd2;
        st.u32 [%rd3], %tid;
        isspacep.shared %p1, %rd3;
        isspacep.global %p2, %rd3;
        isspacep.global %p3, %out;
        cvta.to.shared.u64 %rd4, %rd3;
        ld.shared.u32 %r1, [%rd4];
        selp.u32 %r2, 100, 0, %p1;
        selp.u32 %r3, 200, 0, %p2;
        selp.u32 %r4, 400, 0, %p3;
        add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
        st.u32 [%mine], %r1;
        ret;"""
    assert run(body, before=".shared .align 4 .b8 s[128];").tolist() == (LANES + 500).tolist()


def test_one_generic_access_may_reach_two_spaces() -> None:
    body = """
        mov.u64 %rd1, s;
        cvta.shared.u64 %rd2, %rd1;
        and.b32 %r1, %tid, 1;
        setp.eq.u32 %p1, %r1, 0;
        mad.wide.u32 %rd3, %tid, 4, %rd2;
        selp.u64 %rd4, %rd3, %mine, %p1;
        st.u32 [%rd4], %tid;
        ld.u32 %r2, [%rd4];
        add.u32 %r2, %r2, 1;
        st.global.u32 [%mine], %r2;
        ret;"""
    assert run(body, before=".shared .align 4 .b8 s[128];").tolist() == (LANES + 1).tolist()


def test_each_thread_has_local_memory_of_its_own() -> None:
    body = """
        .local .align 8 .b8 depot[24];
        mov.u64 %rd1, depot;
        st.local.u32 [%rd1+8], %tid;
        cvta.local.u64 %rd2, %rd1;
        ld.u32 %r1, [%rd2+8];
        add.u32 %r1, %r1, 1;
        st.u32 [%rd2+12], %r1;
        ld.local.v2.u32 {%r2, %r3}, [%rd1+8];
        mad.lo.u32 %r4, %r2, 1000, %r3;
        st.global.u32 [%mine], %r4;
        ret;"""
    assert run(body, threads=70).tolist() == [1000 * thread + thread + 1 for thread in range(70)]


def test_module_variables_have_their_initial_values() -> None:
    before = """
        .global .align 4 .u32 table[2][3] = {{1, 2, 3}, {0x10, 5}};
        .const .align 4 .f32 factors[2] = {0f40000000, 3.5};
        .global .align 8 .u64 where = table+4;
        .global .align 8 .u64 generically[2] = {generic(table)+16, 7};
        .global .align 1 .b8 text[4] = {72, 105, -1};"""
    body = """
        ld.global.u64 %rd1, [where]; ld.global.u32 %r1, [%rd1];
        ld.global.u64 %rd2, [generically]; ld.u32 %r2, [%rd2];
        ld.const.f32 %f1, [factors+4]; cvt.rzi.u32.f32 %r3, %f1;
        ld.global.s8 %r4, [text+2]; ld.global.u8 %r5, [text+3];
        ld.global.u32 %r6, [table+12];
        shl.b32 %r2, %r2, 4; shl.b32 %r3, %r3, 8; shl.b32 %r6, %r6, 12;
        or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r5; or.b32 %r1, %r1, %r6;
        add.u32 %r1, %r1, %r4;
        st.global.u32 [%mine], %r1;
        ret;"""
    assert set(run(body, before=before).tolist()) == {(2 | 5 << 4 | 3 << 8 | 16 << 12) - 1}


def test_symbols_are_found_and_shared_between_launches() -> None:
    target = emulator()
    loaded = target.load(
        parse(program("atom.global.add.u32 %r1, [counter], 1; ret;", before=".visible .global .align 4 .u32 counter = 5;"))
    )
    address, nbytes = target.symbol(loaded, "counter")
    out = target.zeros(1)
    for _ in range(2):
        loaded["k"][2, 50](out)
    value = np.zeros(1, np.uint32)
    target.read(address, value)
    assert (nbytes, value[0]) == (4, 205)
    with pytest.raises(BadLaunch, match="no variable 'nothing' in <ptx>; it has: counter"):
        target.symbol(loaded, "nothing")


def test_parameters_of_every_kind() -> None:
    params = ".param .u64 out, .param .u8 small, .param .f64 real, .param .align 8 .b8 record[12]"
    body = """
        ld.param.u8 %r1, [small];
        ld.param.f64 %fd1, [real]; cvt.rzi.u32.f64 %r2, %fd1;
        ld.param.u32 %r3, [record+8];
        mov.b64 %rd1, record; ld.param.u32 %r4, [%rd1+4];
        add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
        st.global.u32 [%mine], %r1; ret;"""
    target = emulator()
    out = target.zeros(32, np.uint64)
    record = np.array([1, 20, 300], np.uint32)
    target.load(parse(program(body, params=params)))["k"][1, 32](out, 4, 5000.0, record)
    assert set(out.numpy().tolist()) == {5324}


ATOMICS = {
    "add.u32": (lambda old, value: (old + value) % 2**32, 5),
    "min.s32": (lambda old, value: min(old, value), 3),
    "max.u64": (lambda old, value: max(old, value), 3),
    "and.b32": (lambda old, value: old & value, 0b1111),
    "or.b32": (lambda old, value: old | value, 0b0001),
    "xor.b64": (lambda old, value: old ^ value, 0b1001),
    "exch.b32": (lambda old, value: value, 7),
    "inc.u32": (lambda old, value: 0 if old >= value else old + 1, 10),
    "dec.u32": (lambda old, value: value if old == 0 or old > value else old - 1, 10),
}


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_come_one_after_another_in_lane_order(name: str, space: str) -> None:
    combine, factor = ATOMICS[name]
    bits = name[-2:]
    register = "%r" if bits == "32" else "%rd"
    body = f"""
        mov.u64 %rd10, {"s" if space == "shared" else "%out"};
        st.{space}.u64 [%rd10], 12;
        bar.sync 0;
        mad.lo.u32 %r1, %tid, {factor}, 1;
        cvt.u64.u32 %rd1, %r1;
        setp.ne.u32 %p1, %tid, 3;
        mov.b{bits} {register}2, 99;
        @%p1 atom.{space}.{name} {register}2, [%rd10], {register}1;
        st.global.b{bits} [%mine+8], {register}2;
        ret;"""
    target = emulator()
    out = target.zeros(33, np.uint64)
    target.load(parse(program(body, before=".shared .align 8 .b8 s[8];")))["k"][1, 32](out)
    value, expected = 12, []
    for lane in range(32):
        expected.append(99 if lane == 3 else value)
        value = value if lane == 3 else combine(value, lane * factor + 1)
    assert out.numpy()[1:].tolist() == expected


def test_floating_point_atomics_and_reductions() -> None:
    body = """
        cvt.rn.f32.u32 %f1, %tid; cvt.rn.f64.u32 %fd1, %tid;
        red.global.add.f32 [%out], %f1;
        red.global.add.f64 [%out+8], %fd1;
        ret;"""
    target = emulator()
    out = target.zeros(2, np.uint64)
    target.load(parse(program(body)))["k"][1, 64](out)
    assert out.numpy().view(np.float32)[0] == out.numpy().view(np.float64)[1] == 64 * 63 / 2


def test_fresh_memory_is_poisoned() -> None:
    assert emulator().empty(3, np.uint32).numpy().tolist() == [0xA5A5A5A5] * 3
    assert (
        run("ld.shared.u32 %r1, [s]; st.global.u32 [%mine], %r1; ret;", before=".shared .align 4 .b8 s[4];").tolist() == [0xA5A5A5A5] * 32
    )


def test_addresses_are_aligned_apart_and_never_used_again() -> None:
    target = emulator()
    seen = []
    for nbytes in (1, 5000, 256):
        array = target.empty(nbytes, np.uint8)
        assert array.address % 256 == 0
        seen.append((array.address, nbytes))
        del array
    for (low, nbytes), (following, _) in itertools.pairwise(seen):
        assert following - (low + nbytes) >= 256
    with pytest.raises(DeviceError, match="do not lie in an allocation"):
        target.read(seen[0][0], np.zeros(1, np.uint8))


def test_launches_follow_each_other_in_a_graph_and_are_timed() -> None:
    target = emulator()
    out = target.zeros(32, np.uint64)
    call = target.load(parse(program("ld.global.u32 %r1, [%mine]; add.u32 %r1, %r1, %tid; st.global.u32 [%mine], %r1; ret;")))["k"][1, 32]
    launch: Launch = call.bind(out)
    first, second = target.time_launches([launch] * 2)
    assert out.numpy().tolist() == (2 * LANES).tolist()
    assert first.elapsed_ns > second.elapsed_ns > 0
    assert first.model is not None
    graph = target.graph([launch] * 3)
    assert out.numpy().tolist() == (2 * LANES).tolist()
    graph.replay()
    graph.replay()
    assert out.numpy().tolist() == (8 * LANES).tolist()
    with pytest.raises(BadLaunch, match=r"^replays on emulator:h200 are not timed: BoundPlan.time models when steps run$"):
        graph.times_ns()


def test_addresses_know_their_space() -> None:
    """Kernel parameters lie in the window of global memory; constant memory does not."""
    found = [{space for space, yes in zip(ASKED, row, strict=True) if yes} for row in answers(emulator()).tolist()]
    assert dict(zip(WHERE, found, strict=True)) == {
        "const": {"const"},
        "global": {"global"},
        "shared": {"shared"},
        "local": {"local"},
        "param": {"param::entry", "global"},
        "global variable": {"global"},
    }


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux what memory a process has")
def test_what_is_touched_here_and_there_takes_little_memory() -> None:
    """As what the checker keeps of each word and each block is: in large pages it would be all of it."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before, sparse = resident(), lazy_zeros(256 << 20)
    sparse[:: 1 << 21] = 1
    assert resident() - before < 32 << 20
    assert (len(sparse), int(sparse[1]), int(sparse[1 << 21])) == (256 << 20, 0, 1)


@pytest.mark.parametrize("name", ["mark_all_written", "table"])
def test_memory_may_be_freed_wherever_the_garbage_collector_strikes(name: str) -> None:
    """At each place of a method of the shadows where Python asks for memory, the last array of a ring of references is found to be free."""
    target = emulator()
    kept = [target.empty(4, np.uint8) for _ in range(40)]
    thresholds, looks, freed = gc.get_threshold(), gc.isenabled(), 0
    gc.collect()
    gc.freeze()
    try:
        for later in range(60):
            gc.collect()  # It forgets the tuples that Python keeps for reuse, which would not be asked for anew.
            gc.disable()
            ring: list[object] = [target.empty(4, np.uint8)]
            ring.append(ring)
            del ring
            before = len(target.shadows.freed)
            gc.set_threshold(gc.get_count()[0] + later, *thresholds[1:])
            gc.enable()
            getattr(target.shadows, name)()
            freed += len(target.shadows.freed) > before
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        (gc.enable if looks else gc.disable)()
    assert freed > 0
    assert len(kept) == 40


def test_a_module_of_32_bit_addresses_is_refused() -> None:
    module = parse(".version 8.0\n.target sm_80\n.address_size 32\n.visible .entry k(.param .u32 p) { ret; }\n", "old.ptx")
    with pytest.raises(BadLaunch, match=r"^old.ptx has addresses of 32 bits \(.address_size\), which emulator:.* does not run"):
        emulator().load(module)


def test_a_device_has_as_much_memory_as_its_chip_or_as_given() -> None:
    chip = load("gtx480")
    assert Emulator(chip).free_bytes() == chip.dram_bytes
    target = Emulator(chip, memory_bytes=1000)
    array = target.zeros(200, "u1")
    assert target.free_bytes() == 800
    sentence = r"^not enough free device memory for 801 bytes: 800 of 1,000 bytes are free; free arrays, or allocate less$"
    with pytest.raises(DeviceError, match=sentence):
        target.empty(801, "u1")
    del array
    assert target.free_bytes() == 1000
    target.empty(1000, "u1")


def test_a_register_of_128_bits_is_loaded_and_stored_whole() -> None:
    """From a parameter to local memory, from global through shared memory, and back as sums of the halves."""
    body = """
        .reg .b128 %q<4>; .shared .b128 s[32]; .local .b128 l[2];
        mov.u32 %r1, s; shl.b32 %r2, %tid, 4; add.u32 %r1, %r1, %r2; mul.wide.u32 %rd1, %tid, 16; add.u64 %rd1, %rd1, %out;
        ld.param.b128 %q3, [two+16]; st.local.b128 [l+16], %q3; ld.local.b128 %q3, [l+16];
        ld.global.b128 %q1, [%rd1]; st.shared.b128 [%r1], %q1; ld.volatile.shared.b128 %q2, [%r1];
        mov.b128 {%rd2, %rd3}, %q2; mov.b128 {%rd4, %rd5}, %q3;
        add.u64 %rd2, %rd2, %rd4; add.u64 %rd3, %rd3, %rd5;
        mov.b128 %q1, {%rd2, %rd3}; st.release.gpu.global.b128 [%rd1], %q1; ret;"""
    target = emulator()
    data = np.arange(64, dtype=np.uint64)
    out = target.array(data)
    module = parse(program(body, params=".param .u64 out, .param .align 16 .b8 two[32]"))
    target.load(module)["k"][1, 32](out, np.array([1, 2, 1000, 2000], np.uint64).tobytes())
    assert (out.numpy() == data + np.tile([1000, 2000], 32)).all()
