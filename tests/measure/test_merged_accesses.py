"""Loads that the assembler merges, counted as the one access that they become, on both roads of counting."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load
from memlane.chip.access import wavefronts
from memlane.instrument import add_merged_loads, site_table
from memlane.launch import Target
from memlane.measure import Counter
from memlane.ptx import parse, print_module
from memlane.record import MERGED
from memlane.report import counts_document, render_counts, to_text
from memlane.targets import target as target_named
from tests.instrument.kernels import kernel
from tests.sass.code import cubin_of

pytestmark = pytest.mark.slow

ROWS = kernel(
    """
    .reg .u32 %i, %n, %v<5>; .reg .u64 %a, %o; .reg .pred %q;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
    shl.b32 %n, %i, 4; mov.u32 %v0, words; add.u32 %n, %n, %v0;
    st.shared.v4.u32 [%n], {%i, %i, %i, 7}; bar.sync 0;
    ld.shared.u32 %v2, [%n+8]; ld.shared.u32 %v0, [%n]; ld.shared.u32 %v1, [%n+4]; ld.shared.u32 %v3, [%n+12];
    add.u32 %v0, %v0, %v1; add.u32 %v2, %v2, %v3; add.u32 %v0, %v0, %v2; add.u32 [total], %v0, 0;
    """.replace("add.u32 [total], %v0, 0;", "red.global.add.u32 [total], 1; st.global.u32 [%a], %v0; ret;"),
    before=".global .u32 total;\n.shared .align 16 .b8 words[1024];",
)
"""Each lane reads four neighbouring words of its own: alone they meet in four banks, together they do not."""


@pytest.fixture(params=[True, False], ids=["observed", "counted on the device"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    cubin_of(ROWS)  # Skips where nothing can be assembled.
    found = target_named("emulator:h200")
    monkeypatch.setattr(found, "observes", request.param, raising=False)
    return found


def test_the_wide_access_is_counted_beside_those_that_it_replaces(target: Target) -> None:
    loaded, array = target.load(ROWS), target.zeros(64, np.uint32)
    counts = ml.count(loaded["k"][1, 64], array, merged=True)
    (wide,) = counts.merged
    chip, rows = load("h200"), [16 * lane for lane in range(32)]
    narrow = wavefronts(chip, rows, [True] * 32, 4)
    whole = wavefronts(chip, rows, [True] * 32, 16)
    assert (wide.requests, wide.lanes, wide.bytes, wide.wavefronts) == (2, 64, 1024, 2 * whole)
    merged = [one for one in counts.checked.sites if one.exactness == MERGED]
    assert [one.wavefronts for one in merged] == [2 * narrow] * 4
    assert 4 * narrow > whole, "together they meet in fewer banks"
    assert (wide.site.id, wide.site.nbytes) == (2, 16), "under the site of the lowest address"


def test_all_else_is_what_it_is_without(target: Target) -> None:
    loaded, array = target.load(ROWS), target.zeros(64, np.uint32)
    with_wide, plain = (ml.count(loaded["k"][1, 64], array, merged=merged) for merged in (True, False))
    assert plain.merged == ()
    assert with_wide.sites == plain.sites
    assert with_wide.branches == plain.branches
    assert with_wide.thread_instructions == plain.thread_instructions


def test_the_kernel_computes_what_it_did_on_the_variables_of_its_module(target: Target) -> None:
    loaded, array = target.load(ROWS), target.zeros(64, np.uint32)
    with Counter(merged=True) as counter:
        loaded["k"][1, 64](array)
        loaded["k"][1, 64](array)
    assert [len(counts.merged) for counts in counter.finish()] == [1, 1]
    lanes = np.arange(64)
    assert np.array_equal(array.numpy(), 3 * lanes + 7)
    address, _ = target.symbol(loaded, "total")
    total = np.zeros(1, np.uint32)
    target.read(address, total)
    assert total[0] == 128


def test_who_watches_besides_sees_the_plain_kernel() -> None:
    target = target_named("emulator:h200")
    loaded, array = target.load(ROWS), target.zeros(64, np.uint32)
    with Counter() as outer, Counter(merged=True) as inner:
        loaded["k"][1, 64](array)
    (first,), (second,) = outer.finish(), inner.finish()
    assert first.sites == second.sites
    assert second.merged == ()


def test_it_is_shown(target: Target) -> None:
    counts = ml.count(target.load(ROWS)["k"][1, 64], target.zeros(64, np.uint32), merged=True)
    text = to_text(render_counts(counts), 120)
    (row,) = [line.split() for line in text.splitlines() if "= 16 B load" in line]
    assert row[4:6] == ["2", "32"]
    (launch,) = counts_document(counts)["launches"]
    assert [(one["nbytes"], one["counts"]["requests"]) for one in launch["merged"]] == [(16, 2)]
    plain = to_text(render_counts(ml.count(target.load(ROWS)["k"][1, 64], target.zeros(64, np.uint32))), 120)
    assert "The cost of the assembled access that replaces merged ones was not counted." in plain


# -- the pass --------------------------------------------------------------------------------------------------------------------


def test_a_wide_load_stands_in_front_of_the_first_and_reads_from_the_lowest() -> None:
    merged_loads = add_merged_loads(ROWS, [(2, 3, 1, 4)])
    assert merged_loads is not None
    again = parse(print_module(merged_loads.module), "again.ptx")
    names = [one.name for one in again.kernels["k"].body.instructions()]  # type: ignore[union-attr]
    (at,) = merged_loads.wide["k"]
    assert names[at : at + 2] == ["ld.shared.v2.b64", "ld.shared.u32"]
    assert "[%n+0]" in print_module(merged_loads.module) or "v2.b64 {%ml_wide0, %ml_wide1}, [%n];" in print_module(merged_loads.module)
    originals = [one.name for one in ROWS.kernels["k"].body.instructions()]  # type: ignore[union-attr]
    assert [names[now] for now in merged_loads.kept["k"]] == originals
    assert list(merged_loads.kept["k"].values()) == list(range(len(originals)))


@pytest.mark.parametrize("group", [(0, 1), (1, 2, 3), (5, 6)], ids=["a store", "12 bytes", "a reduction"])
def test_what_cannot_be_read_twice_is_left(group: tuple[int, ...]) -> None:
    assert len(site_table(ROWS).sites) == 7
    assert add_merged_loads(ROWS, [group]) is None


def test_guarded_loads_are_left() -> None:
    module = kernel(
        """
        .reg .u32 %v<3>; .reg .u64 %a; .reg .pred %q;
        ld.param.u64 %a, [p]; setp.ne.u64 %q, %a, 0;
        @%q ld.global.u32 %v0, [%a]; @%q ld.global.u32 %v1, [%a+4]; st.global.u32 [%a+8], %v0; ret;
        """
    )
    assert add_merged_loads(module, [(0, 1)]) is None
