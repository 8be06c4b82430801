"""Matrix instructions against NumPy, with the layouts of the manual written down here once more, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.ptx import parse
from tests.emulate.running import HEAD, emulator, run
from tests.emulate.test_formats import eight_bits


def fragments(instruction: str, inputs: list[npt.NDArray[Any]], outputs: int, *, wide: bool = False) -> npt.NDArray[Any]:
    """Run an instruction whose source registers are the inputs (registers by lanes), and give its result registers."""
    bits, nbytes = (64, 8) if wide else (32, 4)
    names = [[f"x{part}_{number}" for number in range(len(array))] for part, array in enumerate(inputs)]
    results = [f"y{number}" for number in range(outputs)]
    flat = [name for part in names for name in part]
    body = [f".reg .b{bits} {name};" for name in (*flat, *results)]
    for number, name in enumerate(flat):
        body.append(f"ld.global.b{bits} {name}, [from+{number * 32 * nbytes}];")
    braces = "{%s}" if instruction.startswith("mma") else "%s"
    operands = ", ".join(braces % ", ".join(part) for part in (results, *names))
    body.append(f"{instruction} {operands};")
    body += [f"st.global.b{bits} [to+{number * 32 * nbytes}], {name};" for number, name in enumerate(results)]
    text = f"""{HEAD}
