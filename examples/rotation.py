"""An image turned about its centre through a texture, whose unit interpolates."""

import math
import sys
from pathlib import Path

import numpy as np

import memlane as ml

n = int(sys.argv[1]) if len(sys.argv) > 1 else 512
width, height, angle = n, n // 2 + 1, math.radians(20)

target = ml.target()
turn = target.load(ml.cuda(Path(__file__).with_name("rotation.cu")))["turn"]
host = np.random.default_rng(7).random((height, width), dtype=np.float32)
image = target.texture(host, filter="linear", address="border")
out = target.zeros((height, width))
turn[(-(-width // 32), -(-height // 8)), (32, 8)](out, image, width, height, np.float32(math.cos(angle)), np.float32(math.sin(angle)))

# The same in double precision, in an image with a border of zeros that is as wide as any way out of it.
right, down = np.meshgrid(np.arange(width) + 0.5 - width / 2, np.arange(height) + 0.5 - height / 2)
x = math.cos(angle) * right - math.sin(angle) * down + width / 2 - 0.5
y = math.sin(angle) * right + math.cos(angle) * down + height / 2 - 0.5
padded = np.pad(host.astype(np.float64), n)
left, top = np.floor(x).astype(int), np.floor(y).astype(int)
expected = np.zeros((height, width))
for to_right, weight_x in ((0, left + 1 - x), (1, x - left)):
    for below, weight_y in ((0, top + 1 - y), (1, y - top)):
        expected += weight_x * weight_y * padded[top + below + n, left + to_right + n]
# Weights are multiples of 1/256 in each direction.
assert np.abs(out.numpy() - expected).max() < 2 / 256
