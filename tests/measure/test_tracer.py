"""Tracing and counting on the emulator: which launches, into which rows, and what they leave behind."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.chip import load
from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.errors import BadAccess, BadLaunch, KernelTrap, MemlaneError
from memlane.instrument import SCHEMES, Selection, TraceOptions
from memlane.launch import DeviceArray, LoadedModule, apply_observers, observing
from memlane.measure import Counter, Tracer, count, memory, trace
from memlane.measure.arena import SPARE_BYTES
from memlane.measure.memory import not_restorable
from memlane.ptx import Module
from memlane.record import Trace
from memlane.report import render_trace, summary_document, to_text
from memlane.targets import target as named_target

Shape = tuple[int, int]


def by_launch(made: Trace) -> list[tuple[str, Shape, int]]:
    """Kernel, blocks and threads, and number of rows."""
    rows = np.bincount(made.table["launch"].to_numpy(), minlength=len(made.launches))
    return [(one.kernel, (one.grid[0], one.block[0]), int(count)) for one, count in zip(made.launches, rows, strict=True)]


# -- what a trace leaves behind --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_trace_leaves_memory_as_one_ordinary_launch(kernels: LoadedModule, data: DeviceArray, scheme: str) -> None:
    trace(kernels["add"][1, 128], data, 5, scheme=scheme)
    assert np.array_equal(data.numpy(), np.arange(128) + 5)


def test_count_leaves_memory_as_one_ordinary_launch(kernels: LoadedModule, data: DeviceArray) -> None:
    counts = count(kernels["add"][1, 128], data, 5)
    assert np.array_equal(data.numpy(), np.arange(128) + 5)
    assert [(one.site.op, one.requests, one.sectors) for one in counts.sites] == [("ld.global.u32", 4, 16), ("st.global.u32", 4, 16)]


def test_launches_after_the_block_are_plain(kernels: LoadedModule, data: DeviceArray) -> None:
    with observing(tracer := Tracer()):
        kernels["add"][1, 32](data, 1)
    kernels["add"][1, 32](data, 1)
    assert (tracer.seen, tracer.traced) == (1, 1)
    assert len(tracer.finish().launches) == 1


# -- which launches --------------------------------------------------------------------------------------------------------------


def test_launches_of_several_modules_in_the_order_in_which_they_ran(target: Emulator, module: Module, data: DeviceArray) -> None:
    one, other = target.load(module), target.load(module)
    with observing(tracer := Tracer()):
        one["add"][1, 32](data, 1)
        other["add"][2, 64](data, 1)
        one["sum"][1, 32](data, 3)
        other["add"][1, 96](data, 1)
        one["add"][3, 32](data, 1)
    made = tracer.finish()
    assert by_launch(made) == [("add", (1, 32), 2), ("add", (2, 64), 8), ("sum", (1, 32), 4), ("add", (1, 96), 6), ("add", (3, 32), 6)]
    assert [launch.arguments[1] for launch in made.launches] == ["1", "1", "3", "1", "1"]
    assert made.table["sectors"].null_count == 0, "every row met its access"


def test_two_loads_of_a_module_keep_their_sites_apart(target: Emulator, module: Module, data: DeviceArray) -> None:
    with observing(tracer := Tracer()):
        target.load(module)["add"][1, 32](data, 1)
        target.load(module)["sum"][1, 32](data, 2)
    made = tracer.finish()
    assert [(site.id, site.kernel, site.op) for site in made.sites] == [
        (0, "add", "ld.global.u32"),
        (1, "add", "st.global.u32"),
        (2, "sum", "ld.global.u32"),
        (3, "sum", "st.global.u32"),
    ]
    assert made.table["site"].to_pylist() == [0, 1, 2, 2, 3]


def test_only_one_launch(kernels: LoadedModule, data: DeviceArray) -> None:
    with observing(tracer := Tracer(only_launch=1)):
        for threads in (32, 64, 96):
            kernels["add"][1, threads](data, 1)
    assert (tracer.seen, tracer.traced) == (3, 1)
    assert by_launch(tracer.finish()) == [("add", (1, 64), 4)]
    assert np.array_equal(data.numpy(), np.arange(128) + np.repeat([3, 2, 1, 0], 32))


def test_graph_counts_as_often_as_it_is_started(target: Emulator, kernels: LoadedModule, data: DeviceArray) -> None:
    with observing(tracer := Tracer()):
        graph = target.graph([kernels["add"][1, 32].bind(data, 1), kernels["sum"][1, 32].bind(data, 2)])
        never = target.graph([kernels["add"][1, 64].bind(data, 1)])
        kernels["add"][1, 32](data, 7)
        for _ in range(3):
            graph.replay()
    made = tracer.finish()
    assert never is not None
    assert by_launch(made) == [("add", (1, 32), 2), *[("add", (1, 32), 2), ("sum", (1, 32), 3)] * 3]
    assert [launch.arguments[1] for launch in made.launches] == ["7", *["1", "2"] * 3]
    assert made.table["sectors"].null_count == 0
    counted = Counter()
    with observing(counted):
        target.graph([kernels["add"][1, 32].bind(data, 1)]).replay()
    assert [one.sites[0].requests for one in counted.finish()] == [1]


def test_streams_stay_apart(target: Emulator, kernels: LoadedModule, data: DeviceArray) -> None:
    one, other = target.stream(), target.stream()
    with observing(tracer := Tracer()):
        kernels["add"][1, 32, one](data, 1)
        kernels["add"][2, 32, other](data, 1)
        kernels["add"][3, 32, one](data, 1)
    made = tracer.finish()
    assert [(launch.stream, launch.grid[0]) for launch in made.launches] == [(one.number, 1), (other.number, 2), (one.number, 3)]


def test_one_trace_holds_one_target(kernels: LoadedModule, data: DeviceArray, module: Module) -> None:
    other = Emulator(load("a100"))
    with observing(Tracer()):
        kernels["add"][1, 32](data, 1)
        with pytest.raises(
            MemlaneError, match=r"a trace holds devices of one kind, but launches went to emulator:h200 and to emulator:a100"
        ):
            other.load(module)["add"][1, 32](other.zeros(32, "u4"), 1)


def test_kernel_without_accesses_makes_an_empty_trace(kernels: LoadedModule) -> None:
    assert trace(kernels["idle"][1, 32]).table.num_rows == 0


@pytest.mark.parametrize("finish", [Tracer().finish, Counter().finish])
def test_nothing_launched(finish: object) -> None:
    with pytest.raises(MemlaneError, match="nothing was launched through memlane inside the"):
        finish()  # type: ignore[operator]


# -- how many records ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records_per_warp", [0, 1, 4, 9, 10])
def test_what_finds_no_room_is_counted(kernels: LoadedModule, data: DeviceArray, records_per_warp: int) -> None:
    """A warp makes 9 loads and a store, all led by lane 0."""
    made = trace(kernels["sum"][1, 64], data, 9, records_per_warp=records_per_warp)
    assert made.table.num_rows == 2 * min(10, records_per_warp)
    assert made.lost == made.launches[0].lost == 20 - made.table.num_rows
    assert made.warps["kept"].sum() == made.table.num_rows
    first = made.table.filter(np.asarray(made.table["warp"]) == 0)["execution"].to_pylist()
    assert first == [*range(9), 0][:records_per_warp], "the first ones are kept"


def test_lost_records_leave_the_transactions_of_the_others(kernels: LoadedModule, data: DeviceArray) -> None:
    made = trace(kernels["add"][1, 64], data, 1, records_per_warp=1)
    assert made.table["op"].to_pylist() == ["ld.global.u32"] * 2
    assert made.table["sectors"].to_pylist() == [4, 4]


def test_loops_get_room_without_being_asked(kernels: LoadedModule, target: Emulator) -> None:
    made = trace(kernels["sum"][1, 32], target.zeros(5000, "u4"), 5000)
    assert made.lost == 0
    assert made.table.num_rows == 5001


def test_many_launches_go_through_one_buffer_after_another(
    kernels: LoadedModule, data: DeviceArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SPARE_BYTES, True, 0)
    with observing(tracer := Tracer()):
        for number in range(6):
            kernels["add"][1 + number % 3, 32](data, number)
    made = tracer.finish()
    assert [(launch.grid[0], launch.arguments[1]) for launch in made.launches] == [(1 + n % 3, str(n)) for n in range(6)]
    assert made.lost == 0


# -- rows ------------------------------------------------------------------------------------------------------------------------


def test_rows_carry_the_transactions_of_the_very_access(target: Emulator, kernels: LoadedModule) -> None:
    """The k-th load of the loop reads one word: one sector each; the arithmetic of `memlane.chip` is held against whole kernels in
    `test_transactions`."""
    made = trace(kernels["sum"][1, 32], target.zeros(16, "u4"), 4)
    assert made.table["execution"].to_pylist() == [0, 1, 2, 3, 0]
    assert made.table["sectors"].to_pylist() == [1] * 5


def test_selection_of_one_site(kernels: LoadedModule, data: DeviceArray) -> None:
    made = trace(kernels["add"][1, 32], data, 1, selection=Selection(sites={1}))
    assert made.table["op"].to_pylist() == ["st.global.u32"]
    with observing(tracer := Tracer(TraceOptions("simple", Selection(kernels={"sum"})))):
        kernels["add"][1, 32](data, 1)
        kernels["sum"][1, 32](data, 1)
    assert [launch.kernel for launch in tracer.finish().launches] == ["sum"]


def test_a_launch_that_broke_off_has_its_records_until_then(kernels: LoadedModule, target: Emulator, data: DeviceArray) -> None:
    short = target.zeros(64, np.uint32)
    with observing(tracer := Tracer()):
        kernels["add"][2, 32](data, 1)
        with pytest.raises(BadAccess):
            kernels["add"][1, 128](short, 1)
        kernels["add"][1, 96](data, 1)
    made = tracer.finish()
    assert [(one.kernel, one.grid[0], one.block[0]) for one in made.launches] == [("add", 2, 32), ("add", 1, 128), ("add", 1, 96)]
    assert [bool(one.failed) for one in made.launches] == [False, True, False]
    assert "read 4 bytes at 0x" in made.launches[1].failed
    rows = made.table.to_pylist()
    assert [sum(row["launch"] == number for row in rows) for number in (0, 2)] == [4, 6]
    assert all(row["sectors"] is not None for row in rows if row["launch"] != 1)
    text = to_text(render_trace(made), 400)
    assert f"Launch 1 (add) failed: {made.launches[1].failed}. Its records end there." in text
    (told,) = summary_document(made)["failed_launches"]
    assert (told["id"], told["why"]) == (1, made.launches[1].failed)


def test_records_of_a_loop_that_never_ends_are_kept(kernels: LoadedModule, target: Emulator, data: DeviceArray) -> None:
    """Lane 0 says how many records it led only when it leaves; in slices so large that they are not read whole."""
    short = target.zeros(100, "u4")
    with observing(tracer := Tracer(records_per_warp=5000)), pytest.raises(BadAccess):
        kernels["sum"][1, 32](short, 1 << 20)
    made = tracer.finish()
    assert 100 <= made.table.num_rows <= 101  # that of the access which failed may be there
    assert made.table["execution"].to_pylist() == list(range(made.table.num_rows))
    assert all(row["end"] > row["start"] > 0 for row in made.table.to_pylist())
    assert (made.warps["end_cycles"].tolist(), made.warps["kept"].tolist()) == ([0], [made.table.num_rows])
    assert "block (0, 0, 0), thread (0, 0, 0) read 4 bytes" in made.launches[0].failed


def test_a_gpu_that_fails_says_that_the_records_are_lost(kernels: LoadedModule, data: DeviceArray, monkeypatch: pytest.MonkeyPatch) -> None:
    with observing(tracer := Tracer()):
        kernels["add"][2, 32](data, 1)

    def fails() -> None:
        raise KernelTrap("kernel add failed on cuda:0")

    monkeypatch.setattr(kernels.target, "sync", fails)
    with pytest.raises(KernelTrap, match=r"^kernel add failed on cuda:0\. The records until then are lost with the GPU memory"):
        tracer.finish()


def test_accesses_that_find_no_room_are_not_observed_without_bound(kernels: LoadedModule, data: DeviceArray) -> None:
    with observing(tracer := Tracer(records_per_warp=10)):
        kernels["sum"][1, 32](data, 128)
        launch = apply_observers(kernels["sum"][1, 32].bind(data, 128))
    assert launch.layers.max_accesses is not None
    assert launch.layers.max_accesses < 1000
    made = tracer.finish()
    assert (made.table.num_rows, made.lost) == (10, 119)
    assert made.table["sectors"].to_pylist() == [1] * 10, "those that were kept are known"


def test_accesses_that_were_not_kept_are_told(kernels: LoadedModule, target: Emulator) -> None:
    made = trace(kernels["sum"][1, 32], target.zeros(5000, "u4"), 5000, records_per_warp=10)
    unseen = made.launches[0].accesses_not_kept
    assert unseen >= made.lost - 1000 > 0
    assert summary_document(made)["accesses_not_kept"] == unseen
    assert f"The transactions of {unseen:,} more accesses" in to_text(render_trace(made), 120)


@pytest.mark.parametrize("observes", [True, False])
def test_a_trace_with_counts_carries_the_branches_of_the_plain_kernel(
    observes: bool, target: Emulator, kernels: LoadedModule, data: DeviceArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the probes are none of it; on a target that does not observe they come from the counting launch."""
    monkeypatch.setattr(target, "observes", observes, raising=False)
    plain = count(kernels["sum"][1, 64], data, 9).branches
    assert [(branch.line, branch.executions, branch.divergent) for branch in plain] == [(34, 18, 0)]
    made = trace(kernels["sum"][1, 64], data, 9, counts=True)
    assert made.launches[0].branches == plain
    assert trace(kernels["add"][1, 64], data, 1, counts=True).launches[0].branches == ()


