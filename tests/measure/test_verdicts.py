"""What the assembled code says of traces and counts: proved where there is code, and said where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import memlane as ml
from memlane.audit import SiteProof
from memlane.compile import assemble
from memlane.errors import CompileError, MissingDependency
from memlane.launch import LoadedModule, Target
from memlane.measure import verdicts
from memlane.record import BY_EMULATOR, COMPLETE, EXACT, HINT, ISSUE_ONLY, MERGED, NOT_CHECKED, NOT_PROVED, PROVED, Trace
from memlane.targets import target as target_named
from tests.instrument.kernels import kernel
from tests.sass.code import cubin_of

LOADS = kernel("""
    .reg .u32 %i, %v, %w, %x; .reg .u64 %a, %o; .reg .pred %q;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
    mov.u32 %w, 0; mov.u32 %i, 0;
    ld.global.u32 %v, [%a]; ld.global.u32 %w, [%a+4]; ld.global.u32 %x, [%a]; add.u32 %w, %w, %v; add.u32 %w, %w, %x;
again:
    ld.global.u32 %v, [%a]; add.u32 %w, %w, %v; add.u64 %a, %a, 128; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 4;
    @%q bra again;
    st.global.u32 [%a], %w; ret;
""")
"""A load that is made twice, which the assembler does not, and a loop of four turns, which it unrolls without probes."""
WORDS = kernel(
    """
    .reg .u32 %i, %n, %v<5>; .reg .u64 %a, %o;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
    shl.b32 %n, %i, 2; mov.u32 %v0, words; add.u32 %n, %n, %v0; st.shared.u32 [%n], %i; bar.sync 0;
    ld.shared.u32 %v0, [words]; ld.shared.u32 %v1, [words+4]; ld.shared.u32 %v2, [words+8]; ld.shared.u32 %v3, [words+12];
    add.u32 %v0, %v0, %v1; add.u32 %v2, %v2, %v3; add.u32 %v0, %v0, %v2; st.global.u32 [%a], %v0; ret;
    """,
    before=".shared .align 16 .b8 words[128];",
)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A GPU as far as it matters here: it does not observe, and hands out the code that it was given."""
    cubin_of(LOADS)  # Skips where nothing can be assembled.
    monkeypatch.setattr(verdicts, "present_store", lambda: None)  # What is kept on disk is asked in test_kept_verdicts.
    found = target_named("emulator:h200")
    monkeypatch.setattr(found, "observes", False, raising=False)
    monkeypatch.setattr(found, "assembled", lambda loaded: assemble(loaded.module).data)
    return found


def traced(target: Target) -> Trace:
    return ml.trace(target.load(LOADS)["k"][1, 32], target.zeros(1024, np.uint32))


def test_sites_are_proved_on_the_code_that_was_launched(target: Target) -> None:
    first, _, second, loop, store = traced(target).sites
    assert (first.completeness, first.evidence, first.copies, first.reason) == (COMPLETE, PROVED, 1, "")
    assert second.changed == "none in the original, 1 x 4 B traced"
    assert loop.completeness == COMPLETE
    assert loop.copies is not None
    assert loop.copies >= 1
    assert "in the original, 1 x 4 B traced" in loop.changed
    assert (store.completeness, store.evidence, store.copies) == (ISSUE_ONLY, PROVED, 1)


