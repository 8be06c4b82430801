"""What copies and launches of a plan take on this machine, and is the time of a plan what these numbers predict?

Links: chains of 32 copies of 4 KiB to 64 MiB in one graph, each waiting for the one before. A copy takes the time of the chain over its
length; the rate is that of the largest copies, the latency what is left of the smallest. These are the entries of `[links]` in a chip
file. Launches: chains of 100 empty kernels. Peers: the same between two GPUs, where there are two.

Prediction: plans that upload 256 MiB in chunks, with a kernel on each chunk and a download behind it, on three queues. Predicted by
`memlane.model.predicted` from the links and from the kernel's time in a chain by itself, all measured in the same process; measured as
the median of ten replays between two events.

Replay: a bound plan of 100 dependent launches against the bare CUDA graph. Check: 10,000 steps over 8 devices, races and order.

Prediction (written before the first run), for an H200. Pinned copies 55 GB/s either way and 2 us each; inside the device 2.1 TB/s each
way and 1.5 us; pageable 20 GB/s; dependent empty kernels 0.6 us. Plans of chunks are predicted within 10 %: best at 8 chunks, worst at
64, where latencies of three queues add up. Uploads and downloads at the same time share the link's traffic of the other direction, so
they may be slower than either alone, by 5 to 10 %. Replays cost 1.01 times the bare graph.

    python benchmarks/plans.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from harness import Row
from running import measure, parser

from memlane.chip import Chip, Links
from memlane.compile import cuda
from memlane.driver import Device, probe
from memlane.launch import LoadedModule, Target
from memlane.model import predicted
from memlane.plan import Home, Plan, PlanBuilder, ancestors, check, executions
from memlane.targets import BoundPlan
from memlane.targets import target as named_target

SOURCES = [
    "src/memlane/plan",
    "src/memlane/model",
    "src/memlane/targets/plans.py",
    "src/memlane/driver/graph.py",
    "benchmarks/plans.py",
]

CODE = """
extern "C" __global__ void nothing() {}
extern "C" __global__ void work(float* data, int turns, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = data[i];
    for (int turn = 0; turn < turns; turn++) x = x * 1.0001f + 0.5f;
    data[i] = x;
}
"""
CHAIN = 32
ROUNDS = 10


class Bench:
    """A target, the kernels on it, and how its plans are timed."""

    def __init__(self, name: str, quick: bool) -> None:
        self.target: Target = named_target(name)
        self.quick = quick
        self.targets: tuple[Target, ...] = (self.target,)
        if isinstance(self.target, Device) and len(probe().devices) > 1:
            self.targets = (self.target, named_target("cuda:1"))
        major, minor = self.target.chip.compute_capability
        self.kernels: LoadedModule = self.target.load(cuda(CODE, arch=f"sm_{major}{minor}"))

    def bound(self, plan: Plan, **memory: Any) -> BoundPlan:
        return BoundPlan(plan, memory, targets=self.targets, modules=[self.kernels])

    def elapsed_us(self, bound: BoundPlan) -> float:
        """Return the median time of a plan that is one graph; on the emulator its modelled time."""
        if not isinstance(self.target, Device):
            return bound.time().elapsed_ns / 1e3
        graph = bound.graph()
        for _ in range(3):
            graph.replay()
        found = [self.target.elapsed_ns(graph.replay) / 1e3 for _ in range(ROUNDS)]
        graph.wait()
        return statistics.median(found)

    def copy_us(self, to: Home, of: Home, nbytes: int) -> float:
        """Return the time of one copy in a chain of them."""
        b = PlanBuilder()
        target, source = b.array("to", nbytes, "u1", to), b.array("of", nbytes, "u1", of)
        for _ in range(CHAIN):
            b.copy(target, source)
        return self.elapsed_us(self.bound(b.plan(), of=self.memory(of, nbytes))) / CHAIN

    def memory(self, home: Home, nbytes: int) -> Any:
        if isinstance(home, int):
            return self.targets[home].zeros(nbytes, "u1")
        host = self.target.pinned(nbytes, "u1") if home == "pinned" else np.empty(nbytes, "u1")
        host[...] = 1
        return host

    def link(self, to: Home, of: Home) -> tuple[float, float]:
        """Return the latency in us and the rate in GB/s of a link."""
        small, large = (1 << 12, 1 << 16) if self.quick else (1 << 12, 1 << 26)
        least, most = self.copy_us(to, of, small), self.copy_us(to, of, large)
        rate = (large - small) / (most - least) / 1e3
        return max(0.0, least - small / rate / 1e3), rate

    def launches_us(self, count: int, *arguments: object, kernel: str, blocks: int = 1) -> float:
        """Return the time of one of so many launches that follow each other, each from the end of the one before."""
        b = PlanBuilder()
        data = b.array("data", 1 << 26, "f4", 0) if arguments else None
        for _ in range(count):
            given = (data[: 256 * blocks], *arguments) if data is not None else ()
            b.launch(self.kernels[kernel].ref, blocks, 256 if arguments else 1, *given, device=0)  # type: ignore[arg-type]
        memory = {} if data is None else {"data": self.target.zeros(1 << 26, "f4")}
        return self.elapsed_us(self.bound(b.plan(), **memory)) / count


def links(bench: Bench) -> list[Row]:
    rows = []
    ways: dict[str, tuple[Home, Home]] = {
        "pinned memory to the device": (0, "pinned"),
        "the device to pinned memory": ("pinned", 0),
        "inside the device": (0, 0),
    }
    if not bench.quick:
        ways["ordinary memory to the device"] = (0, "host")
    if len(bench.targets) > 1:
        ways["one device to another"] = (1, 0)
    for name, (to, of) in ways.items():
        latency, rate = bench.link(to, of)
        rows.append(Row(f"copies, {name}", "latency", round(latency, 3), "us"))
        rows.append(Row(f"copies, {name}", "rate", round(rate, 2), "GB/s", better="higher"))
    rows.append(Row("empty kernels, each waiting for the one before", "time", round(bench.launches_us(100, kernel="nothing"), 4), "us"))
    return rows


def calibrated(bench: Bench) -> Chip:
    """Return the chip with the links of this machine; an emulated device has those of its file."""
    chip = bench.target.chip
    if not isinstance(bench.target, Device):
        return chip
    (up, up_rate), (down, down_rate), (inside, inside_rate) = (bench.link(*way) for way in ((0, "pinned"), ("pinned", 0), (0, 0)))
    found = Links(
        host_gb_per_s=(up_rate + down_rate) / 2,
        host_us=(up + down) / 2,
        device_us=inside,
        launch_us=bench.launches_us(100, kernel="nothing"),
    )
    return replace(chip, links=found, copy_gb_per_s=2 * inside_rate)


def chunked(bench: Bench, n: int, chunks: int, turns: int) -> Plan:
    b = PlanBuilder()
    host, device, back = b.array("host", n, "f4", "pinned"), b.array("device", n, "f4", 0), b.array("back", n, "f4", "pinned")
    size = n // chunks
    for chunk in range(chunks):
        part = slice(chunk * size, (chunk + 1) * size)
        arrived = b.copy(device[part], host[part], queue=1)
        given, touched = (device[part], turns, size), [device[part]]
        ref, blocks = bench.kernels["work"].ref, -(-size // 256)
        done = b.launch(ref, blocks, 256, *given, after=[arrived], reads=touched, writes=touched)
        b.copy(back[part], device[part], queue=2, after=[done])
    return b.plan()


def prediction(bench: Bench) -> list[Row]:
    n, turns = (1 << 14, 4) if bench.quick else (1 << 26, 2000)
    chip = calibrated(bench)
    memory = bench.memory("pinned", 4 * n)
    rows = []
    for chunks in (1, 2) if bench.quick else (1, 2, 4, 8, 16, 64):
        plan = chunked(bench, n, chunks, turns)
        count = 1 if bench.quick else 20
        kernel_us = bench.launches_us(count, turns, n // chunks, kernel="work", blocks=n // chunks // 256) - (chip.links.launch_us or 0.0)
        line = predicted(plan, [chip], lambda launch, device, us=kernel_us: 1e3 * us)
        took = bench.elapsed_us(bench.bound(plan, host=memory))
        off = line.elapsed_ns / 1e3 / took
        peer = {"predicted us": line.elapsed_ns / 1e3, "measured us": took, "predicted over measured": off, "kernel us": kernel_us}
        rows.append(
            Row(f"upload, kernel, download in {chunks} chunks", "error of the prediction", abs(off - 1), "", 0.10, "lower", peer=peer)
        )
    return rows


def replays(bench: Bench) -> list[Row]:
    b = PlanBuilder()
    for _ in range(100):
        b.launch(bench.kernels["nothing"].ref, 1, 1, device=0)
    bound = bench.bound(b.plan())
    if not isinstance(bench.target, Device):
        return [Row("replay of 100 steps", "over the bare graph", None, "", 1.05, note="needs a GPU")]
    from memlane.driver.graph import DeviceGraph  # needs the packages of CUDA

    gpu, graph = bench.target, bound.graph()
    assert isinstance(graph.prepared, DeviceGraph)
    bare = graph.prepared.built.graph
    stream = gpu.streams.queue(None).stream

    def took(start: Callable[[], object]) -> float:
        gpu.sync()
        before = time.perf_counter()
        for _ in range(50):
            start()
        gpu.sync()
        return (time.perf_counter() - before) / 50e-6

    ratios, own = [], []
    took(graph.replay)
    for _ in range(ROUNDS):
        own.append(took(graph.replay))
        ratios.append(own[-1] / took(lambda: bare.launch(stream)))
    peer = {"us a replay": statistics.median(own)}
    return [Row("replay of 100 steps", "over the bare graph", statistics.median(ratios), "", 1.05, "lower", peer=peer)]


def checked(bench: Bench) -> list[Row]:
    """Check a time loop over eight devices without running it."""
    b = PlanBuilder()
    ref, rows = bench.kernels["nothing"].ref, 64
    u, v = ([b.array(f"{name}{device}", (rows + 2, 32), "f4", device) for device in range(8)] for name in "uv")
    with b.repeat(264, rotate=list(zip(u, v, strict=True))) as loop:
        edges = []
        for old, new in zip(u, v, strict=True):
            near = [(old[:3], new[1:2]), (old[rows - 1 :], new[rows : rows + 1])]
            edges.append([loop.launch(ref, 1, 32, new, old, reads=[read], writes=[written]) for read, written in near])
            loop.launch(ref, rows, 32, new, old, reads=[old[1:-1]], writes=[new[2:rows]])
        for device in range(8):
            for other, ghost, row in ((device - 1, rows + 1, 1), (device + 1, 0, rows)):
                if 0 <= other < 8:
                    source, target = v[device][row : row + 1], v[other][ghost : ghost + 1]
                    sent = loop.copy(target, source, queue=1 + (other > device), after=[*edges[device], edges[other][0]])
                    loop.carry(sent, to=[edges[other][0]])
    before = time.process_time()
    plan = b.plan()
    check(plan)
    order = executions(plan)
    ancestors(order)
    took = time.process_time() - before
    return [Row(f"{len(order):,} steps over 8 devices", "checked and ordered", took, "s", 0.5, "lower")]


CASES = {"links": links, "prediction": prediction, "replays": replays, "checked": checked}


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    return CASES[name](Bench(options.target, options.quick))


def main() -> None:
    options = parser(__doc__).parse_args()
    measure("plans", list(CASES), run_case, options)


if __name__ == "__main__":
    main()
