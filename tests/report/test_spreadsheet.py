"""Counts as CSV, read back by another reader."""

from __future__ import annotations

import csv
import io

from memlane.report import counts_csv
from tests.synthetic import counts, site, transpose


def test_every_site_of_every_launch_is_a_line() -> None:
    launches = [counts(*one.counts) for one in transpose().launches]
    rows = list(csv.DictReader(io.StringIO(counts_csv(launches))))
    assert [(row["launch"], row["op"]) for row in rows] == [
        ("0", "ld.global.f32"),
        ("0", "st.global.f32"),
        ("1", "ld.global.f32"),
        ("1", "st.shared.f32"),
        ("1", "ld.shared.f32"),
        ("1", "st.global.f32"),
    ]
    store, tile = rows[1], rows[4]
    assert (store["sectors"], store["bytes_moved"], store["wavefronts"], store["conflicts"]) == ("640", str(640 * 32), "", "")
    assert (tile["wavefronts"], tile["conflicts"], tile["sectors"], tile["lanes_per_request"]) == ("640", "620", "", "32.0")
    assert rows[0]["kernel"] == site(0, "ld.global.f32", 4).kernel


def test_no_launches_are_no_text() -> None:
    assert counts_csv([]) == ""
