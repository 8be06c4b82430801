"""The benchmark of stencils on several devices: its rows by hand, and one case on emulated devices."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stencil_scaling
from harness import RESULTS, Row
from stencil_scaling import Found, hidden_rows, in_turn, names_of, transport_rows
from stencil_scaling_cases import case_of
from stencil_scaling_gains import BEST, EACH_STEP, NO_TIME, OF_ALL, earlier, over_all, speed_ups
from stencil_scaling_judged import (
    CHOSEN,
    OLDER_PLANS,
    SHARED_BY,
    Setting,
    model_rows,
    predicted_us,
    rejudge,
    settings_of,
    shared_row,
)
from stencil_scaling_parts import _copies, _puts

from memlane.chip import load
from memlane.lab.result import NOT_MEASURED
from memlane.lab.stencil.predict import Point
from memlane.plan import races
from memlane.targets import devices


def test_the_largest_number_of_devices_comes_first() -> None:
    names = names_of([8, 1, 4, 2])
    eight = "7-point 256^3, 8 devices"
    assert names[:4] == [eight, f"{eight} by flags", f"{eight} by persistent kernels", "7-point 256^3, 1 device"]
    assert names.index("MPI ranks, 8 devices") < names.index("7-point 256^3, 4 devices") < names.index("7-point 256^3, 2 devices")
    assert len(names) == len(set(names)) == 5 * (1 + 3 * 3) + 3 * 3 + 3 * 3 + 4
    # Of one GPU two ranks share it.
    assert names_of([1])[-3:] == [f"MPI ranks, 2 devices{by}" for by in ("", " by mpi-cuda", " by nccl")]
    assert names_of([1])[0] == "7-point 256^3, 2 slabs of one device"
    options = argparse.Namespace(counts="", target="emulator:h200")
    assert stencil_scaling.counts_of(options) == [2, 1]


def test_what_several_devices_gain_over_one() -> None:
    rows = [Row("7-point 256^3, 1 device", BEST, 22.0, "us"), Row("7-point 256^3, 2 devices", BEST, 11.0, "us")]
    rows += [Row("7-point 256^3, 1 device", EACH_STEP, 35.0, "us"), Row("7-point 256^3, 4 devices", EACH_STEP, 14.0, "us")]
    rows += [Row("7-point 512^3 a device, 1 device", BEST, 130.0, "us"), Row("7-point 512^3 a device, 2 devices", BEST, 132.0, "us")]
    found = {(row.case, row.metric): row for row in speed_ups(rows, True)}
    best = found["7-point 256^3, 2 devices", "speed-up over one device"]
    assert (best.value, best.reach, best.holds) == (2.0, 1.5, True)
    each = found["7-point 256^3, 4 devices", "speed-up, k = 1"]
    assert (each.value, each.reach, each.holds) == (2.5, 3.2, False)
    assert each.note
    weak = found["7-point 512^3 a device, 2 devices", "efficiency"]
    assert (weak.value, weak.reach) == (pytest.approx(130 / 132, abs=1e-4), 0.98)
    assert len([metric for _, metric in found if metric != OF_ALL]) == 3
    assert all(row.reach is None for row in speed_ups(rows, False))


def test_an_overlapped_step_beside_its_parts() -> None:
    found = Found({Setting("peer", 1, True): 12.0, Setting("peer", 1, False): 15.0})
    found.parts = {Setting("peer", 1, True): Point(13.0, 8.0, 6.0, 2.0), Setting("peer", 1, False): Point(14.0, 9.0, 3.0, 0.0)}
    (row,) = hidden_rows("a case", found)
    assert (row.value, row.reach, row.holds) == (2.0, 1.5, False)  # 12 us over max(8, 3) + 2
    assert row.note
    found.us = {Setting("host", 1, True): 30.0, Setting("host", 2, False): 20.0, Setting("host", 1, False): 28.0}
    (gain,) = transport_rows("Himeno M, 2 devices", "host", 1.21, found)
    assert (gain.value, gain.reach) == (1.4, 1.21)


def test_rows_of_other_numbers_of_devices_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "stencil_scaling.json"
    rows = [Row(f"7-point 256^3, {count}", BEST, 9.0, "us", note="peer, k = 2") for count in ("2 devices", "4 devices")]
    rows += [Row("7-point 256^3, 2 devices, peer", "gain", 1.0, ""), Row("7-point 256^3, 4 devices", "speed-up over one device", 3.0, "")]
    path.write_text(json.dumps({"commit": "a" * 40, "date": "2026-11-23", "rows": [row.as_json() for row in rows]}))
    now = [Row("7-point 256^3, 2 devices", BEST, 8.0, "us")]
    (one,) = [row for row in over_all(earlier(path), ["7-point 256^3, 2 devices"], now, False) if row.metric == BEST]
    assert (one.case, one.note) == ("7-point 256^3, 4 devices", "peer, k = 2; measured at commit aaaaaaaaaaaa, 2026-11-23")
    now = [Row("7-point 256^3, 2 devices", NOT_MEASURED, None, "", note=NO_TIME)]
    both = over_all(earlier(path), ["7-point 256^3, 2 devices"], now, False)
    assert [row.case for row in both if row.metric == BEST] == ["7-point 256^3, 2 devices", "7-point 256^3, 4 devices"]
    assert earlier(tmp_path / "nothing.json") == []
    now = [Row(f"7-point 256^3, {count}", BEST, us, "us") for count, us in (("1 device", 16.0), ("2 devices", 8.0))]
    gains = {
        row.case: (row.value, row.note)
        for row in over_all(earlier(path), [row.case for row in now], now, False)
        if "speed-up" in row.metric
    }
    assert gains == {
        "7-point 256^3, 2 devices": (2.0, ""),
        "7-point 256^3, 4 devices": (3.0, "measured at commit aaaaaaaaaaaa, 2026-11-23"),
    }


def test_a_setting_is_read_as_it_is_written() -> None:
    for setting in (Setting("peer", 2, True), Setting("flags", 8, False), Setting("host", 1, False, (1, 2, 1))):
        assert Setting.of(str(setting)) == setting
    with pytest.raises(ValueError, match="'peer, two' is no setting, as 'peer, 1x2x1, k = 2, not overlapped'"):
        Setting.of("peer, two")


def test_a_result_is_judged_again_without_its_times(tmp_path: Path) -> None:
    """The rows of the model are new, and what was measured, when, and by which command stays."""
    case, fused = "7-point 256^3, 2 devices", {Setting("peer", 1, True): 1, Setting("peer", 4, True): 4}
    times = Row(
        case, BEST, 14.0, "us", peer={"peer, k = 1": 31.0, "peer, k = 4": 14.0}, note="peer, k = 4; measured at commit bbb, 2026-11-24"
    )
    worst = Row(f"{case}, peer", "predicted over measured, less 1, worst", 9.0, "", 0.2, note="why; measured at commit bbb, 2026-11-24")
    loss = Row(f"{case}, peer", CHOSEN, 9.0, "", None, note="chosen")
    others = [Row("Himeno M, 2 devices, peer", CHOSEN, 1.5, "", 1.05), Row(case, OF_ALL, 14.0, "us")]
    path = tmp_path / "stencil_scaling.json"
    head = {"commit": "a" * 40, "date": "2026-11-25", "command": "measure", "chip": "h200"}
    path.write_text(json.dumps({**head, "rows": [row.as_json() for row in (times, shared_row(case, fused), worst, loss, *others)]}))
    assert {row.metric for row in rejudge(path)} == {worst.metric, CHOSEN}
    found = json.loads(path.read_text())
    assert {name: found[name] for name in head} == head
    by = {(row["case"], row["metric"]): row for row in found["rows"]}
    assert by[case, BEST] == times.as_json()
    assert [by[row.case, row.metric] for row in others] == [row.as_json() for row in others]
    again = by[worst.case, worst.metric]
    assert again["value"] < 0.2
    assert again["note"].startswith("judged again on 20")
    assert again["note"].endswith("; measured at commit bbb, 2026-11-24")
    assert set(again["peer"]) == {"k = 1", "k = 4"}
    assert (by[loss.case, CHOSEN]["value"], by[loss.case, CHOSEN]["reach"]) == (1.0, 1.05)  # an H200
    assert "measured at commit" not in by[loss.case, CHOSEN]["note"]


def test_a_choice_that_was_not_measured_is_not_judged() -> None:
    """Of `host` only k = 1 was measured, which the model does not take: its loss is not known, and not 0."""
    case, chip = case_of("7-point 256^3", 4), load("h200")
    asked = list(settings_of(case, 4, ("peer", "host"), quick=False))
    expected = {one: predicted_us(case, chip, 4, one) for one in asked}
    order = in_turn(expected)
    assert order[:2] == [Setting("peer", 1, True), Setting("host", 1, True)]
    best = [min((one for one in asked if one.transport == name), key=lambda one: expected[one]) for name in ("peer", "host")]
    assert order[2:4] == best
    assert all(one.parts for one in order[-10:])
    times = {Setting("peer", 1, True): 29.0, best[0]: 11.5, Setting("host", 1, True): 44.0}
    rows = [row for row in model_rows("x", case, chip, 4, times, {one: one.k for one in times}, asked) if row.metric == CHOSEN]
    assert [(row.case, row.value, row.reach) for row in rows] == [("x, peer", 1.0, 1.05), ("x, host", None, None)]
    assert rows[1].note == f"chosen: {best[1]}, which was not measured; best of 1 measured settings: host, k = 1"


@pytest.mark.parametrize("chip", ["h200", "h100"])
def test_the_kernels_of_all_measured_steps_are_known(chip: str) -> None:
    rows = json.loads((RESULTS / chip / "stencil_scaling.json").read_text(encoding="utf-8"))["rows"]
    kernels = {row["case"]: row["peer"] for row in rows if row["metric"] == SHARED_BY}
    for row in rows:
        if row["metric"] == BEST and row["peer"] and "slabs of one device" not in row["case"]:
            assert set(kernels[row["case"]]) == set(row["peer"])
            assert all(Setting.of(text).k % steps == 0 for text, steps in kernels[row["case"]].items())


@pytest.mark.parametrize("through_host", [False, True])
def test_exchanges_alone_are_in_order(through_host: bool) -> None:
    assert races(_copies(devices("emulator:h200", 3), 4096, 3, through_host)) == []


def test_puts_alone_are_in_order() -> None:
    plan = _puts(devices("emulator:h200", 3), 4096, 5)
    assert races(plan) == []
    assert str(plan).count("put 4,096 B") == 2


def test_predictions_are_there_for_all_that_is_measured() -> None:
    stored = json.loads((RESULTS / "h200" / "stencil_scaling_predicted.json").read_text(encoding="utf-8"))
    best = {row["case"] for row in stored["rows"] if row["metric"] == f"{BEST}, predicted"}
    assert best == {name for name in names_of([8, 1, 4, 2]) if ("-point" in name or name.startswith("Himeno")) and " by " not in name}


def test_the_fastest_transport_counts() -> None:
    rows = [Row("7-point 256^3, 2 devices", BEST, 12.0, "us", note="peer, k = 2"), Row("7-point 256^3, 1 device", BEST, 22.0, "us")]
    rows += [Row("7-point 256^3, 2 devices by flags", BEST, 10.0, "us", note="flags, k = 1")]
    rows += [Row("7-point 256^3, 4 devices by flags", BEST, 8.0, "us", note="flags, k = 1")]
    found = {(row.case, row.metric): row for row in speed_ups(rows, True)}
    two, four = (found[f"7-point 256^3, {count} devices", OF_ALL] for count in (2, 4))
    assert (two.value, two.reach, two.note) == (10.0, 11.0, "flags, k = 1")
    assert (four.value, four.reach, four.holds) == (8.0, 7.0, False)
    assert found["7-point 256^3, 2 devices", "speed-up over one device"].value == 2.2


@pytest.mark.slow
@pytest.mark.parametrize(("by", "transports"), [("", ("peer", "host")), (" by flags", ("flags",))])
def test_two_emulated_devices(by: str, transports: tuple[str, ...], quick: Callable[..., list[dict[str, Any]]]) -> None:
    case = f"7-point 256^3, 2 devices{by}"
    rows = {(row["case"], row["metric"]): row for row in quick("stencil_scaling", case)}
    assert all(row["reach"] in (None, 0) for row in rows.values())  # what H200s are to reach
    best = rows[case, BEST]
    assert best["value"] == pytest.approx(min(best["peer"].values()), abs=0.01)
    assert set(best["peer"]) >= {f"{way}, k = {k}{words}" for way in transports for k in (1, 2) for words in ("", ", not overlapped")}
    assert set(best["peer"]) >= {f"{way}, {parts}, k = 1" for way in transports[:1] for parts in ("1x2x1", "1x1x2")}
    assert {rows[f"{case}, {way}", "cells that differ from one device"]["value"] for way in transports} == {0}
    assert (case, "left out") not in rows


def test_times_of_older_plans_are_not_judged_again(tmp_path: Path) -> None:
    """Neither those whose note names an older commit, nor those of a document of one."""
    case, note = "7-point 256^3, 2 devices", f"measured at commit {OLDER_PLANS[0]}, 2026-11-23"
    path = tmp_path / "stencil_scaling.json"
    for commit, noted, count in (("a" * 40, "", 3), ("a" * 40, note, 0), (OLDER_PLANS[1] + "b" * 28, "", 0)):
        rows = [Row(case, BEST, 26.0, "us", peer={"peer, k = 1": 26.0}, note=noted), shared_row(case, {Setting("peer", 1, True): 1})]
        rows += [Row(f"{case}, peer", f"predicted over measured, less 1, {end}", 9.0, "", 0.2) for end in ("average", "worst")]
        rows += [Row(f"{case}, peer", CHOSEN, 9.0, "", None)]
        head = {"commit": commit, "date": "2026-11-25", "command": "measure", "chip": "h200"}
        path.write_text(json.dumps({**head, "rows": [row.as_json() for row in rows]}))
        assert len(rejudge(path)) == count
        assert sum(row["value"] == 9.0 for row in json.loads(path.read_text())["rows"]) == 3 - count
