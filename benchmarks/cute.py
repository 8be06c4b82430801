"""How long do the tutorials of CuTe take to load, how much of that is the compiler's own time, and is what their kernels compute right?

    git clone https://github.com/NVIDIA/cutlass && git -C cutlass checkout 7107b05535f8977f5ecb9d01ee203205b1fd9bc4
    python benchmarks/cute.py cutlass

Each file is compiled as it is, with the library's two directories of headers; the kernels are those that its host code launches, with the
template arguments that follow from there. Each kernel is launched on an emulated H200 for one product of matrices and compared with NumPy's
in double precision. Times are those of the processor: what else the machine does is not in them.

Prediction: memlane adds no more than 2 s to what NVRTC takes for the three compilations (twice the host code, once the kernels).
"""

from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, write
from public_kernel import alone

from memlane.compile import cuda, nvrtc
from memlane.launch import Target
from memlane.ptx import Function, Module
from memlane.targets import target

SOURCES = ["src/memlane/compile", "src/memlane/ptx", "src/memlane/emulate/lower", "src/memlane/emulate/semantics", "benchmarks/cute.py"]
FILES: dict[str, tuple[Any, int, int]] = {
    "sgemm_1": (np.float32, 256, 0),
    "sgemm_2": (np.float32, 256, 0),
    "sgemm_sm80": (np.float16, 128, 98304),
}
"""Type of the elements, and threads and dynamic shared memory of a block, by file."""
ROWS, COLUMNS, DEPTH = 256, 128, 64
TILE = 128
MOST_S = 2.0
MOST_ERROR = {np.float32: 1e-5, np.float16: 2e-3}
"""Largest acceptable error over the largest element of the product, by type."""


def compiled(path: Path, clone: Path) -> tuple[Module, float, float]:
    """Return the module, and the seconds of the processor that it took, in all and in the compiler."""
    taken: list[float] = []
    compile_request = nvrtc.compile_request

    def timed(request: nvrtc.Request) -> nvrtc.Answer:
        began = time.process_time()
        answer = compile_request(request)
        taken.append(time.process_time() - began)
        return answer

    nvrtc.compile_request = timed  # type: ignore[assignment]
    began = time.process_time()
    try:
        module = cuda(path, include=[clone / "include", clone / "tools/util/include"])
        return module, time.process_time() - began, sum(taken)
    finally:
        nvrtc.compile_request = compile_request


def greatest_error(on: Target, module: Module, kernel: Function, name: str) -> float:
    """Return the largest error of one product over its largest element."""
    dtype, threads, shared_bytes = FILES[name]
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((side, DEPTH)).astype(dtype) for side in (ROWS, COLUMNS))
    by_columns = kernel.title.partition("half_t, " if dtype is np.float16 else "float, ")[2].startswith("cute::tuple<cute::C<1>")
    out = on.zeros(ROWS * COLUMNS, np.dtype(dtype).str[1:])
    arrays = [on.array((one.T if by_columns else one).copy()) for one in (a, b)]
    leading = (ROWS, COLUMNS, ROWS) if by_columns else (DEPTH, DEPTH, ROWS)
    launched = on.load(alone(module, kernel.name))[kernel.name][(ROWS // TILE, COLUMNS // TILE), (threads,), None, shared_bytes]
    launched(*_arguments(kernel, [*arrays, out], leading, dtype))
    got, expected = out.numpy().reshape(COLUMNS, ROWS).T.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64).T
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def _arguments(kernel: Function, arrays: list[object], leading: tuple[int, ...], dtype: Any) -> list[object]:
    """Return the sides, the matrices with their strides, layouts that have no members, and the factors 1 and 0."""
    pointers, strides, factors = iter(arrays), iter(leading), iter((1.0, 0.0))
    found: list[object] = []
    for param in kernel.params:
        if param.nbytes == 12:
            found.append(np.array([ROWS, COLUMNS, DEPTH], np.int32).tobytes())
        elif param.shape is None and param.nbytes == 8:
            found.append(next(pointers))
        elif param.shape is not None and param.nbytes == 4:
            found.append(np.int32(next(strides)).tobytes())
        elif param.nbytes == np.dtype(dtype).itemsize:
            found.append(dtype(next(factors)))
        else:
            found.append(bytes(param.nbytes))
    return found


def rows_of(name: str, clone: Path) -> list[Row]:
    module, total_s, compiler_s = compiled(clone / f"examples/cute/tutorial/{name}.cu", clone)
    emulator = target("emulator:h200")
    dtype = FILES[name][0]
    errors = [greatest_error(emulator, module, kernel, name) for kernel in module.kernels.values()]
    return [
        Row(name, "time to compile", total_s, "s", note=f"{compiler_s:.1f} s of it in the compiler"),
        Row(name, "time to compile, without the compiler's", total_s - compiler_s, "s", MOST_S),
        Row(name, "kernels that the host code launches", len(module.kernels), ""),
        Row(name, "greatest error of the product", max(errors), "of the largest element", MOST_ERROR[dtype]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clone", type=Path, help="a clone of CUTLASS")
    clone = parser.parse_args().clone
    head = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    rows = [row for name in FILES for row in rows_of(name, clone)]
    write("cute", [*rows, Row("cutlass", "files", len(FILES), "", note=head)], chip="cpu")


if __name__ == "__main__":
    main()