def test_tracer_and_counter_are_blocks_of_their_own(kernels: LoadedModule, data: DeviceArray) -> None:
    with Tracer() as tracer, Counter() as counter:
        kernels["add"][1, 32](data, 5)
    kernels["add"][1, 64](data, 5)
    assert (tracer.seen, counter.seen) == (1, 1)
    with pytest.raises(ZeroDivisionError), tracer:
        raise ZeroDivisionError
    kernels["add"][1, 96](data, 5)
    with tracer:
        kernels["add"][1, 128](data, 5)
    assert [launch.block[0] for launch in tracer.finish().launches] == [32, 128]
    assert [counts.block[0] for counts in counter.finish()] == [32]


def test_a_block_in_a_block_of_the_same_observer_ends_alone(kernels: LoadedModule, data: DeviceArray) -> None:
    counter = Counter()
    with counter:
        with counter:
            pass
        kernels["add"][1, 32](data, 5)
    assert counter.seen == 1


def test_a_scheme_that_needs_shared_memory_says_so_where_there_is_none_left(kernels: LoadedModule, data: DeviceArray) -> None:
    room = kernels.target.chip.max_shared_bytes
    assert trace(kernels["add"][1, 32, None, room - 32], data, 1, scheme="consume").table.num_rows == 2
    with pytest.raises(
        BadLaunch, match="the scheme 'consume' needs 32 bytes of shared memory in addition to those of add, which leaves 31; choose another"
    ):
        trace(kernels["add"][1, 32, None, room - 31], data, 1, scheme="consume")


