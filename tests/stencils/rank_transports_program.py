"""What the ranks of `test_rank_transports.py` run: exchanges from memory of the device, one to three axes cut and several fields."""

import os
import sys
import time
from itertools import product

import numpy as np

import memlane as ml
from memlane.errors import StencilError
from memlane.plan import races
from memlane.timeloop.distributed import DistributedRun
from memlane.timeloop.mpi import world

TRANSPORT = os.environ.get("MEMLANE_TEST_TRANSPORT", "mpi-cuda")
SHAPE = 24, 20, 40
SWAP = (("a", "u"), ("b", "v"))
STEPS = (4, 3)
PARTS = {2: ((2, 1, 1), (1, 2, 1)), 3: ((3, 1, 1), (1, 3, 1)), 4: ((4, 1, 1), (2, 2, 1), (1, 2, 2)), 8: ((2, 2, 2),)}


@ml.stencil
def pair(a, b, u, v, r):
    a[0, 0, 0] = u[0, 0, 0] + r * (v[-1, 0, 0] + v[1, 0, 0] + u[0, -1, 0] - 3 * u[0, 0, 1])
    b[0, 0, 0] = v[0, 0, 0] - r * (u[-1, -1, 0] + u[1, 0, 1] + v[0, 1, 0] - 3 * v[0, 0, -1])


@ml.stencil
def upwind(new, u):
    new[0, 0, 0] = 0.5 * u[0, 0, 0] + 0.25 * (u[-1, 0, 0] + u[0, -1, 0])


def values(stencil):
    random = np.random.default_rng(3)
    names = ("u", "v") if stencil is pair else ("u",)
    given = {name: random.random(SHAPE, dtype=np.float32) for name in names}
    return given | ({"r": 0.05, "swap": SWAP} if stencil is pair else {"swap": ("new", "u")})


def differing(stencil, boundary, parts, k, overlap):
    """The fields in which this run has other bits than the rule's own function on NumPy arrays."""
    on_grid = stencil.on(ml.Grid(SHAPE, boundary=boundary), exchange_every=k, transport=TRANSPORT, overlap=overlap, decomposition=parts)
    given, found = values(stencil), []
    run = on_grid.prepare(**given, fmad=False)
    assert races(run.plan(4 * k)) == []
    steps = 0
    for more in STEPS:
        run.steps(more)
        steps += more
        expected = on_grid.reference(steps, **given)
        found += [
            f"{name} after {steps}" for name in ("u", "v") if name in given and not np.array_equal(run[name].gather(), expected[name])
        ]
    return found


def refused():
    """What is said of NCCL on emulated devices."""
    try:
        upwind.on(ml.Grid(SHAPE), transport="nccl").prepare(**values(upwind))
    except StencilError as error:
        return f"refused: {error}"
    return "nothing was refused"


def stop(rank):
    """The last rank stops before steps that the others make."""
    run = upwind.on(ml.Grid(SHAPE), transport=TRANSPORT, exchange_every=1).prepare(**values(upwind))
    run.steps(8)
    world().limit_s = 2
    if rank == run.ranks - 1:
        time.sleep(600)
    DistributedRun._is_interrupted = lambda self, asked: asked  # only the exchanges connect the ranks
    run.steps(800)


def main():
    from mpi4py import MPI

    ranks = MPI.COMM_WORLD
    if "stops" in sys.argv:
        stop(ranks.rank)
    parts = PARTS[ranks.size]
    cases = [(pair, *one) for one in product(("fixed", "periodic"), parts, (1, 2), (True, False))]
    cases += [(upwind, "fixed", one, 1, True) for one in parts]
    if "few" in sys.argv:
        cases = [(pair, "periodic", parts[0], 2, True), (pair, "fixed", parts[1], 2, True), (pair, "periodic", parts[1], 1, False)]
    for case in cases:
        if found := differing(*case):
            print(f"rank {ranks.rank}, {case[0]}, {case[1:]}: {found} differ", flush=True)
    if os.environ.get("MEMLANE_TARGET", "").startswith("emulator"):
        print(refused(), flush=True)
    if ranks.rank == 0:
        print(f"{len(cases)} cases", flush=True)


if __name__ == "__main__":
    main()
