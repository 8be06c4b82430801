"""Stencils on ranks of an MPI program that share a GPU: messages leave from host functions of CUDA graphs, on threads of the driver."""

import ast

import numpy as np
import pytest

from tests.stencils.test_mpi import has_the_bits_of_numpy, needs_mpi, sends_one_message_to_each_neighbour, started, was_interrupted_on_all

pytestmark = pytest.mark.gpu


@needs_mpi
@pytest.mark.parametrize(("ranks", "how"), [(2, "raises"), (4, "hangs")])
def test_ranks_on_one_gpu(gpu, tmp_path, ranks, how):
    code, out, errors = started(ranks, how, tmp_path, target="cuda:0")
    assert (tmp_path / f"{ranks}.txt").exists(), errors
    has_the_bits_of_numpy(dict(np.load(tmp_path / f"{ranks}.npz")))
    said = ast.literal_eval((tmp_path / f"{ranks}.txt").read_text())
    sends_one_message_to_each_neighbour(said)
    was_interrupted_on_all(said)
    assert all("on cuda:0" in one["repr"] for one in said)
    assert code != 0
    assert out == ""
    assert {"raises": "RankError: rank 1 ended with ValueError", "hangs": "RankError: rank 3 does not answer"}[how] in errors
