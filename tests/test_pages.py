"""What a reader of the pages can try: links lead somewhere, commands have their line, snippets run, answers of exercises are right."""

from __future__ import annotations

import io
import json
import pkgutil
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane import chip
from memlane.cli import main
from memlane.cli.app import COMMANDS, GROUPS
from memlane.emulate import Emulator
from memlane.layout import count, pattern, read_spec

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")
SNIPPETS = [part.partition("```")[0] for part in README.split("```python\n")[1:]]
EXERCISES = (ROOT / "docs" / "exercises.md").read_text(encoding="utf-8")


def headings(page: str) -> set[str]:
    """The anchors that the headings of a page have where it is shown: words in lower case, blanks as hyphens, no other signs."""
    said = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in said}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if re.match(r"https?:", link):
            continue
        name, _, heading = link.partition("#")
        there = path.parent / name if name else path
        assert there.exists(), f"{link}: no such file"
        assert not heading or heading in headings(there.read_text(encoding="utf-8")), f"{link}: no such heading"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_and_names_that_a_page_mentions_exist(path: Path) -> None:
    text = re.sub(r"<!-- table: .*?<!-- end of table -->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    files = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text)
    assert [name for name in files if not any((folder / name).exists() for folder in (ROOT, ROOT / "src", ROOT / "src" / "memlane"))] == []
    names = [f"memlane.{name}" for name in re.findall(r"`(?:memlane|ml)\.([\w.]+\w)", text)]
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_options_that_a_page_gives_to_a_command_exist(path: Path) -> None:
    """In code, up to its end: what stands behind ` -- ` is for the script."""
    text = re.sub(r"<!-- table: .*?<!-- end of table -->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for group, name, rest in re.findall(r"memlane (?:(lab|layout|stencil) )?([a-z]+)((?: [^`|\n]*)?)", text):
        command = " ".join(filter(None, (group, name)))
        given = re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", rest.partition(" -- ")[0].partition(" # ")[0])
        known = options_of(command) if given else set()
        assert not known or set(given) <= known, f"memlane {command} {rest}: there is no {set(given) - known}"


@cache
def options_of(command: str) -> set[str]:
    """The options of a command; none for words that are not one."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(io.StringIO()):
        code = main([*command.split(), "--help"])
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", output.getvalue())) if code == 0 else set()


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or leads to something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_the_readme_leads_to_every_page_and_command() -> None:
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f"docs/{path.name}" not in README] == []
    assert [name for name in (*COMMANDS, *GROUPS) if not re.search(rf"(memlane |`){name}\b", README)] == []


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (snippet,) = [one for one in SNIPPETS if "ml.trace(call" in one]
    exec(compile(snippet.replace('"examples/', f'"{ROOT}/examples/'), "README.md", "exec"), {})
    assert "each request touches 32 sectors where 4 would do" in capsys.readouterr().out
    assert len(ml.load("naive.parquet").table) == 2 * 64 * 32


@pytest.mark.parametrize("front_end", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("numba", "triton")])
def test_the_scripts_of_the_readme_lead_to_the_finding_that_it_names(
    front_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip({"numba": "numba_cuda", "triton": "triton"}[front_end], reason="it is not installed")
    (snippet,) = [one for one in SNIPPETS if f"ml.{front_end}(" in one and "ml.trace(" not in one]
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(snippet, encoding="utf-8")
    assert main(["explain", "script.py", "--target", "emulator:h200"]) == 0
    said = {"numba": "1. partly used sectors, scale: ", "triton": "1. uncoalesced global access, row_sums: "}
    assert capsys.readouterr().out.startswith(said[front_end])


def test_the_plans_of_their_page_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the table that the page shows; assertions on results stand in the snippets. That of a time loop alone is only a part."""
    page = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")
    snippets = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    first, signals, _part, devices, again, counting, modelled, prediction, drawing = snippets
    names: dict[str, object] = {}
    exec(compile(first, "plans.md", "exec"), names)
    table = page.partition("what it waits for.\n\n```\n")[2].partition("```")[0]
    assert len(table.splitlines()) == 3
    assert capsys.readouterr().out.startswith(table)
    exec(compile(again, "plans.md", "exec"), dict(names))
    exec(compile(counting, "plans.md", "exec"), names)
    assert len(capsys.readouterr().out.splitlines()) == 8 + 16
    exec(compile(modelled, "plans.md", "exec"), names)
    assert "scale: " in capsys.readouterr().out
    exec(compile(prediction, "plans.md", "exec"), names)
    assert re.search(r"us in total, modelled$", capsys.readouterr().out.strip())
    monkeypatch.chdir(tmp_path)
    exec(compile(drawing, "plans.md", "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == {"upload.svg", "upload.html", "upload.pftrace"}
    exec(compile(devices, "plans.md", "exec"), {})
    exec(compile(signals, "plans.md", "exec"), {})


def answers(heading: str) -> dict[str, list[str]]:
    """The table of answers of one exercise: the first cell of a row, in backquotes, and the others."""
    rows = re.findall(r"^\| `(.*?)` \|(.*)\|$", EXERCISES.partition(f"## {heading}")[2].partition("\n## ")[0], re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def test_the_answers_on_coalescing() -> None:
    target, n = ml.target("emulator:h200"), 8192
    kernels = target.load(ml.cuda(ROOT / "examples" / "copies.cu"))
    a, b = target.array(np.arange(n, dtype="f4")), target.zeros(n)
    more = {"vectors": (n // 1024, ()), "shifted": (n // 256, (1,)), "strided": (n // 256, (32,))}
    for name, (load, store, _) in answers("1. ").items():
        blocks, extra = more.get(name, (n // 256, ()))
        sites = ml.count(kernels[name][blocks, 256], b, a, n, *extra).sites
        assert [round(site.sectors / site.requests) for site in sites] == [int(load), int(store)], name


def test_the_answer_on_what_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "(Answer: the load of `strided`, and then its store. The load of `shifted` is not reported" in EXERCISES
    monkeypatch.chdir(tmp_path)
    assert main(["trace", str(ROOT / "examples" / "copies.py"), "--target", "emulator:h200"]) == 0
    assert [(one.kernel.partition("(")[0], one.op) for one in ml.explain("copies.parquet")] == [
        ("strided", "ld.global.f32"),
        ("strided", "st.global.f32"),
    ]


@pytest.mark.slow
def test_the_answer_on_the_gain_of_a_swizzle(capsys: pytest.CaptureFixture[str]) -> None:
    assert "(About 1.6 times as fast.)" in EXERCISES
    assert main(["fix", str(ROOT / "examples" / "transpose.py"), "--target", "emulator:h200", "--json"]) == 0
    [tile] = json.loads(capsys.readouterr().out)["arrays"]
    [xor] = [one for one in tile["tried"] if one["layout"].startswith("XorSwizzle")]
    assert xor["times_as_fast"] == pytest.approx(1.6, abs=0.15)


def test_the_answers_on_bank_conflicts() -> None:
    rule, found = chip.load("h200"), {}
    for name in (told := answers("2. ")):
        layout = read_spec(name).of(32, 32)
        found[name] = [str(count(layout, pattern(word, 32, 32), rule, width).worst) for width in (4, 8) for word in ("row", "column")]
    assert found == told


def test_the_answers_on_waiting() -> None:
    target, steps = Emulator(chip.load("h200")), 32  # of its own: its caches hold what was launched before
    kernels = target.load(ml.cuda(ROOT / "examples" / "chase.cu"))
    ring, end = target.empty(1 << 10, "u8"), target.empty(1, "u8")
    kernels["link_ring"][4, 256](ring, 1 << 10, 17)
    told = answers("3. ")
    assert list(told) == ["simple", "dependent"]
    for scheme, (shared, second, said) in told.items():
        near = ml.trace(kernels["chase_shared"][1, 32, None, 256 * 4], end, 256, 17, steps, scheme=scheme)
        for _ in range(2):  # the second time L2 has the ring
            far = ml.trace(kernels["chase_global"][1, 1], end, ring, steps, scheme=scheme)
        for trace, op, cycles in ((near, "ld.shared.u32", shared), (far, "ld.u64", second)):
            loads = [row for row in trace.table.to_pylist() if row["op"] == op]
            about = float(cycles.removeprefix("about "))
            assert np.median([row["end"] - row["start"] for row in loads]) == pytest.approx(about, rel=0.15, abs=3), (scheme, op)
            assert {row["completeness"] for row in loads} == {"complete" if said == "`complete`" else "issue-only"}


def test_the_answers_on_races(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    command = re.search(r"^    memlane (check .*)$", EXERCISES, re.MULTILINE)
    assert command is not None
    assert main(shlex.split(command[1])) == 1
    assert "1. data race, reduce" in capsys.readouterr().out
    assert main(shlex.split(command[1].replace("step5_unsafe", "step5_last_warp"))) == 0


def test_the_unsafe_sum_is_as_wrong_as_the_page_says_and_volatile_mends_it_silently() -> None:
    text = (ROOT / "src/memlane/lab/reduction/steps/step5_unsafe.cu").read_text()
    array = "extern __shared__ TYPE shared[];"
    assert array in text
    run, data = Emulator(chip.load("h200")), np.arange(256, dtype=np.int32)
    sums = []
    for source in (text, text.replace(array, "extern __shared__ volatile TYPE shared[];")):
        call, out = run.load(ml.cuda(source))["reduce"][1, 128, None, 512], run.zeros(1, "i4")
        with ml.Checker() as checker:
            call(out, run.array(data), data.size)
        sums.append(int(out.numpy()[0]))
        assert [one.kind for one in checker.reports] == (["data race"] if source is text else [])
    wrong, right = (int(one.replace(",", "")) for one in re.findall(r"comes out as ([\d,]+) instead of ([\d,]+)", EXERCISES)[0])
    assert sums == [wrong, right]
    assert right == data.sum()
