"""Traces of several devices: each way to look at them names the device, and SMs of one number stay apart."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import memlane as ml
from memlane.export import export
from memlane.export.tracks import tracks
from memlane.record import Trace
from memlane.report import render_trace
from memlane.report.html import render_page
from tests.measure.test_plan_steps import bound
from tests.synthetic import transpose


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Of two emulated devices, both of whose launches ran on SM 0."""
    return ml.trace(bound())


def test_lines_of_two_devices_are_drawn_apart(trace: Trace) -> None:
    lives = tracks(trace).lives
    devices = np.array([launch.device for launch in trace.launches])[lives.launch]
    assert set(lives.sm.tolist()) == {0}
    assert len({*zip(devices.tolist(), lives.place.tolist(), strict=True)}) == len(set(lives.place.tolist())) == 2
    assert {trace.sm_name(place) for place in lives.place.tolist()} == {f"{name} SM 0" for name in trace.devices}


def test_csv_has_the_device_in_a_column(trace: Trace, tmp_path: Path) -> None:
    export(trace, "csv", tmp_path / "t.csv")
    head, *rows = (tmp_path / "t.csv").read_text().splitlines()
    place = head.replace('"', "").split(",").index("device")
    assert {row.split(",")[place].strip('"') for row in rows} == set(trace.devices)


def test_perfetto_names_the_device_of_each_sm(trace: Trace, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    from memlane.export.perfetto import protocol

    export(trace, "perfetto", tmp_path / "t.pftrace")
    read = protocol().Trace.FromString((tmp_path / "t.pftrace").read_bytes())
    named = {packet.track_descriptor.name for packet in read.packet if packet.HasField("track_descriptor")}
    assert {name for name in named if "SM" in name} == {f"{name} SM 0" for name in trace.devices}


def test_otf2_has_a_node_for_each_device(trace: Trace, tmp_path: Path) -> None:
    otf2 = pytest.importorskip("otf2")
    export(trace, "otf2", tmp_path / "t.otf2")
    with otf2.reader.open(str(next((tmp_path / "t.otf2").glob("*.otf2")))) as archive:
        groups = {group.name: group.system_tree_parent.name for group in archive.definitions.location_groups}
    assert groups == {f"{name} SM 0": f"h200 {name}" for name in trace.devices}


def test_clog2_names_the_device_of_each_warp(trace: Trace, tmp_path: Path) -> None:
    export(trace, "clog2", tmp_path / "t.clog2")
    data = (tmp_path / "t.clog2").read_bytes()
    assert all(f"warp of {name}".encode() in data for name in trace.devices)
    export(transpose(), "clog2", tmp_path / "one.clog2")
    assert b"warp of" not in (tmp_path / "one.clog2").read_bytes()


def test_the_page_and_the_table_name_the_devices(trace: Trace) -> None:
    page = render_page(trace)
    assert all(f"launch {launch.id} on {launch.device}" in page for launch in trace.launches)
    assert ", ".join(trace.devices) in page
    console = Console(width=200, file=io.StringIO())
    console.print(render_trace(trace))
    assert isinstance(console.file, io.StringIO)
    assert re.search(r"Targets \S+ \(3 launches\), \S+ \(3 launches\);", console.file.getvalue())
    assert "launch 0 on " not in render_page(transpose())
