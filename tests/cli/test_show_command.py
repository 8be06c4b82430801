"""`memlane show`: one access, drawn from a run on the emulator or from a record file."""

from __future__ import annotations

import errno
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from memlane.record import load
from tests.cli.conftest import EXAMPLES, Command

SCRIPT = EXAMPLES / "transpose.py"


def test_a_line_is_drawn_from_a_run(memlane: Command) -> None:
    answer = memlane("show", "transpose.cu:18", SCRIPT, "--svg", "naive.svg", "--", "64")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[:4] == [
        "transpose.cu:18  st.global.f32 of out (argument 1)",
        "  out[x * n + y] = in[y * n + x];",
        "32 lanes x 4 B touch 32 sectors where 4 would do.",
        "1,024 bytes are moved, of which 128 (12 %) were requested.",
    ]
    assert "  +7,936 │█░░░░░░░│········│········│········│ 31" in answer.lines
    assert answer.lines[-2:] == ["Other accesses of this line: --op ld.global.f32 --array in", "Wrote naive.svg"]
    assert ElementTree.parse("naive.svg").getroot().get("aria-label", "").startswith("32 lanes x 4 B touch 32 sectors where 4 would do.")
    again = memlane("show", "transpose.cu:18", SCRIPT, "--svg", "naive.svg", "--", "64")
    assert (again.code, again.err) == (2, "memlane: naive.svg exists; pass --force (force=True in Python) to replace it\n")


def test_the_svg_is_written_although_a_reader_closed_the_pipe(memlane: Command, record: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    for stream in ("stdout", "stderr"):  # Typer replaces both
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    monkeypatch.setattr("memlane.cli.show.display", closed)
    assert memlane("show", "transpose.cu:18", record, "--svg", "naive.svg").err == ""
    assert Path("naive.svg").read_text().startswith("<svg")


def test_a_line_is_drawn_from_a_record_and_by_the_rules_of_another_chip(memlane: Command, recorded: Path) -> None:
    answer = memlane("show", "transpose.cu:33", recorded)
    assert answer.lines[2] == "32 lanes x 4 B take 32 wavefronts where 1 would do."
    assert " 32  31  ·  ·" in answer.out
    other = memlane("show", "transpose.cu:33", recorded, "--chip", "s1070")
    assert other.lines[2] == "32 lanes x 4 B take 32 wavefronts where 2 would do."
    assert "by the rules of s1070 (it ran on h200)" in other.out.replace("\n", " ")


def test_a_picture_is_not_folded_where_the_terminal_is_narrow(memlane: Command, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = memlane("show", "transpose.cu:33", recorded).out
    monkeypatch.setenv("COLUMNS", "80")
    assert memlane("show", "transpose.cu:33", recorded).out == wide


def test_warp_block_execution_and_operation_can_be_chosen(memlane: Command) -> None:
    answer = memlane("show", "transpose.cu:33", SCRIPT, "--in-block", "3", "--warp", "9", "--op", "ld", "--", "64")
    assert "Only bank 9 must deliver 32 different words; each takes a wavefront." in answer.lines
    assert "tiled, launch 1, block 3, warp 9, execution 0; shared memory by the rules of h200" in answer.lines
    answer = memlane("show", "transpose.cu:33", SCRIPT, "--execution", "4", "--", "64")
    assert answer.err == "memlane: there is no access at transpose.cu:33 by block 0, warp 0, execution 4\n"


def test_each_array_of_a_line_can_be_drawn(memlane: Command, tmp_path: Path) -> None:
    file = tmp_path / "norm.cu"
    text = "__global__ void normalised(float* out, const float* in, const float* gamma, const float* beta, int n) { int i = threadIdx.x;\n"
    file.write_text(f"{text}out[i] = in[i] * gamma[n * i] + beta[n * i];\n}}\n")
    launch = ["--grid", "1", "--block", "32", "--target", "emulator:h200"]
    launch += [word for spec in ("f4[32]", "f4[32]", "f4[1024]", "f4[1024]", "32:i4") for word in ("--arg", spec)]
    assert memlane("show", "norm.cu:2", file, *launch, "--array", "beta").lines[0] == "norm.cu:2  ld.global.f32 of beta (argument 4)"
    least = "32 lanes x 4 B touch 4 sectors: the fewest possible."
    assert least in memlane("show", "norm.cu:2:1", file, *launch, "--array", "in").out
    others = next(line for line in memlane("show", "norm.cu:2", file, *launch).lines if line.startswith("Other accesses of this line: "))
    assert others.endswith("--op ld.global.f32 --array beta, --op ld.global.f32 --array in, --op st.global.f32 --array out")
    one = memlane("show", "norm.cu:2", file, *launch, "--array", "out").lines[-1]
    names = [f"--op ld.global.f32 --array {name}" for name in ("beta", "gamma", "in")]
    assert one == f"Other accesses of this line: {', '.join(names)}"
    wrong = memlane("show", "norm.cu:2", file, *launch, "--array", "delta").err
    assert wrong == "memlane: norm.cu:2 has no access of an array delta; it has in, gamma, beta, out\n"
    assert "those of line 2 begin at column 1" in memlane("show", "norm.cu:2:9", file, *launch).err


TWICE = """.version 7.8
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 x) {
    .reg .b32 %r<2>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    mul.wide.u32 %rd3, %r1, 128;
    add.s64 %rd2, %rd1, %rd2;
    add.s64 %rd3, %rd1, %rd3;
    .loc 1 2 5
    st.global.u32 [%rd2], %r1;
    .loc 1 2 16
    st.global.u32 [%rd3], %r1;
    st.global.u32 [%rd2], %r1;
    ret;
}
.file 1 "twice.cu"
"""


def test_accesses_of_one_line_to_one_array_are_told_apart(memlane: Command, tmp_path: Path) -> None:
    file = tmp_path / "twice.ptx"
    file.write_text(TWICE)
    launch = ["--grid", "1", "--block", "32", "--target", "emulator:h200", "--arg", "f4[1024]"]
    answer = memlane("show", "twice.cu:2", file, *launch)
    assert "32 lanes x 4 B touch 32 sectors where 4 would do." in answer.lines
    others = "Other accesses of this line: 1 more finding of this kind at this place, none more expensive, twice.cu:2:5 --op st.global.u32"
    assert answer.lines[-1] == others
    other = memlane("show", "twice.cu:2:5", file, *launch)
    assert "32 lanes x 4 B touch 4 sectors: the fewest possible." in other.lines
    assert other.lines[-1] == "Other accesses of this line: twice.cu:2:16 --op st.global.u32"


def test_a_chip_of_a_file_draws_by_its_own_rules(memlane: Command) -> None:
    Path("mine.toml").write_text('like = "gtx480"\nproduct = "mine"\n')
    answer = memlane("show", "transpose.cu:18", SCRIPT, "--target", "emulator:./mine.toml", "--", "64")
    assert "by the rules of mine" in answer.out


def test_a_kernel_of_a_file_is_drawn(memlane: Command) -> None:
    words = ("--kernel", "padded", "--grid", "2,2", "--block", "32,32", "--arg", "f4[64,64]", "--arg", "f4[64,64]", "--arg", "64:i4")
    answer = memlane("show", "transpose.cu:48", EXAMPLES / "ptx" / "transpose.ptx", *words, "--op", "ld.shared")
    assert answer.lines[2] == "32 lanes x 4 B take 1 wavefront: the fewest possible."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("transpose.cu", SCRIPT), "'transpose.cu' is not a source line: write FILE:LINE or FILE:LINE:COLUMN, for example transpose.cu:18"),
        (("transpose.cu:18", "no.py"), "no file no.py"),
        (("transpose.cu:18", SCRIPT, "--chip", "g80"), "--chip g80: unknown chip 'g80'; known chips: "),
        (("transpose.cu:18", SCRIPT, "--launch", "7", "--", "64"), f"{SCRIPT} made 3 launches, numbered from 0; there is no launch 7"),
        (("transpose.cu:19", SCRIPT, "--", "64"), "transpose.cu:19 has no memory access; the nearest ones are in line 18 (ld.global.f32, "),
    ],
)
def test_what_cannot_be_drawn_is_said(memlane: Command, words: tuple[object, ...], message: str) -> None:
    answer = memlane("show", *words)
    assert answer.code > 0
    assert answer.err.startswith(f"memlane: {message}")


