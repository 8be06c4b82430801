"""A sparse matrix times a vector, by a thread for each row and by a warp for each row."""

import sys
from pathlib import Path

import numpy as np

import memlane as ml

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
block = 128

random = np.random.default_rng(7)
lengths = random.integers(0, 64, rows)
row_start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
column = random.integers(0, rows, row_start[-1]).astype(np.int32)
# Small whole numbers: the sums are exact, so that the order of the additions does not matter.
value = random.integers(1, 4, row_start[-1]).astype(np.float32)
x = random.integers(0, 10, rows).astype(np.float32)
expected = np.zeros(rows, np.float32)
np.add.at(expected, np.repeat(np.arange(rows), lengths), value * x[column])

target = ml.target()
kernels = target.load(ml.cuda(Path(__file__).with_name("spmv.cu")))
matrix = [target.array(part) for part in (row_start, column, value, x)]

for name, threads_per_row in (("csr_scalar", 1), ("csr_warp", 32)):
    y = target.empty(rows, "f4")
    kernels[name][-(-rows * threads_per_row // block), block](y, *matrix, rows)
    assert np.array_equal(y.numpy(), expected), name
