"""Look up the latency, the pipe and the issue slots of each PTX instruction on a chip.

A row of the table names opcodes, the types that it applies to, and what the assembler makes of them: a chain of classes, each a field of
`chip.Latency`. One class is one machine instruction with that latency; a chain of several takes the sum and as many issue slots; `alu|2`
means two independent instructions, such as those for the halves of a 64-bit register. The chains of divisions, square roots and 64-bit
integers are estimates of the code that ptxas emits for them, since PTX does not show it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from memlane.chip import Chip
from memlane.emulate.clock.issue import PIPES
from memlane.ptx.types import SCALAR_TYPES


@dataclass(frozen=True, slots=True)
class Timing:
    """Latency, pipe and issue slots of an instruction."""

    latency: int
    """Cycles from the start of the instruction to the earliest start of one that needs its result."""
    pipe: str = ""
    """The pipe that it occupies, one of `issue.PIPES`; empty if it takes only issue slots."""
    issues: int = 1
    """Consecutive issue slots."""


_TABLE: tuple[tuple[str, str, str], ...] = (
    # opcodes                                        types             chain
    ("setp testp",                                   "f64",            "fp64 predicate"),
    ("setp testp",                                   "int64",          "alu predicate"),
    ("setp testp",                                   "any",            "predicate"),
    ("set",                                          "f64",            "fp64 alu"),
    ("add sub mul mad fma min max",                  "f64",            "fp64"),
    ("add sub mul mad fma",                          "float",          "fma"),
    ("tanh ex2 lg2 sin cos rsqrt rcp.approx sqrt.approx", "float",     "sfu"),
    ("rsqrt rcp.approx ex2",                         "f64",            "sfu"),
    ("div.approx div.full",                          "float",          "sfu fma"),
    ("rcp",                                          "float",          "sfu fma*2"),
    ("div",                                          "float",          "sfu fma*6"),
    ("sqrt",                                         "float",          "sfu fma*4"),
    ("rcp",                                          "f64",            "sfu fp64*5"),
    ("div sqrt",                                     "f64",            "sfu fp64*8"),
    ("div rem",                                      "int64",          "convert*2 sfu*2 imul*16 alu*16"),
    ("div rem",                                      "int",            "convert*2 sfu imul*4 alu*4"),
    ("mul.wide mad.wide mul24 mad24 dp4a dp2a",      "int",            "imul"),
    ("mul mad madc",                                 "int64",          "imul*4"),
    ("mul mad madc",                                 "int",            "imul"),
    ("sad min max slct",                             "int64",          "alu*2"),
    ("add sub addc subc neg abs",                    "int64",          "alu*2"),
    ("and or xor not shl shr selp mov",              "int64",          "alu|2"),
    ("popc clz brev bfind",                          "int",            "convert"),
    ("cvt",                                          "any",            "convert"),
    ("shfl",                                         "any",            "shuffle"),
    ("vote match redux activemask elect",            "any",            "vote"),
    ("bra brx call ret exit",                        "any",            "branch"),
    ("bar barrier",                                  "any",            "barrier"),
    ("tex tld4 suld",                                "any",            "texture"),
)  # fmt: skip
"""Rows are searched from the top; an opcode with a dot matches only with that modifier. An instruction without a row is one `alu`."""

_MEMORY = {"shared": "shared", "const": "constant", "param": "constant", "local": "l1", "global": "l1", "generic": "l1"}
_DEVICE_FENCES = {"gl", "sys", "gpu", "cluster"}


@lru_cache(maxsize=4096)
def timing_of(chip: Chip, opcode: str, type: str = "", space: str = "", special: str = "") -> Timing:
    """Return the timing of an instruction on `chip` once its operands are ready.

    `opcode` is the whole dotted opcode, `type` the type that it computes in (of the sources for comparisons), `space` the state space of a
    memory instruction's address, `special` the special register that a `mov` reads. A memory access is assumed to hit the first level (L1,
    or the first constant cache) without a conflict; what lower levels and conflicts add is known only at run time (`caches`, `Clock.lsu`).
    """
    base, *modifiers = opcode.split(".")
    if special:
        return Timing(_cycles(chip, "clock" if special.lstrip("%").startswith("clock") else "special"))
    if base in ("membar", "fence"):
        return Timing(_cycles(chip, "fence_device" if _DEVICE_FENCES & set(modifiers) else "fence_block"))
    if base in ("atom", "red"):
        return Timing(_cycles(chip, "shared_atomic" if space == "shared" else "global_atomic"))
    if space in _MEMORY:
        return Timing(_cycles(chip, _MEMORY[space]))
    if base in ("mma", "wgmma") and chip.latency.tensor is not None:
        return Timing(_cycles(chip, "tensor"))
    if base == "cvt" and _is_plain_integer(modifiers):
        return Timing(_cycles(chip, "alu"), "alu")
    return _of_chain(chip, _chain(base, frozenset(modifiers), _kinds(base, modifiers, type)))


def _cycles(chip: Chip, name: str) -> int:
    return max(1, round(float(getattr(chip.latency, name))))


def _chain(base: str, modifiers: frozenset[str], kinds: frozenset[str]) -> str:
    for opcodes, kind, chain in _TABLE:
        if kind in kinds:
            for word in opcodes.split():
                name, _, modifier = word.partition(".")
                if name == base and (not modifier or modifier in modifiers):
                    return chain
    return "alu"


def _kinds(base: str, modifiers: list[str], name: str) -> frozenset[str]:
    """Return the words of the table's second column that apply to the type called `name`."""
    kind = SCALAR_TYPES.get(name)
    if kind is None or kind.kind == "pred":
        return frozenset({"any"})
    if kind.kind == "f":
        return frozenset({"any", "f64" if kind.bits == 64 else "float"})
    wide = kind.bits == 64 and "wide" not in modifiers
    return frozenset({"any", "int", "int64"} if wide else {"any", "int"})


def _is_plain_integer(modifiers: list[str]) -> bool:
    """Return whether a conversion is from integer to integer: an extension or truncation, which the integer pipe does."""
    types = [SCALAR_TYPES[word] for word in modifiers if word in SCALAR_TYPES]
    return bool(types) and all(kind.kind in "usb" for kind in types)


def _of_chain(chip: Chip, chain: str) -> Timing:
    latency = issues = 0
    pipe = ""
    for link in chain.split():
        name, beside, times = re.split(r"([*|]|$)", link, maxsplit=1)
        count = int(times or 1)
        latency += _cycles(chip, name) + count - 1 if beside == "|" else count * _cycles(chip, name)
        issues += count
        pipe = pipe or {"predicate": "alu"}.get(name, name)
    return Timing(latency, pipe if pipe in PIPES else "", issues)