.visible .entry k(.param .u64 out, .param .u64 in) {{
    .reg .b64 from, to, offset; .reg .b32 t;
    mov.u32 t, %tid.x; mul.wide.u32 offset, t, {nbytes};
    ld.param.u64 to, [out]; ld.param.u64 from, [in];
    add.u64 to, to, offset; add.u64 from, from, offset;
    {" ".join(body)}
    ret;
}}"""
    target = emulator()
    dtype = np.uint64 if wide else np.uint32
    out = target.zeros((outputs, 32), dtype)
    target.load(parse(text, "test.ptx"))["k"][1, 32](out, target.array(np.concatenate(inputs).astype(dtype)))
    return out.numpy()


# -- ldmatrix, stmatrix ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_ldmatrix(number: int, trans: bool) -> None:
    """Element (r, c) of matrix m is 64 m + 8 r + c. Thread t gets elements 2 (t % 4) and the next of row t / 4."""
    registers = ", ".join(f"%r{20 + n}" for n in range(number))
    stores = " ".join(f"st.global.u32 [%mine+{256 * n}], %r{20 + n};" for n in range(number))
    body = f"""
        mov.u32 %r1, 0; mov.u64 %rd1, tile;
        mad.wide.u32 %rd2, %tid, 16, %rd1;
        mul.lo.u32 %r2, %tid, 8;
    FILL: cvt.u16.u32 %h1, %r2; st.shared.u16 [%rd2], %h1;
        add.u32 %r2, %r2, 1; add.u64 %rd2, %rd2, 2; add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, 8; @%p1 bra FILL;
        bar.warp.sync 0xffffffff;
        mad.wide.u32 %rd2, %tid, 16, %rd1;
        ldmatrix.sync.aligned.m8n8.x{number}{".trans" if trans else ""}.shared.b16 {{{registers}}}, [%rd2];
        setp.ne.u32 %p1, %tid, %tid; {stores} ret;"""
    found = run(body, before=".shared .align 16 .b8 tile[512];", blocks=number).reshape(number, 32)
    for m in range(number):
        for t in range(32):
            first = [64 * m + 8 * (t // 4) + 2 * (t % 4) + h for h in range(2)]
            if trans:
                first = [64 * m + 8 * (2 * (t % 4) + h) + t // 4 for h in range(2)]
            assert int(found[m, t]) == first[0] | first[1] << 16


@pytest.mark.parametrize("trans", [False, True])
def test_stmatrix_is_the_inverse(trans: bool) -> None:
    word = ".trans" if trans else ""
    body = f"""
        mov.u64 %rd1, tile; mad.wide.u32 %rd2, %tid, 16, %rd1;
        mul.lo.u32 %r1, %tid, 3; add.u32 %r2, %r1, 1000; or.b32 %r2, %r2, 0x70000; add.u32 %r3, %r1, 5000; add.u32 %r4, %r1, 9000;
        stmatrix.sync.aligned.m8n8.x4{word}.shared.b16 [%rd2], {{%r1, %r2, %r3, %r4}};
        bar.warp.sync 0xffffffff;
        ldmatrix.sync.aligned.m8n8.x4{word}.shared.b16 {{%r11, %r12, %r13, %r14}}, [%rd2];
        xor.b32 %r11, %r11, %r1; xor.b32 %r12, %r12, %r2; xor.b32 %r13, %r13, %r3; xor.b32 %r14, %r14, %r4;
        or.b32 %r11, %r11, %r12; or.b32 %r11, %r11, %r13; or.b32 %r11, %r11, %r14;
        st.global.u32 [%mine], %r11; ret;"""
    assert run(body, before=".shared .align 16 .b8 tile[512];").tolist() == [0] * 32


def test_movmatrix_transposes() -> None:
    words = np.array([2 * t | (2 * t + 1) << 16 for t in range(32)], np.uint32)
    found = fragments("movmatrix.sync.aligned.m8n8.trans.b16", [words[None]], 1)[0].view(np.uint16).reshape(8, 8)
    assert np.array_equal(found, np.arange(64).reshape(8, 8).T)


# -- mma -----------------------------------------------------------------------------------------------------------------------------

_EIGHT_BITS = {sign * float(value): bits | (0x80 if sign < 0 else 0) for bits, value in eight_bits("e4m3").items() for sign in (-1, 1)}
_TYPES: dict[str, tuple[int, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]]] = {
    "f16": (16, lambda a: a.astype(np.float16).view(np.uint16)),
    "bf16": (16, lambda a: (a.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)),
    "tf32": (32, lambda a: a.astype(np.float32).view(np.uint32)),
    "s8": (8, lambda a: a.astype(np.int8).view(np.uint8)),
    "u8": (8, lambda a: a.astype(np.uint8)),
    "e4m3": (8, lambda a: np.vectorize(_EIGHT_BITS.__getitem__)(a).astype(np.uint8)),
    "f64": (64, lambda a: a.astype(np.float64).view(np.uint64)),
}


def spread(matrix: npt.NDArray[np.generic], per: int, registers: int, place) -> npt.NDArray[np.generic]:  # type: ignore[no-untyped-def]
    """Fragments (registers, lanes, elements in a register): `place(g, t, i)` is the element of the matrix that element i of a lane is."""
    found = np.zeros((registers, 32, per), matrix.dtype)
    for lane in range(32):
        for i in range(registers * per):
            found[i // per, lane, i % per] = matrix[place(lane >> 2, lane & 3, i)]
    return found


# The manual's formulas for a_i and b_i, type by type.
LAYOUTS = {
    ("m16n8k16", 16): (
        lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
        lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
    ),
    ("m16n8k8", 16): (lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)), lambda g, t, i: (t * 2 + i, g)),
    ("m16n8k4", 32): (lambda g, t, i: (g if i == 0 else g + 8, t), lambda g, t, i: (t, g)),
    ("m16n8k8", 32): (lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4), lambda g, t, i: (t + 4 * i, g)),
    ("m8n8k16", 8): (lambda g, t, i: (g, t * 4 + i), lambda g, t, i: (t * 4 + i, g)),
    ("m16n8k16", 8): (lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)), lambda g, t, i: (t * 4 + i, g)),
    ("m16n8k32", 8): (
        lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16)),
        lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g),
    ),
    ("m8n8k4", 64): (lambda g, t, i: (g, t), lambda g, t, i: (t, g)),
    ("m16n8k8", 64): (lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4), lambda g, t, i: (t + 4 * i, g)),
    ("m16n8k16", 64): (lambda g, t, i: (g if i % 2 == 0 else g + 8, i // 2 * 4 + t), lambda g, t, i: (t + 4 * i, g)),
}


def of_result(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), 2 * t + (i & 1)


def product(instruction: str, shape: str, name: str, a, b, c, kind: str, b_name: str = ""):  # type: ignore[no-untyped-def]
    """D as a matrix, from the instruction on fragments of A, B and C."""
    bits, code = _TYPES[name]
    rows, depth = int(shape[1 : shape.index("n")]), int(shape.split("k")[1])
    per = max(1, 32 // bits)
    place_a, place_b = LAYOUTS[shape, bits]
    registers_b = depth // (4 * per)
    wide = bits == 64
    word = np.uint64 if wide else np.uint32
    fa = np.ascontiguousarray(spread(code(a), per, registers_b * rows // 8, place_a)).view(word)[..., 0]
    fb = np.ascontiguousarray(spread(_TYPES[b_name or name][1](b), per, registers_b, place_b)).view(word)[..., 0]
    dtype = np.dtype(kind)
    packed = 2 if dtype.itemsize == 2 else 1
    elements = rows * 8 // 32
    fc = np.ascontiguousarray(spread(c.astype(dtype), packed, elements // packed, of_result)).view(word)[..., 0]
    found = fragments(instruction, [fa, fb, fc], elements // packed, wide=wide)
    values = np.ascontiguousarray(found).view(dtype).reshape(elements // packed, 32, packed)
    d = np.zeros((rows, 8), dtype)
    for lane in range(32):
        for i in range(elements):
            d[of_result(lane >> 2, lane & 3, i)] = values[i // packed, lane, i % packed]
    return d


def small(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float64]:
    """Numbers whose products and sums are exact in every format."""
    return rng.integers(-8, 9, shape) / 4


@pytest.mark.parametrize(
    ("shape", "name", "kind", "types"),
    [
        ("m16n8k16", "f16", "f4", "f32.f16.f16.f32"),
        ("m16n8k16", "f16", "f2", "f16.f16.f16.f16"),
        ("m16n8k8", "f16", "f4", "f32.f16.f16.f32"),
        ("m16n8k16", "bf16", "f4", "f32.bf16.bf16.f32"),
        ("m16n8k8", "bf16", "f4", "f32.bf16.bf16.f32"),
        ("m16n8k4", "tf32", "f4", "f32.tf32.tf32.f32"),
        ("m16n8k8", "tf32", "f4", "f32.tf32.tf32.f32"),
        ("m16n8k32", "e4m3", "f4", "f32.e4m3.e4m3.f32"),
        ("m8n8k4", "f64", "f8", "f64.f64.f64.f64"),
        ("m16n8k8", "f64", "f8", "f64.f64.f64.f64"),
        ("m16n8k16", "f64", "f8", "f64.f64.f64.f64"),
    ],
)
def test_exact_products(shape: str, name: str, kind: str, types: str) -> None:
    rng = np.random.default_rng(1)
    rows, depth = int(shape[1 : shape.index("n")]), int(shape.split("k")[1])
    a, b, c = small(rng, rows, depth), small(rng, depth, 8), small(rng, rows, 8)
    assert np.array_equal(product(f"mma.sync.aligned.{shape}.row.col.{types}", shape, name, a, b, c, kind), a @ b + c)


@pytest.mark.parametrize(("shape", "a_name", "b_name"), [("m8n8k16", "s8", "s8"), ("m16n8k16", "u8", "s8"), ("m16n8k32", "s8", "u8")])
def test_integer_products(shape: str, a_name: str, b_name: str) -> None:
    rng = np.random.default_rng(2)
    rows, depth = int(shape[1 : shape.index("n")]), int(shape.split("k")[1])
    limits = {"s8": (-128, 128), "u8": (0, 256)}
    a, b = rng.integers(*limits[a_name], (rows, depth)), rng.integers(*limits[b_name], (depth, 8))
    c = rng.integers(-(1 << 31), 1 << 31, (rows, 8))
    exact = a @ b + c
    instruction = f"mma.sync.aligned.{shape}.row.col{{}}.s32.{a_name}.{b_name}.s32"
    wrapped = product(instruction.format(""), shape, a_name, a, b, c, "i4", b_name)
    assert np.array_equal(wrapped, exact.astype(np.int32))
    limited = product(instruction.format(".satfinite"), shape, a_name, a, b, c, "i4", b_name)
    assert np.array_equal(limited, np.clip(exact, -(1 << 31), (1 << 31) - 1))


def test_sums_are_rounded_once() -> None:
    """2^24 + 1 + 1 needs both ones before it is rounded to f32."""
    a, b, c = np.zeros((16, 16)), np.zeros((16, 8)), np.full((16, 8), 2.0**24)
    a[:, :2], b[:2] = 1, 1
    found = product("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "m16n8k16", "f16", a, b, c, "f4")
    assert np.array_equal(found, np.full((16, 8), 2.0**24 + 2))


def test_no_number_and_infinity() -> None:
    a, b, c = np.zeros((16, 16)), np.ones((16, 8)), np.zeros((16, 8))
    a[0, 3], a[1, 5], a[2, 0], a[2, 1] = np.nan, np.inf, np.inf, -np.inf
    found = product("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "m16n8k16", "f16", a, b, c, "f4")
    assert found[0].view(np.uint32).tolist() == [0x7FFFFFFF] * 8
    assert found[1].tolist() == [np.inf] * 8
    assert found[2].view(np.uint32).tolist() == [0x7FFFFFFF] * 8
    assert not found[3:].any()
