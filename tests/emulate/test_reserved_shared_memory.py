"""Cooperative groups of several warps, which meet in the shared memory that the system reserves."""

from __future__ import annotations

import numpy as np

import memlane as ml

SOURCE = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void k(int* out, const int* in) {
  __shared__ cg::block_tile_memory<128> scratch;
  __shared__ int own[128];
  auto block = cg::this_thread_block(scratch);
  own[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
  block.sync();
  auto tile = cg::tiled_partition<64>(block);
  int sum = cg::reduce(tile, own[127 - threadIdx.x], cg::plus<int>());
  if (tile.thread_rank() == 0) out[blockIdx.x * 2 + tile.meta_group_rank()] = sum;
}
"""
PLACES = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k (.param .u64 out) {
  .shared .align 4 .b8 own[64];
  .reg .b32 %r<8>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %reserved_smem_offset_begin;
  mov.u32 %r2, %reserved_smem_offset_end;
  mov.u32 %r3, %reserved_smem_offset_cap;
  mov.u32 %r4, %reserved_smem_offset_0;
  mov.u32 %r5, %reserved_smem_offset_1;
  mov.u32 %r6, own;
  st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
  st.global.v2.u32 [%rd1+16], {%r5, %r6};
  ret;
}
"""


def test_tiles_of_two_warps_add_up() -> None:
    target = ml.target("emulator:h200")
    values = np.arange(512, dtype="i4") ** 2 % 1000
    out = target.zeros(8, "i4")
    target.load(ml.cuda(SOURCE))["k"][4, 128](out, target.array(values))
    np.testing.assert_array_equal(out.numpy(), values.reshape(4, 2, 64).sum(2)[:, ::-1].ravel())


def test_variables_lie_behind_what_is_reserved() -> None:
    target = ml.target("emulator:h200")
    out = target.zeros(6, "u4")
    target.load(ml.parse(PLACES))["k"][1, 1](out)
    begin, end, cap, first, second, own = out.numpy().tolist()
    assert begin == first < second < end <= own
    assert end - begin == cap == 1024
    assert end - second == 288  # what cooperative groups expect
