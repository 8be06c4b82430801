"""The record file: what goes in comes out, other readers can open it, and bad files are refused in words."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memlane.errors import RecordError
from memlane.record import ACCESS_SCHEMA, CopyInfo, Trace, load, save
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


def test_the_driver_comes_back_and_older_files_do_without(tmp_path: Path, saved: Path) -> None:
    transpose(driver="580.159.04, CUDA 13.0").save(tmp_path / "driver.parquet")
    assert load(tmp_path / "driver.parquet").driver == "580.159.04, CUDA 13.0"
    assert load(saved).driver == ""


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
    assert metadata[b"memlane_format"] == b"3"
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
    with pytest.raises(RecordError, match=r"transpose\.parquet exists; pass --force"):
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
    with pytest.raises(RecordError, match=r"transpose\.parquet is (truncated|not a Parquet file)"):
        load(saved)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"launch,kernel\n0,naive\n", "is not a Parquet file"), (b"PAR1\x00\x00PAR1", "is damaged")]
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(RecordError, match=f"other {message}"):
        load(tmp_path / "other")


def test_a_parquet_file_of_someone_else(tmp_path: Path) -> None:
    pq.write_table(pa.table({"city": ["Aachen"]}), tmp_path / "cities.parquet")
    with pytest.raises(RecordError, match=r"cities\.parquet is a Parquet file, but not a memlane record"):
        load(tmp_path / "cities.parquet")


def test_a_flipped_bit_in_the_rows_is_noticed(saved: Path) -> None:
    column = pq.read_metadata(saved).row_group(0).column(ACCESS_SCHEMA.get_field_index("start"))
    data = bytearray(saved.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 0x10
    saved.write_bytes(bytes(data))
    with pytest.raises(RecordError, match=r"transpose\.parquet is damaged"):
        load(saved)


def test_a_flipped_byte_anywhere_is_one_sentence_with_a_remedy(saved: Path) -> None:
    """Where it is not noticed, nothing that is read depends on it."""
    data, before, refused = saved.read_bytes(), transpose(), 0
    for place in range(4, len(data) - 4, len(data) // 60):
        saved.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            after = load(saved)
        except RecordError as error:
            refused += 1
            text = str(error)
            assert text.startswith(str(saved)), text
            assert "\n" not in text, text
            assert text.endswith(("; record it again, or take another copy of it", "`memlane trace` writes records")), text
        else:
            assert after.table.equals(before.table)
            assert (after.sites, after.launches, after.sources) == (before.sites, before.launches, before.sources)
    assert refused > 30


def rewrite(path: Path, **metadata: str | None) -> None:
    """The same rows with other metadata."""
    kept = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items() if key.startswith(b"memlane")}
    kept = {key: value for key, value in (kept | metadata).items() if value is not None}
    pq.write_table(pq.read_table(path).replace_schema_metadata(kept), path)


def test_a_file_of_the_first_format(saved: Path) -> None:
    """It has all columns but two, which nobody knew of."""
    metadata = pq.read_metadata(saved).metadata
    old = {key: metadata[key] for key in (b"memlane_header", b"memlane_warps")} | {b"memlane_format": b"1"}
    pq.write_table(pq.read_table(saved).drop_columns(["exposed", "device"]).replace_schema_metadata(old), saved)
    before, after = transpose().table, load(saved).table
    assert after.schema.equals(ACCESS_SCHEMA)
    assert after["exposed"].null_count == after.num_rows == before.num_rows
    assert after.drop_columns(["exposed"]).equals(before.drop_columns(["exposed"]))


def test_a_file_of_the_second_format() -> None:
    """As memlane wrote it: it holds one device, which the rows and launches are of now."""
    trace = load(Path(__file__).parent / "files" / "format_2.parquet")
    assert trace.table.schema.equals(ACCESS_SCHEMA)
    assert trace.table["device"].unique().to_pylist() == ["emulator:h200"]
    assert [launch.device for launch in trace.launches] == ["emulator:h200"]
    assert (trace.devices, trace.copies) == (("emulator:h200",), ())
    assert (trace.table.num_rows, trace.launches[0].counts[1].sectors) == (16, 128)
    assert {site.line for site in trace.sites} == set(trace.table["line"].to_pylist())


def two_devices() -> Trace:
    """The launches of one trace on two devices."""
    one = transpose()
    names = pa.DictionaryArray.from_arrays(one.table["launch"].cast(pa.int32()).combine_chunks(), pa.array(["cuda:0", "cuda:1"]))
    launches = tuple(replace(launch, device=f"cuda:{launch.id}", path=(launch.id, 3), turns=(2,)) for launch in one.launches)
    place = ACCESS_SCHEMA.get_field_index("device")
    copies = (CopyInfo((1,), (), "cuda:0", 4096, "cuda:0", "host"),)
    table = one.table.set_column(place, ACCESS_SCHEMA.field("device"), names)
    return replace(one, table=table, launches=launches, target="cuda:0", copies=copies)


def test_several_devices_and_the_copies_of_a_plan_come_back(tmp_path: Path) -> None:
    trace = two_devices()
    trace.save(tmp_path / "t.parquet")
    after = load(tmp_path / "t.parquet")
    assert after.table.equals(trace.table)
    assert (after.launches, after.copies, after.devices) == (trace.launches, trace.copies, ("cuda:0", "cuda:1"))
    assert "(cuda:0, cuda:1)" in str(after)
    launch = after.table["launch"].to_numpy()
    apart = after.sms_apart(launch, after.table["sm"].to_numpy())
    assert {after.sm_name(number) for number in apart[launch == 1].tolist()} == {
        f"cuda:1 SM {sm}" for sm in after.table["sm"].to_numpy()[launch == 1].tolist()
    }
    assert not set(apart[launch == 0].tolist()) & set(apart[launch == 1].tolist())


def test_a_row_of_another_device_than_its_launch(tmp_path: Path) -> None:
    trace = two_devices()
    wrong = replace(trace, launches=tuple(replace(launch, device="cuda:0") for launch in trace.launches))
    wrong.save(tmp_path / "t.parquet")
    with pytest.raises(RecordError, match=r"row \d+ has device cuda:1, but its launch 1 has cuda:0"):
        load(tmp_path / "t.parquet")


def test_a_newer_format(saved: Path) -> None:
    rewrite(saved, memlane_format="4", memlane_header="whatever")
    with pytest.raises(RecordError, match="has record format 4, but this memlane reads only up to 3; install a newer memlane"):
        load(saved)


def header_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(pq.read_metadata(path).metadata[b"memlane_header"])))
    return found


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


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


Header = dict[str, Any]
PAIR = [1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["sites"][1].update(line="x"), r"header\.sites\[1\]\.line is not a whole number from 0 on"),
        (lambda h: h["sites"][1].update(line=-1), r"header\.sites\[1\]\.line is not a whole number from 0 on"),
        (lambda h: h["sites"][1].update(line=True), r"header\.sites\[1\]\.line is not a whole number from 0 on"),
        (lambda h: h["sites"][0].update(line=10**30), r"header\.sites\[0\]\.line is not a whole number from 0 on"),
        (lambda h: h["sites"][0].update(id=9), r"the ids in header\.sites are not 0, 1, 2"),
        (lambda h: h["sites"][0].pop("kernel"), r"header\.sites\[0\] has no kernel"),
        (lambda h: h["launches"][1].update(id=99), r"the ids in header\.launches are not 0, 1, 2"),
        (lambda h: h["launches"][0].update(grid=3), r"header\.launches\[0\]\.grid is not a list"),
        (lambda h: h["launches"][0].update(grid=PAIR), r"header\.launches\[0\]\.grid has 2 entries, not 3"),
        (lambda h: h["launches"][0]["counts"][0].update(sectors="9"), r"header\.launches\[0\]\.counts\[0\]\.sectors is not a whole number"),
        (lambda h: h["launches"][0]["counts"][0].update(site=7), r"header\.launches\[0\]\.counts\[0\]\.site is not an object"),
        (lambda h: h.update(sources=[1]), r"header\.sources is not an object"),
        (lambda h: h.update(windows={"paper": float("nan")}), r"header\.windows\['paper'\] is not a number"),
        (lambda h: h.update(modelled=1), r"header\.modelled is not a truth value"),
        (lambda h: h["warps"].update(rows=1 << 40), "the warp columns do not match their description"),
        (lambda h: h["warps"].update(rows=-1), r"header\.warps\.rows is not a whole number from 0 on"),
        (lambda h: h["warps"]["fields"][0].__setitem__(1, "O"), "the warp columns do not match their description"),
        (lambda h: h["launches"].pop(), "a warp names launch 1, but there are only 1"),
        (lambda h: h.pop("sites"), "header has no sites"),
    ],
)
def test_every_value_of_the_header_is_checked(saved: Path, change: Callable[[Header], object], message: str) -> None:
    header = header_of(saved)
    change(header)
    rewrite(saved, memlane_header=packed(json.dumps(header).encode()))
    with pytest.raises(RecordError, match=rf"transpose\.parquet is damaged: its memlane header cannot be read \({message}"):
        load(saved)


def test_what_a_newer_memlane_may_add_is_skipped_and_what_it_may_omit_has_its_default(saved: Path) -> None:
    header = header_of(saved)
    header["mood"] = header["sites"][0]["mood"] = header["launches"][0]["counts"][0]["mood"] = [1]
    del header["launches"][1]["counts"], header["sites"][2]["reason"]
    rewrite(saved, memlane_header=packed(json.dumps(header).encode()))
    after = load(saved)
    assert (after.sites[0], after.sites[2].reason, after.launches[1].counts) == (transpose().sites[0], "", ())
    assert after.launches[0] == transpose().launches[0]


def test_a_header_that_unpacks_to_more_than_any_header_is_refused_early(saved: Path) -> None:
    """A third of a megabyte that claims to be 300 MiB: what is unpacked stops at the limit."""
    bomb = zlib.compressobj(1)
    data = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(300)) + bomb.flush()
    rewrite(saved, memlane_header=base64.b64encode(data).decode())
    with pytest.raises(RecordError, match=r"header cannot be read \(it is cut short, or more than 268,435,456 bytes\)"):
        load(saved)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"sites": ' + "9" * 5000 + "}", '"\\ud800"'], ids=["deep", "long number", "no object"])
def test_json_that_is_no_header(saved: Path, text: str) -> None:
    rewrite(saved, memlane_header=packed(text.encode()))
    with pytest.raises(RecordError, match=r"transpose\.parquet is damaged: its memlane header cannot be read"):
        load(saved)


def test_warps_beyond_the_limit_are_neither_written_nor_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlane.record.header.WARPS_LIMIT_BYTES", 100)
    with pytest.raises(RecordError, match="too large for one record file: 416 bytes, but at most 100 are allowed; trace fewer launches"):
        transpose().save(saved, force=True)
    with pytest.raises(RecordError, match="more than 100 bytes"):
        load(saved)


@pytest.mark.parametrize("error", [MemoryError(), pa.ArrowMemoryError("no room")])
def test_no_memory_for_the_file(saved: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(metadata: object) -> None:
        raise error

    monkeypatch.setattr("memlane.record.file.decode", refuse)
    with pytest.raises(RecordError, match=r"transpose\.parquet cannot be read: there is not enough memory"):
        load(saved)


def test_source_text_that_is_no_utf8_can_be_saved(tmp_path: Path) -> None:
    text = b"// gr\xf6\xdfe\n".decode("utf-8", "surrogateescape")
    save(replace(transpose(), sources={"a.cu": text}), tmp_path / "latin.parquet")
    assert load(tmp_path / "latin.parquet").sources == {"a.cu": "// gr??e\n"}


def test_a_record_without_one_of_its_columns(saved: Path) -> None:
    pq.write_table(pq.read_table(saved).drop_columns(["sm"]).replace_schema_metadata({"memlane_format": "1"}), saved)
    with pytest.raises(RecordError, match="its columns are not those of a memlane record"):
        load(saved)


@pytest.mark.parametrize("known", [3, 5])
def test_rows_that_name_an_unknown_site(tmp_path: Path, known: int) -> None:
    """The sixth is the first that five sites lack."""
    save(replace(transpose(), sites=transpose().sites[:known]), tmp_path / "few.parquet")
    with pytest.raises(RecordError, match=rf"few\.parquet is damaged: a row names site 5, but the header has only {known}"):
        load(tmp_path / "few.parquet")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("line", pa.scalar(7, pa.uint32()), "row 3 has line 7, but its site 1 has 4; record it again"),
        ("op", pa.scalar("ld.param.u64"), "row 3 has op ld.param.u64, but its site 1 has st.global.f32; record it again"),
        ("completeness", pa.scalar("complete"), "row 3 has completeness complete, but its site 1 has issue-only; record it again"),
    ],
)
def test_rows_that_disagree_with_their_site(tmp_path: Path, name: str, value: pa.Scalar, message: str) -> None:
    trace = transpose()
    values = trace.table[name].to_pylist()
    assert trace.table["site"][3].as_py() == 1
    values[3] = value.as_py()
    field = ACCESS_SCHEMA.field(name)
    changed = (
        pa.array(values, field.type.value_type).dictionary_encode() if pa.types.is_dictionary(field.type) else pa.array(values, field.type)
    )
    table = trace.table.set_column(ACCESS_SCHEMA.get_field_index(name), field, changed)
    save(replace(trace, table=table), tmp_path / "odd.parquet")
    with pytest.raises(RecordError, match=message):
        load(tmp_path / "odd.parquet")
