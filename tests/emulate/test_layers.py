"""The counting and clock layers: what they report of a launch, and that they change nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import access, load
from memlane.emulate import Emulator
from memlane.emulate.code.build import I32, constant
from memlane.emulate.layers import CompiledLayers
from memlane.emulate.lower.kernel import lowered
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.access import load as load_lanes
from memlane.emulate.semantics import TABLE
from memlane.errors import BadAccess
from memlane.launch import COUNT_FIELDS, KernelCall, Layers, Observation
from memlane.ptx import parse
from tests.emulate.running import LOCK, emulator, example, program

H200 = load("h200")
LATENCY = H200.latency
EVERYTHING = Layers(counts=True, clock=True, accesses=True)


def observe(call: KernelCall, *arguments: object, layers: Layers = EVERYTHING) -> Observation:
    """Run a launch with layers, and give what they saw."""
    told: list[Observation] = []
    seen = call.kernel.target.launch(replace(call.bind(*arguments), layers=replace(layers, report=told.append)))
    assert told == [seen]
    return told[0]


def counted(observation: Observation, name: str) -> list[dict[str, int]]:
    """The counts of the instructions whose name starts so, in order, without the zeros."""
    body = observation.launch.kernel.function.body
    assert body is not None
    rows = [
        (observation.counts[index])
        for index, i in enumerate(body.instructions())
        if i.name.startswith(name) and index in observation.counts
    ]
    return [{field: int(value) for field, value in zip(COUNT_FIELDS, row, strict=True) if value} for row in rows]


def clocked(body: str, *, threads: int = 32, blocks: int = 1, before: str = "", target: Emulator | None = None) -> np.ndarray:
    """What a kernel with clock reads leaves, 8 bytes a thread."""
    target = target or emulator()
    out = target.zeros(threads * blocks, np.uint64)
    target.load(parse(program(body, before=before), "test.ptx"))["k"][blocks, threads](out)
    return out.numpy()


# -- counts ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["h200", "gtx680", "s1070"])
def test_wavefronts_of_an_instruction_whose_lanes_lie_in_another_way_in_each_turn(chip: str) -> None:
    """Also where only the mask changes, or only where the lanes begin."""
    lane, random = np.arange(32), np.random.default_rng(2)
    ways = [
        lane,
        lane,
        lane + 1,
        lane * 2,
        lane * 2 + 32,
        lane * 32,
        lane * 0,
        lane % 16,
        random.permutation(32),
        lane,
        random.integers(0, 1024, 32),
    ]
    turns = [(way, mask) for way in ways for mask in (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFF, 0x80000001)]
    body = """
        .reg .b64 %places, %masks; ld.param.u64 %places, [places]; ld.param.u64 %masks, [masks];
        mad.wide.u32 %rd1, %tid, 4, %places;
        mov.u32 %r1, 0;
    AGAIN:
        ld.global.u32 %r2, [%rd1]; ld.global.u32 %r3, [%masks];
        shl.b32 %r2, %r2, 2; mov.u32 %r4, room; add.u32 %r4, %r4, %r2;
        shr.u32 %r3, %r3, %tid; and.b32 %r3, %r3, 1; setp.ne.u32 %p1, %r3, 0;
        @%p1 ld.shared.u32 %r5, [%r4];
        st.global.u32 [%mine], %r5;
        add.u64 %rd1, %rd1, 128; add.u64 %masks, %masks, 4;
        add.u32 %r1, %r1, 1; ld.param.u32 %r6, [turns]; setp.lt.u32 %p2, %r1, %r6;
        @%p2 bra AGAIN;
        ret;"""
    target = Emulator(load(chip))
    text = program(
        body, params=".param .u64 out, .param .u64 places, .param .u64 masks, .param .u32 turns", before=".shared .b32 room[1056];"
    )
    kernel = target.load(parse(text))["k"]
    places = target.array(np.array([way for way, _ in turns], np.uint32))
    masks = target.array(np.array([mask for _, mask in turns], np.uint32))
    seen = observe(kernel[1, 32], target.zeros(32, np.uint64), places, masks, np.uint32(len(turns)))
    costs = [access.wavefronts(target.chip, (4 * way).astype(np.uint64), mask, 4) for way, mask in turns]
    assert counted(seen, "ld.shared")[0]["wavefronts"] == sum(costs)
    assert seen.accesses is not None
    assert seen.accesses["wavefronts"][seen.accesses["space"] == 1].tolist() == costs


@pytest.mark.parametrize(
    ("name", "store_sectors", "wavefronts"),
    [("naive", 32, None), ("tiled", 4, 32), ("padded", 4, 1)],
)
def test_counts_of_the_transposes(name: str, store_sectors: int, wavefronts: int | None) -> None:
    target, n = emulator(), 64
    out, source = target.empty((n, n)), target.empty((n, n))
    seen = observe(example(target, "transpose")[name][(2, 2), (32, 32)], out, source, n, layers=Layers(counts=True))
    warps = n * n // 32
    same = {"requests": warps, "lanes": n * n, "bytes": 4 * n * n}
    assert counted(seen, "ld.global") == [{**same, "sectors": 4 * warps, "ideal_sectors": 4 * warps}]
    assert counted(seen, "st.global") == [{**same, "sectors": store_sectors * warps, "ideal_sectors": 4 * warps}]
    if wavefronts is not None:
        assert counted(seen, "st.shared") == [{**same, "wavefronts": warps, "ideal_wavefronts": warps}]
        assert counted(seen, "ld.shared") == [{**same, "wavefronts": wavefronts * warps, "ideal_wavefronts": warps}]
    assert seen.accesses is None
    assert seen.cycles is None


def test_guards_branches_and_executed_lanes_are_counted() -> None:
    body = """
        setp.lt.u32 %p1, %tid, 40;
        bra.uni NEXT;
    NEXT:
        @%p1 st.global.u32 [%mine], 1;
        @!%p1 st.global.u32 [%mine], 2;
        @%p1 bra END;
        add.u32 %r1, %r1, 1;
    END:
        ret;"""
    target = emulator()
    out = target.zeros(96, np.uint64)
    seen = observe(target.load(parse(program(body)))["k"][1, 96], out, layers=Layers(counts=True))
    first, second = counted(seen, "st.global")
    assert (first["requests"], first["lanes"], first["sectors"]) == (2, 40, 8 + 2)
    assert (second["requests"], second["lanes"], second["sectors"]) == (2, 56, 6 + 8)
    assert counted(seen, "bra") == [{"requests": 3, "lanes": 96, "divergent": 1}]
    # ld.param, mov, mad, setp, bra; 40 and 56 stores; 40 branches taken; 56 additions; ret.
    assert seen.thread_instructions == 5 * 96 + 40 + 56 + 40 + 56 + 96


def test_generic_accesses_count_where_they_lead() -> None:
    body = """
        mov.u64 %rd1, s; cvta.shared.u64 %rd2, %rd1;
        and.b32 %r1, %tid, 1; setp.eq.u32 %p1, %r1, 0;
        mad.wide.u32 %rd3, %tid, 4, %rd2;
        selp.u64 %rd4, %rd3, %mine, %p1;
        st.u32 [%rd4], %tid;
        ret;"""
    target = emulator()
    out = target.zeros(32, np.uint64)
    seen = observe(target.load(parse(program(body, before=".shared .align 4 .b8 s[128];")))["k"][1, 32], out)
    (store,) = counted(seen, "st.u32")
    # 16 lanes in shared memory, one wavefront; 16 lanes 16 bytes apart, 8 sectors.
    assert (store["requests"], store["lanes"], store["wavefronts"], store["sectors"]) == (1, 32, 1, 8)
    rows = seen.accesses
    assert rows is not None
    assert sorted(zip(rows["space"].tolist(), rows["mask"].tolist(), strict=True)) == [(0, 0xAAAAAAAA), (1, 0x55555555)]


def test_rows_of_accesses_are_all_kept() -> None:
    """More than a page of them."""
    body = """
        mov.u32 %r1, 0;
    LOOP:
        st.global.u32 [%mine], %r1;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, 1000;
        @%p1 bra LOOP;
        ret;"""
    target = emulator()
    out = target.zeros(64, np.uint64)
    seen = observe(target.load(parse(program(body)))["k"][80, 64], out, layers=Layers(accesses=True))
    rows = seen.accesses
    assert rows is not None
    assert len(rows) == 80 * 2 * 1000
    assert set(rows["sectors"]) == {8}
    per_warp = np.bincount(rows["block"] * 2 + rows["warp"])
    assert set(per_warp) == {1000}
    assert seen.accesses_not_kept == 0


@pytest.mark.parametrize("most", [0, 5, 64, 65, 70_000, 128_000])
def test_rows_beyond_the_limit_are_counted_and_not_kept(most: int) -> None:
    """The limit may lie within a page of rows, or behind several."""
    body = """
        mov.u32 %r1, 0;
    LOOP:
        st.global.u32 [%mine], %r1;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, 1000;
        @%p1 bra LOOP;
        ret;"""
    target = emulator()
    out = target.zeros(32, np.uint64)
    kernel = target.load(parse(program(body)))["k"]
    seen = observe(kernel[128, 32], out, layers=Layers(accesses=True, max_accesses=most))
    assert seen.accesses is not None
    assert (len(seen.accesses), seen.accesses_not_kept) == (most, 128_000 - most)
    assert sum(row["requests"] for row in counted(seen, "st")) == 128_000
    everything = observe(kernel[128, 32], out, layers=Layers(accesses=True)).accesses
    assert everything is not None
    assert (seen.accesses == everything[:most]).all()


@pytest.mark.parametrize("layers", [Layers(counts=True), Layers(clock=True), EVERYTHING])
def test_layers_change_no_result(layers: Layers) -> None:
    target, n = emulator(), 40
    a, b = (np.random.default_rng(5).random((n, n), dtype=np.float32) for _ in range(2))
    plain, layered = target.empty((n, n)), target.empty((n, n))
    call = example(target, "matmul")["matmul"][(3, 3), (16, 16)]
    sources = target.array(a), target.array(b)
    call(plain, *sources, n)
    observe(call, layered, *sources, n, layers=layers)
    assert np.array_equal(plain.numpy(), layered.numpy())


def test_the_clock_layer_counts_the_same() -> None:
    target = emulator()
    host = np.random.default_rng(6).integers(0, 100, 3000).astype(np.int32)
    call = example(target, "reduction")["interleaved<int>"][12, 256]
    partial, source = target.empty(12, np.int32), target.array(host)
    with_clock, without = observe(call, partial, source, 3000), observe(call, partial, source, 3000, layers=Layers(counts=True))
    assert with_clock.counts.keys() == without.counts.keys()
    assert all(np.array_equal(with_clock.counts[key], without.counts[key]) for key in without.counts)
    assert with_clock.thread_instructions == without.thread_instructions


# -- clock -----------------------------------------------------------------------------------------------------------------------

START = "mov.u64 %rd1, %clock64;"
DEPENDENT = "setp.ne.u32 %p1, %r1, 0x12345; @%p1 mov.u64 %rd2, %clock64;"
SIMPLE = "mov.u64 %rd2, %clock64;"
REPORT = "sub.u64 %rd3, %rd2, %rd1; st.global.u64 [%mine], %rd3; ret;"


def window(between: str, end: str, before: str = "") -> int:
    """Cycles between two clock reads."""
    values = clocked(f"mov.u32 %r1, 0; mov.u32 %r9, 0; {START} {between} {end} {REPORT}", before=before)
    assert len(set(values)) == 1
    return int(values[0])


def test_the_empty_windows_are_those_of_the_hardware() -> None:
    assert window("", SIMPLE) == round(LATENCY.clock)
    assert window("", DEPENDENT) == 1 + round(LATENCY.predicate)


def test_a_load_does_not_wait_but_its_first_use_does() -> None:
    load = "ld.global.u32 %r1, [%out];"
    assert window(load, SIMPLE) == round(LATENCY.clock)
    empty = window("", DEPENDENT)
    assert window(load, DEPENDENT) - empty == round(LATENCY.dram)
    assert window(f"{load} add.u32 %r2, %r9, 1;", DEPENDENT) == window(load, DEPENDENT)


@pytest.mark.parametrize(
    ("address", "wavefronts"), [("mul.lo.u32 %r2, %tid, 4", 1), ("mul.lo.u32 %r2, %tid, 8", 2), ("mul.lo.u32 %r2, %tid, 128", 32)]
)
def test_bank_conflicts_take_a_cycle_each(address: str, wavefronts: int) -> None:
    place = f"{address}; mov.u32 %r3, s; add.u32 %r3, %r3, %r2;"
    body = f"{place} mov.u32 %r1, 0; bar.sync 0; {START} ld.shared.u32 %r1, [%r3]; {DEPENDENT} {REPORT}"
    values = clocked(body, before=".shared .align 4 .b8 s[4096];")
    assert int(values[0]) == 1 + round(LATENCY.shared) + wavefronts - 1 + round(LATENCY.predicate)


def test_a_line_that_was_fetched_is_in_the_first_level() -> None:
    body = f"""
        ld.global.u32 %r1, [%out]; setp.ne.u32 %p2, %r1, 0x777;
        @%p2 mov.u32 %r1, 1;
        {START} ld.global.u32 %r1, [%out+64]; {DEPENDENT}
        sub.u64 %rd3, %rd2, %rd1; st.global.u64 [%mine], %rd3; ret;"""
    between_sectors = int(clocked(body)[0])
    same_sector = int(clocked(body.replace("+64", "+8"))[0])
    window_cycles = 1 + round(LATENCY.predicate)
    assert same_sector - window_cycles == round(LATENCY.l1)
    assert between_sectors - window_cycles == round(LATENCY.dram)


def test_the_second_level_outlives_a_launch() -> None:
    target = emulator()
    body = f"mov.u32 %r1, 0; {START} ld.global.u32 %r1, [%out+32]; {DEPENDENT} {REPORT}"
    out = target.zeros(32, np.uint64)
    call = target.load(parse(program(body)))["k"][1, 32]
    call(out)
    first = int(out.numpy()[0])
    call(out)
    assert first - int(out.numpy()[0]) == round(LATENCY.dram) - round(LATENCY.l2)


def test_a_barrier_opens_for_all_when_the_last_one_comes() -> None:
    """The second warp loops for a while first."""
    body = """
        mov.u32 %r1, 0;
        setp.lt.u32 %p1, %tid, 32;
        @%p1 bra ARRIVE;
    WORK:
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, 200;
        @%p2 bra WORK;
    ARRIVE:
        bar.sync 0;
        mov.u64 %rd1, %clock64;
        st.global.u64 [%mine], %rd1;
        ret;"""
    values = clocked(body, threads=64).astype(np.int64)
    assert abs(values[0] - values[32]) <= 1
    assert values[0] > 200 * LATENCY.branch


def test_each_multiprocessor_has_a_clock_of_its_own() -> None:
    body = """
        mov.u64 %rd1, %clock64; mov.u32 %r1, %smid; cvt.u64.u32 %rd2, %r1;
        shl.b64 %rd2, %rd2, 48; or.b64 %rd1, %rd1, %rd2;
        mov.u32 %r2, %ctaid.x; mad.wide.u32 %rd3, %r2, 8, %out;
        st.global.u64 [%rd3], %rd1; ret;"""
    values = clocked(body, threads=1, blocks=200)
    sms, times = values >> np.uint64(48), values & np.uint64((1 << 48) - 1)
    assert sms.tolist() == [block % 132 for block in range(200)]
    assert len(set(times[:132].tolist())) == 132


def test_threads_wait_for_each_other_under_the_clock_too() -> None:
    """Locks between lanes and blocks; what is counted under the lock is right."""
    target = emulator()
    out = target.zeros(2, np.uint32)
    target.load(parse(program(f"mov.u64 %rd9, %clock64; {LOCK}")))["k"][2, 40](out)
    assert out.numpy().tolist() == [0, 80]


def test_time_goes_on_from_launch_to_launch() -> None:
    target = emulator()
    body = "mov.u64 %rd1, %globaltimer; st.global.u64 [%mine], %rd1; ret;"
    first, second = (int(clocked(body, target=target)[0]) for _ in range(2))
    assert second > first


def test_rows_tell_when_an_access_was_issued_and_complete() -> None:
    target = emulator()
    out = target.zeros(32, np.uint64)
    seen = observe(target.load(parse(program("ld.global.u64 %rd1, [%mine]; st.global.u64 [%mine], %rd1; ret;")))["k"][1, 32], out)
    rows = seen.accesses
    assert rows is not None
    load, store = rows[0], rows[1]
    assert load["complete"] - load["issue"] == round(LATENCY.dram) + 1  # 256 bytes: a second pass
    assert store["issue"] == load["complete"]
    assert seen.cycles is not None
    assert seen.cycles >= store["complete"]


def test_a_series_of_launches_takes_the_same_time_again() -> None:
    """Whatever ran before; its own launches share L2."""
    target, n = emulator(), 64
    out, source = target.zeros((n, n)), target.zeros((n, n))
    launch = example(target, "transpose")["padded"][(2, 2), (32, 32)].bind(out, source, n)
    runs = [target.time_launches([launch, launch]) for _ in range(3)]
    first, second = runs[0]
    assert second.elapsed_ns < first.elapsed_ns
    assert runs[1:] == [runs[0]] * 2


def test_a_launch_that_failed_leaves_no_times_in_the_caches() -> None:
    body = """
        ld.global.u32 %r1, [%mine];
        add.u32 %r2, %r1, 1;
        setp.eq.u32 %p1, %tid, 3;
        st.global.u32 [%mine], %r2;
        @%p1 st.global.u32 [%out + -8], %r2;"""
    target = emulator()
    out = target.zeros(32, np.uint64)
    before = observe(target.load(parse(program("ld.global.u32 %r1, [%mine]; st.global.u32 [%mine], %r1;")))["k"][1, 32], out)
    with pytest.raises(BadAccess):
        observe(target.load(parse(program(body)))["k"][1, 32], out)
    after = observe(target.load(parse(program("ld.global.u32 %r1, [%mine]; st.global.u32 [%mine], %r1;")))["k"][1, 32], out)
    assert after.cycles == before.cycles


def test_whoever_starts_a_launch_gets_back_what_was_seen_of_it() -> None:
    """With the number of its run, which kernels read as `%gridid`; and each of some that run together gives its own."""
    emulators = [Emulator(H200, device=device) for device in range(2)]
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) { .reg .b64 a, g; ld.param.u64 a, [p]; "
    module = parse(text + "mov.u64 g, %gridid; st.global.u64 [a], g; ret; }")
    arrays = [one.zeros(1, "u8") for one in emulators]
    launches = [
        replace(one.load(module)["k"][1, 1].bind(array), layers=Layers(counts=True)) for one, array in zip(emulators, arrays, strict=True)
    ]
    for run in (1, 2):
        seen = emulators[0].launch(launches[0])
        assert (seen.grid, arrays[0].item()) == (run, run)
        assert [int(fields[0]) for fields in seen.counts.values()] == [1]
    together = emulators[0].launch_together(launches)
    assert [(one.grid, one.launch) for one in together if one is not None] == [(3, launches[0]), (1, launches[1])]


def test_semantics_that_go_past_the_layers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds an instruction cannot forget that its accesses are counted, timed and checked."""

    def unseen(k: Lowering) -> None:
        k.call(load_lanes("global", 32, 1), k.warp, *k.address("a"), k.active, constant(I32, k.index), k.scratch("data"))

    module = parse(program("ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [%rd1];"), "test.ptx")
    form = next(one.form for one in module.kernels["k"].instructions() if one.has("global"))
    monkeypatch.setitem(TABLE, form.key, unseen)
    with pytest.raises(AssertionError, match=r"ld.global.u32 access global memory past emulate/semantics/accesses.py"):
        lowered(module, module.kernels["k"], CompiledLayers(counts=True, accesses=False, clock=False), H200)
