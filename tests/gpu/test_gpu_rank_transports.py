"""Device calls of plans, and stencils whose ranks exchange GPU memory by NCCL and by a CUDA-aware MPI, each rank on a GPU of its own."""

import ast
import importlib.util
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import memlane as ml
from memlane.driver import probe
from memlane.errors import BadPlan
from memlane.plan import PlanBuilder
from memlane.targets import BoundPlan
from tests.stencils.test_mpi import (
    has_the_bits_of_numpy,
    needs_mpi,
    sends_one_message_to_each_neighbour,
    started,
    was_interrupted_on_all,
)

pytestmark = pytest.mark.gpu
needs_two = pytest.mark.skipif(len(probe().devices) < 2, reason="this machine has no second GPU")
DOUBLE = "__global__ void twice(float* a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] *= 2; }"
N = 4096


def copied(to: Any, of: Any) -> None:
    """What a CUDA-aware MPI does: it is called by the thread, and calls CUDA."""
    to.copy_from(of.numpy())


def enqueued(stream: int, to: Any, of: Any) -> None:
    """What NCCL does."""
    (code,) = driver.cuMemcpyDtoDAsync(to.address, of.address, of.nbytes, stream)
    assert not int(code)


@pytest.mark.parametrize("enqueues", [False, True])
def test_calls_of_a_repeat_are_in_order_with_its_launches(gpu: Any, enqueues: bool) -> None:
    """Each turn doubles a, takes it over into b by the call, and doubles b, whose other half nobody waits for."""
    loaded = gpu.load(ml.cuda(DOUBLE.replace("__global__", 'extern "C" __global__'), name="twice.cu"))
    b = PlanBuilder()
    first, second, other = (b.array(name, N, "f4", 0) for name in ("first", "second", "other"))
    name = f"tests.gpu.test_gpu_rank_transports:{'enqueued' if enqueues else 'copied'}"
    with b.repeat(30) as loop:
        doubled = loop.launch(loaded["twice"], N // 256, 256, first, N, reads=[first], writes=[first])
        loop.launch(loaded["twice"], N // 256, 256, other, N, queue=2, reads=[other], writes=[other])
        call = loop.device_call(name, second, first, device=0, queue=1, after=[doubled], reads=[first], writes=[second], enqueues=enqueues)
        taken = loop.launch(loaded["twice"], N // 256, 256, second, N, after=[call], reads=[second], writes=[second])
        loop.carry(call, [doubled])
        loop.carry(taken, [call])
    ones = [gpu.array(np.ones(N, "f4")) for _ in range(3)]
    bound = BoundPlan(b.plan(), dict(zip(("first", "second", "other"), ones, strict=True)), targets=[gpu], modules=[loaded])
    for turns in (30, 60):
        bound.run()
        assert [(one.numpy() == expected).all() for one, expected in zip(ones, (2.0**turns, 2.0 ** (turns + 1), 2.0**turns), strict=True)]
        assert ones[0].numpy()[0] == ones[2].numpy()[-1] == 2.0**turns
        assert ones[1].numpy()[N // 2] == 2.0 ** (turns + 1)
    if enqueues:
        assert len(bound.time().spans) == 30 * 4
    else:
        with pytest.raises(BadPlan, match="is not a single graph, so a GPU cannot time its steps"):
            bound.time()
    assert bound.run_observed(serial=True)["second"].numpy()[0] == 2.0 ** (121 if enqueues else 91)


def ran(ranks: int, transport: str, *arguments: object, program: str = "rank_transports_program") -> tuple[int, str, str]:
    """The program on as many GPUs; skipped where the MPI takes no memory of GPUs."""
    if transport == "nccl" and importlib.util.find_spec("nccl") is None:
        pytest.skip("needs nccl4py: pip install 'memlane[nccl]'")
    done = started(ranks, *arguments, program=("-m", f"tests.stencils.{program}"), target="", transport=transport)
    if "does not say that it takes it: load the module of a CUDA-aware MPI" in done[2]:
        pytest.skip("this MPI is not CUDA-aware")
    return done


@needs_mpi
@needs_two
@pytest.mark.parametrize("transport", ["nccl", "mpi-cuda"])
def test_one_and_two_axes_with_several_fields(transport: str) -> None:
    code, out, errors = ran(2, transport)
    assert code == 0, errors
    assert "differ" not in out
    assert "18 cases" in out


@needs_mpi
@needs_two
@pytest.mark.parametrize("transport", ["nccl", "mpi-cuda"])
@pytest.mark.parametrize(("how", "said"), [("raises", "rank 1 ended with ValueError"), ("hangs", "rank 1 does not answer")])
def test_everything_else_is_as_through_the_host(transport: str, how: str, said: str, tmp_path: Any) -> None:
    code, out, errors = ran(2, transport, how, tmp_path, program="mpi_program")
    assert (tmp_path / "2.txt").exists(), errors
    has_the_bits_of_numpy(dict(np.load(tmp_path / "2.npz")))
    told = ast.literal_eval((tmp_path / "2.txt").read_text())
    sends_one_message_to_each_neighbour(told, transport)
    was_interrupted_on_all(told)
    assert all(f"on cuda:{rank}" in one["repr"] for rank, one in enumerate(told))
    assert (code != 0, out) == (True, "")
    assert f"RankError: {said}" in errors


@needs_mpi
@needs_two
def test_a_rank_that_hangs_inside_steps_ends_the_others(tmp_path: Any) -> None:
    """The others wait on the GPU for its planes, not in a message of MPI."""
    code, _, errors = ran(2, "nccl", "stops", program="rank_transports_program")
    assert code != 0
    assert "RankError: rank 1 does not answer: rank 0 has waited 2 s for planes of the neighbours by NCCL" in errors


@needs_mpi
@needs_two
def test_ranks_that_share_a_gpu_are_refused() -> None:
    if importlib.util.find_spec("nccl") is None:
        pytest.skip("needs nccl4py: pip install 'memlane[nccl]'")
    code, _, errors = started(2, "few", program=("-m", "tests.stencils.rank_transports_program"), target="cuda:0", transport="nccl")
    assert code != 0
    assert "with transport='nccl' each rank has a GPU of its own, and ranks 0 and 1 share cuda:0: start fewer ranks" in errors
