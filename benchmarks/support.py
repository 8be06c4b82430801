"""Write `docs/instructions.md`: the instructions that the emulator supports, and the ways in which each was checked.

The rows are those of the instruction table, and every cell is a fact found elsewhere: whether a form is emulated, by letting the emulator
write its code; the cases by hand, in `tests/cases/instructions`; the oracle, by asking it; programs, in the texts of `tests/emulate`; the
comparison with a GPU, in the result of `differential.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from application import HEAD, THREADS, register
from emulated import refusals
from handmade import lines
from harness import RESULTS, ROOT
from instructions import Spelling, spell, spellings
from oracle import knows

from cases import SKIPPED, cases
from memlane.emulate.semantics import TABLE as SEMANTICS
from memlane.errors import MemlaneError
from memlane.ptx import SCALAR_TYPES, TABLE, parse
from memlane.ptx.forms import ADDRESS, COORDINATES, VALUE
from memlane.ptx.forms import Row as TableRow

PAGE = "instructions.md"
MANUAL = "https://docs.nvidia.com/cuda/parallel-thread-execution/#"
_UNPROBED = ("branch", "call")
_COORDINATES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4, "2dms": 4, "a2dms": 4}
"""Number of coordinates, by the shape of a texture or surface."""
_SHOWN = 3
_TABLE_HEAD = "| form | types | emulated | by hand | oracle | on hardware |\n| --- | --- | --- | --- | --- | --- |"

_HEAD = """# Which instructions are emulated, and how each was checked

`make tables` writes this page from the instruction table, the emulator, and the results of `benchmarks/differential.py`. Rows are in the
notation of the PTX manual; parts in braces are optional. The emulator refuses an instruction that it does not emulate, and names it
(`UnsupportedPtx`). The parser refuses an instruction that is not in the table. The column *emulated* is found by passing the forms of a row
to the emulator. If operands cannot be made from their types alone (labels, fragments of matrices), the column says only that the emulator
has semantics for the instruction.

- *by hand*: the number of cases in `tests/cases/instructions`, with values worked out from the manual. If there are none, *programs* means
  that kernels in `tests/emulate` use the instruction and check its results.
- *oracle*: forms whose results on edge and random operands equal those of a plain Python oracle (`benchmarks/oracle.py`).
- *on hardware*: forms whose results on edge and random operands equal those of a GPU.
"""

_BY_THE_ASSEMBLER = """For some instructions, the code of the assembler for sm_90 follows another rule than the manual. The emulator then
follows the assembler:

