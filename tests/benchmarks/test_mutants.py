"""Which mutants a source has, that a sample of them stays, and that tests kill one."""

from __future__ import annotations

import json
from pathlib import Path

import mutants
import pytest
from harness import ROOT
from mutation import mutants as mutants_of

SOURCE = """\
\"\"\"A module.\"\"\"
from collections.abc import Callable

__all__ = ["f"]
NAMES = frozenset({"a", "b"})
Rule = Callable[[int], int]


def f(x: int | None, limit: int = 3) -> int:
    if x is None or x < limit - 1:
        return 0
    assert x > 0
    for y in (x, limit, 7):
        print(y)
    if not limit:
        raise ValueError(f"{x + 1} is more than {limit}")
    return min(x, -limit) if any(z for z in (x,) if z) else x
"""


def changes(source: str, tmp_path: Path) -> list[tuple[int, str, str]]:
    (tmp_path / "m.py").write_text(source, encoding="utf-8")
    return [(one.line, one.old, one.new) for one in mutants_of("m.py", tmp_path)]


def test_the_mutants_of_a_source(tmp_path: Path) -> None:
    found = changes(SOURCE, tmp_path)
    assert [one for one in found if one[0] == 5] == [(5, '{"a", "b"}', "({'a'})"), (5, '{"a", "b"}', "({'b'})")]
    assert [one for one in found if one[0] == 9] == [(9, "3", "(4)")]
    head = [new for line, _, new in found if line == 10]
    assert sorted(head) == sorted(
        ["(x is not None)", "(x <= limit - 1)", "(limit + 1)", "(2)", "(x is None)", "(x < limit - 1)", "(x is None and x < limit - 1)"]
    )
    assert {new for line, _, new in found if line == 13} == {"((x, limit))", "((x, 7))", "((limit, 7))", "(8)"}
    assert {new for line, _, new in found if line == 14} == {"pass"}
    assert {(old[:5], new) for line, old, new in found if line in (15, 16)} == {("not l", "(limit)"), ("raise", "pass")}
    last = {new for line, _, new in found if line == 17}
    assert last == {
        *("(x)", "(min(x, -limit))", "(max(x, -limit))", "(limit)", "(all((z for z in (x,) if z)))", "((z for z in (x,)))"),
    }
    assert not [one for one in found if one[0] in (1, 2, 4, 6, 12)]


def test_each_mutant_can_be_read_and_changes_one_place(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE, encoding="utf-8")
    for one in mutants_of("m.py", tmp_path):
        text = one.applied(SOURCE.encode()).decode()
        compile(text, "m.py", "exec")
        assert text != SOURCE
        assert text.count("\n") == SOURCE.count("\n")
        assert one.line in one.statement


def test_a_sample_stays_when_something_else_changes(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE, encoding="utf-8")
    before = mutants_of("m.py", tmp_path)
    first = mutants.draw(before, 7)[:10]
    (tmp_path / "m.py").write_text(SOURCE.replace("from collections", "import re  # new\nfrom collections"), encoding="utf-8")
    after = mutants.draw(mutants_of("m.py", tmp_path), 7)[:10]
    assert [(one.old, one.new) for one in first] == [(one.old, one.new) for one in after]
    assert [one.line + 1 for one in first] == [one.line for one in after]
    assert mutants.draw(before, 8)[:10] != first


def test_files_of_the_areas_have_tests() -> None:
    for path in mutants.files_of([one for area in mutants.AREAS.values() for one in area], ROOT):
        assert mutants.test_files(path, ROOT), path


def test_judgements_name_mutants_that_there_are() -> None:
    files = mutants.files_of([one for area in mutants.AREAS.values() for one in area], ROOT)
    lines = {path: (ROOT / path).read_text(encoding="utf-8").splitlines() for path in files}
    known = {(Path(path).name, lines[path][one.line - 1].strip(), one.new) for path in files for one in mutants_of(path, ROOT)}
    assert not [key for key in mutants.judgements() if key not in known]
    assert all(said.why.endswith(".") for said in mutants.judgements().values())


@pytest.mark.slow
def test_tests_kill_a_mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of the project, of a small file with few tests: those of `mutants.TESTS` take minutes when their lines are traced."""
    file, tests = "src/memlane/sass/control.py", "tests/sass/test_control.py"
    monkeypatch.setattr(mutants, "STATE", tmp_path)
    monkeypatch.setattr(mutants, "TREE", tmp_path / "tree")
    monkeypatch.setattr(mutants, "TESTS", {file: (tests,)})
    monkeypatch.setattr("sys.argv", ["mutants.py", "--module", file, "--number", "2"])
    mutants.main()
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert len(found) == 2
    assert {one["ended"] for one in found} <= {"killed", "passed"}
    assert any(one["ended"] == "killed" and one["by"].startswith(f"{tests}::") for one in found)
    assert (tmp_path / "tree" / file).read_bytes() == (ROOT / file).read_bytes()
