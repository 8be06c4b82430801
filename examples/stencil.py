"""A step of a 7-point stencil, by a thread for each cell and by a thread for each column of cells."""

import sys
from pathlib import Path

import numpy as np

import memlane as ml

n = int(sys.argv[1]) if len(sys.argv) > 1 else 64
shape = (n, n, n)

target = ml.target()
kernels = target.load(ml.cuda(Path(__file__).with_name("stencil.cu")))
host = np.random.default_rng(7).random(shape, dtype=np.float32)
a = target.array(host)

inner = host[1:-1, 1:-1, 1:-1].astype(np.float64)
expected = host.astype(np.float64)
expected[1:-1, 1:-1, 1:-1] = 0.4 * inner + 0.1 * (
    host[1:-1, 1:-1, :-2].astype(np.float64)
    + host[1:-1, 1:-1, 2:]
    + host[1:-1, :-2, 1:-1]
    + host[1:-1, 2:, 1:-1]
    + host[:-2, 1:-1, 1:-1]
    + host[2:, 1:-1, 1:-1]
)

for name, grid, block in (
    ("seven_point", (-(-n // 32), -(-n // 4), -(-n // 2)), (32, 4, 2)),
    ("marching", (-(-n // 32), -(-n // 8)), (32, 8)),
):
    b = target.array(host)  # the boundary stays as it is
    kernels[name][grid, block](b, a, n, n, n)
    # Six additions and two products of numbers below 1.1, each rounded to float.
    assert np.abs(b.numpy() - expected).max() < 8 * np.finfo(np.float32).eps, name
