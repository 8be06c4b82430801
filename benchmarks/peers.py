"""Run the matrix product of `examples/matmul.cu` on other roads: Numba's CUDA simulator, Triton's interpreter, NumPy.

Each runs in a process of its own, as the first two are chosen by an environment variable before they are imported. `seconds_of` gives the
fastest of some runs, or says why there is none. The product has the same tiles, 16 x 16 (Triton: 16 x 16 a program), and is checked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

TILE = 16
VARIABLES = {"Numba's simulator": {"NUMBA_ENABLE_CUDASIM": "1"}, "Triton's interpreter": {"TRITON_INTERPRET": "1"}, "NumPy": {}}
NEEDS = {"Numba's simulator": ("numba_cuda", "numba"), "Triton's interpreter": ("triton", "triton"), "NumPy": ("numpy", "")}
"""The package that is imported, and memlane's extra that installs it."""

Floats = npt.NDArray[np.float32]


def seconds_of(name: str, n: int, repeats: int) -> tuple[float | None, str]:
    """Return the seconds of one product of n x n on one of the roads, without the first run, and an empty text; or None and the reason."""
    package, extra = NEEDS[name]
    if find_spec(package) is None:
        return None, f"{package} is not installed; pip install 'memlane[{extra}]'"
    # One core for all of them: NumPy's product would take as many as there are.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, **VARIABLES[name]}
    command = [sys.executable, __file__, name, str(n), str(repeats)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["no message"])[-1]
    return float(done.stdout.split()[-1]), ""


def _numba(a: Floats, b: Floats, c: Floats) -> Callable[[], None]:
    global cuda  # the simulator looks for the module among the globals of a kernel
    from numba import cuda, float32

    @cuda.jit
    def product(c: Any, a: Any, b: Any, n: int) -> None:
        tile_a = cuda.shared.array((TILE, TILE), float32)  # the simulator tells shared arrays apart by their lines
        tile_b = cuda.shared.array((TILE, TILE), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        column, row = cuda.blockIdx.x * TILE + tx, cuda.blockIdx.y * TILE + ty
        total = float32(0)
        for start in range(0, n, TILE):
            tile_a[ty, tx] = a[row, start + tx] if row < n and start + tx < n else float32(0)
            tile_b[ty, tx] = b[start + ty, column] if start + ty < n and column < n else float32(0)
            cuda.syncthreads()
            for k in range(TILE):
                total += tile_a[ty, k] * tile_b[k, tx]
            cuda.syncthreads()
        if row < n and column < n:
            c[row, column] = total

    tiles = -(-len(a) // TILE)
    arguments = [cuda.to_device(one) for one in (c, a, b)]

    def run() -> None:
        product[(tiles, tiles), (TILE, TILE)](*arguments, len(a))
        arguments[0].copy_to_host(c)

    return run


def _triton(a: Floats, b: Floats, c: Floats) -> Callable[[], None]:
    import triton
    import triton.language as tl

    @triton.jit
    def product(c, a, b, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
        rows, columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, BLOCK), tl.float32)
        for start in range(0, n, BLOCK):
            inner = start + tl.arange(0, BLOCK)
            tile_a = tl.load(a + rows[:, None] * n + inner[None, :], mask=(rows[:, None] < n) & (inner[None, :] < n), other=0.0)
            tile_b = tl.load(b + inner[:, None] * n + columns[None, :], mask=(inner[:, None] < n) & (columns[None, :] < n), other=0.0)
            total += tl.dot(tile_a, tile_b, input_precision="ieee")
        tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < n) & (columns[None, :] < n))

    tiles = -(-len(a) // TILE)
    tensors = [_Tensor(one) for one in (c, a, b)]
    return lambda: product[(tiles, tiles)](*tensors, len(a), BLOCK=TILE)


class _Tensor:
    """The part of a PyTorch tensor that Triton's interpreter needs, over a NumPy array."""

    dtype = "fp32"

    def __init__(self, array: Floats) -> None:
        self._array = array

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def untyped_storage(self) -> _Tensor:
        return self

    cpu = untyped_storage

    def new_empty(self, *_: object, **__: object) -> _Tensor:
        return _Tensor(self._array)

    def set_(self, storage: _Tensor, *_: object) -> None:
        self._array = storage._array

    def copy_(self, _: _Tensor) -> None:
        """Do nothing, because both are the same memory."""

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self._array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self._array.itemsize for step in self._array.strides)


def _numpy(a: Floats, b: Floats, c: Floats) -> Callable[[], None]:
    return lambda: np.copyto(c, a @ b)


ROADS = {"Numba's simulator": _numba, "Triton's interpreter": _triton, "NumPy": _numpy}


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds of a matrix product")
    parser.add_argument("road", choices=list(ROADS))
    parser.add_argument("n", type=int)
    parser.add_argument("repeats", type=int)
    options = parser.parse_args()
    random = np.random.default_rng(7)
    a, b = (random.integers(0, 8, (options.n, options.n)).astype(np.float32) for _ in range(2))
    c = np.zeros_like(a)
    run = ROADS[options.road](a, b, c)
    run()
    if not np.array_equal(c, a @ b):
        raise SystemExit("the product is wrong")
    times = []
    for _ in range(options.repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    print(min(times))


if __name__ == "__main__":
    main()
