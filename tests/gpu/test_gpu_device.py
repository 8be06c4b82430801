"""What the examples do not use: arguments, shared memory, module variables, limits, and the device's own account of itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.driver import Device, probe
from memlane.errors import BadLaunch, DeviceError
from memlane.launch import Layers, LoadedModule, Stream, Target

pytestmark = pytest.mark.gpu


def test_the_device_has_a_chip(gpu: Device) -> None:
    assert gpu.name == "cuda:0"
    assert gpu.modelled is False
    assert gpu.chip.product == probe().devices[0]
    assert gpu.chip.compute_capability == gpu.compute_capability
    assert gpu.chip.sm_count >= 1
    assert gpu.chip.max_threads_per_block == 1024
    assert gpu.chip.dram_bytes > 1 << 30


@pytest.mark.parametrize("host", [np.arange(24, dtype="i2").reshape(2, 3, 4), np.array(2.5), np.zeros((0, 4)), np.eye(3)[:, ::2]])
def test_arrays_there_and_back(gpu: Device, host: np.ndarray) -> None:
    array = gpu.array(host)
    assert array.address % 256 == 0
    assert np.array_equal(array.numpy(), host)


def test_large_arrays_and_zeros(gpu: Device) -> None:
    host = np.random.default_rng(3).integers(0, 1 << 62, 1 << 23)
    assert np.array_equal(gpu.array(host).numpy(), host)
    assert not gpu.zeros(1 << 24, "u1").numpy().any()


def test_memory_comes_back(gpu: Device) -> None:
    """Half of the memory, again and again: dropping an array gives its memory back in time for the next."""
    nbytes = gpu.chip.dram_bytes // 2
    for _ in range(4):
        gpu.empty(nbytes, "u1")


def test_too_much_memory_is_an_error_that_says_so(gpu: Device) -> None:
    with pytest.raises(DeviceError, match=r"^cuda:0 refused [\d,]+ bytes of memory: "):
        gpu.empty(1 << 42, "u1")
    assert gpu.zeros(4).numpy().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("words", [0, 1000, 12 * 1024, 13 * 1024, 58112])
def test_dynamic_shared_memory(on_gpu: LoadedModule, on_emulator: LoadedModule, words: int) -> None:
    """58112 words are all that a block of an H200 may have; above 12 * 1024 the driver must be asked to allow it."""
    outputs = []
    for kernels in (on_gpu, on_emulator):
        out = kernels.target.zeros(max(1, words), "u4")
        kernels["reverse"][1, 256, None, 4 * words](out, words)
        outputs.append(out.numpy())
    assert np.array_equal(outputs[0][:words], 3 * np.arange(words)[::-1])
    assert np.array_equal(*outputs)


def test_a_block_cannot_have_more_shared_memory_than_there_is(on_gpu: LoadedModule) -> None:
    room = on_gpu.target.max_shared_bytes(on_gpu["reverse"])
    assert room == on_gpu.target.chip.max_shared_bytes
    with pytest.raises(BadLaunch, match=rf"^reverse requests {room + 1:,} bytes of dynamic shared memory; .* has {room:,} left beside"):
        on_gpu["reverse"][1, 256, None, room + 1].bind(0, 0)


def test_structures_by_value(on_gpu: LoadedModule, on_emulator: LoadedModule) -> None:
    layout = np.dtype([("out", "<u8"), ("n", "<i4"), ("pad", "<i4"), ("x", "<f8"), ("y", "<f4", 2)])
    outputs = []
    for kernels in (on_gpu, on_emulator):
        out = kernels.target.zeros(5, "f4")
        box = np.array([(out.address, -20, 0, 0.1, (2.5, -3.25))], layout)[0]
        kernels["unpack"][1, 1](7, box, np.float32(9.5))
        outputs.append(out.numpy())
    assert outputs[0].tolist() == [-13, np.float32(0.1), 2.5, -3.25, 9.5]
    assert outputs[0].tobytes() == outputs[1].tobytes()


def test_module_variables(gpu: Device, on_gpu: LoadedModule, on_emulator: LoadedModule) -> None:
    for kernels in (gpu.load(on_gpu.module), on_emulator.target.load(on_emulator.module)):
        target = kernels.target
        address, size = target.symbol(kernels, "counters")
        assert size == 32
        counters, out = np.empty(4, "u8"), target.zeros(2)
        target.write(address, np.array([1, 2, 3, 1 << 40], "u8"))
        kernels["use_globals"][1, 4](out)
        target.read(address, counters)
        assert counters.tolist() == [10, 21, 32, (10 << 40) + 3]
        assert out.numpy().tolist() == [0, -1]


def test_module_variables_start_with_their_initial_values(gpu: Device, on_gpu: LoadedModule) -> None:
    """Each load has its own variables."""
    first, second = gpu.load(on_gpu.module), gpu.load(on_gpu.module)
    first["use_globals"][1, 4](gpu.zeros(2))
    values = np.empty(4, "u8")
    gpu.read(gpu.symbol(second, "counters")[0], values)
    assert values.tolist() == [1, 2, 3, 4]
    gpu.read(gpu.symbol(second, "factors")[0], values[:1])
    assert values[:1].view("f4").tolist() == [2, -1]


def test_unknown_module_variables_are_named(gpu: Device, on_gpu: LoadedModule) -> None:
    with pytest.raises(BadLaunch, match=r"^no module-scope variable 'counter' in programs.ptx; it has: pool, counters, factors$"):
        gpu.symbol(on_gpu, "counter")


def test_occupancy(gpu: Device, on_gpu: LoadedModule) -> None:
    kernel = on_gpu["reverse"]
    assert gpu.resident_blocks(kernel, 1024, 0) == gpu.chip.max_threads_per_sm // 1024
    assert gpu.resident_blocks(kernel, 32, 0) == gpu.chip.max_blocks_per_sm
    assert gpu.resident_blocks(kernel, 32, gpu.chip.max_shared_bytes) == 1
    quarter = gpu.chip.shared_bytes_per_sm // 4 - gpu.chip.reserved_shared_bytes
    assert gpu.resident_blocks(kernel, 32, quarter) == 4
    assert gpu.resident_blocks(kernel, 32, quarter + 1024) == 3


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        (1, 1025, "block.x is 1025; "),
        (1, (1, 1, 65), "block.z is 65; "),
        ((1, 65536), 1, "grid.y is 65536; "),
        (1, (32, 33), "a block of 32x33x1 has 1,056 threads; "),
    ],
)
def test_limits_of_the_chip(on_gpu: LoadedModule, grid: int | tuple[int, ...], block: int | tuple[int, ...], message: str) -> None:
    with pytest.raises(BadLaunch) as raised:
        on_gpu["bounded"][grid, block]()
    assert str(raised.value).startswith(message)


def test_limits_of_the_chip_can_be_used(on_gpu: LoadedModule) -> None:
    for grid, block in (((1, 65535), 1), ((1, 1, 65535), 1), (1 << 20, 1), (1, 1024), (1, (1, 1, 64))):
        on_gpu["reverse"][grid, block](0, 0)
    on_gpu.target.sync()


def test_limits_of_the_kernel(on_gpu: LoadedModule) -> None:
    on_gpu["bounded"][1, 128]()
    on_gpu.target.sync()
    with pytest.raises(BadLaunch, match=r"^bounded was compiled for blocks of at most 128 threads, got 129x1x1$"):
        on_gpu["bounded"][1, 129]()


def test_what_a_gpu_cannot_do(gpu: Device, on_gpu: LoadedModule, emulator: Target) -> None:
    launch = replace(on_gpu["bounded"][1, 1].bind(), layers=Layers(counts=True))
    with pytest.raises(BadLaunch, match=r"^cuda:0 cannot observe a launch by itself; use ml.trace or ml.count, or the emulator$"):
        gpu.launch(launch)
    with pytest.raises(BadLaunch, match=r"^argument 1 of add_one is on emulator:h200, but the kernel is on cuda:0; "):
        on_gpu["add_one"][1, 32](emulator.zeros(1, "i4"), emulator.zeros(1, "i4"), 1)
    with pytest.raises(BadLaunch, match=r"^stream 9 was not made by this cuda:0; make one with target.stream\(\)$"):
        on_gpu["bounded"][1, 1, Stream(9)]()
