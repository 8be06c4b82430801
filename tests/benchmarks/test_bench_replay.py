"""Launches captured from scripts and run again in other ways."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import running
from harness import ROOT, Row
from outputs import emulated
from probing import ProbedLaunch
from replay import differing_bytes, each_launch, elsewhere, memory_of, outcome, read_memory, traced, translated
from running import each_case, example

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.instrument import TraceOptions
from memlane.launch import Launch
from memlane.measure.instrumented_module import probe

pytestmark = pytest.mark.slow


def test_words_that_are_addresses_are_translated_and_others_are_not() -> None:
    held = np.array([5, 1000, 1016, 1023, 1024, 2000], np.uint64).view(np.uint8)
    moved = {(1000, 24): 50_000, (2000, 8): 60_000}
    assert translated(held, moved).view(np.uint64).tolist() == [5, 50_000, 50_016, 50_023, 1024, 60_000]
    assert translated(held[:12], moved).tolist() == held[:12].tolist()


def test_every_launch_is_visited_and_memory_is_put_back() -> None:
    names: list[str] = []

    def visit(number: int, launch: Launch) -> None:
        names.append(launch.kernel.title.partition("(")[0])
        address, nbytes = memory_of(launch)[0]
        launch.kernel.target.clear(address, nbytes)

    # The script checks its results itself: it would fail if the linked ring stayed cleared.
    assert each_launch(example("chase"), ["16"], "emulator:h200", visit) == 5
    assert names == ["chase_shared", "link_ring", "chase_global", "link_ring", "chase_global"]


def test_a_launch_on_another_target_computes_the_same_up_to_addresses() -> None:
    other = Emulator(load("h200"))
    keep = other.allocate(1 << 20)  # so that nothing lies where it does on the first
    compared = 0

    def visit(number: int, launch: Launch) -> None:
        nonlocal compared
        there = elsewhere(launch, other)
        launch.kernel.target.launch(launch)
        other.launch(there)
        back = {now: before[0] for now, before in zip(memory_of(there), memory_of(launch), strict=True)}
        assert {address for address, _ in back} & set(back.values()) == set()
        assert differing_bytes(read_memory(launch), [translated(held, back) for held in read_memory(there)]) == 0
        compared += sum(nbytes for _, nbytes in memory_of(launch))

    each_launch(example("chase"), ["16"], "emulator:h200", visit)
    assert keep
    assert compared > 1 << 19


def test_the_emulator_beside_a_target_is_another_one() -> None:
    """Although, while a script runs, every name of a target means that of the script."""
    seen = 0

    def visit(number: int, launch: Launch) -> None:
        nonlocal seen
        expected = outcome(launch, lambda: launch.kernel.target.launch(launch))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch.kernel.target, "launch", lambda other: pytest.fail("launched on the target itself"))
            assert differing_bytes(expected, emulated(launch)) == 0
        seen += 1

    each_launch(example("transpose"), ["64"], "emulator:h200", visit)
    assert seen == 3


@pytest.mark.slow
def test_a_launch_with_probes_can_be_sent_out_again() -> None:
    def visit(number: int, launch: Launch) -> None:
        trace = traced(launch, "dependent")
        again = ProbedLaunch(launch, probe(launch.kernel.loaded, TraceOptions("dependent")), int(trace.warps["kept"].max()))
        for _ in range(2):
            again.reset()
            launch.kernel.target.launch(again.launch)
            seen = again.decoded()
            assert (len(seen.records), seen.lost) == (len(trace.table), 0)
            assert len(seen.records) > 0

    each_launch(example("copies"), ["1024"], "emulator:h200", visit)


def test_a_case_that_fails_leaves_the_others_their_rows() -> None:
    options = argparse.Namespace(case=None, rows=None, target="emulator:h200")

    def run(name: str, options: argparse.Namespace) -> list[Row]:
        if name == "bad":
            raise ValueError("no such ring")
        return [Row(name, "value", 1.0, "")]

    (good,), (bad,), (last,) = each_case(["good", "bad", "last"], run, options)
    assert (good.case, good.value, last.case) == ("good", 1.0, "last")
    assert (bad.value, bad.holds, bad.note) == (None, False, "ValueError: no such ring")


def own_process(monkeypatch: pytest.MonkeyPatch, benchmark: str, case: str, limit: float = 600) -> list[Row]:
    monkeypatch.setattr("sys.argv", [str(ROOT / "benchmarks" / f"{benchmark}.py")])
    options = argparse.Namespace(target="emulator:h200", quick=True, limit=limit)
    return running._in_own_process(case, options, [])


@pytest.mark.slow
def test_a_case_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = own_process(monkeypatch, "emulator", "parsing")
    assert row.metric == "parse"
    assert row.value is not None


@pytest.mark.slow
def test_a_process_that_dies_or_hangs_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    (late,) = own_process(monkeypatch, "emulator", "parsing", limit=0.01)
    assert late.note == "took longer than 0.01 s"
    (dead,) = own_process(monkeypatch, "accuracy", "alone, nowhere")
    assert (dead.value, dead.holds) == (None, False)
