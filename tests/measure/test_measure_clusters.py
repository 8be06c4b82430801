"""Accesses to the shared memory of other blocks, traced and counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memlane.emulate import Emulator
from memlane.instrument import Selection
from memlane.measure import count, trace
from memlane.ptx import parse
from memlane.record import COMPLETE, Trace
from memlane.report import render_trace, to_text
from tests.emulate.running import emulator, program
from tests.emulate.test_clusters import REACH


def reach(target: Emulator):
    return target.load(parse(program(REACH), "reach.ptx"))["k"][8, 32, None, 0, 4]


def test_sites_that_name_other_blocks_have_a_space_of_their_own(tmp_path: Path) -> None:
    target = emulator()
    plain, traced = (target.zeros((8, 32, 12), np.uint32) for _ in range(2))
    reach(target)(plain)
    found = trace(reach(target), traced)
    assert (traced.numpy() == plain.numpy()).all()
    assert found.lost == 0
    assert found.launches[0].cluster == (4, 1, 1)
    assert "grid 8, block 32, clusters of 4" in to_text(render_trace(found), 120)
    found.save(tmp_path / "clusters.parquet")
    assert Trace.load(tmp_path / "clusters.parquet").launches[0].cluster == (4, 1, 1)
    sites = {site.op: site for site in found.sites if site.space == "shared::cluster"}
    names = ["ld.shared::cluster.u32", "st.shared::cluster.u32", "red.relaxed.cluster.shared::cluster.add.u32"]
    assert list(sites) == names
    assert [sites[name].kind for name in names] == ["load", "store", "reduction"]
    assert sites[names[0]].completeness == COMPLETE
    rows = [row for row in found.table.to_pylist() if row["space"] == "shared::cluster"]
    assert len(rows) == 3 * 8
    assert all(row["sectors"] is None and row["wavefronts"] is None for row in rows)
    assert min(row["end"] - row["start"] for row in rows if row["op"] == names[0]) >= 180
    only = trace(reach(target), target.zeros((8, 32, 12), np.uint32), selection=Selection(spaces={"shared::cluster"}))
    assert len(only.table) == 3 * 8


def test_what_they_cost_is_not_counted_and_said_so() -> None:
    target = emulator()
    found = count(reach(target), target.zeros((8, 32, 12), np.uint32))
    by_op = {entry.site.op: entry for entry in found.sites}
    remote = by_op["ld.shared::cluster.u32"]
    assert (remote.requests, remote.lanes, remote.bytes) == (8, 256, 1024)
    assert remote.wavefronts is None
    assert remote.sectors is None
    # A generic address with the rank of the own block is one of its own memory: there are 8 lanes of each warp, which add one to one word.
    assert by_op["atom.add.u32"].wavefronts == 8
    told = {one.op: one.reason for one in found.skipped}
    assert told["ld.shared::cluster.u32"].startswith("what an access to the shared memory of another block costs there is not published")


@pytest.mark.parametrize("name", ["sampled", "staged"])
def test_kernels_in_clusters_are_traced_in_part_and_through_a_stage(name: str) -> None:
    target = emulator()
    plain, traced = (target.zeros((8, 32, 12), np.uint32) for _ in range(2))
    reach(target)(plain)
    options = {"sampled": {"every": 3}, "staged": {"staging": "shared"}}[name]
    found = trace(reach(target), traced, **options)
    assert (traced.numpy() == plain.numpy()).all()
    assert found.lost == 0
