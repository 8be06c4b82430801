"""The forms of instructions, spelled out from the instruction table, each with the PTX that applies it to operands.

A *form* is a row of the table with its slots filled: `add.sat.s32`. Not every word that a row allows is legal beside every other; `_legal`
has the rules of the manual that the notation cannot say. Words that change no value (scopes, cache operators, hints) are left out where the
row allows it, and where rows multiply without end (`set`, `setp`, `cvt`, `ld`, `st`, `atom`) their slots are varied one or two at a time.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from memlane.ptx import SCALAR_TYPES, TABLE, Form, ScalarType
from memlane.ptx.forms import Row as TableRow

GROUPS = {
    "integer": ("integer-arithmetic-",),
    "carry": ("extended-precision-",),
    "floating": ("floating-point-", "mixed-precision-"),
    "half": ("half-precision-floating-",),
    "compare": ("comparison-", "half-precision-comparison-"),
    "logic": ("logic-",),
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
"""What is run together: beginnings of the manual's sections."""

FULL = "0xffffffff"
IMMATERIAL = frozenset({"scope", "sem", "cop", "eviction", "l2eviction", "prefetch", "L2::cache_hint", "weak", "cta", "first", "second"})
"""Slots and words that change no value that one thread alone can see."""
PACKED_BYTES = ("e4m3x2", "e5m2x2")


@dataclass(frozen=True)
class Spelling:
    """A form: its dotted text, and what the table knows of it."""

    name: str
    row: TableRow
    form: Form

    @property
    def group(self) -> str:
        """The key of `GROUPS`, empty for none."""
        return next((name for name, heads in GROUPS.items() if any(_begins(self.row.manual, head) for head in heads)), "")

    def has(self, word: str) -> bool:
        return word in self.name.split(".")[1:]


def _begins(section: str, head: str) -> bool:
    return section == head or section.startswith(head if head.endswith("-") else f"{head}-")


@dataclass(frozen=True)
class Case:
    """A form with the code that applies it to the operands `x0`, `x1`, ... and leaves the results in `@0`, `@1`, ..."""

    spelling: Spelling
    operands: tuple[str, ...]
    """What each operand is: a scalar type, or a kind of `operands.EDGES`."""
    results: tuple[str, ...]
    """Types of the results."""
    code: str
    temporaries: Mapping[str, str] = field(default_factory=dict)
    """Further registers `@name`, with their types."""
    label: str = ""

    @property
    def name(self) -> str:
        return self.label or self.spelling.name


# -- spelling --------------------------------------------------------------------------------------------------------------------


def spellings() -> Iterator[Spelling]:
    """All forms that are looked at, in the order of the table, each once."""
    seen: set[tuple[str, int]] = set()
    for entry in TABLE.ops:
        for row in entry.rows():
            for spelling in spell(row):
                key = (spelling.name, len(spelling.form.operands))
                if key not in seen and _legal(spelling):
                    seen.add(key)
                    yield spelling


def spell(row: TableRow) -> Iterator[Spelling]:
    """The forms of one row without the immaterial words that it does not ask for."""
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
    """Whether this combination is among those that are looked at, where there are too many."""
    if row.opcode in ("set", "setp"):
        plain = slots["cmp"] == "lt" if "bool" in slots else True
        return plain and (row.opcode == "setp" or slots["cmp"] == "lt" or slots["dtype"] in ("u32", "f16", "bf16", "f16x2", "bf16x2"))
    if row.opcode in ("ld", "st", "ldu"):
        space = slots.get("ss", "generic")
        common = row.text.startswith(("ld{.weak}{.ss}{.cop}", "st{.weak}{.ss}{.cop}"))
        if space == "local" and not common:
            return False
        return space in ("global", "shared", "local", "generic") and (common or slots["type"] in ("u32", "b64"))
    if row.opcode in ("atom", "red"):
        return slots.get("ss", "generic") in ("global", "shared", "generic")
    return row.opcode not in ("mma", "wmma", "wgmma")


# -- what the notation cannot say ------------------------------------------------------------------------------------------------

