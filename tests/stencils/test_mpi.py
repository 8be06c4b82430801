"""Stencils on the ranks of an MPI program: the same bits as on one device, and what the others do where one rank fails.

Programs are started with two and with four ranks, and each ends with a rank that fails: a start costs seconds.
"""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane.errors import DeviceError, MissingDependency, RankError, StencilError
from memlane.plan import KernelRef, races
from memlane.stencils import Problem, RankStage, Turn, decomposed
from memlane.stencils.geometry import stored_shape
from memlane.targets import names, target_of_process
from memlane.timeloop import mpi
from memlane.timeloop.variants import code_of
from tests.stencils import mpi_program

ROOT = Path(__file__).parents[2]
BY = {
    "mpi": "messages of MPI through memory of the host",
    "mpi-cuda": "messages of MPI, which takes memory of the devices",
    "nccl": "sends and receives of NCCL between memory of the GPUs",
}
MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
needs_mpi = pytest.mark.skipif(
    not MPIEXEC or importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py and mpiexec: pip install 'memlane[mpi]' mpich"
)


def started(ranks, *arguments, program=("-m", "tests.stencils.mpi_program"), folder=ROOT, target="emulator:h200", transport="mpi"):
    """How a program on some ranks ended, and what they printed. Nothing of an MPI around the tests is passed on.

    Without a target each rank takes a GPU of its own.
    """
    around = "PMI", "OMPI_COMM_", "OMPI_UNIVERSE_", "SLURM_", "HYDI_", "MEMLANE_TARGET"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(around)}
    skip_where_mpi_does_not_work(environment)
    environment |= {mpi.ENVIRONMENT: "90", "MEMLANE_TEST_TRANSPORT": transport} | ({"MEMLANE_TARGET": target} if target else {})
    command = [MPIEXEC, "-n", str(ranks), sys.executable, *program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def skip_where_mpi_does_not_work(environment):
    """A machine may let no program listen on a socket, or have the `mpiexec` of another MPI: then nothing of ours is at fault."""
    command = [MPIEXEC, "-n", "2", sys.executable, "-c", "from mpi4py.MPI import COMM_WORLD; print(COMM_WORLD.allreduce(1))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    if done.returncode or "".join(done.stdout.split()) != "22":
        pytest.skip(f"{MPIEXEC} starts no two ranks of mpi4py here: {(done.stderr or done.stdout).strip()[-300:]}")


@needs_mpi
def test_two_and_four_ranks(tmp_path):
    """One test, because four ranks take the machine code that two have made, and nothing else may start them again."""
    for ranks, how in ((2, "raises"), (4, "hangs")):
        code, out, errors = started(ranks, how, tmp_path)
        assert (tmp_path / f"{ranks}.txt").exists(), errors
        has_the_bits_of_numpy(dict(np.load(tmp_path / f"{ranks}.npz")))
        said = ast.literal_eval((tmp_path / f"{ranks}.txt").read_text())
        sends_one_message_to_each_neighbour(said)
        was_interrupted_on_all(said)
        if ranks == 2:
            says_the_same_on_all(said)
        assert code != 0
        assert out == ""  # nothing is printed by default
        if how == "raises":
            assert "ValueError: no more cells" in errors
            assert "RankError: rank 1 ended with ValueError: no more cells" in errors
        else:
            # Whichever rank has waited first tells the others, which raise its words.
            assert re.search(r"RankError: rank 3 does not answer: rank [012] has waited 2 s for the end of step", errors), errors
            assert "it ended or hangs, or is busy with something else for longer than $MEMLANE_MPI_LIMIT_S allows" in errors


def has_the_bits_of_numpy(found):
    """That kernels on one device have them, too, other tests say. Of sums the last digits depend on their order."""
    for name, (stencil, shape, boundary, _) in mpi_program.CASES.items():
        steps = 0
        for more in mpi_program.STEPS:
            steps += more
            values = mpi_program.values(stencil, shape)
            expected = stencil.on(ml.Grid(shape, boundary=boundary)).reference(steps, **values)
            assert np.array_equal(found[f"{name}: u after {steps}"], expected["u"]), name
            for one in ("change", "total"):
                if one in expected:
                    assert found[f"{name}: {one} after {steps}"] == pytest.approx(float(expected[one]), rel=1e-12 if one == "total" else 0)


def sends_one_message_to_each_neighbour(said, transport="mpi"):
    ranks, row = len(said), stored_shape((1, 40))[-1] * 4
    for rank, one in enumerate(said):
        around = sorted({(rank - 1) % ranks, (rank + 1) % ranks})
        faces = 2 if ranks == 2 else 1  # around two ranks each is the other's neighbour on both sides
        assert sorted(one["sent"]) == sorted(one["received"]) == [(other, faces * 3 * row) for other in around]
        assert f"rank {rank} of {ranks} with planes" in one["repr"]
        assert f"exchange every 3 steps by {BY[transport]}" in one["repr"]


def was_interrupted_on_all(said):
    """Ctrl-C was pressed on the last rank alone."""
    for one in said:
        assert one["Ctrl-C"] == "stopped after step begun + 6, whose fields can be read"
        assert one["goes on"] == 8
        assert one["points"]
        assert one["exact"]


def says_the_same_on_all(said, transport="mpi"):
    first, second = said
    assert first["restored"]
    assert second["restored"]
    assert first["series"] == second["series"] == "a series in HDF5"
    assert [one["gathered"] for one in said] == [False, True]  # on rank 1, as asked
    lost = "none/state.npz cannot be written: No such file or directory"
    assert lost in first["no folder"]
    assert second["no folder"].startswith("rank 0 cannot go on, and so no other rank can: RecordError: the snapshot")
    assert lost in second["no folder"]
    assert "none.npz cannot be read: No such file or directory; pass the file that `save` wrote" in first["no snapshot"]
    assert "none.npz cannot be read: No such file or directory; pass the file that `save` wrote" in second["no snapshot"]
    another = (
        "state.npz was written by another stencil or grid: it has new f4[31, 40], u f4[31, 40], and this one new f4[16, 12], u f4[16, 12]"
    )
    full = "no memory left for 'u' on emulator:h200: it needs 5.25 KiB, and"
    assert first["another grid"].endswith(another)
    assert second["another grid"].startswith("rank 0 cannot go on, and so no other rank can: StencilError: ")
    assert second["another grid"].endswith(another)
    assert [one["left alone"] for one in said] == [True, True]
    assert first["no memory"].startswith(f"rank 1 cannot go on, and so no other rank can: DeviceError: {full}")
    assert second["no memory"].startswith(full)
    expected = {
        "not finite": "field 'new' is not finite at cell (27, 7) after step 1",
        "no rank": "there is no rank 9 to gather 'u' on: give one of 0 to 1",
        "another k": "rank 0 and rank 1 prepare runs with another exchange_every: 2 and 3; pass the same on all ranks",
        "too thin": "device 1 has 15 of the 31 planes, and its neighbours would need 16 of them at each exchange",
        "two targets": f"with transport='{transport}' each rank has one target, and 2 were given: pass one, and start more ranks",
    }
    for name, text in expected.items():
        assert first[name].startswith(text)
        assert second[name] == first[name]


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("ends", "rank 1 does not answer: rank 0 has waited 2 s"),
        (
            "differs",
            "the ranks make different calls: rank 0 is at the end of step 3, rank 1 is at field 'u' of all ranks; let every rank make",
        ),
        ("killed", "EXIT CODE: 9"),
    ],
)
def test_other_ends(how, message):
    code, out, errors = started(2, how)
    assert code != 0
    assert message in errors + out  # of a rank that was killed mpiexec speaks


