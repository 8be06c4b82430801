"""What keeps an array where it is, told with the line."""

from __future__ import annotations

import re

import numpy as np
import pytest

import memlane as ml
from memlane.errors import RelayoutError
from memlane.layout import Gather, OfVectors, Padded, RandomShift, RowMajor, Strided, XorSwizzle
from memlane.ptx import parse
from memlane.rewrite import find_array, relayout_module, shared_arrays

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
TILE = XorSwizzle(8, 8)


def kernel(body: str, variables: str = "", head: str = "", name: str = "k") -> str:
    return f"""{HEAD}{head}
.visible .entry {name}(.param .u64 out)
{{
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<9>;
    .shared .align 16 .b8 tile[256];
    .shared .align 4 .b8 other[256];{variables}
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 4;
    mov.u64 %rd2, tile;
    add.s64 %rd3, %rd2, %rd1;
    ld.param.u64 %rd9, [out];
    {body}
    ret;
}}
"""


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        ("ld.shared.u32 %r2, [%rd3];\nst.global.u64 [%rd9], %rd3;", "st.global.u64", "its address is stored to memory"),
        ("ld.shared.u32 %r2, [%rd3];\nmul.lo.s64 %rd4, %rd3, 3;", "mul.lo.s64", "`mul.lo.s64` computes with its address"),
        ("ld.shared.u32 %r2, [%rd3];\nxor.b64 %rd4, %rd3, 16;", "xor.b64", "`xor.b64` computes with its address"),
        ("ld.shared.u32 %r2, [%rd3];\nxor.b64 %rd4, %rd3, %rd1;", "xor.b64", "`xor.b64` computes with its address"),
        ("ld.shared.u32 %r2, [%rd3];\nsetp.lt.u64 %p1, %rd3, 4096;", "setp", "compared with something other"),
        ("ld.shared.u32 %r2, [%rd3];\nmov.b64 {%r3, %r4}, %rd3;", "mov.b64", "computes with its address"),
        ("ld.shared.u32 %r2, [%rd3];\ncvt.u32.u64 %r5, %rd3;\nshfl.sync.idx.b32 %r3, %r5, 0, 31, -1;", "shfl", "given to other lanes"),
        ("ld.shared.u32 %r2, [%rd3];\ncvta.shared.u64 %rd4, %rd3;\ncvt.u32.u64 %r5, %rd4;", "cvt.u32", "`cvt.u32.u64` computes"),
        (
            "mov.u64 %rd5, other;\nsetp.eq.u32 %p1, %r1, 0;\nselp.b64 %rd6, %rd3, %rd5, %p1;\nld.shared.u32 %r2, [%rd6];",
            "ld.shared.u32",
            "belongs to this array or to something else (other)",
        ),
        (
            "setp.eq.u32 %p1, %r1, 0;\n@%p1 mov.u64 %rd3, 0;\nld.shared.u32 %r2, [%rd3];",
            "ld.shared.u32",
            "belongs to this array or to something else",
        ),
        ("ld.shared.u32 %r2, [%rd3];\nld.shared.u32 %r3, [%r1];", "ld.shared.u32 %r3", "comes from an unknown source and may point to it"),
        ("ld.shared.u32 %r2, [%rd3];\nst.shared.u32 [64], %r2;", "st.shared.u32", "comes from an unknown source and may point to it"),
        (
            "ld.shared.u32 %r2, [%rd3];\ncp.async.bulk.global.shared::cta.bulk_group [%rd9], [%rd3], 64;",
            "cp.async.bulk",
            "accesses it in a way that memlane cannot follow",
        ),
        ("mbarrier.init.shared.b64 [%rd3], 32;", "mbarrier.init", "`mbarrier.init.shared.b64` accesses it in a way that memlane"),
        ("{\n.param .b64 a;\nst.param.b64 [a], %rd3;\ncall g, (a);\n}", "st.param", "its address is passed to a call"),
    ],
)  # fmt: skip
def test_escapes(body: str, line: str, reason: str) -> None:
    head = ".func g(.param .b64 a) { ret; }\n" if "call g" in body else ""
    text = kernel(body, head=head)
    with pytest.raises(RelayoutError) as caught:
        relayout_module(parse(text, "k.ptx"), TILE, shared="tile")
    number = next(number for number, one in enumerate(text.splitlines(), 1) if one.strip().startswith(line))
    assert str(caught.value).startswith(f"k.ptx:{number}:")
    assert "the layout of tile cannot be changed: " in str(caught.value)
    assert reason in str(caught.value)
    assert "^^^" in str(caught.value)


def test_what_other_arrays_do_is_no_reason() -> None:
    text = kernel("ld.shared.u32 %r2, [%rd3];\nmov.u64 %rd5, other;\nadd.s64 %rd6, %rd5, %rd1;\nst.global.u64 [%rd9], %rd6;")
    assert relayout_module(parse(text), TILE, shared="tile").accesses == 1


