"""Write CLOG-2, the log format of Argonne's MPE, which Jumpshot shows as a Gantt chart once it is converted to SLOG-2.

Version 02.44, big-endian. A rank is an SM, a thread a warp slot; SMs of a second device are numbered behind those of the first. There is
one state for each operation and space, and one for the life of a warp on each device; the text of a state gives source line, block, cycles
and file, that of a life the warp, block, cycles and kernel. A reader pairs the first end of a state on a thread with the first beginning
there, so overlapping accesses of a warp get threads of their own, numbered behind the slots. The format is defined by
https://github.com/pmodels/mpe, `src/logging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from memlane.errors import RecordError
from memlane.export.format import Exporter
from memlane.export.tracks import Tracks, tracks
from memlane.record import Trace, kernel_label

PREAMBLE_BYTES = 1024
BLOCK_BYTES = 65536
END_OF_LOG, END_OF_BLOCK, STATE_DEFINITION, CARGO_EVENT, COMMUNICATOR_EVENT = 0, 1, 2, 6, 9

_HEADER = [("time", ">f8"), ("icomm", ">i4"), ("rank", ">i4"), ("thread", ">i4"), ("rectype", ">i4")]
END = np.dtype(_HEADER)
STATE = np.dtype(
    [
        *_HEADER,
        *((name, ">i4") for name in ("state", "start", "final", "pad")),
        *(("color", "S24"), ("name", "S32"), ("format", "S40")),
    ]
)
COMMUNICATOR = np.dtype([*_HEADER, *((name, ">i4") for name in ("etype", "comm", "comm_rank", "world_rank")), ("uuid", "S32")])
EVENT = np.dtype(
    [
        *_HEADER,
        *((name, ">i4") for name in ("etype", "pad", "number", "block")),
        *(("cycles", ">i8"), ("length", ">i2"), ("source", "S14")),
    ]
)
TEXT = b"line=%d, block=%d, cycles=%l, file=%s"
LIFE_TEXT = b"warp=%d, block=%d, cycles=%l, kernel=%s"
"""Format in which a viewer prints the last five fields of `EVENT` (32 bytes of typed values), for an access and for a warp."""
EVENTS_A_BLOCK = (BLOCK_BYTES - END.itemsize) // EVENT.itemsize

FIRST_STATE, FIRST_EVENT, MOST_STATES = 300, 600, 2200
"""Smaller numbers are those of MPI's own states; larger ones those of events without a duration."""
WORLD = np.array([(1, 0.0, b"memlane")], [("number", ">i4"), ("time", ">f8"), ("name", "S20")]).tobytes()
"""Identity of the communicator of all ranks."""
COLORS = ("green", "red", "blue", "orange", "orchid", "moccasin", "maroon", "aquamarine", "salmon", "sienna", "peru", "chartreuse")
"""X11 colour names. Jumpshot draws time lines in cyan, and inverts the last color of a preview for its border: none of these is near cyan
or near the inverse of another.
"""
LIFE, LIFE_COLOR = "warp", "gray"

_ROWS_AT_ONCE = EVENTS_A_BLOCK << 8
_Fill = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.NDArray[Any]]
"""Function that completes events, given the number of the drawing of each."""


