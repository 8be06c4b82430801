"""Uploads that keep no array: each chunk is read by a kernel as soon as it is there, however little memory the device has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import DeviceError, LayoutError
from memlane.launch import Launch, Target
from memlane.layout import Fields, OfTile, Permuted, Selection
from memlane.layout.strides import ColumnMajor
from memlane.plan import View, from_json, races, to_json
from memlane.remap.requests import RING, Chunk
from memlane.transfer import Transfer, download, upload
from tests.targets.graphing import GraphingEmulator

CODE = r"""
// sums[first + i] = sum of row i of a chunk, whose element (i, j) lies at i * down + j * across
extern "C" __global__ void total(const float* part, float* sums, int first, int rows, int columns, int down, int across) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int j = 0; j < columns; ++j) sum += part[row * down + j * across];
    sums[first + row] += sum;
}
"""
ROWS, COLUMNS = 1003, 17
MEMORY = 20_000
"""Bytes of the small devices: the array alone has 68,204."""


@pytest.fixture(params=["one by one", "as a graph in any order"])
def target(request: pytest.FixtureRequest) -> Target:
    if request.param == "one by one":
        return Emulator(load("h200"), memory_bytes=MEMORY)
    return GraphingEmulator(seed=3, memory_bytes=MEMORY)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 100, shape).astype("f4")


class Sums:
    """A consumer that adds up rows, and what it was called with."""

    def __init__(self, target: Target, rows: int = ROWS) -> None:
        self.sums = target.zeros(rows)
        self.kernel = target.load(ml.cuda(CODE, name="total.cu"))["total"]
        self.chunks: list[Chunk] = []

    def __call__(self, chunk: Chunk) -> tuple[Any, ...]:
        self.chunks.append(chunk)
        rows, columns = chunk.layout.shape
        down, across = (stride // 4 for stride in chunk.data.strides)
        first = chunk.first if chunk.axis == 0 else 0
        return self.kernel[-(-rows // 128), 128], chunk.data, self.sums, first, rows, columns, down, across


@pytest.mark.parametrize(
    ("layout", "overlap", "pinned"),
    [
        ("row-major", True, True),
        ("row-major", True, False),
        ("column-major", True, True),
        ("column-major", True, False),
        ("column-major", False, True),
        ("pad(3)", False, False),
    ],
)
def test_an_array_larger_than_the_memory_is_summed_by_its_chunks(target: Target, layout: str, overlap: bool, pinned: bool) -> None:
    host = target.pinned((ROWS, COLUMNS)) if pinned else np.empty((ROWS, COLUMNS), "f4")
    host[...] = numbers(ROWS, COLUMNS)
    assert host.nbytes > 3 * MEMORY
    sums = Sums(target)
    free = target.free_bytes()
    stream = upload(target, host, layout=layout, then=sums, keep=False, overlap=overlap)
    assert np.array_equal(sums.sums.numpy(), host.sum(axis=1))
    counts = [chunk.count for chunk in sums.chunks]
    assert sum(counts) == ROWS
    assert 0 < counts[-1] < counts[0]
    assert len(set(counts[:-1])) == 1
    assert not races(stream.plan)
    assert free is not None
    assert sum(buffer.nbytes for buffer in stream.plan.buffers if buffer.home == 0 and not buffer.name.startswith("argument")) <= free
    assert target.free_bytes() == free


@pytest.mark.parametrize("chunks", [1, 4, 60])
def test_any_number_of_chunks_gives_the_same(target: Target, chunks: int) -> None:
    host, sums = numbers(60, COLUMNS), Sums(target, 60)
    stream = upload(target, host, layout="column-major", then=sums, keep=False, chunks=chunks)
    assert stream.chunks == chunks == len(sums.chunks)
    assert np.array_equal(sums.sums.numpy(), host.sum(axis=1))


def test_a_long_second_axis_is_cut(target: Target) -> None:
    host, sums = numbers(5, 1003), Sums(target, 5)
    upload(target, host, layout="column-major", then=sums, keep=False, chunks=8)
    assert {chunk.axis for chunk in sums.chunks} == {1}
    assert np.array_equal(sums.sums.numpy(), host.sum(axis=1))


@pytest.mark.parametrize(
    "of",
    [lambda host: host[::-2], np.asfortranarray, lambda host: host.astype(">f4"), lambda host: np.broadcast_to(host[0], host.shape)],
    ids=["negative strides", "Fortran", "big-endian", "read-only"],
)
def test_any_memory_of_the_host_is_streamed(target: Target, of: Callable[[np.ndarray], np.ndarray]) -> None:
    host = of(numbers(120, COLUMNS))
    sums = Sums(target, len(host))
    upload(target, host, layout="column-major", then=sums, keep=False, chunks=7)
    assert np.array_equal(sums.sums.numpy(), host.sum(axis=1))


def test_an_interruption_frees_the_ring() -> None:
    class Interrupting(GraphingEmulator):
        launches = 0

        def launch(self, launch: Launch) -> None:
            self.launches += 1
            if self.launches == 9:
                raise KeyboardInterrupt
            super().launch(launch)

    target = Interrupting(seed=2, memory_bytes=MEMORY)
    host, sums = numbers(200, COLUMNS), Sums(target, 200)
    before, free = host.copy(), target.free_bytes()
    with pytest.raises(KeyboardInterrupt):
        upload(target, host, layout="column-major", then=sums, keep=False)
    assert target.free_bytes() == free
    assert np.array_equal(host, before)
    sums.sums.copy_from(np.zeros(200, "f4"))
    upload(target, host, layout="column-major", then=sums, keep=False)
    assert np.array_equal(sums.sums.numpy(), host.sum(axis=1))


def test_the_ring_waits_for_what_reads_it() -> None:
    target = ml.target("emulator:h200")
    sums = Sums(target, 600)
    stream = upload(target, numbers(600, COLUMNS), layout="column-major", then=sums, keep=False, chunks=10)
    by_label = {step.label: number for number, step in enumerate(stream.plan.steps)}
    for number in range(RING, stream.chunks):
        assert by_label[f"remap {number - RING}"] in stream.plan.steps[by_label[f"upload {number}"]].after
        assert by_label[f"then {number - RING}"] in stream.plan.steps[by_label[f"remap {number}"]].after
    names = {buffer.name for buffer in stream.plan.buffers}
    assert names == {"host", "argument 0", *(f"{name} {slot}" for name in ("chunk", "laid out") for slot in range(RING))}
    assert from_json(to_json(stream.plan)) == stream.plan


def test_a_chunk_that_is_skipped_is_not_read(target: Target) -> None:
    host, sums = numbers(60, COLUMNS), Sums(target, 60)
    upload(target, host, then=lambda chunk: sums(chunk) if chunk.number % 2 else None, keep=False, chunks=6)
    expected = np.zeros(60, "f4")
    for chunk in sums.chunks:
        part = slice(chunk.first, chunk.first + chunk.count)
        expected[part] = host[part].sum(axis=1)
    assert 0 < sum(chunk.count for chunk in sums.chunks) < 60
    assert np.array_equal(sums.sums.numpy(), expected)


class Copied:
    """A consumer that copies the memory of each chunk into a place of its own."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.kernel = target.load(
            ml.cuda('extern "C" __global__ void keep(const unsigned char* of, unsigned char* to) { to[threadIdx.x] = of[threadIdx.x]; }')
        )["keep"]
        self.found: list[tuple[Chunk, ml.DeviceArray]] = []

    def __call__(self, chunk: Chunk) -> tuple[Any, ...]:
        view: View = chunk.data.buffer.view("u1", chunk.layout.size * chunk.data.itemsize)
        self.found.append((chunk, self.target.zeros(view.nbytes, "u1")))
        return self.kernel[1, view.nbytes], chunk.data, self.found[-1][1]


