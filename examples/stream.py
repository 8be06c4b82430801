"""An array in a file, however large, summed row by row on the device: chunks go through a small ring of device memory."""

import sys
import tempfile

import numpy as np

import memlane as ml

CODE = """extern "C" __global__ void total(const float* part, float* sums, int first, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int c = 0; c < columns; ++c) sum += part[c * rows + row];
    sums[first + row] = sum;
}"""
n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 18
with tempfile.TemporaryFile() as file:
    host = np.memmap(file, "f4", "w+", shape=(n, 32))
host[...] = np.arange(n, dtype="f4")[:, None] % 11

target = ml.target()
total, sums = target.load(ml.cuda(CODE))["total"], target.empty(n)


def then(chunk):
    rows, columns = chunk.layout.shape  # each chunk is column-major by itself
    return total[-(-rows // 256), 256], chunk.data, sums, chunk.first, rows, columns


stream = ml.upload(target, host, layout="column-major", then=then, keep=False)
assert np.array_equal(sums.numpy(), host.sum(axis=1))
print(stream.plan)