@needs_mpi
@pytest.mark.slow
def test_an_example_runs_on_ranks_as_on_devices():
    printed = [started(2, *arguments, program=("examples/heat.py",))[1] for arguments in ((32, 8, "mpi"), (32, 8, 2))]
    averages = [[line for line in text.splitlines() if line.startswith("step")] for text in printed]
    assert len(averages[0]) == 4  # rank 0 alone prints
    assert set(averages[0]) == set(averages[1])  # of two processes that each have two devices, both print


@needs_mpi
@pytest.mark.slow
def test_the_program_of_the_page_runs(tmp_path):
    page = (ROOT / "docs" / "scaling.md").read_text()
    (tmp_path / "diffuse.py").write_text(page.partition("```py\n")[2].partition("```")[0])
    code, out, errors = started(2, program=("diffuse.py",), folder=tmp_path)
    assert (code, errors) == (0, "")
    assert out.startswith("<DistributedRun: diffuse on (256, 128), rank 0 of 2 with planes 0 to 127 on emulator:h200, after 100 steps")
    assert (tmp_path / "state.npz").exists()


# -- without MPI -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boundary", ["fixed", "periodic"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_plan_of_each_rank_has_no_race_and_fits_those_of_the_others(boundary, ranks):
    """What one rank sends another, that one receives: as many bytes, and as many messages."""
    rule = mpi_program.heat.rules
    problem = Problem(rule, ml.Grid((40, 16), boundary=boundary), (mpi_program.SWAP,), {}, cut=(0,))
    kernels = tuple(one for one in code_of(problem, None, True).kernels if not one.reductions)
    turn = Turn(problem, kernels, 2)
    cut = decomposed(problem.grid, [1.0] * ranks).with_halos(*turn.halo)
    sent, received = {}, {}
    for rank in range(ranks):
        stage = RankStage(cut, turn, 3, turn.needs, own=rank, function=mpi.EXCHANGE)
        plan = stage.plan({kernel.name: KernelRef("0" * 64, kernel.name) for kernel in kernels})
        assert races(plan) == []
        assert {one.home for one in plan.buffers} == {0, "pinned"}
        views = {one.name: one.nbytes for one in plan.buffers if one.home == "pinned"}
        sent |= {(rank, int(name.split()[-1])): size for name, size in views.items() if name.startswith("to rank")}
        received |= {(int(name.split()[-1]), rank): size for name, size in views.items() if name.startswith("from rank")}
    assert sent == received
    assert len(sent) == (2 if ranks == 2 else 6 if boundary == "periodic" else 4)


