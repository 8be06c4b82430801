"""Measure the rules of the stencil benchmark with other tools on the same grids. A peer that the machine does not have is left out."""

# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np
from stencil_others import TURNS, tools_of

import memlane as ml
from memlane.plan import PlanBuilder
from memlane.targets import BoundPlan

HIMENO = """
extern "C" __global__ void himeno(float* __restrict__ to, const float* __restrict__ p, const float* __restrict__ a0,
    const float* __restrict__ a1, const float* __restrict__ a2, const float* __restrict__ a3, const float* __restrict__ b0,
    const float* __restrict__ b1, const float* __restrict__ b2, const float* __restrict__ c0, const float* __restrict__ c1,
    const float* __restrict__ c2, const float* __restrict__ wrk1, const float* __restrict__ bnd, int ni, int nj, int nk) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, i = blockIdx.z;
    if (k < 1 || k >= nk - 1 || j < 1 || j >= nj - 1 || i < 1 || i >= ni - 1) return;
    const int J = nk, I = nj * nk, c = i * I + j * J + k;
    const float s0 = a0[c] * p[c + I] + a1[c] * p[c + J] + a2[c] * p[c + 1]
        + b0[c] * (p[c + I + J] - p[c + I - J] - p[c - I + J] + p[c - I - J])
        + b1[c] * (p[c + J + 1] - p[c - J + 1] - p[c + J - 1] + p[c - J - 1])
        + b2[c] * (p[c + I + 1] - p[c - I + 1] - p[c + I - 1] + p[c - I - 1])
        + c0[c] * p[c - I] + c1[c] * p[c - J] + c2[c] * p[c - 1] + wrk1[c];
    to[c] = p[c] + 0.8f * ((s0 * a3[c] - p[c]) * bnd[c]);
}
"""


def peers_of(bench) -> dict[str, tuple[Callable[[], object], int]]:
    """Return by name what makes some steps with another tool, and how many."""
    if bench.case.is_himeno:
        return {"CUDA by hand, one thread a cell": _himeno(bench)}
    found = {}
    try:
        torch = import_module("torch")
    except ImportError:
        return found
    u = torch.rand(bench.problem.grid.shape, dtype=torch.float64 if bench.case.dtype == "f8" else torch.float32, device="cuda")
    if bench.case.rule == "seven":
        found["PyTorch slices"] = _slices(torch, u), TURNS
        if u.numel() <= 1 << 27 and u.dtype == torch.float32:
            found["PyTorch conv3d"] = _convolution(torch, u), TURNS
        if u.dtype == torch.float32:
            found |= _triton(torch, u) | tools_of(bench.problem.grid.shape)
    if bench.case.rule == "five":
        found["PyTorch slices"] = _slices_of_two(torch, u), TURNS
    return found


def _himeno(bench):
    target, shape = bench.target, bench.problem.grid.shape
    kernel = target.load(ml.cuda(HIMENO))["himeno"]
    builder, names = PlanBuilder(), ["p_new", "p", "a0", "a1", "a2", "a3", "b0", "b1", "b2", "c0", "c1", "c2", "wrk1", "bnd"]
    views = {name: builder.array(name, shape, "f4") for name in names}
    grid = -(-shape[2] // 64), -(-shape[1] // 4), shape[0]
    with builder.repeat(20, rotate=[(views["p"], views["p_new"])]) as loop:
        inputs = [views[name] for name in names[1:]]
        loop.launch(kernel, grid, (64, 4), *views.values(), *shape, reads=inputs, writes=[views["p_new"]])
    return BoundPlan(builder.plan(), bench.arrays, targets=[target], modules=[kernel.loaded]).run, 20


def _timed(torch, step):
    def run():
        for _ in range(TURNS):
            step()
        torch.cuda.synchronize()

    return run


def _slices(torch, u):
    a, new = [0.1, 0.2, 0.15, 0.05, 0.1, 0.1, 0.3], u.clone()
    i = slice(1, -1)

    def step():
        new[i, i, i] = (a[0] * u[i, i, i] + a[1] * u[:-2, i, i] + a[2] * u[2:, i, i] + a[3] * u[i, :-2, i] + a[4] * u[i, 2:, i]
                        + a[5] * u[i, i, :-2] + a[6] * u[i, i, 2:])  # fmt: skip

    return _timed(torch, step)


def _slices_of_two(torch, u):
    new, i = u.clone(), slice(1, -1)

    def step():
        new[i, i] = 0.5 * u[i, i] + 0.125 * (u[:-2, i] + u[2:, i] + u[i, :-2] + u[i, 2:])

    return _timed(torch, step)


def _convolution(torch, u):
    torch.backends.cudnn.allow_tf32 = False
    weight = torch.zeros((1, 1, 3, 3, 3), device="cuda")
    for place, value in {
        (1, 1, 1): 0.1,
        (0, 1, 1): 0.2,
        (2, 1, 1): 0.15,
        (1, 0, 1): 0.05,
        (1, 2, 1): 0.1,
        (1, 1, 0): 0.1,
        (1, 1, 2): 0.3,
    }.items():
        weight[0, 0, place[0], place[1], place[2]] = value
    return _timed(torch, lambda: torch.nn.functional.conv3d(u[None, None], weight, padding=1))


def _triton(torch, u):
    try:
        from stencil_triton import seven_point
    except ImportError:
        return {}
    new, n = torch.empty_like(u), np.prod(u.shape)
    nz, ny, nx = u.shape

    def step():
        seven_point[(int(-(-n // 1024)),)](new, u, int(n), nx, ny, nz, BLOCK=1024)

    return {"Triton by hand": (_timed(torch, step), TURNS)}
