"""Define the 7-point rule by hand in Triton: a program for 1024 consecutive cells."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def seven_point(new, u, n, nx, ny, nz, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x, y, z = at % nx, at // nx % ny, at // nx // ny
    inside = (x > 0) & (x < nx - 1) & (y > 0) & (y < ny - 1) & (z > 0) & (z < nz - 1) & (at < n)
    middle = tl.load(u + at, mask=at < n)
    value = 0.1 * middle + 0.2 * tl.load(u + at - nx * ny, mask=inside) + 0.15 * tl.load(u + at + nx * ny, mask=inside)
    value += 0.05 * tl.load(u + at - nx, mask=inside) + 0.1 * tl.load(u + at + nx, mask=inside)
    value += 0.1 * tl.load(u + at - 1, mask=inside) + 0.3 * tl.load(u + at + 1, mask=inside)
    tl.store(new + at, tl.where(inside, value, middle), mask=at < n)