@pytest.mark.parametrize("layout", ["tiled(2, 3)", "diagonal", lambda shape: Permuted(shape, (1, 0)), Permuted((37, 5), (1, 0))])
def test_a_chunk_has_the_layout_of_its_own_shape(layout: Any) -> None:
    host, copied = numbers(37, 5), Copied(ml.target("emulator:h200"))
    upload("emulator:h200", host, layout=layout, then=_on(copied), keep=False, chunks=4)
    for chunk, array in copied.found:
        part = host[chunk.first : chunk.first + chunk.count]
        assert chunk.layout.shape == part.shape
        assert np.array_equal(array.numpy().view("f4")[chunk.layout.table], part)


def test_structures_are_taken_apart_chunk_by_chunk() -> None:
    kind = np.dtype([("position", "f4", 3), ("mass", "f8"), ("charge", "i4")])
    host = np.zeros(50, kind)
    host["position"], host["mass"], host["charge"] = numbers(50, 3), numbers(50), numbers(50)
    copied = Copied(ml.target("emulator:h200"))
    upload(copied.target, host, layout="soa", then=copied, keep=False, chunks=7)
    for chunk, array in copied.found:
        part = host[chunk.first : chunk.first + chunk.count]
        assert isinstance(chunk.layout, Fields)
        assert array.numpy().tobytes() == b"".join(np.ascontiguousarray(part[name]).tobytes() for name in kind.names or ())


def _on(copied: Copied) -> Copied:
    """A consumer for the target that a name gives."""
    copied.target = ml.target("emulator:h200")
    return copied


def test_it_is_awaited_drawn_predicted_and_repeated(tmp_path: Path) -> None:
    target = Emulator(load("h200"), memory_bytes=MEMORY)
    host, sums = numbers(ROWS, COLUMNS), Sums(target)

    async def awaited() -> Transfer:
        return await upload(target, host, then=sums, keep=False, wait=False)

    stream = asyncio.run(awaited())
    assert np.array_equal(sums.sums.numpy(), host.sum(axis=1))
    assert stream.predicted is not None
    assert [span.name for span in stream.predicted.spans] == [span.name for span in stream.time().spans]
    ml.draw(stream.predicted, tmp_path / "stream.svg")
    assert "upload 0" in (tmp_path / "stream.svg").read_text()
    sums.sums.copy_from(np.zeros(ROWS, "f4"))
    host[...] = numbers(ROWS, COLUMNS) + 1
    stream.run()
    assert np.array_equal(sums.sums.numpy(), host.sum(axis=1))
    assert repr(stream) == f"<Transfer: {stream.chunks} chunks, {len(stream.plan.steps)} steps on emulator:h200>"


