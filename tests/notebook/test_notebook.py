"""IPython without a browser: what objects look like, and the magic that traces a cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memlane
from memlane.measure import count, trace
from memlane.ptx import parse
from memlane.targets import target
from tests.synthetic import counted, counts, site, transpose

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output
from traitlets.config import Config

PTX = Path(__file__).parents[2] / "examples" / "ptx" / "transpose.ptx"
CELL = f"""
import numpy as np
import memlane as ml
from pathlib import Path
machine = ml.target()
tiled = machine.load(ml.parse(Path({str(PTX)!r}).read_text(), "transpose.ptx"))["tiled"]
tiled[(2, 2), (32, 32)](machine.empty((64, 64), "f4"), machine.zeros((64, 64), "f4"), np.int32(64))
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """The one shell of a process, as Jupyter has it, with the extension loaded."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("MEMLANE_TARGET", "emulator:h200")
    config = Config()
    config.HistoryManager.enabled = False
    made = InteractiveShell.instance(config=config)
    made.run_line_magic("load_ext", "memlane")
    yield made
    made.run_line_magic("unload_ext", "memlane")
    made.history_manager.end_session()
    InteractiveShell.clear_instance()


def run(shell: InteractiveShell, code: str) -> tuple[CapturedIO, bool]:
    with capture_output() as captured:
        success = shell.run_cell(code).success
    return captured, success


def shown(captured: CapturedIO) -> list[dict[str, str]]:
    return [output.data for output in captured.outputs]


def looks(shell: InteractiveShell, one: object) -> dict[str, Any]:
    data, _ = shell.display_formatter.format(one)
    return data


def test_objects_show_themselves(shell: InteractiveShell) -> None:
    made = transpose()
    number = counts(counted(site(0, "ld.global.f32", 4), 128, sectors=32, ideal_sectors=4))
    for one, html, text in (
        (made, "ld.global.f32", "transpose.cu"),
        (number, "32 (4)", "32 (4)"),
        (memlane.explain(number), "32 sectors", "32 sectors"),
    ):
        data = looks(shell, one)
        assert html in re.sub(r"<[^>]*>", "", data["text/html"])
        assert text in data["text/plain"]
        assert max(map(len, data["text/plain"].splitlines())) <= 100
    assert set(looks(shell, memlane.compare(made, made))) == {"text/plain"}
    assert looks(shell, memlane.compare(made, made))["text/plain"].startswith("naive: no change.")


def test_within_others_they_are_one_line(shell: InteractiveShell) -> None:
    assert looks(shell, [transpose()])["text/plain"] == f"[{transpose()!r}]"


def test_without_the_extension_they_are_as_everywhere(shell: InteractiveShell) -> None:
    looks(shell, transpose())
    shell.run_line_magic("unload_ext", "memlane")
    assert looks(shell, transpose()) == {"text/plain": repr(transpose())}
    assert "memlane" not in shell.magics_manager.magics["cell"]
    shell.run_line_magic("load_ext", "memlane")


def test_a_cell_is_traced_and_its_result_shown(shell: InteractiveShell) -> None:
    captured, success = run(shell, f"%%memlane --into made --show transpose.cu:33\n{CELL}")
    assert success, captured.stderr
    table, findings, picture = shown(captured)
    assert "ld.shared.f32" in table["text/html"]
    assert "32 wavefronts" in re.sub(r"<[^>]*>", "", findings["text/html"])
    assert "32 lanes x 4 B take 32 wavefronts where 1 would do." in picture["image/svg+xml"]
    kept = shell.user_ns["made"]
    machine = target("emulator:h200")
    tiled = machine.load(parse(PTX.read_text(), "transpose.ptx"))["tiled"]
    arguments = (machine.empty((64, 64), "f4"), machine.zeros((64, 64), "f4"), 64)
    alone = trace(tiled[(2, 2), (32, 32)], *arguments)
    assert kept.table.num_rows == alone.table.num_rows
    assert [one.counts for one in kept.launches] == [one.counts for one in alone.launches]
    captured, success = run(shell, f"%%memlane --only-count --into numbers\n{CELL}")
    assert success
    [number] = shell.user_ns["numbers"]
    assert number.sites == count(tiled[(2, 2), (32, 32)], *arguments).sites


def test_what_the_cell_defines_stays(shell: InteractiveShell) -> None:
    run(shell, f"%%memlane\n{CELL}\nanswer = 42\nanswer")
    assert shell.user_ns["answer"] == 42


@pytest.mark.parametrize(
    ("line", "cell", "message"),
    [
        ("", "x = 1", "the cell launched no kernel through memlane, so there is nothing to show"),
        ("--speed", "x = 1", "unrecognized arguments: --speed; %%memlane [--target NAME]"),
        ("--into 2x", "x = 1", "--into 2x: that is not the name of a variable"),
        ("--scheme quick", "x = 1", "unknown scheme 'quick'; choose from "),
        ("--only-count --show a.cu:1", "x = 1", "--only-count does not trace; leave out --show and --counts"),
        ("--into 'a", "x = 1", "No closing quotation; %%memlane"),
    ],
)
def test_what_is_wrong_is_one_line(shell: InteractiveShell, line: str, cell: str, message: str) -> None:
    captured, success = run(shell, f"%%memlane {line}\n{cell}")
    assert not success
    said = captured.stdout + captured.stderr
    assert f"UsageError: {message}" in said
    assert "Traceback" not in said


def test_a_cell_that_fails_says_so_and_shows_what_it_did(shell: InteractiveShell) -> None:
    captured, success = run(shell, f"%%memlane --into kept\n{CELL}\n1 / 0")
    assert captured.stdout.count("ZeroDivisionError") == 2, "once in the heading of the traceback, once at its end"
    assert "ld.shared.f32" in shown(captured)[0]["text/html"]
    assert "the program failed: ZeroDivisionError: division by zero" in shown(captured)[0]["text/html"]
    assert "failed: ZeroDivisionError: division by zero." in " ".join(shown(captured)[0]["text/plain"].split())
    assert shell.user_ns["kept"].failed == "ZeroDivisionError: division by zero"
    assert not success, "the cells below do not run"
    assert captured.stderr == "UsageError: the cell failed: ZeroDivisionError: division by zero\n"
    captured, success = run(shell, "%%memlane\n1 / 0")
    assert (shown(captured), success) == ([], False)
    assert captured.stderr == "UsageError: the cell failed: ZeroDivisionError: division by zero\n"


def test_a_launch_that_broke_off_in_a_cell_is_told(shell: InteractiveShell) -> None:
    wrong = "\ntry:\n    tiled[(4, 4), (32, 32)](machine.empty((64, 64), 'f4'), machine.zeros((64, 64), 'f4'), np.int32(4096))\n"
    captured, success = run(shell, f"%%memlane --only-count\n{CELL}{wrong}except ml.MemlaneError:\n    pass")
    assert success
    assert "Launch 1 (tiled) failed: kernel tiled(float*, float const*, int), transpose.cu:" in captured.stdout
    assert captured.stdout.endswith(". It is not counted.\n")
