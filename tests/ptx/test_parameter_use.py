"""Through which parameters kernels read and write: what is found in their text, and what they really touch on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.ptx import Module, parameter_use, parse

HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.global .u64 kept[4];
.extern .shared .align 16 .b8 dynamic[];
"""
REGISTERS = ".reg .b64 a, b, t, x, y, z, q, r, s; .reg .b32 i, lo, hi, v, w; .reg .f32 f; .reg .pred p; .reg .f64 d;"
LOADS = "ld.param.u64 a, [A]; ld.param.u64 b, [B]; ld.param.u64 t, [T]; mov.u32 i, %tid.x; setp.eq.u32 p, i, 0;"


def kernel(body: str, variables: str = "", before: str = "") -> Module:
    """A kernel of three pointers, a number and a structure of 16 bytes."""
    parameters = ".param .u64 A, .param .u64 B, .param .u64 T, .param .u64 N, .param .align 8 .b8 S[16]"
    return parse(f"{HEAD}{before}\n.visible .entry k({parameters})\n{{ {REGISTERS} {variables} {LOADS}\n{body}\nret; }}")


def use(module: Module, pointers: tuple[int, ...] = (0, 1, 2)) -> tuple[str, str]:
    """The parameters that are read, and those that are written, by their letters."""
    found = parameter_use(module, "k", pointers)
    return "".join("ABTNS"[one] for one in sorted(found.reads)), "".join("ABTNS"[one] for one in sorted(found.writes))


