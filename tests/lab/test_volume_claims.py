"""What of the publication holds, for made-up measurements; coefficients by published values; hit rates by hand."""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memlane.lab import Machine, Result, profiler
from memlane.lab.figures import Lines, Panels
from memlane.lab.volume import reference
from memlane.lab.volume.claims import ALL_SAME, PAIR, Claim, claims
from memlane.lab.volume.correlation import pearson, ranks, spearman
from memlane.lab.volume.frames import Frames, Measured
from memlane.lab.volume.hits import HITS, MISSES, Hits, counted_hit_rates, hits_of
from memlane.lab.volume.observe import Observed
from memlane.lab.volume.plots import figures, read
from memlane.lab.volume.scene import FRONT, SHAPES, TURNED, Scene
from memlane.lab.volume.tables import rows, tables
from memlane.lab.volume.texture_cache import Cache, modelled_rate, sectors_of
from memlane.targets import target
from tests.launch.fake_target import FakeTarget

NO_TRACE: Any = None
ANSCOMBE_X = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
ANSCOMBE_Y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]


def test_pearson_gives_the_values_of_anscombe() -> None:
    found = pearson(ANSCOMBE_X, ANSCOMBE_Y)
    assert found is not None
    assert found.value == pytest.approx(0.8164205)
    assert (found.low, found.high) == pytest.approx((0.4243912, 0.9506933), abs=1e-7)  # as R's cor.test has them
    assert found.count == 11


