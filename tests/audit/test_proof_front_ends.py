"""The proof on what Numba and Triton make of ordinary kernels; all of them are in `benchmarks/proof.py`."""

from __future__ import annotations

import pytest

from memlane.audit import exactness, prove
from memlane.compile import architecture, assemble
from memlane.instrument import trace
from memlane.ptx import Module
from memlane.record import COMPLETE, EXACT
from memlane.sass import disassemble
from tests.sass.code import mutated, nop_of

LOADS = {"vector_add": 2, "layer_norm": 25, "matmul": 34}


def shown(module: Module) -> list[tuple[str, str]]:
    """Completeness and reason of each load."""
    traced = trace(module)
    data = assemble(traced.module, arch=architecture(module, (9, 0))).data
    return [(proof.completeness, proof.reason) for proof in prove(traced, data) if traced.sites[proof.site].kind == "load"]


@pytest.mark.numba
@pytest.mark.parametrize("name", LOADS)
def test_loads_of_numba_are_complete(name: str) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from tests.compile.numba_cases import CASES

    assert shown(CASES[name]().module) == [(COMPLETE, "")] * LOADS[name]


@pytest.mark.numba
def test_registers_that_were_exchanged_keep_their_meaning() -> None:
    """ptxas exchanges the halves of a clock by three exclusive ors; without one of them the record holds something else."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from tests.compile.numba_cases import CASES

    traced = trace(CASES["matmul"]().module)
    data = assemble(traced.module).data
    function = disassemble(data).functions["matmul"]
    exclusive = [index for index, one in enumerate(function.instructions) if one.guard and one.text.endswith("RZ, 0x3c, !PT")]
    for index in exclusive[:3]:  # Without the middle one the halves of the clock have changed places.
        proofs = prove(traced, mutated(data, function, {index: nop_of(function)}))
        missed = [proof.reason for proof in proofs if "the record" in proof.reason]
        assert len(missed) == 1
        assert "does not come from the clock read of the site" in missed[0]


@pytest.mark.numba
def test_an_address_that_the_assembler_makes_again_is_told() -> None:
    """Numba's stream compaction: a register of the address is filled again between the first clock read and the access."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from tests.compile.numba_cases import CASES

    found = shown(CASES["compact"]().module)
    missed = [reason for completeness, reason in found if completeness != COMPLETE]
    assert len(found) == 2
    assert len(missed) <= 1
    assert all("after the first clock read" in reason for reason in missed)


@pytest.mark.triton
@pytest.mark.parametrize("name", ["softmax", pytest.param("transpose", marks=pytest.mark.slow)])
def test_loads_of_triton_are_complete(name: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from tests.compile.triton_cases import CASES

    module = CASES[name]().module
    found = shown(module)
    assert found == [(COMPLETE, "")] * len(found)
    assert len(found) >= 2
    data = assemble(module, arch=architecture(module, (9, 0))).data
    hints = [verdict.reason for verdict in exactness(module, data) if verdict.verdict != EXACT]
    assert len(hints) == (1 if name == "transpose" else 0), "ptxas puts one load of the transpose behind an exit of its own"
