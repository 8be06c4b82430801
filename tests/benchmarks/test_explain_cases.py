"""The table of kernels that explain is judged by, and how it is judged."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import docs_explain
import explain
import explain_public
import public_kernel
import public_sources
import pytest
from explain_cases import CASES, CLEAN, PLANTED, Case
from explain_public import CASES as PUBLIC
from public_sources import FIRST_SET, LATER_SETS, NOTHING, held_out, labels, set_of
from public_verdicts import BOTH, FIRST_RUNS, LABEL, RELABELLED, SINCE, TOOL, VERDICTS
from tests.synthetic import transpose

from memlane.compile import cuda
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
    """Every kernel has a label and every label a kernel; a third of the first set is held out by a rule that nobody chose by looking, and
    all of the later ones."""
    names = [case.name for case in PUBLIC]
    assert len(names) >= 60
    assert sorted(names) == sorted(labels())
    known = {NOTHING, *(rule.id for rule in RULES)}
    assert {finding for label in labels().values() for finding in label.accepted} <= known
    assert all(label.why for label in labels().values())
    for later in LATER_SETS:
        assert len([name for name in names if set_of(name) == later]) >= 40
    first = [name for name in names if set_of(name) == FIRST_SET]
    assert all(held_out(name) for name in names if name not in first)
    assert len(first) / 4 < sum(map(held_out, first)) < len(first) / 2


@pytest.mark.parametrize("later", LATER_SETS)
def test_what_was_first_said_of_a_later_set_is_kept(later: str) -> None:
    """Each of its kernels that did not agree at the first run has a verdict, and there is a row for that run once all of them ran."""
    names = [name for name in labels() if set_of(name) == later]
    first = FIRST_RUNS[later]
    assert first.kernels == len(names)
    assert first.agreed == first.kernels - sum(name in names for name in VERDICTS)
    rows = [explain_public.judged(case, Findings()) for case in PUBLIC if set_of(case.name) == later]
    first_run = explain_public.totals(rows)[-1]
    assert (first_run.case, first_run.value) == (f"{later}, first run", first.agreed / first.kernels)
    assert [row.case for row in explain_public.totals(rows[1:])] == [later, "all"]


def test_verdicts_are_of_public_kernels() -> None:
    assert {*VERDICTS, *SINCE} <= set(labels())
    assert not VERDICTS.keys() & SINCE
    assert all(verdict.startswith((TOOL, BOTH, LABEL)) for verdict in (*VERDICTS.values(), *SINCE.values()))
    assert set(RELABELLED.values()) <= {NOTHING, *(rule.id for rule in RULES)}
    assert all(VERDICTS[name].startswith(TOOL) and label not in labels()[name].accepted for name, label in RELABELLED.items())


def test_the_table_of_public_kernels_says_who_is_right(found: Finding) -> None:
    by_name = {case.name: case for case in PUBLIC}
    clean, wrong = by_name["cuda-samples: vectorAdd"], by_name["cuda-samples: convolutionColumnsKernel"]
    other = by_name["llm.c: layernorm_backward_kernel1"]
    rows = [
        explain_public.judged(clean, Findings()),
        explain_public.judged(wrong, Findings([found] * 3)),
        explain_public.judged(other, Findings([found])),
    ]
    assert [row.value for row in rows] == [1, 0, 0]
    assert [row.peer["rank"] for row in rows] == [1, 0, 0]
    rows += explain_public.totals(rows)
    head, _, *lines = docs_explain.public({"rows": [row.as_json() for row in rows]}).splitlines()
    assert head == "| kernel | label | agrees | found, by rank | who was right |"
    assert lines[0] == "| cuda-samples: vectorAdd | nothing | yes | nothing found |  |"
    begun = (
        "| cuda-samples: convolutionColumnsKernel | nothing; should be bank-conflict | **no**; yes (held out) | bank-conflict at line 10"
    )
    assert lines[1].startswith(begun)
    assert lines[1].endswith(f"; 1 more | {VERDICTS[wrong.name]} |")
    assert "| contended-atomics or uncoalesced-global | **no** |" in lines[2]
    assert lines[3].startswith("| **held out of the first** | 0 % | at least 85 %: **no** | 0 of 1 kernels; ")
    assert lines[-2].startswith(
        "| **all** | 33 % | at least 85 %: **no** | 1 of 3 kernels; the likeliest finding of the label is first in 1 |"
    )
    assert lines[-1] == "| **all, wrong labels put right** | 67 % |  | 2 of 3 kernels |  |"


def test_kernels_of_a_tutorial_keep_their_lines_and_need_no_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "01-add.py"
    path.write_text(
        "import torch\n\nimport triton\nimport triton.language as tl\n\nDEVICE = torch.device('cuda')\n\n\n"
        "@triton.autotune(\n    configs=[], key=['n'])\n@triton.jit(launch_metadata=DEVICE)\n"
        "def add(x, n):\n    tl.store(x, n)\n\n\ntorch.zeros(1)\n"
    )
    kernels = public_sources.kernels_of(path, tmp_path)
    assert [name for name in vars(kernels) if not name.startswith("__")] == ["triton", "tl", "add"]
    assert kernels.add.fn.__code__.co_firstlineno == 11


def test_a_clone_at_another_commit_is_refused(tmp_path: Path) -> None:
    clone = tmp_path / "llm.c"
    clone.mkdir()
    words = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "other"]
    for command in (["init", "-q"], words):
        subprocess.run(["git", "-C", str(clone), *command], check=True)
    with pytest.raises(MemlaneError, match=r"llm\.c is at commit \w{12}; the labels are for f1e2ace65149: git -C .* checkout f1e2ace65149"):
        public_sources.check_commits(tmp_path)


def test_a_copy_of_a_clone_has_its_sources_and_its_commit(tmp_path: Path) -> None:
    clone, copy = tmp_path / "clones" / "llm.c", tmp_path / "copies" / "llm.c"
    (clone / "dev").mkdir(parents=True)
    for file in ("dev/kernel.cu", "common.h", "picture.png"):
        (clone / file).write_bytes(b"text")
    with pytest.raises(
        MemlaneError, match=r"llm\.c is neither a clone nor a copy of one, so its commit is not known; delete it, and clone"
    ):
        public_sources.check_commits(clone.parent)
    (clone / public_sources.COMMIT_FILE).write_text(f"{public_sources.COMMITS['llm.c']}\n")
    assert public_sources.pack(clone.parent, copy.parent) == 8
    assert sorted(str(one.relative_to(copy)) for one in copy.rglob("*") if one.is_file()) == ["COMMIT", "common.h", "dev/kernel.cu"]
    public_sources.check_commits(copy.parent)
    (copy / public_sources.COMMIT_FILE).write_text("0123456789abcdef\n")
    with pytest.raises(MemlaneError, match=r"llm\.c is at commit 0123456789ab; the labels are for f1e2ace65149"):
        public_sources.check_commits(copy.parent)


def test_a_public_kernel_is_run_without_the_others_of_its_file() -> None:
    text = "__device__ float twice(float x) { return 2 * x; }\n" + "".join(
        f'extern "C" __global__ void {name}(float *x) {{ x[threadIdx.x] = twice(x[threadIdx.x]); }}\n' for name in "ab"
    )
    module = public_kernel.alone(cuda(text), "b")
    assert list(module.kernels) == ["b"]


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
