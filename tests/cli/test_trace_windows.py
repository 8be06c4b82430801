"""`memlane trace` of a part of a launch and of stores that others see, and `memlane explain` of what it wrote."""

from __future__ import annotations

import json

import pytest

from memlane.record import load
from tests.cli.conftest import EXAMPLES, Command

PTX = EXAMPLES / "ptx" / "transpose.ptx"
TILED = ("--kernel", "tiled", "--grid", "2,2", "--block", "32,32")
ARGUMENTS = ("--arg", "out:f4[64,64]", "--arg", "in:f4[64,64]=random:7", "--arg", "64:i4")


def test_a_sample_is_told_in_every_report(memlane: Command) -> None:
    answer = memlane("trace", PTX, *TILED, *ARGUMENTS, "--every", 8, "--seed", 3)
    assert (answer.code, answer.err) == (0, "")
    assert "64 accesses recorded of about 512, none lost" in answer.lines[1]
    assert "tiled: traced 1 in 8 warps (seed 3); 16 of 128 warps, so each access stands for 8." in answer.lines
    assert "Accesses and cycles are those of the traced part, not scaled; transactions per request were counted in" in answer.out
    text = memlane("explain", "transpose.parquet", "--why").out
    assert "tiled: times cover 1 in 8 warps (seed 3); transactions cover the whole launch." in text
    assert "3,968 of 4,096 wavefronts are excess" in text, "as if all warps had been traced"
    (sample,) = json.loads(memlane("explain", "transpose.parquet", "--json").out)["samples"]
    assert (sample["launch"], sample["text"], sample["weight"]) == (0, "1 in 8 warps (seed 3)", 8.0)
    assert (sample["warps_in_window"], sample["warps_chosen"]) == (128, 16)


def test_a_sample_of_whole_blocks(memlane: Command) -> None:
    answer = memlane("trace", PTX, *TILED, *ARGUMENTS, "--every", 2, "--whole-blocks")
    assert (answer.code, answer.err) == (0, "")
    assert "tiled: traced 1 in 2 blocks (seed 0); 64 of 128 warps, so each access stands for 2." in answer.lines


def test_windows_of_all_kinds(memlane: Command) -> None:
    answer = memlane("trace", PTX, *TILED, *ARGUMENTS, "--blocks", "0-1,3", "--warps", "0,4-5", "--sms", "0-400", "--executions", "0")
    assert (answer.code, answer.err) == (0, "")
    assert "tiled: traced blocks 0-1,3, warps 0,4-5, SMs 0-400, execution 0." in answer.out.replace("\n", " ")
    table = load("transpose.parquet").table
    assert set(zip(table["block"].to_pylist(), table["warp"].to_pylist(), strict=True)) == {(b, w) for b in (0, 1, 3) for w in (0, 4, 5)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--blocks", "0-3,2"), "memlane: the block windows 0-3 and 2 overlap; write 0-3 instead\n"),
        (("--warps", "5-1"), "memlane: the warp window 5-1 is empty, because it ends before it begins; write 1-5\n"),
        (("--every", "0"), "memlane: a sample takes 1 in N warps or blocks, with N from 1 to 2^31, got 0\n"),
        (
            ("--whole-blocks",),
            "memlane: whole blocks were requested without a sample; pass `every` to trace one block in N\n",
        ),
        (("--sms", "x"), "memlane: 'x' is not an SM window; write numbers and ranges with both ends, such as 0-3,17\n"),
    ],
)
def test_windows_that_make_no_sense_are_refused_before_anything_runs(memlane: Command, options: tuple[str, ...], message: str) -> None:
    answer = memlane("trace", PTX, *TILED, *ARGUMENTS, *options)
    assert (answer.code, answer.err, answer.out) == (2, message, "")


def test_stores_are_timed_until_others_see_them(memlane: Command) -> None:
    answer = memlane("trace", PTX, *TILED, *ARGUMENTS, "--stores", "device", "--kind", "store")
    assert (answer.code, answer.err) == (0, "")
    stored = load("transpose.parquet")
    assert {site.space: site.completeness for site in stored.sites} == {"global": "device-visible", "shared": "block-visible"}
    rows = [line for line in answer.lines if line.startswith("  st.")]
    assert len(rows) == 2
    assert all(" visible " in row for row in rows)
    assert "Timed until every thread of the device sees the stored value" in answer.out


def test_stores_that_nobody_can_wait_for_are_refused(memlane: Command) -> None:
    answer = memlane("trace", PTX, *TILED, *ARGUMENTS, "--stores", "device", "--scheme", "simple")
    assert answer.code == 2
    assert "the scheme simple does not wait for anything, so it cannot time stores until device; choose from dependent" in answer.err


def test_a_window_beside_every_launch(memlane: Command) -> None:
    answer = memlane("trace", PTX, *TILED, *ARGUMENTS, "--blocks", "9-12")
    assert answer.code == 1
    assert answer.err.splitlines() == [
        "memlane: note: tiled: no warp of a launch of 128 warps is traced, because none is in blocks 9-12; it has "
        "blocks 0 to 3 with warps "
        "0 to 31",
        "memlane: no warp of 1 launch is in blocks 9-12; blocks are numbered 0 to 3 and warps 0 to 31",
    ]


def test_what_may_not_fit_is_told_before_the_launch(memlane: Command) -> None:
    """The loads of the chase lie in a loop."""
    answer = memlane("trace", EXAMPLES / "chase.py", "--", "40")
    assert answer.code == 0
    notes = [line for line in answer.err.splitlines() if line.startswith("memlane: note: ")]
    assert notes
    assert all("records per warp" in note and note.endswith("the report says how many were lost") for note in notes)