@pytest.mark.parametrize(("boundary", "parts"), [("fixed", (2, 2)), ("periodic", (2, 3))])
def test_plans_of_ranks_with_boxes_fit_each_other(boundary, parts):
    problem = Problem(mpi_program.heat.rules, ml.Grid((40, 90), boundary=boundary), (mpi_program.SWAP,), {}, cut=(0, 1))
    kernels = tuple(one for one in code_of(problem, None, True).kernels if not one.reductions)
    turn = Turn(problem, kernels, 2)
    boxes = decomposed(problem.grid, [1.0] * prod(parts), parts).with_halos(*turn.halo)
    refs = {name: KernelRef("0" * 64, name) for name in (kernels[0].name, "pack_4", "unpack_4")}
    sent, received = {}, {}
    for rank in range(prod(parts)):
        plan = RankStage(boxes, turn, 3, turn.needs, own=rank, function=mpi.EXCHANGE).plan(refs)
        assert races(plan) == []
        for buffer in plan.buffers:
            if buffer.home == "pinned":
                way, _, other, *along = buffer.name.split()
                (sent if way == "to" else received)[rank, int(other), *along] = buffer.nbytes
    assert sent == {(other, rank, *along): size for (rank, other, *along), size in received.items()}
    assert len(sent) == (8 if boundary == "fixed" else 6 * 3)  # around two, both sides are one neighbour


def test_a_limit_that_is_no_time(monkeypatch):
    monkeypatch.delenv(mpi.ENVIRONMENT, raising=False)
    assert mpi.limit_s() == 20
    for text in ("soon", "-1", "nan"):
        monkeypatch.setenv(mpi.ENVIRONMENT, text)
        with pytest.raises(
            RankError, match=rf"\$MEMLANE_MPI_LIMIT_S is '{text}': give a number of seconds above 0, or leave it unset for 20"
        ):
            mpi.limit_s()


def test_without_mpi4py_the_command_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    mpi.world.cache_clear()
    run = mpi_program.heat.on(ml.Grid((9, 9)), transport="mpi")
    with pytest.raises(MissingDependency, match=r"transport='mpi' needs packages that .* pip install 'memlane\[mpi\]'"):
        run.prepare(u=np.ones((9, 9), "f4"), r=0.1, swap=mpi_program.SWAP)


def test_processes_of_one_machine_take_different_gpus(monkeypatch):
    """The names that are asked for, where the machine has three GPUs."""
    asked = []
    monkeypatch.setattr(names, "_resolve", lambda name, how: asked.append(name))
    monkeypatch.delenv("MEMLANE_TARGET", raising=False)

    class Probe:
        broken, devices = False, ("a", "b", "c")

    monkeypatch.setattr(names.driver, "probe", lambda: Probe)
    target_of_process(0)
    target_of_process(2)
    with pytest.raises(
        DeviceError, match=r"process 3 of this machine has no GPU of its own, because there are only 3: start 3 processes, or pass targets"
    ):
        target_of_process(3)
    monkeypatch.setenv("MEMLANE_TARGET", "emulator:h200")
    target_of_process(3)
    monkeypatch.setenv("MEMLANE_TARGET", "cuda:1")
    target_of_process(3)
    monkeypatch.delenv("MEMLANE_TARGET")
    Probe.devices = ("a",)  # each process sees its own alone
    target_of_process(3)
    assert asked == ["cuda:0", "cuda:2", "emulator:h200", "cuda:1", "cuda"]


def test_a_field_of_one_process_is_gathered_as_one_of_many():
    run = mpi_program.heat.on(ml.Grid((9, 9))).prepare(u=np.ones((9, 9), "f4"), r=0.1, swap=mpi_program.SWAP)
    assert (run.rank, run.ranks) == (0, 1)
    assert np.array_equal(run["u"].gather(root=0), run["u"].gather())
    with pytest.raises(StencilError, match=r"'tcp' is not a transport: use 'peer', .*'mpi', 'mpi-cuda', 'nccl', or 'auto'"):
        mpi_program.heat.on(ml.Grid((9, 9)), transport="tcp")
