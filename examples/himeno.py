"""The Himeno benchmark: Jacobi steps of a pressure equation with 14 arrays, sizes and initial values as published.

    python examples/himeno.py [XS, S, M, L, XL] [steps] [devices]

Without a number of devices it takes all GPUs of the machine, or one emulated device.

MFLOPS count 34 operations for each cell of the interior. `gosa` is the sum of squares of the last step's changes. The published C program
adds it up in single precision; here it is added up in double precision, and where the grid is small also as the C program does, which is
0.2 % off at S. At L and above a sum in single precision stalls: its terms become too small to change it.
"""

import sys
import time

import numpy as np

import memlane as ml

SIZES = {"XS": (32, 32, 64), "S": (64, 64, 128), "M": (128, 128, 256), "L": (256, 256, 512), "XL": (512, 512, 1024)}


@ml.stencil
def jacobi(p_new, p, a0, a1, a2, a3, b0, b1, b2, c0, c1, c2, wrk1, bnd, omega, gosa):
    s0 = (
        a0[0, 0, 0] * p[1, 0, 0]
        + a1[0, 0, 0] * p[0, 1, 0]
        + a2[0, 0, 0] * p[0, 0, 1]
        + b0[0, 0, 0] * (p[1, 1, 0] - p[1, -1, 0] - p[-1, 1, 0] + p[-1, -1, 0])
        + b1[0, 0, 0] * (p[0, 1, 1] - p[0, -1, 1] - p[0, 1, -1] + p[0, -1, -1])
        + b2[0, 0, 0] * (p[1, 0, 1] - p[-1, 0, 1] - p[1, 0, -1] + p[-1, 0, -1])
        + c0[0, 0, 0] * p[-1, 0, 0]
        + c1[0, 0, 0] * p[0, -1, 0]
        + c2[0, 0, 0] * p[0, 0, -1]
        + wrk1[0, 0, 0]
    )
    ss = (s0 * a3[0, 0, 0] - p[0, 0, 0]) * bnd[0, 0, 0]
    gosa += ss * ss
    p_new[0, 0, 0] = p[0, 0, 0] + omega * ss


def initial(shape: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """Return the arrays of the published program."""
    constant = {"a3": 1 / 6, "b0": 0.0, "b1": 0.0, "b2": 0.0, "wrk1": 0.0}
    names = ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "c0", "c1", "c2", "wrk1", "bnd"]
    i = np.arange(shape[0], dtype=np.float32)
    p = np.broadcast_to((i * i / np.float32((shape[0] - 1) ** 2))[:, None, None], shape)
    return {"p": np.ascontiguousarray(p), **{name: np.full(shape, constant.get(name, 1.0), np.float32) for name in names}}


def gosa_of(before: np.ndarray) -> tuple[float, float]:
    """Return the sum in double precision, and as the C program makes it: one cell after the other, in float32; published coefficients."""
    inner, p = (slice(1, -1),) * 3, before
    near = p[2:, 1:-1, 1:-1] + p[1:-1, 2:, 1:-1] + p[1:-1, 1:-1, 2:]
    s0 = near + p[:-2, 1:-1, 1:-1] + p[1:-1, :-2, 1:-1] + p[1:-1, 1:-1, :-2]
    ss = s0 * np.float32(1 / 6) - p[inner]
    return float((ss * ss).sum(dtype=np.float64)), float(np.add.accumulate((ss * ss).ravel(), dtype=np.float32)[-1])


def main() -> None:
    """Run some steps and print what the published program prints."""
    size = sys.argv[1].upper() if len(sys.argv) > 1 else "XS"
    if size not in SIZES:
        raise SystemExit(f"no size is called {size}: give one of {', '.join(SIZES)}, then the number of steps and of devices")
    if not all(word.isdecimal() for word in sys.argv[2:]):
        raise SystemExit(f"{' '.join(sys.argv[2:])}: give whole numbers of steps and of devices after the size")
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    targets = ml.devices(count=int(sys.argv[3]) if len(sys.argv) > 3 else None)
    shape = SIZES[size]
    run = jacobi.on(ml.Grid(shape)).prepare(**initial(shape), omega=0.8, swap=("p_new", "p"), targets=targets)
    run.steps(max(1, steps - 1))
    small = shape[0] <= 128
    before = run["p"].gather() if small else None
    began = time.perf_counter()
    run.steps(steps)
    took = time.perf_counter() - began
    interior = (shape[0] - 2) * (shape[1] - 2) * (shape[2] - 2)
    where = ", ".join(target.name for target in targets)
    print(f"{size} {shape}, {where}: {steps} steps in {took:.3f} s, {interior * steps * 34 / took / 1e6:,.1f} MFLOPS")
    print(f"gosa of the last step {run.reductions['gosa']:.8e} (float64)")
    if before is not None:
        run = jacobi.on(ml.Grid(shape)).prepare(**{**initial(shape), "p": before}, omega=0.8, swap=("p_new", "p"))
        run.steps(1)
        double, single = gosa_of(before)
        print(f"gosa of step {max(1, steps - 1) + 1}: {run.reductions['gosa']:.8e} (float64), {single:.8e} (float32, one after the other)")
        assert np.isclose(run.reductions["gosa"], double, rtol=1e-4)


if __name__ == "__main__":
    main()
