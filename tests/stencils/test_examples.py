"""The examples of stencils run on the emulator and check themselves against NumPy; the benchmark runs small."""

import linecache
import runpy
import sys
from pathlib import Path

import pytest

from memlane.targets import names

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("heat", "<Run: heat on (48, 48), emulator:h200, after 40 steps"),
        ("heat 48 12 3", "<SharedRun: heat on (48, 48), emulator:h200, emulator:h200:1, emulator:h200:2, after 12 steps"),
        pytest.param("heat 32 8 2x2", "<SharedRun: heat on (32, 32) in 2 x 2 parts, emulator:h200,", marks=pytest.mark.slow),
        ("wave", "arrives at the border"),
        ("himeno", "(float64)"),
        pytest.param("himeno S 3", "(float32, one after the other)", marks=pytest.mark.slow),
        pytest.param("himeno XS 3 2", "emulator:h200, emulator:h200:1: 3 steps in", marks=pytest.mark.slow),
    ],
)
def test_an_example_runs(command, printed, monkeypatch, capsys):
    name, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with names.override("emulator:h200"):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert printed in capsys.readouterr().out


def test_a_size_that_himeno_does_not_have_is_said(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["himeno", "--help"])
    with pytest.raises(SystemExit, match="no size is called --HELP: give one of XS, S, M, L, XL, then the number of steps and of devices"):
        runpy.run_path(str(EXAMPLES / "himeno.py"), run_name="__main__")


def run_page(page, snippets):
    """Run the Python of a page, as a reader would from top to bottom; return the names that it leaves."""
    text = (EXAMPLES.parent / "docs" / page).read_text(encoding="utf-8")
    found = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    assert len(found) == snippets
    page_names = {"__name__": "page"}
    for number, snippet in enumerate(found):
        name = f"<{page}, {number}>"
        linecache.cache[name] = (len(snippet), None, snippet.splitlines(keepends=True), name)
        with names.override("emulator:h200"):
            exec(compile(snippet, name, "exec"), page_names)
    return page_names


def test_the_python_of_the_page_of_stencils_runs():
    left = run_page("stencils.md", 3)
    assert left["made"] > 0
    assert left["run"].step == 12


def test_the_python_of_the_page_of_scaling_runs():
    left = run_page("scaling.md", 3)
    assert left["run"].step == 20
    assert left["best"].devices == 8
