"""`memlane explain`, `export` and `doctor`, and the help."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from memlane.record import load
from memlane.targets import describe
from tests.cli.conftest import EXAMPLES, Answer, Command

Golden = Callable[[str, str], None]


def plain(answer: Answer) -> str:
    return "".join(f"{line.rstrip()}\n" for line in answer.lines)


# -- explain ---------------------------------------------------------------------------------------------------------------------


def test_explain_says_what_is_wrong_with_the_transposes(memlane: Command, record: str, golden: Golden) -> None:
    answer = memlane("explain", record)
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[-1] == "Next: memlane report transpose.parquet"
    # Modelled cycles depend on what the target has run before.
    golden("explain.txt", re.sub(r"\d+ % of", "... % of", plain(answer)))


def test_why_tells_how_each_cost_was_found(memlane: Command, record: str, golden: Golden) -> None:
    text = re.sub(r"   Cost: .*?\n\n", "   Cost: ...\n\n", plain(memlane("explain", record, "--why")), flags=re.DOTALL)
    golden("explain-why.txt", re.sub(r"(Modelled time of \w+) .*?\n(?=Modelled|Costs)", r"\1 ...\n", text, flags=re.DOTALL))


def test_explain_as_json(memlane: Command, record: str) -> None:
    findings = json.loads(memlane("explain", record, "--json").out)["findings"]
    found = {
        (one["rule"], one["kernel"].partition("(")[0], one["line"]): (one["per_request"], one["ideal_per_request"]) for one in findings
    }
    assert found == {("bank-conflict", "tiled", 33): (32, 1), ("uncoalesced-global", "naive", 18): (32, 4)}


def test_nothing_to_find(memlane: Command) -> None:
    words = ("--kernel", "padded", "--grid", "2,2", "--block", "32,32", "--arg", "f4[64,64]", "--arg", "f4[64,64]", "--arg", "64:i4")
    assert memlane("trace", EXAMPLES / "ptx" / "transpose.ptx", *words).code == 0
    answer = memlane("explain", "transpose.parquet")
    assert answer.code == 0
    assert json.loads(memlane("explain", "transpose.parquet", "--json").out)["findings"] == []


# -- export ----------------------------------------------------------------------------------------------------------------------


def test_export_writes_every_access_as_a_line(memlane: Command, record: str) -> None:
    answer = memlane("export", record, "--to", "csv")
    assert (answer.code, answer.lines) == (0, ["Wrote transpose.csv"])
    with open("transpose.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    table = load(record).table
    assert len(rows) == table.num_rows == 4 * 32 * (2 + 4 + 4)
    for column, name in (("start", "start_cycles"), ("end", "end_cycles"), ("line", "line"), ("active_mask", "active_mask")):
        assert [int(row[name]) for row in rows] == table[column].to_pylist()
    shared = [row for row in rows if row["space"] == "shared"]
    assert {(row["sectors"], row["wavefronts"]) for row in shared if row["kernel"].startswith("tiled")} == {("", "1"), ("", "32")}
    assert {row["sectors"] for row in rows if row["op"] == "st.global.f32" and row["kernel"].startswith("naive")} == {"32"}


def test_export_goes_where_it_is_told_and_replaces_only_with_force(memlane: Command, record: str) -> None:
    assert memlane("export", record, "--to", "csv", "-o", "rows.csv").lines == ["Wrote rows.csv"]
    assert memlane("export", record, "--to", "csv", "-o", "rows.csv").code == 2
    assert memlane("export", record, "--to", "csv", "-o", "rows.csv", "--force").code == 0


# -- doctor and help -------------------------------------------------------------------------------------------------------------


def test_doctor_prints_each_finding_on_a_line(memlane: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(tmp_path / "cache"))  # other tests fill the store that they share
    answer = memlane("doctor")
    assert answer.code == 0
    assert answer.lines == [str(finding) for finding in describe()]
    assert any(line.startswith("yes emulator: ") for line in answer.lines)
    assert "h200" in answer.lines[-1]


@pytest.mark.parametrize("command", ["trace", "count", "explain", "export", "doctor"])
def test_every_command_is_in_the_help_and_has_its_own(memlane: Command, command: str) -> None:
    assert f"  {command} " in memlane("--help").out
    answer = memlane(command, "--help")
    assert answer.code == 0
    assert answer.lines[0].startswith(f"Usage: memlane {command} ")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("trace", "--kernel --grid --block --arg --shared --scheme --space --kind --line --launch --define --instantiate --std --arch"),
        ("trace", "--target --output --force"),
        ("count", "--kernel --grid --block --arg --shared --launch --define --instantiate --std --arch --target --json --csv"),
        ("export", "--to --output --force"),
        ("explain", "--json"),
    ],
)
def test_help_names_the_options(memlane: Command, command: str, options: str) -> None:
    text = memlane(command, "--help").out
    for option in options.split():
        assert option in text
