"""Heat in a plate with a hole, by a rule for one cell: the steps run on a GPU, or on the emulator where there is none.

python examples/heat.py [cells along one side] [steps] [devices]

Without a number of devices it takes all GPUs of the machine, or one emulated device.
"""

import sys

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
    targets = ml.devices(count=int(sys.argv[3]) if len(sys.argv) > 3 else None)
    y, x = np.mgrid[:n, :n]
    values = {
        "u": np.zeros((n, n), np.float32),
        "hole": (y - n / 2) ** 2 + (x - n / 2) ** 2 < (n / 6) ** 2,  # stays cold
        "r": 0.2,
        "swap": ("new", "u"),
    }
    plate = heat.on(ml.Grid((n, n), boundary=("reflecting", (1.0, "reflecting"))))  # 1.0 behind the left side, nothing flows elsewhere
    run = plate.prepare(**values, targets=targets)
    run.steps(steps, every=max(1, steps // 4), call=lambda run: print(f"step {run.step}: average {run['u'].gather().mean():.6f}"))
    print(run)
    if n <= 512:
        expected = plate.reference(steps, **values)["u"]
        assert np.allclose(run["u"].gather(), expected, atol=1e-5)


if __name__ == "__main__":
    main()