def test_an_array_that_is_kept_can_be_awaited_too(target: Target) -> None:
    host = numbers(20, COLUMNS)

    async def awaited() -> np.ndarray:
        return download(await upload(target, host, layout="column-major", wait=False))

    assert np.array_equal(asyncio.run(awaited()), host)


def test_nothing_is_done_for_an_array_without_elements(target: Target) -> None:
    stream = upload(target, np.empty((0, 4), "f4"), then=_refused, keep=False)
    stream.run()
    assert not stream.plan.steps


def _refused(chunk: Chunk) -> None:
    raise AssertionError


# -- too little memory -----------------------------------------------------------------------------------------------------------


def test_auto_takes_more_chunks_where_few_would_not_fit() -> None:
    host = numbers(512, 16)
    target = Emulator(load("h200"), memory_bytes=host.nbytes + 7000)
    array = upload(target, host, layout="column-major")
    assert array.transfer.chunks == 16
    assert upload(ml.target("emulator:h200"), host, layout="column-major").transfer.chunks == 1
    assert np.array_equal(download(array), host)
    assert np.array_equal(array.numpy(), host.T)


TOO_LITTLE: list[tuple[dict[str, Any], str]] = [
    (
        {"layout": "column-major"},
        "68,408 bytes for Permuted(1003x17, order (1, 0)) and its chunks do not fit on emulator:h200, where 20,000 bytes are free: free "
        "arrays, or give a kernel one chunk after another with then= and keep=False",
    ),
    (
        {"layout": "column-major", "then": _refused, "keep": False, "chunks": 4},
        "104,448 bytes for chunks do not fit on emulator:h200, where 20,000 bytes are free: pass a larger chunks=, or chunks='auto'",
    ),
]


@pytest.mark.parametrize(("options", "sentence"), TOO_LITTLE)
def test_too_little_memory_is_said_before_anything_is_copied(target: Target, options: dict[str, Any], sentence: str) -> None:
    host = numbers(ROWS, COLUMNS)
    with pytest.raises(DeviceError, match=f"^{re.escape(sentence)}$"):
        upload(target, host, **options)
    assert target.free_bytes() == MEMORY


def test_chunks_that_do_not_fit_beside_their_array_are_said() -> None:
    host = numbers(512, 16)
    target = Emulator(load("h200"), memory_bytes=host.nbytes + 7000)
    sentence = (
        "^32,768 bytes for .* and 24,576 for chunks in transit do not fit on emulator:h200, where 39,768 bytes are free: pass a larger"
    )
    with pytest.raises(DeviceError, match=sentence):
        upload(target, host, layout="column-major", chunks=4)
    array = upload(target, host, layout="column-major", chunks=16)
    taken = target.zeros(6900, "u1")
    with pytest.raises(DeviceError, match=r"^192 bytes for chunks do not fit on emulator:h200, where 100 bytes are free: free arrays$"):
        download(array)
    del taken
    assert np.array_equal(download(array), host)


# -- what a stream cannot do -----------------------------------------------------------------------------------------------------

HERE = ml.target("emulator:h200")
WRONG: list[tuple[Callable[[], object], str]] = [
    (
        lambda: upload(HERE, numbers(4, 4), keep=False),
        "keep=False leaves no array on the device: pass then= to name the kernel that reads each",
    ),
    (
        lambda: upload(HERE, numbers(4, 4), keep=False, then=_refused, reads="all"),
        "reads='all' needs the whole array on the device, but keep=False",
    ),
    (
        lambda: upload(HERE, numbers(4, 4), layout=Selection(np.zeros(3, "i4"), 4), keep=False, then=_refused),
        "a gather needs all of its rows on the device: leave out keep=False",
    ),
    (
        lambda: upload(HERE, numbers(4, 4), layout=OfTile((4, 4), ColumnMajor(4, 4)), keep=False, then=_refused),
        "is for the whole array, but keep=False applies the layout to each chunk: pass a layout's name, or a function of the shape",
    ),
    (
        lambda: upload(HERE, numbers(40, 4), keep=False, then=lambda chunk: (Sums(HERE).kernel[1, 32], chunk.array), chunks=4),
        r"chunk\.array names the whole array, .* give the kernel chunk\.data, which holds elements 0 to 15 along axis 0, or leave out keep",
    ),
    (lambda: _given_the_host(), r"passes the host's array to the kernel, which cannot access it: pass chunk\.data, the chunk on the"),
]


def _given_the_host() -> object:
    host = numbers(4, 4)
    return upload(HERE, host, keep=False, then=lambda chunk: (Sums(HERE).kernel[1, 32], host[1:]))


@pytest.mark.parametrize(("make", "sentence"), WRONG)
def test_what_a_stream_cannot_do_gets_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        make()
