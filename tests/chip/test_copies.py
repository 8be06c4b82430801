"""Asynchronous copies against what the profiler counted on an H200, pattern by pattern."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from memlane.chip import load
from memlane.chip.copies import copy_cost

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
H200 = load("h200")
FORMS = [(nbytes, cache, masked) for nbytes, cache in ((4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")) for masked in (False, True)]


def module() -> Any:
    """The patterns of the benchmarks."""
    name = "memlane_copy_patterns"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / "copy_patterns.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.mark.parametrize(("nbytes", "cache", "masked"), FORMS)
def test_copies_cost_what_the_profiler_saw_of_many(nbytes: int, cache: str, masked: bool) -> None:
    """Where it saw them: not under predicate 0."""
    rows = json.loads((BENCHMARKS / "results" / "h200" / "copy_costs.json").read_text())["rows"]
    case = f"cp.async.{cache}, {nbytes} bytes{', with a source size' * masked}"
    [seen] = [row["peer"] for row in rows if row["case"] == case and "rule" in row["metric"]]
    compared = 0
    for one in module().many(nbytes, cache, masked):
        if one.name in seen:
            reads = one.reads & one.mask
            cost = copy_cost(H200, one.far(nbytes), one.shared(nbytes), one.mask, nbytes, reads, cache == "cg", ~one.parts)
            counted = cost.sectors, cost.wavefronts, cost.ideal_wavefronts
            assert counted == tuple(int(seen[f"{one.name}{of}"]) for of in (": sectors", "", ": ideal")), one.name
            compared += 1
    assert compared == len(seen) // 3 > 20


@pytest.mark.parametrize(("nbytes", "cache", "masked"), FORMS)
def test_copies_cost_what_the_profiler_counted(nbytes: int, cache: str, masked: bool) -> None:
    rows = json.loads((BENCHMARKS / "results" / "h200" / "wgmma.json").read_text())["rows"]
    case = f"cp_async_{cache}_{nbytes}{'_masked' if masked else ''}"
    [seen] = [row["peer"] for row in rows if row["case"] == case]
    for one in module().masked() if masked else module().plain():
        shared, far = one.shared(nbytes), one.far(nbytes)
        cost = copy_cost(H200, far, shared, one.mask, nbytes, one.reads, past_l1=cache == "cg")
        counted = cost.sectors, cost.wavefronts, cost.ideal_wavefronts
        sectors, wavefronts, ideal = (int(seen[f"{one.name}{of}"]) for of in (": sectors", "", ": ideal"))
        assert counted == (sectors, wavefronts, ideal), one.name
