"""The page of a trace that was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memlane.driver import Device
from memlane.launch import LoadedModule
from memlane.measure import trace
from memlane.record import time_axis
from tests.report.html.reading import columns_of, data_of, read

report = pytest.importorskip("memlane.report.html", reason="the page needs jinja2: pip install jinja2", exc_type=ImportError)
pytestmark = pytest.mark.gpu


def test_a_measured_trace_has_its_page(gpu: Device, on_gpu: LoadedModule, tmp_path: Path) -> None:
    count = 1 << 15
    source, target = gpu.array(np.arange(count, dtype=np.float32)), gpu.zeros(count)
    recorded = trace(on_gpu["add_one"][count // 128, 128], target, source, count, counts=True)
    report.write_report(recorded, tmp_path / "measured.html")
    root = read((tmp_path / "measured.html").read_text(encoding="utf-8"))
    about = root.by_id("about")
    terms = dict(zip((one.text for one in about.all("dt")), (one.text for one in about.all("dd")), strict=True))
    assert terms["driver"] == recorded.driver
    assert "CUDA" in recorded.driver
    assert terms["times"] == "measured"
    data, columns = data_of(root), columns_of(root)
    (line,) = data["launches"]
    assert line["accesses"] == line["accesses_kept"] == recorded.table.num_rows
    loads = next(one for one in data["operations"] if one["op"].startswith("ld"))
    assert [level["name"] for level in loads["levels"]] in ([], ["L1", "L2", "DRAM"])
    # Every access lies in the life of its warp, on the axis that has the clocks of all multiprocessors on it.
    axis = time_axis(recorded)
    ends = columns["0/access.start"] * line["tick_ns"] + columns["0/access.cycles"] / line["ghz"]
    assert line["ghz"] == axis.frequency_ghz[0]
    assert 0 < ends.max() <= line["span_ns"] + 1
