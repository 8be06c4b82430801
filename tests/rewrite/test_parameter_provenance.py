"""Where the address of an array goes: an access that must come from the parameter is moved, one that may come from elsewhere is refused."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.errors import BadLaunch, RelayoutError
from memlane.launch import Kernel
from memlane.layout import Fields, Gather, OfTile, column_major, same_places
from memlane.layout.array_spec import LayoutLike, array_layout
from memlane.ptx import parse

TARGET = ml.target("emulator:h200")
HOST = np.arange(96, dtype="i4").reshape(8, 12) * 3 + 1
AT = "ld.param.u64 %rd1, [a];\nadd.s64 %rd2, %rd1, %rd20;\n"
"""The element of each lane."""
LOAD = f"{AT}ld.global.u32 %r5, [%rd2];\n"


def kernel(body: str, head: str = "") -> Kernel:
    text = f"""
.version 9.0
.target sm_90
.address_size 64
{head}
.visible .entry k(.param .u64 a, .param .u64 out, .param .u64 other)
{{
.reg .pred %p<6>; .reg .b32 %r<20>; .reg .b64 %rd<30>; .reg .b128 %rq<3>;
.local .align 16 .b8 loc[64]; .shared .align 16 .b8 sh[1024];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, 4;
ld.param.u64 %rd9, [out];
add.s64 %rd21, %rd9, %rd20;
ld.param.u64 %rd10, [other];
{body}
st.global.u32 [%rd21], %r5;
ret;
}}
"""
    return TARGET.load(parse(text, "k.ptx"))["k"]


def left(changed: Kernel, a: object, lanes: int) -> np.ndarray:
    out, other = TARGET.zeros(96, "i4"), TARGET.array(HOST * 7)
    changed[1, lanes](a, out, other)
    return np.concatenate([out.numpy(), other.numpy().ravel()])


FOLLOWED = {
    "selected from its own": (LOAD + "add.s64 %rd4, %rd1, 40;\nsetp.gt.u32 %p1, %r1, 3;\nselp.b64 %rd2, %rd2, %rd4, %p1;\n"
                              "ld.global.u32 %r5, [%rd2];", 32),
    "difference": (LOAD + "sub.s64 %rd3, %rd2, %rd1;\ncvt.u32.u64 %r6, %rd3;\nadd.s32 %r5, %r5, %r6;", 32),
    "through another array and back": (AT + "sub.s64 %rd3, %rd1, %rd9;\nadd.s64 %rd2, %rd21, %rd3;\nld.global.u32 %r5, [%rd2];", 32),
    "away to another array": (LOAD + "sub.s64 %rd3, %rd1, %rd10;\nsub.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd4, %rd4, %rd20;\n"
                              "ld.global.u32 %r6, [%rd4];\nadd.s32 %r5, %r5, %r6;", 32),
    "backwards": ("ld.param.u64 %rd1, [a];\nadd.s64 %rd2, %rd1, 384;\nsub.s64 %rd2, %rd2, %rd20;\nld.global.u32 %r5, [%rd2+-4];", 32),
    "atomics": (AT + "atom.global.add.u32 %r5, [%rd2], 5;\nred.global.max.s32 [%rd2+128], 99;", 32),
    "read-only cache": (AT + "ld.global.nc.u32 %r5, [%rd2];", 32),
    "generic": (AT + "ld.u32 %r5, [%rd2];\nst.u32 [%rd2+128], %r5;", 32),
    "asynchronous copy": (AT + "mov.u64 %rd3, sh;\nadd.s64 %rd3, %rd3, %rd20;\ncp.async.ca.shared.global [%rd3], [%rd2], 4;\n"
                          "cp.async.wait_all;\nld.shared.u32 %r5, [%rd3];", 32),
    "bytes": ("ld.param.u64 %rd1, [a];\ncvt.u64.u32 %rd4, %r1;\nadd.s64 %rd2, %rd1, %rd4;\nld.global.u8 %r5, [%rd2+1];", 32),
    "up to an end": (AT + "add.s64 %rd3, %rd1, 64;\nsetp.lt.u64 %p1, %rd2, %rd3;\nmov.u32 %r5, 7;\n@%p1 ld.global.u32 %r5, [%rd2];", 32),
    "far away where it does not happen": ("ld.param.u64 %rd1, [a];\nshl.b64 %rd3, %rd20, 20;\nadd.s64 %rd2, %rd1, %rd3;\nmov.u32 %r5, 7;\n"
                                          "setp.lt.u32 %p1, %r1, 1;\n@%p1 ld.global.u32 %r5, [%rd2];", 32),
    "loop": (AT + "mov.u32 %r5, 0;\nmov.u32 %r7, 0;\nL: ld.global.u32 %r6, [%rd2];\nadd.s32 %r5, %r5, %r6;\nadd.s64 %rd2, %rd2, 48;\n"
             "add.s32 %r7, %r7, 1;\nsetp.lt.u32 %p1, %r7, 8;\n@%p1 bra L;", 12),
    "shared memory beside it": (LOAD + "mov.u64 %rd3, sh;\nadd.s64 %rd3, %rd3, %rd20;\nst.shared.u32 [%rd3], %r5;\n"
                                "ld.shared.u32 %r5, [%rd3];", 32),
}  # fmt: skip
LAYOUTS: list[LayoutLike] = [
    "column-major",
    "tiled(3, 5)",
    Gather(8, 12, np.random.default_rng(0).permutation(96)),
    Fields((8, 12), (3, 1, 2, 6)),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["columns", "tiles", "gather", "fields"])
def test_what_must_come_from_the_parameter_is_moved(layout: LayoutLike) -> None:
    for name, (body, lanes) in FOLLOWED.items():
        original = kernel(body)
        plain, array = TARGET.array(HOST), ml.upload(TARGET, HOST, layout=layout)
        changed = ml.relayout(original, layout, parameter="a", shape=HOST.shape, dtype="i4")
        assert np.array_equal(left(changed, array, lanes), left(original, plain, lanes)), name
        assert np.array_equal(ml.download(array), plain.numpy()), name


VECTOR = "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2]"
V4 = "ld.param.u64 %rd1, [a];\nmul.wide.u32 %rd5, %r1, 16;\nadd.s64 %rd2, %rd1, %rd5;\nld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2];"


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        (LOAD + "mov.u64 %rd5, a;\nld.param.u64 %rd6, [%rd5];\nld.global.u32 %r5, [%rd6+20];", "mov.u64 %rd5", "of the parameter itself"),
        ("mov.u64 %rd5, a;\ncvta.param.u64 %rd5, %rd5;\nld.u64 %rd6, [%rd5];", "mov.u64 %rd5", "address of the parameter itself is taken"),
        ("ld.param.v2.u32 {%r8, %r9}, [a];", "ld.param.v2", "only a part of its address is read here"),
        (AT + "setp.gt.u32 %p1, %r1, 3;\nselp.b64 %rd2, %rd1, %rd9, %p1;\nld.global.u32 %r5, [%rd2];", "ld.global", "on the path taken"),
        (AT + "setp.gt.u32 %p1, %r1, 3;\n@%p1 mov.u64 %rd2, %rd9;\nld.global.u32 %r5, [%rd2];", "ld.global", "depending on the path taken"),
        (LOAD + "mov.u64 %rd3, loc;\nst.local.u64 [%rd3], %rd1;\nld.local.u64 %rd4, [%rd3];", "st.local", "is stored to memory"),
        (LOAD + "mov.u64 %rd3, sh;\natom.shared.exch.b64 %rd4, [%rd3], %rd1;", "atom.shared", "is stored to memory"),
        (LOAD + "mov.b64 {%r7, %r8}, %rd1;", "mov.b64", "computes with its address"),
        (LOAD + "mov.b128 %rq1, {%rd1, %rd9};", "mov.b128", "computes with its address"),
        (LOAD + "shl.b64 %rd3, %rd1, 1;", "shl.b64", "computes with its address"),
        (LOAD + "min.u64 %rd3, %rd1, %rd2;", "min.u64", "computes with its address"),
        (LOAD + "xor.b64 %rd3, %rd1, %rd9;", "xor.b64", "computes with its address"),
        (LOAD + "cvt.u32.u64 %r8, %rd1;", "cvt.u32", "computes with its address"),
        (LOAD + "cvta.to.shared.u64 %rd3, %rd1;", "cvta.to.shared", "used as an address in another state space"),
        (AT + "prefetch.global.L2 [%rd2];", "prefetch", "in a way that memlane cannot follow"),
        (AT + "cp.async.bulk.prefetch.L2.global [%rd1], 64;", "cp.async.bulk", "in a way that memlane cannot follow"),
        (V4, "ld.global.v4", "accesses 16 bytes of the array of parameter 'a' at once"),
        (V4.replace(VECTOR, "cp.async.cg.shared.global [%r1], [%rd2], 16, 4"), "cp.async", "16 bytes"),
        (V4.replace(VECTOR, "atom.global.add.u64 %rd6, [%rd2], 5"), "atom.global", "8 bytes"),
    ],
)  # fmt: skip
def test_what_may_come_from_elsewhere_is_refused_with_its_line(body: str, line: str, reason: str) -> None:
    original = kernel(body)
    with pytest.raises(RelayoutError, match=reason) as caught:
        ml.relayout(original, "column-major", parameter=0, shape=HOST.shape, dtype="i4")
    shown = str(caught.value).splitlines()
    assert shown[0].startswith("k.ptx:")
    assert shown[1].strip().startswith(line)


def test_a_call_that_stays_one_is_refused() -> None:
    head = """
