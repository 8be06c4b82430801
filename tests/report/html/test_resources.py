"""The resources of a kernel: its shares and roofs, against plain arithmetic on what was counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlane.chip import Traffic, load, modelled_time
from memlane.record import Perturbation, Trace
from memlane.report.html import render_page
from memlane.report.html.resources import counted_time, resources_of
from tests.report.html.reading import read
from tests.synthetic import NAIVE, TILED, counted, launch, site, transpose

H200 = load("h200")


def traffic(**moved: int) -> Traffic:
    """What one multiprocessor moved; the others moved nothing."""
    names = ("read", "written", "partly_written", "atomic", "read_lines", "written_lines", "partly_written_lines", "wavefronts")
    return Traffic({name: [moved.get(name, 0)] for name in names}, fetched=moved.get("fetched", 0), written_back=0)


def modelled(**changes: object) -> Trace:
    """The transposes, whose first launch read 10^7 sectors of DRAM in 10^5 cycles of the scoreboard."""
    trace = transpose(chip="h200", clock_mhz=H200.clock_mhz, **changes)
    time = modelled_time(H200, 100_000, traffic(fetched=1_000_000, wavefronts=25_000))
    return replace(trace, launches=(replace(trace.launches[0], time=time), trace.launches[1]))


def test_shares_and_roofs_are_amounts_over_rates() -> None:
    (one,) = resources_of(modelled(), H200).kernels
    seconds = 100_000 / (H200.clock_mhz * 1e6)
    asked = 2 * 20 * 32 * 4  # two sites of 20 full warps
    dram = 1_000_000 * 32 / ((H200.bandwidth.dram_read or H200.dram_gb_per_s) * 1e9)
    assert (one.kernel, one.limit, one.asked) == ("naive", "latency", asked)
    assert one.us == pytest.approx(seconds * 1e6)
    assert one.gb_per_s == pytest.approx(asked / seconds / 1e9)
    shares = {part.name: part.share for part in one.resources}
    assert shares["LSU of one SM"] == pytest.approx(0.25)
    assert shares["DRAM"] == pytest.approx(dram / seconds)
    roofs = {part.name: part.roof_gb_per_s for part in one.resources}
    assert roofs["DRAM"] == pytest.approx(asked / dram / 1e9)


def test_the_axis_of_the_roofline_is_written_out_and_ends_at_roofs_that_matter() -> None:
    trace = modelled()
    time = modelled_time(H200, 100_000, traffic(fetched=1_000_000, wavefronts=25))  # the LSU takes 0.025 % of the time
    roofline = resources_of(replace(trace, launches=(replace(trace.launches[0], time=time), trace.launches[1])), H200).roofline
    assert roofline is not None
    assert [mark.label.partition(":")[0] for mark in roofline.rows[0].roofs] == ["DRAM"]
    small = replace(trace, launches=(replace(trace.launches[0], time=time), trace.launches[1]))
    text = read(render_page(small)).by_id("resources").text
    assert "Parts below 1 % of the time are not listed." in text
    assert "LSU" not in text
    launch = replace(trace.launches[0], time=modelled_time(H200, 100_000_000, traffic(fetched=10, wavefronts=100_000)))
    roofline = resources_of(replace(trace, launches=(launch, trace.launches[1])), H200).roofline
    assert roofline is not None
    assert not any("e" in tick.label for tick in roofline.ticks)
    assert {"0.0001", "0.1", "1"} & {tick.label for tick in roofline.ticks}


def test_times_without_probes_are_preferred_and_with_probes_the_page_says_so() -> None:
    trace = modelled()
    text = read(render_page(trace)).by_id("resources").text
    assert "launch, limited by latency" in text
    assert "Times of launches: modelled, with its probes." in text
    assert "memlane trace --perturbation" in text
    plain = modelled_time(H200, 1_000, traffic(wavefronts=990))
    changed = replace(trace.launches[0], perturbation=Perturbation(plain_time=plain))
    text = read(render_page(replace(trace, launches=(changed, trace.launches[1])))).by_id("resources").text
    assert "launch, limited by LSU of one SM" in text
    assert "Times of launches: modelled, without probes." in text
    assert "--perturbation" not in text


def measured(ns: float | None) -> Trace:
    """A launch on a GPU, with counts: 132,000 stores of 32 sectors, 26,400,000 wavefronts."""
    sites = (site(0, "st.global.f32", 4), site(1, "ld.shared.f32", 8, TILED))
    counts = (counted(sites[0], 132_000, sectors=32, ideal_sectors=4), counted(sites[1], 825_000, wavefronts=32, ideal_wavefronts=1))
    one = launch(0, NAIVE, counts=counts, perturbation=Perturbation(plain_ns=ns))
    return transpose(chip="h200", target="cuda:0", modelled=False, sites=transpose().sites, launches=(one, launch(1, TILED)))


def test_on_a_gpu_what_was_counted_gives_least_values_and_no_limit() -> None:
    trace = measured(1e6)
    (one,) = resources_of(trace, H200).kernels
    assert one.origin == "measured, without probes; at least"
    assert one.limit == ""
    cycles = 1e3 * H200.clock_mhz
    shares = {part.name: part.share for part in one.resources}
    assert shares["LSU of one SM"] == pytest.approx(825_000 * 32 / 132 / cycles)
    assert H200.bandwidth.l2_write is not None
    assert shares["L2 writes"] == pytest.approx(132_000 * 32 / H200.bandwidth.l2_write / cycles)
    assert not {"DRAM", "L2 reads"} & set(shares), "no counter says what L1 and L2 kept"
    assert one.resources == tuple(sorted(one.resources, key=lambda part: -part.share))
    assert counted_time(trace.launches[0], H200, 1e6).cycles == pytest.approx(cycles)


@pytest.mark.parametrize(
    ("trace", "chip", "said"),
    [
        (measured(None), H200, "The time without probes was not measured: record with `memlane trace --counts --perturbation`."),
        (measured(1e6), None, "There is no chip file for 'h200', so no rates are known."),
        (transpose(modelled=False), H200, "The time without probes was not measured"),
        (transpose(), H200, "The trace does not contain the traffic of its launches"),
    ],
)
def test_what_is_not_known_is_said(trace: Trace, chip: object, said: str) -> None:
    found = resources_of(trace, chip)  # type: ignore[arg-type]
    assert not found.kernels
    assert any(note.startswith(said) for note in found.notes)