# -- memory that can be put back -------------------------------------------------------------------------------------------------

WRITES = """
struct Pair { float* to; int n; };
__device__ float total[32];
__device__ float* elsewhere;
extern "C" __global__ void known(float* to, const int* where, const float* of, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { to[where[i]] = of[i]; atomicAdd(&total[i % 32], of[i]); }
}
extern "C" __global__ void table(float** rows, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        rows[blockIdx.x][i] = 1;
}
extern "C" __global__ void member(Pair pair) { if (threadIdx.x < pair.n) pair.to[threadIdx.x] = 1; }
extern "C" __global__ void variable(int n) { if (threadIdx.x < n) elsewhere[threadIdx.x] = 1; }
extern "C" __global__ void number(unsigned long long address) { *(float*)address = 1; }
"""


def test_memory_that_cannot_be_put_back_is_recognised(target: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = target.load(cuda(WRITES))
    data, where = target.zeros(32, np.float32), target.zeros(32, np.int32)
    pointers = target.array(np.array([data.address], np.uint64))
    calls = {
        "known": (data, where, data, 32),
        "table": (pointers, 32),
        "member": (np.array([(data.address, 32, 0)], np.dtype("u8,i4,i4"))[0],),
        "variable": (32,),
        "number": (data.address,),
    }
    found = {name: not_restorable(kernels[name][1, 32].bind(*values)) for name, values in calls.items()}
    assert found["known"] == ""
    unknown = "may write to memory outside the arrays that were passed to the kernel"
    assert found["table"] == f"st at line 11 {unknown}"
    assert found["member"] == f"st at line 13 {unknown}"
    assert found["variable"] == f"st at line 14 {unknown}"
    assert found["number"] == f"st at line 15 {unknown}"
    monkeypatch.setattr(memory, "MOST_SAVED", 255)
    assert "B of its arrays would have to be copied to the host and back" in not_restorable(kernels["known"][1, 32].bind(*calls["known"]))


@pytest.mark.gpu
def test_launches_are_counted_only_where_memory_can_be_put_back() -> None:
    device = named_target("cuda:0")
    kernels = device.load(cuda(WRITES))
    data, where = device.zeros(32, np.float32), device.zeros(32, np.int32)
    pointers = device.array(np.array([data.address], np.uint64))
    with observing(tracer := Tracer(counts="safe")):
        kernels["known"][1, 32](data, where, data, 32)
        kernels["table"][1, 32](pointers, 32)
    made = tracer.finish()
    assert [bool(one.counts) for one in made.launches] == [True, False]
    assert list(tracer.uncounted) == ["table"]


def test_a_word_for_counts_that_has_no_meaning() -> None:
    with pytest.raises(MemlaneError, match=r"counts is True, False or 'safe', not 'maybe'"):
        Tracer(counts="maybe")
