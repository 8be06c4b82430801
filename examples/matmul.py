"""A matrix product by 16 x 16 tiles in shared memory."""

import sys
from pathlib import Path

import numpy as np

import memlane as ml

n = int(sys.argv[1]) if len(sys.argv) > 1 else 128
tile = 16

target = ml.target()
matmul = target.load(ml.cuda(Path(__file__).with_name("matmul.cu")))["matmul"]
random = np.random.default_rng(7)
# Small whole numbers: every product and sum is exact, so that the order of the additions does not matter.
a, b = (random.integers(0, 8, (n, n)).astype(np.float32) for _ in range(2))

c = target.empty((n, n), "f4")
tiles = -(-n // tile)
matmul[(tiles, tiles), (tile, tile)](c, target.array(a), target.array(b), n)
assert np.array_equal(c.numpy(), a @ b)
