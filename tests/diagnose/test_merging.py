"""Equal findings of one array on several lines are one finding, with all lines and the sum of their costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane.diagnose import explain
from memlane.errors import CheckFailed
from memlane.launch import LoadedModule, Target
from memlane.measure import trace
from memlane.measure.prediction import predict_launch

FILE = Path(__file__).parent / "judged.cu"
TEXT = FILE.read_text().splitlines()


def lines_with(start: str, end: str, word: str) -> tuple[int, ...]:
    """Return the numbers of the lines with a word, from the line with `start` to the next one with `end`."""
    first = next(number for number, line in enumerate(TEXT) if start in line)
    last = next(number for number in range(first, len(TEXT)) if end in TEXT[number])
    return tuple(number + 1 for number in range(first, last + 1) if word in TEXT[number])


def test_fields_of_a_structure_on_four_lines_are_one_finding(target: Target, kernels: LoadedModule) -> None:
    call, arguments = kernels["fields_on_four_lines"][(64,), (256,)], (target.zeros(1 << 14), target.zeros(1 << 17))
    found = explain(trace(call, *arguments, counts=True))
    (one,) = (one for one in found if "particles" in one.source)
    lines = lines_with("void fields_on_four_lines", "out[i]", "particles[i].")
    assert one.lines == lines
    assert one.line in lines
    assert one.place == f"judged.cu:{lines[0]}-{lines[-1]}"
    requests = 4 * 64 * 8
    assert (one.requests, one.transactions, one.ideal_transactions) == (requests, 32 * requests, 4 * requests)
    assert one.as_dict()["lines"] == list(lines)
    assert one.method.startswith("the sum of 4 lines; of the costliest: ")


def test_a_limit_is_told_with_the_finding_of_its_line(target: Target, kernels: LoadedModule) -> None:
    call = kernels["fields_on_four_lines"][(4,), (256,)]
    with pytest.raises(CheckFailed) as told:
        ml.check(call, target.zeros(1 << 10), target.zeros(1 << 13), max_sectors_per_request=8)
    assert str(told.value).count("each lane touches a different sector") == 4


def test_points_of_a_stencil_on_lines_are_one_finding(target: Target, kernels: LoadedModule) -> None:
    n = 130
    arrays = [target.zeros((n, n)) for _ in range(3)]
    found = explain(trace(kernels["points_on_lines"][(4, 16), (32, 8)], *arrays, n, counts=True))
    (one,) = (one for one in found if one.rule == "uncoalesced-global")
    assert one.lines == lines_with("void points_on_lines", "out[y", "in[x * n + y")
    assert one.arrays == ("in",)


def test_loads_and_stores_that_conflict_alike_are_one_finding(target: Target, kernels: LoadedModule) -> None:
    found = explain(trace(kernels["tree_by_stride"][(4,), (1024,)], target.zeros(4), target.zeros(4096), counts=True))
    assert [one.rule for one in found].count("bank-conflict") == 1


def test_all_accesses_to_local_memory_are_one_finding(target: Target, kernels: LoadedModule) -> None:
    found = explain(
        trace(kernels["eight_largest"][(4,), (256,)], target.zeros(1024), target.array(np.ones(8192, "f4")), 8, 1024, counts=True)
    )
    (one,) = (one for one in found if one.rule == "local-memory")
    assert f"{one.requests:,} requests to local memory" in str(one)
    assert len(one.lines) > 1


def test_arrays_of_their_own_are_no_finding(target: Target, kernels: LoadedModule) -> None:
    arrays = [target.zeros(1 << 14) for _ in range(4)]
    members = np.array([one.address for one in arrays], np.uint64)
    assert explain(trace(kernels["fields_in_arrays"][(64,), (256,)], target.zeros(1 << 14), members, counts=True)) == []


def test_the_gain_is_that_of_all_lines(target: Target, kernels: LoadedModule) -> None:
    """The predicted launch with all four loads contiguous is nearer to arrays of their own than with one of them."""
    call, arguments = kernels["fields_on_four_lines"][(1024,), (256,)], (target.zeros(1 << 18), target.zeros(1 << 21))
    tracer = ml.Tracer(predictions=True)
    with tracer:
        call(*arguments)
    one = next(one for one in explain(tracer.finish()) if len(one.lines) == 4)
    assert one.saved_us is not None
    assert one.launch_us is not None
    before = predict_launch(call.bind(*arguments)).us
    assert one.launch_us == pytest.approx(before, rel=0.05)
    assert one.saved_us > 0.1 * before
