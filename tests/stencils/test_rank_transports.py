"""Exchanges from memory of devices: by MPI between ranks with emulated devices, and the plans of NCCL, which has GPUs alone."""

import ast
import sys
import time
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import memlane as ml
from memlane.driver import nccl
from memlane.errors import BadPlan, MissingDependency, RankError, StencilError
from memlane.plan import DeviceCall, KernelRef, all_steps, executions, from_json, races, to_json
from memlane.stencils import Problem, RankStage, Turn, decomposed
from memlane.targets import BoundPlan
from memlane.targets.plan_pieces import REST, URGENT, pieces
from memlane.timeloop.mpi import Ranks
from memlane.timeloop.rank_transports import CUDA_AWARE, NcclLink, check_target, is_cuda_aware
from memlane.timeloop.variants import code_of
from tests.stencils import mpi_program, rank_transports_program
from tests.stencils.test_mpi import (
    has_the_bits_of_numpy,
    needs_mpi,
    says_the_same_on_all,
    sends_one_message_to_each_neighbour,
    started,
    was_interrupted_on_all,
)


def runs(ranks, *arguments):
    code, out, errors = started(ranks, *arguments, program=("-m", "tests.stencils.rank_transports_program"), transport="mpi-cuda")
    assert code == 0, errors
    assert "differ" not in out
    assert out.count("refused: transport='nccl' connects GPUs; emulator:h200 is emulated: pass a GPU as target") == ranks
    return out


@needs_mpi
def test_four_ranks_have_the_bits_of_one_device():
    assert "3 cases" in runs(4, "few")


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", rank_transports_program.PARTS)
def test_one_two_and_three_axes_with_several_fields(ranks):
    assert " cases" in runs(ranks)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "how", "said"), [(2, "hangs", "rank 1 does not answer"), (4, "raises", "rank 3 ended with ValueError")])
def test_everything_else_is_as_through_the_host(ranks, how, said, tmp_path):
    code, out, errors = started(ranks, how, tmp_path, transport="mpi-cuda")
    assert (tmp_path / f"{ranks}.txt").exists(), errors
    has_the_bits_of_numpy(dict(np.load(tmp_path / f"{ranks}.npz")))
    told = ast.literal_eval((tmp_path / f"{ranks}.txt").read_text())
    sends_one_message_to_each_neighbour(told, "mpi-cuda")
    was_interrupted_on_all(told)
    if ranks == 2:
        says_the_same_on_all(told, "mpi-cuda")
    assert (code != 0, out) == (True, "")
    assert f"RankError: {said}" in errors


# -- plans -------------------------------------------------------------------------------------------------------------------------------


def plans(boundary="periodic", parts=(2, 2), k=2, turns=4, enqueues=False, rules=mpi_program.heat.rules, swap=mpi_program.SWAP):
    """The plan of each rank, of a grid that is thick enough for borders and cells between them."""
    problem = Problem(rules, ml.Grid((80, 160), boundary=boundary), (swap,), {}, cut=tuple(axis for axis in (0, 1) if parts[axis] > 1))
    kernels = tuple(one for one in code_of(problem, None, True).kernels if not one.reductions)
    turn = Turn(problem, kernels, k)
    cut = decomposed(problem.grid, [1.0] * (parts[0] * parts[1]), parts).with_halos(*turn.halo)
    refs = {name: KernelRef("0" * 64, name) for name in (kernels[0].name, "pack_4", "unpack_4")}
    how = {"function": nccl.EXCHANGE, "is_direct": True, "enqueues": enqueues}
    return [RankStage(cut, turn, turns, turn.needs, own=rank, **how).plan(refs) for rank in range(parts[0] * parts[1])]


@pytest.mark.parametrize("enqueues", [False, True])
@pytest.mark.parametrize(("boundary", "parts"), [("fixed", (2, 1)), ("periodic", (3, 1)), ("fixed", (2, 2)), ("periodic", (2, 3))])
def test_what_one_rank_sends_another_receives(boundary, parts, enqueues):
    sent, received = defaultdict(list), defaultdict(list)
    for rank, plan in enumerate(plans(boundary, parts, enqueues=enqueues)):
        assert races(plan) == []
        assert {one.home for one in plan.buffers} == {0}  # nothing is staged in memory of the host
        assert from_json(to_json(plan)) == plan
        calls = [step.action for step in all_steps(plan.steps) if isinstance(step.action, DeviceCall)]
        for at, call in enumerate(calls):
            sends, *pairs = call.arguments
            for number, (other, view) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
                ends = (rank, other) if number < sends else (other, rank)
                (sent if number < sends else received)[at, *ends].append(view.nbytes)
    assert sent == received
    assert sent


