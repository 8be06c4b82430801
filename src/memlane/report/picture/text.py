"""Draw the picture for the terminal, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from memlane.chip import LANES, SECTOR_BYTES
from memlane.report.picture.banks import lanes_text
from memlane.report.picture.drawing import Drawing
from memlane.report.table import plain

COLUMNS = 100
_WORD = 4
_ASKED, _PART, _MOVED, _STAYS = "█", "▌", "░", "·"
_STYLES = {_ASKED: "blue", _PART: "blue", _MOVED: "yellow", _STAYS: "dim"}
_TURNS = ("blue", "magenta", "red", "yellow", "green", "cyan")
"""Colours of wavefronts, used in turn."""


def render_drawing(drawing: Drawing) -> RenderableType:
    """Return the access with its caption: a row for each line of memory, or for each wavefront of shared memory."""
    is_least = drawing.transactions <= drawing.ideal
    lines = [
        plain(f"{drawing.place}  {drawing.what}", "bold"),
        plain(f"  {drawing.code}"[:COLUMNS]),
        plain(drawing.headline, "bold green" if is_least else "bold red"),
        *([plain(drawing.detail)] if drawing.detail else []),
        Text(),
        *(_banks(drawing) if drawing.space == "shared" else _sectors(drawing)),
        Text(),
        plain(drawing.origin, "dim"),
    ]
    return Group(*lines)


# -- global and local memory -----------------------------------------------------------------------------------------------------


def _sectors(drawing: Drawing) -> list[Text]:
    """Return a box for each sector, with a character for each word of four bytes."""
    per_line, line_bytes = drawing.chip.line_bytes // SECTOR_BYTES, drawing.chip.line_bytes
    lanes: dict[int, set[int]] = {}
    asked: set[int] = set()
    moved: list[int] = []
    for piece in drawing.pieces:
        moved += range(piece.start // SECTOR_BYTES, (piece.start + piece.nbytes) // SECTOR_BYTES)
        for touch in piece.touches:
            asked.update(range(touch.address, touch.address + touch.nbytes))
            lanes.setdefault(touch.address // line_bytes, set()).add(touch.lane)
    lines = sorted({sector // per_line for sector in moved})
    labels = [f"+{(line - lines[0]) * line_bytes:,}" for line in lines]
    width = max(len("line"), *map(len, labels))
    bar = "─" * (SECTOR_BYTES // _WORD)
    found = [_frame(width, "line", "┌" + "┬".join([bar] * per_line) + "┐", f"lanes, {drawing.nbytes} B each")]
    for line, label in zip(lines, labels, strict=True):
        row = Text(f"  {label:>{width}} │")
        for sector in range(line * per_line, (line + 1) * per_line):
            row.append_text(_words(sector, sector in moved, asked))
            row.append("│")
        again = max(moved.count(sector) for sector in range(line * per_line, (line + 1) * per_line))
        row.append(f" {_ranges(sorted(lanes.get(line, ())))}" + (f"  (moves {again} times)" if again > 1 else ""))
        row.truncate(COLUMNS, overflow="ellipsis")
        found.append(row)
    found.append(_frame(width, "", "└" + "┴".join([bar] * per_line) + "┘", ""))
    legend = Text()
    legend.append(_ASKED, _STYLES[_ASKED]).append(" requested   ")
    legend.append(_MOVED, _STYLES[_MOVED]).append(" moved but not requested   ")
    legend.append(_STAYS, _STYLES[_STAYS]).append(f" not moved     ({_WORD} B a character, {SECTOR_BYTES} B a box)")
    return [*found, legend]


def _frame(width: int, label: str, frame: str, behind: str) -> Text:
    return Text(f"  {label:>{width}} {frame} {behind}".rstrip())


def _words(sector: int, moves: bool, asked: set[int]) -> Text:
    row = Text()
    for start in range(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES, _WORD):
        wanted = sum(byte in asked for byte in range(start, start + _WORD))
        sign = _ASKED if wanted == _WORD else _PART if wanted else _MOVED if moves else _STAYS
        row.append(sign, _STYLES[sign])
    return row


def _ranges(numbers: Sequence[int]) -> str:
    """Return the numbers as `0-7, 9`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# -- shared memory ---------------------------------------------------------------------------------------------------------------


def _banks(drawing: Drawing) -> list[Text]:
    """Return a row for each wavefront, with the lane that each bank serves."""
    rule = drawing.rule
    cell = (COLUMNS - 4) // max(rule.banks, LANES)
    found = [Text("bank" + "".join(f"{bank:>{cell}}" for bank in range(rule.banks)), "bold"), Text("─" * (4 + cell * rule.banks), "dim")]
    several = False
    for turn, wave in enumerate(drawing.wavefronts):
        row = Text(f"{turn + 1:>3} ")
        served: dict[int, list[int]] = {}
        for touch in wave.touches:
            words = range(touch.address // rule.bank_bytes, (touch.address + touch.nbytes - 1) // rule.bank_bytes + 1)
            for bank in {word % rule.banks for word in words}:
                served.setdefault(bank, []).append(touch.lane)
        for bank in range(rule.banks):
            lanes = sorted(set(served.get(bank, ())))
            several |= len(lanes) > 1
            sign = f"{lanes[0]}+" if len(lanes) > 1 else lanes_text(lanes, cell) if lanes else "·"
            row.append(f"{sign:>{cell}}", _TURNS[turn % len(_TURNS)] if lanes else "dim")
        if not wave.touches:
            row = Text(f"{turn + 1:>3}   the banks are busy again", "dim")
        found.append(row)
    more = "; 7+: lane 7 and others, at the same word" if several else ""
    return [*found, Text(), Text(f"  A row is a wavefront; a number is the lane that its bank serves{more}.", "dim")]
