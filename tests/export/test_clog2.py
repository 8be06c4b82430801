"""CLOG-2, read back by a reader written from the format's definition: record by record, and states paired as Jumpshot's converter does."""

from __future__ import annotations

import io
import os
import struct
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from memlane.errors import RecordError
from memlane.export import export, exporters
from memlane.record import WARP_DTYPE, Trace
from tests.synthetic import one_warp, overlapping, transpose

PAYLOAD = {0: 0, 1: 0, 2: 112, 6: 40, 9: 48}


@dataclass(frozen=True)
class Drawn:
    """One state as a viewer shows it."""

    name: str
    rank: int
    thread: int
    start: float
    end: float
    cargo: tuple[object, ...]


@dataclass(frozen=True)
class Log:
    preamble: dict[str, str]
    states: list[Drawn]
    formats: dict[str, str]
    colors: dict[str, str]
    worlds: set[int]
    blocks: int
    tail: bytes


def text(raw: bytes) -> str:
    """A C string; it must have an end, and must not be empty."""
    end = raw.index(b"\0")
    assert end > 0
    return raw[:end].decode("ascii")


def read(data: bytes) -> Log:
    words = data[:1024].rstrip(b"\0").split(b"\0")
    preamble = {key.decode(): value.decode() for key, value in zip(words[1::2], words[2::2], strict=False)}
    assert words[0] == b"CLOG-02.44"
    assert preamble["is_big_endian="] == "TRUE "
    size = int(preamble["block_size="])
    definitions: dict[int, tuple[str, str, bool]] = {}
    colors: dict[str, str] = {}
    open_states: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    states, worlds = [], set()
    position, kind, last, blocks = 1024, -1, -np.inf, 0
    while kind != 0:
        at, kind, blocks = position, -1, blocks + 1
        while kind not in (0, 1):
            time, icomm, rank, thread, kind = struct.unpack_from(">diiii", data, at)
            body = data[at + 24 : at + 24 + PAYLOAD[kind]]
            at += 24 + PAYLOAD[kind]
            assert icomm == 0
            if kind == 2:
                _, start, final, _ = struct.unpack_from(">iiii", body)
                colors[text(body[40:72])] = text(body[16:40])
                definitions[start] = (text(body[40:72]), text(body[72:]), True)
                definitions[final] = (text(body[40:72]), text(body[72:]), False)
            elif kind == 9:
                worlds.add(rank)
            elif kind == 6:
                assert rank in worlds
                assert thread < int(preamble["max_thread_count="])
                assert time >= last
                last = time
                name, pattern, begins = definitions[struct.unpack_from(">i", body)[0]]
                waiting = open_states[name, rank, thread]
                if begins:
                    waiting.append(time)
                else:
                    states.append(Drawn(name, rank, thread, waiting.pop(0), time, cargo(pattern, body[8:])))
        assert at - position <= size
        position += size
    assert not any(open_states.values())
    pointer = data.index(b"commtable_fptr=")
    high, unit, low = (int(word) for word in data[pointer:1024].split(b"\0")[1:4])
    assert high * unit + low == position
    formats = {name: pattern for name, pattern, _ in definitions.values()}
    return Log(preamble, states, formats, colors, worlds, blocks, data[position:])


def cargo(pattern: str, body: bytes) -> tuple[object, ...]:
    """The values that follow each %, as the definition of the format types them."""
    values: list[object] = []
    at = 0
    for letter in (part[0] for part in pattern.split("%")[1:]):
        if letter == "s":
            (length,) = struct.unpack_from(">h", body, at)
            values.append(body[at + 2 : at + 2 + length].decode())
            at += 2 + length
        else:
            code = {"d": ">i", "l": ">q"}[letter]
            values += struct.unpack_from(code, body, at)
            at += struct.calcsize(code)
    assert at <= 32
    return tuple(values)


def written(trace: Trace) -> Log:
    stream = io.BytesIO()
    exporters["clog2"].write(trace, stream)
    return read(stream.getvalue())


