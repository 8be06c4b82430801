"""Atomics on vectors and on 16 bytes, as the assembler takes them too, and what they should leave, in NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.launch import Target
from memlane.ptx import Module, parse

THREADS = 64
VECTORS = (
    ("atom.global.add.v2.f32", "red.global.add.v2.f32"),
    ("atom.global.add.v4.f32", "red.global.add.v4.f32"),
    ("atom.global.add.noftz.v2.f16", "red.global.add.noftz.v2.f16"),
    ("atom.global.min.noftz.v8.f16", "red.global.min.noftz.v8.f16"),
    ("atom.global.max.noftz.v4.f16", "red.global.max.noftz.v4.f16"),
    ("atom.global.add.noftz.v8.bf16", "red.global.add.noftz.v8.bf16"),
    ("atom.global.max.noftz.v2.bf16", "red.global.max.noftz.v2.bf16"),
    ("atom.global.add.noftz.v4.f16x2", "red.global.add.noftz.v4.f16x2"),
    ("atom.global.min.noftz.v2.f16x2", "red.global.min.noftz.v2.f16x2"),
    ("atom.global.max.noftz.v4.bf16x2", "red.global.max.noftz.v4.bf16x2"),
)
"""With and without the old value."""
BULK = [
    ("add", "u32"),
    ("add", "s32"),
    ("add", "u64"),
    ("add", "f32"),
    ("add", "f64"),
    ("add.noftz", "f16"),
    ("add.noftz", "bf16"),
    ("min", "s64"),
    ("max", "f16"),
    ("min", "bf16"),
    ("inc", "u32"),
    ("dec", "u32"),
    ("and", "b32"),
    ("or", "b64"),
]
"""Operation and type of `cp.reduce.async.bulk`."""
BULK_BYTES, BLOCKS = 512, 3
_NUMPY = {
    "f32": "f4",
    "f16": "f2",
    "f16x2": "f2",
    "f64": "f8",
    "u32": "u4",
    "s32": "i4",
    "u64": "u8",
    "s64": "i8",
    "b32": "u4",
    "b64": "u8",
}


def words_of(name: str) -> tuple[str, int, str]:
    """Operation, elements and type of an instruction."""
    words = name.split(".")
    return words[2], int(words[-2][1:]), words[-1]


def row_bytes(name: str) -> int:
    """Bytes of one vector."""
    _, count, kind = words_of(name)
    return count * (4 if kind in ("f32", "f16x2", "bf16x2") else 2)


@cache
def vector_program(atom: str, red: str) -> Module:
    """`k(array, values, old)`: thread i updates vector i / 2 of the array by vector i of the values, threads of odd number by `red`, the
    others by `atom`, whose old value they keep."""
    _, count, _ = words_of(atom)
    nbytes = row_bytes(atom)
    width = 8 * nbytes // count
    given, got = (", ".join(f"{letter}{number}" for number in range(count)) for letter in "vg")
    register, plain = f".b{width}", f"b{width}"
    loads = " ".join(f"ld.global.{plain} v{number}, [s+{number * width // 8}];" for number in range(count))
    stores = " ".join(f"st.global.{plain} [o+{number * width // 8}], g{number};" for number in range(count))
    return parse(
        f""".version 8.1
