"""Uploads and downloads: right on an emulator and in any order that a GPU may take, and clear about what cannot be."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadPlan, DeviceError, LayoutError
from memlane.launch import Target
from memlane.layout import Fields, Permuted, Selection, array_layout, column_major
from memlane.plan import Launch as PlannedLaunch
from memlane.plan import from_json, to_json
from memlane.remap.requests import CHUNK_COUNTS, HostArray, Request
from memlane.remap.transfers import best_chunks, borders_of, plan_of, prediction
from memlane.transfer import LaidOutArray, download, gather, lay_out, upload
from memlane.transfer.transfer import _kept
from tests.targets.graphing import GraphingEmulator, ShuffledGraph

SCALE = """
extern "C" __global__ void total(const float* part, float* sums, int first, int rows, int pitch, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int c = 0; c < columns; ++c) sum += part[c * pitch + row];
    sums[first + row] = sum;
}
"""


@pytest.fixture(params=["one by one", "as a graph in any order"])
def target(request: pytest.FixtureRequest) -> Target:
    return ml.target("emulator:h200") if request.param == "one by one" else GraphingEmulator(seed=5)


def numbers(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(shape[0]).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("layout", ["row-major", "column-major", "diagonal", "pad(3)", "tiled(7, 5)", "tiled(10, 17)"])
@pytest.mark.parametrize(("chunks", "overlap"), [(1, True), (5, True), (5, False)])
def test_an_array_arrives_in_its_layout_and_comes_back(target: Target, layout: str, chunks: int, overlap: bool) -> None:
    host = numbers(330, 34)
    array = upload(target, host, layout=layout, chunks=chunks, overlap=overlap)
    expected = array_layout(layout, host.shape)
    assert array.layout == expected
    assert np.array_equal(array.numpy().ravel()[expected.table], host)
    assert np.array_equal(download(array, chunks=chunks, overlap=overlap), host)


@pytest.mark.parametrize(
    "of",
    [
        lambda host: host[::2, ::-1],
        lambda host: np.asfortranarray(host),
        lambda host: host.astype(">f4"),
        lambda host: host.astype(">f4")[::3],
        lambda host: np.broadcast_to(host[0], host.shape),
        lambda host: host.astype("c16"),
        lambda host: host.astype("u1"),
        lambda host: host.astype("f2")[1:],
    ],
    ids=["negative strides", "Fortran", "big-endian", "big-endian with gaps", "read-only", "complex", "bytes", "halves"],
)
def test_any_memory_of_the_host_is_taken(target: Target, of: Callable[[np.ndarray], np.ndarray]) -> None:
    host = of(numbers(60, 34))
    before = host.copy()
    array = upload(target, host, layout="column-major", chunks=3)
    assert array.dtype == host.dtype.newbyteorder("=")
    assert np.array_equal(array.numpy(), before.T)
    assert np.array_equal(download(array), before)
    assert np.array_equal(host, before)


def test_arrays_of_other_libraries_come_through_dlpack(target: Target) -> None:
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **more: object) -> object:
            return self.array.__dlpack__(**more)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    host = numbers(12, 7)
    assert np.array_equal(upload(target, Foreign(host), layout="column-major").numpy(), host.T)


def test_more_dimensions_and_short_first_axes(target: Target) -> None:
    host = numbers(3, 5, 64, 6, dtype="i2")
    layout = Permuted(host.shape, (3, 1, 0, 2))
    assert np.array_equal(upload(target, host, layout=layout, chunks=4).numpy(), host.transpose(layout.order))
    fields = numbers(3, 5000)
    array = upload(target, fields, layout="column-major", chunks=4)
    assert (array.transfer.made.axis, array.transfer.chunks) == (1, 4)
    assert np.array_equal(array.numpy(), fields.T)
    assert np.array_equal(download(array, chunks=7), fields)


def test_structures_become_arrays_of_their_fields(target: Target) -> None:
    kind = np.dtype([("position", "f4", 3), ("mass", "f8"), ("charge", "i2")])
    host = np.zeros(700, kind)
    host["position"], host["mass"], host["charge"] = numbers(700, 3), numbers(700), numbers(700)
    array = upload(target, host, layout="soa", chunks=3)
    for name in kind.names:
        assert np.array_equal(array.field(name).numpy(), host[name])
    assert np.array_equal(download(array), host)
    every_second = upload(target, host[::-2], layout="soa", chunks=2)
    host["mass"] += 1
    every_second.transfer.run()  # which reads the host's own memory again
    assert np.array_equal(download(every_second), host[::-2])
    with pytest.raises(LayoutError, match="no separate field 'spin'; its fields are: position, mass, charge"):
        array.field("spin")


def test_zero_elements_and_one(target: Target) -> None:
    empty = upload(target, np.empty((0, 5), "f4"), layout="column-major")
    assert empty.shape == (0, 5)
    assert download(empty).shape == (0, 5)
    assert download(upload(target, np.float32(7))).tolist() == [7]
    assert upload(target, np.zeros(0, [("x", "f4"), ("y", "f8")]), layout="soa").shape == (0,)


def test_a_transfer_is_repeated_with_what_the_host_holds_then(target: Target) -> None:
    host = numbers(64, 64)
    array = upload(target, host, layout="column-major", chunks=4)
    host[...] = numbers(64, 64) + 1
    for _ in range(2):
        array.transfer.run()
    assert np.array_equal(array.numpy(), host.T)
    assert not array.transfer.predicted or array.transfer.predicted.is_modelled
    timeline = array.transfer.time()
    assert [span.name for span in timeline.spans][:2] == (["stage 0", "upload 0"] if not target.modelled else ["upload 0", "remap 0"])


@pytest.mark.parametrize("reads", ["chunk", "all"])
def test_a_consumer_starts_on_each_chunk(target: Target, reads: str) -> None:
    host = numbers(1000, 8)
    total = target.load(ml.cuda(SCALE))["total"]
    sums = target.zeros(1000)
    seen = []

    def then(chunk: object) -> tuple[object, ...]:
        seen.append((chunk.number, chunk.first, chunk.count))
        return total[-(-chunk.count // 64), 64], chunk.data, sums, chunk.first, chunk.count, 1000, 8

    array = upload(target, host, layout="column-major", chunks=4, then=then, reads=reads)
    assert np.array_equal(sums.numpy(), host.sum(axis=1))
    parts = array.transfer.chunks if reads == "chunk" else 1
    assert [number for number, _, _ in seen] == list(range(parts))
    assert sum(count for _, _, count in seen) == 1000
    # the first consumer waits for its own chunk alone, or for all of them
    waits = next(step for step in array.transfer.plan.steps if step.label == "then 0").after
    assert len(waits) == (1 if reads == "chunk" else array.transfer.chunks)


def test_arrays_on_the_device_are_laid_out_there() -> None:
    target = ml.target("emulator:h200")
    host = numbers(50, 36)
    array = lay_out(target.array(host), layout="column-major")
    assert np.array_equal(array.numpy(), host.T)
    assert np.array_equal(download(array), host)
    square = target.array(numbers(70, 70))
    turned = lay_out(square, layout="column-major", in_place=True)
    assert turned.address == square.address
    assert np.array_equal(turned.numpy(), numbers(70, 70).T)


@pytest.mark.parametrize("index", ["i4", "i8", ">i4"])
def test_rows_are_gathered_by_index(target: Target, index: str) -> None:
    rows, indices = numbers(100, 6), np.random.default_rng(3).integers(0, 100, 5000).astype(index)
    array = gather(target, rows, indices, chunks=3)
    assert np.array_equal(array.numpy(), rows[indices])
    assert np.array_equal(download(array), rows[indices])
    selected = upload(target, rows, layout=Selection(indices.astype("i4"), 100), chunks=2)
    assert np.array_equal(selected.numpy(), rows[indices])
    on_device = gather(target, target.array(rows), target.array(indices.astype(indices.dtype.newbyteorder("="))))
    assert np.array_equal(on_device.numpy(), rows[indices])


def test_the_first_index_out_of_range_is_named(target: Target) -> None:
    indices = np.zeros(5000, "i4")
    indices[[3333, 4999]] = 100, -7
    with pytest.raises(LayoutError, match=r"^index 100 at position 3333 of the gather is outside 0..99: correct it, or clip the indices$"):
        gather(target, numbers(100, 4), indices, chunks=4)
    with pytest.raises(LayoutError, match=r"index -7 at position 0 of the gather is outside 0..99"):
        gather(target, target.array(numbers(100, 4)), target.array(np.array([-7])))
    with pytest.raises(LayoutError, match="index 0 at position 0 of the gather is outside an array without rows"):
        gather(target, np.empty((0, 4), "f4"), np.zeros(3, "i4"))


# -- chunks ----------------------------------------------------------------------------------------------------------------------


def test_auto_takes_the_count_with_the_least_predicted_time() -> None:
    chip = load("h200")
    request = Request("upload", HostArray((16384, 16384), "f4", True), column_major((16384, 16384)), 1)
    times = {}
    for chunks in CHUNK_COUNTS:
        made = plan_of(Request(request.direction, request.host, request.layout, chunks))
        times[made.chunks] = prediction(made, chip, 1.0).elapsed_ns
    best = best_chunks(request, chip, 1.0)
    assert times[best] == min(times.values())
    assert 4 <= best <= 64
    copy_ns = 2**30 / chip.links.host_gb_per_s
    assert copy_ns < times[best] < 1.01 * copy_ns
    assert times[1] > 1.02 * copy_ns
    small = Request("upload", HostArray((64, 64), "f4", True), column_major((64, 64)), 1)
    assert best_chunks(small, chip, 1.0) == 1


def test_a_gather_takes_the_count_with_the_least_predicted_time() -> None:
    target = ml.target("emulator:h200", deterministic=True)
    draw = np.random.default_rng(5)
    rows, indices = target.pinned(4096), target.pinned(100_000, "i4")
    rows[...], indices[...] = draw.random(4096), draw.integers(0, 4096, 100_000)
    array = gather(target, rows, indices)
    timed = {chunks: gather(target, rows, indices, chunks=chunks).transfer.time().elapsed_ns for chunks in (1, 2, 4, 16)}
    assert array.transfer.predicted.elapsed_ns == pytest.approx(array.transfer.time().elapsed_ns, rel=0.1)
    assert array.transfer.time().elapsed_ns <= 1.05 * min(timed.values())
    assert timed[16] > 1.2 * min(timed.values())
    assert np.array_equal(array.numpy(), rows[indices])


def test_a_chip_without_numbers_of_its_link_gets_no_prediction() -> None:
    array = upload(ml.target("emulator:gtx680"), numbers(300, 8), layout="column-major")
    assert array.transfer.predicted is None
    assert array.transfer.chunks > 1


@pytest.mark.parametrize(("extent", "chunks"), [(1, 4), (7, 3), (1000, 16), (100_003, 64), (256, 256)])
def test_chunks_cover_the_axis_and_the_last_may_be_short(extent: int, chunks: int) -> None:
    borders = borders_of(column_major((extent, 5)), 0, chunks)
    sizes = np.diff(borders)
    assert (borders[0], borders[-1]) == (0, extent)
    assert len(sizes) <= chunks
    assert (sizes > 0).all()
    assert len(set(sizes[:-1])) <= 1


def test_a_prediction_stands_beside_the_measurement() -> None:
    array = upload(ml.target("emulator:h200"), numbers(512, 512), layout="column-major", chunks=4)
    predicted, timed = array.transfer.predicted, array.transfer.time()
    assert [span.name for span in predicted.spans] == [span.name for span in timed.spans]
    assert predicted.is_modelled


def test_nothing_overlaps_where_that_is_not_wished() -> None:
    request = Request("upload", HostArray((1024, 64), "f4", False), column_major((1024, 64)), 4, overlap=False)
    spans = prediction(plan_of(request), load("h200"), 10.0).spans
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(spans))


# -- what goes wrong -------------------------------------------------------------------------------------------------------------


class Small(GraphingEmulator):
    """A device whose memory is exhausted at the third allocation, or whose kernels are interrupted."""

    left = 2
    interrupts = False

    def allocate(self, nbytes: int) -> tuple[int, object]:
        self.left -= 1
        if self.left < 0:
            raise DeviceError(f"not enough free device memory for {nbytes} bytes")
        return super().allocate(nbytes)

    def launch(self, launch: object) -> None:
        if self.interrupts:
            raise KeyboardInterrupt
        super().launch(launch)


def test_memory_exhausted_midway_leaves_nothing_behind() -> None:
    target, host = Small(), numbers(512, 64)
    before = host.copy()
    with pytest.raises(DeviceError, match="not enough free device memory"):
        upload(target, host, layout="column-major", chunks=8)
    _all_is_freed(target)
    assert np.array_equal(host, before)
    target.left = 0
    with pytest.raises(
        DeviceError, match=r"131,072 bytes for Permuted\(512x64.* do not fit on emulator:h200.*; free arrays, or upload fewer"
    ):
        upload(target, host, layout="column-major", chunks=8)


def test_memory_that_cannot_be_pinned_is_said() -> None:
    class Unpinnable(GraphingEmulator):
        def pinned(self, shape: object, dtype: object = np.float32) -> np.ndarray:
            if np.prod(shape) > 1 << 24:
                raise DeviceError("the driver pins no more memory")
            return super().pinned(shape, dtype)

    with pytest.raises(DeviceError, match=r"no pinned memory of 33,554,432 bytes to stage a chunk in: .*; pass a larger chunks="):
        upload(Unpinnable(), np.zeros((4096, 2048), "f4"), chunks=1)


def test_a_gather_that_does_not_fit_is_refused_before_it_copies() -> None:
    target, rows = Emulator(load("h200"), memory_bytes=10_000), numbers(100, 10)
    sentence = (
        r"^a gather of 200 rows needs 12,808 bytes on emulator:h200, where 10,000 bytes are free: free arrays, or gather fewer rows at"
    )
    with pytest.raises(DeviceError, match=sentence):
        gather(target, rows, np.zeros(200, "i4"))
    assert target.free_bytes() == 10_000
    assert np.array_equal(gather(target, rows, np.zeros(20, "i4")).numpy(), rows[np.zeros(20, int)])


def test_memory_is_free_again_as_soon_as_nothing_refers_to_it() -> None:
    target = Emulator(load("h200"), memory_bytes=1 << 20)
    array = upload(target, numbers(64, 64), layout="column-major", chunks=4)
    array.transfer.run()
    array.transfer.time()
    del array
    assert target.free_bytes() == 1 << 20


def test_numbers_of_numpy_are_arguments_of_a_consumer(target: Target) -> None:
    host, total, sums = numbers(64, 8), target.load(ml.cuda(SCALE))["total"], target.zeros(64)
    upload(target, host, layout="column-major", chunks=np.int64(2), then=lambda chunk: (
        total[1, 64], chunk.data, sums, np.int32(chunk.first), np.uint8(chunk.count), 64, np.int64(8)
    ))  # fmt: skip
    assert np.array_equal(sums.numpy(), host.sum(axis=1))


def test_an_interruption_gives_everything_back() -> None:
    target, host = Small(), numbers(512, 64)
    target.left, target.interrupts = 100, True
    with pytest.raises(KeyboardInterrupt):
        upload(target, host, layout="column-major", chunks=8)
    _all_is_freed(target)
    target.interrupts = False
    assert np.array_equal(upload(target, host, layout="column-major", chunks=8).numpy(), host.T)


def _all_is_freed(target: Emulator) -> None:
    gc.collect()
    kept = sum(array.nbytes for array in _kept.get(target, []))
    borrowed = [array for array in target.pinned_memory if array.nbytes]
    assert kept == sum(array.nbytes for array in borrowed)
    # the next allocation finds the device empty but for code
    assert not [buffer for buffer in gc.get_objects() if isinstance(buffer, LaidOutArray) and buffer.target is target]


def test_a_transfer_that_is_dropped_is_waited_for_before_its_ring_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    target, waits = GraphingEmulator(), []
    monkeypatch.setattr(ShuffledGraph, "wait", lambda graph: waits.append(len(_kept.get(target, []))))
    array = upload(target, numbers(512, 64), layout="column-major", chunks=8, wait=False)
    assert not waits
    kept = len(_kept.get(target, []))
    del array
    gc.collect()
    assert waits == [kept]
    assert len(_kept[target]) == kept + 3


def test_the_hosts_array_lives_as_long_as_its_transfer() -> None:
    class Watched(np.ndarray):
        pass

    host = numbers(64, 64).view(Watched)
    alive = weakref.ref(host)
    array = upload(ml.target("emulator:h200"), host, layout="column-major", wait=False)
    del host
    assert alive() is not None
    array.wait()
    del array
    gc.collect()
    assert alive() is None


class OnDevice:
    def __dlpack__(self, **more: object) -> object:
        raise AssertionError

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


HERE = ml.target("emulator:h200")
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: upload(HERE, numbers(4, 4), layout=column_major((4, 5))), r"for an array of shape \(4, 5\), not \(4, 4\)"),
    (lambda: upload(HERE, numbers(4, 4), layout="helix"), "unknown array layout 'helix'"),
    (lambda: upload(HERE, np.array([object()])), "are Python objects, which a device cannot hold: convert them"),
    (lambda: upload(HERE, "text of a file"), "host must be a NumPy array or support DLPack, not a str"),
    (lambda: upload(HERE, OnDevice()), r"in device memory: change its layout there with memlane.transfer.lay_out\(target.adopt\(array\)"),
    (lambda: upload(HERE, numbers(4, 4), chunks=0), "chunks must be a number of at least 1, or 'auto', not 0"),
    (lambda: upload(HERE, numbers(4, 4), threads=0), "the host copies with at least one thread, not 0"),
    (lambda: upload(HERE, numbers(4, 4), then=lambda chunk: 7), r"then\(chunk\) must return a tuple of kernel\[grid, block\]"),
    (lambda: upload(HERE, np.zeros((2, 2, 2, 2, 2), "f4")), "for arrays of 1 to 4 dimensions, not 5"),
    (
        lambda: upload(HERE, np.zeros(3, [("x", ">f4"), ("y", "u1")]), layout="soa"),
        "are not converted during the upload: convert them first",
    ),
    (
        lambda: download(HERE.array(numbers(4, 4)), np.empty((4, 5), "f4")),
        r"the array to fill has shape \(4, 5\) of float32; the download has",
    ),
    (lambda: download(HERE.array(numbers(4, 4)), np.broadcast_to(np.float32(1), (4, 4))), "the array to fill is read-only"),
    (lambda: download(HERE.array(numbers(4, 4)), layout="pad(1)"), "needs 20 elements, but the array has 16"),
    (lambda: lay_out(HERE.array(numbers(4, 5)), layout="column-major", in_place=True), "only a square matrix can be transposed in place"),
    (lambda: lay_out(HERE.array(numbers(4, 4)), layout="column-major", shape=(3, 4)), "cannot have the shape"),
    (lambda: lay_out(HERE.array(numbers(4, 4)), layout="pad(4)", out=HERE.zeros(16)), "has 64 bytes; .* needs 128"),
    (lambda: _overlapping(), "overlaps with the one that is read"),
    (lambda: upload(HERE, numbers(4, 4), layout=Selection(np.zeros(3, "i4"), 5)), r"is for an array of 5 rows, not one of shape \(4, 4\)"),
    (
        lambda: upload(HERE, numbers(4, 4), layout=Selection(np.zeros(3, "i4"), 4), then=print),
        "then= works only with layouts that contain each element",
    ),
    (lambda: upload(None, numbers(4, 4)), r"the target must be an object that ml\.target\(\) returns, or its name, not None"),
    (lambda: upload(HERE, [[1.0, 2.0]]), "host must be a NumPy array or support DLPack, not a list: use np.asarray for a list"),
    (
        lambda: upload(HERE, HERE.zeros((4, 4))),
        r"host is already an array on emulator:h200: change its layout there with memlane\.transfer\.lay_out",
    ),
    (lambda: upload(HERE, np.ma.masked_array(numbers(4, 4), numbers(4, 4) > 50)), r"whose mask would be lost: .* host\.filled\(value\)"),
    (lambda: upload(HERE, np.empty((0, 4)), layout="helix"), "unknown array layout 'helix'"),
    (lambda: upload(HERE, numbers(4, 4), layout=lambda shape: None), r"must return a layout of memlane\.layout for \(4, 4\), not NoneType"),
    (lambda: upload(HERE, np.zeros((5, 3), [("x", "f4"), ("y", "f4")]), layout="soa"), r"not one of shape \(5, 3\): reshape it to \(-1,\)"),
    (
        lambda: upload(HERE, np.zeros(5, [("x", "f4"), ("y", "f4")]), layout=Fields((4, 2), (1, 1))),
        r"does not fit 5 structures of 8 bytes; use layout='soa'",
    ),
    (
        lambda: upload(HERE, np.zeros(5, [("x", "f4", 2), ("y", "f4")]), layout=Fields((5, 3), (1, 1, 1))).field("x"),
        "field 'x' is in several parts under Fields.*: upload the structures with layout='soa'",
    ),
    (lambda: upload(HERE, numbers(4, 4), chunks="4"), "chunks must be a number of at least 1, or 'auto', not '4'"),
    (lambda: upload(HERE, numbers(4, 4), threads="4"), "the host copies with at least one thread, not '4': give a number, or leave it out"),
    (lambda: upload(HERE, numbers(4, 4), then=7), r"then= is a function of a chunk .* write then=lambda chunk: \(kernel\[grid, block\]"),
    (lambda: upload(HERE, numbers(4, 4), reads="chunks"), "reads= is 'chunk' or 'all', not 'chunks'"),
    (lambda: download(numbers(4, 4)), "what is downloaded must be an array on a target, as returned by ml.upload, .*, not a ndarray"),
    (lambda: download(HERE.zeros((2, 3)), [0] * 6), r"must be a NumPy array, not a list: create it with np\.empty\(\(2, 3\), 'float32'\)"),
    (
        lambda: download(HERE.zeros((2, 3)), np.zeros((2, 3), "i4")),
        "has shape .* of int32; the download has shape .* of float32: create it with",
    ),
    (lambda: lay_out(numbers(4, 4), layout="column-major"), "what is laid out must be an array on a target"),
    (lambda: lay_out(HERE.zeros((4, 4)), layout="pad(1)", out=numbers(4, 5)), "out must be an array on a target"),
    (lambda: gather(HERE, numbers(4, 4), np.zeros(3)), "integers of 32 or 64 bits, not an array of float64"),
    (lambda: gather(HERE, np.float32(1), np.zeros(3, "i4")), "a gather needs rows along a first axis"),
]


def _overlapping() -> object:
    whole = HERE.zeros((8, 8))
    part = ml.DeviceArray(HERE, whole.address + 64, (7, 7), whole.dtype, whole)
    return lay_out(whole, layout="column-major", out=ml.DeviceArray(HERE, part.address, (8, 8), part.dtype, whole))


@pytest.mark.parametrize(("make", "sentence"), WRONG)
def test_bad_input_gets_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises((LayoutError, BadPlan), match=sentence):
        make()


def test_plans_hold_no_kernel_that_is_not_theirs() -> None:
    made = plan_of(Request("upload", HostArray((64, 64), "f4", True), column_major((64, 64)), 2))
    launches = [step.action for step in made.plan.steps if isinstance(step.action, PlannedLaunch)]
    assert {launch.kernel.module for launch in launches} == set(made.kernels)
    assert from_json(to_json(made.plan)) == made.plan
