"""`memlane report`: a page from a record file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from memlane.number_format import size
from tests.cli.conftest import Command
from tests.report.html.reading import read
from tests.synthetic import transpose


def test_a_page_is_written_next_to_where_one_works(memlane: Command) -> None:
    transpose().save("transpose.parquet")
    answer = memlane("report", "transpose.parquet")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines == [f"Wrote transpose.html ({size(Path('transpose.html').stat().st_size)}); open it in a browser."]
    root = read(Path("transpose.html").read_text(encoding="utf-8"))
    assert root.by_id("title").text == "naive, tiled"


def test_an_older_page_is_replaced_only_when_asked(memlane: Command) -> None:
    transpose().save("a.parquet")
    assert memlane("report", "a.parquet", "-o", "b.html").code == 0
    refused = memlane("report", "a.parquet", "-o", "b.html")
    assert (refused.code, refused.err) == (2, "memlane: b.html exists; pass --force (force=True in Python) to replace it\n")
    assert memlane("report", "a.parquet", "-o", "b.html", "--force").code == 0


def test_the_record_itself_and_what_is_none_are_refused(memlane: Command) -> None:
    transpose().save("a.parquet")
    assert "a.parquet is the input; name another file with --output" in memlane("report", "a.parquet", "-o", "a.parquet", "--force").err
    Path("b.html").write_text("<p>no record</p>")
    answer = memlane("report", "b.html", "-o", "c.html")
    assert (answer.code, answer.err) == (2, "memlane: b.html is not a program; name a Python script, or a .cu or .ptx file\n")
    assert not Path("c.html").exists()


def test_two_record_files_make_one_page(memlane: Command) -> None:
    transpose().save("a.parquet")
    transpose().save("b.parquet")
    answer = memlane("report", "a.parquet", "b.parquet")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[0].startswith("Wrote a-b.html (")
    assert "a.parquet" in read(Path("a-b.html").read_text(encoding="utf-8")).all("dl", "sides")[0].text
    pair = memlane("report", "a.parquet", "b.parquet", "--kernel", "naive=tiled", "-o", "pair.html")
    assert pair.code == 0
    assert [one.text for one in read(Path("pair.html").read_text(encoding="utf-8")).by_id("changes").all("h3")] == [
        "naive \N{RIGHTWARDS ARROW} tiled"
    ]


def test_a_second_file_that_cannot_be_compared_is_refused(memlane: Command) -> None:
    transpose().save("a.parquet")
    for arguments, code, said in (
        (["b.parquet"], 2, "b.parquet: there is no such file"),
        (["a.parquet", "a.parquet"], 2, "a page shows one record file, or two (before and after); got 3"),
        (["a.parquet", "--target", "cuda:0"], 2, "--target is for programs; a.parquet is a record file"),
        (["a.parquet", "--kernel", "naive="], 2, "--kernel naive=: pair the name in the first file"),
        (["a.parquet", "--kernel", "none"], 1, "a.parquet has no kernel none"),
    ):
        answer = memlane("report", "a.parquet", *arguments)
        assert (answer.code, len(answer.err.splitlines())) == (code, 1), answer.err
        assert said in answer.err
    assert not list(Path().glob("*.html"))


def test_the_template_engine_is_loaded_for_a_page_only() -> None:
    code = "import sys, memlane.cli.report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
