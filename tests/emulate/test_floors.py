"""What a launch takes at least: floors by plain arithmetic on counts, a kernel for each that rules, and what is said of missing rates."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from memlane.chip import Bandwidth, Chip, ModelledTime, Traffic, load, modelled_time
from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.launch import COUNT_FIELDS, DeviceArray, Kernel, Layers, LoadedModule, Observation
from memlane.number_format import duration
from memlane.ptx import Module

H200 = load("h200")
SOURCE = """
__global__ void copy(float4* out, const float4* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}
__global__ void columns(float* out, int rows) {
    int lane = threadIdx.x % 32, row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    for (int i = 0; i < 16; ++i) out[lane * rows + (row + 8 * i) % rows] = i;
}
__global__ void again(float* out, const float* in, int times) {
    float sum = 0;
    for (int i = 0; i < times; ++i) sum += __ldcg(in + (threadIdx.x + 32 * i) % 1024);
    if (sum == 12345) out[0] = sum;
}
__global__ void banks(float* out, int times) {
    __shared__ volatile float words[1024];
    float sum = 0;
    for (int i = 0; i < times; ++i) sum += words[threadIdx.x % 32 * 32 + i % 32];
    if (sum == 12345) out[0] = sum;
}
__global__ void chain(unsigned long long* out, const unsigned long long* at, int times) {
    for (int i = 0; i < times; ++i) at = reinterpret_cast<const unsigned long long*>(*at);
    *out = reinterpret_cast<unsigned long long>(at);
}
__global__ void count(unsigned* bins) {
    atomicAdd(bins + threadIdx.x % 32, 1u);
}
__global__ void transposed(float* out, const float* in, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    out[x * n + y] = in[y * n + x];
}
__global__ void tiled(float* out, const float* in, int n) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    out[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void padded(float* out, const float* in, int n) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    out[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""


@cache
def module() -> Module:
    return cuda(SOURCE, name="floors.cu")


@cache
def loaded(chip: Chip) -> LoadedModule:
    return Emulator(chip).load(module())


def kernel(name: str, chip: Chip = H200) -> Kernel:
    found = loaded(chip)[name]
    found.target.empty_caches()
    return found


def observed(kernel: Kernel, grid: object, block: object, *arguments: object, counts: bool = False) -> Observation:
    launch = kernel[grid, block].bind(*arguments)
    seen: list[Observation] = []
    kernel.target.launch(replace(launch, layers=Layers(counts=counts, clock=True, report=seen.append)))
    return seen[0]


def modelled(kernel: Kernel, grid: object, block: object, *arguments: object) -> ModelledTime:
    time = observed(kernel, grid, block, *arguments).time
    assert time is not None
    return time


def floor(time: ModelledTime, name: str) -> float:
    return next(one.cycles for one in time.floors if one.name == name)


def zeros(kernel: Kernel, count: int, kind: str = "f4") -> DeviceArray:
    return kernel.target.zeros(count, kind)


# -- arithmetic --------------------------------------------------------------------------------------------------------------------


def total(seen: Observation, field: str) -> int:
    return sum(int(row[COUNT_FIELDS.index(field)]) for row in seen.counts.values())


def test_floors_are_the_counts_over_the_rates() -> None:
    chip = replace(H200, sm_count=1)
    one = kernel("copy", chip)
    seen = observed(one, 64, 128, zeros(one, 64 * 128 * 4), zeros(one, 64 * 128 * 4), counts=True)
    sectors = total(seen, "sectors")
    assert sectors == 2 * 64 * 128 * 16 // 32  # read and written, each once
    assert seen.time is not None
    assert seen.cycles == seen.time.cycles
    rates = chip.bandwidth
    assert floor(seen.time, "L2 writes") == pytest.approx(sectors / 2 / (rates.l2_write or 0))
    assert floor(seen.time, "L2 reads of one SM") == pytest.approx(sectors / 2 / (rates.sm_read or 0))
    assert floor(seen.time, "DRAM") == pytest.approx(sectors / 2 * 32 / (rates.dram_read or 0) * chip.clock_mhz / 1000)
    assert floor(seen.time, "LSU of one SM") == sectors / 4  # of 16 bytes a lane, four wavefronts of a line each


def test_floors_are_known_without_counts_and_are_the_same() -> None:
    one = kernel("columns")
    out = zeros(one, 32 * 256)
    without = modelled(one, 2, 128, out, 256)
    one = kernel("columns")
    assert observed(one, 2, 128, out, 256, counts=True).time == without


def test_what_is_written_in_part_goes_by_lines() -> None:
    one = kernel("columns")
    seen = observed(one, 4, 256, zeros(one, 32 * 256), 256, counts=True)
    lines = total(seen, "sectors")  # every lane writes 4 bytes in a line of its own
    assert lines == 4 * 8 * 16 * 32
    assert seen.time is not None
    assert floor(seen.time, "L2 writes") == pytest.approx(lines / (H200.bandwidth.l2_partial_write_lines or 0))


# -- who rules ---------------------------------------------------------------------------------------------------------------------


def test_dram_rules_a_copy() -> None:
    chip = replace(H200, sm_count=16, dram_gb_per_s=200.0, bandwidth=replace(H200.bandwidth, dram_read=None, dram_write=None))
    one = kernel("copy", chip)
    time = modelled(one, 128, 256, zeros(one, 1 << 17), zeros(one, 1 << 17))
    assert time.limited_by == "DRAM"
    assert time.cycles == pytest.approx((1 << 19) / 200.0 * chip.clock_mhz / 1000, abs=1)
    assert "16,384 sectors read at 200 GB/s" in time.sentence(chip.clock_mhz)


def test_what_goes_back_to_dram_counts() -> None:
    """A launch that writes four times what L2 holds."""
    chip = replace(H200, sm_count=1, l2_bytes=1 << 14)
    one = kernel("copy", chip)
    traffic = modelled(one, 32, 128, zeros(one, 1 << 14), zeros(one, 1 << 14))
    moved = next(one.moved for one in traffic.floors if one.name == "DRAM")
    written = int(moved.partition(" and ")[2].partition(" ")[0].replace(",", ""))
    assert 0 <= (1 << 16) // 32 - written <= (1 << 14) // 32  # all but what is still in L2


def test_l2_rules_where_the_same_is_read_again_and_again() -> None:
    chip = replace(H200, sm_count=8, bandwidth=replace(H200.bandwidth, l2_read=0.25))
    one = kernel("again", chip)
    time = modelled(one, 8, 256, zeros(one, 1), zeros(one, 1024), 16)
    assert time.limited_by == "L2 reads"
    assert floor(time, "L2 reads") == pytest.approx(8 * 8 * 16 * 4 / 0.25)
    assert floor(time, "L2 reads") < time.cycles < 1.2 * floor(time, "L2 reads")  # the way there and back, once
    assert floor(time, "DRAM") < 0.1 * time.cycles


def test_one_multiprocessor_rules_where_one_works() -> None:
    one = kernel("columns")
    time = modelled(one, 1, 1024, zeros(one, 32 * 256), 256)
    assert time.limited_by == "L2 writes of one SM"
    assert time.cycles == pytest.approx(32 * 16 * 32 / 0.496, rel=0.001)
    spread = modelled(kernel("columns"), 32, 32, zeros(one, 32 * 256), 256)
    assert floor(spread, "L2 writes of one SM") == pytest.approx(time.cycles / 32, rel=0.01)
    assert floor(spread, "L2 writes") == pytest.approx(floor(time, "L2 writes"))


def test_the_load_store_unit_rules_bank_conflicts() -> None:
    one = kernel("banks")
    time = modelled(one, 1, 512, zeros(one, 1), 32)
    assert time.limited_by == "LSU of one SM"
    assert floor(time, "LSU of one SM") == 16 * 32 * 32  # warps, accesses, and lanes in one bank
    assert time.cycles == time.scoreboard >= 16 * 32 * 32


def test_latency_rules_a_chain() -> None:
    one = kernel("chain")
    ring = zeros(one, 64, "u8")
    held = ring.address + 8 * ((np.arange(64, dtype=np.uint64) + np.uint64(17)) % np.uint64(64))
    one.target.write(ring.address, held)
    time = modelled(one, 1, 1, zeros(one, 1, "u8"), ring, 64)
    assert time.limited_by == "latency"
    assert time.cycles == time.scoreboard
    assert time.sentence(H200.clock_mhz).startswith(f"{duration(1e3 * time.cycles / H200.clock_mhz)}, limited by latency")


def test_atomics_of_one_line_limit_a_launch_where_all_meet_there() -> None:
    one = kernel("count")
    time = modelled(one, 64, 256, zeros(one, 32, "u4"))
    assert time.limited_by == "atomics of one line"
    sectors = 64 * 256 // 32 * 4  # each warp adds to the 32 words of one line
    assert floor(time, "atomics of one line") == pytest.approx(sectors / (H200.bandwidth.line_atomic or 0))
    again = modelled(one, 64, 256, zeros(one, 32, "u4"))
    assert floor(again, "atomics of one line") == floor(time, "atomics of one line")  # counted from the start of each launch


def test_transposes_come_in_the_order_of_the_hardware() -> None:
    """Measured on an H200, 1024 x 1024: 19.3 us with columns that are written, 10.1 with bank conflicts, 5.9 with neither."""
    times = {}
    for name in ("transposed", "tiled", "padded"):
        one = kernel(name)
        times[name] = modelled(one, (16, 16), (32, 32), zeros(one, 512 * 512), zeros(one, 512 * 512), 512)
    assert times["transposed"].cycles > 1.3 * times["tiled"].cycles > 1.3 * 1.3 * times["padded"].cycles
    assert times["transposed"].limited_by == "L2 writes"


# -- what is missing ---------------------------------------------------------------------------------------------------------------


def test_a_floor_without_a_rate_is_said_to_be_missing() -> None:
    chip = load("s1070")
    one = kernel("copy", chip)
    time = modelled(one, 1, 128, zeros(one, 512), zeros(one, 512))
    assert time.short == "limited by latency, 8 limits not known"
    assert "the file of s1070 has no rate for sectors read (L2 reads), " in time.sentence(chip.clock_mhz)
    assert {floor.name for floor in time.floors} == {"DRAM", "LSU of one SM"}


def test_the_longest_floor_is_the_time_and_a_shorter_one_is_not() -> None:
    chip = replace(H200, bandwidth=Bandwidth(l2_write=2.0))
    sms = {"read": [0, 0], "read_lines": [0, 0], "written": [60, 40], "written_lines": [0, 0], "partly_written": [0, 20]}
    sms |= {"partly_written_lines": [0, 0], "atomic": [0, 0], "wavefronts": [30, 7]}
    found = modelled_time(chip, 59, Traffic(sms, 0, 0, wavefront_cycles=2))
    assert [(one.name, one.cycles) for one in found.floors] == [("L2 writes", 60.0), ("LSU of one SM", 60.0)]
    assert (found.cycles, found.scoreboard, found.limited_by) == (60, 59, "L2 writes")
    assert found.missing == ("sectors written (L2 writes of one SM)", "sectors written in part (L2 writes of one SM)")
    slow = modelled_time(chip, 100, Traffic(sms, 0, 0, wavefront_cycles=2))
    assert (slow.cycles, slow.limited_by) == (100, "latency")


def test_what_moved_nothing_has_no_floor() -> None:
    names = ("read", "read_lines", "written", "written_lines", "partly_written", "partly_written_lines", "partly_written_bytes", "atomic")
    quiet = modelled_time(H200, 59, Traffic({name: [0, 0] for name in (*names, "wavefronts")}, 0, 0))
    assert (quiet.floors, quiet.missing, quiet.cycles) == ((), (), 59)