- `vadd` and `vsub` of `.s32` with `.min` or `.max`, without `.sat`: the result is cut to 32 bits before it is compared.
- `vset` with `.min` or `.max`: the last operand has the sign of the first.
- `vshl` of `.s32` from `.u32` with `.min` or `.max`, without `.sat`: the result is compared as a signed number of 64 bits.
- `vmad` with `.sat`, `.shr7` or `.shr15`: factors that are whole words are signed, and so is the last operand, whatever the types say.
"""


# -- emulated --------------------------------------------------------------------------------------------------------------------


@cache
def _legal_spellings() -> dict[tuple[str, str], tuple[Spelling, ...]]:
    """Return the forms that `differential` looks at, by section and row."""
    found: dict[tuple[str, str], list[Spelling]] = {}
    for spelling in spellings():
        found.setdefault((spelling.row.manual, spelling.row.text), []).append(spelling)
    return {key: tuple(value) for key, value in found.items()}


_known: dict[tuple[str, str], str] = {}
"""Results of `emulated`, by section and row."""
_refused_names: dict[tuple[str, str], frozenset[str]] = {}
"""The forms that it found refused."""


def emulated(row: TableRow) -> str:
    """Return the cell of a row: yes, no, or what is refused."""
    key = row.manual, row.text
    if key not in _known:
        _known[key] = _emulated(row) if row.key in SEMANTICS else "no"
    return _known[key]


def _emulated(row: TableRow) -> str:
    forms = _legal_spellings().get((row.manual, row.text), ()) or tuple(islice(spell(row), 64))
    tried, refused = _refused([form for form in forms if _fits_texture(form)])
    _refused_names[row.manual, row.text] = frozenset(refused)
    if not tried:
        return "yes, not tried form by form"
    if not refused:
        return "yes"
    if len(refused) == tried:
        return "no"
    shown = ", ".join(f"`{name}`" for name in refused[:_SHOWN])
    more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
    return f"in part, not {shown}{more}"


def _refused(forms: Sequence[Spelling]) -> tuple[int, list[str]]:
    """Return how many of these could be tried, and the names of those that the emulator refuses."""
    lines = {spelling.name: line for spelling in forms if (line := _instruction(spelling)) is not None}
    if not lines:
        return 0, []
    try:
        return len(lines), _refused_together(lines)
    except MemlaneError:  # one of them is no PTX
        tried = 0
        refused: list[str] = []
        for name, line in lines.items():
            with suppress(MemlaneError):
                refused += _refused_together({name: line})
                tried += 1
        return tried, refused


def _refused_together(lines: Mapping[str, str]) -> list[str]:
    module = parse(_kernel(lines.values()), "probe.ptx")
    names = list(lines)
    return [names[index] for index in sorted(refusals(module, module.kernels["k"]))]


def _fits_texture(spelling: Spelling) -> bool:
    """Return whether the manual has this form of a texture fetch: pairs of halves come in twos, all else in fours."""
    slots = spelling.form.slots
    if spelling.row.opcode != "tex":
        return True
    samples = slots["geom"].endswith("ms")
    return (slots["vec"] == "v2") == (slots["dtype"] == "f16x2") and (not samples or slots["ctype"] == "s32")


_REGISTERS = ("pred", "b16", "b32", "b64", "b128")


def _kernel(lines: Iterable[str]) -> str:
    """Return a kernel of these instructions, with registers to read (`xb32`, ...) and to write (`ybits_0`, ...)."""
    declared = [f".reg .{kind} {letter}{kind}_{number};" for kind in _REGISTERS for letter in "xy" for number in range(8)]
    return "\n".join([HEAD, f".visible .entry k()\n.maxntid {THREADS}, 1, 1", "{", *declared, *lines, "ret;", "}", ""])


def _instruction(spelling: Spelling) -> str | None:
    """Return the form as an instruction, or None where its operands cannot be made from its types."""
    form = spelling.form
    if form.effect in _UNPROBED:
        return None
    count = 4 if spelling.row.opcode == "tld4" else int(form.slots.get("vec", "v1")[1:])
    texts = []
    for place in spelling.row.places:
        if place.optional and not (place.name == "mask" and spelling.has("multicast::cluster")):
            continue
        if place.shape == ADDRESS:
            texts.append("[xb64_0]")
            continue
        if place.shape == COORDINATES:
            axes = int(form.slots["dim"][0]) if "dim" in form.slots else _COORDINATES[form.slots["geom"]]
            texts.append(f"[xb64_0, {_operand('x', 'b32', axes) if axes > 1 else '{xb32_0}'}]")
            continue
        if form.effect == "texture" and place.name.startswith("dp"):
            texts.append(_operand("x", "b32", 4 if form.slots["geom"] in ("3d", "cube", "acube") else 2))
            continue
        if place.shape != VALUE:
            return None
        kind = form.types.get(place.name, "")
        letter = "y" if place.name in form.writes else "x"
        if not kind and place.name in form.writes:
            return None
        text = _operand(letter, kind, count if place.name in "db" or spelling.row.opcode == "mov" else 1, place.name)
        texts.append(f"{text}|ypred_1" if place.second else text)
    return f"{spelling.name} {', '.join(texts)};"


def _operand(letter: str, kind: str, count: int, name: str = "") -> str:
    if not kind:
        return "16" if name == "size" else "1"
    stem = f"{letter}{register(kind)}"
    if count == 1:
        return f"{stem}_0"
    return "{" + ", ".join(f"{stem}_{number}" for number in range(count)) + "}"


# -- checked ---------------------------------------------------------------------------------------------------------------------


@cache
def _case_names() -> dict[str, tuple[str, ...]]:
    """Return the names in the results by that of the form."""
    return {spelling.name: tuple(case.name for case in cases(spelling)) for rows in _legal_spellings().values() for spelling in rows}


_compared_as: dict[tuple[str, str], frozenset[str]] = {}
"""Results of `_names_in_results`, by section and row."""


def _names_in_results(row: TableRow) -> frozenset[str]:
    """Return the names of a row's forms in the results."""
    key = row.manual, row.text
    if key not in _compared_as:
        _compared_as[key] = frozenset(name for one in islice(spell(row), 4096) for name in _case_names().get(one.name, ()))
    return _compared_as[key]


def checked(row: TableRow, results: Mapping[str, Any] | None) -> str:
    """Return the cell of a row: when its forms were compared with a GPU, and what came of it."""
    names = _names_in_results(row)
    if results is None or not names:
        return "no"
    rows = [one for one in results["rows"] if one["case"] in names and one["metric"] != "not measured"]
    if not rows:
        return "no"
    forms = {one["case"] for one in rows}
    wrong = sorted({one["case"] for one in rows if not one["holds"]})
    if not wrong:
        return f"yes, {len(forms)} forms, {results['date']}"
    return f"**differs** in {len(wrong)} of {len(forms)} forms, {results['date']}: {', '.join(f'`{name}`' for name in wrong[:_SHOWN])}"


def types(row: TableRow) -> str:
    """Return the types that the row takes."""
    found: list[str] = []
    for word in row.words:
        for name in sorted(word.words, key=lambda name: (name.rstrip("0123456789x"), len(name), name)):
            if name in SCALAR_TYPES and name not in found:
                found.append(name)
    return " ".join(found)


@cache
def _handmade() -> Mapping[tuple[str, str], int]:
    """Return how many cases by hand each row has."""
    return Counter((line.case.spelling.row.manual, line.case.spelling.row.text) for line in lines())


