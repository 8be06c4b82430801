"""Products of a warpgroup against NumPy: shapes, types, layouts in shared memory, and what goes wrong."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from memlane.errors import BadAccess, PtxTypeError
from memlane.ptx import parse
from tests.emulate.checking import check
from tests.emulate.running import emulator
from tests.emulate.warpgroup import TILE_BYTES, Case, Layout, multiplied

K, MN = True, False
CASES = {
    "plain": Case(8, "f32", "f16", "f16", Layout(0, K, 128, 256), Layout(0, K, 144, 512, 4096)),
    "plain, by lines": Case(16, "f32", "f16", "f16", Layout(0, MN, 1024, 128), Layout(0, MN, 128, 272, 4096), signs=(-1, 1)),
    "128, and 128 by lines": Case(64, "f32", "f16", "f16", Layout(128, K, 0, 1024, 64), Layout(128, MN, 0, 1024, 8192)),
    "registers, and 64 by lines": Case(256, "f32", "bf16", "bf16", None, Layout(64, MN, 512, 4096, 8192)),
    "32 by lines, and 64": Case(40, "f16", "f16", "f16", Layout(32, MN, 256, 1024), Layout(64, K, 0, 512, 8192 + 32)),
    "tf32": Case(24, "f32", "tf32", "tf32", None, Layout(128, K, 0, 1024, 8192 + 96), signs=(1, -1)),
    "two formats of eight bits": Case(16, "f32", "e4m3", "e5m2", Layout(64, K, 0, 512, 32), Layout(128, K, 0, 1024, 8192 + 96)),
    "eight bits in f16": Case(32, "f16", "e5m2", "e5m2", None, Layout(0, K, 1024, 128)),
}
SHORT = CASES["plain"]
NAME = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
INTEGERS = Case(48, "s32", "s8", "u8", Layout(32, K, 0, 256), Layout(32, K, 0, 256, 8192))


@pytest.mark.parametrize("name", CASES)
def test_products_of_small_numbers_are_exact(name: str) -> None:
    """Multiples of 1/2 up to 2: every sum of products fits every type. D is added to, and then not looked at."""
    case, rng, target = CASES[name], np.random.default_rng(3), emulator()
    a, b, c = (rng.integers(-4, 5, shape) / 2 for shape in ((64, case.depth), (case.depth, case.columns), (64, case.columns)))
    products = case.signs[0] * case.signs[1] * (a @ b)
    assert np.array_equal(multiplied(target, case, a, b, c), products + c)
    assert np.array_equal(multiplied(target, case, a, b, None), products)


def test_integers_wrap_or_stop_at_their_limits() -> None:
    rng, target = np.random.default_rng(4), emulator()
    a, b = rng.integers(-128, 128, (64, 32)), rng.integers(0, 256, (32, 48))
    c = rng.integers(-(1 << 31), 1 << 31, (64, 48))
    c[:, ::2] = (1 << 31) - 1 - rng.integers(0, 1000, (64, 24))
    exact = a @ b + c
    assert (np.abs(exact) >= 1 << 31).any()
    assert np.array_equal(multiplied(target, INTEGERS, a, b, c), exact.astype(np.int32))
    limited = multiplied(target, replace(INTEGERS, satfinite=True), a, b, c)
    assert np.array_equal(limited, np.clip(exact, -(1 << 31), (1 << 31) - 1))


@pytest.mark.parametrize("left", [None, Layout(64, K, 0, 512, 32)])
def test_single_bits_are_counted(left: Layout | None) -> None:
    rng, case = np.random.default_rng(6), Case(8, "s32", "b1", "b1", left, Layout(128, K, 0, 1024, 8192 + 64))
    assert "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc" in case.line
    a, b, c = rng.integers(0, 2, (64, 256)), rng.integers(0, 2, (256, 8)), rng.integers(-1000, 1000, (64, 8))
    assert np.array_equal(multiplied(emulator(), case, a, b, c), a @ b + c)


def test_sums_are_rounded_once_at_their_end() -> None:
    """2^24 + 1 + 1 needs both ones before it is rounded to f32; and random products are as near as one rounding leaves them."""
    a, b, c = np.zeros((64, 16)), np.zeros((16, 8)), np.full((64, 8), 2.0**24)
    a[:, 3:5], b[3:5] = 1, 1
    assert np.array_equal(multiplied(emulator(), SHORT, a, b, c), c + 2)
    rng = np.random.default_rng(5)
    a, b, c = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 16), (16, 8), (64, 8)))
    exact = a.astype(np.float64) @ b.astype(np.float64) + c
    found = multiplied(emulator(), SHORT, a, b, c)
    assert np.max(np.abs(found - exact) - np.spacing(np.abs(found)) / 2) <= 1e-14


def test_no_number_and_infinity() -> None:
    a, b = np.zeros((64, 16)), np.ones((16, 8))
    a[0, 3], a[17, 5], a[34, 0], a[34, 1] = np.nan, np.inf, np.inf, -np.inf
    found = multiplied(emulator(), SHORT, a, b, np.full((64, 8), 1.0))
    assert found[[0, 34]].view(np.uint32).tolist() == [[0x7FFFFFFF] * 8] * 2
    assert found[17].tolist() == [np.inf] * 8
    assert (np.delete(found, [0, 17, 34], axis=0) == 1).all()


def test_an_operand_outside_shared_memory_is_named() -> None:
    case = replace(SHORT, right=Layout(0, K, 128, 256, 40960 - 128))
    with pytest.raises(BadAccess) as raised:
        emulator_run(case)
    message = r"block \(0, 0, 0\), thread \(\d+, 0, 0\) read 16 bytes at 0xa0[0-7]0 \(wgmma.*\), outside the block's 40960 bytes of shared"
    assert re.search(message, str(raised.value))


def emulator_run(case: Case, threads: int = 128) -> None:
    target = emulator()
    array = target.zeros(1 << 16, "u1")
    descriptors = [0 if layout is None else layout.descriptor for layout in (case.left, case.right)]
    module = parse(case.text().replace(f"%n, {TILE_BYTES // 2048};", "%n, 4;"), "wgmma.ptx")
    target.load(module)["k"][1, threads](array, array, array, array, *(np.uint64(one) for one in descriptors), np.uint32(1))


@pytest.mark.parametrize("threads", [32, 160])
def test_a_warpgroup_has_four_warps(threads: int) -> None:
    with pytest.raises(BadAccess) as raised:
        emulator_run(SHORT, threads)
    assert f"which takes a warpgroup of 128 threads, in a block of {threads} threads whose last group is not whole" in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (NAME, "wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16", "a depth of 8 is none of f16"),
        (NAME, "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16", "there is no product of bf16 and bf16 in f16"),
        (NAME, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16", "there is no product of f16 and bf16 in f32"),
        (NAME, "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", "D has 4 registers"),
        (NAME, "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16", "D has 4 registers"),
        ("%p, 1, 1, 0, 0", "%p, 1, 2, 0, 0", "scale-b is 1 or -1"),
        ("%p, 1, 1, 0, 0", "%p, 1, 1, 2, 0", "trans-a is 0 or 1"),
        (NAME, "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", "operands of e4m3 are K-major"),
        ("%left, %right, %p, 1, 1, 0, 0", "{%a0, %a1}, %right, %p, 1, 1, 0", "A has 2 registers"),
    ],
)
def test_what_is_no_product(old: str, new: str, message: str) -> None:
    text = SHORT.text().replace(old, new)
    text = text.replace("1, 1, 0, 0", "1, 1, 1, 0") if "K-major" in message else text
    assert new.partition(",")[0] in text
    target = emulator()
    array = target.zeros(1 << 16, "u1")
    with pytest.raises(PtxTypeError, match=re.escape(message)):
        target.load(parse(text, "wrong.ptx"))["k"][1, 128](array, array, array, array, np.uint64(0), np.uint64(0), np.uint32(1))


# -- the checker -----------------------------------------------------------------------------------------------------------------

WAIT = "wgmma.wait_group.sync.aligned 0;"
IN_REGISTERS = CASES["tf32"]


def found(*changes: tuple[str, str], case: Case = SHORT) -> list[tuple[str, str, str]]:
    """What the checker finds of the case with pieces of its text exchanged: kind, instruction, and where the other one is."""
    text = case.text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    target = emulator()
    image, array = target.zeros(TILE_BYTES, "u1"), target.zeros(1 << 16, "u1")
    descriptors = [0 if layout is None else layout.descriptor for layout in (case.left, case.right)]
    call = target.load(parse(text, "wgmma.ptx"))["k"][1, 128]
    reports = check(call, array, image, array, array, *(np.uint64(one) for one in descriptors), np.uint32(1))
    lines = text.splitlines()
    return [(one.kind, one.who.op, lines[one.other.line - 1].strip() if one.other else "") for one in reports]


def test_the_checker_has_nothing_to_say_of_products_that_are_waited_for() -> None:
    closed = f"wgmma.commit_group.sync.aligned; {SHORT.line.strip()} wgmma.commit_group.sync.aligned;"
    assert found() == []
    assert found(("wgmma.commit_group.sync.aligned;", closed)) == []
    assert found((WAIT, f"mov.b32 %w0, %a0; {WAIT}"), case=IN_REGISTERS) == [], "a product may read what others read"
    assert found((WAIT, f"add.u64 %right, %right, 2; {WAIT}")) == [], "descriptors are taken when it begins"


@pytest.mark.parametrize(
    "change", [(WAIT, ""), (WAIT, WAIT.replace("0", "1")), ("wgmma.commit_group.sync.aligned;", ""), (WAIT, f"mov.b32 %w0, %d3; {WAIT}")]
)
def test_sums_that_are_used_before_the_wait_are_found(change: tuple[str, str]) -> None:
    (report,) = {one[:1] + one[2:] for one in found(change)}
    assert report == ("missing wait", SHORT.line.strip())


def test_factors_that_are_written_before_the_wait_are_found() -> None:
    assert found((WAIT, f"add.u32 %a3, %a3, 1; {WAIT}"), case=IN_REGISTERS) == [("missing wait", "add.u32", IN_REGISTERS.line.strip())]


def test_groups_complete_in_their_order() -> None:
    """Two groups with sums of their own, and a wait that lets the newer one go on."""
    second = SHORT.line.strip().replace("{%d0, %d1, %d2, %d3}", "{%w0, %w1, %w2, %w3}")
    both = f"wgmma.commit_group.sync.aligned;\n{second}\nwgmma.commit_group.sync.aligned;"
    for touched, reports in (("%d0", []), ("%w0", [("missing wait", "mov.b32", second)])):
        after = f"{WAIT.replace('0', '1')} mov.b32 %n, {touched}; {WAIT}"
        assert found((WAIT, after), ("wgmma.commit_group.sync.aligned;", both)) == reports


def test_operands_are_read_as_any_memory() -> None:
    assert found(("bar.sync 0;", ""))[0][:2] in [("data race", NAME), ("data race", "st.shared.v4.b32")]
    assert [one[:2] for one in found((f"%n, {TILE_BYTES // 2048};", "%n, 1;"))] == [("never written", NAME)]