@pytest.mark.parametrize(
    "body",
    [
        "setp.eq.u64 %p1, %rd3, 0;\n@%p1 trap;\nld.shared.u32 %r2, [%rd3];",
        "add.s64 %rd4, %rd2, 256;\nsetp.lt.u64 %p1, %rd3, %rd4;\n@%p1 ld.shared.u32 %r2, [%rd3];",
        "sub.s64 %rd4, %rd3, %rd2;\nst.global.u64 [%rd9], %rd4;\nld.shared.u32 %r2, [%rd3];",
        "or.b64 %rd4, %rd3, 8;\nand.b64 %rd5, %rd4, -8;\nld.shared.u32 %r2, [%rd5];",
        "cvta.shared.u64 %rd4, %rd3;\nisspacep.shared %p1, %rd4;\nld.u32 %r2, [%rd4];",
        "mad.wide.u32 %rd4, %r1, 4, %rd2;\ncvt.u32.u64 %r3, %rd4;\nld.shared.u32 %r2, [%r3];",
    ],
)
def test_what_is_followed(body: str) -> None:
    assert relayout_module(parse(kernel(body)), TILE, shared="tile").accesses == 1


def test_a_loop_moves_an_address() -> None:
    body = """
    mov.u32 %r4, 0;
LOOP:
    ld.shared.u32 %r2, [%rd3];
    add.s64 %rd3, %rd3, 4;
    add.s32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, 5;
    @%p1 bra LOOP;
    ld.shared.u32 %r2, [tile+8];"""
    relaid = relayout_module(parse(kernel(body)), TILE, shared="tile")
    assert (relaid.accesses, relaid.folded, relaid.shared) == (2, 1, 0)


def test_torn_accesses() -> None:
    module = parse(kernel("ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3];"), "k.ptx")
    with pytest.raises(
        RelayoutError, match=r"splits `ld\.shared\.v4\.u32`, which accesses 16 bytes of tile at once: those from byte 32 on would"
    ):
        relayout_module(module, TILE, shared="tile")
    with pytest.raises(RelayoutError, match=r"Padded\(8x8, pad=1\) splits `ld.shared.v4.u32`"):
        relayout_module(module, Padded(8, 8, 1), shared="tile")
    assert relayout_module(module, Padded(8, 8, 4), shared="tile").added_bytes == 128
    assert relayout_module(module, OfVectors(8, 8, XorSwizzle(8, 2), 4), shared="tile").accesses == 1
    copy = parse(kernel("cp.async.cg.shared.global [%rd3], [%rd9], 16;"), "k.ptx")
    with pytest.raises(RelayoutError, match="splits `cp"):
        relayout_module(copy, TILE, element=4, shared="tile")
    rows = parse(kernel("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%rd3];"))
    with pytest.raises(RelayoutError, match="splits `ldmatrix"):
        relayout_module(rows, XorSwizzle(8, 16), element=2, shared="tile")
    assert relayout_module(rows, OfVectors(8, 16, XorSwizzle(8, 2), 8), element=2, shared="tile").accesses == 1


def test_sizes() -> None:
    module = parse(kernel("ld.shared.u32 %r2, [%rd3];"), "k.ptx")
    with pytest.raises(
        RelayoutError, match="tile has 256 bytes, but RowMajor\\(7x7\\) is a layout of 49 elements of 4 bytes: choose a layout"
    ):
        relayout_module(module, RowMajor(7, 7), shared="tile")
    with pytest.raises(RelayoutError, match="elements have 1, 2, 4, 8 or 16 bytes, got 3"):
        relayout_module(module, TILE, element=3, shared="tile")
    with pytest.raises(
        RelayoutError, match=r"Padded\(8x8, pad=6200\) takes 198,656 bytes where tile has 256, which makes 198,912 bytes of static"
    ):
        relayout_module(module, Padded(8, 8, 6200), shared="tile")
    with pytest.raises(RelayoutError, match=r"puts two elements at the same offset"):
        relayout_module(module, Strided(8, 8, 1, 1), shared="tile")
    with pytest.raises(RelayoutError, match=r"k.ptx:\d+:\d+: `ld.shared.u32` accesses byte 256 of tile, which has only 256 bytes"):
        relayout_module(parse(kernel("ld.shared.u32 %r2, [tile+256];"), "k.ptx"), TILE, shared="tile")
    with pytest.raises(RelayoutError, match="constant memory to 81,920 bytes, but it has 65,536"):
        relayout_module(big_table(), Gather(256, 160, np.random.default_rng(0).permutation(256 * 160)), shared="tile", element=1)


def big_table() -> ml.Module:
    return parse(kernel("ld.shared.u8 %r2, [%rd3];").replace("tile[256]", "tile[40960]"))


