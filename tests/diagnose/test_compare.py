"""Two traces or counts side by side: lines find their partners, and only what is more than noise is called a change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from memlane.diagnose.changes import CERTAINTY, Comparison, summary
from memlane.diagnose.comparison import compare
from memlane.diagnose.spread import median_change
from memlane.errors import CommandError, RecordError
from memlane.record import Counts, LaunchInfo, Site, SiteCounts, Trace, build_trace
from memlane.record.sample import Sample
from memlane.record.staging import Staging
from memlane.report import counts_document, to_json, to_text
from memlane.report.comparison import comparison_document, render_comparison

WARPS = 64
Latencies = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Access:
    """An operation of the kernel that a test makes up."""

    text: str
    op: str
    latency: float
    sectors: int = 4

    @property
    def space(self) -> str:
        return self.op.split(".")[1]


LOAD, TILE, STORE = (
    Access("x = in[i];", "ld.global.f32", 500),
    Access("y = tile[i];", "ld.shared.f32", 30),
    Access("out[i] = y;", "st.global.f32", 9),
)
KERNEL = (LOAD, TILE, STORE)


def source_of(accesses: Sequence[Access], head: int) -> str:
    lines = ["// a comment"] * head + list(dict.fromkeys(access.text for access in accesses))
    return "\n".join(f"    {line}" for line in lines)


def sites_of(accesses: Sequence[Access], kernel: str, head: int) -> list[Site]:
    texts = list(dict.fromkeys(access.text for access in accesses))
    return [
        Site(number, kernel, number, "k.cu", head + 1 + texts.index(one.text), 0, one.op, "load", one.space, 4, "dependent", "complete")
        for number, one in enumerate(accesses)
    ]


def made(
    accesses: Sequence[Access] = KERNEL,
    *,
    seed: int = 1,
    kernel: str = "k",
    head: int = 1,
    launches: int = 1,
    spread: float = 0.1,
    launch_spread: float = 0.0,
    target: str = "cuda:0",
    scheme: str = "dependent",
    block: int = 1,
    block_spread: float = 0.0,
) -> Trace:
    """A trace of `WARPS` warps a launch, each making each access 8 times, with latencies that scatter by `spread` over warps, and by
    `block_spread` over blocks of `block` warps."""
    random = np.random.default_rng(seed)
    sites = sites_of(accesses, kernel, head)
    rows: dict[str, list[npt.NDArray[np.int64]]] = {
        name: [] for name in ("launch", "site", "block", "warp", "sm", "mask", "start", "end", "sectors")
    }
    for launch in range(launches):
        whole = 1 + launch_spread * random.standard_normal()
        for site, access in zip(sites, accesses, strict=True):
            warp = np.repeat(np.arange(WARPS), 8)
            of_warp = np.repeat(1 + spread * random.standard_normal(WARPS), 8)
            of_block = np.repeat(1 + block_spread * random.standard_normal(WARPS // block), 8 * block) if block_spread else 1.0
            cycles = access.latency * whole * of_block * of_warp * (1 + spread * random.random(len(warp)))
            start = np.tile(np.arange(8), WARPS) * 10_000 + 1000 * site.id
            place = {"launch": launch, "site": site.id, "block": warp // block, "warp": warp % block, "sm": 0}
            values = {**place, "mask": 0xFFFFFFFF, "sectors": access.sectors}
            for name, value in values.items():
                rows[name].append(np.broadcast_to(np.asarray(value, np.int64), warp.shape))
            rows["start"].append(start)
            rows["end"].append(start + cycles.astype(np.int64))
    return build_trace(
        {name: np.concatenate(parts) for name, parts in rows.items()},
        sites=sites,
        launches=[LaunchInfo(number, kernel, (WARPS // block, 1, 1), (32 * block, 1, 1), 0, 0, (), scheme) for number in range(launches)],
        chip="h200",
        target=target,
        modelled=target != "cuda:0",
        sources={"k.cu": source_of(accesses, head)},
    )


def changed(found: Comparison) -> dict[str, set[str]]:
    """By opcode: what changed."""
    [kernel] = found.kernels
    return {line.op: {name for name, one in line.changes.items() if one.is_change} for line in kernel.lines if line.is_change}


# -- noise -----------------------------------------------------------------------------------------------------------------------


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    random = np.random.default_rng(4)
    before, after = random.normal(100, 10, 41), random.normal(104, 20, 61)
    draws = 20_000
    medians = [np.median(numbers[random.integers(0, len(numbers), (draws, len(numbers)))], axis=1) for numbers in (before, after)]
    low, high = np.quantile(medians[1] - medians[0], [0.005, 0.995])
    found = median_change(before, after, 0.99)
    assert found is not None
    assert found[:2] == (np.median(before), np.median(after))
    assert found[2:] == pytest.approx((low, high), abs=0.1 * (high - low))
    assert median_change(before, after, 0.99) == found


def test_of_nothing_there_is_no_median_and_of_few_no_interval() -> None:
    assert median_change(np.zeros(0), np.ones(9), 0.99) is None
    assert median_change(np.arange(4.0), np.ones(9), 0.99) == (1.5, 1.0, None, None)


def test_the_same_kernel_twice_is_no_change() -> None:
    """At most as many false alarms as the intervals allow: of 6 intervals a pair, 1 in 100 each."""
    alarms = 0
    for seed in range(40):
        [kernel] = compare(made(seed=2 * seed), made(seed=2 * seed + 1)).kernels
        alarms += sum(change.is_change for line in kernel.lines for change in (line.cycles_p50, line.cycles_per_warp))
    assert alarms <= 40 * 6 * (1 - CERTAINTY) * 3
    found = compare(made(seed=1), made(seed=2))
    assert not found.is_change
    assert summary(found) == "k: no change beyond noise."


def test_what_is_slower_is_found_and_the_rest_is_not() -> None:
    slower = (LOAD, replace(TILE, latency=40), STORE)
    found = compare(made(seed=5), made(slower, seed=6))
    assert changed(found) == {"ld.shared.f32": {"cycles_p50", "cycles_per_warp"}}
    [kernel] = found.kernels
    change = kernel.lines[1].cycles_p50
    assert change.low is not None
    assert change.high is not None
    assert 0 < change.low < 40 / 30 * change.before - change.before < change.high  # type: ignore[operator]
    text = summary(found)
    assert text.startswith("k: line 3 (ld.shared.f32): median latency ")
    assert text.endswith("; no change beyond noise in 2 other accesses.")


def test_launches_that_differ_among_themselves_are_noise() -> None:
    """Between two launches of one program, all warps may be slower together: that shows only in several launches."""
    by_warp = compare(made(seed=3, launch_spread=0.2), made(seed=4, launch_spread=0.2))
    assert by_warp.is_change
    claims = 0
    for seed in range(0, 40, 2):
        found = compare(*(made(seed=seed + side, launches=7, launch_spread=0.2, spread=0.02) for side in (0, 1)))
        claims += found.is_change
    assert claims <= 2


def test_the_emulator_has_no_noise() -> None:
    one = made(spread=0, target="emulator:h200")
    assert not compare(one, one).is_change
    other = made((LOAD, replace(TILE, latency=31), STORE), spread=0, target="emulator:h200")
    assert changed(compare(one, other)) == {"ld.shared.f32": {"cycles_p50", "cycles_per_warp"}}
    assert summary(compare(one, one)) == "k: no change."


def test_which_warps_of_the_emulator_were_traced_is_chance() -> None:
    one, other = (made(seed=seed, target="emulator:h200") for seed in (1, 2))
    assert compare(one, other).is_change
    part = Sample(32 * WARPS, WARPS, every=32)
    few = [replace(trace, launches=tuple(replace(launch, sample=part) for launch in trace.launches)) for trace in (one, other)]
    found = compare(*few)
    assert not found.is_change
    assert summary(found) == "k: no change beyond noise."
    assert "modelled on both sides, which has no noise" not in to_text(render_comparison(found))


def test_blocks_that_were_drawn_whole_are_what_is_resampled() -> None:
    """The warps of a block are slow or quick together, so eight blocks of eight tell less than 64 warps."""
    drawn = Sample(32 * WARPS, WARPS, every=32, whole_blocks=True)

    def claims(sample: Sample | None) -> int:
        def side(seed: int) -> Trace:
            trace = made(seed=seed, spread=0.02, block=8, block_spread=0.2)
            return replace(trace, launches=(replace(trace.launches[0], sample=sample),))

        return sum(compare(side(seed), side(seed + 1)).is_change for seed in range(0, 40, 2))

    assert claims(drawn) <= 1
    assert claims(replace(drawn, whole_blocks=False)) >= 5


# -- lines -----------------------------------------------------------------------------------------------------------------------


def test_lines_that_moved_keep_their_partners() -> None:
    [kernel] = compare(made(), made(head=40)).kernels
    assert [(line.before, line.after, line.op) for line in kernel.lines] == [(2, 41, LOAD.op), (3, 42, TILE.op), (4, 43, STORE.op)]
    [kernel] = compare(made(), made((TILE, STORE, LOAD))).kernels
    assert {(line.before, line.after, line.op) for line in kernel.lines} == {(2, 4, LOAD.op), (3, 2, TILE.op), (4, 3, STORE.op)}


def test_blanks_and_comments_are_no_change_of_a_line_and_edits_are_told() -> None:
    other = (LOAD, replace(TILE, text="y  = tile[ i ];  // padded"), replace(STORE, text="out[i + 1] = y;"))
    [kernel] = compare(made(), made(other)).kernels
    assert [line.was for line in kernel.lines] == ["", "y = tile[i];", "out[i] = y;"]
    assert not kernel.only_before
    assert not kernel.only_after


def test_lines_that_are_gone_or_new_are_told() -> None:
    extra = Access("z = atomicAdd(c, 1);", "atom.global.add.u32", 700)
    [kernel] = compare(made(), made((LOAD, STORE, extra))).kernels
    assert [line.op for line in kernel.lines] == [LOAD.op, STORE.op]
    assert [line.op for line in kernel.only_before] == [TILE.op]
    assert [line.op for line in kernel.only_after] == [extra.op]
    text = summary(compare(made(), made((LOAD, STORE, extra))))
    assert "line 3 (ld.shared.f32) is gone" in text
    assert "line 4 (atom.global.add.u32) is new" in text


def test_a_wider_access_of_the_same_statement_is_its_partner() -> None:
    [kernel] = compare(made(), made((replace(LOAD, op="ld.global.v4.f32", sectors=16), TILE, STORE))).kernels
    line = kernel.lines[0]
    assert (line.op, line.was) == ("ld.global.v4.f32", "ld.global.f32")
    assert (line.sectors_per_request.before, line.sectors_per_request.after) == (4, 16)


def test_a_line_with_equal_statements_is_matched_in_order() -> None:
    twice = (LOAD, TILE, replace(TILE, op="st.shared.f32"), STORE)
    [kernel] = compare(made(twice), made(twice, head=7)).kernels
    assert [(line.before, line.after, line.op) for line in kernel.lines] == [
        (2, 8, "ld.global.f32"),
        (3, 9, "ld.shared.f32"),
        (3, 9, "st.shared.f32"),
        (4, 10, "st.global.f32"),
    ]


# -- kernels and conditions ------------------------------------------------------------------------------------------------------


def test_different_kernels_are_refused_or_paired() -> None:
    one, other = made(kernel="void ns::naive(float*)"), made(kernel="tiled")
    with pytest.raises(CommandError) as raised:
        compare(one, other)
    assert str(raised.value) == (
        "before has ns::naive and after has tiled, which are different kernels; to compare two of them anyway, pair them with --kernel "
        "ns::naive=tiled"
    )
    [kernel] = compare(one, other, {"ns::naive": "tiled"}).kernels
    assert (kernel.before, kernel.after, len(kernel.lines)) == ("ns::naive", "tiled", 3)
    with pytest.raises(CommandError, match=r"^after has no kernel nix; it has: tiled$"):
        compare(one, other, {"ns::naive": "nix"})


def test_times_of_unlike_conditions_are_not_compared() -> None:
    found = compare(made(), made(target="emulator:h200"))
    assert found.notes == ("times are not compared: one side was measured and the other modelled",)
    assert all(line.cycles_p50.before is None for line in found.kernels[0].lines)
    assert not found.is_change
    found = compare(made(), made(scheme="paper"))
    assert found.notes == ("times are not compared: the probes differ (dependent; paper)",)


def with_ends(trace: Trace, op: str, **changes: str) -> Trace:
    """The sites of an opcode as they would be, had their ends been read otherwise."""
    return replace(trace, sites=tuple(replace(one, **changes) if one.op.startswith(op) else one for one in trace.sites))


def staged(trace: Trace, *memories: str) -> Trace:
    launches = (replace(one, staging=Staging(memories[one.id], 0, "it was asked for")) for one in trace.launches)
    return replace(trace, launches=tuple(launches))


def test_lines_whose_ends_were_read_otherwise_have_no_times_to_compare() -> None:
    """Stores until they are issued, and until the device sees them: that they take longer is no change of the kernel."""
    store = Access("out[i] = x;", "st.global.f32", 900.0, 4)
    issued = with_ends(made((*KERNEL[:2], store)), "st", completeness="issue-only", scheme="dependent")
    seen = with_ends(made((*KERNEL[:2], replace(store, latency=90.0))), "st", completeness="device-visible", scheme="dependent")
    [kernel] = compare(issued, seen).kernels
    [line] = [one for one in kernel.lines if one.op == "st.global.f32"]
    assert kernel.notes == (
        f"times are not compared for accesses whose ends were read differently: line {line.after}, st.global.f32 "
        f"(issue-only; device-visible)",
    )
    assert (line.cycles_p50.difference, line.cycles_per_warp.difference, line.sectors_per_request.difference) == (None, None, 0)
    assert all(one.cycles_p50.difference is not None for one in kernel.lines if one is not line)
    assert "Note: times are not compared for accesses whose ends were read differently" in to_text(
        render_comparison(compare(issued, seen)), 200
    )
    assert compare(issued, issued).kernels[0].notes == ()
    unsaid = with_ends(made((*KERNEL[:2], store)), "st", scheme="")
    assert compare(issued, unsaid).kernels[0].notes == (), "what does not say is compared as it is"


def test_a_load_that_only_one_side_followed_to_its_consumer_is_not_compared() -> None:
    one, other = (with_ends(made(scheme="exposed"), "ld.global", completeness="complete", scheme=name) for name in ("exposed", "dependent"))
    [kernel] = compare(one, other).kernels
    [note] = kernel.notes
    assert note.startswith("times are not compared for accesses whose ends were read differently: line ")
    assert "(complete by exposed; complete by dependent)" in note


def test_staging_is_named_where_it_differs() -> None:
    one, other = staged(made(launches=2), "global", "global"), staged(made(launches=2), "shared", "global")
    assert compare(one, other).kernels[0].notes == (
        "records went straight into global memory before and straight into global memory and into shared memory first "
        "after: the lifetime of a "
        "warp includes the cost of that",
    )
    assert compare(one, one).kernels[0].notes == ()
    assert compare(one, made(launches=2)).kernels[0].notes == (), "older files do not tell"


def test_a_trace_and_counts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CommandError, match=r"^before is a trace and after holds counts, which have no times; compare two traces or two files of counts$"
    ):
        compare(made(), counts(4))
    with pytest.raises(TypeError, match="compare takes traces, counts, or the paths of their files; got a int"):
        compare(made(), 5)  # type: ignore[arg-type]
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(RecordError, match=r"x\.json is neither a record file of memlane trace nor the output of memlane count --json$"):
        compare(made(), tmp_path / "x.json")
    (tmp_path / "y.json").write_text('{"kind": "counts", "launches": [{"kernel": 1}]}')
    with pytest.raises(RecordError, match=r"y\.json is damaged: missing or unreadable: 'sites'; write it again with memlane count --json$"):
        compare(made(), tmp_path / "y.json")


def counts(sectors: int, requests: int = 100) -> Counts:
    site = sites_of(KERNEL, "k", 1)[0]
    entry = SiteCounts(site, requests, 32 * requests, 128 * requests, sectors * requests, 4 * requests)
    return Counts("h200", "emulator:h200", "k", (8, 1, 1), (32, 1, 1), (entry,), ())


def test_counts_are_compared_exactly_and_by_launch(tmp_path: Path) -> None:
    found = compare(counts(4), [counts(32), counts(32)])
    assert summary(found) == "k: line 2 (ld.global.f32): sectors per request 4 -> 32 (+700 %)."
    assert changed(found) == {"ld.global.f32": {"sectors_per_request"}}
    (tmp_path / "a.json").write_text(to_json(counts_document(counts(4), {"k.cu": source_of(KERNEL, 1)})))
    again = compare(tmp_path / "a.json", counts(4))
    assert not again.is_change
    assert again.kernels[0].lines[0].before == 2


# -- text and JSON ---------------------------------------------------------------------------------------------------------------


def test_the_table_and_the_document_say_the_same() -> None:
    found = compare(made(seed=5), made((LOAD, replace(TILE, latency=40), STORE), seed=6))
    text = to_text(render_comparison(found), 100)
    assert "k.cu: y = tile[i];" in text
    [row] = [line for line in text.splitlines() if line.startswith("  3  ld.shared.f32")]
    assert " -> " in row
    [row] = [line for line in text.splitlines() if line.startswith("  2  ld.global.f32")]
    assert " -> " not in row
    assert row.count("~") == 2
    document = json.loads(to_json(comparison_document(found)))
    assert document["kind"] == "comparison"
    assert [line["changed"] for line in document["kernels"][0]["lines"]] == [False, True, False]
    assert document["kernels"][0]["lines"][0]["cycles_p50"]["changed"] is False
    assert document["summary"] == summary(found)
