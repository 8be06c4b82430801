"""List the forms of instructions, spelled out from the instruction table.

A *form* is a row of the table with its slots filled: `add.sat.s32`. Not every word that a row allows is legal beside every other; `_legal`
has the rules of the manual that the notation cannot say. Words that change no value (scopes, cache operators, hints) are left out where the
row allows it, and where rows multiply without end (`set`, `setp`, `cvt`, `ld`, `st`, `atom`) their slots are varied one or two at a time.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from memlane.ptx import SCALAR_TYPES, TABLE, Form, ScalarType
from memlane.ptx.forms import Row as TableRow

GROUPS = {
    "integer": ("integer-arithmetic-",),
    "carry": ("extended-precision-",),
    "floating": ("floating-point-", "mixed-precision-"),
    "half": ("half-precision-floating-",),
    "compare": ("comparison-", "half-precision-comparison-"),
    "logic": ("logic-",),
    "video": ("scalar-video-instructions-", "simd-video-instructions-"),
    "convert": ("data-movement-and-conversion-instructions-cvt", "data-movement-and-conversion-instructions-prmt"),
    "memory": (
        "data-movement-and-conversion-instructions-mov",
        "data-movement-and-conversion-instructions-ld",
        "data-movement-and-conversion-instructions-st",
    ),
    "atomics": (
        "parallel-synchronization-and-communication-instructions-atom",
        "parallel-synchronization-and-communication-instructions-red",
    ),
    "warp": (
        "parallel-synchronization-and-communication-instructions-bar",
        "parallel-synchronization-and-communication-instructions-shfl",
        "parallel-synchronization-and-communication-instructions-vote",
        "parallel-synchronization-and-communication-instructions-match",
        "parallel-synchronization-and-communication-instructions-activemask",
        "parallel-synchronization-and-communication-instructions-redux",
        "parallel-synchronization-and-communication-instructions-elect",
        "warp-level-matrix-instructions-movmatrix",
    ),
}
"""Beginnings of the manual's sections that are run together."""

IMMATERIAL = frozenset({"scope", "sem", "cop", "eviction", "l2eviction", "prefetch", "L2::cache_hint", "weak", "cta", "first", "second"})
"""Slots and words that change no value that one thread alone can see."""


@dataclass(frozen=True)
class Spelling:
    """A form: its dotted text, and what the table knows of it."""

    name: str
    row: TableRow
    form: Form

    @property
    def group(self) -> str:
        """Return the key of `GROUPS` for the form; empty if there is none."""
        return next((name for name, heads in GROUPS.items() if any(_begins(self.row.manual, head) for head in heads)), "")

    def has(self, word: str) -> bool:
        return word in self.name.split(".")[1:]


def _begins(section: str, head: str) -> bool:
    return section == head or section.startswith(head if head.endswith("-") else f"{head}-")


# -- spelling --------------------------------------------------------------------------------------------------------------------


@cache
def spellings() -> tuple[Spelling, ...]:
    """Return all forms that are looked at, in the order of the table, each once."""
    return tuple(_spellings())


def _spellings() -> Iterator[Spelling]:
    seen: set[tuple[str, int]] = set()
    for entry in TABLE.ops:
        for row in entry.rows():
            for spelling in spell(row):
                key = (spelling.name, len(spelling.form.operands))
                if key not in seen and _legal(spelling):
                    seen.add(key)
                    yield spelling


def spell(row: TableRow) -> Iterator[Spelling]:
    """Yield the forms of one row without the immaterial words that it does not ask for."""
    groups = sorted({word.group for word in row.words} - {0} - {word.group for word in row.words if word.group and word.name in IMMATERIAL})
    for count in range(len(groups) + 1):
        for chosen in itertools.combinations(groups, count):
            words = [word for word in row.words if word.group in (0, *chosen)]
            choices = [["gpu"] if word.name == "scope" else sorted(word.words, key=_natural) for word in words]
            names = [word.name for word in words]
            for values in itertools.product(*choices):
                if _sampled(row, dict(zip(names, values, strict=True))):
                    yield from _matched(row, values)


def _natural(word: str) -> tuple[str, int]:
    match = re.match(r"(\D*)(\d*)", word)
    assert match is not None
    return match[1], int(match[2] or 0)


def _matched(row: TableRow, values: tuple[str, ...]) -> Iterator[Spelling]:
    shapes = tuple(place.shape for place in row.places if not place.optional)
    form = row.match(values, shapes)
    if form is not None:
        yield Spelling(".".join((row.opcode, *values)), row, form)


def _sampled(row: TableRow, slots: Mapping[str, str]) -> bool:
    """Return whether this combination is among those that are looked at, where there are too many."""
    if row.opcode in ("set", "setp"):
        plain = slots["cmp"] == "lt" if "bool" in slots else True
        return plain and (row.opcode == "setp" or slots["cmp"] == "lt" or slots["dtype"] in ("u32", "f16", "bf16", "f16x2", "bf16x2"))
    if row.opcode in ("ld", "st", "ldu"):
        space = slots.get("ss", "generic")
        common = row.text.startswith(("ld{.weak}{.ss}{.cop}", "st{.weak}{.ss}{.cop}"))
        if space == "local" and not common:
            return False
        return space in ("global", "shared", "local", "generic") and (common or slots["type"] in ("u32", "b64"))
    if row.manual.startswith(("scalar-video", "simd-video")):
        return _sampled_video(row, slots)
    if row.opcode in ("atom", "red"):
        return slots.get("ss", "generic") in ("global", "shared", "generic")
    return row.opcode not in ("mma", "wmma", "wgmma")


