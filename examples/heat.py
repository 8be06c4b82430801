"""Heat in a plate with a hole, by a rule for one cell: the steps run on a GPU, or on the emulator where there is none.

python examples/heat.py [cells along one side] [steps] [devices]
mpiexec -n 4 python examples/heat.py 48 40 mpi

Without a number of devices it takes all GPUs of the machine, or one emulated device; 2x2 cuts the plate into boxes for four of them. With
`mpi` each rank of an MPI program has one.
"""

import sys
from math import prod
from typing import Any

import numpy as np

import memlane as ml


@ml.stencil
def heat(new, u, hole, r):
    around = u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0]
    new[0, 0] = u[0, 0] if hole[0, 0] else u[0, 0] + r * around


def main() -> None:
    """Heat the left side of a plate and compare with the rule on NumPy arrays."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 48
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    devices = sys.argv[3] if len(sys.argv) > 3 else None
    is_mpi = devices == "mpi"
    parts = [int(one) for one in devices.split("x")] if devices and not is_mpi else []  # of slabs their number alone
    targets = None if is_mpi else ml.devices(count=prod(parts) if parts else None)
    y, x = np.mgrid[:n, :n]
    values = {
        "u": np.zeros((n, n), np.float32),
        "hole": (y - n / 2) ** 2 + (x - n / 2) ** 2 < (n / 6) ** 2,  # stays cold
        "r": 0.2,
        "swap": ("new", "u"),
    }
    grid = ml.Grid((n, n), boundary=("reflecting", (1.0, "reflecting")))  # 1.0 behind the left side, nothing flows elsewhere
    plate = heat.on(grid, transport="mpi" if is_mpi else "auto", decomposition=parts if len(parts) > 1 else None)
    run = plate.prepare(**values, targets=targets)
    run.steps(steps, every=max(1, steps // 4), call=show)
    u = run["u"].gather()  # all ranks of an MPI program gather, one prints
    if run.rank == 0:
        print(run)
    if n <= 512:
        assert np.allclose(u, plate.reference(steps, **values)["u"], atol=1e-5)


def show(run: Any) -> None:
    """Print the average of the plate."""
    u = run["u"].gather()
    if run.rank == 0:
        print(f"step {run.step}: average {u.mean():.6f}")


if __name__ == "__main__":
    main()