def test_contiguous_planes_are_sent_from_where_they_are():
    (plan, _) = plans("fixed", (2, 1), enqueues=True)
    assert {one.name for one in plan.buffers} == {"new@0", "u@0", "scalars@0"}
    between = plans("fixed", (3, 1))[1]  # one face for each of two neighbours
    assert {one.name for one in between.buffers} == {"new@1", "u@1", "scalars@1"}
    around = plans("periodic", (2, 1))[0]  # two faces for one neighbour are one message, but of NCCL two in a group
    assert {one.name for one in around.buffers} == {"new@0", "u@0", "scalars@0", "to rank 1", "from rank 1"}


@pytest.mark.parametrize("parts", [(2, 1), (2, 2)])
def test_pieces_keep_the_order_of_the_plan(parts):
    """The order that streams, events and the thread keep, by a walk through the pieces, holds every dependency."""
    order = executions(plans("periodic", parts, turns=5)[0])
    place = {}
    found = pieces(order)
    for at, piece in enumerate(found):
        for kind in (URGENT, REST):
            for step in piece.steps[kind]:
                place[step.number] = at, kind
    calls = {piece.call.number: at for at, piece in enumerate(found) if piece.call is not None}
    assert len(place) + len(calls) == len(order)
    for one in order:
        for number in one.waits:
            if one.number in calls:
                at = calls[one.number]
                assert number in calls or place[number] <= (at, URGENT) or place[number][0] <= found[at].call_awaits
                continue
            at, kind = place[one.number]
            if number in calls:
                assert calls[number] < at
            elif place[number][1] == kind:
                assert place[number][0] <= at
            else:
                assert place[number][0] <= found[at].awaited[kind]


def test_cells_between_the_borders_are_computed_during_the_call():
    order = executions(plans("periodic", (2, 1), turns=5)[0])
    found = pieces(order)
    inner = [[step.step.label for step in piece.steps[REST]] for piece in found]
    assert all(inner[:-1])  # something runs during each call
    assert all(piece.steps[URGENT] for piece in found[:-1])
    for at, piece in enumerate(found[1:-1], 1):
        assert piece.awaited[URGENT] < at  # and the next borders do not wait for what runs during this call


def test_calls_that_cannot_be():
    b = ml.PlanBuilder()
    array = b.array("a", (8, 8), "f4", 0)
    with pytest.raises(BadPlan, match=r"name a function as package\.module:function, not 'exchange'"):
        b.device_call("exchange", array, device=0)
    with pytest.raises(BadPlan, match=r"cannot use a f4\[8\].*, whose elements are not contiguous: pack them into a buffer first"):
        b.device_call(nccl.EXCHANGE, array[:, 0], device=0)
    b.device_call(nccl.EXCHANGE, 1, 1, array, device=0, enqueues=True, reads=[], writes=[array])
    with pytest.raises(BadPlan, match=r"exchange enqueues work on a stream of a GPU, and emulator:h200 has none: run the plan on a GPU"):
        BoundPlan(b.plan(), targets=[ml.target("emulator:h200")])
    missing = ml.PlanBuilder()
    missing.device_call("memlane.none:exchange", device=0)
    with pytest.raises(BadPlan, match=r"function memlane\.none:exchange cannot be imported: No module named 'memlane\.none'"):
        BoundPlan(missing.plan(), targets=[ml.target("emulator:h200")])


# -- what there must be --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "kinds", "says", "environment", "expected"),
    [
        ("Open MPI v4.1.6", "", False, {}, False),
        ("Open MPI v5.0.3", "", True, {}, True),
        ("MPICH Version: 5.0.2", "mpi,system", False, {}, False),
        ("MPICH Version: 5.0.2", "mpi,system,cuda:device", False, {}, True),
        ("MPI VERSION : CRAY MPICH version 8.1.28", "", False, {}, False),
        ("MPI VERSION : CRAY MPICH version 8.1.28", "", False, {"MPICH_GPU_SUPPORT_ENABLED": "1"}, True),
        ("MVAPICH2 Version : 2.3.7", "", False, {"MV2_USE_CUDA": "1"}, True),
        ("Open MPI v4.1.6", "", False, {"MV2_USE_CUDA": "1", "MPICH_GPU_SUPPORT_ENABLED": "1"}, False),
        ("Open MPI v4.1.6", "", False, {CUDA_AWARE: "1"}, True),
        ("Open MPI v5.0.3", "", True, {CUDA_AWARE: "0"}, False),
    ],
)
def test_whether_an_mpi_takes_memory_of_gpus(version, kinds, says, environment, expected):
    assert is_cuda_aware(version, kinds, says, environment) is expected


