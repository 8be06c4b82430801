"""Stages of shared memory: who gets them, what the trace says of it, and that a sequence of launches may mix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.instrument import TraceOptions
from memlane.launch import Kernel, observing
from memlane.measure import Tracer, trace
from memlane.ptx import Module
from memlane.record import Staging, Trace, save
from memlane.record import load as load_file
from memlane.report import render_trace, summary_document, to_text


class Narrow(Emulator):
    """Shared memory is what limits the blocks on a multiprocessor."""

    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
        return 4096 // max(1, shared_bytes) if shared_bytes else 8


def sums(target: Emulator, module: Module, staging: str, *, block: int = 96) -> Trace:
    return trace(target.load(module)["sum"][2, block], target.zeros(128, np.uint32), 3, staging=staging)


def rows(trace: Trace) -> Sequence[tuple[object, ...]]:
    names = ("launch", "site", "block", "warp", "active_mask")
    return sorted(zip(*(trace.table[name].to_pylist() for name in names), strict=True))


def test_stages_where_as_many_blocks_stay(module: Module, tmp_path: Path) -> None:
    alone, staged = (sums(Emulator(load("h200")), module, staging) for staging in ("global", "shared"))
    assert rows(alone) == rows(staged)
    found = staged.launches[0].staging
    assert found is not None
    assert (found.memory, found.records) == ("shared", 16)
    assert found.reason.endswith("blocks either way")
    assert f"Records of sum went to {found}." in to_text(render_trace(staged)).replace("\n", " ")
    assert summary_document(staged)["staging"][0]["records"] == 16
    save(staged, tmp_path / "staged.parquet")
    assert load_file(tmp_path / "staged.parquet").launches[0].staging == found


def test_none_where_fewer_blocks_would_stay(module: Module) -> None:
    traced = sums(Narrow(load("h200")), module, "shared")
    assert traced.launches[0].staging == Staging("global", 0, "a multiprocessor would hold 2 blocks instead of 8")
    assert rows(traced) == rows(sums(Emulator(load("h200")), module, "global"))


def test_none_where_a_block_has_no_room(module: Module) -> None:
    target = Emulator(load("h200"))
    out, kernel = target.zeros(128, np.uint32), target.load(module)["sum"]
    room = target.max_shared_bytes(kernel)
    found = trace(kernel[1, 32, None, room - 100], out, 3, staging="shared")
    staging = found.launches[0].staging
    assert staging is not None
    assert staging.memory == "global"
    assert staging.reason.endswith(f"bytes of dynamic shared memory, but only {room:,} are available")


def test_nothing_is_said_where_nobody_asked(module: Module) -> None:
    traced = sums(Emulator(load("h200")), module, "auto")
    assert traced.launches[0].staging == Staging("global", 0, "whichever is faster", False)
    assert "Records of" not in to_text(render_trace(traced))


def test_launches_with_stages_and_without_in_one_graph(module: Module) -> None:
    """Each launch carries its own mark, so those of one module need not agree."""
    target = Emulator(load("h200"))
    out, kernel = target.zeros(128, np.uint32), target.load(module)["sum"]
    room = target.max_shared_bytes(kernel)
    tracer = Tracer(TraceOptions(staging="shared"), records_per_warp=8)
    with observing(tracer):
        launches = [kernel[2, 64, None, shared].bind(out, 3) for shared in (0, room, 24, 40)]
        graph = target.graph(launches)
        graph.replay()
        graph.replay()
    traced = tracer.finish()
    memories = [launch.staging.memory if launch.staging else "" for launch in traced.launches]
    assert memories == ["shared", "global", "shared", "shared"] * 2
    each = [[row[1:] for row in rows(traced) if row[0] == launch.id] for launch in traced.launches]
    assert len(each) == 8
    assert all(one == each[0] for one in each)
    assert len(each[0]) > 0
