"""Accesses of functions that a kernel calls, on a GPU: traced, counted, and the same to the bit afterwards."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from memlane.compile import cuda
from memlane.driver import Device
from memlane.instrument import SCHEMES
from memlane.launch import LoadedModule, Target
from memlane.measure import count, trace
from memlane.record import COMPLETE, EXACT, ISSUE_ONLY, PROVED
from tests.measure.test_called import DATA, REQUESTS, SOURCE, THREADS, N, expected_output

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def on_device(gpu: Device) -> LoadedModule:
    return gpu.load(cuda(SOURCE, name="called.cu"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_records_the_accesses_and_changes_nothing(on_device: LoadedModule, scheme: str) -> None:
    out, data = on_device.target.zeros(192, np.float32), on_device.target.array(DATA)
    made = trace(on_device["k"][1, THREADS], out, data, N, scheme=scheme)
    assert np.array_equal(out.numpy().view(np.uint32), expected_output().view(np.uint32))
    assert Counter(made.sites[site].line for site in made.table["site"].to_pylist()) == REQUESTS
    assert {one.evidence for one in made.sites} == {PROVED}
    if scheme == "dependent":
        ends = {(one.line, one.completeness) for one in made.sites}
        assert ends == {(2, COMPLETE), (13, ISSUE_ONLY), (21, ISSUE_ONLY)}


def test_counts_are_those_of_the_emulator_and_exact(on_device: LoadedModule, emulator: Target) -> None:
    found = []
    for loaded in (on_device, emulator.load(on_device.module)):
        out, data = loaded.target.zeros(192, np.float32), loaded.target.array(DATA)
        counts = count(loaded["k"][1, THREADS], out, data, N).checked
        assert np.array_equal(out.numpy(), expected_output())
        assert {one.exactness for one in counts.sites} == {EXACT}
        found.append([(one.site.line, one.site.called, one.requests, one.lanes, one.sectors, one.ideal_sectors) for one in counts.sites])
    assert found[0] == found[1]
