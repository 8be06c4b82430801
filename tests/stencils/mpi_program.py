"""What the ranks of `test_mpi.py` run. Nothing of pytest is imported here: each rank would pay for it."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import memlane as ml
from memlane.errors import DeviceError, MissingDependency, RankError, RecordError, StencilError
from memlane.plan import DeviceCall, HostCall, all_steps, races
from memlane.timeloop.mpi import world

SWAP = ("new", "u")
TRANSPORT = os.environ.get("MEMLANE_TEST_TRANSPORT", "mpi")
STEPS = (1, 3, 7)
"""Steps that each case makes, one call after another."""


@ml.stencil
def heat(new, u, r, change):
    new[0, 0] = u[0, 0] + r * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])
    change = max(change, abs(u[-1, 0] - u[0, 1]))


@ml.stencil
def drift(new, u, hard, total):
    new[0, 0, 0] = where(hard[1, 0, 0], u[0, 0, 0], 0.5 * u[-2, 0, 1] + 0.25 * (u[0, 1, 0] + u[1, 0, -1]))  # noqa: F821
    total += u[-2, 0, 1]


CASES = {
    "2-D, periodic, k = 1": (heat, (31, 40), "periodic", 1),
    "3-D, fixed, k = 1": (drift, (40, 3, 9), ("fixed", "periodic", 1.5), 1),
    "3-D, fixed, k = 3": (drift, (40, 3, 9), ("fixed", "periodic", 1.5), 3),
    "2-D, periodic, k = 3": (heat, (31, 40), "periodic", 3),
}
POISONED = 27, 7


def values(stencil, shape):
    """What a case begins with; `hard` is a mask of one byte a cell."""
    random = np.random.default_rng(sum(shape))
    given = {"u": random.random(shape, dtype=np.float32), "swap": SWAP}
    return given | ({"r": 0.1} if stencil is heat else {"hard": random.random(shape) < 0.3})


def prepared(stencil, shape, boundary, every, **more):
    """A run of a case. Of two ranks the slabs are cut into borders and what lies between, of four those of k = 1."""
    on_grid = stencil.on(ml.Grid(shape, boundary=boundary), exchange_every=every, transport=TRANSPORT, overlap=True)
    return on_grid.prepare(**values(stencil, shape) | more, fmad=False)


def fields_and_reductions(run):
    found = {}
    for steps in STEPS:
        run.steps(steps)
        found |= {f"{name} after {run.step}": np.float64(value) for name, value in run.reductions.items()}
        found[f"u after {run.step}"] = run["u"].gather()
    return found


def refusal(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    return "nothing was raised"


def cases(folder):
    """Run all cases, write on rank 0 what came out, and return the last run."""
    from mpi4py import MPI

    everyone, found = MPI.COMM_WORLD, {}
    for name, case in CASES.items():
        run = prepared(*case)
        assert races(run.plan(4 * run.exchange_every)) == []
        mine = fields_and_reductions(run)
        theirs = everyone.allgather({key: value.tobytes() for key, value in mine.items()})
        assert all(one == theirs[0] for one in theirs), name
        found |= {f"{name}: {key}": value for key, value in mine.items()}
    if run.ranks == 4:
        boxes_have_the_same_bits(run, case, mine)
    said = messages(run) | interruption(run) | points(case) | exact_sums()
    if run.ranks == 2:
        said |= snapshots(run, case, folder) | refusals(run, case) | series(run, folder)
    all_said = everyone.gather(said)
    if run.rank == 0:
        np.savez(folder / f"{run.ranks}.npz", **found)
        (folder / f"{run.ranks}.txt").write_text(repr(all_said))
    return run


def points(case):
    """Sources and probes at the ends of slabs, beside the same on the target of this rank alone."""
    stencil, shape, boundary, _ = case
    cells = [(z, 5) for z in (0, 7, 8, 14, 15, 16, 23, 30)]
    grid, pulses = ml.Grid(shape, boundary=boundary), np.arange(8 * 4, dtype=np.float32).reshape(4, 8)
    many = prepared(*case)
    alone = stencil.on(grid).prepare(**values(stencil, shape), fmad=False, targets=many.targets)
    for one in (many, alone):
        one.add_source("u", cells, pulses)
        one.add_probe("u", cells)
        one.steps(5).steps(2)
    return {"points": np.array_equal(many.probed("u"), alone.probed("u")) and np.array_equal(many["u"].gather(), alone["u"].gather())}


def exact_sums():
    """A sum whose terms differ in size, beside that of the target of this rank alone."""
    shape, random = (40, 3, 9), np.random.default_rng(7)
    u = (random.standard_normal(shape) * 10.0 ** random.integers(-9, 9, shape)).astype(np.float32)
    given = {"u": u, "hard": np.zeros(shape, bool), "swap": SWAP, "exact_sums": True}
    many = drift.on(ml.Grid(shape), exchange_every=1, transport=TRANSPORT).prepare(**given)
    alone = drift.on(ml.Grid(shape)).prepare(**given, targets=many.targets)
    return {"exact": many.steps(1).reductions == alone.steps(1).reductions}


def boxes_have_the_same_bits(run, case, expected):
    """The last case in boxes, of which each has both of its neighbours around at both sides."""
    stencil, shape, boundary, every = case
    on_grid = stencil.on(ml.Grid(shape, boundary=boundary), exchange_every=every, transport=TRANSPORT, decomposition=(2, 2))
    boxes = on_grid.prepare(**values(stencil, shape), fmad=False)
    assert races(boxes.plan(4 * every)) == []
    assert f"rank {run.rank} of 4 with cells {('0-15', '16-30')[run.rank // 2]}, {('0-19', '20-39')[run.rank % 2]} on" in repr(boxes)
    found = fields_and_reductions(boxes)
    assert all(np.array_equal(found[name], value) for name, value in expected.items())
    sent = [message for message, _ in exchanges(boxes)]
    assert [[rank for rank, _ in messages] for messages in sent] == [[(run.rank + 2) % 4], [run.rank ^ 1]]  # one message along each axis
    gathered = boxes["u"].gather(root=2)
    assert (gathered is None) == (run.rank != 2)


def messages(run):
    """The ranks that this one sends to and receives from in one exchange, and the bytes."""
    ((sent, received),) = exchanges(run)
    return {"sent": sent, "received": received, "repr": repr(run)}


def exchanges(run):
    """For each call of a plan that exchanges: the ranks that this one sends to, with the bytes, and those that it receives from.

    NCCL gets each plane by itself, all in one group; they are added up.
    """
    found = []
    for step in all_steps(run.plan().steps):
        if isinstance(step.action, HostCall | DeviceCall):
            sends, *pairs = step.action.arguments
            ends = [(rank, view.nbytes) for rank, view in zip(pairs[::2], pairs[1::2], strict=True)]
            both = ends[:sends], ends[sends:]
            if TRANSPORT == "nccl":
                both = tuple([(rank, sum(size for other, size in some if other == rank)) for rank in dict(some)] for some in both)
            found.append(both)
    return found


def interruption(run):
    """Ctrl-C on the last rank alone ends the steps of all behind the same one; they can be read, and the run goes on."""
    begun = run.step

    def press(run):
        if run.rank == run.ranks - 1 and run.step == begun + 6:
            os.kill(os.getpid(), signal.SIGINT)

    said = refusal(KeyboardInterrupt, lambda: run.steps(600, every=3, call=press))
    return {"Ctrl-C": said.replace(str(begun + 6), "begun + 6"), "goes on": run.steps(2).step - begun}


def snapshots(run, case, folder):
    """Save, and go on from the file in a run with other values, one of which is infinite."""
    run.save(folder / "state.npz")
    u = np.ones(case[1], np.float32)
    u[POISONED] = np.inf
    other = prepared(*case, u=u)
    said = refusal(StencilError, lambda: other.steps(3, stop_on_nan=1))
    other.restore(folder / "state.npz")
    there, begun = other["u"].gather(root=1), run.step
    after = [one.steps(4)["u"].gather().tobytes() for one in (run, other)]
    return {
        "not finite": said,
        "restored": after[0] == after[1] and other.step == begun + 4,
        "gathered": there is not None,
        "no folder": refusal((RecordError, RankError), lambda: run.save(folder / "none" / "state.npz")),
        "no snapshot": refusal((RecordError, RankError), lambda: run.restore(folder / "none.npz")),
    } | another_grid(run, folder / "state.npz")


def another_grid(run, path):
    """A snapshot of another grid changes nothing on any rank."""
    other = heat.on(ml.Grid((16, 12)), transport=TRANSPORT).prepare(u=np.full((16, 12), 2.5), r=0.1, swap=SWAP, targets=run.targets)
    said = refusal((StencilError, RankError), lambda: other.restore(path))
    return {"another grid": said, "left alone": other.step == 0 and bool((other["u"].gather() == 2.5).all())}


def without_memory(run, case):
    """The memory of the last rank ends; that of the others does not, and they end with it."""
    (target,) = run.targets
    if run.rank < run.ranks - 1:
        return refusal(RankError, lambda: prepared(*case))

    def full(*_):
        raise MemoryError("nothing is left")

    target.zeros = full
    try:
        return refusal(DeviceError, lambda: prepared(*case, targets=run.targets))
    finally:
        del target.zeros


def series(run, folder):
    """A file of states, which rank 0 writes; where h5py is not there, all ranks say so."""
    begun = run.step
    try:
        with run.series(folder / "states.h5", "u") as states:
            run.steps(4, every=2, call=states)
    except (MissingDependency, RankError) as error:
        return {"series": f"{error}".partition(" needs packages")[0].rpartition(": ")[2]}
    u = run["u"].gather()
    if run.rank:
        return {"series": "a series in HDF5"}
    import h5py

    with h5py.File(folder / "states.h5") as file:
        same = file["step"][:].tolist() == [begun + 2, begun + 4] and np.array_equal(file["u"][-1], u)
    return {"series": "a series in HDF5" if same else "other states"}


def refusals(run, case):
    stencil, shape, boundary, _ = case
    own = run.targets
    return {
        "no rank": refusal(StencilError, lambda: run["u"].gather(root=9)),
        "another k": refusal(RankError, lambda: prepared(stencil, shape, boundary, 2 + (run.rank == 1))),
        "too thin": refusal(StencilError, lambda: prepared(stencil, shape, boundary, 16)),
        "no memory": without_memory(run, case),
        "two targets": refusal(
            StencilError,
            lambda: heat.on(ml.Grid((9, 9)), transport=TRANSPORT).prepare(u=np.ones((9, 9), "f4"), r=0.1, swap=SWAP, targets=[*own, *own]),
        ),
    }


def fail(run, how):
    """The last rank fails after three steps. What the others raise is theirs to print."""
    begun, world().limit_s = run.step, 2

    def failing(run):
        if run.rank < run.ranks - 1 or run.step < begun + 3:
            return
        if how == "raises":
            raise ValueError("no more cells")
        if how == "ends":
            sys.exit(0)
        if how == "differs":
            run["u"].gather()
        if how == "hangs":
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)

    run.steps(900, every=3, call=failing)


if __name__ == "__main__":
    fail(cases(Path(sys.argv[2])) if sys.argv[2:] else prepared(*CASES["2-D, periodic, k = 1"]), sys.argv[1])
