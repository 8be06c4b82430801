"""The examples of stencils run on the emulator and check themselves against NumPy; the benchmark runs small."""

import linecache
import runpy
import sys
from pathlib import Path

import pytest

from memlane.targets import names

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("name", "printed"), [("heat", "after 40 steps"), ("wave", "arrives at the border"), ("himeno", "(float64)")])
def test_an_example_runs(name, printed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name])
    with names.override("emulator:h200"):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert printed in capsys.readouterr().out


def test_the_python_of_the_page_runs():
    page = (EXAMPLES.parent / "docs" / "stencils.md").read_text(encoding="utf-8")
    snippets = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    assert len(snippets) == 3
    page_names = {"__name__": "page"}
    for number, snippet in enumerate(snippets):
        name = f"<the page of stencils, {number}>"
        linecache.cache[name] = (len(snippet), None, snippet.splitlines(keepends=True), name)
        with names.override("emulator:h200"):
            exec(compile(snippet, name, "exec"), page_names)
    assert page_names["made"] > 0
    assert page_names["run"].step == 12
