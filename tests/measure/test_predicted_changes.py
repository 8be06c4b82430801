"""What a launch would take without the excess of an access: against kernels written so, in traces, findings and the report."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load
from memlane.cli import main
from memlane.measure.prediction import Predictor, predict_launch
from memlane.number_format import duration
from memlane.record import LaunchInfo, Trace
from memlane.report.html import render_page
from memlane.report.html.resources import PREDICTED, resources_of
from tests.report.html.reading import read

EXAMPLE = Path(__file__).parents[2] / "examples" / "transpose.cu"
N = 256


@cache
def traced(name: str, *, predictions: bool = True) -> Trace:
    target = ml.target("emulator:h200")
    kernel = target.load(ml.cuda(EXAMPLE))[name]
    tracer = ml.Tracer(predictions=predictions)
    with tracer:
        kernel[(N // 32, N // 32), (32, 32)](target.zeros((N, N)), target.zeros((N, N)), N)
    return tracer.finish()


def first(trace: Trace) -> LaunchInfo:
    return trace.launches[0]


def test_a_tile_without_conflicts_takes_what_the_padded_one_does() -> None:
    """The kernels differ in the length of a row of the tile alone, so the predicted change is checked by another kernel."""
    target = ml.target("emulator:h200")
    padded = target.load(ml.cuda(EXAMPLE))["padded"][(N // 32, N // 32), (32, 32)]
    other = predict_launch(padded.bind(target.zeros((N, N)), target.zeros((N, N)), N)).us
    found = first(traced("tiled")).predicted
    assert found is not None
    (change,) = found.changes
    assert change.us == pytest.approx(other, rel=0.02)
    assert change.us < found.us
    assert found.parts[0].us > 0


TWO_ARRAYS = """
extern "C" __global__ void sums(float* out, int rounds) {
    __shared__ float columns[32 * 32], pairs[64];
    columns[threadIdx.y * 32 + threadIdx.x] = out[threadIdx.x];
    if (threadIdx.y == 0) pairs[threadIdx.x] = pairs[threadIdx.x + 32] = out[threadIdx.x];
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < rounds; ++i)
        sum += columns[threadIdx.x * 32 + (threadIdx.y + i) % 32] * pairs[threadIdx.x * 2 + i % 2];
    out[(blockIdx.x * 32 + threadIdx.y) * 32 + threadIdx.x] = sum;
}
"""


def test_arrays_of_one_line_are_changed_one_by_one() -> None:
    """32 lanes in one bank, and two lanes in each: what either saves is not credited to the other."""
    target = ml.target("emulator:h200")
    tracer = ml.Tracer(predictions=True)
    with tracer:
        target.load(ml.cuda(TWO_ARRAYS, name="sums.cu"))["sums"][132, (32, 32)](target.zeros(132 * 1024), 32)
    trace = tracer.finish()
    predicted = first(trace).predicted
    assert predicted is not None
    saved = sorted(predicted.us - change.us for change in predicted.changes)
    assert len(saved) == 2
    assert 0 <= saved[0] < 0.2 * saved[1]
    by_array = {one.arrays[0]: one.saved_us for one in ml.explain(trace) if one.rule == "bank-conflict"}
    assert by_array["columns"] == pytest.approx(saved[1])
    assert by_array.get("pairs", saved[0]) == pytest.approx(saved[0])


def test_findings_say_by_how_much_the_launch_would_be_shorter(tmp_path: Path) -> None:
    trace = traced("naive")
    trace.save(tmp_path / "t.parquet")
    for subject in (trace, tmp_path / "t.parquet"):
        (finding,) = ml.explain(subject)
        assert finding.rule == "uncoalesced-global"
        assert finding.launch_us == pytest.approx(first(trace).predicted.us)  # type: ignore[union-attr]
        assert finding.saved_us is not None
        assert 0 < finding.saved_us < finding.launch_us  # type: ignore[operator]
        left = f"{duration(1e3 * (finding.launch_us - finding.saved_us))} instead of {duration(1e3 * finding.launch_us)}"  # type: ignore[operator]
        assert finding.launch == f"The kernel would take {left} (modelled, without probes)"
    facts = read(render_page(trace)).by_id("finding-1").all("dl")[0]
    assert [one.text for one in facts.all("dt")] == ["Cause", "Cost", "Fix"]
    assert facts.all("dd")[1].text == f"{finding.launch}."
    plain = ml.explain(traced("naive", predictions=False))[0]
    assert (plain.launch_us, plain.saved_us, plain.launch) == (None, None, "")


def test_findings_are_ranked_by_how_much_the_launch_would_be_shorter() -> None:
    """Both accesses of the kernel cost cycles of warps; the order follows the predicted launches, whichever saves more."""
    code = """extern "C" __global__ void both(float* out, const float* in) {
        __shared__ float tile[1024];
        tile[threadIdx.x % 32 * 32 + threadIdx.x / 32] = in[32 * threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = tile[threadIdx.x];
    }"""
    target, tracer = ml.target("emulator:h200"), ml.Tracer(predictions=True)
    with tracer:
        target.load(ml.cuda(code))["both"][4, 256](target.zeros(256), target.zeros(32 * 256))
    trace = tracer.finish()
    predicted = first(trace).predicted
    assert predicted is not None
    rules = set()
    for best in predicted.changes:
        changes = tuple(replace(one, us=predicted.us * (0.5 if one is best else 0.99)) for one in predicted.changes)
        launch = replace(first(trace), predicted=replace(predicted, changes=changes))
        findings = ml.explain(replace(trace, launches=(launch,)))
        assert [one.rank for one in findings] == list(range(1, 1 + len(findings)))
        saved = [one.saved_us for one in findings if one.saved_us is not None]
        assert saved == sorted(saved, reverse=True)
        rules.add(findings[0].rule)
    assert rules == {"uncoalesced-global", "bank-conflict"}


def test_the_start_of_a_launch_is_not_part_of_what_a_finding_could_save() -> None:
    """No warp lives in it, so a finding that would save nearly all the rest comes before one that costs half of the warps' time."""
    code = """extern "C" __global__ void histogram(const unsigned char* data, int* bins) {
        atomicAdd(&bins[data[blockIdx.x * blockDim.x + threadIdx.x]], 1);
    }"""
    target, tracer = ml.target("emulator:h200"), ml.Tracer(predictions=True)
    data = target.array(np.random.default_rng(7).integers(0, 256, 16384, "u1"))
    with tracer:
        target.load(ml.cuda(code))["histogram"][64, 256](data, target.zeros(256, "i4"))
    trace = tracer.finish()
    predicted = first(trace).predicted
    assert predicted is not None
    costs = {one.rule: one.cost_cycles for one in ml.explain(trace)}
    assert costs["uncoalesced-global"] < costs["narrow-access"]
    kernel_us = predicted.launch_us / 4  # the launch takes five times as long, and the finding saves 0.9 of its last fifth
    changes = tuple(replace(one, us=predicted.launch_us + 0.1 * kernel_us) for one in predicted.changes)
    changed = replace(predicted, us=predicted.launch_us + kernel_us, changes=changes)
    findings = ml.explain(replace(trace, launches=(replace(first(trace), predicted=changed),)))
    assert findings[0].saved_us == pytest.approx(0.9 * kernel_us)
    assert [one.rule for one in findings].index("narrow-access") > 0


def test_arrays_are_left_as_the_program_left_them() -> None:
    target = ml.target("emulator:h200")
    total = target.zeros(33, np.uint32)
    code = 'extern "C" __global__ void add(unsigned* to) { atomicAdd(&to[32 * (threadIdx.x % 2)], 1u); }'
    tracer = ml.Tracer(predictions=True)
    with tracer:
        target.load(ml.cuda(code))["add"][4, 64](total)
    trace = tracer.finish()
    assert total.numpy()[[0, 32]].tolist() == [128, 128]
    assert first(trace).predicted is not None


def test_the_roofline_of_the_report_is_that_of_the_model() -> None:
    trace = traced("naive")
    (kernel,) = resources_of(trace, load("h200")).kernels
    predicted = first(trace).predicted
    assert predicted is not None
    assert (kernel.origin, kernel.us, kernel.limit) == (PREDICTED, predicted.us, predicted.limiting)
    assert [one.name for one in kernel.resources] == [one.name for one in predicted.parts]
    assert kernel.asked == 2 * 4 * N * N
    assert kernel.gb_per_s == pytest.approx(2 * 4 * N * N / predicted.us / 1000)


def test_explain_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(EXAMPLE.with_suffix(".py")), "--launch", "1", "--", "64"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Cost: The kernel would take" in out
    assert "(modelled, without probes)" in out


ROWS = """
extern "C" __global__ void rows(float* out, const float* in, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += in[row * n + k];
    out[row] = sum;
}
"""


def test_turns_of_an_unrolled_loop_move_data_of_their_own() -> None:
    """With contiguous lanes the launch loads as many sectors as the array has, not the same ones for each of the loop's copies."""
    target = ml.target("emulator:h200")
    kernel = target.load(ml.cuda(ROWS))["rows"]
    call, arguments = kernel[(16,), (256,)], (target.zeros(4096), target.zeros((4096, 64)), 64)
    loads = frozenset(one.site.instruction for one in ml.count(call, *arguments).sites if one.site.kind == "load")
    assert len(loads) > 1
    _, (changed,) = Predictor(target.chip).changed(call.bind(*arguments), target, [loads])
    read = next(part for part in changed.parts if part.name == "L2 reads")
    assert read.moved.startswith(f"{4096 * 64 * 4 // 32:,} sectors read")