def test_every_access_is_a_state_of_its_sm_and_slot() -> None:
    trace = transpose()
    log = written(trace)
    lives = [state for state in log.states if state.name == "warp"]
    accesses = [state for state in log.states if state.name != "warp"]
    assert len(accesses) == trace.table.num_rows
    assert len(lives) == len(trace.warps)
    assert log.worlds == {0, 1}
    rows = sorted((row["op"], row["sm"], row["line"], row["block"], row["end"] - row["start"]) for row in trace.table.to_pylist())
    assert rows == sorted((one.name, one.rank, *one.cargo[:3]) for one in accesses)
    assert {one.cargo[3] for one in accesses} == {"transpose.cu"}
    assert {one.cargo[3] for one in lives} == {"naive", "tiled"}


def test_the_text_of_a_warp_names_the_warp_and_its_kernel() -> None:
    trace = transpose()
    log = written(trace)
    kernels = {one.id: one.kernel.partition("(")[0] for one in trace.launches}
    expected = [
        (int(one["warp"]), int(one["block"]), int(one["end_cycles"] - one["begin_cycles"]), kernels[one["launch"]]) for one in trace.warps
    ]
    assert sorted(one.cargo for one in log.states if one.name == "warp") == sorted(expected)
    assert log.formats["warp"] == "warp=%d, block=%d, cycles=%l, kernel=%s"
    assert {log.formats[one.op] for one in trace.sites} == {"line=%d, block=%d, cycles=%l, file=%s"}


X11 = {
    "green": (0, 255, 0),
    "red": (255, 0, 0),
    "blue": (0, 0, 255),
    "orange": (255, 165, 0),
    "orchid": (218, 112, 214),
    "moccasin": (255, 228, 181),
    "maroon": (176, 48, 96),
    "aquamarine": (127, 255, 212),
    "salmon": (250, 128, 114),
    "sienna": (160, 82, 45),
    "peru": (205, 133, 63),
    "chartreuse": (127, 255, 0),
    "gray": (190, 190, 190),
}
"""What the colors of the format are, by the X Window System's table, of which Jumpshot's is a copy."""
CYAN, WHITE = (0, 255, 255), (255, 255, 255)
"""Its time lines, and its previews."""


def test_colors_can_be_told_apart_from_each_other_and_from_what_jumpshot_inverts() -> None:
    trace = transpose()
    sites = tuple(replace(trace.sites[0], id=number, op=f"ld.global.x{number}") for number in range(12))
    colors = written(replace(trace, sites=sites, table=trace.table.slice(0, 0))).colors
    drawn = {name: np.array(X11[name]) for name in colors.values()}
    assert len(drawn) == 13  # none twice
    for name, color in drawn.items():
        others = [other for which, other in drawn.items() if which != name]
        unlike = [*others, np.array(CYAN), np.array(WHITE), *(255 - other for other in others)]
        assert min(np.linalg.norm(color - other) for other in unlike) > 60, name


def test_times_are_seconds_of_the_common_axis() -> None:
    trace = transpose()
    seconds = sorted(one.end - one.start for one in written(trace).states if one.name != "warp")
    cycles = sorted(row["end"] - row["start"] for row in trace.table.to_pylist())
    assert seconds == pytest.approx([count / 1.98 * 1e-9 for count in cycles], rel=1e-6)  # the nominal clock: the launches are short


def test_warps_that_live_at_a_time_have_slots_of_their_own() -> None:
    lives = [state for state in written(transpose()).states if state.name == "warp"]
    for one in lives:
        beside = [
            other for other in lives if other is not one and other.rank == one.rank and other.start < one.end and one.start < other.end
        ]
        assert one.thread not in {other.thread for other in beside}
    assert {one.thread for one in lives} == {0, 1, 2, 3}  # the two launches of this trace run at the same time


