"""The table of kernels that explain is judged by, and how it is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import explain
import pytest
from explain_cases import CASES, CLEAN, PLANTED, Case
from explain_public import CASES as PUBLIC
from tests.synthetic import transpose

from memlane.diagnose import RULES, Finding, Findings
from memlane.diagnose import explain as find


def test_every_finding_has_three_planted_kernels_and_half_are_frozen() -> None:
    amounts = Counter(case.finding for case in PLANTED)
    assert set(amounts) == {rule.id for rule in RULES}
    assert min(amounts.values()) >= 3
    assert 2 * sum(case.frozen for case in PLANTED) >= len(PLANTED)
    assert len(CLEAN) == 10
    assert all(case.frozen for case in CLEAN)


def test_names_are_unique_and_lines_are_marked() -> None:
    assert max(Counter(case.kernel for case in CASES).values()) == 1
    assert [case.name for case in PLANTED if not case.lines] == []
    assert [case.name for case in CLEAN if case.lines] == []


def test_labels_of_public_kernels_are_findings() -> None:
    assert {case.label for case in PUBLIC} <= {"", *(rule.id for rule in RULES)}


@pytest.fixture(scope="module")
def found() -> Finding:
    return find(transpose())[0]


def planted(finding: str) -> Case:
    return next(case for case in PLANTED if case.finding == finding)


def test_a_planted_kernel_is_found_by_rule_rank_and_line(found: Finding) -> None:
    case = planted("bank-conflict")
    there = replace(found, line=case.lines[0])
    other = replace(found, rule="imbalance")
    assert explain.judged(case, Findings([there, other])).holds
    for wrong in ([other, there], [replace(there, line=1)], [other], []):
        row = explain.judged(case, Findings(wrong))
        assert not row.holds
        assert row.note


def test_whatever_is_found_in_a_clean_kernel_counts(found: Finding) -> None:
    rows = [explain.judged(case, Findings([found] if number == 0 else [])) for number, case in enumerate(CLEAN)]
    assert [row.holds for row in rows] == [False] + [True] * 9
    (total,) = explain.totals(rows)
    assert (total.value, total.holds) == (1, False)


def test_one_case_runs(quick: Callable[..., list[dict[str, Any]]]) -> None:
    row, *totals = quick("explain", "every_second")
    assert (row["case"], row["holds"]) == ("partial-sectors: every_second", True)
    assert [one["value"] for one in totals] == [1.0, 1.0]