KNOWN = [
    ("ld.global.u32 v, [a]; st.global.u32 [b], v;", "A", "B"),
    ("ld.global.nc.u32 v, [a+8]; st.global.u32 [a+4], v;", "A", "A"),
    # Indices of all sizes, computed and loaded.
    ("mul.wide.u32 x, i, 4; add.s64 z, x, a; ld.global.u32 v, [z]; mad.wide.u32 y, v, 4, b; st.global.u32 [y], v;", "A", "B"),
    ("ld.global.u32 v, [t]; cvt.s64.s32 x, v; shl.b64 y, x, 2; add.s64 z, a, y; ld.global.u32 w, [z]; st.global.u32 [b], w;", "AT", "B"),
    ("ld.global.u64 x, [t]; shl.b64 y, x, 2; add.s64 z, y, a; ld.global.u32 v, [z];", "AT", ""),
    ("ld.param.u64 x, [N]; mad.lo.s64 y, x, 4, a; st.global.u32 [y], i;", "", "A"),
    ("ld.param.u64 x, [N]; ld.param.u64 y, [S+8]; mul.lo.s64 z, y, 8; mul.lo.s64 q, x, z; add.s64 r, q, a; st.global.u32 [r], i;", "", "A"),
    ("sub.s64 x, a, 16; and.b64 y, x, -256; st.global.u32 [y], i;", "", "A"),
    ("mov.b64 d, a; mov.b64 x, d; ld.global.u32 v, [x];", "A", ""),
    # Other state spaces.
    ("cvta.to.global.u64 x, a; ld.global.u32 v, [x]; cvta.global.u64 y, b; st.u32 [y], v;", "A", "B"),
    ("st.shared.u32 [dynamic], i; ld.shared.u32 v, [dynamic]; st.global.u32 [a], v;", "", "A"),
    ("mov.u64 x, own; cvta.local.u64 y, x; st.u32 [y], i; ld.u32 v, [y]; st.global.u32 [a], v;", "", "A"),
    ("mov.u64 x, kept; ld.global.u64 y, [x]; st.global.u64 [kept+8], y; ld.global.u32 v, [a];", "A", ""),
    ("ld.param.v2.u32 {v, w}, [S]; st.global.u32 [a], w;", "", "A"),
    # A loop that moves its pointers along, and selections.
    ("mov.u64 x, a;\nL: ld.global.u32 v, [x]; add.s64 x, x, 4; add.u32 i, i, 1; setp.lt.u32 p, i, 9; @p bra L;", "A", ""),
    ("selp.b64 x, a, b, p; ld.global.u32 v, [x]; st.global.u32 [t], v;", "AB", "T"),
    ("mov.u64 x, a; @p mov.u64 x, b; st.global.u32 [x], i;", "", "AB"),
    # Atomic operations read and write; prefetches do neither; what is discarded is gone.
    ("atom.global.add.u32 v, [a], 1; red.global.add.u32 [b], 1; prefetch.global.L2 [t];", "AB", "AB"),
    ("discard.global.L2 [a], 128;", "A", "A"),
    # Copies beside the registers.
    ("cp.async.ca.shared.global [dynamic], [a], 4; cp.async.wait_all;", "A", ""),
    ("cp.async.bulk.global.shared::cta.bulk_group [a], [dynamic], 16; cp.async.bulk.commit_group;", "", "A"),
    ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [a], [dynamic], 16; cp.async.bulk.commit_group;", "A", "A"),
    # A number that is made of pointers leads nowhere by itself.
    ("sub.s64 x, b, a; st.global.u64 [t], x; cvt.u32.u64 lo, x; mad.wide.u32 y, lo, 4, a; ld.global.u32 v, [y];", "AB", "T"),
]
UNKNOWN_READS = [
    "st.global.u64 [kept], a; ld.global.u64 x, [kept]; ld.global.u32 v, [x];",
    "st.shared.u64 [dynamic], a; ld.shared.u64 x, [dynamic]; ld.global.u32 v, [x];",
    "st.local.u64 [own], a; ld.local.u64 x, [own]; ld.global.u32 v, [x];",
    "ld.global.u64 x, [t]; ld.global.u32 v, [x];",
    "ld.global.u64 x, [t]; mad.wide.u32 y, i, 4, x; ld.global.u32 v, [y];",
    "mov.b64 {lo, hi}, a; mov.b64 x, {lo, hi}; ld.global.u32 v, [x];",
    "cvt.u32.u64 lo, a; shr.u64 x, a, 32; cvt.u32.u64 hi, x; cvt.u64.u32 y, hi; shl.b64 z, y, 32; cvt.u64.u32 q, lo; or.b64 r, z, q;"
    " ld.global.u32 v, [r];",
    "ld.param.u32 lo, [A]; ld.param.u32 hi, [A+4]; mov.b64 x, {lo, hi}; ld.global.u32 v, [x];",
    "ld.param.u64 x, [A+8]; ld.global.u32 v, [x];",
    "mov.u64 x, A; ld.param.u64 y, [x+8]; ld.global.u32 v, [y];",
    "mov.u64 x, A; cvta.param.u64 z, x; ld.u64 y, [z+8]; ld.global.u32 v, [y];",
    "ld.param.u64 x, [S+8]; ld.global.u32 v, [x];",
    "ld.param.u64 x, [N]; ld.global.u32 v, [x];",
    "atom.global.exch.b64 x, [kept], a; ld.global.u32 v, [x];",
    "xor.b64 x, a, b; xor.b64 y, x, a; ld.global.u32 v, [y];",
    "cvt.rn.f64.u64 d, a; cvt.rzi.u64.f64 x, d; ld.global.u32 v, [x];",
    "bfe.u64 x, a, 0, 64; ld.global.u32 v, [x];",
    "sub.s64 x, b, a; add.s64 y, a, x; ld.global.u32 v, [y];",
    "ld.global.u64 x, [t]; sub.s64 y, a, b; add.s64 z, x, y; ld.global.u32 v, [z];",
    "ld.global.u64 x, [t]; sub.s64 y, a, x; add.s64 z, y, x; ld.global.u32 v, [z];",
    "ld.global.u64 x, [t]; and.b64 y, a, 3; add.s64 z, y, x; ld.global.u32 v, [z];",
    "ld.global.u64 x, [t]; selp.b64 y, a, x, p; ld.global.u32 v, [y];",
    "ld.global.u64 x, [t]; @p mov.u64 a, x; ld.global.u32 v, [a];",
    "shfl.sync.idx.b32 lo, i, 0, 31, -1; cvt.u64.u32 x, lo; ld.global.u32 v, [x];",
    "{ .reg .b64 a; ld.global.u64 a, [t]; ld.global.u32 v, [a]; }",
    "tex.1d.v4.u32.s32 {v, w, lo, hi}, [N, {i}];",
    "ld.global.u32 v, [4096];",
]


@pytest.mark.parametrize(("body", "reads", "writes"), KNOWN)
def test_accesses_through_parameters_are_told_apart(body: str, reads: str, writes: str) -> None:
    assert use(kernel(body, ".local .u64 own[4];")) == (reads, writes)


@pytest.mark.parametrize("body", UNKNOWN_READS)
def test_a_pointer_that_is_lost_may_read_everything(body: str) -> None:
    reads, writes = use(kernel(body, ".local .u64 own[4];"))
    assert reads == "ABT"
    assert writes in ("", "T")


@pytest.mark.parametrize("body", [one for one in UNKNOWN_READS if "ld.global.u32 v, [" in one])
def test_and_a_store_there_may_write_everything(body: str) -> None:
    head, _, address = body.rpartition("ld.global.u32 v, ")
    assert (
        use(kernel(f"{head} st.global.u32 {address.rstrip('; }')}, i; {'}' if body.endswith('}') else ''}", ".local .u64 own[4];"))[1]
        == "ABT"
    )