def test_tables_lie_somewhere() -> None:
    module = parse(kernel("ld.shared.u32 %r2, [%rd3];"), "k.ptx")
    with pytest.raises(RelayoutError, match="are computed, or are in constant or global memory, not in 'shared'"):
        relayout_module(module, RandomShift(8, 8, 1), shared="tile", tables="shared")  # type: ignore[arg-type]


def test_names() -> None:
    module = parse(kernel("ld.shared.u32 %r2, [%rd3];\nld.shared.u32 %r3, [other];"), "k.ptx")
    assert [one.title for one in shared_arrays(module)] == ["tile", "other"]
    with pytest.raises(RelayoutError, match=re.escape("k.ptx has several arrays in shared memory: tile, other; name one with shared=")):
        relayout_module(module, TILE)
    with pytest.raises(RelayoutError, match=r"no shared array 'rows' in k\.ptx; it has: tile, other"):
        relayout_module(module, TILE, shared="rows")
    with pytest.raises(RelayoutError, match=r"k\.ptx has no dynamic shared memory; it has: tile, other"):
        relayout_module(module, TILE, shared=(0, 256))
    for wanted in ((0, "256"), (0.5, 256), (0, 1, 2)):
        with pytest.raises(RelayoutError, match="a range of dynamic shared memory needs two byte offsets, got"):
            relayout_module(module, TILE, shared=wanted)  # type: ignore[arg-type]
    with pytest.raises(RelayoutError, match=r"the range 8\.\.8 of dynamic shared memory is empty"):
        relayout_module(module, TILE, shared=(8, 8))
    with pytest.raises(RelayoutError, match=r"k\.ptx has no array in shared memory"):
        relayout_module(parse(f"{HEAD}.visible .entry k() {{ ret; }}", "k.ptx"), TILE)
    with pytest.raises(RelayoutError, match=r"pass a layout such as .* got 'xor'"):
        ml.relayout(module, "xor")
    with pytest.raises(RelayoutError, match="pass a kernel of a loaded module, or a module, not a int"):
        ml.relayout(3, TILE)  # type: ignore[call-overload]
    unread = parse(kernel("ld.shared.u32 %r3, [other];"), "k.ptx")
    with pytest.raises(RelayoutError, match="there is no access to tile whose address memlane can follow"):
        relayout_module(unread, TILE, shared="tile")


def test_local_memory_of_a_function_is_no_shared_array() -> None:
    module = parse(kernel(".local .align 4 .b8 depot[64];\nst.local.u32 [depot], 7;\nld.shared.u32 %r2, [%rd3];"), "k.ptx")
    assert [one.title for one in shared_arrays(module)] == ["tile", "other"]


def test_names_as_the_programmer_wrote_them() -> None:
    text = """
    template <int N> __device__ int turned(int t) { __shared__ int cells[N]; cells[t] = t; __syncthreads(); return cells[N - 1 - t]; }
    namespace ns { __global__ void first(int* out) { __shared__ int tile[64]; tile[threadIdx.x] = 1; __syncthreads();
        out[threadIdx.x] = tile[63 - threadIdx.x] + turned<64>(threadIdx.x); } }
    __global__ void second(int* out) { __shared__ int tile[64]; tile[threadIdx.x] = 2; __syncthreads();
        out[threadIdx.x] = tile[threadIdx.x ^ 1]; }
    """
    module = ml.cuda(text)
    assert find_array(module, "first::tile").title == "ns::first(int*)::tile"
    assert find_array(module, "ns::first::tile") == find_array(module, "ns::first(int*)::tile")
    assert "cells" in find_array(module, "turned::cells").title
    with pytest.raises(RelayoutError, match=r"several arrays of .* match 'tile': .*::tile; use the full name"):
        find_array(module, "tile")
    kernel = ml.target("emulator:h200").load(module)["second"]
    assert find_array(module, "tile", kernel.function).title == "second(int*)::tile"
    assert find_array(module, None, kernel.function).title == "second(int*)::tile"


def test_dynamic_memory_does_not_grow() -> None:
    text = """
    extern "C" __global__ void k(int* out) {
        extern __shared__ int tile[]; tile[threadIdx.x] = 3; __syncthreads(); *out = tile[63 - threadIdx.x];
    }
    """
    module = ml.cuda(text)
    with pytest.raises(
        RelayoutError, match=r"Padded\(8x8, pad=1\) takes 288 bytes, and dynamic\[0:256\] has 256: the dynamic shared memory after"
    ):
        relayout_module(module, Padded(8, 8), shared="dynamic[0:256]")
    with pytest.raises(RelayoutError, match=r"accesses 4 bytes at once, which may cross an end of dynamic\[2:258\]"):
        relayout_module(module, TILE, shared="dynamic[2:258]")
    assert relayout_module(module, TILE).array.title == "dynamic[0:256]"
