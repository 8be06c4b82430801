"""OTF2 archives, read back by the reader of the format's own library: regions nested location by location."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import _otf2
import otf2
import otf2.events
import otf2.reader
import pytest

from memlane.cli import main
from memlane.errors import CommandError, RecordError
from memlane.export import export
from memlane.record import Trace
from tests.synthetic import overlapping, transpose


@dataclass(frozen=True)
class Entered:
    region: str
    group: str
    location: str
    depth: int
    enter: int
    leave: int
    said: dict[str, int]
    source: tuple[str | None, int]


def read(path: Path) -> list[Entered]:
    """All regions that were entered; times of a location must not go back, and what is left must be what was entered last."""
    found = []
    with otf2.reader.open(str(path / "traces.otf2")) as archive:
        assert archive.timer_resolution == 10**9
        open_regions: dict[int, list[otf2.events.Enter]] = {}
        last: Counter[int] = Counter()
        for location, event in archive.events:
            stack = open_regions.setdefault(id(location), [])
            assert event.time >= last[id(location)]
            last[id(location)] = event.time
            if isinstance(event, otf2.events.Enter):
                stack.append(event)
                continue
            began = stack.pop()
            assert began.region is event.region
            said = {key.name: value for key, value in (began.attributes or {}).items()}
            source = (began.region.source_file, began.region.begin_line_number)
            found.append(Entered(began.region.name, location.group.name, location.name, len(stack), began.time, event.time, said, source))
        assert not any(open_regions.values())
    return found


def written(trace: Trace, folder: Path) -> list[Entered]:
    export(trace, "otf2", folder / "t.otf2", force=True)
    return read(folder / "t.otf2")


def test_every_access_lies_in_the_life_of_its_warp(tmp_path: Path) -> None:
    trace = transpose()
    entered = written(trace, tmp_path)
    lives = [one for one in entered if one.region in ("naive", "tiled")]
    accesses = [one for one in entered if one.region not in ("naive", "tiled")]
    assert len(lives) == len(trace.warps)
    assert {(one.group, one.location) for one in lives} == {(f"SM {sm}", f"slot {slot}") for sm in (0, 1) for slot in range(4)}
    wanted = Counter()
    for row in trace.table.to_pylist():
        said = {"block": row["block"], "warp": row["warp"], "cycles": row["end"] - row["start"]}
        said |= {name: row[name] for name in ("sectors", "wavefronts") if row[name] is not None}
        wanted[f"{row['file']}:{row['line']} {row['op']}", f"SM {row['sm']}", *sorted(said.items())] += 1
    assert Counter((one.region, one.group, *sorted(one.said.items())) for one in accesses) == wanted
    for one in accesses:
        life = next(life for life in lives if (life.group, life.location) == (one.group, one.location.partition(", ")[0]))
        assert life.enter <= one.enter <= one.leave <= life.leave
        assert {name: life.said[name] for name in ("block", "warp")} == {name: one.said[name] for name in ("block", "warp")}
        assert one.depth == (1 if "overlapping" not in one.location else 0)
        assert one.source == ("transpose.cu", int(one.region.partition(":")[2].partition(" ")[0]))


def test_times_are_ns_since_the_trace_began(tmp_path: Path) -> None:
    trace = transpose()
    entered = written(trace, tmp_path)
    assert min(one.enter for one in entered) == 0
    first = min((one for one in entered if "cycles" in one.said), key=lambda one: one.enter)
    assert first.enter == int((trace.table.to_pylist()[0]["start"] + 10) / 1.98)  # its warp began at cycle -10


def test_a_location_takes_no_more_memory_than_it_must(tmp_path: Path) -> None:
    """The library's own 4 MiB for the definitions of each location made thousands of them take minutes."""
    written(transpose(), tmp_path)
    with otf2.reader.open(str(tmp_path / "t.otf2" / "traces.otf2")) as archive:
        assert _otf2.Reader_GetChunkSize(archive.handle) == (1 << 18, 1 << 18)


def test_what_many_locations_take_is_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transpose().save(tmp_path / "t.parquet")
    command = ["export", str(tmp_path / "t.parquet"), "--to", "otf2", "--force", "--output", str(tmp_path / "t.otf2")]
    assert main(command) == 0
    assert capsys.readouterr().err == ""
    locations = len({(one.group, one.location) for one in read(tmp_path / "t.otf2")})
    monkeypatch.setattr("memlane.export.otf2.MANY", locations)
    assert main(command) == 0
    assert capsys.readouterr().err == (
        f"memlane: note: the archive has {locations} locations, with two files each; writing it needs {locations // 2} MiB of "
        "memory and some seconds per thousand locations; "
        "to make it smaller, trace fewer warps (--every 32, --sms 0-3), or export --to perfetto\n"
    )


