"""Three transposes: uncoalesced stores, bank conflicts, and neither."""

import sys
from pathlib import Path

import numpy as np

import memlane as ml

n = int(sys.argv[1]) if len(sys.argv) > 1 else 1024

target = ml.target()
kernels = target.load(ml.cuda(Path(__file__).with_name("transpose.cu")))
host = np.random.default_rng(7).random((n, n), dtype=np.float32)
a = target.array(host)

for name in ("naive", "tiled", "padded"):
    b = target.empty((n, n), "f4")
    kernels[name][(-(-n // 32), -(-n // 32)), (32, 32)](b, a, n)
    assert np.array_equal(b.numpy(), host.T), name
