"""Reading the profiler's table and the disassembly, and comparing with what memlane counts."""

from __future__ import annotations

from collections import Counter

import pytest
from assembled import GROUPS, describe, disassemble, in_ptx, in_sass, same
from counts import REQUIRED, Totals, compare, matched, of_profiler
from harness import ROOT, Row
from ncu import Profiled, command, parse

from memlane.compile import cuda
from memlane.ptx import Module

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
    line = " ".join(command("ncu", REQUIRED, ["python", "x.py"]))
    assert "--clock-control none" in line
    assert line.endswith(f"--metrics {','.join(REQUIRED)} python x.py")


def test_launches_are_matched_in_order_and_strangers_passed_over() -> None:
    seen = [Profiled(name, {}) for name in ("memset(int)", "void block_sum<int>(T1 *)", "tiled(float *)", "void block_sum<float>(T1 *)")]
    found = matched(["void block_sum<int>(int*, int)", "void block_sum<float>(float*, int)", "naive(float*)"], seen)
    assert found == [seen[1], seen[3], None]


def test_the_profilers_sums_are_grouped() -> None:
    metrics = {LOADS: 10.0, STORES: 20.0} | {f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum": 3.0 for op in ("ld", "st")}
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


def test_widths_decide_whether_accesses_are_the_same() -> None:
    assert same(Counter({"ld.global.v4.f32": 1, "ld.global.u8": 2}), Counter({"LDG.E.128": 1, "LDG.E.U8": 2}))
    assert same(Counter({"ld.shared.f64": 1}), Counter({"LDS.64": 1}))
    assert not same(Counter({"ld.shared.f32": 4}), Counter({"LDS.128": 1}))


def compared(mine: float, other: float, requests: tuple[float, float], ptx: str, sass: str) -> Row:
    ours = Totals(dict.fromkeys(GROUPS, 0.0) | {"shared": requests[0]}, dict.fromkeys(GROUPS, 0.0) | {"shared": mine})
    theirs = Totals({"shared": requests[1]}, {"shared": other})
    listed = [{group: Counter({op: 1} if group == "shared" else {}) for group in GROUPS} for op in (ptx, sass)]
    (row,) = compare("case", ours, theirs, *listed)
    return row


def test_equal_accesses_must_have_equal_transactions() -> None:
    assert compared(64, 64, (32, 32), "ld.shared.f32", "LDS").holds
    assert not compared(64, 65, (32, 32), "ld.shared.f32", "LDS.128").holds
    assert not compared(64, 65, (32, 31), "ld.shared.f32", "LDS").holds


def test_accesses_that_the_assembler_changed_stand_beside_each_other() -> None:
    row = compared(64, 40, (32, 8), "ld.shared.f32", "LDS.128")
    assert row.reach is None
    assert row.note == "PTX: 1 ld.shared.f32; SASS: 1 LDS.128"
    assert row.peer == {"memlane": 64, "requests": 32, "Nsight Compute": 40, "its requests": 8}


@pytest.fixture(scope="module")
def transpose() -> Module:
    return cuda(ROOT / "examples" / "transpose.cu")


def test_the_transposes_are_assembled_as_they_are_written(transpose: Module) -> None:
    kernels = in_sass(disassemble(transpose, "sm_90"))
    for name in transpose.kernels:
        for group in GROUPS:
            assert same(in_ptx(transpose, name)[group], kernels[name][group]), (name, group)


def test_a_loop_that_the_assembler_unrolls_is_not() -> None:
    module = cuda(ROOT / "examples" / "spmv.cu")
    name = next(name for name in module.kernels if "csr_scalar" in name)
    sass = in_sass(disassemble(module, "sm_90"))[name]
    assert not same(in_ptx(module, name)["global load"], sass["global load"])
    assert same(in_ptx(module, name)["global store"], sass["global store"])
