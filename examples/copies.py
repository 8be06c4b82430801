"""Four ways to copy an array: from 4 sectors a request to 32."""

import sys
from pathlib import Path

import numpy as np

import memlane as ml

n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 18
stride, shift, block = 32, 1, 256

target = ml.target()
kernels = target.load(ml.cuda(Path(__file__).with_name("copies.cu")))
host = np.arange(n, dtype=np.float32)
a = target.array(host)
blocks = -(-n // block)

b = target.zeros(n)
kernels["direct"][blocks, block](b, a, n)
assert np.array_equal(b.numpy(), host)

b = target.zeros(n)
kernels["vectors"][-(-blocks // 4), block](b, a, n)
assert np.array_equal(b.numpy(), host)

b = target.zeros(n)
kernels["shifted"][blocks, block](b, a, n, shift)
assert np.array_equal(b.numpy()[: n - shift], host[shift:])

b = target.zeros(n)
kernels["strided"][blocks, block](b, a, n, stride)
assert np.array_equal(b.numpy(), host)
