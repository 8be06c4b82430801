"""Run the 7-point rule with other Python tools, and programs built from published sources, as peers of the stencil benchmark.

A tool that is not installed is left out. Programs are looked for in the folder that `MEMLANE_PEERS` names; they time themselves, so their
rates come from the same run, but not from the same rounds:

    ebisu_3d7pt, ebisu_2d5pt     EBISU (temporal blocking on one GPU), `3dstencil` and `2dstencil` of github.com/neozhang307/EBISU-ICS23
    himeno_LARGE, himeno_ELARGE  the CUDA port of github.com/keichi/gpu-himeno, with -DLARGE and -DELARGE
"""

# mypy: ignore-errors

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

TURNS = 6
"""Steps between two synchronisations."""
WEIGHTS = (0.1, 0.2, 0.15, 0.05, 0.1, 0.1, 0.3)
"""Weights of the cell and its neighbours along z, y and x."""

PROGRAMS = {
    "7-point fp32 512^3": ("EBISU, 8 steps a launch", "ebisu_3d7pt 512 512 512 --fp32 --warmup --iter=400", r"([\d.]+)\s*$", 1.0),
    "7-point fp32 1024^3": ("EBISU, 8 steps a launch", "ebisu_3d7pt 1024 1024 1024 --fp32 --warmup --iter=80", r"([\d.]+)\s*$", 1.0),
    "5-point fp32 16384^2": ("EBISU, 9 steps a launch", "ebisu_2d5pt 16384 16384 --fp32 --warmup --iter=450", r"([\d.]+)\s*$", 1.0),
    "Himeno L": ("gpu-himeno", "himeno_LARGE", r"MFLOPS measured : ([\d.]+)", 1 / 34e3),
    "Himeno XL": ("gpu-himeno", "himeno_ELARGE", r"MFLOPS measured : ([\d.]+)", 1 / 34e3),
}
"""Programs by case: the peer's name, its command, the pattern of the rate in its output, and the factor to Gcell/s."""


def programs_of(case: str) -> dict[str, float]:
    """Return the rate in Gcell/s that a published program tells of itself; nothing if it takes longer than half of what a case may."""
    folder = os.environ.get("MEMLANE_PEERS")
    if folder is None or case not in PROGRAMS:
        return {}
    name, command, pattern, factor = PROGRAMS[case]
    program, *arguments = command.split()
    if not (Path(folder) / program).exists():
        return {}
    try:
        done = subprocess.run([Path(folder).resolve() / program, *arguments], capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: left out, it took longer than 30 s (gpu-himeno: lower its `target`)", flush=True)
        return {}
    found = re.findall(pattern, done.stdout.strip())
    return {name: float(found[-1]) * factor} if done.returncode == 0 and found else {}


def tools_of(shape: tuple[int, int, int]) -> dict[str, tuple[Callable[[], object], int]]:
    """Return by name what makes some steps of the 7-point rule in single precision, and how many."""
    found = {}
    for name, of in (("JAX slices", _jax), ("CuPy ElementwiseKernel", _cupy), ("numba.cuda by hand", _numba)):
        try:
            found[name] = of(shape), TURNS
        except Exception as error:  # a tool that does not work on this machine is no peer here
            print(f"{name}: left out, {type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}", flush=True)
    return found


def _jax(shape):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = import_module("jax")
    i, a = slice(1, -1), WEIGHTS

    def step(_, u):
        return u.at[i, i, i].set(a[0] * u[i, i, i] + a[1] * u[:-2, i, i] + a[2] * u[2:, i, i] + a[3] * u[i, :-2, i] + a[4] * u[i, 2:, i]
                                 + a[5] * u[i, i, :-2] + a[6] * u[i, i, 2:])  # fmt: skip

    steps = jax.jit(lambda u: jax.lax.fori_loop(0, TURNS, step, u))
    u = jax.random.uniform(jax.random.key(0), shape, "float32")
    return lambda: steps(u).block_until_ready()


def _cupy(shape):
    cupy = import_module("cupy")
    nz, ny, nx = shape
    kernel = cupy.ElementwiseKernel(
        "raw float32 u, int32 nx, int32 ny, int32 nz",
        "float32 out",
        """
        const int x = i % nx, y = i / nx % ny, z = i / nx / ny, row = nx, plane = nx * ny;
        const bool inside = x > 0 && x < nx - 1 && y > 0 && y < ny - 1 && z > 0 && z < nz - 1;
        out = inside ? 0.1f * u[i] + 0.2f * u[i - plane] + 0.15f * u[i + plane] + 0.05f * u[i - row] + 0.1f * u[i + row]
            + 0.1f * u[i - 1] + 0.3f * u[i + 1] : u[i];
        """,
        "seven_point",
    )
    fields = [cupy.random.random(shape, dtype=cupy.float32) for _ in range(2)]

    def run():
        for _ in range(TURNS):
            kernel(fields[0], nx, ny, nz, fields[1])
            fields.reverse()
        cupy.cuda.Device().synchronize()

    run()
    return run


def _numba(shape):
    cuda = import_module("numba.cuda")
    numpy = import_module("numpy")
    a = tuple(numpy.float32(one) for one in WEIGHTS)

    @cuda.jit
    def seven_point(new, u):
        x, y, z = cuda.grid(3)
        if 0 < x < u.shape[2] - 1 and 0 < y < u.shape[1] - 1 and 0 < z < u.shape[0] - 1:
            new[z, y, x] = (a[0] * u[z, y, x] + a[1] * u[z - 1, y, x] + a[2] * u[z + 1, y, x] + a[3] * u[z, y - 1, x]
                            + a[4] * u[z, y + 1, x] + a[5] * u[z, y, x - 1] + a[6] * u[z, y, x + 1])  # fmt: skip

    fields = [cuda.to_device(numpy.random.default_rng(0).random(shape, numpy.float32))]
    fields.append(cuda.device_array_like(fields[0]))
    threads = 64, 4, 1
    blocks = tuple(-(-length // by) for length, by in zip(reversed(shape), threads, strict=True))

    def run():
        for _ in range(TURNS):
            seven_point[blocks, threads](fields[1], fields[0])
            fields.reverse()
        cuda.synchronize()

    run()
    return run
