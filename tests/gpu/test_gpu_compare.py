"""Two traces of a GPU side by side: the same kernel twice is no change, the kernel with conflicts against the one without is one.

Times of two runs of one kernel may lie some cycles apart as a whole (clocks, the state of L2), which one launch a side cannot know; so
several launches are traced, and launches are what is resampled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memlane.compile import cuda
from memlane.diagnose.changes import summary
from memlane.diagnose.comparison import compare
from memlane.diagnose.side import LAUNCHES
from memlane.driver import Device
from memlane.launch import LoadedModule
from memlane.measure import Tracer
from memlane.record import Trace

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parents[2] / "examples" / "transpose.cu"
N = 512


@pytest.fixture(scope="module")
def kernels(gpu: Device) -> LoadedModule:
    return gpu.load(cuda(SOURCE))


def traced(kernels: LoadedModule, name: str) -> Trace:
    gpu = kernels.target
    out, source = gpu.empty((N, N), "f4"), gpu.array(np.random.default_rng(3).random((N, N), dtype=np.float32))
    kernels[name][(N // 32, N // 32), (32, 32)](out, source, N)
    with Tracer(counts=True) as tracer:
        for _ in range(LAUNCHES + 4):
            kernels[name][(N // 32, N // 32), (32, 32)](out, source, N)
    return tracer.finish()


def test_the_same_kernel_twice_is_no_change(kernels: LoadedModule) -> None:
    for name in ("naive", "tiled", "padded"):
        found = compare(traced(kernels, name), traced(kernels, name))
        [kernel] = found.kernels
        assert not any(line.changes[measure].is_change for line in kernel.lines for measure in ("requests", "sectors_per_request"))
        claimed = [line.op for line in kernel.lines if line.cycles_p50.is_change]
        assert len(claimed) <= 1, summary(found)


def test_without_conflicts_the_load_from_the_tile_is_quicker(kernels: LoadedModule) -> None:
    found = compare(traced(kernels, "tiled"), traced(kernels, "padded"), {"tiled": "padded"})
    [kernel] = found.kernels
    [load] = [line for line in kernel.lines if line.op == "ld.shared.f32"]
    assert (load.wavefronts_per_request.before, load.wavefronts_per_request.after) == (32, 1)
    assert load.cycles_p50.is_change
    assert load.cycles_p50.high is not None
    assert load.cycles_p50.high < 0