.target sm_90
.address_size 64
.visible .entry k(.param .u64 array, .param .u64 values, .param .u64 old) {{
    .reg .pred p; .reg .b32 t, h; .reg .b64 a, s, o; .reg {register} {given}, {got};
    ld.param.u64 a, [array]; ld.param.u64 s, [values]; ld.param.u64 o, [old];
    mov.u32 t, %tid.x; shr.u32 h, t, 1;
    mad.wide.u32 a, h, {nbytes}, a; mad.wide.u32 s, t, {nbytes}, s; mad.wide.u32 o, t, {nbytes}, o;
    {loads}
    and.b32 h, t, 1; setp.ne.u32 p, h, 0;
    @p {red} [a], {{{given}}};
    @p exit;
    {atom} {{{got}}}, [a], {{{given}}};
    {stores}
    ret;
}}""",
        f"{atom}.ptx",
    )


WIDE = """.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 array, .param .u64 values, .param .u64 old) {
    .reg .b32 t; .reg .b64 a, s, o, x, y; .reg .b128 v, w, g;
    ld.param.u64 a, [array]; ld.param.u64 s, [values]; ld.param.u64 o, [old];
    mov.u32 t, %tid.x;
    mad.wide.u32 a, t, 16, a; mad.wide.u32 s, t, 32, s; mad.wide.u32 o, t, 32, o;
    ld.global.v2.b64 {x, y}, [s]; mov.b128 v, {x, y};
    ld.global.v2.b64 {x, y}, [s+16]; mov.b128 w, {x, y};
    atom.global.cas.b128 g, [a], v, w;
    mov.b128 {x, y}, g; st.global.v2.b64 [o], {x, y};
    atom.global.exch.b128 g, [a], v;
    mov.b128 {x, y}, g; st.global.v2.b64 [o+16], {x, y};
    ret;
}"""
"""Thread i: compare and swap by the first of its two values, then exchange by it."""


def numbers(kind: str, size: int, seed: int) -> npt.NDArray[Any]:
    """Small whole numbers, of which sums are exact, as NumPy has the type: bf16 as the upper half of a float."""
    found = np.random.default_rng(seed).integers(-40, 40, size).astype(np.float32)
    return (found.view(np.uint32) >> 16).astype(np.uint16) if kind.startswith("bf16") else found.astype(_NUMPY[kind])


def as_float(kind: str, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return (values.astype(np.uint32) << 16).view(np.float32) if kind.startswith("bf16") else values.astype(np.float32)


def run_vector(target: Target, atom: str, red: str) -> tuple[npt.NDArray[Any], ...]:
    """The array and the values before, the array after, and the old values of even threads."""
    kind = words_of(atom)[2]
    per_row = row_bytes(atom) // (4 if kind == "f32" else 2)
    before, values = numbers(kind, THREADS // 2 * per_row, 1), numbers(kind, THREADS * per_row, 2)
    array, old = target.array(before), target.zeros(THREADS * per_row, before.dtype)
    target.load(vector_program(atom, red))["k"][1, THREADS](array, target.array(values), old)
    shape = (-1, per_row)
    return before.reshape(shape), values.reshape(shape), array.numpy().reshape(shape), old.numpy().reshape(shape)[::2]


def run_wide(target: Target) -> tuple[npt.NDArray[np.uint64], ...]:
    """What the array held, what was given, the array after, and the two old values of each thread."""
    random = np.random.default_rng(3)
    before = random.integers(0, 1 << 63, (THREADS, 2)).astype(np.uint64)
    given = random.integers(0, 1 << 63, (THREADS, 2, 2)).astype(np.uint64)
    given[::2, 0] = before[::2]  # where the comparison holds
    given[1::4, 0, 0] = before[1::4, 0]  # and where half of it does
    array, old = target.array(before), target.zeros((THREADS, 2, 2), np.uint64)
    target.load(parse(WIDE, "wide.ptx"))["k"][1, THREADS](array, target.array(given), old)
    return before, given, array.numpy(), old.numpy()


@cache
def bulk_program(operation: str, kind: str) -> Module:
    """`k(array, values)`: each block reduces its 512 bytes of the values into the array, all into the same 512."""
    return parse(
        f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 array, .param .u64 values) {{
    .reg .pred p; .reg .b32 t, b, v, w; .reg .b64 a, s;
    .shared .align 128 .b8 tile[{BULK_BYTES}];
    ld.param.u64 a, [array]; ld.param.u64 s, [values];
    mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; setp.ne.u32 p, t, 0;
    mad.lo.u32 v, b, {BULK_BYTES // 4}, t; mad.wide.u32 s, v, 4, s; mov.u32 v, tile; mad.lo.u32 v, t, 4, v;
    ld.global.u32 w, [s]; st.shared.u32 [v], w;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @p exit;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [a], [tile], {BULK_BYTES};
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}}""",
        f"bulk_{operation}_{kind}.ptx",
    )


def run_bulk(target: Target, operation: str, kind: str) -> tuple[npt.NDArray[Any], ...]:
    """The array before, the values of each block, and the array after."""
    size = BULK_BYTES // np.dtype(_NUMPY.get(kind, "u2")).itemsize
    random = np.random.default_rng(4)
    if kind.startswith(("f", "bf")):
        before, values = numbers(kind, size, 5), numbers(kind, BLOCKS * size, 6)
    else:
        low = -50 if kind.startswith("s") else 0
        before, values = (random.integers(low, 60, count).astype(_NUMPY[kind]) for count in (size, BLOCKS * size))
    array = target.array(before)
    target.load(bulk_program(operation, kind))["k"][BLOCKS, BULK_BYTES // 4](array, target.array(values))
    return before, values.reshape(BLOCKS, size), array.numpy()