@cache
def _names_in_programs() -> frozenset[tuple[str, ...]]:
    """Return the dotted words of what looks like an instruction in the tests of the emulator."""
    texts = (path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "emulate").rglob("*")) if path.suffix in (".py", ".ptx"))
    opcodes = "|".join(TABLE.opcodes)
    dotted = rf"(?<![.\w%])(?:{opcodes})(?:(?:\.[\w:]+)+|(?=;))"
    return frozenset(tuple(name.split(".")) for text in texts for name in re.findall(dotted, text))


def by_hand(row: TableRow) -> str:
    """Return the cell of a row: cases by hand, or programs."""
    count = _handmade().get((row.manual, row.text), 0)
    if count:
        return str(count)
    used = any(words[0] == row.opcode and row.fill(words[1:]) is not None for words in _names_in_programs())
    return "programs" if used and row.key in SEMANTICS else "no"


@cache
def _by_oracle() -> Mapping[tuple[str, str], int]:
    """Return how many forms of each row the oracle knows, of those that are emulated."""
    found = (
        spelling
        for rows in _legal_spellings().values()
        for spelling in rows
        if emulated(spelling.row) != "no" and spelling.name not in _refused_names[spelling.row.manual, spelling.row.text]
    )
    return Counter((s.row.manual, s.row.text) for s in found if any(knows(case) for case in cases(s)))


def by_oracle(row: TableRow) -> str:
    """Return the cell of a row: how many forms the oracle knows."""
    count = _by_oracle().get((row.manual, row.text), 0)
    return f"{count} forms" if count > 1 else "1 form" if count else "no"


# -- the page --------------------------------------------------------------------------------------------------------------------


def page(results: Path = RESULTS) -> str:
    """Return the text of the page."""
    path = results / "h200" / "differential.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    rows = [row for entry in TABLE.ops for row in entry.rows()]
    pieces = [_HEAD, _compared(found), _gaps(rows, found), "Left out of the comparison:\n"]
    pieces.append("".join(f"- {what}: {why}\n" for what, why in SKIPPED.items()))
    pieces.append(_BY_THE_ASSEMBLER)
    for chapter, members in groupby(sorted(rows, key=lambda row: _chapter(row.manual)), key=lambda row: _chapter(row.manual)):
        pieces.append(
            f"## {chapter}\n\n| form | types | emulated | by hand | oracle | on hardware |\n| --- | --- | --- | --- | --- | --- |"
        )
        pieces.append("".join(_line(row, found) for row in sorted(members, key=lambda row: row.opcode)))
    pieces.append(_approximations(found))
    return "\n".join(pieces).rstrip() + "\n"


def _approximations(results: Mapping[str, Any] | None) -> str:
    """Return the largest error of each approximate instruction that was found on the GPU, and of the emulator beside it."""
    rows = [row for row in (results or {"rows": []})["rows"] if row["metric"] == "largest error"]
    if not rows:
        return ""
    lines = ["## Largest errors of approximate instructions\n"]
    lines.append(
        "Errors are deviations from the true value, among operands for which the true value is a normal number. "
        "*Promised* is the bound of the manual, if it has one.\n"
    )
    lines.append("| form | on hardware | emulated | unit | promised |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        promised = "" if row["reach"] is None else f"{row['reach']:.3g}"
        lines.append(f"| `{row['case']}` | {row['value']:.3g} | {row['peer']['emulator']:.3g} | {row['unit']} | {promised} |")
    return "\n".join(lines) + "\n"


def _gaps(rows: Sequence[TableRow], results: Mapping[str, Any] | None) -> str:
    """Return how many rows are emulated, and how many of those are checked in each of the three ways."""
    known = [row for row in rows if emulated(row) != "no"]
    hand = sum(by_hand(row).isdigit() for row in known)
    oracle = sum(by_oracle(row) != "no" for row in known)
    hardware = sum(checked(row, results) != "no" for row in known)
    programs = sum(by_hand(row) == "programs" for row in known)
    return (
        f"Of {len(rows)} rows, {len(known)} are emulated, completely or in part. Of the emulated rows, {hand} have cases by hand, "
        f"{programs} others are used by programs in the tests, {oracle} have an oracle, and {hardware} were compared on hardware.\n"
    )


def _line(row: TableRow, found: Mapping[str, Any] | None) -> str:
    text = row.text.replace("|", "\\|")
    cells = (types(row), emulated(row), by_hand(row), by_oracle(row), checked(row, found))
    return f"| [`{text}`]({MANUAL}{row.manual}) | {' | '.join(cells)} |\n"


def _compared(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "Not compared with a GPU yet: there is no `benchmarks/results/h200/differential.json`.\n"
    rows = [row for row in found["rows"] if row["metric"] != "not measured"]
    wrong = {row["case"] for row in rows if not row["holds"]}
    return (
        f"Compared on {found['chip']}, driver {found['driver']}, {found['date']}, commit `{found['commit'][:12]}`: "
        f"{len({row['case'] for row in rows})} forms, of which {len(wrong)} differ.\n"
    )


def _chapter(section: str) -> str:
    """Return the chapter of a section, such as `Integer arithmetic` for `integer-arithmetic-instructions-add`; else the section's name."""
    head = section.partition("-instructions")[0]
    return head.replace("-", " ").capitalize()
