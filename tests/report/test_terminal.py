"""The terminal tables: expected text at two widths, and what must hold at any width."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from rich.console import Console, RenderableType

from memlane.diagnose import clean_kernels, explain, uncounted_launches
from memlane.record import ACCESS_SCHEMA, Sample, Trace, summarise
from memlane.report import render_counts, render_findings, render_trace, to_text
from tests.synthetic import NAIVE, SOURCE, TILED, counted, counts, launch, site, stalls, transpose

Golden = Callable[[str, str], None]


def tiled_counts() -> RenderableType:
    trace = transpose()
    entries = (*trace.launches[1].counts, counted(site(9, "atom.global.add.u64", 9, TILED), 0))
    return render_counts(counts(*entries, branches=trace.launches[0].branches, thread_instructions=123_456), trace.sources)


@pytest.mark.parametrize("width", [80, 120])
def test_trace(golden: Golden, width: int) -> None:
    golden(f"trace-{width}.txt", to_text(render_trace(transpose()), width))


@pytest.mark.parametrize("width", [80, 120])
def test_what_consumers_waited(golden: Golden, width: int) -> None:
    golden(f"stalls-{width}.txt", to_text(render_trace(stalls()), width))


@pytest.mark.parametrize("width", [80, 120])
def test_counts(golden: Golden, width: int) -> None:
    golden(f"counts-{width}.txt", to_text(tiled_counts(), width))


def test_a_line_with_several_branches_is_named_once() -> None:
    (one,) = transpose().launches[0].branches
    several = (one, replace(one, executions=6, divergent=2), replace(one, line=8, divergent=0), replace(one, line=8, divergent=4))
    text = " ".join(to_text(render_counts(counts(*transpose().launches[0].counts, branches=several)), 120).split())
    assert "18 executions by warps, 7 divergent: transpose.cu:4 (3 of 10), transpose.cu:8 (4 of 8)." in text


def test_totals_tell_what_moved_and_where_lanes_meet() -> None:
    spill = replace(counted(site(6, "st.local.f32", 7, TILED), 3), sectors=12, ideal_sectors=12)
    bins = replace(
        counted(site(7, "atom.shared.u32", 9, TILED), 4, wavefronts=5, ideal_wavefronts=1), addresses=32, most_lanes_at_address=9
    )
    alone = replace(counted(site(8, "red.global.u32", 10, TILED), 4, sectors=4, ideal_sectors=4), addresses=128, most_lanes_at_address=1)
    text = " ".join(to_text(render_counts(counts(*transpose().launches[0].counts, spill, bins, alone)), 120).split())
    assert "Global memory: 5,632 bytes requested, 23,552 moved (736 sectors, ideal 176)." in text
    assert "Shared memory: 20 wavefronts, ideal 4; 16 are conflicts." in text
    assert "Local memory in PTX (a hint: the assembler may keep it in registers): 3 requests, 12 sectors, 384 bytes moved." in text
    assert "Lanes per address of atomics, on average per request: transpose.cu:9 4 (at most 9)." in text


@pytest.mark.parametrize("width", [80, 120])
def test_findings(golden: Golden, width: int) -> None:
    golden(f"findings-{width}.txt", to_text(render_findings(explain(transpose())), width))


def bare() -> Trace:
    """A measured trace: no counts, no sectors, no window, no lifetimes, no source text."""
    trace = transpose(modelled=False, target="cuda:0", windows={}, sources={})
    table = trace.table
    for name in ("sectors", "wavefronts"):
        table = table.set_column(ACCESS_SCHEMA.get_field_index(name), ACCESS_SCHEMA.field(name), pa.nulls(table.num_rows, pa.uint16()))
    launches = tuple(replace(entry, counts=(), lost=0) for entry in trace.launches)
    return replace(trace, table=table, launches=launches, warps=trace.warps[:0])


@pytest.mark.parametrize(
    ("long", "how"), [(1, "the nominal frequency, because a launch is too short to fit one"), (10_000, "their frequency fitted")]
)
def test_how_well_the_clocks_line_up_is_said_of_what_was_measured(long: int, how: str) -> None:
    """The timer of the warps below reads 0 and a multiple of 5000, so that is its step, and half of it the least that can be known."""
    trace = transpose(modelled=False, target="cuda:0")
    warps = trace.warps.copy()
    warps["end_cycles"] = warps["begin_cycles"] + 9_900 * long
    warps["end_ns"] = 5_000 * long
    warps["begin_ns"][0] += 5_000 * (long > 1)
    warps["begin_cycles"][0] += 9_900 * (long > 1)
    text = to_text(render_trace(replace(trace, warps=warps)), 200)
    assert f"Clocks: aligned across 2 SMs to within 2500 ns ({how}; the timer steps by 5000 ns)." in text
    assert "Clocks:" not in to_text(render_trace(transpose()), 200)


def test_what_is_not_known_is_a_dash(golden: Golden) -> None:
    text = to_text(render_trace(bare()))
    row = next(line for line in text.splitlines() if "ld.shared.f32" in line)
    assert row.split() == ["ld.shared.f32", "20", "-", "-", "502", "504", "504", "complete", "-"]
    assert "measured on NVIDIA H200" in text
    assert "modelled" not in text
    golden("trace-measured-80.txt", text)


def long_names() -> Trace:
    suffix = ".relaxed.gpu.L1::no_allocate.v4"
    sites = tuple(
        replace(
            entry,
            op=entry.op + suffix,
            kernel="void gemm<float, " + "Tile<128, 128>, " * 9 + "int>(float*)",
            file="/a/b/long/" * 9 + "x.cuh",
        )
        for entry in transpose().sites
    )
    launches = tuple(replace(entry, kernel=sites[0].kernel) for entry in transpose().launches)
    return replace(transpose(), sites=sites, launches=launches)


@pytest.mark.parametrize("width", [60, 80, 81, 99, 100, 120, 200])
@pytest.mark.parametrize("trace", [transpose(), bare(), long_names()], ids=["transpose", "bare", "long names"])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(trace: Trace, width: int) -> None:
    text = to_text(render_trace(trace), width)
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii()
    for cycles in ("102", "204", "302", "404", "602"):
        assert f" {cycles} " in text


def test_a_long_source_line_is_trimmed_and_says_so() -> None:
    long = SOURCE.replace("out[x * n + y] = in[y * n + x];", "out[x * n + y] = in[y * n + x];" * 9, 1)
    lines = to_text(render_trace(transpose(sources={"transpose.cu": long})), 80).splitlines()
    (shown,) = [line for line in lines if line.startswith("   4  ")]
    assert len(shown) == 80
    assert shown.endswith("...")


def test_source_text_is_never_markup_nor_escape_sequences() -> None:
    hostile = SOURCE.replace("out[x * n + y] = in[y * n + x];", "a[i] = [red]b[/red] \x1b[31m [/]", 1)
    trace = transpose(sources={"transpose.cu": hostile})
    text = to_text(render_trace(trace)) + to_text(render_findings(explain(trace)))
    assert text.count("a[i] = [red]b[/red]  [31m [/]") == 2
    assert "\x1b" not in text


def test_a_terminal_gets_colour_where_transactions_are_wasted() -> None:
    stream = io.StringIO()
    Console(file=stream, width=80, force_terminal=True, color_system="standard").print(render_trace(transpose()))
    coloured = [line for line in stream.getvalue().splitlines() if "\x1b[1;31m" in line]
    assert [next(word for word in line.split() if "." in word) for line in coloured] == ["st.global.f32", "ld.shared.f32"]


def test_times_carry_their_meaning() -> None:
    text = " ".join(to_text(render_trace(transpose())).split())
    assert (
        "modelled for NVIDIA H200 (no GPU was measured); probe scheme dependent, paper; the time of the probe itself is not subtracted: "
        "dependent 6." in text
    )
    assert "The probe makes accesses wait for each other" in text
    assert "issued = the access had left the warp and may complete later (a store returns no value to wait for)" in text


def test_losses_come_first_below_the_tables_with_what_they_mean_for_the_times() -> None:
    notes = to_text(render_trace(transpose()), 140).rpartition("\n\n")[2].splitlines()
    assert notes[0] == "Target emulator:h200; 120 records kept, 2 lost."
    assert notes[1].startswith(
        "The buffer was full: times cover only the first records of each warp, and accesses and shares do not include"
    )
    whole = transpose(launches=tuple(replace(entry, lost=0) for entry in transpose().launches))
    assert "first records" not in to_text(render_trace(whole), 140)


def test_an_empty_trace_says_so() -> None:
    empty = transpose(table=ACCESS_SCHEMA.empty_table(), sites=(), launches=(), warps=transpose().warps[:0])
    assert to_text(render_trace(empty)).startswith("The trace has no memory accesses.\n")


def test_launches_of_one_kernel_share_a_table() -> None:
    trace = transpose()
    again = replace(trace.launches[0], id=2, grid=(4, 1, 1))
    text = to_text(render_trace(replace(trace, launches=(*trace.launches, again))), 120)
    assert text.count(NAIVE) == 1
    assert "2 launches of 2 shapes" in text


def test_lines_of_an_included_file_are_named_with_it() -> None:
    trace = transpose()
    sites = tuple(replace(entry, file="/inc/tile.cuh", line=3) if entry.id == 1 else entry for entry in trace.sites)
    lines = to_text(render_trace(replace(trace, sites=sites, sources={"/inc/tile.cuh": "\n\nstore(a);\n"}))).splitlines()
    assert "tile.cuh:3  store(a);" in lines
    assert "transpose.cu:4" in lines
    assert "   8" in lines


def test_no_findings_and_launches_nobody_looked_at() -> None:
    trace = transpose()
    partly = replace(
        trace,
        launches=(
            replace(trace.launches[0], counts=()),
            replace(trace.launches[1], id=1, counts=trace.launches[1].counts[:1]),
            launch(2, "idle()"),
        ),
    )
    text = " ".join(to_text(render_findings(explain(partly), uncounted_launches(partly), clean_kernels(partly, ()))).split())
    assert text.startswith(
        "tiled: no problems found (9 rules checked). Not examined, because their transactions were not counted: 1 launch of naive."
    )
    assert "Not examined in naive: uncoalesced global access, " in text
    assert "It needs transaction counts: record it with `memlane trace --counts`." in text
    assert "idle" not in text


def test_a_trace_in_which_nothing_was_counted_has_no_clean_kernel() -> None:
    trace = transpose()
    idle = replace(trace.launches[0], counts=(counted(trace.sites[0], 0, sectors=0, ideal_sectors=0),))
    nothing = replace(trace, launches=(idle,), table=trace.table.slice(0, 0))
    assert clean_kernels(nothing, explain(nothing)) == ()
    text = to_text(render_findings(explain(nothing), uncounted_launches(nothing), clean_kernels(nothing, ())))
    assert text.startswith("Nothing was counted, because no access to memory was executed; there is nothing")


def test_what_was_not_traced_is_said_and_estimated() -> None:
    trace = transpose()
    sample = Sample(warps_in_window=1000, warps_chosen=250, every=4, seed=9, executions=(2, 5))
    sampled = replace(trace, launches=tuple(replace(one, sample=sample) for one in trace.launches))
    text = " ".join(to_text(render_trace(sampled), 120).split())
    recorded = sum(entry.accesses for entry in summarise(trace) if entry.kernel == NAIVE)
    assert f"{recorded:,} accesses recorded of about {4 * recorded:,}" in text
    assert "traced 1 in 4 warps (seed 9), executions 2-4; 250 of 1,000 warps, so each access stands for 4." in text
    assert "The shares of warp life do not include executions outside the window." in text
    assert "transactions per request were counted in whole launches." in text
    assert "traced" not in to_text(render_trace(trace), 120).replace("traced as", "")
