"""A pointer chase through shared memory and through rings of absolute addresses of several sizes."""

import sys
from pathlib import Path

import numpy as np

import memlane as ml

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 512
stride = 17  # slots of 8 bytes; prime to every ring length below, so that the chase visits each slot

target = ml.target()
kernels = target.load(ml.cuda(Path(__file__).with_name("chase.cu")))

slots = 4096
end = target.empty(1, "u4")
kernels["chase_shared"][1, 32, None, slots * 4](end, slots, stride, steps)
assert end.numpy()[0] == steps * stride % slots

for slots in (1 << 10, 1 << 16):
    ring = target.empty(slots, "u8")
    kernels["link_ring"][-(-slots // 256), 256](ring, slots, stride)
    end = target.empty(1, "u8")
    kernels["chase_global"][1, 1](end, ring, steps)
    arrived = (end.numpy()[0] - np.uint64(ring.address)) // 8
    assert arrived == steps * stride % slots, slots