_ORDERED = {"eq", "ne", "lt", "le", "gt", "ge"}
_UNSIGNED = _ORDERED | {"lo", "ls", "hi", "hs"}
_FLOATING = _ORDERED | {"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}


def _legal(spelling: Spelling) -> bool:
    """Whether the manual allows these words together."""
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
    """Whether an integer type has values that another does not have."""
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


# -- cases -----------------------------------------------------------------------------------------------------------------------


def cases(spelling: Spelling) -> tuple[Case, ...]:
    """The ways in which a form is tried; none where it needs a set-up of its own (see `SKIPPED`)."""
    opcode = spelling.row.opcode
    if not spelling.group:
        return ()
    if spelling.group == "carry":
        return (_carry(spelling),)
    if opcode in ("ld", "ldu"):
        return (_load(spelling),)
    if opcode == "st":
        return (_store(spelling),)
    if opcode in ("atom", "red"):
        return _atomics(spelling)
    if opcode in ("bar", "barrier"):
        return _barriers(spelling)
    if opcode == "lop3":
        return tuple(_generic(spelling, lut) for lut in ("0x96", "0xe8", "0xca", "0x01", "0xfe", "0x2d"))
    return (_generic(spelling),)


SKIPPED = {
    "memory of parameters and constants, `ld.const`, `ld.param`, `st.param`, 128-bit `ld` and `st`": "nothing stores there at run time",
    "`cvta`, `isspacep`, `mapa`, `getctarank`": "their results are addresses",
    "`mma`, `ldmatrix`, `stmatrix`, `wmma`, `wgmma`": "fragments need a layout each",
    "`bar`, `barrier` without a result, `fence`, `membar`, `bra`, `call`, `ret`, `exit`, `trap`, `nanosleep`, `prefetch`": "no result",
    "`tex`, `tld4`, `suld`, `sust`, `sured`, `cp.async`, `mbarrier`": "textures and queues need a set-up",
    "scopes, memory orders, cache operators and hints": "change no value that one thread alone sees",
    "`atom` and `red` on one address by many threads": "only where the order does not matter: integer `red` without `inc` and `dec`",
}
"""What the run leaves out, and why."""

_ROLES = {
    ("shl", "b"): "amount",
    ("shr", "b"): "amount",
    ("shf", "c"): "amount",
    ("bfe", "b"): "amount",
    ("bfe", "c"): "amount",
    ("bfi", "c"): "amount",
    ("bfi", "d"): "amount",
    ("bmsk", "a"): "amount",
    ("bmsk", "b"): "amount",
    ("szext", "b"): "amount",
    ("shfl", "b"): "amount",
    ("shfl", "c"): "clamp",
    ("match", "a"): "few",
}


def _kind(spelling: Spelling, letter: str) -> str:
    kind = spelling.form.types.get(letter) or _packed_kind(spelling)
    role = _ROLES.get((spelling.row.opcode, letter), "")
    return "few64" if role == "few" and kind == "b64" else role or kind


def _packed_kind(spelling: Spelling) -> str:
    return "b16" if spelling.name.endswith(PACKED_BYTES) else "b32"


def _generic(spelling: Spelling, lut: str = "") -> Case:
    operands: list[str] = []
    results: list[str] = []
    texts: list[str] = []
    for place in spelling.row.places:
        if place.optional:
            continue
        if place.name in spelling.form.writes:
            results.append(spelling.form.types.get(place.name, "b32"))
            texts.append(f"@{len(results) - 1}")
            if place.second and not (spelling.row.opcode == "setp" and _is_one_half(spelling)):
                results.append("pred")
                texts[-1] += f"|@{len(results) - 1}"
        elif place.name == "mask" and spelling.row.opcode != "fns":
            texts.append(FULL)
        elif place.name == "lut":
            texts.append(lut)
        else:
            texts.append(f"x{len(operands)}")
            operands.append(_kind(spelling, place.name))
    label = f"{spelling.name} {lut}" if lut else f"{spelling.name}, {len(operands)} operands" if _is_three_way(spelling) else ""
    return Case(spelling, tuple(operands), tuple(results), f"{spelling.name} {', '.join(texts)};", label=label)


def _is_one_half(spelling: Spelling) -> bool:
    """A comparison of two 16-bit numbers has one result only."""
    return spelling.form.slots["type"] in ("f16", "bf16")


def _is_three_way(spelling: Spelling) -> bool:
    return spelling.row.opcode in ("min", "max") and "c" in spelling.form.operands


def _carry(spelling: Spelling) -> Case:
    """The carry goes in as whether the last operand is zero, and comes out by a further addition."""
    kind = spelling.form.slots["type"]
    opcode = spelling.row.opcode
    inputs = "ab" if "mad" not in opcode else "abc"
    operands, code, temporaries = [kind] * len(inputs), "", {}
    if opcode.endswith("c") and opcode != "sub.cc":
        operands.append("u32")
        temporaries = {"t": "u32"}
        last = f"x{len(inputs)}"
        code = f"sub.cc.u32 @t, 0, {last}; " if opcode == "subc" else f"add.cc.u32 @t, {last}, {FULL}; "
    code += f"{spelling.name} @0, {', '.join(f'x{number}' for number in range(len(inputs)))};"
    if not spelling.has("cc"):
        return Case(spelling, tuple(operands), (kind,), code, temporaries)
    code += f" {'subc' if opcode.startswith('sub') else 'addc'}.{kind} @1, 0, 0;"
    return Case(spelling, tuple(operands), (kind, kind), code, temporaries)


# -- memory: each thread has 16 bytes in every space, `own_<space>`, and knows those of its neighbour, `next_<space>` ---------------

_FILL = "0x5a5a5a5a5a5a5a5a"


def _space(spelling: Spelling) -> str:
    return next(iter(spelling.form.addresses.values()))


def _synchronised(space: str) -> str:
    return "" if space == "local" else "bar.sync 0; "


def _there(space: str) -> str:
    return f"[own_{space}]" if space == "local" else f"[next_{space}]"


def _of_space(space: str) -> str:
    return "" if space == "generic" else f".{space}"


def _vector(count: int, letter: str) -> str:
    names = [f"{letter}{number}" for number in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def _load(spelling: Spelling) -> Case:
    """What the neighbour stored, read back by the form."""
    space, count = _space(spelling), int(spelling.form.slots.get("vec", "v1")[1:])
    barrier = _synchronised(space)
    code = f"{barrier}st{_of_space(space)}.v2.b64 [own_{space}], {{x0, x1}}; {barrier}"
    code += f"{spelling.name} {_vector(count, '@')}, {_there(space)};"
    return Case(spelling, ("b64", "b64"), (spelling.form.slots["type"],) * count, code)


def _store(spelling: Spelling) -> Case:
    """Stored by the form, and read by the neighbour."""
    space, kind, count = _space(spelling), spelling.form.slots["type"], int(spelling.form.slots.get("vec", "v1")[1:])
    barrier = _synchronised(space)
    code = f"{barrier}mov.b64 @t, {_FILL}; st{_of_space(space)}.v2.b64 [own_{space}], {{@t, @t}}; "
    code += f"{spelling.name} [own_{space}], {_vector(count, 'x')}; {barrier}ld{_of_space(space)}.v2.b64 {{@0, @1}}, {_there(space)};"
    return Case(spelling, (kind,) * count, ("b64", "b64"), code, {"t": "b64"})


def _atomics(spelling: Spelling) -> tuple[Case, ...]:
    """On a place of the thread's own: the former value, if any, and what then lies there; and on eight places of the whole block."""
    slots, space = spelling.form.slots, _space(spelling)
    kind, count = slots.get("type", "f32" if spelling.has("f32") else "u32"), int(slots.get("vec", "v1")[1:])
    if count > 1 or kind == "b128":
        return ()
    bits, dotted = SCALAR_TYPES[kind].bits, _of_space(space)
    inputs = [kind] * (3 if spelling.has("cas") else 2)
    values = ", ".join(f"x{number}" for number in range(1, len(inputs)))
    start = f"st.volatile{dotted}.b{bits} [own_{space}], x0; "
    finish = f" ld.volatile{dotted}.b{bits} "
    if spelling.row.opcode == "atom":
        alone = f"{start}{spelling.name} @0, [own_{space}], {values};{finish}@1, [own_{space}];"
        return (Case(spelling, tuple(inputs), (kind, kind), alone),)
    alone = f"{start}{spelling.name} [own_{space}], {values};{finish}@0, [own_{space}];"
    found = [Case(spelling, tuple(inputs), (kind,), alone)]
    if SCALAR_TYPES[kind].kind != "f" and not spelling.has("inc") and not spelling.has("dec"):
        code = f"bar.sync 0; st.volatile{dotted}.b{bits} [eighth_{space}], 12345; bar.sync 0; "
        code += f"{spelling.name} [eighth_{space}], x0; bar.sync 0;{finish}@0, [eighth_{space}];"
        found.append(Case(spelling, (kind,), (kind,), code, label=f"{spelling.name}, 16 threads an address"))
    return tuple(found)


def _barriers(spelling: Spelling) -> tuple[Case, ...]:
    """Those with a result."""
    if not spelling.has("red"):
        return ()
    kind = "u32" if spelling.has("popc") else "pred"
    return (Case(spelling, ("pred",), (kind,), f"{spelling.name} @0, 0, x0;"),)
