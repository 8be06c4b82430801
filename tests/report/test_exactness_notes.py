"""What is said below the tables of how the assembled code bears the numbers out."""

from __future__ import annotations

from dataclasses import replace

from memlane.record import BY_EMULATOR, COMPLETE, EXACT, HINT, ISSUE_ONLY, MERGED, PROVED, Counts, Exactness, SiteCounts
from memlane.report import counts_document, render_counts, summary_document, to_text
from memlane.report.exactness import completeness_notes
from tests.synthetic import transpose

TRACE = transpose()


def counts(*exactness: Exactness, judged: bool = True) -> Counts:
    """One entry for each of the first sites, judged as given."""
    entries = tuple(SiteCounts(site, 4, 128, 512) for site in TRACE.sites[: len(exactness)])
    verdicts = {entry.site.id: verdict for entry, verdict in zip(entries, exactness, strict=True)}
    return Counts("h200", "emulator:h200", "k", (1, 1, 1), (32, 1, 1), entries, judge=(lambda: verdicts) if judged else None)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_hints_are_marked_and_told_with_their_reason() -> None:
    merged = Exactness(MERGED, "ptxas merged 4 x 4 B into 1 x 16 B", "1 x 16 B shared load")
    found = counts(Exactness(EXACT), merged, Exactness(HINT, "ptxas moved it out of a loop"))
    text = flat(to_text(render_counts(found), 120))
    sites = [entry.site for entry in found.sites]
    assert "Exact: 1 of 3 operations" in text
    place = f"transpose.cu:{sites[1].line} {sites[1].op}"
    assert f"~ Merged: {place}; ptxas merged 4 x 4 B into 1 x 16 B. " in text
    assert f"~ A hint only: transpose.cu:{sites[2].line} {sites[2].op}; ptxas moved it out of a loop." in text
    assert text.partition("Exact:")[0].count(" ~ ") == 2, "one mark for each in the table"


def test_a_reason_is_said_once() -> None:
    found = counts(Exactness(HINT, "why"), Exactness(EXACT), Exactness(HINT, "why"))
    one, _, other = (f"transpose.cu:{entry.site.line} {entry.site.op}" for entry in found.sites)
    assert f"~ A hint only: {one}, {other}; why." in flat(to_text(render_counts(found), 120))


def test_the_share_is_that_of_the_sites_and_none_where_nobody_could_look() -> None:
    assert counts(Exactness(EXACT), Exactness(HINT, "x"), Exactness(EXACT), Exactness(MERGED, "y")).exact_share == 0.5
    assert counts(Exactness(EXACT), judged=False).exact_share is None
    absent = Exactness("not checked", "assembling PTX needs packages that are not installed")
    found = counts(absent, absent)
    assert found.exact_share is None
    assert "Not compared with the assembled code: assembling PTX needs packages that are not installed." in flat(
        to_text(render_counts(found), 120)
    )


def test_documents_carry_the_verdict_of_each_site() -> None:
    (launch,) = counts_document(counts(Exactness(EXACT), Exactness(HINT, "why", "2 x 4 B global load")))["launches"]
    assert launch["exact_share"] == 0.5
    assert [site["counts"]["exactness"] for site in launch["sites"]] == ["exact", "hint"]
    assert (launch["sites"][1]["counts"]["exactness_reason"], launch["sites"][1]["counts"]["assembled"]) == ("why", "2 x 4 B global load")


def test_the_weakest_of_a_line_is_said() -> None:
    entries = counts(Exactness(EXACT, "", "1 x 4 B global load"), Exactness(MERGED, "m", "1 x 16 B global load")).checked.sites
    total = entries[0].plus(entries[1])
    assert (total.exactness, total.exactness_reason) == (MERGED, "m")
    assert total.assembled == "1 x 4 B global load; 1 x 16 B global load"


def test_traces_tell_how_completeness_is_known() -> None:
    sites = [replace(site, evidence=PROVED, copies=2) for site in TRACE.sites]
    sites[0] = replace(sites[0], completeness=ISSUE_ONLY, reason="the second clock read at 0x10 can come without a wait", kind="load")
    sites[1] = replace(sites[1], changed="7 x 4 B in the original, 1 x 4 B traced", also_waits=("0x01f0 LDG.E",))
    notes = completeness_notes(replace(TRACE, sites=tuple(sites)))
    complete = sum(site.completeness == COMPLETE for site in sites)
    assert notes[0] == f"Of {len(sites)} timed instructions {complete} are complete, proved on the assembled code."
    assert "can come without a wait." in notes[1]
    assert notes[2] == f"Changed by tracing: transpose.cu:{sites[1].line} {sites[1].op}: 7 x 4 B in the original, 1 x 4 B traced."
    assert notes[3].endswith(f"transpose.cu:{sites[1].line} {sites[1].op}: 0x01f0 LDG.E.")
    document = summary_document(replace(TRACE, sites=tuple(sites)))
    assert [site["evidence"] for site in document["sites"]] == [PROVED] * len(sites)
    assert document["sites"][0]["copies"] == 2


def test_the_emulator_says_that_it_completes_by_construction() -> None:
    sites = tuple(replace(site, evidence=BY_EMULATOR) for site in TRACE.sites)
    assert completeness_notes(replace(TRACE, sites=sites))[0].endswith("are complete, by construction of the emulator.")
