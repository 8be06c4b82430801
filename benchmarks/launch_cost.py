"""Measure the host's time for a launch from Python before the GPU begins, without an observer.

Host: the processor's time of one call, over 2,000 calls of an empty kernel whose queue is never full, beside the driver's own call through
`cuda.bindings` and through ctypes with all arguments ready. Python's share is ours minus that of ctypes. `kernel[grid, block](...)` is what
users write; `target.start(launch)` the usual way, by which observers would see it.

Events: one call of the sum of 2^16 int32 on an idle GPU between two events, by `reduce`, by a prepared launch, by the kernel itself, and
by a graph; the events alone take a part of it.

Prediction (written before the first run), for an H200 and its host: ctypes 2.0 us, cuda.bindings 3.5 us, `kernel[grid, block](...)`
4.5 us, so 2.5 us of Python; the usual way 20 us. Between events: the kernel itself 8.5 us, `reduce` 11 us, as it starts a graph, which
costs the GPU more than a kernel does. Of that Python takes 1.7 us: to reach 8 us, a kernel has to be quicker than a graph of one.

    python benchmarks/launch_cost.py --target cuda:0
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable

import numpy as np
from harness import Row
from running import measure, parser

from memlane.compile import cuda
from memlane.driver import Device
from memlane.driver.parameters import Parameters
from memlane.driver.probe import LIBRARY
from memlane.lab.reduction import Reducer, reduce
from memlane.targets import target as named_target

SOURCES = [
    "src/memlane/launch/kernel.py",
    "src/memlane/driver/device.py",
    "src/memlane/driver/fast_launch.py",
    "src/memlane/lab/reduction/reducer.py",
    "benchmarks/launch_cost.py",
]

CODE = 'extern "C" __global__ void nothing(float* to, const float* of, unsigned more) {}'
REACH_US, EVENTS_REACH_US = 5.0, 8.0
CALLS, ROUNDS = 2000, 9


def host_us(gpu: Device, call: Callable[[], object]) -> float:
    """Return the median over some rounds of the host's time for one call. The queue is emptied before each round and after every hundred
    calls."""
    found = []
    for _ in range(ROUNDS):
        took = 0.0
        for _ in range(CALLS // 100):
            gpu.sync()
            before = time.perf_counter()
            for _ in range(100):
                call()
            took += time.perf_counter() - before
        found.append(1e6 * took / CALLS)
    return statistics.median(found)


def host(gpu: Device) -> list[Row]:
    from cuda.bindings import driver  # an optional package

    kernel, array = gpu.load(cuda(CODE, arch="sm_90"))["nothing"], gpu.zeros(64)
    launch = kernel[1, 32].bind(array, array, 1)
    function, parameters = gpu._kernel(kernel).function, Parameters([one.data for one in launch.arguments])
    raw, stream = ctypes.CDLL(LIBRARY).cuLaunchKernel, driver.CUstream(1)
    ready = [ctypes.c_void_p(int(function)), *map(ctypes.c_uint, (1, 1, 1, 32, 1, 1, 0)), ctypes.c_void_p(1)]
    pointers = ctypes.c_void_p(parameters.address)
    call = kernel[1, 32]
    ways: dict[str, Callable[[], object]] = {
        "kernel[grid, block](...)": lambda: kernel[1, 32](array, array, 1),
        "call(...)": lambda: call(array, array, 1),
        "target.start(launch)": lambda: gpu.start(launch),
        "cuda.bindings": lambda: driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters.address, 0),
        "ctypes": lambda: raw(*ready, pointers, None),
    }
    us = {name: host_us(gpu, way) for name, way in ways.items()}
    own = us["kernel[grid, block](...)"] - us["ctypes"]
    peer = {f"{name}, us": one for name, one in us.items()}
    return [Row("a launch of three arguments", "Python before the driver", own, "us", REACH_US, "lower", peer=peer)]


def events(gpu: Device) -> list[Row]:
    array = gpu.array(np.ones(1 << 16, np.int32))
    bound = Reducer(array)
    out = bound.empty()
    launch, call = bound.launch(out), bound._call
    prepared, graph, arguments = gpu.prepared(launch), gpu.graph([launch]), (out, array, *bound._arguments)
    raw, parameters = ctypes.CDLL(LIBRARY).cuLaunchKernel, Parameters([one.data for one in launch.arguments])
    shape = map(ctypes.c_uint, (*launch.grid, *launch.block, launch.shared_bytes))
    ready = [
        ctypes.c_void_p(int(gpu._kernel(launch.kernel).function)),
        *shape,
        ctypes.c_void_p(1),
        ctypes.c_void_p(parameters.address),
        None,
    ]
    ways: dict[str, Callable[[], object]] = {
        "ctypes, a kernel with all arguments ready": lambda: raw(*ready),
        "reduce": lambda: reduce(array),
        "Reducer": bound,
        "a prepared launch": prepared,
        "the kernel itself": lambda: call(*arguments),
        "a graph": graph.replay,
        "only the events": lambda: None,
    }
    us: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(210):
        for name, way in ways.items():
            took = gpu.elapsed_ns(way) / 1e3
            if turn >= 10:
                us[name].append(took)
    medians = {name: statistics.median(found) for name, found in us.items()}
    assert int(out.item()) == 1 << 16
    note = f"the two events alone take {medians['only the events']:.2f} us"
    return [
        Row("2^16, one call from Python", "time between events", medians["reduce"], "us", EVENTS_REACH_US, "lower", peer=medians, note=note)
    ]


CASES = {"host": host, "events": events}


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    target = named_target(options.target)
    if not isinstance(target, Device):
        return [Row(name, "time of a launch", None, "us", None, "lower", note="needs a GPU")]
    return CASES[name](target)


def main() -> None:
    options = parser(__doc__).parse_args()
    measure("launch_cost", list(CASES), run_case, options)


if __name__ == "__main__":
    main()