def test_what_is_said_where_something_is_missing(monkeypatch):
    with pytest.raises(RankError, match=r"\$MEMLANE_MPI_CUDA_AWARE is 'yes': set it to 1 if MPI takes memory of GPUs, to 0 if not"):
        is_cuda_aware("", "", False, {CUDA_AWARE: "yes"})
    with pytest.raises(StencilError, match=r"transport='nccl' connects GPUs; emulator:h200 is emulated"):
        check_target("nccl", ml.target("emulator:h200"))
    monkeypatch.setitem(sys.modules, "nccl", None)
    monkeypatch.setitem(sys.modules, "nccl.bindings", None)
    with pytest.raises(MissingDependency, match=r"transport='nccl' needs packages that .* pip install 'memlane\[nccl\]'"):
        nccl.check_library()


# -- NCCL, with a library that stands in for it ------------------------------------------------------------------------------------------


class Waiting:
    """Ranks whose time is up when a condition has been looked at three times."""

    number, count = 0, 2

    def wait_until(self, is_done, what, nap_part):
        for _ in range(3):
            if is_done():
                return
        raise RankError(f"rank 1 does not answer: rank 0 has waited 20 s for {what}")

    def telling(self):
        return nullcontext()

    def ending(self, what):
        return nullcontext()


class Link:
    """What a communicator does, as words."""

    def __init__(self, done):
        self.done, self.said = done, []

    def raise_failure(self):
        self.said.append("looked")

    def connect(self, neighbours, number):
        self.said.append(f"{number} to {neighbours}")

    def check(self):
        self.said.append("checked")

    def abort(self):
        self.said.append("aborted")


class Started:
    def __init__(self, done):
        self.done = lambda: done
        self.is_prepared, self.wait = True, lambda: "the result"

    def start(self):
        return self


@pytest.fixture
def link(monkeypatch):
    """A link of two ranks on two GPUs, of which the first is this process."""
    made = Link(True)

    class Gpu:
        name, modelled = "cuda:0", False

        def record(self):
            return Started(True)

    def agreed(value, refused, what):
        if refused is not None:
            raise refused
        return [value, ("GPU-1", "cuda:1") if isinstance(value, tuple) else value]

    monkeypatch.setattr(nccl, "check_library", lambda: None)
    monkeypatch.setattr(nccl, "communicator", lambda device: made)
    monkeypatch.setattr(nccl, "unique_id", lambda: b"name")
    monkeypatch.setattr(nccl, "device_uuid", lambda device: "GPU-0")
    return NcclLink(Waiting(), Gpu(), {0, 1}, agreed), made


def test_a_rank_polls_while_its_gpu_waits_and_then_aborts(link):
    connection, made = link
    assert made.said == ["0 to [1]", "looked", "checked"]
    assert connection.run(Started(True)) == "the result"
    with pytest.raises(RankError, match=r"rank 1 does not answer: rank 0 has waited 20 s for planes of the neighbours by NCCL"):
        connection.run(Started(False))
    assert made.said[-4:] == ["looked", "looked", "looked", "aborted"]


def test_ranks_of_one_gpu_are_refused(monkeypatch):
    monkeypatch.setattr(nccl, "check_library", lambda: None)
    monkeypatch.setattr(nccl, "device_uuid", lambda device: "GPU-0")

    def agreed(value, refused, what):
        if refused is not None:
            raise refused
        return [value, value]

    with pytest.raises(StencilError, match=r"each rank has a GPU of its own, and ranks 0 and 1 share emulator:h200: start fewer ranks, or"):
        NcclLink(Waiting(), ml.target("emulator:h200"), {1}, agreed)


def test_a_call_that_takes_too_long_ends_all_ranks(capsys):
    ended = []

    class World:
        COMM_WORLD = SimpleNamespace(Abort=ended.append)

    ranks = object.__new__(Ranks)
    ranks._mpi, ranks.number, ranks.limit_s = World, 3, 0.05
    with ranks.ending("a call"):
        pass
    time.sleep(0.2)
    assert ended == []
    with ranks.ending("the connection of all ranks by NCCL"):
        time.sleep(0.3)
    assert ended == [1]
    assert capsys.readouterr().err == "RankError: rank 3 has waited 0.05 s for the connection of all ranks by NCCL, and ends all ranks\n"
