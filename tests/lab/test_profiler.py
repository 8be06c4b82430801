"""The table that Nsight Compute prints, as `--csv --page raw` has it with all its columns."""

from __future__ import annotations

import pytest

from memlane.lab.profiler import Profiled, number, parse

HITS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum"
RATE = "l1tex__t_sector_hit_rate.pct"
TABLE = f"""\
==PROF== Connected to process 2718 (/usr/bin/python3.11)
==PROF== Profiling "render" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"launch__grid_size","inst_executed","{HITS}","memory_l1_wavefronts_shared","memory_l1_tag_requests_global","{RATE}"
"","","","","","","","","","","","","inst","sector","","","%"
"0","2718","python3.11","127.0.0.1","render(float *, int)","1","7","(32, 4, 1)","(16, 16, 1)","0","9.0",\
"256","12,288 (64; 64; 12160)","1,048,576","64 (1; 2; 61)","(5; 6)","nan"
a line of the program, "quoted"
==PROF== Disconnected from process 2718
"1","2718","python3.11","127.0.0.1","void render<4>(T1 *, int)","1","7","(32, 4, 1)","(1, 1, 1)","0","9.0","1","96","0.00","0","3","87.50"
"""


def test_launches_have_the_sums_of_their_metrics_and_nothing_else() -> None:
    first, second = parse(TABLE)
    assert first == Profiled(
        "render(float *, int)", {"launch__grid_size": 256, "inst_executed": 12288, HITS: 1048576, "memory_l1_wavefronts_shared": 64}
    )
    assert second.kernel == "void render<4>(T1 *, int)"
    assert second.metrics == {
        "launch__grid_size": 1,
        "inst_executed": 96,
        HITS: 0,
        "memory_l1_wavefronts_shared": 0,
        "memory_l1_tag_requests_global": 3,
        RATE: 87.5,
    }


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("64", 64),
        ("1,024", 1024),
        ("12.5", 12.5),
        ("64 (1; 2; 61)", 64),
        ("1.5e3", 1500),
        ("(1; 2)", None),
        ("n/a", None),
        ("nan", None),
        ("", None),
    ],
)
def test_the_sum_of_a_cell(cell: str, value: float | None) -> None:
    assert number(cell) == value


def test_a_table_that_never_began_has_no_launches() -> None:
    assert parse("") == parse("==ERROR== ERR_NVGPUCTRPERM\n") == parse('"0","render","5"\n') == []
