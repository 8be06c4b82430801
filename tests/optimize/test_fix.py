"""Layouts found by trying: what the accesses suggest, and what is said of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memlane as ml
from memlane.emulate.code.store import Sources
from memlane.launch import Kernel
from memlane.layout import OfVectors, Padded, RandomShift, RowMajor, XorSwizzle, pattern
from memlane.optimize import Fix, fix, trials
from memlane.optimize.candidates import LanePattern, candidates, geometries, pattern_of
from memlane.optimize.lane_addresses import examples
from memlane.optimize.trials import Trials
from tests.launch.fake_target import FakeTarget
from tests.rewrite.kernels import SOURCE

ALL = 0xFFFFFFFF


@cache
def kernel(name: str) -> Kernel:
    (source,) = [f'extern "C"{text}' for text in SOURCE.split('extern "C"') if f"void {name}(" in text]
    return ml.target("emulator:h200").load(ml.cuda(source, name="kernels.cu"))[name]


def seen(distances: object, *, mask: int = ALL, excess: int = 31, nbytes: int = 4) -> LanePattern:
    return LanePattern(np.asarray(distances), mask, excess, nbytes)


@cache
def turned() -> tuple[Fix, np.ndarray]:
    target = kernel("turn").target
    out = target.zeros((32, 32))
    (found,) = fix(kernel("turn")[1, (32, 32)], out, target.array(np.ones((32, 32), np.float32)))
    return found, out.numpy()


def test_the_transpose_is_made_quicker_and_memory_stays() -> None:
    found, out = turned()
    assert not out.any()
    assert found.array.names[0].endswith("tile")
    assert (found.element_bytes, found.modelled) == (4, True)
    assert (found.original.wavefronts, found.original.ideal_wavefronts) == (32 * 33, 64)
    assert all(one.same for one in found.tried)
    assert found.best is not None
    assert found.best.wavefronts == 64
    assert found.best.speedup == max(one.speedup for one in found.tried) > 1.1
    assert found.verdict.startswith("Padded(32x32, pad=1) in the source makes turn")
    assert "by the emulator's model (limited by latency), with 64 wavefronts instead of 1,056" in found.verdict
    assert {one.layout for one in found.tried} >= {XorSwizzle(32, 32), Padded(32, 32, 1), Padded(32, 32, 4)}
    padded = next(one for one in found.tried if one.layout == Padded(32, 32, 1))
    assert (padded.needs.shared_bytes, found.original.needs.shared_bytes) == (4224, 4096)


def test_the_layout_is_written_in_the_language_of_the_kernel() -> None:
    found, _ = turned()
    assert found.source("place") == "tile[32][32 + 1]   // line 3\n"
    found = replace(found, tried=tuple(replace(one, in_source=False) for one in found.tried))
    assert found.language == "CUDA C++"
    assert "__host__ __device__ inline int place(int i, int j)" in found.source("place")
    assert found.best is not None
    layout = found.best.layout
    assert layout is not None
    assert found.source("place").endswith(f"// element (i, j) of 32x32 at [place(i, j)] of an array of {layout.size:,} elements\n")
    python = replace(found, language="Numba")
    scope: dict[str, Any] = {"np": np, "cuda": SimpleNamespace(jit=lambda device: lambda function: function)}
    exec(python.source("place"), scope)
    assert [scope["place"](i, j) for i in range(32) for j in range(32)] == [layout(i, j) for i in range(32) for j in range(32)]
    assert python.source("place").endswith(f"# element (i, j) of 32x32 at [place(i, j)] of an array of {layout.size:,} elements\n")
    assert found.advice == python.advice == ""


def test_triton_has_no_place_for_a_layout() -> None:
    found = replace(turned()[0], language="Triton")
    assert found.source("place") == ""
    assert found.advice.startswith(
        "Triton chooses the layout of shared memory itself, so a layout cannot be written in its source; memlane.relayout("
    )
    assert replace(found, tried=()).advice == ""


def test_tables_stand_in_front_of_what_numba_compiles() -> None:
    layout = RandomShift(32, 32, 1)
    scope: dict[str, Any] = {"np": np, "cuda": SimpleNamespace(jit=lambda device: lambda function: function)}
    exec(layout.numba_source("place"), scope)
    assert scope["place"](3, 5) == layout(3, 5)
    assert layout.numba_source("place").startswith("place_table0 = np.array([")


def test_what_does_not_help_is_said() -> None:
    target = kernel("turn").target
    arguments = target.zeros((32, 32)), target.array(np.ones((32, 32), np.float32))
    (found,) = fix(kernel("turn")[1, (32, 32)], *arguments, layouts=[RowMajor(32, 32)])
    assert found.best is None
    by = "by the emulator's model (limited by latency)"
    assert found.verdict == f"No layout of {found.array.title} that was tried (1) makes turn faster, {by}."
    little = replace(found, tried=tuple(replace(one, speedup=1.013) for one in found.tried))
    assert little.best is None
    assert f"makes turn faster by at least 2.0 %; the best is 1.3 % faster, {by}." in little.verdict
    (refused,) = fix(kernel("turn")[1, (32, 32)], *arguments, layouts=[RowMajor(31, 31)])
    assert refused.tried == ()
    assert "could be tried: " in refused.verdict
    assert "choose a layout for all its elements" in refused.verdict


def test_without_conflicts_nothing_is_tried() -> None:
    target = kernel("turn").target
    fine = ml.relayout(kernel("turn"), XorSwizzle(32, 32))
    assert fix(fine[1, (32, 32)], target.zeros((32, 32)), target.array(np.ones((32, 32), np.float32))) == ()


def test_memory_is_put_back_where_nothing_is_tried() -> None:
    text = """
    extern "C" __global__ void add(int* total) {
        __shared__ int tile[32];
        tile[threadIdx.x] = 1;
        __syncwarp();
        atomicAdd(total, tile[31 - threadIdx.x]);
    }
    """
    target = ml.target("emulator:h200")
    add, total = target.load(ml.cuda(text))["add"], target.zeros(1, np.int32)
    assert fix(add[3, 32], total) == ()
    assert total.numpy().tolist() == [0]


def test_results_that_depend_on_the_order_of_threads_are_told() -> None:
    text = """
    extern "C" __global__ void ticket(long long* out) {
        __shared__ int tile[32][32];
        tile[threadIdx.x][0] = 1;
        __syncwarp();
        out[threadIdx.x] = clock64() + tile[threadIdx.x ^ 1][0];
    }
    """
    target = ml.target("emulator:h200")
    (found,) = fix(target.load(ml.cuda(text))["ticket"][1, 32], target.zeros(32, np.int64), layouts=[XorSwizzle(32, 32)])
    assert found.best is None
    assert "gave results that differ from the original" in found.verdict


def test_dynamic_memory_and_vectors() -> None:
    """The compiler reads the tile of `dynamic` by four elements at once, in rows of 32: that is seen, and vectors stay whole."""
    target = kernel("dynamic").target
    given = np.arange(1024, dtype=np.int32)
    call = kernel("dynamic")[1, 32, None, 4096 + 128]
    (found,) = fix(call, target.zeros(32, np.int32), target.array(given), shared="dynamic[0:4096]", columns=32)
    assert found.tried
    assert all(one.same for one in found.tried)
    assert min(one.wavefronts for one in found.tried) < found.original.wavefronts / 2


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        (np.arange(32), "(r * columns + c + 1 * (t % 32))"),
        (np.arange(32) * -33, "(r * columns + c + -33 * (t % 32))"),
        (np.arange(32) % 8 * 40 + np.arange(32) // 8, "(r * columns + c + 40 * (t % 8) + 1 * (t // 8))"),
        (np.arange(32) // 16 * 64, "(r * columns + c + 64 * (t // 16))"),
        (np.arange(32) ** 2, None),
    ],
)
def test_regular_accesses_become_formulas(distances: np.ndarray, expected: str | None) -> None:
    assert pattern_of(seen(distances)) == expected
    if expected is not None:
        one = pattern(expected, 64, 64)
        places = one.i * 64 + one.j
        assert np.array_equal((places - places[:, :1]) % 4096, np.broadcast_to(distances % 4096, places.shape))
    assert pattern_of(seen(distances, mask=1)) is None


def test_extents_follow_from_the_steps_between_lanes() -> None:
    (first, *_) = geometries(64 * 48 * 4, 4, 1, [seen(np.arange(32) * 48)], None, None)
    assert (first.rows, first.columns) == (64, 48)
    (diagonal, *_) = geometries(64 * 48 * 4, 4, 1, [seen(np.arange(32) * 49)], None, None)
    assert diagonal.columns == 48
    (told,) = geometries(4096, 4, 1, [seen(np.arange(32) * 48)], None, 16)
    assert (told.rows, told.columns) == (64, 16)
    (by_rows,) = geometries(4096, 4, 1, [], 8, None)
    assert (by_rows.rows, by_rows.columns) == (8, 128)
    assert [one.columns for one in geometries(4096, 4, 1, [], None, None)] == [32]
    assert geometries(4096, 4, 4, [], None, 6) == []


def test_candidates_keep_vectors_and_room() -> None:
    chip = ml.target("emulator:h200").chip
    (square,) = geometries(4096, 4, 4, [], None, 32)
    found = list(candidates(square, [], chip, room=0))
    assert OfVectors(32, 32, XorSwizzle(32, 8), 4) in found
    assert not [one for one in found if isinstance(one, Padded)]
    for layout in found:
        groups = layout.table.reshape(-1, 4)
        assert (groups == groups[:, :1] + np.arange(4)).all()
        assert (groups[:, 0] % 4 == 0).all()


def test_rows_of_narrow_blocks_are_padded_until_they_do_not_meet() -> None:
    """Lanes in two rows of 16 of a tile of 18 x 18: by hand, rows must be 16 words apart, modulo 32, and 48 are the least from 18 on."""
    chip, lane = ml.target("emulator:h200").chip, np.arange(32)
    two_rows = seen(lane % 16 + 18 * (lane // 16), excess=1)
    (tile, *_) = geometries(18 * 18 * 4, 4, 1, [two_rows], None, None)
    assert (tile.rows, tile.columns) == (18, 18)
    banks = [len(set(((lane % 16 + pitch * (lane // 16)) % 32).tolist())) for pitch in range(18, 50)]
    assert 18 + banks.index(32) == 48
    assert Padded(18, 18, 30) in list(candidates(tile, [two_rows], chip, room=4096))
    assert Padded(18, 18, 30) not in list(candidates(tile, [seen(lane * 18)], chip, room=4096))


def test_padding_of_rows_that_meet_keeps_what_reads_their_columns_apart() -> None:
    """A transpose by blocks of 16 x 16 of a tile of 32 x 32: pieces of two rows are written, and pieces of two columns are read."""
    chip, lane = ml.target("emulator:h200").chip, np.arange(32)
    written, read = seen(lane % 16 + 32 * (lane // 16), excess=1), seen(32 * (lane % 16) + lane // 16, excess=1)
    (tile, *_) = geometries(32 * 32 * 4, 4, 1, [written, read], None, None)

    def fullest(pitch: int) -> int:
        """Wavefronts of both, by the fullest bank of each."""
        places = ((lane % 16) + pitch * (lane // 16), pitch * (lane % 16) + lane // 16)
        return sum(int(np.bincount(one % 32).max()) for one in places)

    best = min(range(32, 64), key=fullest)
    assert Padded(32, 32, best - 32) in list(candidates(tile, [written, read], chip, room=8192))


def test_random_layouts_are_told_apart() -> None:
    target = kernel("turn").target
    arguments = target.zeros((32, 32)), target.array(np.ones((32, 32), np.float32))
    layouts = [RandomShift(32, 32, 1), RandomShift(32, 32, 1), XorSwizzle(32, 32), OfVectors(32, 32, XorSwizzle(32, 32), 1)]
    (found,) = fix(kernel("turn")[1, (32, 32)], *arguments, layouts=layouts)
    assert len(found.tried) == 2


def test_lanes_of_a_launch_elsewhere_are_seen_on_one_emulated_block() -> None:
    """As on a GPU: the target sees nothing, so the first block runs on an emulator with copies of the arrays; `order` is one."""
    text = """
    extern "C" __global__ void gather(float* out, const int* order) {
        __shared__ float tile[1024];
        tile[order[threadIdx.x]] = threadIdx.x;
        __syncthreads();
        out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
    }
    """
    target = FakeTarget()
    order = np.random.default_rng(2).permutation(1024)[:32].astype(np.int32)
    launch = target.load(ml.cuda(text))["gather"][50, 32].bind(target.zeros(50 * 32), target.array(order))
    found = examples(launch)
    assert found is not None
    instructions = list(launch.kernel.function.body.instructions())  # type: ignore[union-attr]
    stores = [one for one in found if instructions[one["instruction"]].name == "st.shared.f32"]
    assert stores
    assert np.array_equal(stores[0]["addresses"], order.astype(np.uint64) * 4)
    assert target.launches == []
    too_large = replace(launch.arguments[0], memory=(launch.arguments[0].memory[0], 1 << 30))  # type: ignore[index]
    assert examples(replace(launch, arguments=(too_large, launch.arguments[1]))) is None


# -- what is run for a layout ----------------------------------------------------------------------------------------------------


TICKETS = """
extern "C" __global__ void tickets(float *out, int *next, int *order) {
    __shared__ float tile[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    if (y % 4 == 1) tile[x][y] = x;
    else tile[y][x] = x;
    __syncthreads();
    float v = y % 4 ? tile[y][x] : tile[x][y];
    out[y * 32 + x] = 1.0f;
    if (x == 0 && v >= 0) order[atomicAdd(next, 1)] = y;
}
"""
"""Warps that have conflicts draw their tickets later than others, where time is modelled."""


def tried(source: str, name: str, monkeypatch: pytest.MonkeyPatch, *shapes: tuple[int, ...]) -> tuple[Fix, int]:
    """What `fix` finds for one block of 32x32 threads on arrays of zeros, and how many launches it counted without timing them."""
    counted: list[Kernel] = []
    real = Trials._count
    monkeypatch.setattr(Trials, "_count", lambda trials, launch: counted.append(launch.kernel) or real(trials, launch))
    where = ml.target("emulator:h200").load(ml.cuda(source, name="kernels.cu"))
    arrays = [where.target.zeros(shape, "f4" if number == 0 else "i4") for number, shape in enumerate(shapes)]
    (found,) = fix(where[name][1, (32, 32)], *arrays, layouts=[Padded(32, 32, 1), XorSwizzle(32, 32)])
    return found, len(counted)


def test_a_layout_is_counted_while_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = TICKETS.replace("order[atomicAdd(next, 1)] = y", "order[y] = atomicAdd(next, 0)")
    found, counted = tried(source, "tickets", monkeypatch, (32, 32), (1,), (32,))
    assert counted == 1  # the original
    assert [one.same for one in found.tried] == [True, True]
    assert {str(one.layout): one.wavefronts for one in found.tried} == {"Padded(32x32, pad=1)": 64, "XorSwizzle(32x32)": 64}
    assert found.original.wavefronts == 8 * 32 + 24 + 8 * 32 + 24


def test_what_depends_on_the_order_of_threads_is_counted_in_the_order_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modelled time changes the order in which tickets are drawn, and so the bytes; the layout is not to blame."""
    found, counted = tried(TICKETS, "tickets", monkeypatch, (32, 32), (1,), (32,))
    assert counted == 3
    assert [one.same for one in found.tried] == [True, True]
    assert [one.wavefronts for one in found.tried] == [64, 64]


def test_the_registers_of_a_layout_are_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(trials, "_ASSEMBLING", Sources("errors.py"))
    assembled: list[object] = []
    real = trials.assemble
    monkeypatch.setattr(trials, "assemble", lambda module: assembled.append(module) or real(module))
    first = trials._registers(kernel("turn"))
    assert first == trials._registers(kernel("turn")) == real(kernel("turn").module).kernels["turn"].registers
    assert len(assembled) == 1
    trials._registers(kernel("wide"))
    assert len(assembled) == 2


# -- padding in the source -------------------------------------------------------------------------------------------------------


BLURRED = """
#define T 16
#define REACH 2
__global__ void blur(float* out, const float* in, int w) {
    __shared__ float tile[T + 2 * REACH][T + 2 * REACH%s];
    for (int j = threadIdx.y; j < T + 2 * REACH; j += T)
        for (int i = threadIdx.x; i < T + 2 * REACH; i += T) tile[j][i] = in[j * w + i];
    __syncthreads();
    float s = 0;
    for (int j = 0; j <= 2 * REACH; j++)
        for (int i = 0; i <= 2 * REACH; i++) s += tile[threadIdx.y + j][threadIdx.x + i];
    out[threadIdx.y * T + threadIdx.x] = s;
}
"""


@cache
def blurred() -> Fix:
    target = ml.target("emulator:h200")
    call = target.load(ml.cuda(BLURRED % "", name="blur.cu"))["blur"][1, (16, 16)]
    given = target.zeros((16, 16)), target.array(np.random.default_rng(0).random((20, 20), np.float32)), 20
    (found,) = fix(call, *given, layouts=[Padded(20, 20, 28)])
    return found


def test_padding_is_tried_in_the_source_and_is_as_quick_as_the_source_padded_by_hand() -> None:
    """A rewritten kernel is slower by the instructions that compute the new places; the padded source has none of these."""
    found = blurred()
    (padded,) = found.tried
    assert padded.in_source
    target = ml.target("emulator:h200")
    call = target.load(ml.cuda(BLURRED % " + 28", name="blur.cu"))["blur"][1, (16, 16)]
    arguments = target.zeros((16, 16)), target.array(np.random.default_rng(0).random((20, 20), np.float32)), 20
    (time,) = target.time_launches([call.bind(*arguments)])
    assert padded.time_ns == pytest.approx(time.elapsed_ns, rel=0.01)
    shared = [one for one in ml.count(call, *arguments).sites if one.site.space == "shared"]
    assert padded.wavefronts == sum(one.wavefronts or 0 for one in shared) < found.original.wavefronts


def test_fewer_wavefronts_that_are_not_felt_are_said() -> None:
    found = replace(blurred(), tried=tuple(replace(one, speedup=1.0) for one in blurred().tried))
    assert found.best is None
    assert found.verdict.endswith("at the same speed: bank conflicts do not limit this launch.")
    assert "Padded(20x20, pad=28) in the source takes " in found.verdict


def test_the_declaration_of_the_best_padding_is_written() -> None:
    felt = replace(blurred(), tried=tuple(replace(one, speedup=1.2) for one in blurred().tried))
    assert felt.source("place") == "tile[T + 2 * REACH][(T + 2 * REACH) + 28]   // line 5\n"


def test_declared_extents_are_tried_and_places_that_the_source_computes_are_not_padded_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The array of 32 x 32 is filled as a flat one of four at a time: with longer rows it would be filled wrongly."""
    monkeypatch.setattr(
        sys.modules["memlane.optimize.fix"], "candidates", lambda tile, *_: iter([Padded(tile.rows, tile.columns, tile.vector)])
    )
    text = """
    template <int N> __global__ void product(float4* out, const float4* a) {
        __shared__ float As[N][N];
        for (int i = threadIdx.x; i < N * N / 4; i += 64) reinterpret_cast<float4*>(&As[0][0])[i] = a[i];
        __syncthreads();
        float s[4] = {};
        for (int k = 0; k < N; k++) for (int r = 0; r < 4; r++) s[r] += As[threadIdx.x / 8 * 4 + r][k];
        out[threadIdx.x] = make_float4(s[0], s[1], s[2], s[3]);
    }
    """
    target = ml.target("emulator:h200")
    call = target.load(ml.cuda(text, instantiate=["product<32>"]))["product<32>"][1, 64]
    (found,) = fix(call, target.zeros(256), target.array(np.random.default_rng(0).random(1024, np.float32)))
    assert found.declared is not None
    assert (found.declared.extents, found.declared.columns) == (("N", "N"), 32)
    (padded,) = found.tried
    assert (padded.layout, padded.same, padded.in_source) == (Padded(32, 32, 4), True, False)
    assert padded.layout_alone is not None
    assert padded.layout_alone > padded.speedup


def test_a_square_is_concluded_where_lanes_step_over_several_of_its_rows() -> None:
    """Lanes that store four elements each lie side by side, and lanes that read every fourth row do not make rows of 128."""
    lane = np.arange(32)
    stored = LanePattern(4 * lane, ALL, 0, 16, 4)
    read = LanePattern(lane // 8 * 128, ALL, 3, 4)
    assert [(one.rows, one.columns) for one in geometries(4096, 4, 4, [stored, read], None, None)] == [(32, 32)]


@pytest.mark.slow
def test_an_array_of_one_dimension_is_tried_with_an_element_free_behind_all_banks() -> None:
    """Every second word: in each request two lanes meet in 16 banks, with a word free behind each 32 none do."""
    source = """extern "C" __global__ void pairs(float *out, const float *in)
    {
        __shared__ float words[64];
        words[2 * threadIdx.x] = in[threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = words[2 * threadIdx.x];
    }"""
    target = ml.target("emulator:h200")
    pairs = target.load(ml.cuda(source))["pairs"]
    (tried,) = fix(pairs[1, 32], target.zeros(32), target.zeros(32))
    (padded,) = [one for one in tried.tried if str(one.layout) == "Padded(2x32, pad=1)"]
    assert (tried.original.wavefronts, padded.wavefronts, padded.same) == (4, 2, True)