def test_many_blocks_and_states_of_no_length() -> None:
    count = 5000
    instants = np.arange(count) // 2 * 10
    log = written(one_warp(instants, instants, 10 * count))
    assert len(log.states) == count + 1
    assert log.blocks == 1 + -(-2 * (count + 1) // 1023) + 1


def test_accesses_that_overlap_keep_their_own_ends() -> None:
    """Accesses at one site, one within the other: a reader that pairs the first end with the first start must not mix them up."""
    accesses = sorted((one for one in written(overlapping()).states if one.name != "warp"), key=lambda one: one.start)
    assert [round((one.end - one.start) * 1.98e9) for one in accesses] == [one.cargo[2] for one in accesses] == [1000, 400, 100, 100]
    assert [one.thread for one in accesses] == [0, 1, 2, 1]


def test_the_order_of_the_rows_does_not_matter() -> None:
    trace = transpose()
    shuffled = trace.table.take(np.random.default_rng(3).permutation(trace.table.num_rows))
    drawn = [sorted(written(one).states, key=repr) for one in (trace, replace(trace, table=shuffled))]
    assert drawn[0] == drawn[1]


def test_the_table_of_communicators_ends_the_file() -> None:
    tail = written(transpose()).tail
    assert struct.unpack(">iid20sii", tail) == (1, 1, 0.0, b"memlane".ljust(20, b"\0"), 0, 1)


def test_a_trace_without_accesses_is_a_log_of_lives() -> None:
    trace = transpose()
    empty = replace(trace, table=trace.table.slice(0, 0))
    assert {state.name for state in written(empty).states} == {"warp"}


def test_a_trace_without_clocks_is_refused(tmp_path: Path) -> None:
    bare = replace(transpose(), warps=np.zeros(0, WARP_DTYPE))
    with pytest.raises(RecordError, match=r"^this trace lacks the clocks of some of its warps"):
        export(bare, "clog2", tmp_path / "t.clog2")
    assert not (tmp_path / "t.clog2").exists()


def test_names_are_cut_to_what_the_format_holds() -> None:
    trace = transpose()
    sites = tuple(replace(one, file="a/rather/long/path/of_a_source_file.cu", op=one.op + ".and" * 10) for one in trace.sites)
    log = written(replace(trace, sites=sites))
    assert {one.cargo[3] for one in log.states if one.name != "warp"} == {"source_file.cu"}
    assert max(len(one.name) for one in log.states) == 31


def test_too_many_kinds_of_access_are_refused() -> None:
    trace = transpose()
    many = tuple(replace(trace.sites[0], id=number, op=f"ld.global.x{number}") for number in range(2200))
    table = trace.table.slice(0, 0)
    assert isinstance(table, pa.Table)
    with pytest.raises(RecordError, match=r"^CLOG-2 supports at most 2200 kinds of access, but this trace has 2200; trace fewer sites$"):
        written(replace(trace, sites=many, table=table))


@pytest.mark.skipif("MEMLANE_CLOG2PRINT" not in os.environ, reason="MEMLANE_CLOG2PRINT names no clog2print (a jar or a class path)")
def test_argonnes_clog2print_reads_it(tmp_path: Path) -> None:
    trace = transpose()
    export(trace, "clog2", tmp_path / "t.clog2")
    program = os.environ["MEMLANE_CLOG2PRINT"]
    start = ["-jar", program] if program.endswith(".jar") else ["-cp", program, "logformat.clog2.Print"]
    shown = subprocess.run(["java", *start, str(tmp_path / "t.clog2")], check=True, capture_output=True, text=True, errors="replace")
    assert shown.stderr == ""
    lines = shown.stdout.splitlines()
    assert lines[0] == "CLOG-02.44"
    kinds = Counter(line.partition("[")[0] for line in lines if line.startswith("Rec"))
    events, states, ranks = 2 * (trace.table.num_rows + len(trace.warps)), len({one.op for one in trace.sites}) + 1, 2
    blocks = lines.count("End Of Block")
    assert kinds == {"RecCargo": events, "RecDefState": states, "RecComm": ranks, "RecHeader": events + states + ranks + blocks + 1}
    assert lines[-2] == "End Of File"
