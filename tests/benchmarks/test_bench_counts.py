"""Reading the profiler's table and the disassembly, and comparing with what memlane counts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpus_ways
import numpy as np
import pytest
from assembled import GROUPS, describe, disassemble, in_ptx, in_sass
from counts import BY_LAUNCH, Totals, by_case, compare, compare_roads, compare_sites, matched, of_profiler, of_sites, read_profile
from harness import RESULTS, ROOT, Row
from ncu import UNTOUCHED, Counted, Disassembled, Profiled, Report, parse
from sitewise import EXECUTIONS, METRICS, Code

import memlane as ml
from memlane.compile import assemble, cuda
from memlane.ptx import Module
from memlane.record import Counts
from memlane.targets import target

pytestmark = pytest.mark.slow

LOADS, STORES = (f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
OUTPUT = f"""\
==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "naive" - 0: 0%....50%....100% - 1 pass
largest difference "0.5"
"ID","Process ID","Kernel Name","Block Size","Grid Size","{LOADS}","memory_l1_wavefronts_shared","smsp__cycles_active.avg"
"","","","","","sector","",""
"0","4711","naive(float *, const float *, int)","(32, 32, 1)","(2, 2, 1)","1,024","64 (1; 2; 61)","n/a"
==PROF== Disconnected from process 4711
"1","4711","void block_sum<int>(T1 *, const T1 *, int)","(256, 1, 1)","(1, 1, 1)","8","0","12.5"
"""

SASS = """\
\t.section\t.text._Z5naivePf,"ax",@progbits
.text._Z5naivePf:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   LDS R5, [R0] ;
.L_x_0:
        /*0030*/                   LDS.64 R6, [R0+0x8] ;
        /*0040*/               @P1 STG.E desc[UR4][R2.64], R5 ;
.text.other:
        /*0000*/              @UP0 ATOMS.POPC.INC.32 RZ, [R0] ;
        /*0010*/                   RED.E.ADD.STRONG.GPU desc[UR4][R2.64], R5 ;
