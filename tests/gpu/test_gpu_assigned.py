"""Slices of the trace buffer on a GPU: those that the host gives to launches, and those that warps of graphs ask for."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.driver import Device
from memlane.instrument import Sampling, TraceOptions
from memlane.launch import observing
from memlane.measure import Tracer
from memlane.ptx import parse
from tests.measure.test_assigned_slices import GRID, LOOP, SAMPLES, THREADS, TURNS, WARPS, rows

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_rows_from_slices_of_either_kind(gpu: Device, name: str) -> None:
    kernel, data = gpu.load(parse(LOOP, "turns.ptx"))["turns"], gpu.zeros(WARPS * 32, "u4")
    options = TraceOptions(sampling=SAMPLES[name])
    found = []
    for repeats in (0, 2):
        with observing(tracer := Tracer(options, records_per_warp=16)):
            if repeats:
                graph = gpu.graph([kernel[GRID, THREADS].bind(data, TURNS)])
                for _ in range(repeats):
                    graph.replay()
                graph.wait()
            else:
                kernel[GRID, THREADS](data, TURNS)
        found.append(rows(tracer))
    single, replayed = found
    assert len(single) == 1
    assert list(replayed.values()) == list(single.values()) * 2
    assert data.numpy().tolist() == [3 * TURNS] * (WARPS * 32)


def test_a_stream_that_nobody_captures_records_nothing(gpu: Device) -> None:
    assert not gpu.is_recording(gpu.default_stream)
    assert not gpu.is_recording(gpu.stream())


def test_a_stream_that_is_captured_says_so(gpu: Device) -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    graph, seen, numbers = torch.cuda.CUDAGraph(), [], torch.zeros(4, device="cuda")
    with torch.cuda.graph(graph, stream=stream):
        numbers += 1  # an empty graph is a warning
        seen.append(gpu.is_recording(gpu.adopt_stream(stream)))
    assert seen == [True]
    assert not gpu.is_recording(gpu.adopt_stream(stream))


def test_a_sample_keeps_the_blocks_of_a_multiprocessor(gpu: Device) -> None:
    """`interleaved` would have 36 registers where the original has 18; limited to 32, as many blocks fit."""
    from pathlib import Path

    from memlane.measure import trace

    module = parse((Path(__file__).parents[2] / "examples" / "ptx" / "reduction.ptx").read_text(), "reduction.ptx")
    name = next(one for one in module.kernels if "interleavedIi" in one)
    values = gpu.array(np.ones(1 << 16, np.int32))
    made = trace(gpu.load(module)[name][256, 256], gpu.zeros(256, "i4"), values, 1 << 16, every=32)
    changed = made.launches[0].perturbation
    assert changed is not None
    assert changed.plain is not None
    assert changed.probed is not None
    assert changed.probed.resident_blocks == changed.plain.resident_blocks
    assert changed.probed.local_bytes == 0
    assert made.lost == 0
    assert Sampling(every=32).chosen(256, 8).warps == len(made.warps)