def test_the_column_of_the_records_is_the_verdict(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code whose waits are gone, as another assembler might make it: the times stay, and are called what they are."""
    monkeypatch.setattr(verdicts, "prove", without_proof(verdicts.prove))
    trace = traced(target)
    assert trace.table["completeness"].unique().to_pylist() == [ISSUE_ONLY]
    assert trace.sites[0].reason == "nobody waits"


def without_proof(prove: Callable[..., tuple[SiteProof, ...]]) -> Callable[..., object]:
    return lambda *args: tuple(replace(proof, completeness=ISSUE_ONLY, reason="nobody waits") for proof in prove(*args))


@pytest.mark.parametrize(
    ("error", "reason"),
    [(CompileError("nvdisasm refuses the cubin", "log"), "nvdisasm refuses the cubin"), (KeyError("R7"), "KeyError: 'R7'")],
)
def test_no_trace_is_lost_for_a_listing_that_cannot_be_read(
    target: Target, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def fails(*args: object) -> object:
        raise error

    monkeypatch.setattr(verdicts, "prove", fails)
    trace = traced(target)
    assert trace.table.num_rows == 8
    assert {site.evidence for site in trace.sites} == {f"{NOT_PROVED}: {reason}"}
    assert trace.sites[0].completeness == COMPLETE


def test_the_proof_is_read_once_for_a_module(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LoadedModule] = []
    call, array = target.load(LOADS)["k"][1, 32], target.zeros(1024, np.uint32)
    prove = verdicts.prove
    monkeypatch.setattr(verdicts, "prove", lambda *args: asked.append(args[0]) or prove(*args))
    first, second = ml.trace(call, array), ml.trace(call, array)
    assert first.sites == second.sites
    assert len(asked) == 1


def test_verdicts_survive_the_file(target: Target, tmp_path: object) -> None:
    trace = traced(target)
    path = f"{tmp_path}/t.parquet"
    trace.save(path)
    assert ml.load(path).sites == trace.sites


def test_the_emulator_completes_by_construction() -> None:
    target = target_named("emulator:h200")
    sites = traced(target).sites
    assert {(site.evidence, site.copies, site.changed) for site in sites} == {(BY_EMULATOR, None, "")}


# -- counts ----------------------------------------------------------------------------------------------------------------------


def counted(target: Target) -> ml.Counts:
    return ml.count(target.load(WORDS)["k"][1, 32], target.zeros(32, np.uint32))


def verdicts_of(counts: ml.Counts) -> list[tuple[str, str]]:
    return [(entry.exactness, entry.assembled) for entry in counts.checked.sites]


MERGED_LOADS = [
    (EXACT, "1 x 4 B shared store"),
    *[(MERGED, "1 x 16 B shared load")] * 4,
    (EXACT, "1 x 4 B global store"),
]


def test_counts_say_which_sites_the_hardware_accesses_as_counted(target: Target) -> None:
    on_device = counted(target)
    emulated = counted(target_named("emulator:h200"))
    assert verdicts_of(on_device) == verdicts_of(emulated) == MERGED_LOADS
    assert on_device.exact_share == emulated.exact_share == pytest.approx(2 / 6)


TURNS = kernel(
    """
    .reg .u32 %i, %n, %v, %w; .reg .u64 %a, %b, %o; .reg .pred %q;
    ld.param.u64 %a, [p]; ld.param.u64 %b, [turns]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
    add.u64 %b, %b, %o; ld.global.u32 %n, [%b]; mov.u32 %w, 0; setp.eq.u32 %q, %n, 0;
    @%q bra done;
again:
    ld.global.u32 %v, [%a]; add.u32 %w, %w, %v; add.u64 %a, %a, 128; sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0;
    @%q bra again;
done:
    st.global.u32 [%b], %w; ret;
    """,
    params=".param .u64 p, .param .u64 turns",
)
"""Each lane runs a loop as often as it is told; ptxas unrolls it with a rest."""


@pytest.mark.parametrize(("turns", "verdict"), [(np.full(32, 7), EXACT), (np.arange(32) % 8, HINT)])
def test_whether_copies_of_a_loop_serve_the_same_lanes_depends_on_the_launch(turns: np.ndarray, verdict: str) -> None:
    target = target_named("emulator:h200")
    words = target.array(np.zeros(32 * 8, np.uint32))
    counts = ml.count(target.load(TURNS)["k"][1, 32], words, target.array(turns.astype(np.uint32))).checked
    load = counts.sites[1]
    assert (load.site.op, load.requests, load.lanes) == ("ld.global.u32", max(turns), sum(turns))
    assert (load.exactness, bool(load.exactness_reason)) == (verdict, verdict == HINT)
    assert {one.exactness for one in counts.sites if one is not load} == {EXACT}


def test_counting_reads_no_code_before_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> object:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(verdicts, "assemble", fails)
    counts = counted(target_named("emulator:h200"))
    assert {entry.exactness for entry in counts.sites} == {NOT_CHECKED}
    assert counts.total().requests == 6


def test_chips_without_an_assembler_are_not_checked() -> None:
    entries = counted(target_named("emulator:v100")).checked.sites
    assert {(entry.exactness, entry.exactness_reason) for entry in entries} == {
        (NOT_CHECKED, "there is no assembler for v100, whose compute capability is 7.0")
    }


def test_code_for_another_generation_is_not_checked() -> None:
    entries = counted(target_named("emulator:a100")).checked.sites
    assert {entry.exactness for entry in entries} == {NOT_CHECKED}
    assert "k.ptx is for sm_90 and cannot run on a GPU of sm_80" in entries[0].exactness_reason


def test_counts_are_not_lost_for_a_listing_that_cannot_be_read(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> object:
        raise KeyError("R7")

    monkeypatch.setattr(verdicts, "exactness", fails)
    monkeypatch.setenv("MEMLANE_CACHE", "0")  # where verdicts of other tests are
    counts = ml.count(target.load(WORDS)["k"][1, 32], target.zeros(32, np.uint32), merged=True)
    assert {(entry.exactness, entry.exactness_reason) for entry in counts.checked.sites} == {(NOT_CHECKED, "KeyError: 'R7'")}
    assert counts.merged == ()


def test_an_absent_assembler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: object, **options: object) -> object:
        raise MissingDependency("assembling PTX")

    monkeypatch.setattr(verdicts, "assemble", absent)
    counts = counted(target_named("emulator:h200"))
    assert counts.exact_share is None
    assert counts.checked.sites[0].exactness_reason.startswith("assembling PTX needs packages that are not installed")
