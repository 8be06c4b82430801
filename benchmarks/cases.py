"""Write the PTX that applies a form of an instruction to operands, and describe its results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from instructions import Spelling

from memlane.ptx import SCALAR_TYPES

FULL = "0xffffffff"
PACKED_BYTES = ("e4m3x2", "e5m2x2")


@dataclass(frozen=True)
class Case:
    """A form with the code that applies it to the operands `x0`, `x1`, ... and leaves the results in `@0`, `@1`, ..."""

    spelling: Spelling
    operands: tuple[str, ...]
    """Kind of each operand: a scalar type, or a kind of `operands.EDGES`."""
    results: tuple[str, ...]
    """Types of the results."""
    code: str
    temporaries: Mapping[str, str] = field(default_factory=dict)
    """Further registers `@name`, with their types."""
    label: str = ""

    @property
    def name(self) -> str:
        return self.label or self.spelling.name


def cases(spelling: Spelling) -> tuple[Case, ...]:
    """Return the cases of a form; none if it needs a set-up of its own (see `SKIPPED`)."""
    opcode = spelling.row.opcode
    if not spelling.group or (spelling.has("async") and not spelling.has("release")):
        return ()
    if spelling.group == "carry":
        return (_carry(spelling), *_carry_chains(spelling))
    if opcode in ("ld", "ldu"):
        return _and_wrapped(_load(spelling))
    if opcode == "st":
        is_narrow = spelling.has("async") and SCALAR_TYPES[spelling.form.slots["type"]].bits == 8
        return () if is_narrow else _and_wrapped(_store(spelling))
    if opcode in ("atom", "red"):
        alone, *together = _atomics(spelling) or (None,)
        return () if alone is None else (*_and_wrapped(alone), *together)
    if opcode in ("bar", "barrier"):
        return _barriers(spelling)
    if opcode == "lop3":
        return tuple(_generic(spelling, lut) for lut in ("0x96", "0xe8", "0xca", "0x01", "0xfe", "0x2d"))
    if opcode == "setp" and "bool" in spelling.form.slots:
        return (_generic(spelling), *_predicates_in_place(spelling))
    if opcode == "mov" and "vec" in spelling.form.slots:
        return (_vector_move(spelling),)
    if spelling.group == "video":
        uniform = len(set(re.findall("[us]32", spelling.name))) == 1
        return (_generic(spelling), *(_selecting(spelling) if uniform else ()))
    return (_generic(spelling),)


SKIPPED = {
    "memory of parameters and constants, `ld.const`, `ld.param`, `st.param`, 128-bit `ld` and `st`": "nothing stores there at run time",
    "`cvta`, `isspacep`, `mapa`, `getctarank`": "their results are addresses",
    "`mma`, `ldmatrix`, `stmatrix`, `wmma`, `wgmma`": "fragments need a layout each",
    "`bar`, `barrier` without a result, `fence`, `membar`, `bra`, `call`, `ret`, `exit`, `trap`, `nanosleep`, `prefetch`": "no result",
    "`tex`, `tld4`, `suld`, `sust`, `sured`, `cp.async`, `mbarrier`, and what completes at one": "textures and queues need a set-up",
    "`barrier.cluster`, and memory of other blocks of a cluster": "one block is tried at a time",
    "generic addresses of shared and local memory": "the generic ones lie in global memory",
    "`st.async` of 8 bits": "it takes registers of 8 bits alone",
    "scopes, memory orders, cache operators and hints": "change no value that one thread alone sees",
    "`atom` and `red` on one address by many threads": "only where the order does not matter: integer `red` without `inc` and `dec`",
}
"""Forms that the run leaves out, with the reason."""

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


def _vector_move(spelling: Spelling) -> Case:
    kind, count = spelling.form.slots["type"], int(spelling.form.slots["vec"][1:])
    targets, sources = (", ".join(f"{letter}{number}" for number in range(count)) for letter in "@x")
    return Case(spelling, (kind,) * count, (kind,) * count, f"{spelling.name} {{{targets}}}, {{{sources}}};")


_PARTS = {
    "": (("b2", "b3", "h1"), ("h0", "h0", "b1")),
    "4": (("", "b0123", "b7722"), ("b32", "b6543", "b0000")),
    "2": (("", "h31", "h00"), ("h1", "h12", "")),
}
"""Parts that the destination and the sources of a video instruction select, by its number of lanes."""


def _selecting(spelling: Spelling) -> Iterator[Case]:
    """Yield cases of a video instruction on parts of its operands.

    A scalar one without a second operation merges its result into a fourth operand.
    """
    plain, last = _generic(spelling), spelling.row.opcode[-1]
    merges = "c" not in spelling.form.operands
    for target, first, second in _PARTS[last if last in "24" else ""]:
        target = target if merges or last in "24" else ""
        code = plain.code.removesuffix(";") + (", x2;" if merges else ";")
        for name, part in (("@0", target), ("x0", first), ("x1", second)):
            code = re.sub(rf"(?<![a-z]){name}\b", f"{name}.{part}" if part else name, code)
        label = f"{spelling.name}, {target or 'all'} of {first or 'all'} and {second or 'all'}"
        yield replace(plain, operands=(*plain.operands, "u32") if merges else plain.operands, code=code, label=label)


def _is_one_half(spelling: Spelling) -> bool:
    """Return whether a comparison has only one result because its operands are 16-bit numbers."""
    return spelling.form.slots["type"] in ("f16", "bf16")


def _is_three_way(spelling: Spelling) -> bool:
    return spelling.row.opcode in ("min", "max") and "c" in spelling.form.operands


def _predicates_in_place(spelling: Spelling) -> Iterator[Case]:
    """Yield cases of `setp` whose third operand is one of its results, plain and negated."""
    plain = _generic(spelling)
    last = len(plain.results) - 1
    for word, operand, label in (("mov", "@0", "c is p"), ("not", f"!@{last}", f"c is !{'pq'[last]}")):
        code = f"{word}.pred {operand.lstrip('!')}, x2; {plain.code.replace('x2;', f'{operand};')}"
        yield replace(plain, code=code, label=f"{spelling.name}, {label}")


def _carry(spelling: Spelling) -> Case:
    """Return a case whose carry-in is whether the last operand is zero, and whose carry-out a further addition reads."""
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


_CARRY_READERS = ("addc", "subc", "madc.lo", "madc.hi")


def _carry_chains(spelling: Spelling) -> Iterator[Case]:
    """Yield cases in which each instruction that reads a carry, of both widths, reads the carry of one kind of instruction.

    In one more case only the threads whose last operand is true have written it, before a barrier.
    """
    kind = spelling.form.slots["type"]
    if not spelling.has("cc") or kind not in ("u32", "u64"):
        return
    third = ", x0" if spelling.row.opcode.startswith("mad") else ""
    write = f"{spelling.name} @0, x0, x1{third};"
    for reader in _CARRY_READERS:
        for other in ("u32", "u64"):
            more = [f", {name}" if reader.startswith("mad") else "" for name in ("x2", "x3")]
            code = f"add.cc.{other} @t, x2, x3; {write} {reader}.{other} @1, x2, x3{more[0]}; {reader}.cc.{other} @2, x3, x2{more[1]}; "
            code += f"addc.{other} @3, 0, 0;"
            yield Case(
                spelling, (kind, kind, other, other), (kind, other, other, other), code, {"t": other}, f"{spelling.name}, {reader}.{other}"
            )
    code = f"mov.{_untyped(kind)} @0, 0; sub.cc.{kind} @t, x1, x0; @x2 {write} bar.sync 0; addc.{kind} @1, x0, x1; subc.{kind} @2, x0, x1;"
    yield Case(spelling, (kind, kind, "pred"), (kind,) * 3, code, {"t": kind}, f"{spelling.name}, conditional")


def _untyped(kind: str) -> str:
    return f"b{SCALAR_TYPES[kind].bits}"


# -- addresses of 32 bits -------------------------------------------------------------------------------------------------------------

_WRAPPED = {
    **dict.fromkeys(("ld.shared.u32", "ld.shared.v4.u32", "st.shared.u32", "atom.shared.add.u32", "red.shared.add.u32"), 1 << 16),
    **dict.fromkeys(("ld.local.u32", "st.local.u32"), 1 << 25),
}
"""Forms whose base register is put so many bytes in front of the address, which is below 0, and the immediate leads back."""


def _and_wrapped(case: Case) -> tuple[Case, ...]:
    """Return a memory case, and the same with addresses whose sum overflows 32 bits, in a 32-bit and in a 64-bit register."""
    form = case.spelling.name
    if form not in _WRAPPED:
        return (case,)
    before, _, behind = case.code.partition(f"{form} ")
    own = re.search(r"\[(\w+)\]", behind)
    assert own is not None
    start = f"cvt.u32.u64 @a, {own[1]}; sub.u32 @a, @a, {_WRAPPED[form]}; "
    ways = (("wrapped 32-bit address", "", "@a"), ("wrapped 64-bit address", "cvt.u64.u32 @b, @a; ", "@b"))
    return (
        case,
        *(
            replace(
                case,
                code=f"{before}{start}{wide}{form} {behind.replace(own[0], f'[{base}+{_WRAPPED[form]}]', 1)}",
                temporaries={**case.temporaries, "a": "u32", "b": "u64"},
                label=f"{form}, {label}",
            )
            for label, wide, base in ways
        ),
    )


# -- memory: each thread has 16 bytes in every space, `own_<space>`, and knows those of its neighbour, `next_<space>`; in `next_operands`
# lie those that the neighbour would store first, since before the launch ------------------------------------------------------------

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
    """Return a case in which the form loads the neighbour's store, or existing data if the manual requires memory that is not written."""
    space, count = _space(spelling), int(spelling.form.slots.get("vec", "v1")[1:])
    if spelling.has("nc") or spelling.row.opcode == "ldu":
        code = f"{spelling.name} {_vector(count, '@')}, [next_operands];"
        return Case(spelling, ("b64", "b64"), (spelling.form.slots["type"],) * count, code)
    barrier = _synchronised(space)
    code = f"{barrier}st{_of_space(space)}.v2.b64 [own_{space}], {{x0, x1}}; {barrier}"
    code += f"{spelling.name} {_vector(count, '@')}, {_there(space)};"
    return Case(spelling, ("b64", "b64"), (spelling.form.slots["type"],) * count, code)


def _store(spelling: Spelling) -> Case:
    """Return a case in which the form stores and the neighbour loads."""
    space, kind, count = _space(spelling), spelling.form.slots["type"], int(spelling.form.slots.get("vec", "v1")[1:])
    barrier = _synchronised(space)
    code = f"{barrier}mov.b64 @t, {_FILL}; st{_of_space(space)}.v2.b64 [own_{space}], {{@t, @t}}; "
    code += f"{spelling.name} [own_{space}], {_vector(count, 'x')}; {barrier}ld{_of_space(space)}.v2.b64 {{@0, @1}}, {_there(space)};"
    return Case(spelling, (kind,) * count, ("b64", "b64"), code, {"t": "b64"})


def _atomics(spelling: Spelling) -> tuple[Case, ...]:
    """Return cases of an atomic on a word of each thread, with the old value, if any, and the new one, and on eight words of the block."""
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
    """Return the cases of barriers with a result."""
    if not spelling.has("red"):
        return ()
    kind = "u32" if spelling.has("popc") else "pred"
    return (Case(spelling, ("pred",), (kind,), f"{spelling.name} @0, 0, x0;"),)
