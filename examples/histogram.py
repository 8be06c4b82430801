"""A histogram of bytes, with atomic additions in global and in shared memory."""

import sys
from pathlib import Path

import numpy as np

import memlane as ml

n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 17
blocks, block = 32, 256

target = ml.target()
kernels = target.load(ml.cuda(Path(__file__).with_name("histogram.cu")))
host = np.random.default_rng(7).normal(128, 40, n).clip(0, 255).astype(np.uint8)
data = target.array(host)

for name in ("global_atomics", "shared_atomics"):
    bins = target.zeros(256, "u4")
    kernels[name][blocks, block](bins, data, n)
    assert np.array_equal(bins.numpy(), np.bincount(host, minlength=256)), name
