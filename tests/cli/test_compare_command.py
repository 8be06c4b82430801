"""`memlane compare`: two record files, or two counts, side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memlane.record import Perturbation, load
from tests.cli.conftest import EXAMPLES, Command

SCRIPT = EXAMPLES / "transpose.py"


def test_two_kernels_of_one_file(memlane: Command, recorded: Path) -> None:
    answer = memlane("compare", recorded, recorded, "--kernel", "tiled=padded", "--json")
    document = json.loads(answer.out)
    [kernel] = document["kernels"]
    by_op = {(line["op"], line["before"], line["after"]): line for line in kernel["lines"]}
    conflict = by_op["ld.shared.f32", 33, 48]
    assert (conflict["wavefronts_per_request"]["before"], conflict["wavefronts_per_request"]["after"]) == (32, 1)
    assert conflict["cycles_p50"]["after"] < conflict["cycles_p50"]["before"]
    stores = by_op["st.shared.f32", 27, 42]["wavefronts_per_request"]
    assert (stores["before"], stores["after"]) == (1, 1)
    assert "wavefronts per request 32 -> 1 (-97 %)" in document["summary"]


def test_a_file_with_itself(memlane: Command, recorded: Path) -> None:
    answer = memlane("compare", recorded, recorded)
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[0] == "naive: no change. tiled: no change. padded: no change."
    assert " -> " not in answer.out


def test_counts_that_depend_on_the_order_of_threads_are_an_exception(memlane: Command, recorded: Path) -> None:
    """On the emulator, they always repeat, so the exception is only mentioned where something may have run on a GPU."""
    said = " ".join(memlane("compare", recorded, recorded).out.split())
    assert "Counts are deterministic, so every difference shown is real. Cycles are medians" in said
    replace(load(recorded), modelled=False).save("measured.parquet")
    said = " ".join(memlane("compare", "measured.parquet", "measured.parquet").out.split())
    assert "Counts are deterministic, so every difference shown is real. There is one exception: on a GPU, " in said
    assert "may depend on the order in which threads run if its addresses or its number of executions depend on the result of" in said


def test_records_do_not_hide_what_was_gained(memlane: Command, recorded: Path) -> None:
    """The times of launches without probes are said first where both sides have them, else modelled ones, else lifetimes."""
    words = ("compare", recorded, recorded, "--kernel", "tiled=padded")
    lived = memlane(*words)
    assert lived.lines[0].startswith("tiled -> padded: a launch with probes takes ")
    assert any(line.startswith("  modelled time with probes: ") for line in lived.lines)
    assert any(line.startswith("  life of a traced warp: ") for line in lived.lines)
    assert "Traces taken with --perturbation also hold the time of the launch without probes" in " ".join(lived.out.split())
    trace = load(recorded)
    timeless = [replace(one, time=None) for one in trace.launches]
    replace(trace, launches=tuple(timeless)).save("timeless.parquet")
    known = memlane("compare", "timeless.parquet", "timeless.parquet", *words[3:])
    assert known.lines[0].startswith("tiled -> padded: a traced warp lives ")
    times = {"naive": 30_000.0, "tiled": 7_110.0, "padded": 3_420.0}
    launches = [
        replace(one, perturbation=Perturbation(plain_ns=times[one.kernel.partition("(")[0]], probed_ns=9e4)) for one in trace.launches
    ]
    for modelled in (True, False):
        replace(trace, launches=tuple(launches), modelled=modelled).save("timed.parquet", force=True)
        answer = memlane("compare", "timed.parquet", "timed.parquet", *words[3:])
        assert answer.lines[0].startswith("tiled -> padded: a launch without probes takes 7.11 -> 3.42 us (-52 %); line 33 -> 48")
        assert "  time without probes: 7.11 -> 3.42 us" in answer.lines
        assert "--perturbation" not in answer.out
        assert "with probes" not in answer.out
        [kernel] = json.loads(memlane("compare", "timed.parquet", "timed.parquet", *words[3:], "--json").out)["kernels"]
        assert (kernel["time_ns"]["before"], kernel["time_ns"]["after"]) == (7110, 3420)
        assert kernel["time_ns"]["changed"] is (True if modelled else None)  # what is noise between runs, nobody knows


def test_a_change_of_less_than_a_percent_is_not_zero(memlane: Command, recorded: Path) -> None:
    trace = load(recorded)
    for name, time in (("a.parquet", 100_000.0), ("b.parquet", 99_600.0)):
        launches = [replace(one, perturbation=Perturbation(plain_ns=time, probed_ns=9e4)) for one in trace.launches]
        replace(trace, launches=tuple(launches)).save(name)
    assert "takes 100 -> 99.6 us (-0.4 %)" in memlane("compare", "a.parquet", "b.parquet").lines[0]


def test_counts(memlane: Command) -> None:
    words = ("--grid", "2,2", "--block", "32,32", "--arg", "f4[64,64]", "--arg", "f4[64,64]", "--arg", "64:i4", "--json")
    for kernel in ("tiled", "padded"):
        Path(f"{kernel}.json").write_text(memlane("count", EXAMPLES / "ptx" / "transpose.ptx", "--kernel", kernel, *words).out)
    refused = memlane("compare", "tiled.json", "padded.json")
    assert refused.code == 1
    assert refused.err == (
        "memlane: tiled.json has tiled and padded.json has padded, which are different kernels; to compare two of them anyway, pair them "
        "with --kernel tiled=padded\n"
    )
    answer = memlane("compare", "tiled.json", "padded.json", "-k", "tiled=padded")
    assert answer.lines[0] == (
        "tiled -> padded: line 33 -> 48 (ld.shared.f32): wavefronts per request 32 -> 1 (-97 %); no change in 3 other accesses."
    )


def test_what_cannot_be_compared_is_said(memlane: Command, recorded: Path) -> None:
    assert memlane("compare", recorded, "no.parquet").err == "memlane: no file no.parquet\n"
    assert memlane("compare", recorded, SCRIPT).err.endswith(
        "is neither a record file of memlane trace nor the output of memlane count --json\n"
    )
    answer = memlane("compare", recorded, recorded, "-k", "naive=")
    assert answer.err == "memlane: --kernel naive=: pair the name in the first file with the name in the second, as in naive=tiled\n"
    replace(load(recorded), target="cuda:0", modelled=False).save("gpu.parquet")
    answer = memlane("compare", recorded, "gpu.parquet")
    assert "Note: times are not compared: one side was measured and the other modelled." in answer.lines


def test_warps_that_live_longer_in_a_shorter_launch_are_no_loss(memlane: Command, recorded: Path) -> None:
    """The tile makes the warps of a transpose live longer, and a large launch shorter, because its stores are whole sectors."""
    trace = load(recorded)
    cycles = {"naive": 3960, "tiled": 1980, "padded": 1000}  # at 1,980 MHz
    launches = [
        replace(one, time=None if one.time is None else replace(one.time, cycles=cycles[one.kernel.partition("(")[0]]))
        for one in trace.launches
    ]
    replace(trace, launches=tuple(launches), clock_mhz=1980.0).save("large.parquet")
    words = ("compare", "large.parquet", "large.parquet", "--kernel", "naive=tiled")
    assert memlane(*words).lines[0].startswith("naive -> tiled: a launch with probes takes 2 -> 1 us (-50 %); ")
    [kernel] = json.loads(memlane(*words, "--json").out)["kernels"]
    assert kernel["cycles_of_life"]["after"] > kernel["cycles_of_life"]["before"]
    assert (kernel["probed_ns"]["before"], kernel["probed_ns"]["after"]) == (pytest.approx(2000), pytest.approx(1000))