def test_records_without_addresses_say_how_to_get_them(memlane: Command, recorded: Path) -> None:
    replace(load(recorded), examples=(), target="cuda:0", modelled=False).save("gpu.parquet")
    answer = memlane("show", "transpose.cu:18", "gpu.parquet")
    assert answer.err == (
        "memlane: the trace was recorded on cuda:0, which does not record the addresses of the lanes; memlane show transpose.cu:18 PROGRAM "
        "--target emulator:h200 draws it from a run on the emulator\n"
    )
    replace(load(recorded), chip="mine").save("mine.parquet")
    answer = memlane("show", "transpose.cu:18", "mine.parquet")
    assert answer.err.startswith(
        "memlane: the trace was taken on mine, and there is no chip file for it here; choose another chip with --chip: a100, "
    )
    assert memlane("show", "transpose.cu:18", "mine.parquet", "--chip", "h200").code == 0
    answer = memlane("show", "transpose.cu:18", recorded, "--warp", "3")
    assert answer.err == (
        "memlane: --warp needs a run, because a record file keeps only the addresses of the worst access of each line; "
        "name the program instead: memlane show transpose.cu:18 PROGRAM --warp ...\n"
    )


@pytest.mark.parametrize(("line", "name"), [(18, "uncoalesced"), (33, "conflict")])
def test_the_figures_of_the_docs_are_what_it_draws(memlane: Command, line: int, name: str, request: pytest.FixtureRequest) -> None:
    """Run with --update-golden to draw them anew."""
    figure = EXAMPLES.parent / "docs" / "figures" / "show" / f"{name}.svg"
    assert memlane("show", f"transpose.cu:{line}", SCRIPT, "--svg", "drawn.svg", "--", "64").code == 0
    if request.config.getoption("--update-golden"):
        figure.write_bytes(Path("drawn.svg").read_bytes())
    assert figure.read_bytes() == Path("drawn.svg").read_bytes()