.func f(.param .b64 p)
{ .reg .b64 %x; .reg .b32 %y; .reg .pred %q; ld.param.b64 %x, [p]; ld.global.u32 %y, [%x]; setp.gt.u32 %q, %y, 9; @!%q bra E;
  { .param .b64 s; st.param.b64 [s], %x; call f, (s); }
E: ret; }
"""
    recursive = kernel(LOAD + "{ .param .b64 p; st.param.b64 [p], %rd1; call f, (p); }", head)
    with pytest.raises(RelayoutError, match="its address is passed to a call"):
        ml.relayout(recursive, "column-major", parameter=0, shape=HOST.shape, dtype="i4")


# -- launches --------------------------------------------------------------------------------------------------------------------


def test_arguments_that_would_be_read_wrongly_are_refused() -> None:
    changed = ml.relayout(kernel(LOAD), "column-major", parameter=0, shape=HOST.shape, dtype="i4")
    array, out, other = ml.upload(TARGET, HOST, layout="column-major"), TARGET.zeros(96, "i4"), TARGET.zeros(4)
    changed[1, 32](array, out, other)
    with pytest.raises(
        BadLaunch, match=r"^argument 1 of k has the layout Blocked.*changed for Permuted.*: upload the array in that layout$"
    ):
        changed[1, 32](ml.upload(TARGET, HOST, layout="tiled(2, 2)"), out, other)
    with pytest.raises(BadLaunch, match=r"^argument 1 of k has 16 bytes, and Permuted\(8x12, order \(1, 0\)\) takes 384: upload"):
        changed[1, 32](other, out, other)
    with pytest.raises(
        BadLaunch, match=r"^the array of parameter 2 of k, i4\[96\], overlaps with that of parameter 0, which has the layout Permuted"
    ):
        changed[1, 32](array, out, ml.DeviceArray(TARGET, array.address, (96,), array.dtype, array))
    wide = ml.relayout(kernel(V4), "row-major", parameter=0, shape=HOST.shape, dtype="i4")
    whole = TARGET.zeros(200, "i4")
    with pytest.raises(BadLaunch, match=r"^argument 1 of k begins at 0x\w+, but the kernel accesses 16 bytes at once"):
        wide[1, 8](ml.DeviceArray(TARGET, whole.address + 4, (96,), whole.dtype, whole), out, other)


def test_two_parameters_that_are_laid_out_alike_may_lead_to_one_array() -> None:
    body = LOAD + "add.s64 %rd4, %rd10, %rd20;\nld.global.u32 %r6, [%rd4+4];\nst.global.u32 [%rd4+128], %r6;\nadd.s32 %r5, %r5, %r6;"
    first = ml.relayout(kernel(body), "column-major", parameter="a", shape=HOST.shape, dtype="i4")
    both = ml.relayout(first, "column-major", parameter="other", shape=HOST.shape, dtype="i4")
    array, out = ml.upload(TARGET, HOST, layout="column-major"), TARGET.zeros(96, "i4")
    with pytest.raises(BadLaunch, match="overlaps with that of parameter 0"):
        first[1, 32](array, out, array)
    both[1, 32](array, out, array)
    flat = HOST.ravel().copy()
    assert np.array_equal(out.numpy()[:32], flat[:32] + flat[1:33])
    flat[32:64] = flat[1:33]
    assert np.array_equal(ml.download(array).ravel(), flat)


def test_layouts_are_compared_by_where_elements_lie() -> None:
    assert same_places(column_major((64, 3)), Fields((64, 3), (1, 1, 1)))
    assert same_places(array_layout("tiled(4, 12)", (8, 12)), array_layout("row-major", (8, 12)))
    assert not same_places(column_major((64, 3)), array_layout("row-major", (64, 3)))
    assert not same_places(column_major((3000, 3000)), array_layout("row-major", (3000, 3000)))
    assert not same_places(OfTile((8, 12), Gather(8, 12, np.roll(np.arange(96), 1))), array_layout("row-major", (8, 12)))
