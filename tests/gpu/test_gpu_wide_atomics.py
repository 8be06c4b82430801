"""Atomics on vectors and on 16 bytes: the device leaves what the emulator leaves."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.driver import Device
from memlane.launch import Target
from tests.emulate.spaces import answers
from tests.emulate.wide_atomics import BULK, VECTORS, run_bulk, run_vector, run_wide

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _needs_hopper(gpu: Device) -> None:
    if gpu.compute_capability < (9, 0):
        pytest.skip("vectors of atomics need sm_90")


@pytest.mark.parametrize(("atom", "red"), VECTORS)
def test_vectors(gpu: Device, emulator: Target, atom: str, red: str) -> None:
    assert np.array_equal(run_vector(gpu, atom, red)[2], run_vector(emulator, atom, red)[2])


def test_sixteen_bytes(gpu: Device, emulator: Target) -> None:
    for real, emulated in zip(run_wide(gpu), run_wide(emulator), strict=True):
        assert np.array_equal(real, emulated)


def test_addresses_know_their_space(gpu: Device, emulator: Target) -> None:
    assert answers(gpu).tolist() == answers(emulator).tolist()


@pytest.mark.parametrize(("operation", "kind"), [one for one in BULK if one[0] not in ("inc", "dec")])
def test_bulk_reductions(gpu: Device, emulator: Target, operation: str, kind: str) -> None:
    """Without those that depend on the order of the blocks."""
    assert np.array_equal(run_bulk(gpu, operation, kind)[2], run_bulk(emulator, operation, kind)[2])
