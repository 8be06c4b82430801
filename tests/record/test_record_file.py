"""The record file: what goes in comes out, other readers can open it, and bad files are refused in words."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memlane.errors import RecordError
from memlane.record import ACCESS_SCHEMA, Trace, load, save
from tests.synthetic import transpose


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "transpose.parquet"
    transpose().save(path)
    return path


def test_a_trace_comes_back_whole(saved: Path) -> None:
    before, after = transpose(), Trace.load(saved)
    assert after.table.schema.equals(ACCESS_SCHEMA)
    assert after.table.equals(before.table)
    assert after.warps.dtype == before.warps.dtype
    assert np.array_equal(after.warps, before.warps)
    for name in ("sites", "launches", "chip", "target", "modelled", "sources", "windows", "version", "lost"):
        assert getattr(after, name) == getattr(before, name), name


def test_an_empty_trace_comes_back(tmp_path: Path) -> None:
    empty = replace(transpose(), table=ACCESS_SCHEMA.empty_table(), sites=(), launches=(), warps=transpose().warps[:0])
    save(empty, tmp_path / "empty.parquet")
    after = load(tmp_path / "empty.parquet")
    assert (after.table.num_rows, after.sites, after.launches, len(after.warps)) == (0, (), (), 0)


def test_rows_of_several_chunks_come_back_as_one(tmp_path: Path) -> None:
    trace = transpose()
    pieces = pa.concat_tables([trace.table.slice(0, 7), trace.table.slice(7)])
    save(replace(trace, table=pieces), tmp_path / "pieces.parquet")
    assert load(tmp_path / "pieces.parquet").table.equals(trace.table)


def test_a_stranger_reads_rows_and_header(saved: Path) -> None:
    table = pq.read_table(saved)
    assert table.num_rows == transpose().table.num_rows
    assert set(table["op"].to_pylist()) == {"ld.global.f32", "st.global.f32", "st.shared.f32", "ld.shared.f32"}
    metadata = pq.read_metadata(saved).metadata
    assert metadata[b"memlane_format"] == b"1"
    header = json.loads(zlib.decompress(base64.b64decode(metadata[b"memlane_header"])))
    assert header["chip"] == "NVIDIA H200"
    assert header["sites"][1]["op"] == "st.global.f32"
    assert header["sources"] == dict(transpose().sources)
    columns = zlib.decompress(base64.b64decode(metadata[b"memlane_warps"]))
    rows, (first, dtype) = header["warps"]["rows"], header["warps"]["fields"][0]
    assert first == "launch"
    assert np.frombuffer(columns, dtype, rows).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_metadata_is_plain_ascii_whatever_the_source_says(tmp_path: Path) -> None:
    trace = replace(transpose(), sources={"größe.cu": "// 大きさ \x00 \n"})
    save(trace, tmp_path / "names.parquet")
    assert all(value.isascii() for value in pq.read_metadata(tmp_path / "names.parquet").metadata.values())
    assert load(tmp_path / "names.parquet").sources == trace.sources


def test_an_existing_file_stays(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(RecordError, match=r"transpose\.parquet exists; give --force"):
        transpose().save(saved)
    assert saved.read_bytes() == before
    transpose(chip="another").save(saved, force=True)
    assert load(saved).chip == "another"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none\.parquet: there is no such file"):
        load(tmp_path / "none.parquet")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is a directory; name a record file"):
        load(tmp_path)


@pytest.mark.parametrize("kept", [3, 4, 100, -1, -4, -600])
def test_a_truncated_file(saved: Path, kept: int) -> None:
    saved.write_bytes(saved.read_bytes()[:kept])
    with pytest.raises(RecordError, match=r"transpose\.parquet is (truncated|no Parquet file)"):
        load(saved)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"launch,kernel\n0,naive\n", "is no Parquet file"), (b"PAR1\x00\x00PAR1", "is damaged")]
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(RecordError, match=f"other {message}"):
        load(tmp_path / "other")


def test_a_parquet_file_of_someone_else(tmp_path: Path) -> None:
    pq.write_table(pa.table({"city": ["Aachen"]}), tmp_path / "cities.parquet")
    with pytest.raises(RecordError, match=r"cities\.parquet is a Parquet file, but no memlane record"):
        load(tmp_path / "cities.parquet")


def test_a_flipped_bit_in_the_rows_is_noticed(saved: Path) -> None:
    column = pq.read_metadata(saved).row_group(0).column(ACCESS_SCHEMA.get_field_index("start"))
    data = bytearray(saved.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 0x10
    saved.write_bytes(bytes(data))
    with pytest.raises(RecordError, match=r"transpose\.parquet is damaged"):
        load(saved)


def rewrite(path: Path, **metadata: str | None) -> None:
    """The same rows with other metadata."""
    kept = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items() if key.startswith(b"memlane")}
    kept = {key: value for key, value in (kept | metadata).items() if value is not None}
    pq.write_table(pq.read_table(path).replace_schema_metadata(kept), path)


def test_a_newer_format(saved: Path) -> None:
    rewrite(saved, memlane_format="2", memlane_header="whatever")
    with pytest.raises(RecordError, match="has record format 2, this memlane reads up to 1; install a newer memlane"):
        load(saved)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"memlane_format": "one"}, "its memlane_format is 'one'"),
        ({"memlane_header": None}, "header cannot be read"),
        ({"memlane_header": "%%%"}, "header cannot be read"),
        ({"memlane_header": base64.b64encode(zlib.compress(b"{}")).decode()}, "header cannot be read"),
        ({"memlane_header": base64.b64encode(zlib.compress(b"[]")).decode()}, "header cannot be read"),
        ({"memlane_warps": base64.b64encode(b"no zlib").decode()}, "header cannot be read"),
        ({"memlane_warps": base64.b64encode(zlib.compress(b"short")).decode()}, "header cannot be read"),
    ],
)
def test_a_damaged_header(saved: Path, metadata: dict[str, str | None], message: str) -> None:
    rewrite(saved, **metadata)
    with pytest.raises(RecordError, match=rf"transpose\.parquet is damaged: .*{message}"):
        load(saved)


def test_a_record_without_one_of_its_columns(saved: Path) -> None:
    pq.write_table(pq.read_table(saved).drop_columns(["sm"]).replace_schema_metadata({"memlane_format": "1"}), saved)
    with pytest.raises(RecordError, match="its columns are not those of a memlane record"):
        load(saved)


def test_rows_that_name_an_unknown_site(tmp_path: Path) -> None:
    save(replace(transpose(), sites=transpose().sites[:3]), tmp_path / "few.parquet")
    with pytest.raises(RecordError, match=r"few\.parquet is damaged: a row names site 5, the header has 3"):
        load(tmp_path / "few.parquet")
