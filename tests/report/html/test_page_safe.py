"""The page as a file that is sent around: it asks for nothing, hostile text stays text, and everybody can use and read it."""

from __future__ import annotations

import re
from dataclasses import replace

from memlane.report.html import render_page
from tests.report.html.reading import data_of, read
from tests.synthetic import NAIVE, SOURCE, transpose

# -- one file, and safe ------------------------------------------------------------------------------------------------------------


def test_the_page_asks_for_nothing() -> None:
    text = render_page(transpose())
    root = read(text)
    for one in root.walk():
        for name in ("src", "href", "action", "data", "poster", "srcset", "xlink:href"):
            assert one.attributes.get(name, "#").startswith("#"), f"<{one.tag} {name}>"
    assert not root.all("link")
    style = root.all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a vocabulary: nobody is asked
    (policy,) = [one.attributes["content"] for one in root.all("meta") if one.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "script-src 'sha256-" in policy


HOSTILE = "</script><script>alert(1)</script><!-- \"' & <img src=x onerror=alert(2)> \u2028 {{ 7 * 7 }}"


def test_hostile_text_stays_text() -> None:
    trace = transpose()
    kernel = f"naive<{HOSTILE}>(float*)"
    sites = tuple(replace(one, kernel=kernel, file=f"{HOSTILE}.cu", reason=HOSTILE) if one.kernel == NAIVE else one for one in trace.sites)
    counts = tuple(replace(one, site=sites[one.site.id]) for one in trace.launches[0].counts)
    launches = (replace(trace.launches[0], kernel=kernel, counts=counts, arguments=(HOSTILE,)), trace.launches[1])
    lines = SOURCE.splitlines()
    lines[3] = HOSTILE
    plain = read(render_page(transpose()))
    root = read(render_page(replace(trace, sites=sites, launches=launches, sources={f"{HOSTILE}.cu": "\n".join(lines)})))
    assert len(root.all("script")) == len(plain.all("script")) == 3
    assert not root.all("img")
    assert [" ".join(HOSTILE.split())] == [
        one.text for one in root.all("code") if "alert(1)" in one.text and one in root.by_id("source").all("code")
    ]
    assert any(HOSTILE in text for one in data_of(root)["operations"] for _, text in one["facts"])


def test_what_stands_between_backticks_is_code_and_the_rest_stays_text() -> None:
    failed = replace(transpose().launches[0], failed="run `a<b>` & see")
    root = read(render_page(replace(transpose(), launches=(failed, transpose().launches[1]))))
    (note, *_) = root.all("p", "missing")
    assert note.text == "Launch 0 (naive) failed: run a<b> & see."
    assert [one.text for one in note.all("code")] == ["a<b>"]


def test_ids_are_there_once_and_what_is_controlled_exists() -> None:
    root = read(render_page(transpose()))
    ids = [one.attributes["id"] for one in root.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    for one in root.walk():
        for name in ("aria-controls", "aria-labelledby", "aria-describedby"):
            assert one.attributes.get(name, ids[0]) in ids
        if one.tag == "a":
            assert one.attributes["href"].removeprefix("#") in ids


def test_every_control_has_a_name() -> None:
    root = read(render_page(transpose()))
    for one in root.walk():
        if one.tag in ("button", "canvas", "summary"):
            assert one.text or one.attributes.get("aria-label"), one
        if one.tag == "select":
            assert any(one in label.all("select") for label in root.all("label"))
    skips = [one.attributes["href"] for one in root.all("a", "skip")]
    assert skips == ["#findings", "#source", "#timeline"]


# -- colours -----------------------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 has it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_stands_out_from_what_is_behind_it() -> None:
    style = read(render_page(transpose())).all("style")[0].text
    colours = {name: pair for name, *pair in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", style)}
    for theme in (0, 1):
        for text in ("ink", "soft", "faint", "accent", "alarm"):
            for behind in ("paper", "card", "tint"):
                assert contrast(colours[text][theme], colours[behind][theme]) >= 4.5, (text, behind, ("light", "dark")[theme])
        assert contrast(colours["ink"][theme], colours["hot"][theme]) >= 4.5