# Scattering by what was loaded leads where it says; but what lies in memory may be a pointer that the kernel put there.
ESCAPED = [
    ("st.global.u64 [kept], b; ld.global.u32 v, [kept]; mad.wide.u32 x, v, 4, a; ld.global.u32 w, [x];", "AB"),
    ("ld.global.u32 v, [t]; mad.wide.u32 x, v, 4, a; ld.global.u32 w, [x];", "AT"),
]


@pytest.mark.parametrize(("body", "reads"), ESCAPED)
def test_numbers_from_memory_may_be_made_of_pointers_that_were_stored(body: str, reads: str) -> None:
    assert use(kernel(body))[0] == reads


PICK = """
.func (.param .b64 back) pick(.param .b64 one, .param .b64 other, .param .b32 which)
{ .reg .b64 x, y, z; .reg .b32 w; .reg .pred p; ld.param.u64 x, [one]; ld.param.u64 y, [other]; ld.param.u32 w, [which];
  setp.eq.u32 p, w, 0; selp.b64 z, x, y, p; st.param.b64 [back], z; ret; }
.func (.param .b32 back) fetch(.param .b64 where)
{ .reg .b64 x; .reg .b32 w; ld.param.u64 x, [where]; ld.u32 w, [x]; st.param.b32 [back], w; ret; }
.func put(.param .b64 where)
{ .reg .b64 x; ld.param.u64 x, [where]; st.u32 [x], 1; ret; }
.extern .func (.param .b32 back) vprintf(.param .b64 format, .param .b64 values);
.extern .func elsewhere(.param .b64 where);
"""
SCOPES = "{{ .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 r0; .param .b32 r1; {} }}"
CALLS = [
    ("st.param.b64 [p0], a; call (r1), fetch, (p0); ld.param.b32 v, [r1];", "A", ""),
    ("st.param.b64 [p0], a; call put, (p0);", "", "A"),
    (
        "st.param.b64 [p0], a; st.param.b64 [p1], b; st.param.b32 [p2], i; call (r0), pick, (p0, p1, p2); ld.param.b64 x, [r0];"
        " st.global.u32 [x], i;",
        "",
        "ABT",
    ),
    ("mov.u64 x, put; st.param.b64 [p0], a; call x, (p0), shape;", "ABT", "ABT"),
    ("st.param.b64 [p0], a; call elsewhere, (p0);", "ABT", "ABT"),
    ("st.param.b64 [p0], a; st.param.b64 [p1], b; call (r1), vprintf, (p0, p1);", "ABT", ""),
]


@pytest.mark.parametrize(("body", "reads", "writes"), CALLS)
def test_functions_that_are_called_are_looked_at(body: str, reads: str, writes: str) -> None:
    """Those that access memory are put in the place of their calls; what another one gives back may be anything."""
    found = use(kernel(f"shape: .callprototype _ (.param .b64 _);\n{SCOPES.format(body)}", before=PICK))
    assert found == (reads, writes)


def test_private_memory_is_reached_by_its_own_parameter() -> None:
    """As the scratch memory that a launch allocates for a Triton kernel; by a number nothing is known."""
    module = kernel("ld.param.u64 x, [N]; st.global.u32 [x], i; ld.global.u32 v, [a];")
    assert parameter_use(module, "k", (0, 1, 2), (3,)).writes == frozenset()
    assert parameter_use(module, "k", (0, 1, 2)).writes == {0, 1, 2}


def test_a_parameter_that_is_no_array_is_not_named() -> None:
    module = kernel("ld.global.u32 v, [a]; st.global.u32 [b], v;")
    assert use(module, (0, 1)) == ("A", "B")
    assert use(module, (1,)) == ("B", "B")  # the number in A may be an address of what B names


EXAMPLES = [
    ("transpose", "_Z5tiledPfPKfi", {1}, {0}),
    ("matmul", "_Z6matmulPfPKfS1_i", {1, 2}, {0}),
    ("spmv", "_Z8csr_warpPfPKiS1_PKfS3_i", {1, 2, 3, 4}, {0}),
    ("chase", "_Z12chase_globalPyPKyi", {0, 1}, {0}),
    ("histogram", "_Z14global_atomicsPjPKhi", {0, 1}, {0}),
]


@pytest.mark.parametrize(("name", "title", "reads", "writes"), EXAMPLES)
def test_compiled_kernels_are_followed_as_far_as_their_source_says(name: str, title: str, reads: set[int], writes: set[int]) -> None:
    module = parse((Path(__file__).parents[2] / "examples" / "ptx" / f"{name}.ptx").read_text())
    found = parameter_use(module, title, reads | writes)
    assert (found.reads, found.writes) == (reads, writes)
