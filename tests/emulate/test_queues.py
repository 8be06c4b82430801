"""The queues of what all multiprocessors share, against a server in Python, and what kernels that read the clock see of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.chip import Chip, load
from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.emulate.clock.queues import COST_BITS, IN_COMPANY, QUEUES, SLOT_CYCLES, Queues, costs, wait_at_dram, wait_in
from memlane.launch import LoadedModule
from tests.emulate.machine import callable_of

H200 = load("h200")
SOURCE = """
// Block 0 times loads that depend on each other; the others read far away from it, if there are any.
__global__ void beside(long long* took, const long long* chain, float4* out, const float4* in, int steps, int times) {
    if (blockIdx.x == 0) {
        long long at = 0;
        for (int i = 0; i < steps; ++i) {
            long long begin = clock64();
            at = __ldcg(chain + at);
            if (at == -1) return;  // waits for it
            took[i] = clock64() - begin;
        }
        return;
    }
    float4 sum = make_float4(0, 0, 0, 0);
    int threads = (gridDim.x - 1) * blockDim.x, own = (blockIdx.x - 1) * blockDim.x + threadIdx.x;
    for (int i = 0; i < times; ++i) {
        float4 one = __ldcg(in + own + i * threads);
        sum.x += one.x + one.y + one.z + one.w;
    }
    if (sum.x == 12345) out[own] = sum;
}
__device__ long long now() {
    long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}
__global__ void timed_copy(long long* ends, float4* out, const float4* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 one = in[i];
    out[i] = one;
    if (one.x != 12345) ends[blockIdx.x] = now();
}
"""


@cache
def loaded(chip: Chip) -> LoadedModule:
    return Emulator(chip).load(cuda(SOURCE, name="queues.cu"))


def record(queues: Queues, name: str) -> int:
    assert QUEUES.fields is not None
    return queues.address + int(QUEUES.fields[name][1])


def test_what_passes_takes_its_time_and_the_last_waits_for_all() -> None:
    queues, wait = Queues(H200), callable_of(wait_in)
    waited = [wait(record(queues, "reads"), 1000, (1 << COST_BITS) // 4) for _ in range(4000)]
    assert waited == sorted(waited)
    assert waited[0] == 0
    assert abs(waited[-1] - 1000) <= SLOT_CYCLES


def test_nothing_waits_at_a_part_that_is_idle() -> None:
    queues, wait = Queues(H200), callable_of(wait_in)
    assert max(wait(record(queues, "reads"), 1000 + 100 * turn, 20 << COST_BITS) for turn in range(50)) <= 20 + SLOT_CYCLES
    assert wait(record(queues, "reads"), 1 << 20, 0) == 0


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0.1, 1.0, 5.0, 30.0])), min_size=1, max_size=200))
def test_a_queue_is_a_server_that_serves_in_turn(steps: list[tuple[int, float]]) -> None:
    queues, wait, time, free = Queues(H200), callable_of(wait_in), 0, 0.0
    for step, cycles in steps:
        time += step
        free = max(free, time) + cycles
        assert abs(wait(record(queues, "l2"), time, round(cycles * (1 << COST_BITS))) - (free - time)) <= 2 * SLOT_CYCLES + 1 + cycles


def test_a_warp_that_ran_ahead_leaves_the_time_between_to_others() -> None:
    queues, wait = Queues(H200), callable_of(wait_in)
    for time in (*range(0, 8000, 40), *range(20, 8000, 40)):
        assert wait(record(queues, "dram"), time, 10 << COST_BITS) <= 10 + 2 * SLOT_CYCLES


def test_a_busy_part_makes_accesses_longer_before_it_is_full() -> None:
    queues, wait = Queues(H200), callable_of(wait_at_dram)
    waited = [wait(queues.address, 16 * turn, 8 << COST_BITS) for turn in range(400)]  # busy for half of the time
    assert waited[0] <= SLOT_CYCLES
    assert np.mean(waited[100:]) == pytest.approx(IN_COMPANY * H200.latency.dram, abs=2 * SLOT_CYCLES)


def test_costs_are_those_of_the_chip_file() -> None:
    found, rates = costs(H200), H200.bandwidth
    assert found["read"] == pytest.approx(1 / (rates.l2_read or 0))
    both = found["fetched_pairs"] / 2 + found["written_back"] + found["turned"]  # a sector read and one written
    assert both == pytest.approx(64 / (rates.dram_mixed or 0) * H200.clock_mhz / 1000)
    bare = replace(
        H200,
        copy_gb_per_s=None,
        bandwidth=replace(rates, l2_read=None, dram_read=None, dram_mixed=None, dram_write=None, dram_write_alone=None, dram_piece=None),
    )
    assert "read" not in costs(bare)
    assert costs(bare)["fetched"] == costs(bare)["written_back"] == pytest.approx(32 / H200.dram_gb_per_s * H200.clock_mhz / 1000)


def test_a_load_that_is_timed_takes_longer_while_others_keep_dram_busy() -> None:
    module = loaded(H200)
    target, steps, times, blocks = module.target, 12, 8, 264
    chain = target.array(np.arange(steps * 64, dtype=np.int64) + 64)
    source, out, took = target.zeros(blocks * 1024 * times * 4, "f4"), target.zeros(4, "f4"), target.zeros(steps, "i8")
    seen = {}
    for others in (0, blocks):
        target.empty_caches()
        module["beside"][1 + others, 1024 if others else 32](took, chain, out, source, steps, times)
        seen[others] = took.numpy()[1:]
    assert seen[0].mean() == pytest.approx(H200.latency.dram, abs=40)  # with the instructions between
    assert seen[blocks].max() > 1.4 * seen[0].max()


def test_the_clock_of_a_copy_tells_that_it_took_the_bandwidth_of_dram() -> None:
    module = loaded(H200)
    target, blocks = module.target, 4096
    out, source, ends = target.zeros(blocks * 1024, "f4"), target.zeros(blocks * 1024, "f4"), target.zeros(blocks, "i8")
    target.empty_caches()
    module["timed_copy"][blocks, 256](ends, out, source)
    span = np.ptp(ends.numpy()) / 1e3
    alone = source.nbytes / (H200.bandwidth.dram_read or 0) / 1e3
    assert 0.9 * alone < span < 2.5 * alone
