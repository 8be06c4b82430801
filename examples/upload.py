"""Particles as structures on the host, as arrays on the device: the remap is hidden behind the copy."""

import sys

import numpy as np

import memlane as ml

CODE = """extern "C" __global__ void energy(const float* vx, const float* vy, const float* m, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * m[i] * (vx[i] * vx[i] + vy[i] * vy[i]);
}"""
n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 16
particles = np.zeros(n, [("x", "f4"), ("y", "f4"), ("vx", "f4"), ("vy", "f4"), ("m", "f4")])
particles["vx"], particles["vy"], particles["m"] = np.arange(n) % 7, 2, 4

target = ml.target()
array = ml.upload(target, particles, layout="soa")  # each field contiguous on the device
out = target.empty(n)
energy = target.load(ml.cuda(CODE))["energy"]
energy[-(-n // 256), 256](array.field("vx"), array.field("vy"), array.field("m"), out, n)
assert np.array_equal(out.numpy(), 2 * (particles["vx"] ** 2 + 4))
assert np.array_equal(ml.download(array), particles)
print(array.transfer.plan)