def write(trace: Trace, stream: BinaryIO) -> None:
    """Write `trace` as CLOG-2. Raises RecordError if it has no common time axis, or more kinds of access than the format can number."""
    drawn = tracks(trace)
    lives = [LIFE] if len(trace.devices) == 1 else [f"{LIFE} of {name}" for name in trace.devices]
    states = [*_operations(trace), *lives]
    if len(states) > MOST_STATES:
        raise RecordError(
            f"CLOG-2 supports at most {MOST_STATES} kinds of access, but this trace has {len(states) - len(lives)}; trace fewer sites"
        )
    ranks = int(drawn.lives.place.max()) + 1 if len(drawn.lives.place) else 1
    defined = [_state(number, name, name in lives) for number, name in enumerate(states)]
    head = list(_blocks([*defined, *(_communicator(rank) for rank in range(ranks))]))
    events = 2 * (len(drawn.life) + len(drawn.lives.sm))
    blocks = len(head) + -(-events // EVENTS_A_BLOCK) + 1
    stream.write(_preamble(ranks, _threads(drawn), len(states), PREAMBLE_BYTES + blocks * BLOCK_BYTES))
    for block in head:
        stream.write(block)
    for part in _events(trace, drawn, states):
        for first in range(0, len(part), EVENTS_A_BLOCK):
            stream.write(_block(part[first : first + EVENTS_A_BLOCK].tobytes(), END_OF_BLOCK))
    stream.write(_block(b"", END_OF_LOG))
    stream.write(np.array([1], ">i4").tobytes() + WORLD + np.array([0, 1], ">i4").tobytes())


def _threads(drawn: Tracks) -> int:
    """Return the threads of a rank: its slots times the lanes that accesses need."""
    return max(1, drawn.lives.slots) * (int(drawn.lane.max()) + 1 if len(drawn.lane) else 1)


def _operations(trace: Trace) -> list[str]:
    return list(dict.fromkeys(site.op for site in trace.sites))


# -- events --------------------------------------------------------------------------------------------------------------------


def _events(trace: Trace, drawn: Tracks, states: list[str]) -> Iterator[npt.NDArray[Any]]:
    """Yield the starts and ends of all states by time, in parts. Drawings are numbered: first the rows, then the lives."""
    lives, rows = drawn.lives, len(drawn.life)
    times = np.concatenate((drawn.start_ns, lives.begin_ns, drawn.end_ns, lives.end_ns))
    order = np.argsort(times, kind="stable")  # a state of zero length starts before it ends
    drawings = rows + len(lives.sm)
    fill_accesses, fill_lives = _accesses(trace, drawn, states), _lives(trace, drawn, states)
    for first in range(0, len(order), _ROWS_AT_ONCE):
        chosen = order[first : first + _ROWS_AT_ONCE]
        number = chosen % drawings
        access = number < rows
        part = np.zeros(len(chosen), EVENT)
        part["time"] = times[chosen] * 1e-9
        part["rectype"] = CARGO_EVENT
        part[access] = fill_accesses(part[access], number[access])
        part[~access] = fill_lives(part[~access], number[~access] - rows)
        part["etype"] += chosen >= drawings
        part["length"] = np.char.str_len(part["source"])
        yield part


def _accesses(trace: Trace, drawn: Tracks, states: list[str]) -> _Fill:
    site, block = (trace.table[name].to_numpy() for name in ("site", "block"))
    cycles = trace.table["end"].to_numpy() - trace.table["start"].to_numpy()
    starts = np.array([FIRST_EVENT + 2 * states.index(one.op) for one in trace.sites], np.int64)
    lines = np.array([one.line for one in trace.sites], np.int64)
    files = _short([PurePath(one.file).name for one in trace.sites])

    def fill(part: npt.NDArray[Any], row: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        where, life = site[row], drawn.life[row]
        part["rank"], part["thread"] = drawn.lives.place[life], drawn.lives.slot[life] + drawn.lives.slots * drawn.lane[row]
        part["etype"], part["number"], part["source"] = starts[where], lines[where], files[where]
        part["block"], part["cycles"] = block[row], cycles[row]
        return part

    return fill


def _lives(trace: Trace, drawn: Tracks, states: list[str]) -> _Fill:
    lives = drawn.lives
    cycles = trace.warps["end_cycles"] - trace.warps["begin_cycles"]
    kernels = _short([kernel_label(launch.kernel) for launch in trace.launches])
    first = len(states) - len(trace.devices)
    state_of_launch = np.array([first + trace.devices.index(launch.device or trace.target) for launch in trace.launches], np.int64)

    def fill(part: npt.NDArray[Any], life: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        part["rank"], part["thread"] = lives.place[life], lives.slot[life]
        part["etype"], part["source"] = FIRST_EVENT + 2 * state_of_launch[lives.launch[life]], kernels[lives.launch[life]]
        part["number"], part["block"], part["cycles"] = lives.warp[life], lives.block[life], cycles[life]
        return part

    return fill


def _short(names: list[str]) -> npt.NDArray[np.bytes_]:
    """Return the end of each name, cut to the size of the field."""
    return np.array([name.encode("ascii", "replace")[-EVENT["source"].itemsize :] for name in names], EVENT["source"])


# -- records -------------------------------------------------------------------------------------------------------------------


def _state(number: int, name: str, is_life: bool) -> npt.NDArray[Any]:
    """Return the definition of a state."""
    made = np.zeros(1, STATE)
    made["rectype"], made["state"] = STATE_DEFINITION, FIRST_STATE + number
    made["start"], made["final"] = FIRST_EVENT + 2 * number, FIRST_EVENT + 2 * number + 1
    made["color"] = (LIFE_COLOR if is_life else COLORS[number % len(COLORS)]).encode()
    made["name"] = name.encode("ascii", "replace")[: STATE["name"].itemsize - 1]
    made["format"] = LIFE_TEXT if is_life else TEXT
    return made


def _communicator(rank: int) -> npt.NDArray[Any]:
    """Return the event that makes a rank a member of the world; it must come before any other event of that rank."""
    made = np.zeros(1, COMMUNICATOR)
    made["rectype"], made["uuid"] = COMMUNICATOR_EVENT, WORLD
    made["rank"] = made["comm_rank"] = made["world_rank"] = rank
    return made


def _blocks(records: Iterable[npt.NDArray[Any]]) -> Iterator[bytes]:
    """Yield the records in blocks; no record spans two blocks."""
    body = b""
    for record in records:
        if len(body) + record.nbytes + END.itemsize > BLOCK_BYTES:
            yield _block(body, END_OF_BLOCK)
            body = b""
        body += record.tobytes()
    yield _block(body, END_OF_BLOCK)


def _block(body: bytes, end: int) -> bytes:
    last = np.zeros(1, END)
    last["rectype"] = end
    return (body + last.tobytes()).ljust(BLOCK_BYTES, b"\0")


def _preamble(ranks: int, threads: int, states: int, table_at: int) -> bytes:
    """Return the preamble: `key=` and value in turn; the misspelt key is part of the format."""
    entries: tuple[tuple[str, object], ...] = (
        ("is_big_endian=", "TRUE "),
        ("is_finalzed=", "TRUE "),
        ("block_size=", BLOCK_BYTES),
        ("num_buffered_blocks=", 128),
        ("max_comm_world_size=", ranks),
        ("max_thread_count=", threads),
        ("known_eventID_start=", 0),
        ("user_eventID_start=", FIRST_EVENT),
        ("known_solo_eventID_start=", -10),
        ("user_solo_eventID_start=", 5000),
        ("known_stateID_count=", FIRST_STATE),
        ("user_stateID_count=", states),
        ("known_solo_eventID_count=", 10),
        ("user_solo_eventID_count=", 0),
    )
    words = ["CLOG-02.44", *(str(word) for entry in entries for word in entry)]
    words += ["commtable_fptr=", str(table_at >> 30), str(1 << 30), str(table_at & (1 << 30) - 1)]
    return b"".join(word.encode() + b"\0" for word in words).ljust(PREAMBLE_BYTES, b"\0")


EXPORTER = Exporter("clog2", ".clog2", "for Jumpshot: a Gantt chart of the warp slots of each SM", write)