def test_spearman_gives_the_textbook_value() -> None:
    hours, quotient = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17], [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    found = spearman(hours, quotient)
    assert found is not None
    assert found.value == pytest.approx(-29 / 165)
    half = 1.959964 * math.sqrt((1 + (29 / 165) ** 2 / 2) / 7)
    assert found.high == pytest.approx(math.tanh(math.atanh(-29 / 165) + half), abs=1e-6)


def test_ties_share_their_rank_and_constants_have_no_coefficient() -> None:
    assert ranks([3, 1, 3, 7]).tolist() == [2.5, 1, 2.5, 4]
    assert pearson([1, 2, 3, 4], [5, 5, 5, 5]) is None
    assert pearson([1, 2, 3], [1, 2, 3]) is None  # an interval needs four
    line = pearson([1, 2, 3, 4], [2, 4, 6, 8])
    assert line is not None
    assert (line.low, line.high) == pytest.approx((1, 1))


def seen(access_time: float, share: float = 0.5) -> Observed:
    cycles = np.array([int(1000 * access_time)])
    return Observed(np.array([0]), np.array([1000]), cycles, (cycles / share).astype(int), 0, 0, 1.0, None, NO_TRACE)


RISING = [100.0 + 20 * number for number in range(8)]


def frames(
    rates: Sequence[float],
    ours: Sequence[float],
    theirs: Sequence[float],
    hits: Sequence[float] | None = None,
    shares: tuple[float, float] = (0.8, 0.1),
) -> Frames:
    """Both views alike. Access times of stamps that wait are 1 / `ours`, those of the others 1 / `theirs`."""
    of = {}
    for view in (FRONT, TURNED):
        for number, shape in enumerate(SHAPES):
            both = {"dependent": seen(1e4 / ours[number], shares[0]), "simple": seen(1e4 / theirs[number], shares[1])}
            of[view, shape] = Measured(rates[number], None if hits is None else Hits(hits[number], 1e6), both)
    return Frames(of, 1, "" if hits else "ncu was not found on PATH")


def held(made: Frames) -> dict[str, str]:
    """By figure; of several claims of one figure the last."""
    return {claim.figure: claim.holds for claim in claims(made, {})}


def test_a_machine_like_that_of_2012_agrees() -> None:
    crooked = [1, 2, 3, 9, 8, 7, 6, 5]
    hits = [0.1 * rate / 100 for rate in RISING]
    found = held(frames(RISING, RISING, crooked, hits))
    assert [found[figure] for figure in ("6a", "6b", "7a", "7b", "7", "8b", "9a", "9b", "9")] == ["yes"] * 9
    assert found["8a"] == "no"  # here the hit rate goes with our frequency from that side, too


def test_a_machine_where_stamps_that_wait_mislead_does_not() -> None:
    found = held(frames(RISING, RISING[::-1], RISING, [0.1 * rate / 100 for rate in RISING]))
    assert [found[figure] for figure in ("6a", "6b", "7a", "7b", "7", "8b", "9a", "9b", "9")] == ["no"] * 9


def test_a_coefficient_that_may_be_0_is_right_by_its_sign_alone() -> None:
    found = held(frames(RISING, RISING, [1, 2, 3, 5, 7, 9, 5, 4], [0.1 * rate / 100 for rate in RISING]))
    assert (found["6b"], found["7b"]) == ("by its sign; the interval has 0 in it",) * 2


def test_frame_rates_that_hardly_differ_are_named_instead_of_a_correlation() -> None:
    made = frames([100 + number for number in range(8)], RISING, RISING[::-1], RISING)
    found = held(made)
    assert [found[figure] for figure in ("7a", "7b", "7", "9a", "9")] == ["frame rates hardly differ (7.0 %)"] * 5
    assert found["6a"] == "yes"  # hit rates may differ even so
    noted = [row.note for row in rows(made, {}, []) if row.case.endswith("dependent: access frequency and frame rate")]
    assert noted == ["frame rates hardly differ (7.0 %): no correlation is claimed"] * 4


def test_what_one_shape_alone_makes_of_a_correlation_shows() -> None:
    outlier = frames([10, *[100, 120] * 3, 100], [1, 9, 10, 10, 9, 9.5, 10, 10.5], RISING)
    (row,) = [
        row
        for row in rows(outlier, {}, [])
        if (row.case, row.metric) == ("seen from (0, 0, 0), dependent: access frequency and frame rate", "Pearson's r")
    ]
    assert (row.value or 0) > 0.9
    rest = np.corrcoef([9, 10, 10, 9, 9.5, 10, 10.5], [100, 120, 100, 120, 100, 120, 100])[0, 1]
    assert row.peer["least without a shape"] == pytest.approx(rest, abs=1e-3)
    assert row.peer["most without a shape"] > 0.9


def test_the_committed_result_and_its_page_have_the_claims_in_the_words_of_the_lab() -> None:
    made = claims(frames(RISING, RISING, RISING, RISING), dict.fromkeys(PAIR, along([100.0] * 20, 1)))
    root = Path(__file__).parents[2]
    document = json.loads((root / "benchmarks" / "results" / "h200" / "volume.json").read_text())
    committed = [row["case"] for row in document["rows"] if row["metric"] == "found in 2012"]
    assert committed == [f"fig. {one.figure}: {one.found}" for one in made]
    page = (root / "docs" / "volume.md").read_text()
    assert all(f"| fig. {one.figure} | {one.found} |" in page for one in made)
    assert "stamps that" not in page
    assert "stamps that" not in json.dumps(document)


def test_what_is_not_known_is_said_with_the_reason() -> None:
    said = {claim.figure: claim for claim in claims(frames(RISING, RISING, [5.0] * 8), {})}
    assert (said["6a"].holds, said["6a"].here) == ("unknown", "ncu was not found on PATH")
    assert (said["7b"].holds, said["7b"].here) == ("unknown", ALL_SAME)
    assert said["7"].holds == "yes"  # what is constant follows nothing
    assert set(figures(tables(frames(RISING, RISING, RISING), {}, TURNED, []))) == {"fig_5", "fig_7", "fig_9"}


def test_figures_can_be_drawn_from_the_files_of_a_run(tmp_path: Path) -> None:
    made = tables(frames(RISING, RISING, RISING, RISING), {"2x64": along([100, 200, 300], 5)}, TURNED, [])
    Result("volume", (), made).save(tmp_path, Machine("h200"), ["memlane"])
    again = figures(read(tmp_path))
    assert again == figures(made)
    assert set(again) == {f"fig_{number}" for number in range(5, 12)}
    assert again["fig_10"] == Panels(
        (
            Lines(
                "2x64, seen from (90, 0, 90): warps of one SM",
                "warp of the launch",
                "mean access time, cycles",
                {"2x64": [(0, 100), (1, 200), (2, 300)]},
            ),
        ),
        shared=True,
    )


def test_shares_of_time_are_judged_by_the_half() -> None:
    def five(shares: tuple[float, float]) -> list[Claim]:
        return [claim for claim in claims(frames(RISING, RISING, RISING, shares=shares), {}) if claim.figure == "5"]

    assert [claim.holds for claim in five((0.8, 0.1))] == ["yes", "yes", "yes"]
    assert [claim.holds for claim in five((0.4, 0.6))] == ["no", "no", "yes"]
    assert five((0.8, 0.1))[1].here == "dependent: 80 % (1x128) and 80 % (128x1)"


class Warps(Observed):
    """Warps whose accesses inside one vary by a known amount."""

    jitter = 0.0

    def series(self, index: int) -> Any:
        return np.array([100 - self.jitter, 100 + self.jitter])


def along(means: Sequence[float], jitter: float) -> Observed:
    counts = np.full(len(means), 10)
    made = Warps(np.arange(len(means)), counts, (np.array(means) * 10).astype(int), counts * 1000, 0, 0, 1.0, None, NO_TRACE)
    object.__setattr__(made, "jitter", jitter)
    return made


def test_two_shapes_along_an_sm_are_compared() -> None:
    tall, wide = along([50, *[100] * 18, 50], 1), along([60, *[100, 200] * 9, 60], 9)
    assert [claim.holds for claim in claims(Frames({}, 1), {"2x64": tall, "8x16": wide})] == ["yes"] * 4
    assert [claim.holds for claim in claims(Frames({}, 1), {"2x64": wide, "8x16": tall})] == ["no", "no", "yes", "no"]
    flat = along([100] * 20, 0)
    assert {claim.holds for claim in claims(Frames({}, 1), {"2x64": flat, "8x16": flat})} == {"access times are alike, to 1 %"}


def test_the_programs_beside_the_lab_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = tables(frames(RISING, RISING, RISING), {}, TURNED, [])
    Result("volume", (), made).save(tmp_path, Machine("h200"), ["memlane"])

    def program(*words: str) -> None:
        monkeypatch.setattr("sys.argv", ["volume", *words])
        runpy.run_path(str(Path(reference.__file__).with_name("__main__.py")), run_name="__main__")

    program("draw", str(tmp_path), str(tmp_path / "figures"))
    assert capsys.readouterr().out == f"Wrote fig_5.png, fig_7.png, fig_9.png to {tmp_path / 'figures'}\n"
    program("render", "8", "8", "0,0,0;90.0,0.0,90.0", "1x128;8x16", "emulator:h200")
    with pytest.raises(SystemExit, match=r"usage: python -m memlane.lab.volume draw FOLDER \[OUT\]"):
        program("sing")


# -- hit rates -----------------------------------------------------------------------------------------------------------------


def test_a_cache_of_two_lines_by_hand() -> None:
    cache = Cache(2)
    cache.ask([0, 1])  # a line of two sectors that are not there
    cache.ask([0, 4])  # there; another line
    cache.ask([8])  # the third line drops the one not used for the longest time, that of 0 and 1 having been used before 4
    cache.ask([4, 1])
    assert (cache.hits, cache.misses) == (2, 5)


def test_a_fetch_asks_for_the_sectors_of_its_eight_texels() -> None:
    def asked(*at: float) -> set[int]:
        return set(sectors_of(np.array(at), 16).tolist())

    assert asked(2.0, 2.0, 1.0) == {0}  # texels 1 and 2, 1 and 2, 0 and 1
    assert asked(4.0, 2.0, 1.0) == {0, 1}  # over the border of a sector in x
    assert asked(4.0, 4.0, 1.0) == {0, 1, 2, 3}  # of the whole line
    assert asked(8.0, 2.0, 1.0) == {1, 4}  # of two lines
    assert asked(2.0, 2.0, 2.0) == {0, 16}  # two lines in x and two in y lie between layers
    assert asked(0.1, 0.1, 0.1) == {0}  # clamped


def test_the_modelled_hit_rate_knows_which_way_the_sectors_lie() -> None:
    chip, scene = target("emulator:h200").chip, Scene(32, 32)
    fetched = reference.render(reference.volume(32), scene, FRONT).fetched
    rates = {shape: modelled_rate(chip, scene, FRONT, shape, fetched, 16) for shape in ("1x128", "8x16")}
    assert 0.3 < rates["1x128"] < rates["8x16"] < 1  # warps of 8 x 4 pixels share sectors of 4 x 4 texels


TABLE = f"""==PROF== Connected to process 7
"ID","Kernel Name","{HITS}","{MISSES}"
"","","",""
the program says something
"0","render","3,000","1000"
"1","render","1000","1000"
"""


def test_counters_are_read_from_the_table_of_the_profiler() -> None:
    launches = profiler.parse(TABLE)
    assert [hits_of(one.metrics) for one in launches] == [Hits(0.75, 4000), Hits(0.5, 2000)]
    assert hits_of({"l1tex__t_sector_hit_rate.pct": 87.5}) == Hits(0.875)
    assert hits_of({}) is None
    assert profiler.parse("==ERROR== nothing") == []


def fake_profiler(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    program = folder / "ncu"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_hit_rates_come_from_the_profiler_in_the_order_of_the_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_profiler(tmp_path, monkeypatch, TABLE)
    frames = [(FRONT, "1x128"), (FRONT, "8x16")]
    assert counted_hit_rates(FakeTarget(), Scene(16, 16), frames) == ({frames[0]: Hits(0.75, 4000), frames[1]: Hits(0.5, 2000)}, "")
    assert counted_hit_rates(FakeTarget(), Scene(16, 16), frames[:1]) == ({}, "ncu saw 2 launches of 1")


def test_a_profiler_that_knows_no_textures_is_asked_for_all_accesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = '"ID","Kernel Name","l1tex__t_sector_hit_rate.pct"\n"","","%"\n"0","render","87.5"\n'
    fake_profiler(tmp_path, monkeypatch, "")
    refusal = f"case $* in *{HITS}*) echo '==ERROR== Failed to find metric {HITS}'; exit 1;; esac"
    (tmp_path / "ncu").write_text(f"#!/bin/sh\n{refusal}\ncat <<'END'\n{table}END\n")
    assert counted_hit_rates(FakeTarget(), Scene(16, 16), [(FRONT, "1x128")]) == ({(FRONT, "1x128"): Hits(0.875)}, "")


def test_why_there_are_no_counters_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [(FRONT, "1x128")]
    fake_profiler(tmp_path, monkeypatch, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    assert counted_hit_rates(FakeTarget(), Scene(16, 16), frames)[1].startswith("ncu has no permission to read the counters")
    fake_profiler(tmp_path, monkeypatch, "==ERROR== Failed to find metric x")
    assert counted_hit_rates(FakeTarget(), Scene(16, 16), frames)[1] == "ncu counted nothing: ==ERROR== Failed to find metric x"
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(profiler, "PLACES", ())
    assert counted_hit_rates(FakeTarget(), Scene(16, 16), frames) == ({}, "ncu was not found on PATH")
