"""CSV: every row and column, empty where unknown, readable by the standard library."""

from __future__ import annotations

import csv
import io
import locale
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from memlane.errors import CommandError, RecordError
from memlane.export import export, exporters
from memlane.record import ACCESS_SCHEMA, Trace
from tests.synthetic import SOURCE, transpose

HEADER = (
    "launch kernel file line op space site bytes_per_lane block sm warp active_mask execution "
    "start_cycles end_cycles completeness sectors wavefronts exposed_cycles device"
)
TIMES = " start_ns end_ns"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_every_row_and_column_is_there(tmp_path: Path) -> None:
    trace = transpose()
    export(trace, "csv", tmp_path / "t.csv")
    rows = read(tmp_path / "t.csv")
    assert list(rows[0]) == (HEADER + TIMES).split()
    expected = [
        {name: "" if value is None else str(value) for name, value in zip(HEADER.split(), row.values(), strict=True)}
        for row in trace.table.to_pylist()
    ]
    assert [{name: row[name] for name in HEADER.split()} for row in rows] == expected
    assert {row["wavefronts"] for row in rows} == {"", "1", "32"}


def test_times_in_ns_are_those_of_the_common_axis(tmp_path: Path) -> None:
    trace = transpose()
    export(trace, "csv", tmp_path / "t.csv")
    for row in read(tmp_path / "t.csv"):
        cycles = int(row["end_cycles"]) - int(row["start_cycles"])
        assert float(row["end_ns"]) - float(row["start_ns"]) == pytest.approx(cycles / 1.98, abs=0.11)
    export(replace(trace, warps=trace.warps[:0]), "csv", tmp_path / "bare.csv")
    assert {(row["start_ns"], row["end_ns"]) for row in read(tmp_path / "bare.csv")} == {("", "")}


def test_the_first_line_is_the_header_and_lines_end_in_line_feeds(tmp_path: Path) -> None:
    export(transpose(), "csv", tmp_path / "t.csv")
    data = (tmp_path / "t.csv").read_bytes()
    assert data.split(b"\n", 1)[0].decode().replace('"', "").split(",") == (HEADER + TIMES).split()
    assert b"\r" not in data
    assert data.endswith(b"\n")


def test_names_with_commas_quotes_and_umlauts(tmp_path: Path) -> None:
    trace = transpose()
    names = pa.array(['f<"a", b>(größe)'] * trace.table.num_rows).dictionary_encode()
    odd = replace(trace, table=trace.table.set_column(1, ACCESS_SCHEMA.field("kernel"), names))
    export(odd, "csv", tmp_path / "t.csv")
    assert {row["kernel"] for row in read(tmp_path / "t.csv")} == {'f<"a", b>(größe)'}


def test_rows_of_many_batches_are_written_in_order() -> None:
    trace = transpose()
    many = replace(trace, table=pa.concat_tables([trace.table] * 1500))
    stream = io.BytesIO()
    exporters["csv"].write(many, stream)
    starts = [int(row["start_cycles"]) for row in csv.DictReader(io.StringIO(stream.getvalue().decode()))]
    assert len(starts) > 1 << 16
    assert starts == trace.table["start"].to_pylist() * 1500


def test_numbers_do_not_follow_the_locale(tmp_path: Path) -> None:
    before = locale.setlocale(locale.LC_ALL)
    for name in ("de_DE.UTF-8", "C.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_ALL, name)
        except locale.Error:  # not installed here
            continue
        try:
            export(transpose(), "csv", tmp_path / f"{name}.csv")
        finally:
            locale.setlocale(locale.LC_ALL, before)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_a_trace_without_rows_is_a_header(tmp_path: Path) -> None:
    export(replace(transpose(), table=ACCESS_SCHEMA.empty_table()), "csv", tmp_path / "t.csv")
    assert read(tmp_path / "t.csv") == []
    assert (tmp_path / "t.csv").read_bytes().count(b"\n") == 1


def test_an_existing_file_stays_without_force(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(SOURCE)
    with pytest.raises(RecordError, match=r"t\.csv exists; pass --force"):
        export(transpose(), "csv", path)
    assert path.read_text() == SOURCE
    export(transpose(), "csv", path, force=True)
    assert len(read(path)) == transpose().table.num_rows


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    broken = replace(transpose(), table=transpose().table.drop_columns(["op"]))
    with pytest.raises((pa.ArrowInvalid, ValueError)):
        export(broken, "csv", tmp_path / "t.csv")
    assert os.listdir(tmp_path) == []


def test_an_unknown_format_names_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"unknown export format 'xlsx'; choose from: .*csv"):
        export(transpose(), "xlsx", tmp_path / "t.xlsx")


def test_every_exporter_has_the_suffix_it_writes_and_a_summary() -> None:
    for name, entry in exporters.items():
        assert entry.name == name
        assert entry.suffix.startswith(".")
        assert entry.summary


def test_a_loaded_trace_exports_like_the_one_that_was_saved(tmp_path: Path) -> None:
    transpose().save(tmp_path / "t.parquet")
    export(transpose(), "csv", tmp_path / "before.csv")
    export(Trace.load(tmp_path / "t.parquet"), "csv", tmp_path / "after.csv")
    assert (tmp_path / "before.csv").read_bytes() == (tmp_path / "after.csv").read_bytes()