def _sampled_video(row: TableRow, slots: Mapping[str, str]) -> bool:
    """Return whether a video instruction with these types is tried: all types equal, or one of two mixtures. A second operation, and
    comparisons other than `lt`, are tried with some of them."""
    kinds = [slots[name] for name in ("dtype", "atype", "btype") if name in slots]
    uniform = len(set(kinds)) == 1
    if "second" in slots or slots.get("cmp", "lt") != "lt":
        return uniform and (kinds[0] == "s32" or slots.get("second") == "min")
    return uniform or len(kinds) == 2 or kinds[0] == kinds[2]


# -- what the notation cannot say ------------------------------------------------------------------------------------------------

_ORDERED = {"eq", "ne", "lt", "le", "gt", "ge"}
_UNSIGNED = _ORDERED | {"lo", "ls", "hi", "hs"}
_FLOATING = _ORDERED | {"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}


def _legal(spelling: Spelling) -> bool:
    """Return whether the manual allows these words together."""
    opcode, slots = spelling.row.opcode, spelling.form.slots
    if opcode in ("set", "setp", "slct"):
        return _legal_comparison(spelling)
    if opcode == "cvt" and "pack" not in spelling.name:
        return _legal_conversion(spelling)
    if opcode in ("shfl", "vote"):  # without .sync they ended with sm_70
        return spelling.has("sync")
    if opcode in ("ld", "st", "ldu"):
        return _vector_bytes(slots) <= 16 and slots["type"] != "b128" and slots.get("vec") != "v8"
    if opcode == "red":
        return not (spelling.has("add") and spelling.has("s64"))  # the assembler does not know it, though the manual does
    if opcode == "mov" and "vec" in slots:
        return _vector_bytes(slots) <= 16
    return spelling.name != "mov.b128"  # it takes pairs of registers


def _vector_bytes(slots: Mapping[str, str]) -> int:
    return SCALAR_TYPES[slots["type"]].nbytes * int(slots.get("vec", "v1")[1:])


def _legal_comparison(spelling: Spelling) -> bool:
    slots = spelling.form.slots
    name = slots.get("stype") or slots.get("type") or slots.get("dtype", "")
    scalar = SCALAR_TYPES[name]
    if spelling.row.opcode == "slct":
        return True
    allowed = {"f": _FLOATING, "u": _UNSIGNED, "s": _ORDERED, "b": {"eq", "ne"}}[scalar.kind]
    if slots["cmp"] not in allowed or (spelling.has("ftz") and name not in ("f32", "f16", "f16x2")):
        return False
    if spelling.row.manual.startswith("half") and spelling.row.opcode == "set":
        return _legal_half_set(slots["dtype"], name)
    return True


def _legal_half_set(result: str, source: str) -> bool:
    if source.endswith("x2"):
        return result in (source, "u32", "s32")
    return result in (source, "u16", "s16", "u32", "s32")


def _legal_conversion(spelling: Spelling) -> bool:
    words = spelling.name.split(".")[1:]
    target, source = words[-2:]
    rounding = next((word for word in words if word in ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")), "")
    if "x2" in target + source or "tf32" in words:
        return _legal_packed(words, target)
    if spelling.has("ftz") and "f32" not in (target, source):
        return False
    to, by = SCALAR_TYPES[target], SCALAR_TYPES[source]
    if "bf16" in (target, source) and 8 in (to.bits, by.bits):
        return False
    if spelling.has("satfinite") or spelling.has("relu"):
        return rounding in ("rn", "rz")
    if to.kind == "f" and by.kind == "f":
        return _legal_between_floats(target, source, rounding, spelling)
    if spelling.has("ftz") and not (by.kind == "f" and rounding == "rzi"):
        return False
    if by.kind == "f":
        return rounding.endswith("i") and not spelling.has("sat")
    if to.kind == "f":
        return rounding in ("rn", "rz", "rm", "rp") and (not spelling.has("sat") or (rounding == "rn" and target != "bf16"))
    return not rounding and not spelling.has("ftz") and (not spelling.has("sat") or _saturates(to, by))


def _saturates(to: ScalarType, by: ScalarType) -> bool:
    """Return whether an integer type has values that another does not have."""
    if by.kind == to.kind:
        return to.bits < by.bits
    return to.kind == "u" or to.bits <= by.bits


def _legal_packed(words: list[str], target: str) -> bool:
    roundings = {"rm", "rp"} & set(words)
    if roundings:
        return False
    return not ("tf32" in words and "satfinite" in words and "rz" in words)


def _legal_between_floats(target: str, source: str, rounding: str, spelling: Spelling) -> bool:
    wide, narrow = SCALAR_TYPES[target].bits, SCALAR_TYPES[source].bits
    if "bf16" in (target, source) and spelling.has("sat"):
        return False
    if target == source:
        return rounding.endswith("i") if rounding else target != "bf16"
    if wide == narrow:  # f16 and bf16
        return rounding in ("rn", "rz", "rm", "rp")
    if wide > narrow:
        return not rounding
    return rounding in ("rn", "rz", "rm", "rp")
