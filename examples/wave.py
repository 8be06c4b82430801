"""A wave from a source, by the leapfrog method: three fields change places, a probe listens, a run is stopped and taken up again.

python examples/wave.py [cells along one side] [steps]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import memlane as ml
from memlane.timeloop import Run


@ml.stencil
def wave(new, u, old, courant):
    around = u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0]
    new[0, 0] = 2 * u[0, 0] - old[0, 0] + courant[0, 0] * around


def main() -> None:
    """Let a pulse cross a border where waves become slower."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 48
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    courant = np.full((n, n), 0.25, np.float32)
    courant[:, n // 2 :] = 0.0625
    grid, still = ml.Grid((n, n), boundary=0.0), np.zeros((n, n), np.float32)

    def prepared() -> Run:
        return wave.on(grid).prepare(u=still, old=still, courant=courant, swap=("new", "u", "old"))

    run = prepared()
    run.add_source("u", at=(n // 2, n // 4), values=np.sin(np.arange(12) * np.pi / 6))
    run.add_probe("u", at=[(n // 2, n // 2), (n // 2, 3 * n // 4)])
    with tempfile.TemporaryDirectory() as folder:
        run.steps(steps // 2).save(Path(folder) / "half.npz")
        run.steps(steps - steps // 2)
        again = prepared()
        again.restore(Path(folder) / "half.npz")
        again.steps(steps - steps // 2)
    heard = run.probed("u")
    print(run)
    print("the wave arrives at the border in step", int(np.abs(heard[:, 0]).argmax()) + 1)
    assert heard.shape == (steps, 2)
    assert np.array_equal(again["u"].gather(), run["u"].gather())  # bit by bit, as if it had not been stopped


if __name__ == "__main__":
    main()
