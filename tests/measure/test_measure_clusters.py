"""Accesses to the shared memory of other blocks, traced and counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memlane.emulate import Emulator
from memlane.errors import CommandError
from memlane.instrument import Selection
from memlane.measure import count, trace
from memlane.ptx import parse
from memlane.record import COMPLETE, Trace
from memlane.report import render_counts, render_trace, to_text
from memlane.report.show import SourcePlace, examples_at
from tests.emulate.running import emulator, program

REACH = """
    .shared .align 4 .b32 sum; mov.u32 %r10, sum; mov.u32 %r9, %tid; st.shared.u32 [sum], %r9;
    barrier.cluster.arrive; barrier.cluster.wait;
    and.b32 %r16, %tid, 3; mapa.shared::cluster.u32 %r17, %r10, %r16; ld.shared::cluster.u32 %r20, [%r17];
    mov.u64 %rd11, sum; cvta.shared.u64 %rd11, %rd11; mapa.u64 %rd12, %rd11, %r16;
    barrier.cluster.arrive; barrier.cluster.wait;
    atom.add.u32 %r21, [%rd12], 1;
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 5; add.u32 %r1, %r1, %tid; mad.wide.u32 %rd1, %r1, 8, %out;
    ld.shared.u32 %r22, [sum]; st.global.v2.u32 [%rd1], {%r20, %r22}; ret;
"""


def reach(target: Emulator):
    return target.load(parse(program(REACH), "reach.ptx"))["k"][8, 32, None, 0, 4]


def test_sites_that_name_other_blocks_have_a_space_of_their_own(tmp_path: Path) -> None:
    target = emulator()
    plain, traced = (target.zeros((8, 32, 2), np.uint32) for _ in range(2))
    reach(target)(plain)
    found = trace(reach(target), traced)
    assert (traced.numpy() == plain.numpy()).all()
    assert found.lost == 0
    assert found.launches[0].cluster == (4, 1, 1)
    assert "grid 8, block 32, clusters of 4" in to_text(render_trace(found), 120)
    found.save(tmp_path / "clusters.parquet")
    assert Trace.load(tmp_path / "clusters.parquet").launches[0].cluster == (4, 1, 1)
    (site,) = (site for site in found.sites if site.space == "shared::cluster")
    assert (site.op, site.kind, site.completeness) == ("ld.shared::cluster.u32", "load", COMPLETE)
    rows = [row for row in found.table.to_pylist() if row["site"] == site.id]
    assert len(rows) == 8
    assert all((row["sectors"], row["wavefronts"]) == (None, 1) for row in rows), "of the 8 lanes that stay in the block, at one word"
    assert min(row["end"] - row["start"] for row in rows) >= 180
    assert Selection(spaces={"shared::cluster"}).takes(site, "k")


def test_what_they_cost_is_not_counted_and_said_so() -> None:
    target = emulator()
    found = count(reach(target), target.zeros((8, 32, 2), np.uint32))
    by_op = {entry.site.op: entry for entry in found.sites}
    remote = by_op["ld.shared::cluster.u32"]
    assert (remote.requests, remote.lanes, remote.bytes) == (8, 256, 1024)
    assert remote.wavefronts == 8, "the lanes with the rank of their own block, 8 of each warp, at one word"
    assert remote.sectors is None
    # A generic address with the rank of the own block is one of its own memory: there are 8 lanes of each warp, which add one to one word.
    assert by_op["atom.add.u32"].wavefronts == 64
    told = {one.op: one.reason for one in found.skipped}
    assert told["ld.shared::cluster.u32"].startswith("the cost of an access to the shared memory of another block is not documented")


def test_kernels_in_clusters_are_traced_in_part_and_through_a_stage() -> None:
    target = emulator()
    plain, traced = (target.zeros((8, 32, 2), np.uint32) for _ in range(2))
    reach(target)(plain)
    found = trace(reach(target), traced, every=3, staging="shared")
    assert (traced.numpy() == plain.numpy()).all()
    assert found.lost == 0


NEIGHBOUR = """
    .shared .align 4 .b32 word[32]; mov.u64 %rd11, word; cvta.shared.u64 %rd11, %rd11; mad.wide.u32 %rd11, %tid, 4, %rd11;
    mov.u32 %r9, %tid; st.u32 [%rd11], %r9;
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r16, %cluster_ctarank; xor.b32 %r16, %r16, 1; mapa.u64 %rd12, %rd11, %r16;
    ld.u32 %r20, [%rd12];
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 5; add.u32 %r1, %r1, %tid; mad.wide.u32 %rd1, %r1, 4, %out;
    st.global.u32 [%rd1], %r20; ret;
"""


def test_generic_accesses_that_all_go_to_another_block_have_no_known_cost() -> None:
    target = emulator()
    call = target.load(parse(program(NEIGHBOUR), "neighbour.ptx"))["k"][8, 32, None, 0, 2]
    found = count(call, target.zeros(256, np.uint32))
    by_op = {entry.site.op: entry for entry in found.sites}
    remote, own = by_op["ld.u32"], by_op["st.u32"]
    assert (remote.requests, remote.lanes, remote.bytes) == (8, 256, 1024)
    assert (remote.sectors, remote.wavefronts) == (None, None)
    assert (own.sectors, own.wavefronts) == (0, 8)
    # 8 warps store 128 bytes, 4 sectors; what went to shared memory by a generic address is no global memory
    assert "Global memory: 1,024 bytes requested, 1,024 moved (32 sectors, ideal 32)." in to_text(render_counts(found), 120)


def test_a_picture_of_an_access_to_another_block_is_refused_with_the_reason() -> None:
    target = emulator()
    call = target.load(parse(program(NEIGHBOUR), "neighbour.ptx"))["k"][8, 32, None, 0, 2]
    found = trace(call, target.zeros(256, np.uint32))
    (site,) = (site for site in found.sites if site.op == "ld.u32")
    with pytest.raises(CommandError, match="accessed constants or the shared memory of another block"):
        examples_at(found, SourcePlace("neighbour.ptx", site.line))