"""


def test_the_profilers_table_is_found_among_what_else_is_printed() -> None:
    naive, block_sum = parse(OUTPUT)
    assert naive == Profiled("naive(float *, const float *, int)", {LOADS: 1024.0, "memory_l1_wavefronts_shared": 64.0})
    assert block_sum.metrics == {LOADS: 8.0, "memory_l1_wavefronts_shared": 0.0, "smsp__cycles_active.avg": 12.5}


def test_output_without_a_table_has_no_launches() -> None:
    assert parse("==ERROR== Failed to find metric x\n") == []


def test_the_profiler_leaves_the_clocks_alone() -> None:
    assert "--clock-control none" in " ".join(UNTOUCHED)


def test_launches_are_matched_in_order_and_strangers_passed_over() -> None:
    seen = ["memset(int)", "void block_sum<int>(T1 *)", "copy_16", "tiled(float *)", "void block_sum<float>(T1 *)"]
    kernels = ["void block_sum<int>(int*, int)", "copy_1", "copy_16", "void block_sum<float>(float*, int)", "naive(float*)"]
    assert matched(kernels, seen) == [1, None, 2, 4, None]


def test_the_profilers_sums_are_grouped() -> None:
    assert {LOADS, STORES} <= set(BY_LAUNCH)
    metrics = {LOADS: 10.0, STORES: 20.0, "memory_l1_wavefronts_shared": 6.0}
    totals = of_profiler(metrics)
    assert totals.transactions == {"global load": 10.0, "global store": 20.0, "shared": 6.0}
    assert totals.requests == {}


def test_the_listing_is_read_by_kernel_and_width() -> None:
    kernels = in_sass(SASS)
    assert describe(kernels["_Z5naivePf"]["shared"]) == "1 LDS + 1 LDS.64"
    assert describe(kernels["_Z5naivePf"]["global load"]) == "1 LDG.E.128"
    assert describe(kernels["_Z5naivePf"]["global store"]) == "1 STG.E"
    assert describe(kernels["other"]["shared"]) == "1 ATOMS.POPC.INC.32"
    assert describe(kernels["other"]["global atomic"]) == "1 RED.E.ADD.STRONG.GPU"


def test_an_asynchronous_copy_loads_from_global_memory() -> None:
    (kernel,) = in_sass(".text.copy:\n        /*0000*/   LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64] ;\n").values()
    assert describe(kernel["global load"]) == "1 LDGSTS.E.BYPASS.128"


def compared(mine: float, other: float, sites: float, ptx: str = "ld.shared.f32") -> Row:
    """Of a launch with accesses to shared memory alone; `sites` is what the profiler has more at its sites."""
    ours = Totals(dict.fromkeys(GROUPS, 0.0) | {"shared": 32.0}, dict.fromkeys(GROUPS, 0.0) | {"shared": mine})
    theirs = Totals({"shared": 8.0}, {"shared": other})
    listed = [{group: Counter({op: 1} if group == "shared" else {}) for group in GROUPS} for op in (ptx, "LDS.128")]
    (row,) = compare("case", ours, theirs, dict.fromkeys(GROUPS, 0.0) | {"shared": sites}, *listed)
    return row


def test_totals_differ_by_what_the_sites_differ_by() -> None:
    assert compared(64, 64, 0).holds
    assert not compared(64, 65, 0).holds
    assert not compared(64, 64, 1).holds
    row = compared(64, 40, -24)
    assert (row.value, row.reach, row.holds) == (0.0, 0.0, True)
    assert row.note == "memlane 64, profiler 40, -24 of it at the sites; PTX: 1 ld.shared.f32; SASS: 1 LDS.128"
    assert row.peer == {"memlane": 64, "requests": 32, "Nsight Compute": 40, "more at the sites": -24, "its requests": 8}


def test_nothing_is_claimed_of_the_totals_of_atomics() -> None:
    row = compared(64, 70, 0, "atom.shared.add.u32")
    assert (row.value, row.reach) == (6.0, None)


def test_the_listing_of_a_loop_that_the_assembler_unrolls_is_longer() -> None:
    module = cuda(ROOT / "examples" / "spmv.cu")
    name = next(name for name in module.kernels if "csr_scalar" in name)
    ptx, sass = in_ptx(module, name), in_sass(disassemble(module, "sm_90"))[name]
    assert sum(ptx["global load"].values()) < sum(sass["global load"].values())
    assert sum(ptx["global store"].values()) == sum(sass["global store"].values()) == 1


# -- lanes that part, by hand ------------------------------------------------------------------------------------------------------


def sectors(rows: np.ndarray, together: np.ndarray) -> int:
    """Sectors of 32 bytes in which the lanes that access `together` lie, each in its own row of numbers; both of shape (warps, 32)."""
    columns = np.arange(rows.size).reshape(rows.shape)
    touched = (rows * rows.size + columns) // 8
    return sum(len(set(line[lanes])) for line, lanes in zip(touched, together, strict=True))


def problem(kernel: str) -> tuple[Any, ...]:
    return next(case for case in corpus_ways.GROUP.cases if case.kernel == kernel).problem(quick=False).arguments


def result(case: str, metric: str) -> dict[str, float]:
    rows = json.loads((RESULTS / "h200" / "counts.json").read_text())["rows"]
    return next(row["peer"] for row in rows if (row["case"], row["metric"]) == (case, metric))


def test_both_totals_of_ragged_are_right_by_hand() -> None:
    """PTX has a loop of four numbers a turn and one for the rest; the assembler made of the first one of eight, behind it one of four. So
    lanes with one turn and those with three, which have two behind them, meet in that, in rows that lie apart."""
    _, _, lengths, _ = problem("ragged")
    warps = lengths.reshape(-1, 32)
    turns, rest = warps // 4, warps % 4
    as_ptx = sum(sectors(0 * turns + 4 * turn, turns > turn) for turn in range(3))
    as_assembled = sum(sectors(0 * turns + 4 * turn, turns >= 2) for turn in (0, 1)) + sectors(4 * (turns - 1), turns % 2 == 1)
    beside = sectors(0 * turns, turns >= 0) + sum(sectors(4 * turns + number, rest > number) for number in range(3))
    assert (as_ptx, as_assembled) == (5916, 7748)
    seen = result("ragged", "global load, sectors: difference")
    assert seen["memlane"] == 4 * as_ptx + beside
    assert seen["Nsight Compute"] == 4 * as_assembled + beside


def test_the_stores_of_left_early_lie_between_all_at_once_and_turn_by_turn() -> None:
    _, _, a, _, _ = problem("left_early")
    left = (a.cumsum(axis=0) > 20).argmax(axis=0).reshape(-1, 32)
    by_turn = sum(sectors(0 * left, left == turn) for turn in range(len(a)))
    requests = sum(len(set(warp)) for warp in left)
    at_once = sectors(0 * left, left >= 0)
    assert (len(left), at_once, requests, by_turn) == (512, 2048, 3645, 9423)
    seen = result("left_early", "global store, sectors: difference")
    for sectors_seen, requests_seen in ((seen["memlane"], seen["requests"]), (seen["Nsight Compute"], seen["its requests"])):
        assert at_once < sectors_seen - at_once < by_turn  # the other store has all lanes at once
        assert len(left) < requests_seen - len(left) < requests


# -- site by site --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transpose() -> Module:
    return cuda(ROOT / "examples" / "transpose.cu")


@pytest.fixture(scope="module")
def code(transpose: Module) -> Code:
    return Code.of(transpose, assemble(transpose, arch="sm_90").data)


@pytest.fixture(scope="module")
def counted(transpose: Module) -> Counts:
    emulator = target("emulator:h200")
    a = emulator.zeros((64, 64))
    return ml.count(emulator.load(transpose)["tiled"][(2, 2), (32, 32)], a, emulator.zeros((64, 64)), 64)


@pytest.fixture(scope="module")
def name(transpose: Module) -> str:
    return next(name for name in transpose.kernels if "tiled" in name)


def profile_like(code: Code, name: str, counted: Counts) -> Disassembled:
    """The page of instructions that agrees with what was counted: one access for each site, as the assembler leaves these kernels."""
    metrics: dict[int, dict[str, float]] = {}
    for entry in counted.sites:
        (node,) = code.assembled.accesses(name, entry.site.instruction, entry.site.space)
        metrics[code.assembled.flow.nodes[node].offset] = {metric: getattr(entry, field) or 0 for field, metric in METRICS.items()}
    instructions = code.assembled.program.functions[name].instructions
    return Disassembled("tiled", tuple(Counted(one.offset, one.name, metrics.get(one.offset, {})) for one in instructions))


def changed(profiled: Disassembled, opcode: str, metric: str, by: float) -> Disassembled:
    instructions = [
        Counted(one.offset, one.opcode, one.metrics | {metric: one.metrics[metric] + by}) if one.opcode == opcode else one
        for one in profiled.instructions
    ]
    return Disassembled(profiled.kernel, tuple(instructions))


@pytest.mark.slow
def test_sites_that_agree_hold(code: Code, name: str, counted: Counts) -> None:
    row = compare_sites("tiled", code.compared(name, counted.sites, profile_like(code, name, counted)))
    assert (row.value, row.note) == (0.0, "")
    assert {key: row.peer[key] for key in ("sites", "exact", "merged", "hint", "others that differ")} == {
        "sites": 4.0, "exact": 4.0, "merged": 0.0, "hint": 0.0, "others that differ": 0.0
    }  # fmt: skip
    assert row.peer["wavefronts"] == row.peer["wavefronts, profiler"] == 4 * 32 * (1 + 32)


def test_one_wavefront_more_is_found(code: Code, name: str, counted: Counts) -> None:
    profiled = changed(profile_like(code, name, counted), "LDS", METRICS["wavefronts"], 1)
    row = compare_sites("tiled", code.compared(name, counted.sites, profiled))
    assert row.value == 1.0
    assert not row.holds
    assert row.note.startswith("exact: line ")
    assert row.note.endswith("ld.shared.f32 (LDS): wavefronts 4096, profiler 4097: not explained")


def test_lanes_that_come_in_smaller_groups_are_an_explanation(code: Code, name: str, counted: Counts) -> None:
    profiled = changed(profile_like(code, name, counted), "LDS", METRICS["wavefronts"], 1)
    instructions = [Counted(one.offset, one.opcode, one.metrics | {EXECUTIONS: 130.0}) for one in profiled.instructions]
    row = compare_sites("tiled", code.compared(name, counted.sites, Disassembled("tiled", tuple(instructions))))
    assert row.value == 1.0
    assert row.note.endswith(": the same lanes in 130 executions, not 128: the assembled code did not bring them together")


def test_what_the_sites_have_more_is_summed_by_group(code: Code, name: str, counted: Counts) -> None:
    profiled = changed(profile_like(code, name, counted), "LDS", METRICS["wavefronts"], 5)
    profiled = changed(profiled, "STG.E", METRICS["sectors"], -3)
    assert of_sites(code.compared(name, counted.sites, profiled)) == dict.fromkeys(GROUPS, 0.0) | {"shared": 5.0, "global store": -3.0}


def test_the_roads_say_where_they_part(code: Code, counted: Counts) -> None:
    assert compare_roads("tiled", counted, counted, code).holds
    sites = tuple(replace(one, sectors=one.sectors + 7) if one.site.op == "st.global.f32" else one for one in counted.sites)
    row = compare_roads("tiled", counted, replace(counted, sites=sites), code)
    (entry,) = (one for one in counted.sites if one.site.op == "st.global.f32")
    assert (row.value, row.note) == (1.0, f"line {entry.site.line}, st.global.f32: sectors {entry.sectors}, emulator {entry.sectors + 7}")


CALLS = """
typedef int (*Step)(int);
__device__ __noinline__ int twice(int x) { return x + x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ Step steps[2] = {twice, square};
__device__ __noinline__ int loaded(const int* from, int i) { return from[i] + 1; }
extern "C" __global__ void calls(int* out, const int* from, const int* which) {
    int i = threadIdx.x, x = loaded(from, i);
    out[i] = steps[which[i] & 1](x);
}
"""
"""A load in a function, and a store behind a call through a pointer."""


@pytest.fixture(scope="module")
def calls() -> tuple[Code, Counts]:
    emulator, module = target("emulator:h200"), cuda(CALLS)
    arrays = [emulator.array(np.arange(64, dtype="i4")) for _ in range(3)]
    return Code.of(module, assemble(module, arch="sm_90").data), ml.count(emulator.load(module)["calls"][1, 64], *arrays)


def test_the_roads_may_part_where_lanes_may_be_apart(calls: tuple[Code, Counts]) -> None:
    code, counted = calls

    def counted_otherwise(op: str) -> Row:
        sites = tuple(replace(one, requests=one.requests + 2) if one.site.op == op else one for one in counted.sites)
        return compare_roads("calls", replace(counted, sites=sites), counted, code)

    store, load = counted_otherwise("st.global.u32"), counted_otherwise("ld.global.u64")
    assert (store.value, store.peer, store.note) == (
        0.0,
        {"sites": 4.0, "apart": 1.0},
        "lanes may be apart: line 9, st.global.u32: requests 4, emulator 2",
    )
    assert (load.value, load.peer) == (1.0, {"sites": 4.0, "apart": 0.0})


def test_the_sites_of_functions_are_not_compared_with_the_profiler(calls: tuple[Code, Counts]) -> None:
    code, counted = calls
    nothing = tuple(Counted(one.offset, one.name, {}) for one in code.assembled.program.functions["calls"].instructions)
    compared = code.compared("calls", counted.sites, Disassembled("calls", nothing))
    assert [one.site.line for one in counted.sites] == [6, 9, 9, 9]
    assert [(one.label, one.opcodes) for one in compared] == [
        ("line 9, ld.global.u32", ("LDG.E",)),
        ("line 9, ld.global.u64", ("LDG.E.64",)),
        ("line 9, st.global.u32", ("STG.E",)),
    ]


def test_other_code_than_that_of_the_profiler_is_refused(code: Code, name: str, counted: Counts) -> None:
    profiled = profile_like(code, name, counted)
    shifted = Disassembled("tiled", tuple(Counted(one.offset + 16, one.opcode, one.metrics) for one in profiled.instructions))
    with pytest.raises(RuntimeError, match="and the profiler saw"):
        code.compared(name, counted.sites, shifted)


@pytest.fixture(scope="module")
def tiles() -> Code:
    module = cuda(ROOT / "benchmarks" / "kernels" / "tiles.cu")
    return Code.of(module, assemble(module, arch="sm_90").data)


@pytest.mark.slow
def test_accesses_that_were_merged_are_counted_together(tiles: Code) -> None:
    code, emulator = tiles, target("emulator:h200")
    counts = ml.count(emulator.load(code.assembled.module)["rows_of_eight"][1, 256], emulator.zeros(256), emulator.zeros(256))
    nothing = tuple(Counted(one.offset, one.name, {}) for one in code.assembled.program.functions["rows_of_eight"].instructions)
    compared = code.compared("rows_of_eight", counts.sites, Disassembled("rows_of_eight", nothing))
    merged = [one for one in compared if one.verdict == "merged"]
    assert sum(one.sites for one in compared) == len(counts.sites) == 11
    assert [(one.sites, one.opcodes) for one in merged] == [(4, ("LDS.128",)), (4, ("LDS.128",))]
    assert all(one.label.endswith("4 x ld.shared.f32") for one in merged)
    assert [one.ours for one in merged] == [{"wavefronts": 4 * 8 * 8, "ideal_wavefronts": 4 * 8}] * 2


def test_lanes_of_matrices_are_those_that_execute(tiles: Code) -> None:
    """`ldmatrix.x1` uses the rows of 8 lanes and `stmatrix.x2` those of 16; the profiler counts the 32 that execute them."""
    code, emulator = tiles, target("emulator:h200")
    data = emulator.zeros((256, 4), "u4")
    counts = ml.count(emulator.load(code.assembled.module)["matrices_packed"][1, 256], emulator.zeros((256, 4), "u4"), data)
    assert [one.lanes for one in counts.sites if "matrix" in one.site.op] == [256, 64, 128]
    assert [one.is_full for one in counts.sites] == [True] * 7
    executed = tuple(
        Counted(one.offset, one.name, {METRICS["lanes"]: 256}) for one in code.assembled.program.functions["matrices_packed"].instructions
    )
    compared = code.compared("matrices_packed", counts.sites, Disassembled("matrices_packed", executed))
    assert [one.opcodes[0].partition(".")[0] for one in compared if "matrix" in one.label] == ["LDSM", "LDSM", "STSM"]
    assert [one.differing(["lanes"]) for one in compared] == [[]] * 7
    fewer = tuple(Counted(one.offset, one.opcode, {METRICS["lanes"]: 64}) for one in executed)
    assert all(one.differing(["lanes"]) for one in code.compared("matrices_packed", counts.sites, Disassembled("matrices_packed", fewer)))


def test_both_sides_of_an_asynchronous_copy_are_compared(tiles: Code) -> None:
    emulator = target("emulator:h200")
    counts = ml.count(emulator.load(tiles.assembled.module)["asynchronous"][1, 256], emulator.zeros((512, 4)), emulator.zeros((512, 4)))
    agreed = profile_like(tiles, "asynchronous", counts)
    row = compare_sites("asynchronous", tiles.compared("asynchronous", counts.sites, agreed))
    shared = sum(entry.wavefronts or 0 for entry in counts.sites)
    assert (row.value, row.peer["wavefronts"], row.peer["wavefronts, profiler"]) == (0.0, shared, shared)
    (copy,) = {one.opcode for one in agreed.instructions if one.opcode.startswith("LDGSTS")}
    more = tiles.compared("asynchronous", counts.sites, changed(agreed, copy, METRICS["wavefronts"], 3))
    assert compare_sites("asynchronous", more).value == 1.0
    assert of_sites(more)["shared"] == 3.0


def test_the_profile_of_a_case_survives_its_file(tmp_path: Path) -> None:
    kernels = {"one": ["copy_1"], "two": ["copy_1", "copy_16"], "three": []}
    launches = [Profiled(kernel, {"x": number}) for number, kernel in enumerate(("copy_1", "memset", "copy_1"))]
    pages = [Disassembled(one.kernel, (Counted(16, "LDG.E", {"y": 2.0}),)) for one in launches]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(by_case(kernels, Report(tuple(launches), tuple(pages)))))
    assert read_profile(path, "one") == [(launches[0], pages[0])]
    assert read_profile(path, "two") == [(launches[2], pages[2]), None]
    assert read_profile(path, "three") == []
    assert read_profile(path, "four") is None
