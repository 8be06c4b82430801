"""The table of kernels that explain is judged by, and how it is judged."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import docs_explain
import explain
import explain_public
import public_sources
import pytest
from explain_cases import CASES, CLEAN, PLANTED, Case
from explain_public import CASES as PUBLIC
from public_kernel import text_in
from public_verdicts import BOTH, LABEL, RELABELLED, TOOL, VERDICTS
from tests.synthetic import transpose

from memlane.diagnose import RULES, Finding, Findings
from memlane.diagnose import explain as find
from memlane.errors import MemlaneError

pytestmark = pytest.mark.slow


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
    assert max(Counter(case.name for case in PUBLIC).values()) == 1
    assert set(VERDICTS) <= {case.name for case in PUBLIC}
    assert all(verdict.startswith((TOOL, BOTH, LABEL)) for verdict in VERDICTS.values())
    labels = {case.name: case.label for case in PUBLIC}
    assert set(RELABELLED.values()) <= {"nothing", *(rule.id for rule in RULES)}
    assert all(VERDICTS[name].startswith(TOOL) and labels[name] != label for name, label in RELABELLED.items())


def test_the_table_of_public_kernels_says_who_is_right(found: Finding) -> None:
    by_name = {case.name: case for case in PUBLIC}
    clean, studied = by_name["cuda-samples: copy"], by_name["gpu-rodinia: Fan2"]
    other = by_name["torch-cluster-1.6.3: grid_kernel<float>"]
    rows = [
        explain_public.judged(clean, Findings()),
        explain_public.judged(studied, Findings([found] * 3)),
        explain_public.judged(other, Findings([found])),
    ]
    rows += explain_public.totals(rows)
    head, _, *lines = docs_explain.public({"rows": [row.as_json() for row in rows]}).splitlines()
    assert head == "| kernel | label | agrees | found, by rank | who was right |"
    assert lines[0] == "| cuda-samples: copy | nothing | yes | nothing found |  |"
    assert lines[1].startswith("| gpu-rodinia: Fan2 | uncoalesced-global; should be partial-sectors | **no** | bank-conflict at line 10")
    assert lines[1].endswith(f"; 1 more | {VERDICTS[studied.name]} |")
    assert lines[2].endswith(" |  |")
    assert lines[3] == "| **git repositories** | 50 % |  | 1 of 2 kernels |  |"
    assert lines[-2] == "| **all** | 33 % |  | 1 of 3 kernels |  |"
    assert lines[-1] == "| **all, wrong labels put right** | 33 % |  | 1 of 3 kernels |  |"


def test_a_label_that_was_wrong_is_told_as_it_was_and_as_it_should_be(found: Finding) -> None:
    case = next(case for case in PUBLIC if case.name == "gpu-rodinia: Fan2")
    rows = [explain_public.judged(case, Findings([replace(found, rule="partial-sectors")]))]
    assert rows[0].value == 0
    *_, line, _, before, after = docs_explain.public(
        {"rows": [row.as_json() for row in [*rows, *explain_public.totals(rows)]]}
    ).splitlines()
    assert "| uncoalesced-global; should be partial-sectors | **no**; yes | partial-sectors at line 10" in line
    assert before == "| **all** | 0 % |  | 0 of 1 kernels |  |"
    assert after == "| **all, wrong labels put right** | 100 % |  | 1 of 1 kernels |  |"


def test_kernels_in_python_files_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "host.py"
    first = 'first = """\n__global__ void k(int* p) { *p = %(n)d; }\n"""\n'
    path.write_text(f'"""About k()."""\n{first}second = """__global__ void k(int* p) {{ *p = 7 % 4; }}"""\n')
    text = text_in(path, "k", 0, {"n": 3})
    assert text.splitlines()[2] == path.read_text().splitlines()[2].replace("%(n)d", "3")
    assert text_in(path, "k", 1, None).splitlines()[4] == "__global__ void k(int* p) { *p = 7 % 4; }"
    with pytest.raises(MemlaneError, match=r"has 2 texts with the kernel k, not 3"):
        text_in(path, "k", 2, None)


def test_only_sources_are_unpacked_and_nothing_outside(tmp_path: Path) -> None:
    archive = tmp_path / "made.tar.gz"
    with tarfile.open(archive, "w:gz") as files:
        for name in ("made-1/csrc/a.cu", "made-1/README.md", "made-1/../../b.cu", "made-1/c.py"):
            member = tarfile.TarInfo(name)
            member.size = 4
            files.addfile(member, io.BytesIO(b"text"))
    assert public_sources.unpack(archive, tmp_path / "folder") == 2
    assert (tmp_path / "folder" / "csrc" / "a.cu").read_bytes() == b"text"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["a.cu", "c.py", "made.tar.gz"]


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


@pytest.mark.slow
def test_one_case_runs(quick: Callable[..., list[dict[str, Any]]]) -> None:
    row, *totals = quick("explain", "every_second")
    assert (row["case"], row["holds"]) == ("partial-sectors: every_second", True)
    assert [one["value"] for one in totals] == [1.0, 1.0]