def test_accesses_that_overlap_are_on_locations_of_their_own(tmp_path: Path) -> None:
    accesses = sorted((one for one in written(overlapping(), tmp_path) if one.region != "k"), key=lambda one: one.enter)
    assert [one.location for one in accesses] == ["slot 0", "slot 0, overlapping 1", "slot 0, overlapping 2", "slot 0, overlapping 1"]
    assert [one.said["cycles"] for one in accesses] == [1000, 400, 100, 100]
    assert all(abs(one.leave - one.enter - one.said["cycles"] / 1.98) <= 1 for one in accesses)
    assert all(before.leave <= after.enter for before, after in pairwise(one for one in accesses if one.location.endswith("1")))


def test_warps_that_follow_each_other_in_a_slot(tmp_path: Path) -> None:
    trace = transpose()
    warps = trace.warps.copy()
    later = warps["launch"] == 1
    for name in ("begin_cycles", "end_cycles", "begin_ns", "end_ns"):
        warps[name][later] += 20_000
    table = trace.table
    starts = table["start"].to_numpy() + 20_000 * (table["launch"].to_numpy() == 1)
    ends = table["end"].to_numpy() + 20_000 * (table["launch"].to_numpy() == 1)
    for name, column in (("start", starts), ("end", ends)):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), [column])
    entered = written(replace(trace, table=table, warps=warps), tmp_path)
    assert {one.location for one in entered if one.region == "naive"} == {one.location for one in entered if one.region == "tiled"}
    assert len([one for one in entered if "cycles" in one.said]) == table.num_rows


def test_a_trace_without_accesses_shows_its_warps(tmp_path: Path) -> None:
    trace = transpose()
    assert {one.region for one in written(replace(trace, table=trace.table.slice(0, 0)), tmp_path)} == {"naive", "tiled"}


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "otf2", None)
    with pytest.raises(
        CommandError, match=r"^writing OTF2 archives needs the package otf2; install it with: .*pip install 'memlane\[otf2\]'$"
    ):
        export(transpose(), "otf2", tmp_path / "t.otf2")
    assert list(tmp_path.iterdir()) == []


def test_only_an_archive_is_replaced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter").write_text("dear")
    with pytest.raises(RecordError, match=r"home is a directory without traces\.otf2, so it may hold other files; name another directory$"):
        export(transpose(), "otf2", home, force=True)
    assert (home / "letter").read_text() == "dear"
    with pytest.raises(RecordError, match=r"letter is a file, but this format is a directory; name another path$"):
        export(transpose(), "otf2", home / "letter", force=True)
    with pytest.raises(RecordError, match=r"cannot be written: there is no directory .*nowhere$"):
        export(transpose(), "otf2", tmp_path / "nowhere" / "t.otf2")


def test_an_archive_that_exists_stays_without_force_and_is_replaced_with_it(tmp_path: Path) -> None:
    trace = transpose()
    path = tmp_path / "t.otf2"
    export(replace(trace, table=trace.table.slice(0, 0)), "otf2", path)
    with pytest.raises(RecordError, match=r"t\.otf2 exists; pass --force"):
        export(trace, "otf2", path)
    assert len(read(path)) == len(trace.warps)
    export(trace, "otf2", path, force=True)
    assert len(read(path)) == len(trace.warps) + trace.table.num_rows
    assert os.listdir(tmp_path) == ["t.otf2"]


def test_an_export_that_fails_keeps_the_old_archive(tmp_path: Path) -> None:
    trace = transpose()
    path = tmp_path / "t.otf2"
    export(trace, "otf2", path)
    with pytest.raises(RecordError, match="lacks the clocks of some of its warps"):
        export(replace(trace, warps=trace.warps[:0]), "otf2", path, force=True)
    assert len(read(path)) == len(trace.warps) + trace.table.num_rows
    assert os.listdir(tmp_path) == ["t.otf2"]


@pytest.mark.skipif("MEMLANE_OTF2_PRINT" not in os.environ, reason="MEMLANE_OTF2_PRINT names no otf2-print")
def test_otf2_print_reads_it(tmp_path: Path) -> None:
    trace = transpose()
    export(trace, "otf2", tmp_path / "t.otf2")
    command = [os.environ["MEMLANE_OTF2_PRINT"], str(tmp_path / "t.otf2" / "traces.otf2")]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    assert shown.stderr == ""
    for kind in ("ENTER ", "LEAVE "):
        assert sum(line.startswith(kind) for line in shown.stdout.splitlines()) == trace.table.num_rows + len(trace.warps)
    assert shown.stdout.count('"cycles"') == trace.table.num_rows
