"""Reductions on a device: every type, operation and size against NumPy, the same bits as the emulator, and the lab."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from memlane.driver import Device
from memlane.errors import BadLaunch
from memlane.lab import LABS, Request
from memlane.lab.reduction import Reducer, reduce
from memlane.lab.reduction.elements import ELEMENTS, OPS, WITH_INDEX
from memlane.lab.reduction.ladder import BLOCKS, STEPS, passes
from memlane.lab.reduction.measure import bulk_launch
from memlane.lab.reduction.shapes import CLUSTER, PACKED, TICKET, Shape
from memlane.launch import DeviceArray, Target
from tests.lab.test_reduction import expected, numbers

pytestmark = pytest.mark.gpu


@lru_cache(maxsize=2)
def many(n: int) -> np.ndarray:
    """As `numbers`, but quick to make."""
    return np.resize(numbers(1_000_003), n)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.file)
def test_every_step_sums_with_every_block(gpu: Device, step: Any) -> None:
    for n in (16, 4099, 3_000_017):
        array = gpu.array(many(n))
        for block in BLOCKS:
            assert passes(step, array, block).run() == many(n).sum(dtype=np.int32), (n, block)


@pytest.mark.parametrize("power", [4, 10, 16, 18, 20, 22, 24, 26, 28, 30])
def test_sums_of_all_sizes(gpu: Device, power: int) -> None:
    for n in {1 << power, (1 << power) - 1} if power < 28 else {(1 << power) - (power < 30)}:
        array = gpu.array(many(n))
        wanted = many(n).sum(dtype=np.int32)
        assert reduce(array).item() == wanted
        if power <= 26:
            assert reduce(array, reproducible=True).item() == wanted
            part = DeviceArray(gpu, array.address + 4, (n - 1,), array.dtype, array)
            assert reduce(part).item() == many(n)[1:].sum(dtype=np.int32)


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("op", OPS)
def test_every_type_and_operation(gpu: Device, dtype: str, op: str) -> None:
    for n in (60_007, 2_000_003):
        values = np.resize(numbers(100_003, dtype), n)
        if op == "product" and values.dtype.kind == "f":
            values = np.where(np.arange(n) % 1000 == 5, values, 1).astype(dtype)[:50_000]
        bound = Reducer(gpu.array(values), op)
        got = bound().item()
        if values.dtype.kind == "i" or op in ("min", "max", *WITH_INDEX):
            assert got == expected(values, op), n
            continue
        wide, computed = values.astype(np.float64), np.float32 if dtype == "float16" else values.dtype
        size = np.abs(wide).sum() if op == "sum" else abs(expected(values, op))
        error = (bound.depth if op == "sum" else n) * float(np.finfo(computed).eps) * size
        with np.errstate(over="ignore"):
            wanted = float(np.asarray(expected(values, op)).astype(dtype))
        assert got == wanted or abs(got - wanted) <= error + float(np.finfo(dtype).eps) * abs(wanted), n


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_nan_wins(gpu: Device, dtype: str) -> None:
    values = numbers(200_001, dtype)
    values[[7000, 199_999]] = np.nan
    array = gpu.array(values)
    assert np.isnan(reduce(array, "min").item())
    assert np.isnan(reduce(array, "max").item())
    assert reduce(array, "argmin").item() == reduce(array, "argmax").item() == 7000


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_the_same_bits_for_every_launch_shape_and_as_on_the_emulator(gpu: Device, emulator: Target, dtype: str) -> None:
    values = numbers(700_001, dtype)
    array = gpu.array(values)
    shapes = [None, Shape(64, 4, 13), Shape(256, 1, 100), Shape(512, 8, 3), Shape(1024, 2, 1000)]
    found = {Reducer(array, reproducible=True, shape=shape)().numpy().tobytes() for shape in shapes}
    found.add(Reducer(emulator.array(values), reproducible=True)().numpy().tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("finish", [TICKET, PACKED, CLUSTER])
def test_a_graph_replays_it(gpu: Device, finish: str) -> None:
    """The memory in which blocks meet is as it was after each."""
    array = gpu.array(many(100_003))
    bound = Reducer(array, shape=Shape(256, 4, 8, finish))
    out = bound.empty()
    graph = gpu.graph([bound.launch(out)] * 10)
    for _ in range(3):
        out.copy_from(np.int32(0))
        graph.replay()
        assert out.item() == many(100_003).sum(dtype=np.int32)


def test_the_copy_engine_brings_it(gpu: Device) -> None:
    array, out = gpu.array(many(1 << 20)), gpu.zeros(1, np.int32)
    gpu.launch(bulk_launch(out, array))
    assert out.item() == many(1 << 20).sum(dtype=np.int32)


@pytest.mark.parametrize("shape", [(3000, 4096), (5, 70, 333), (100_000, 3), (2, 1_000_000), (1, 1), (70_000, 2, 33)])
@pytest.mark.parametrize("op", ["sum", "argmax"])
def test_axes(gpu: Device, shape: tuple[int, ...], op: str) -> None:
    values = many(int(np.prod(shape))).reshape(shape)
    array = gpu.array(values)
    for axis in range(len(shape)):
        for _ in range(2):
            assert np.array_equal(reduce(array, op, axis).numpy(), expected(values, op, axis)), axis


def test_results_that_are_held_stay(gpu: Device) -> None:
    array = gpu.array(many(5000))
    held = [reduce(array) for _ in range(20)]
    array.copy_from(many(5000) + 1)
    held.append(reduce(array))
    assert {one.item() for one in held[:-1]} == {many(5000).sum(dtype=np.int32)}
    assert held[-1].item() == (many(5000) + 1).sum(dtype=np.int32)


def test_arrays_of_torch(gpu: Device) -> None:
    torch = pytest.importorskip("torch")
    a = torch.arange(100_000, dtype=torch.int32, device="cuda:0").reshape(1000, 100)
    assert reduce(a).item() == int(a.sum().item()) % 2**32 - (2**32 if int(a.sum().item()) % 2**32 >= 2**31 else 0)
    assert np.array_equal(reduce(a, "max", 0).numpy(), a.max(0).values.cpu().numpy())
    assert reduce(a.reshape(-1)[3:], "min").item() == 3
    with pytest.raises(BadLaunch, match="is not C-contiguous"):
        reduce(a.t())


def test_the_lab_measures_everything(gpu: Device) -> None:
    result = LABS["reduction"].run(gpu, Request(quick=True))
    assert [row for row in result.rows if row.metric == "not measured"] == []
    times = {row.case: row.value for row in result.rows if row.metric == "time of a step"}
    assert times["2^22, block 128, 1: interleaved, divergent"] > 2 * times["2^22, block 128, 7: many elements a thread"]
