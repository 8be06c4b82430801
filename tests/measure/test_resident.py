"""How many blocks fit on a multiprocessor stands in the trace, for the kernel without probes."""

from __future__ import annotations

import memlane as ml

SOURCE = """
__global__ void big(float* out, const float* in) {
    __shared__ float tile[12288];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = tile[31 - threadIdx.x];
}
"""


def test_blocks_are_limited_by_shared_memory_and_said_in_the_trace() -> None:
    """By hand: an H200 has 228 KiB a multiprocessor; each block takes 48 KiB and one more, so four fit."""
    target = ml.target("emulator:h200")
    kernel = target.load(ml.cuda(SOURCE))["big"]
    (launch,) = ml.trace(kernel[2, 32], target.zeros(32), target.zeros(32)).launches
    assert launch.resident_blocks == 4
