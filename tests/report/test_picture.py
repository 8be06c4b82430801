"""Pictures of single accesses: what they show is what was counted, in SVG and in text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import ACCESS_KINDS, Chip, access, load, names
from memlane.errors import CommandError
from memlane.record import AccessExample, LaunchInfo, Site, Trace, build_trace
from memlane.report import to_text
from memlane.report.picture import Drawing, drawing_of, render_drawing, to_svg
from memlane.report.show import SourcePlace, access_pictures, costliest, examples_at

SVG = "{http://www.w3.org/2000/svg}"
CHIP = load("h200")
FULL = (1 << 32) - 1
LANES = range(32)
SOURCE = "__global__ void k(float* a) {\n    a[threadIdx.x] = 1 < 2 ? 3 : 4;  // & more\n    a[1] = 2;\n}\n"


def example(
    addresses: Sequence[int],
    *,
    space: str = "global",
    kind: str = "load",
    mask: int = FULL,
    nbytes: int = 4,
    chip: Chip = CHIP,
    site: int = 0,
) -> AccessExample:
    known = ACCESS_KINDS[ACCESS_KINDS.index(kind)]
    numbers = (chip, list(addresses), mask, nbytes)
    if space == "shared":
        counted = access.wavefronts(*numbers, known), access.ideal_wavefronts(*numbers, known)
    elif space == "local":
        counted = access.local_sectors(*numbers), access.ideal_local_sectors(chip, mask, nbytes)
    else:
        counted = access.sectors(*numbers, known), access.ideal_sectors(*numbers)
    return AccessExample(0, site, space, kind, True, 3, 1, 2, mask, nbytes, tuple(addresses), *counted)


def a_site(number: int, line: int, op: str, space: str, file: str = "/home/me/k.cu") -> Site:
    return Site(number, "k", number, file, line, 0, op, "store", space, 4)


def a_trace(*examples: AccessExample, target: str = "emulator:h200", sites: Sequence[Site] = ()) -> Trace:
    columns = {name: np.zeros(0, np.int64) for name in ("launch", "site", "block", "warp", "sm", "mask", "start", "end")}
    return build_trace(
        columns,
        sites=sites or [a_site(0, 2, "st.global.f32", "global"), a_site(1, 3, "st.shared.f32", "shared")],
        launches=[LaunchInfo(0, "k", (8, 1, 1), (64, 1, 1), 0, 0, (), "")],
        chip="h200",
        target=target,
        modelled=target != "cuda:0",
        sources={"/home/me/k.cu": SOURCE},
        examples=examples,
    )


def drawn(one: AccessExample, chip: Chip = CHIP) -> Drawing:
    return drawing_of(a_trace(one), one, chip)


# -- what is said ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "caption"),
    [
        (
            example([4096 * lane for lane in LANES]),
            "32 lanes x 4 B touch 32 sectors where 4 would do. 1,024 bytes are moved, of which 128 (12 %) were requested.",
        ),
        (
            example([256 + 4 * lane for lane in LANES]),
            "32 lanes x 4 B touch 4 sectors: the fewest possible. All 128 bytes moved were requested.",
        ),
        (
            example([8 + 8 * lane for lane in LANES], nbytes=8),
            "32 lanes x 8 B touch 9 sectors where 8 would do. 288 bytes are moved, of which 256 (89 %) were requested.",
        ),
        (
            example([4 + 128 * lane for lane in LANES], space="shared"),
            "32 lanes x 4 B take 32 wavefronts where 1 would do. Only bank 1 must deliver 32 different words; each takes a wavefront.",
        ),
        (
            example([8 * lane for lane in LANES], space="shared"),
            "32 lanes x 4 B take 2 wavefronts where 1 would do. 16 banks, the first of them bank 0, must each deliver 2 different words.",
        ),
        (example([132 * lane for lane in LANES], space="shared"), "32 lanes x 4 B take 1 wavefront: the fewest possible."),
        (
            example([64 * lane for lane in LANES], mask=1 << 7),
            "1 lane x 4 B touches 1 sector: the fewest possible. 32 bytes are moved, of which 4 (12 %) were requested.",
        ),
        (
            example([8] * 32, space="local"),
            "32 lanes x 4 B touch 4 sectors: the fewest possible. All 128 bytes moved were requested.",
        ),
    ],
)
def test_the_caption_says_what_is_seen(one: AccessExample, caption: str) -> None:
    assert drawn(one).caption == caption


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("space", ["global", "local", "shared"])
def test_by_the_rules_of_every_chip_the_picture_shows_what_is_counted(name: str, space: str) -> None:
    chip, random = load(name), np.random.default_rng(7)
    for nbytes in (1, 2, 4, 8, 16):
        for kind in ("load", "store", "atomic"):
            addresses = (random.integers(0, 300, 32) * nbytes).tolist()
            one = example(addresses, space=space, kind=kind, nbytes=nbytes, mask=0x7FFF_FF0F, chip=chip)
            drawing = drawn(one, chip)
            assert (drawing.transactions, drawing.ideal) == (one.transactions, one.ideal)
            assert drawing.headline.startswith(f"27 lanes x {nbytes} B ")
            assert f" {one.transactions} {'wavefront' if space == 'shared' else 'sector'}" in drawing.headline
    ElementTree.fromstring(to_svg(drawing))
    lines = to_text(render_drawing(drawing), 100).splitlines()
    assert all(len(line) <= 100 for line in lines)
    if space == "shared":
        rule = next(number for number, line in enumerate(lines) if line.startswith("─"))
        assert lines.index("", rule) - rule - 1 == one.transactions


# -- SVG -------------------------------------------------------------------------------------------------------------------------------


def heads(svg: str) -> int:
    """Heads of arrows."""
    return len(re.findall(r'd="M[\d.]+ [\d.]+h6l-3 6z"', svg))


def test_every_active_lane_has_an_arrow() -> None:
    for mask in (FULL, 0xFF, 1 << 31):
        assert heads(to_svg(drawn(example([64 * lane for lane in LANES], mask=mask)))) == mask.bit_count()
        assert heads(to_svg(drawn(example([4 * lane for lane in LANES], mask=mask, space="shared")))) == mask.bit_count()


def test_lines_up_to_eight_lie_side_by_side_and_more_stand_as_columns() -> None:
    def boxes(stride: int) -> set[tuple[str, str]]:
        root = ElementTree.fromstring(to_svg(drawn(example([stride * lane for lane in LANES]))))
        dashed = [
            one for one in root.iter(f"{SVG}rect") if one.get("stroke-dasharray") and one.get("x") != "64" and one.get("width") != "16"
        ]
        return {(one.get("x", ""), one.get("y", "")) for one in dashed}

    assert boxes(8) == set()  # Every sector of the lines moves.
    assert len({y for _, y in boxes(16)}) == 0
    assert (len({x for x, _ in boxes(512)}), len({y for _, y in boxes(512)})) == (
        31,
        3,
    )  # The first column is at the edge, where the legend is.


def test_a_row_for_each_wavefront_and_in_it_a_box_for_each_lane() -> None:
    svg = to_svg(drawn(example([256 * (lane % 4) + 4 * lane for lane in LANES], space="shared")))
    assert svg.count(">the banks are busy") == 0
    tower = to_svg(drawn(example([128 * lane for lane in LANES], space="shared")))
    labels = [one.text for one in ElementTree.fromstring(tower).iter(f"{SVG}text") if one.get("fill") == "#ffffff"]
    assert labels == [str(lane) for lane in LANES]


def test_the_picture_is_whole_without_a_style_sheet_and_has_a_dark_one() -> None:
    svg = to_svg(drawn(example([4 + 128 * lane for lane in LANES], space="shared")))
    root = ElementTree.fromstring(svg)
    for one in root.iter():
        if one.tag in (f"{SVG}rect", f"{SVG}text"):
            assert one.get("fill")
        if one.tag == f"{SVG}path":
            assert one.get("fill") or one.get("stroke")
    [style] = [one.text or "" for one in root.iter(f"{SVG}style")]
    assert style.startswith("@media (prefers-color-scheme: dark)")
    used = {name for one in root.iter() for name in (one.get("class") or "").split() if name != "ml-picture"}
    assert all(f".ml-picture .{name}{{" in style for name in used)
    assert not re.search(r"(href|src|url\()", svg)


def test_text_of_others_is_no_markup() -> None:
    root = ElementTree.fromstring(to_svg(drawn(example([4 * lane for lane in LANES]))))
    assert "a[threadIdx.x] = 1 < 2 ? 3 : 4;  // & more" in [one.text for one in root.iter(f"{SVG}text")]


def test_it_says_which_access_it_is() -> None:
    one = drawn(example([4 * lane for lane in LANES]), load("gtx480"))
    assert one.place == "k.cu:2"
    assert one.origin == "k, launch 0, block 3, warp 1, execution 2; global memory by the rules of gtx480 (it ran on h200)"


# -- which access is drawn ---------------------------------------------------------------------------------------------------------------

GOOD, BAD = example([4 * lane for lane in LANES]), example([64 * lane for lane in LANES])
CONFLICT = example([128 * lane for lane in LANES], space="shared", site=1)


def test_the_costliest_of_a_line_is_drawn() -> None:
    assert costliest([GOOD, BAD]) is BAD
    assert examples_at(a_trace(GOOD, BAD, CONFLICT), SourcePlace("k.cu", 2)) == [BAD, GOOD]
    pictures = access_pictures(a_trace(GOOD, BAD, CONFLICT))
    assert pictures.keys() == {("/home/me/k.cu", 2), ("/home/me/k.cu", 3)}
    assert "32 sectors where 4 would do" in pictures["/home/me/k.cu", 2]
    assert access_pictures(a_trace(target="cuda:0")) == {}


def test_places() -> None:
    assert SourcePlace.parse("src/k.cu:12") == SourcePlace("src/k.cu", 12)
    assert SourcePlace("me/k.cu", 1).is_in("/home/me/k.cu")
    assert not SourcePlace("ne/k.cu", 1).is_in("/home/me/k.cu")
    for text in ("k.cu", "k.cu:", ":3", "k.cu:0", "k.cu:-1", "k.cu:x"):
        with pytest.raises(CommandError, match=r"is not a source line: write FILE:LINE or FILE:LINE:COLUMN, for example transpose\.cu:18"):
            SourcePlace.parse(text)


@pytest.mark.parametrize(
    ("trace", "place", "op", "asked", "message"),
    [
        (a_trace(BAD), "m.cu:2", "", "", "no access in a file m.cu; there are accesses in /home/me/k.cu"),
        (
            a_trace(BAD),
            "k.cu:7",
            "",
            "",
            "k.cu:7 has no memory access; the nearest ones are in line 2 (st.global.f32); line 3 (st.shared.f32)",
        ),
        (a_trace(BAD), "k.cu:2", "ld", "", "k.cu:2 has no access ld; it has st.global.f32"),
        (a_trace(BAD), "k.cu:3", "", "", "no warp executed the access at k.cu:3"),
        (a_trace(BAD), "k.cu:3", "", "block 9, warp 0", "there is no access at k.cu:3 by block 9, warp 0"),
        (
            a_trace(target="cuda:0"),
            "k.cu:2",
            "",
            "",
            "the trace was recorded on cuda:0, which does not record the addresses of the lanes; memlane show k.cu:2 PROGRAM --target "
            "emulator:h200 draws it from a run on the emulator",
        ),
        (
            a_trace(),
            "k.cu:2",
            "",
            "",
            "the trace holds no addresses of lanes: it was recorded by an older memlane, or all its launches failed; memlane show "
            "k.cu:2 PROGRAM --target emulator:h200 draws it from a run on the emulator",
        ),
        (
            a_trace(BAD, sites=[a_site(0, 2, "st.global.f32", "global"), a_site(1, 3, "tex.2d.v4.f32.f32", "tex")]),
            "k.cu:3",
            "",
            "",
            "k.cu:3 accesses tex memory, whose sectors and banks are not known, so there is nothing to draw",
        ),
        (
            a_trace(BAD, sites=[a_site(0, 2, "st.global.f32", "global"), a_site(1, 2, "st.global.f32", "global", "/home/you/k.cu")]),
            "k.cu:2",
            "",
            "",
            "k.cu:2 may be /home/me/k.cu or /home/you/k.cu; write more of the path",
        ),
    ],
)
def test_what_cannot_be_drawn_is_said_with_what_there_is(trace: Trace, place: str, op: str, asked: str, message: str) -> None:
    with pytest.raises(CommandError) as raised:
        examples_at(trace, SourcePlace.parse(place), op, asked)
    assert str(raised.value) == message


def test_examples_of_a_line_that_ran_on_another_chip_are_counted_anew() -> None:
    one = replace(example([8 * lane for lane in LANES], space="shared", nbytes=8))
    assert drawn(one).transactions == 2
    assert drawn(one, load("s1070")).transactions == access.wavefronts(load("s1070"), one.addresses, FULL, 8, "load") > 2
