"""The lab of remaps: it runs whole on the emulator, and its numbers follow from each other."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from memlane.errors import CommandError
from memlane.lab import LABS, Request, Result
from memlane.lab.remap.cases import KMEANS, PARTICLES, SPARSE, STRIPS, aligned, kmeans, sparse_from, strips
from memlane.lab.remap.lab import break_even, totals
from memlane.lab.remap.measure import BEHIND, OVERLAPPED, Bench, Outcome, runs_for
from memlane.layout import arrays
from memlane.targets import target


@pytest.fixture(scope="module")
def result() -> Result:
    return LABS["remap"].run(target("emulator:gtx480"), Request(quick=True))


def test_every_case_is_measured_and_right(result: Result) -> None:
    """A way that gives something else than NumPy would be a row that could not be measured."""
    assert not [row for row in result.rows if row.metric == "not measured"]
    cases = [line[0] for line in result.tables["remap"].lines]
    assert [case.partition(",")[0] for case in cases] == [KMEANS, STRIPS, SPARSE, PARTICLES]
    assert [line[0] for line in result.tables["paper"].lines] == cases[:3]
    assert set(result.figures) == {
        "k-means", "needleman-wunsch", "sparse-product", "particles", "chunks",
        *(f"timeline-{name}-{way}" for name in ("k-means", "needleman-wunsch", "particles") for way in ("behind", "overlapped")),
    }  # fmt: skip


def test_remaps_leave_fewer_sectors(result: Result) -> None:
    ratios = {line[0].partition(",")[0]: line[3] for line in result.tables["counts"].lines}
    assert ratios[KMEANS] > 4
    assert ratios[PARTICLES] > 3
    assert ratios[SPARSE] > 1.5


def test_predicted_speed_ups_stand_beside_the_paper(result: Result) -> None:
    column = result.tables["paper"].head.index("predicted")
    predicted = {line[0]: line[column] for line in result.tables["paper"].lines}
    rows = {row.case: row for row in result.rows if row.metric == "speed-up of the kernel, predicted"}
    assert set(predicted) < set(rows)
    assert all(rows[case].value == pytest.approx(value, abs=0.006) for case, value in predicted.items())
    kmeans = next(row for case, row in rows.items() if case.startswith(KMEANS))
    assert kmeans.peer["paper"] == 3.11
    assert kmeans.peer["kernel without us"] > kmeans.peer["kernel with us"]


def test_chunks_are_swept_with_and_without_overlap(result: Result) -> None:
    lines = result.tables["chunks"].lines
    assert {line[1] for line in lines} == {2}
    assert all(line[2] <= line[3] for line in lines)


def test_the_work_of_a_thread_is_swept(result: Result) -> None:
    assert [line[1] for line in result.tables["work"].lines] == [1, 2]


def test_the_scores_are_those_of_the_recurrence() -> None:
    similarity = np.random.default_rng(1).integers(-3, 9, (7, 7), dtype=np.int32)
    score = np.zeros((8, 8), int)
    score[0], score[:, 0] = -10 * np.arange(8), -10 * np.arange(8)
    for i in range(7):
        for j in range(7):
            score[i + 1, j + 1] = max(score[i, j] + similarity[i, j], score[i, j + 1] - 10, score[i + 1, j] - 10)
    assert np.array_equal(aligned(similarity), score[1:, 1:])


def test_a_wrong_result_is_an_error() -> None:
    case = kmeans(64)
    wrong = replace(case, results={"members": case.results["members"] + 1})
    with pytest.raises(Exception, match="k-means of 64: members differs from what NumPy gives"):
        Bench(target("emulator:h200"), 1).outcome(wrong, ())


def test_when_a_remap_pays() -> None:
    outcome = Outcome(kmeans(64), transfer=100.0, remapped={BEHIND: 130.0, OVERLAPPED: 110.0}, kernels={"without": 30.0, "with": 26.0})
    assert break_even(outcome) == 3
    assert totals(outcome, 3) == (190.0, 208.0, 188.0)
    assert runs_for(outcome.case, outcome) == 2
    assert break_even(replace(outcome, kernels={"without": 5.0, "with": 5.0})) == inf


MATRIX = """%%MatrixMarket matrix coordinate real general
% a comment
40 50 5
1 1 2.5
1 50 -1
3 7 4
40 2 0.5
40 3 8
"""


def test_a_matrix_of_a_file_is_multiplied_as_scipy_does(tmp_path: Path) -> None:
    path = tmp_path / "small.mtx"
    path.write_text(MATRIX)
    case = sparse_from(path)
    dense = np.zeros((40, 50))
    for i, j, value in ((1, 1, 2.5), (1, 50, -1), (3, 7, 4), (40, 2, 0.5), (40, 3, 8)):
        dense[i - 1, j - 1] = value
    np.testing.assert_allclose(case.results["y"], dense @ case.host["x"])
    outcome = Bench(target("emulator:h200"), 1).outcome(case, ())  # raises where the kernel gives something else
    assert outcome.kernels["with"] > 0


def test_files_that_are_no_matrix(tmp_path: Path) -> None:
    (tmp_path / "text.mtx").write_text("no matrix")
    (tmp_path / "complex.mtx").write_text("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 0 1\n")
    (tmp_path / "dense.mtx").write_text("%%MatrixMarket matrix array real general\n1 1\n1.0\n")
    for name, sentence in (
        ("gone.mtx", "there is no such file"),
        ("text.mtx", "SciPy cannot read it as a sparse matrix"),
        ("dense.mtx", "SciPy cannot read it as a sparse matrix"),
        ("complex.mtx", "it is complex; the product takes real numbers"),
    ):
        with pytest.raises(CommandError, match=sentence):
            sparse_from(tmp_path / name)


@pytest.mark.slow
def test_a_table_larger_than_what_is_listed_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LARGEST_TABLE", 1000)
    outcome = Bench(target("emulator:h200"), 1).outcome(strips(48), ())
    assert outcome.kernels["with"] > 0
