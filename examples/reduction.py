"""The sum of an array: partial sums by block, then the sum of those."""

import sys
from pathlib import Path

import numpy as np

import memlane as ml

n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 17
block = 256  # as the kernels are written

target = ml.target()
kernels = target.load(ml.cuda(Path(__file__).with_name("reduction.cu")))
host = np.random.default_rng(7).integers(-1000, 1000, n)

for kind, name in (("i4", "int"), ("f4", "float")):
    # The values are small enough that float sums of them are exact, in whatever order they are added.
    values = host.astype(kind)
    data, total = target.array(values), target.empty(1, kind)

    partial = target.empty(64, kind)
    kernels[f"block_sum<{name}>"][64, block](partial, data, n)
    kernels[f"block_sum<{name}>"][1, block](total, partial, 64)
    assert total.numpy()[0] == host.sum(), name

    blocks = -(-n // block)
    partial = target.empty(blocks, kind)
    kernels[f"interleaved<{name}>"][blocks, block](partial, data, n)
    kernels[f"block_sum<{name}>"][1, block](total, partial, blocks)
    assert total.numpy()[0] == host.sum(), name
