"""Remaps on a GPU: the same bytes as NumPy, from pinned and pageable memory, with consumers, and back."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.errors import DeviceError, LayoutError
from memlane.layout import Permuted, column_major
from memlane.transfer import download, gather, lay_out, upload
from tests.remap.moving import moved
from tests.remap.test_transfers import SCALE

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> ml.Target:
    return ml.target("cuda:0")


@pytest.mark.parametrize("element", [1, 2, 4, 8, 16, 12])
@pytest.mark.parametrize("shape", [(1024, 768), (1000, 999), (4096, 7), (3, 5000)])
def test_kernels_move_what_numpy_moves(gpu: ml.Target, element: int, shape: tuple[int, int]) -> None:
    for back in (False, True):
        moved(gpu, column_major(shape), element, back=back)
    moved(gpu, Permuted((6, 8, 10, 12), (3, 1, 0, 2)), element)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("layout", ["row-major", "column-major", "diagonal", "tiled(8, 4)", "pad(3)"])
def test_uploads_arrive_and_come_back(gpu: ml.Target, pinned: bool, layout: str) -> None:
    host = gpu.pinned((2048, 1000), "f4") if pinned else np.empty((2048, 1000), "f4")
    host[...] = np.random.default_rng(1).integers(0, 1000, host.shape)
    for chunks, overlap in (("auto", True), (7, True), (7, False)):
        array = upload(gpu, host, layout=layout, chunks=chunks, overlap=overlap)
        assert np.array_equal(array.numpy().ravel()[array.layout.table], host)
        assert np.array_equal(download(array, chunks=chunks, overlap=overlap), host)
        host += 1
        array.transfer.run()
        assert np.array_equal(download(array), host)
        assert len(array.transfer.time().spans) == len(array.transfer.plan.steps)


def test_consumers_streams_and_waiting(gpu: ml.Target) -> None:
    host = np.random.default_rng(2).integers(0, 9, (40_000, 8)).astype("f4")
    total, sums = gpu.load(ml.cuda(SCALE))["total"], gpu.zeros(40_000)
    stream = gpu.stream()
    array = upload(
        gpu,
        host,
        layout="column-major",
        chunks=8,
        stream=stream,
        wait=False,
        then=lambda chunk: (total[-(-chunk.count // 64), 64], chunk.data, sums, chunk.first, chunk.count, 40_000, 8),
    )
    array.wait()
    assert np.array_equal(sums.numpy(), host.sum(axis=1))


@pytest.mark.parametrize("pinned", [True, False])
def test_streams_keep_no_array(gpu: ml.Target, pinned: bool) -> None:
    host = gpu.pinned((100_003, 8)) if pinned else np.empty((100_003, 8), "f4")
    host[...] = np.random.default_rng(6).integers(0, 9, host.shape)
    total, sums = gpu.load(ml.cuda(SCALE))["total"], gpu.zeros(len(host))
    for options in ({}, {"overlap": False, "chunks": 5}):
        stream = upload(
            gpu,
            host,
            layout="column-major",
            keep=False,
            then=lambda chunk: (total[-(-chunk.count // 64), 64], chunk.data, sums, chunk.first, chunk.count, chunk.count, 8),
            **options,
        )
        assert np.array_equal(sums.numpy(), host.sum(axis=1))
        assert len(stream.time().spans) == len(stream.plan.steps)


def test_free_memory_is_known_and_too_little_is_said(gpu: ml.Target) -> None:
    free = gpu.free_bytes()
    assert free is not None
    array = gpu.empty(1 << 30, "u1")
    assert free - gpu.free_bytes() >= array.nbytes // 2  # another process may free some meanwhile
    with pytest.raises(DeviceError, match=r"do not fit on cuda:0, where .* bytes are free: free arrays, or give a kernel one chunk"):
        upload(gpu, np.broadcast_to(np.float32(1), (1 << 34, 64)), layout="column-major")


def test_gathers_and_squares(gpu: ml.Target) -> None:
    rows, indices = np.random.default_rng(3).random((5000, 16), dtype="f4"), np.random.default_rng(4).integers(0, 5000, 70_000)
    assert np.array_equal(gather(gpu, rows, indices).numpy(), rows[indices])
    indices[60_001] = 5000
    with pytest.raises(LayoutError, match=r"index 5000 at position 60001 of the gather is outside 0..4999"):
        gather(gpu, rows, indices)
    square = np.random.default_rng(5).random((333, 333))
    assert np.array_equal(lay_out(gpu.array(square), layout="column-major", in_place=True).numpy(), square.T)
